//! The counters that a time series shows, cheap enough to be noted for each request.
//!
//! Whoever has commands done before their times are known cannot say beforehand at which of them a
//! reading of the counters will be due. So a glimpse is taken at each, and most of them are never
//! looked at. Invariant: what it says is what `Ftl::stats`, `Ftl::usage` and `Ftl::usable_pages`
//! say. Absent: when it is taken.

use crate::contract::Occupancy;
use crate::ftl::Ftl;

/// Counters at one moment. One cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Glimpse {
    /// As `Stats::host_writes`: pages the host wrote.
    pub host_writes: u64,
    /// As `Stats::gc_programs`: pages that garbage collection moved.
    pub gc_programs: u64,
    /// As `Stats::gc_runs`: superblocks that were collected.
    pub gc_runs: u64,
    /// As `Stats::demoted`: remaps that became copies.
    pub demoted: u64,
    /// Flash pages programmed since the medium was powered on.
    pub programs: u64,
    /// How full the scheme's room is.
    pub room: Occupancy,
    /// As `Ftl::usable_pages`: room for data.
    pub usable_pages: u32,
    /// As `Ftl::free_superblocks`: those that can be opened.
    pub free_superblocks: u32,
}

const _: () = assert!(size_of::<Glimpse>() == 64);

/// `Ftl::usable_pages`, kept as long as no superblock changes.
#[derive(Clone, Copy, Default)]
pub struct UsablePages {
    /// `Superblocks::changes` that it was counted at, plus one.
    counted_at: u64,
    pages: u32,
    /// It changes with the owners of pages: some superblock has been filled for the last time.
    moves: bool,
}

impl Ftl {
    /// A glimpse of the counters; `usable` is kept by the caller from one to the next.
    #[inline(always)]
    pub fn glimpse(&self, usable: &mut UsablePages) -> Glimpse {
        let (blocks, stats) = (&self.core.blocks, &self.core.stats);
        // Counting goes through all superblocks, and they change far less often than requests come.
        if usable.counted_at != blocks.changes + 1 || usable.moves {
            *usable = self.count_usable();
        }
        Glimpse {
            host_writes: stats.host_writes,
            gc_programs: stats.gc_programs,
            gc_runs: stats.gc_runs,
            demoted: stats.demoted(),
            programs: self.core.media.counts.programs,
            room: self.scheme.occupancy(&self.core.blocks),
            usable_pages: usable.pages,
            free_superblocks: blocks.free(),
        }
    }

    #[inline(never)]
    fn count_usable(&self) -> UsablePages {
        let blocks = &self.core.blocks;
        UsablePages {
            counted_at: blocks.changes + 1,
            pages: blocks.usable_pages() as u32,
            moves: blocks.has_last_cycles(),
        }
    }
}
