//! The firmware's counters since power-on; a run subtracts two readings.

use serde::Serialize;
use std::ops::{AddAssign, Sub};

/// Why a remap became a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demotion {
    /// The page's reference counter is full.
    CounterFull,
    /// There is no room for remapping metadata.
    NvramFull,
    /// The fraction of valid entries is above the watermark.
    Watermark,
    /// All slots of the page are taken.
    DegreeFull,
    /// The page does not name the target as its home.
    Unhinted,
}

/// Remaps by outcome: few enough counters to be read before and after each command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemapCounts {
    /// Pages remapped without a program.
    pub remapped: u64,
    /// Pages copied because the page's reference counter was full.
    pub counter_full: u64,
    /// Pages copied because the remapping metadata had no room or was above the watermark.
    pub metadata_full: u64,
    /// Pages copied because the scheme remaps nothing, or not this page.
    pub otherwise: u64,
}

impl Sub for RemapCounts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            remapped: self.remapped - earlier.remapped,
            counter_full: self.counter_full - earlier.counter_full,
            metadata_full: self.metadata_full - earlier.metadata_full,
            otherwise: self.otherwise - earlier.otherwise,
        }
    }
}

impl AddAssign for RemapCounts {
    fn add_assign(&mut self, more: Self) {
        self.remapped += more.remapped;
        self.counter_full += more.counter_full;
        self.metadata_full += more.metadata_full;
        self.otherwise += more.otherwise;
    }
}

/// Most counters that a scheme may have.
const SCHEME_COUNTERS: usize = 8;

/// One of a scheme's own counters: an index into the list of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter(usize);

impl Counter {
    /// The counter of this name. For constants: a name that is not listed does not compile.
    pub(crate) const fn named(name: &str, list: &[&str]) -> Self {
        assert!(list.len() <= SCHEME_COUNTERS, "too many counters");
        let mut at = 0;
        // Indexing past the end of the list is a compile error in a constant.
        while !is_equal(list[at].as_bytes(), name.as_bytes()) {
            at += 1;
        }
        Self(at)
    }
}

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len()
}

/// A scheme's own counters. Their names are in its facts, in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemeCounters([u64; SCHEME_COUNTERS]);

impl SchemeCounters {
    /// Adds to a counter that the scheme has named.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, times: u64) {
        self.0[counter.0] += times;
    }

    /// The values, in the order of the names.
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> {
        self.0.into_iter()
    }
}

impl Sub for SchemeCounters {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - earlier.0[at]))
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters, in pages unless stated otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// The scheme's own counters, named by `Ftl::scheme_counters`.
            #[serde(skip)]
            pub scheme: SchemeCounters,
        }
        impl Sub for Stats {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self {
                    $($name: self.$name - earlier.$name,)*
                    scheme: self.scheme - earlier.scheme,
                }
            }
        }
    };
}

