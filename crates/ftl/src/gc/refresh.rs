//! Refresh: collection of a superblock whose data might become unreadable, because its pages were read
//! often or written long ago.
//!
//! A read disturbs the other pages of its block, and cells lose charge with time. Real firmware counts the
//! reads of each block and moves the data before errors exceed what ECC corrects; it also moves data of a
//! certain age. Here the age is measured in sequence numbers, since the firmware has no clock: a device that is
//! not written does not age. The counts of reads are in DRAM, and begin at zero after a power cut. Ages do not:
//! the number of a superblock's head says when it was opened.
//!
//! A refresh is a collection like any other, with the same order of operations: only its cause differs. One
//! superblock is refreshed at a time, paced by the pages that the host writes *and reads*, so that reads alone
//! get it done, and it moves at most about as many pages as the host transfers. While free superblocks are
//! short, every other job collects garbage.
//!
//! Invariant: a refresh that gains no page begins only if superblocks beyond the reserve have room for its pages.
//! Absent: the counts and the list (`due`), the movement of pages (`relocate`), open superblocks (listed, and
//! refreshed once they are closed), logs of schemes (which are read at power-on only) and superblocks in their last
//! cycle (an erase would retire them).

use crate::contract::CopiesOf;
use crate::error::{Contradiction, Refusal};
use crate::ftl::Ftl;
use crate::superblock::{Stream, SuperblockState};
use remap_ssd_media::{Lpn, Ppn, SbId};

/// Ages are compared again after this share of their limit, so that a search costs little per page.
const LOOKS: u64 = 64;
/// Attempts per superblock of pages transferred by the host, while no listed superblock can be refreshed.
const ATTEMPTS: u32 = 64;

/// Whether a listed superblock can be refreshed.
enum Standing {
    Now,
    /// It lacks free superblocks: at least one.
    Lacks(u32),
    /// It is open.
    Later,
    Never,
}

impl Ftl {
    /// Counts a read of a page for the host.
    #[inline]
    pub(crate) fn count_read(&mut self, ppn: Ppn) {
        if let Some(refresh) = &mut self.gc.refresh {
            refresh.count_read(&self.core.geometry, ppn);
        }
    }

    /// Returns true if a superblock may have to be refreshed.
    #[inline]
    pub(crate) fn wants_refresh(&self) -> bool {
        let now = self.core.clock.now();
        let refresh = self.gc.refresh.as_ref();
        refresh.is_some_and(|refresh| refresh.has_work(now))
    }

    /// Returns true if reads count, or superblocks have ages.
    #[inline]
    pub(crate) fn refreshes(&self) -> bool {
        self.gc.refresh.is_some()
    }

    /// Called after a page has been read for the host: a refresh has its turn as before a program. Otherwise
    /// a device that is only read would never be refreshed. Returns where the page is then.
    #[cold]
    pub(crate) fn refresh_after_read(
        &mut self,
        lpn: Lpn,
        ppn: Ppn,
    ) -> Result<Option<Ppn>, Refusal> {
        self.count_read(ppn);
        if self.paused || !self.wants_turn() || self.may_change().is_err() {
            return Ok(Some(ppn));
        }
        // Reads begin a collection of garbage only if a refresh lacks room, and go on with one for which a
        // refresh waits. A refusal concerns the next change, which meets it again.
        let _ = if self.gc.job.is_some() {
            self.pace_read()
        } else {
            self.begin_pace(false)
        };

        // It may have been moved, and its copy may have failed.
        let place = self.place(lpn);
        match place {
            Some(ppn) if self.core.media.is_meta(ppn) => Err(Refusal::MediaError),
            _ => Ok(place),
        }
    }

    fn wants_turn(&self) -> bool {
        self.gc.job.as_ref().is_some_and(|job| job.refreshes) || self.wants_refresh()
    }

    /// Starts to refresh a superblock if one is due and can be moved.
    pub(crate) fn begin_refresh(&mut self) -> bool {
        if !self.wants_refresh() {
            return false;
        }
        self.look_at_ages();
        let is_short = self.core.blocks.free() <= self.gc_start;
        let Some(refresh) = &mut self.gc.refresh else {
            return false;
        };
        refresh.room.lacking = 0;
        if std::mem::take(&mut refresh.was_last) && is_short {
            return false;
        }
        if refresh.rest > 0 {
            refresh.rest -= 1;
            return false;
        }

        let Some(sb) = self.take_due() else {
            self.set_rest(self.core.geometry.pages_per_superblock() / ATTEMPTS);
            return false;
        };
        let capacity = self.core.blocks.get(sb).capacity;
        self.begin_job_on(sb, capacity.max(1));
        self.room_was_found();
        if let (Some(job), Some(refresh)) = (&mut self.gc.job, &mut self.gc.refresh) {
            job.refreshes = true;
            refresh.was_last = true;
        }
        true
    }

