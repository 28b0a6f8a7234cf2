//! Folding: pages of a superblock in SLC mode move to superblocks whose cells store all bits.
//!
//! A fold is a collection like any other, with the same order of operations; only its cause and its victims differ. So
//! all owners of a page follow it, a shared page is programmed once, and pages that died in SLC mode are never moved.
//!
//! In idle time all closed superblocks are folded, those with the fewest live pages first. While the host writes, a
//! superblock is folded when few are free (`slc_fold_free`), and only if enough of its pages are dead
//! (`slc_fold_garbage`): folding a page takes a program of the slower kind, as does the page that the host writes there
//! when no superblock in SLC mode is free. So a cache whose pages do not die stays full, and writes go past it at the speed of a device without one.
//!
//! With a static cache a fold frees no superblock for collected data. It begins, and each of its steps begins, only while more
//! superblocks than the reserve are free; then a step opens at most one superblock for each zone in each group of dies,
//! which the reserve includes (`Config::fold_opens`). It never delays a collection that frees space: it is given up, and
//! what it has moved stays moved.
//!
//! With a dynamic cache a fold is a collection that frees space: a superblock in SLC mode holds a fraction of the pages for
//! which its erase makes room (`Config::check`). So it needs no room of its own, and where free superblocks are few,
//! collection finds superblocks in SLC mode among its candidates.
//!
//! Absent: the movement of pages (`relocate`), and which pages are written in SLC mode (`verbs::program`).

use super::job::GcJob;
use crate::error::Contradiction;
use crate::ftl::Ftl;
use crate::superblock::SuperblockState;
use remap_ssd_media::SbId;

/// Searches for a victim per superblock written by the host, if none is worth folding.
const LOOKS: u32 = 16;

impl Ftl {
    /// Returns true if few superblocks in SLC mode are free, and it is time to look for a victim.
    #[inline]
    pub(super) fn wants_fold(&self) -> bool {
        let blocks = &self.core.blocks;
        blocks.has_slc()
            && self.core.clock.now() >= self.gc.folding.look_again
            && blocks.slc_free() <= self.gc.folding.start
    }

    /// Starts a fold while the host writes, if one is worth it. `is_short`: collection needs its turns too.
    pub(super) fn begin_fold(&mut self, is_short: bool) -> bool {
        if !self.wants_fold() || std::mem::take(&mut self.gc.folding.was_last) && is_short {
            return false;
        }
        let least = self.core.config.slc_fold_garbage;
        let worth_it =
            |capacity: u32, live| capacity - live >= (f64::from(capacity) * least) as u32;
        if self.begin_fold_if(worth_it) {
            self.gc.folding.was_last = true;
            return true;
        }
        let pages = u64::from(self.core.geometry.pages_per_superblock() / LOOKS);
        self.gc.folding.look_again = self.core.clock.now() + pages;
        false
    }

    /// Starts a fold of any closed superblock in SLC mode.
    pub(super) fn begin_idle_fold(&mut self) -> bool {
        self.core.blocks.has_slc() && self.begin_fold_if(|_, _| true)
    }

    fn begin_fold_if(&mut self, is_worth_it: impl Fn(u32, u32) -> bool) -> bool {
        let Some((sb, capacity)) = self.fold_victim(is_worth_it) else {
            return false;
        };
        // The last page is moved when the host has used the gain.
        let gain = capacity.max(1) * self.offsets_a_page(sb);
        self.begin_job_on(sb, gain);
        true
    }

    /// The closed superblock in SLC mode with the fewest live pages, the oldest of several, with its capacity: if it is
    /// worth folding by its capacity and its live pages, and there is room for these.
    fn fold_victim(&self, is_worth_it: impl Fn(u32, u32) -> bool) -> Option<(SbId, u32)> {
        let blocks = &self.core.blocks;
        let copies = self
            .scheme
            .references_without_room(&self.core.tables, blocks);
        let superblocks = match blocks.is_slc_dynamic() {
            true => self.core.geometry.superblocks(),
            false => blocks.slc.area.superblocks(),
        };
        let closed = (0..superblocks).map(SbId).filter(|sb| {
            let entry = blocks.get(*sb);
            let is_closed = blocks.is_slc(*sb) && entry.state == SuperblockState::Closed;
            is_closed && !blocks.is_in_last_cycle(*sb)
        });
        let cost = |sb: SbId| blocks.owners(sb).live + copies.as_ref().map_or(0, |of| of(sb));
        let (live, _, sb) = closed
            .map(|sb| (cost(sb), blocks.get(sb).opened, sb))
            .min()?;
        let capacity = blocks.filled_capacity(sb, blocks.skipped(sb));
        let worth_it = live <= capacity && is_worth_it(capacity, live);
        if blocks.is_slc_dynamic() {
            let gains = self.candidate(sb, blocks.get(sb), copies.as_ref(), 0.0);
            return (worth_it && gains.is_some()).then_some((sb, capacity));
        }

        // A victim without live pages takes no room.
        let spare = blocks.free().saturating_sub(self.reserve) as usize;
        let needed = u64::from(live + self.gc.pads_most);
        let has_room = live == 0 || blocks.free_pages(spare, needed) >= needed;
        (worth_it && has_room).then_some((sb, capacity))
    }

    /// Returns true if a job is a fold that must make way for collection, which needs the free superblocks.
    pub(super) fn gives_way(&self, job: &GcJob) -> bool {
        let blocks = &self.core.blocks;
        let is_no_gain = blocks.slc.area.has(job.sb) && blocks.owners(job.sb).live > 0;
        is_no_gain && blocks.free() <= self.reserve
    }

    /// Ends a fold half-way. Its victim is closed as before, with fewer live pages; a refresh is due again.
    pub(super) fn give_up_fold(&mut self, job: &GcJob) {
        if let Some(refresh) = &mut self.gc.refresh
            && job.refreshes
        {
            refresh.due.push_back(job.sb);
        }
    }

    /// Checks that what is in SLC mode, and only that, is of its stream, and that flash knows the same modes.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check_slc(&self) -> Result<(), Contradiction> {
        use crate::superblock::Stream;
        let blocks = &self.core.blocks;
        for (id, sb) in blocks.iter() {
            let in_use = matches!(sb.state, SuperblockState::Open | SuperblockState::Closed);
            if in_use && (sb.stream == Stream::Slc) != blocks.is_slc(id) {
                return Err(Contradiction(format!(
                    "{id:?} of {} superblocks in SLC mode is of stream {:?}",
                    blocks.slc_modes().count(),
                    sb.stream
                )));
            }
            if self.core.media.slc().has(id) != blocks.is_slc(id) {
                return Err(Contradiction(format!("{id:?} has two modes")));
            }
            if !in_use && blocks.is_slc(id) != blocks.slc.area.has(id) {
                return Err(Contradiction(format!("{id:?} is free and in SLC mode")));
            }
            if in_use && blocks.is_slc(id) && blocks.owners(id).live > blocks.places(id) {
                return Err(Contradiction(format!("{id:?} has more pages than places")));
            }
        }
        Ok(())
    }
}
