//! LPNs in doubt: pages that mark them as lost, and records that keep the doubt until they have these pages.
//!
//! The doubts are durable before any damaged record that caused them is replaced:
//!
//! 1. A page for each LPN that marks it as lost, if the superblock being filled has room for all of them. Else records of the
//!    runs in the deallocation log; if it has too few free slots, pages that list the runs, and a record that names them.
//! 2. The replacements of damaged records.  3. Collection, and the pages of the LPNs that are only recorded.  4. Zeroes in the records.
//!
//! Cut before the end of 1: recovery finds the same damage. Between 1 and 4: the record puts an LPN in doubt that has no newer
//! witness, which is its page. An LPN with a record has no mapping meanwhile: its old pages are not moved, which might give them a
//! new number, and no bitmap lists it as deallocated. If there is no space for the pages of 3, the device is read-only, and the records stay.
//!
//! Invariant: 1 takes no superblock that collection needs, but for lists of more runs than there are free slots.
//! Absent: which LPNs are in doubt (`witnesses`).

use crate::core::Core;
use crate::error::{LOST, RecoveryError, Refusal};
use crate::ftl::Ftl;
use crate::records::doubts::{DoubtList, DoubtRun, RUNS_MAX, decode, encode};
use crate::recovery::witnesses::Witnesses;
use crate::superblock::Stream;
use remap_ssd_media::{Lpn, Oob, Ppn, Purpose, StoredPage};

/// LPNs in doubt that get their pages only after a collection.
pub(super) struct WaitingDoubts {
    lpns: Vec<Lpn>,
    /// Each has a record.
    are_recorded: bool,
}

/// Reads the lists of LPNs in doubt that records name by their last pages.
pub(super) fn read_lists(
    core: &mut Core,
    witnesses: &mut Witnesses,
    named: Vec<Ppn>,
) -> Result<(), RecoveryError> {
    for last in named {
        // A list is shorter than the flash is large. Its pages are older than the record, so all of them are whole.
        let mut page = Some(last);
        let mut pages_left = core.geometry.pages();
        while let Some(at) = page {
            let damaged = RecoveryError::DoubtsDamaged { page: at.0 };
            let Some((number, list)) = read_list(core, at).filter(|_| pages_left > 0) else {
                return Err(damaged);
            };
            pages_left -= 1;

            core.blocks
                .listing_doubts
                .push(core.geometry.superblock(at));
            for DoubtRun { lpn, len } in list.runs {
                witnesses.doubt_recorded(Lpn(lpn), len, number);
            }
            page = list.previous;
        }
    }
    Ok(())
}

/// The number of a list and its content.
fn read_list(core: &mut Core, page: Ppn) -> Option<(u64, DoubtList)> {
    if page.0 >= core.geometry.pages() {
        return None;
    }
    let (oob, bytes) = core.media.read_meta(page, Purpose::Meta).ok()??;
    let list = decode(&bytes).filter(|_| oob.lpn() == Oob::DOUBTS)?;
    Some((oob.wsn(), list))
}

impl Ftl {
    /// Step 1. `recorded`: those that have a record already.
    pub(super) fn keep_doubts(
        &mut self,
        lost: &[Lpn],
        recorded: &[Lpn],
    ) -> Result<WaitingDoubts, Refusal> {
        let have_pages = self.core.blocks.left(Stream::Host) as usize >= lost.len();
        let marked = if have_pages {
            self.mark_in_open(lost)?
        } else {
            0
        };

        let waiting = &lost[marked..];
        let is_new = |lpn: &&Lpn| recorded.binary_search(lpn).is_err();
        let new: Vec<Lpn> = waiting.iter().filter(is_new).copied().collect();
        let are_recorded = self.record_doubts(&new)?;

        for lpn in waiting {
            if are_recorded || recorded.binary_search(lpn).is_ok() {
                self.core.unlink(*lpn);
            }
        }
        self.core.tables.doubtful = waiting.to_vec();
        Ok(WaitingDoubts {
            lpns: waiting.to_vec(),
            are_recorded,
        })
    }

    /// Marks LPNs as lost as long as the superblock being filled has room. Returns the number of LPNs marked.
    fn mark_in_open(&mut self, lost: &[Lpn]) -> Result<usize, Refusal> {
        for (done, &lpn) in lost.iter().enumerate() {
            // Blocks may fail meanwhile.
            if self.core.blocks.left(Stream::Host) == 0 {
                return Ok(done);
            }
            self.program_lost(lpn)?;
        }
        Ok(lost.len())
    }

    /// Records LPNs in doubt. Returns false if the deallocation log has no free slot.
    fn record_doubts(&mut self, lpns: &[Lpn]) -> Result<bool, Refusal> {
        let runs = DoubtRun::all_of(lpns);
        if runs.is_empty() {
            return Ok(true);
        }
        if self.dealloc.doubt_room() == 0 {
            return Ok(false);
        }

        self.dealloc.clean_doubt_room(&mut self.core.media);
        // One number for all: only the page that marks an LPN is a newer witness.
        let wsn = self.core.clock.tick();
        // The last slot is for a list: a cut may leave records in all others, and then there may be more doubts.
        if runs.len() < self.dealloc.doubt_room() {
            for run in runs {
                self.dealloc.record_doubt(&mut self.core.media, wsn, run);
            }
        } else {
            let last = self.program_lists(&runs, wsn)?;
            self.dealloc
                .record_doubts_in(&mut self.core.media, wsn, last);
        }

        // 1. these records  2. the replacement of the records that caused the doubts.
        self.core.media.fence();
        Ok(true)
    }