    /// In idle time an attempt costs nothing that anyone waits for.
    pub(super) fn begin_idle_refresh(&mut self) -> bool {
        self.set_rest(0);
        self.begin_refresh()
    }

    fn set_rest(&mut self, turns: u32) {
        if let Some(refresh) = &mut self.gc.refresh {
            refresh.rest = turns;
        }
    }

    /// Takes the first superblock that can be refreshed now off the list, and those that never can.
    fn take_due(&mut self) -> Option<SbId> {
        let mut refresh = self.gc.refresh.take()?;
        let copies = self
            .scheme
            .references_without_room(&self.core.tables, &self.core.blocks);
        let (mut found, mut lacking) = (None, u32::MAX);
        refresh.due.retain(|sb| {
            if found.is_some() {
                return true;
            }
            match self.standing(*sb, copies.as_ref()) {
                Standing::Now => found = Some(*sb),
                Standing::Lacks(superblocks) => {
                    lacking = lacking.min(superblocks);
                    return true;
                }
                Standing::Later => return true,
                Standing::Never => {}
            }
            false
        });
        drop(copies);
        if found.is_none() && lacking < u32::MAX {
            refresh.room.lacking = lacking;
        }
        self.gc.refresh = Some(refresh);
        found
    }

    fn standing(&self, id: SbId, copies: Option<&CopiesOf<'_>>) -> Standing {
        let (blocks, sb) = (&self.core.blocks, self.core.blocks.get(id));
        let live = blocks.owners(id).live;
        if sb.state == SuperblockState::Open {
            return Standing::Later;
        }
        if sb.state != SuperblockState::Closed || blocks.is_in_last_cycle(id) {
            return Standing::Never;
        }

        // A superblock that gains space is collected as any other. If it gains none, its pages, copies of
        // references and pads must fit in what is free beyond the reserve.
        let candidate = self.candidate(id, sb, copies, 0.0);
        if candidate.is_some_and(|found| found.garbage() > 0) {
            return Standing::Now;
        }
        let moved = if self.hybrid {
            // A block needs consecutive pages, so the end of a superblock may be lost.
            2 * self.core.tables.map.blocks().cost(id, live)
        } else {
            live
        };
        let needed = u64::from(moved + copies.map_or(0, |of| of(id)) + self.gc.pads_most);
        let spare = blocks.free().saturating_sub(self.reserve) as usize;
        let lacking = needed.saturating_sub(blocks.free_pages(spare, needed));
        if lacking == 0 {
            return Standing::Now;
        }
        let below = self.reserve.saturating_sub(blocks.free());
        Standing::Lacks(below + lacking.div_ceil(self.data_pages().into()) as u32)
    }

    /// Lists the superblocks that have reached the age limit, if it is time to look.
    fn look_at_ages(&mut self) {
        let now = self.core.clock.now();
        let Some(refresh) = &mut self.gc.refresh else {
            return;
        };
        if now < refresh.look_at {
            return;
        }

        let (limit, mut next) = (refresh.age_limit, now + refresh.age_limit);
        for (id, sb) in self.core.blocks.iter() {
            let is_data = sb.stream != Stream::Log
                && matches!(sb.state, SuperblockState::Open | SuperblockState::Closed);
            if !is_data {
                continue;
            }
            if sb.opened + limit <= now {
                refresh.list(id);
            } else {
                next = next.min(sb.opened + limit);
            }
        }
        refresh.look_at = next.max(now + limit / LOOKS);
    }

    /// Checks that free superblocks have no counted reads, and that no superblock is listed twice.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check_refresh(&self) -> Result<(), Contradiction> {
        let Some(refresh) = &self.gc.refresh else {
            return Ok(());
        };
        let geometry = &self.core.geometry;
        for (id, sb) in self.core.blocks.iter() {
            let first = geometry.block(id, 0).0 as usize;
            let reads = refresh.reads.get(first..first + geometry.dies() as usize);
            let is_read = reads.is_some_and(|reads| reads.iter().any(|reads| *reads > 0));
            let times = refresh.due.iter().filter(|due| **due == id).count();
            let is_listed = refresh.listed[id.0 as usize];
            let is_free = sb.state == SuperblockState::Free;
            if is_free && (is_read || is_listed) || times > usize::from(is_listed) {
                return Err(Contradiction(format!(
                    "superblock {} in state {:?} is due {times} times and has reads {reads:?}",
                    id.0, sb.state
                )));
            }
        }
        Ok(())
    }
}