counters! {
    /// Pages read by the host.
    host_reads,
    /// Written or remapped by the host, dedup hits included.
    host_writes,
    /// Deallocated by the host (trim, write zeroes).
    host_deallocations,
    /// Pages that were remapped instead of copied.
    remaps,
    /// Writes whose content was already on flash.
    dedup_hits,
    /// Missed duplicates: writes whose content was on flash in a page for which the fingerprint
    /// store had no room.
    dedup_missed,
    /// Hits verified by a read: of an untrusted fingerprint, or of one loaded from a file.
    verified,
    /// Of the untrusted ones, contents that differed: fingerprint collisions.
    collisions,
    /// Writes and remaps without effect: the LPN already had the page.
    no_effect,
    /// Remaps turned into copies: counter full.
    demoted_counter_full,
    /// Remaps turned into copies: no room for metadata.
    demoted_nvram_full,
    /// Remaps turned into copies: above the watermark.
    demoted_watermark,
    /// Remaps turned into copies: all slots of the page taken.
    demoted_degree_full,
    /// Remaps turned into copies: the page does not name the target as its home.
    demoted_unhinted,
    /// Remaps executed as copies because the scheme does not remap.
    copies,
    /// Programs of host data, demoted remaps included.
    host_programs,
    /// Programs by garbage collection and wear levelling.
    gc_programs,
    /// Of those, pages that the policy keeps apart: moved to its second or third zone.
    gc_zoned,
    /// Of all programs by garbage collection, those that refreshed a superblock.
    refresh_programs,
    /// References that GC had to copy because there was no room for their metadata.
    gc_copies,
    /// Programs of heads, tails, deallocation bitmaps and pages of a log on flash.
    meta_programs,
    /// Of those, pages of a log of remaps on flash.
    log_programs,
    /// Of all programs of metadata, translation pages.
    table_programs,
    /// Reads of translation pages.
    table_reads,
    /// Lookups and changes of entries of the mapping table that were in the mapping cache.
    cache_hits,
    /// Those of entries that were not.
    cache_misses,
    /// Reads of pages in the write buffer.
    buffer_hits,
    /// Pages in the write buffer that the host wrote again: they never reached flash.
    buffer_overwritten,
    /// Pages in the write buffer that the host deallocated: they never reached flash.
    buffer_deallocated,
    /// Pages of remaps whose source was in the write buffer, and whose target got a page there too.
    buffer_remapped,
    /// Pages that left the write buffer for flash: programs, and remaps to pages with the same content.
    buffer_written_back,
    /// Pages of commands programmed in SLC mode.
    slc_programs,
    /// Of all programs by garbage collection, those of pages folded: moved from superblocks in SLC mode.
    slc_folded,
    /// Pages programmed in SLC mode that were dead when their superblock was erased, and so were never moved.
    slc_died,
    /// Superblocks in SLC mode erased.
    slc_erases,
    /// Superblocks emptied and erased by garbage collection.
    gc_runs,
    /// Of those, for wear levelling.
    wear_runs,
    /// Of all superblocks erased by garbage collection, those refreshed because of their reads or their age.
    refresh_runs,
    /// Reclaims of remapping metadata that were not part of a flash GC.
    metadata_gc_runs,
    /// Pages recorded in the file map.
    fs_recorded,
    /// Pages not recorded: no room for another file.
    fs_files_full,
    /// Pages not recorded: no room for another page.
    fs_blocks_full,
    /// Resets of the file map.
    fs_resets,
    /// Blocks retired because of failures.
    blocks_retired,
    /// Blocks filled for the last time: worn out, they keep their contents.
    blocks_worn,
    /// Flushes of the deallocation log to bitmaps.
    dealloc_flushes,
    /// Failed programs, repeated elsewhere.
    program_failures,
    /// References that a scheme could not find when their page moved: those LPNs lost their data.
    lost_references,
    /// Atomic remaps committed.
    atomic_commands,
    /// Hybrid mapping: blocks that the host wrote completely in order.
    merges_switch,
    /// Blocks that the host wrote partly in order; the rest was copied after it.
    merges_partial,
    /// Blocks of which every page was copied.
    merges_full,
    /// Programs for merges, including those by garbage collection.
    merge_programs,
    /// Of those, pads in place of unmapped pages and at the end of superblocks.
    merge_pads,
    /// Pages that shared a flash page with another LPN until their block was put in order.
    merge_unshared,
}

impl Stats {
    /// Counts a remap that became a copy, by cause.
    pub(crate) fn demote(&mut self, cause: Demotion) {
        match cause {
            Demotion::CounterFull => self.demoted_counter_full += 1,
            Demotion::NvramFull => self.demoted_nvram_full += 1,
            Demotion::Watermark => self.demoted_watermark += 1,
            Demotion::DegreeFull => self.demoted_degree_full += 1,
            Demotion::Unhinted => self.demoted_unhinted += 1,
        }
    }

    /// The counters of remaps only, to compute the difference that one command makes.
    pub(crate) fn remap_counts(&self) -> RemapCounts {
        RemapCounts {
            remapped: self.remaps,
            counter_full: self.demoted_counter_full,
            metadata_full: self.demoted_nvram_full + self.demoted_watermark,
            otherwise: self.demoted_degree_full + self.demoted_unhinted + self.copies,
        }
    }

    /// Remaps that became copies for any cause except `copies`.
    pub fn demoted(&self) -> u64 {
        self.demoted_counter_full
            + self.demoted_nvram_full
            + self.demoted_watermark
            + self.demoted_degree_full
            + self.demoted_unhinted
    }

    /// Flash pages programmed for any purpose.
    pub fn programs(&self) -> u64 {
        self.host_programs + self.gc_programs + self.meta_programs
    }
}
