//! The counters of a time series, cheap enough to be recorded for each request.
//!
//! A caller that executes commands before it computes their times does not know at which of them a
//! reading is due. So it takes a glimpse at each, and discards most of them. Invariant: the values
//! equal those of `Ftl::stats`, `Ftl::usage` and `Ftl::usable_pages`. Absent: when a glimpse is
//! taken.

use crate::contract::Occupancy;
use crate::ftl::Ftl;

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Glimpse {
    /// `Stats::host_writes`: pages written by the host.
    pub host_writes: u64,
    /// `Stats::gc_programs`: pages moved by garbage collection.
    pub gc_programs: u64,
    /// `Stats::gc_runs`: superblocks collected.
    pub gc_runs: u64,
    /// `Stats::demoted`: remaps that became copies.
    pub demoted: u64,
    /// Flash pages programmed since power-on.
    pub programs: u64,
    /// Blocks erased since power-on.
    pub erases: u64,
    /// Occupancy of the scheme's room for entries.
    pub room: Occupancy,
    /// `Ftl::usable_pages`: room for data.
    pub usable_pages: u32,
    /// `Ftl::free_superblocks`: superblocks that can be opened.
    pub free_superblocks: u32,
}

/// `Ftl::usable_pages`, cached until a superblock changes.
#[derive(Clone, Copy, Default)]
pub struct UsablePages {
    /// `Superblocks::changes` at the time of the count, plus one.
    counted_at: u64,
    pages: u32,
    /// True if some superblock has been filled for the last time: the count then changes with the
    /// owners of pages.
    moves: bool,
}

impl Ftl {
    /// A glimpse of the counters. The caller passes the same `usable` each time.
    #[inline(always)]
    pub fn glimpse(&self, usable: &mut UsablePages) -> Glimpse {
        let (blocks, stats) = (&self.core.blocks, &self.core.stats);
        // Counting visits all superblocks, and they change far less often than requests arrive.
        if usable.counted_at != blocks.changes + 1 || usable.moves {
            *usable = self.count_usable();
        }
        Glimpse {
            host_writes: stats.host_writes,
            gc_programs: stats.gc_programs,
            gc_runs: stats.gc_runs,
            demoted: stats.demoted(),
            programs: self.core.media.counts.programs,
            erases: self.core.media.counts.erases,
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
