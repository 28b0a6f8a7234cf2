//! Collection of garbage for a refresh that waits for room.
//!
//! A superblock without garbage frees no more than its refresh takes, so it needs free superblocks beyond the
//! reserve. On a full device, collection may stop before there are any: at its watermark, at superblocks with
//! less garbage than `gc_garbage`, and while the device is only read. The refresh then asks for the superblocks
//! that it lacks, and garbage is collected for it: before programs, after reads and in idle time.
//!
//! Invariants: such a collection begins only if the garbage of all superblocks gives what is lacking. From one
//! refresh to the next, such collections move about as many pages, at most, as the flash has and the host transfers.
//! Absent: the counts (`due`), the decision that room is lacking (`refresh`), other collections (`pace`).

use super::due::Room;
use crate::ftl::Ftl;
use crate::policy::GcPolicy;
use std::cell::Cell;

impl Ftl {
    /// Starts to collect the superblock with the most garbage, if a refresh has just been found to wait for room
    /// that garbage can give.
    pub(super) fn begin_room(&mut self) -> bool {
        let Some(refresh) = &mut self.gc.refresh else {
            return false;
        };
        let lacking = std::mem::take(&mut refresh.room.lacking);
        if lacking == 0 || !self.may_move_for_room() || !self.garbage_gives(lacking) {
            return false;
        }
        let least = Cell::new(0);
        let Some(victim) = GcPolicy::victim_in_need(self.candidates(0.0, &least), &least) else {
            return false;
        };

        // The host has used half of the gain when the victim is empty: the other half is for the refresh.
        self.begin_job_on(victim.sb, (victim.garbage() / 2).max(1));
        if let (Some(job), Some(refresh)) = (&mut self.gc.job, &mut self.gc.refresh) {
            job.makes_room = true;
            refresh.room.moved += u64::from(victim.live);
        }
        true
    }

    /// A refresh has begun, so the next one may ask for as much.
    pub(super) fn room_was_found(&mut self) {
        let transferred = self.transferred();
        if let Some(refresh) = &mut self.gc.refresh {
            refresh.room = Room {
                transferred,
                ..Room::default()
            };
        }
    }

    /// With hybrid mapping, a block needs consecutive pages, and the ends of superblocks in which no block fits
    /// are garbage again when the superblock is closed. So garbage alone does not bound the pages moved.
    fn may_move_for_room(&self) -> bool {
        let most = u64::from(self.core.geometry.pages());
        self.gc.refresh.as_ref().is_some_and(|refresh| {
            refresh.room.moved <= most + (self.transferred() - refresh.room.transferred)
        })
    }

    fn transferred(&self) -> u64 {
        self.core.stats.host_reads + self.core.stats.host_writes
    }

    /// Returns true if all garbage together frees this number of superblocks. What is left in the superblock
    /// that takes the moved pages counts as well.
    fn garbage_gives(&self, superblocks: u32) -> bool {
        let wanted = u64::from(superblocks) * u64::from(self.data_pages());
        let least = Cell::new(0);
        let garbage: u64 = self
            .candidates(0.0, &least)
            .map(|victim| u64::from(victim.garbage().saturating_sub(self.gc.pads_most)))
            .sum();
        let stream = self.core.config.gc_stream(0);
        garbage > 0 && garbage + self.core.blocks.open_pages(stream) >= wanted
    }

    /// Pages of data in a superblock whose blocks are all good.
    pub(super) fn data_pages(&self) -> u32 {
        self.core.config.data_pages(&self.core.geometry)
    }
}