    /// Programs pages that list runs of LPNs in doubt. Returns the last one.
    fn program_lists(&mut self, runs: &[DoubtRun], wsn: u64) -> Result<Ppn, Refusal> {
        // Nothing can be collected before the scheme has resumed.
        self.paused = true;
        let mut last = None;
        for runs in runs.chunks(RUNS_MAX) {
            last = Some(self.program_list(runs, last, wsn)?);
        }
        self.core.fill_lines();
        self.paused = false;
        Ok(last.expect("there are runs"))
    }

    fn program_list(
        &mut self,
        runs: &[DoubtRun],
        previous: Option<Ppn>,
        wsn: u64,
    ) -> Result<Ppn, Refusal> {
        loop {
            let taken = self.take_host_page(Lpn(runs[0].lpn), None)?;
            let (page, oob) = (taken.ppn(), taken.oob(Oob::DOUBTS, wsn));
            let stored = StoredPage::Meta(encode(previous, runs).into());
            self.core.stats.meta_programs += 1;
            let media = &mut self.core.media;
            if media
                .program(page, oob, stored, Purpose::Meta, taken.after)
                .is_ok()
            {
                self.core.programmed(page, Purpose::Meta);
                self.core.blocks.listing_doubts.push(taken.sb);
                return Ok(page);
            }
            self.core.fail_block_of(page);
        }
    }

    /// Steps 3 and 4. `flushed`: the halves of the deallocation log that bitmaps have replaced.
    pub(super) fn settle_doubts(
        &mut self,
        waiting: &WaitingDoubts,
        flushed: Vec<usize>,
    ) -> Result<(), Refusal> {
        let marked = self.mark_collecting(waiting)?;
        let media = &mut self.core.media;
        let rest = &waiting.lpns[marked..];
        if rest.is_empty() {
            self.core.tables.doubtful.clear();
            self.core.blocks.listing_doubts.clear();
            self.dealloc.finish(media, flushed);
        } else {
            self.unreadable.extend(rest);
            self.dealloc.finish_in_doubt(media, &flushed);
        }

        if let Some(buffer) = &mut self.buffer {
            buffer.heal(&mut self.core.media);
        }
        Ok(())
    }

    /// Marks LPNs as lost. At the end of the device's life it marks no more if records keep the doubts, and leaves
    /// the free superblocks to later recoveries. Returns the number of LPNs marked.
    fn mark_collecting(&mut self, waiting: &WaitingDoubts) -> Result<usize, Refusal> {
        for (done, &lpn) in waiting.lpns.iter().enumerate() {
            self.collect_for_lost();
            if self.read_only && waiting.are_recorded {
                return Ok(done);
            }
            self.program_lost(lpn)?;
        }
        Ok(waiting.lpns.len())
    }

    /// Collects garbage before a page is programmed that marks an LPN as lost. At the end of a device's life no space can be gained;
    /// this is what the reserve is for.
    fn collect_for_lost(&mut self) {
        if self.core.blocks.free() <= self.reserve && !self.read_only {
            let _ = self.collect_now();
        }
    }

    /// Marks the data of an LPN as lost: reads return a media error until the LPN is written again.
    ///
    /// # Errors
    /// `ReadOnly`, `DiskFailed`.
    pub fn give_up(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        self.end_write();
        self.writable(lpn, 1)?;
        self.write_back(lpn, 1)?;
        self.collect_for_lost();
        let marked = self.program_lost(lpn);
        self.core.fill_lines();
        marked
    }

    /// Programs a page that reads as a media error, for an LPN whose data is lost.
    fn program_lost(&mut self, lpn: Lpn) -> Result<(), Refusal> {
        loop {
            // With a dynamic cache the host's pages may be where a superblock is open in SLC mode.
            let has_slc = self.core.blocks.has_open_slc_room();
            let in_slc = has_slc.then(|| self.core.blocks.take_slc()).flatten();
            let taken = in_slc.or_else(|| self.core.blocks.take(Stream::Host));
            let Some(taken) = taken else {
                self.core.blocks.close(&mut self.core.media, Stream::Host);
                if !self.core.blocks.open_next(
                    &mut self.core.media,
                    Stream::Host,
                    &mut self.core.clock,
                ) {
                    return Err(self.end_of_life());
                }
                continue;
            };

            let wsn = self.core.clock.tick();
            let (ppn, oob) = (taken.ppn(), taken.oob(lpn, wsn));
            let stored = StoredPage::Meta(LOST.into());
            let media = &mut self.core.media;
            if media
                .program(ppn, oob, stored, Purpose::Meta, taken.after)
                .is_err()
            {
                self.core.fail_block_of(ppn);
                continue;
            }

            // The LPN's old mapping may be outdated: its correct data cannot be determined any
            // more.
            self.core.unlink(lpn);
            self.core.link(lpn, ppn, false);
            return Ok(());
        }
    }
}
