//! Counts of the pages of 4 KiB in commands of the host, and of the operations on units that they caused.

use remap_ssd_ftl::{Glimpse, Stats};
use std::ops::Sub;

/// Counts of the layer of indirection units, since power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndirectionCounts {
    /// Pages of 4 KiB that the host read.
    pub pages_read: u64,
    /// Pages of 4 KiB that the host wrote or remapped.
    pub pages_written: u64,
    /// Units that the host wrote whole: programmed without a read.
    pub whole_writes: u64,
    /// Units of which the host wrote a part: read, and programmed at once or from the write buffer.
    pub read_modify_writes: u64,
    /// Units of which the host wrote a part, and which were in the write buffer: neither read from flash nor programmed for it.
    pub merged_in_buffer: u64,
    /// Pages of 4 KiB that the host read from units in the write buffer.
    pub buffer_hits: u64,
    /// Units that a remap command copied in part or from several units: read and programmed.
    pub copied_units: u64,
    /// Pages of 4 KiB that were copied, since source and target are at different places in their units.
    pub demoted_unaligned: u64,
    /// Pages of 4 KiB that were copied, since the command has only a part of their unit.
    pub demoted_partial: u64,
    /// Pages of 4 KiB that were not deallocated, since the command has only a part of their unit.
    pub kept_pages: u64,
    /// Pages of 4 KiB that reads of the host left in the die: of units of which they needed a part.
    pub unmoved_pages: u64,
}

impl Sub for IndirectionCounts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            pages_read: self.pages_read - earlier.pages_read,
            pages_written: self.pages_written - earlier.pages_written,
            whole_writes: self.whole_writes - earlier.whole_writes,
            read_modify_writes: self.read_modify_writes - earlier.read_modify_writes,
            merged_in_buffer: self.merged_in_buffer - earlier.merged_in_buffer,
            buffer_hits: self.buffer_hits - earlier.buffer_hits,
            copied_units: self.copied_units - earlier.copied_units,
            demoted_unaligned: self.demoted_unaligned - earlier.demoted_unaligned,
            demoted_partial: self.demoted_partial - earlier.demoted_partial,
            kept_pages: self.kept_pages - earlier.kept_pages,
            unmoved_pages: self.unmoved_pages - earlier.unmoved_pages,
        }
    }
}

impl IndirectionCounts {
    /// Pages of 4 KiB that remap commands copied because of units.
    pub fn demoted(&self) -> u64 {
        self.demoted_unaligned + self.demoted_partial
    }

    /// The firmware's counters, which count units, in pages of 4 KiB: `unit` of them in each. Counts of runs, blocks, commands, and of
    /// single reads and lookups stay as they are.
    pub(crate) fn in_pages(&self, stats: Stats, unit: u64) -> Stats {
        let pages = |units: u64| units * unit;
        Stats {
            host_reads: self.pages_read,
            host_writes: self.pages_written,
            host_deallocations: pages(stats.host_deallocations),
            remaps: pages(stats.remaps),
            dedup_hits: pages(stats.dedup_hits),
            dedup_missed: pages(stats.dedup_missed),
            verified: pages(stats.verified),
            collisions: pages(stats.collisions),
            no_effect: pages(stats.no_effect),
            demoted_counter_full: pages(stats.demoted_counter_full),
            demoted_nvram_full: pages(stats.demoted_nvram_full),
            demoted_watermark: pages(stats.demoted_watermark),
            demoted_degree_full: pages(stats.demoted_degree_full),
            demoted_unhinted: pages(stats.demoted_unhinted),
            copies: pages(stats.copies),
            host_programs: pages(stats.host_programs),
            gc_programs: pages(stats.gc_programs),
            gc_zoned: pages(stats.gc_zoned),
            refresh_programs: pages(stats.refresh_programs),
            gc_copies: pages(stats.gc_copies),
            meta_programs: pages(stats.meta_programs),
            log_programs: pages(stats.log_programs),
            table_programs: pages(stats.table_programs),
            slc_programs: pages(stats.slc_programs),
            slc_folded: pages(stats.slc_folded),
            slc_died: pages(stats.slc_died),
            buffer_hits: self.buffer_hits,
            buffer_overwritten: pages(stats.buffer_overwritten),
            buffer_deallocated: pages(stats.buffer_deallocated),
            buffer_remapped: pages(stats.buffer_remapped),
            buffer_written_back: pages(stats.buffer_written_back),
            lost_references: pages(stats.lost_references),
            merge_programs: pages(stats.merge_programs),
            merge_pads: pages(stats.merge_pads),
            merge_unshared: pages(stats.merge_unshared),
            ..stats
        }
    }

    /// The same for the counters of a time series.
    pub(crate) fn glimpse_in_pages(&self, glimpse: Glimpse, unit: u32) -> Glimpse {
        let unit = u64::from(unit);
        Glimpse {
            host_writes: self.pages_written,
            gc_programs: glimpse.gc_programs * unit,
            demoted: glimpse.demoted * unit + self.demoted(),
            programs: glimpse.programs * unit,
            ..glimpse
        }
    }
}
