//! Counters of what the firmware did since it was powered on; a run subtracts two readings.

use serde::Serialize;
use std::ops::Sub;

/// Why a remap became a physical copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demotion {
    /// The page's reference counter is full.
    CounterFull,
    /// No room for remapping metadata.
    NvramFull,
    /// Too large a share of the entries is valid.
    Watermark,
    /// The page's slots are all taken.
    DegreeFull,
    /// The page does not name the target as its home.
    Unhinted,
}

/// What has become of remaps: few enough counters to be read before and after each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapCounts {
    /// Pages remapped: nothing was programmed for them.
    pub remapped: u64,
    /// Pages copied, since the page's reference counter was full.
    pub counter_full: u64,
    /// Pages copied, since the remapping metadata had no room or was fuller than the watermark.
    pub metadata_full: u64,
    /// Pages copied, since the scheme remaps nothing, or not this page.
    pub otherwise: u64,
}

/// Counters that a scheme may have of its own.
const SCHEME_COUNTERS: usize = 8;

/// One of a scheme's own counters, by its place in the list of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(usize);

impl Counter {
    /// The counter of this name. Meant for constants: a name that is not listed does not compile.
    pub const fn named(name: &str, list: &[&str]) -> Self {
        assert!(list.len() <= SCHEME_COUNTERS, "too many counters");
        let mut at = 0;
        // Past the end of the list this indexes out of bounds, which is a compile error in a
        // constant.
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
    /// Adds to one of the counters, which the scheme has named.
    #[inline]
    pub fn add(&mut self, counter: Counter, times: u64) {
        self.0[counter.0] += times;
    }

    /// In the order of the names.
    pub fn values(&self) -> impl Iterator<Item = u64> {
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
        /// Counters, in pages unless said otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// The scheme's own, which `Ftl::scheme_counters` names.
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
    /// Pages that the host read.
    host_reads,
    /// Written or remapped by the host, dedup hits included.
    host_writes,
    /// Deallocated by the host (trim, write zeroes).
    host_deallocations,
    /// Pages that were remapped instead of copied.
    remaps,
    /// Writes whose content was on flash already.
    dedup_hits,
    /// Duplicates missed: writes whose content was on flash in a page for which the fingerprint
    /// store had no room.
    dedup_missed,
    /// Hits verified by a read: of an untrusted fingerprint, or of one loaded from a file.
    verified,
    /// Of the untrusted ones, contents that differed: the fingerprint collided.
    collisions,
    /// Writes and remaps that changed nothing: the page was there already.
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
    /// Remaps that a scheme without remapping served as copies.
    copies,
    /// Programs that carried host data, demoted remaps included.
    host_programs,
    /// Programs by garbage collection and wear levelling.
    gc_programs,
    /// Of those, pages that the policy keeps apart: moved to its second or third zone.
    gc_zoned,
    /// References that GC had to copy because their metadata found no room.
    gc_copies,
    /// Programs of heads, tails, deallocation maps and pages of a log on flash.
    meta_programs,
    /// Of those, pages of a log of remaps on flash.
    log_programs,
    /// Superblocks that garbage collection emptied and erased.
    gc_runs,
    /// Of those, for wear levelling.
    wear_runs,
    /// Reclaims of remapping metadata that were not part of a flash GC.
    metadata_gc_runs,
    /// Pages noted in the file map.
    fs_recorded,
    /// Pages not noted: no room for one more file.
    fs_files_full,
    /// Pages not noted: no room for one more page.
    fs_blocks_full,
    /// Resets of the file map.
    fs_resets,
    /// Blocks retired because they failed.
    blocks_retired,
    /// Blocks filled for the last time: they keep what they hold and are worn out.
    blocks_worn,
    /// Times that bitmaps of deallocations were written.
    dealloc_flushes,
    /// Programs that failed and were done elsewhere.
    program_failures,
    /// References that a scheme could not find when their page moved: those LPNs lost their data.
    lost_references,
    /// Remap commands that took effect as a whole.
    atomic_commands,
    /// Hybrid mapping: blocks that the host wrote in order as a whole.
    merges_switch,
    /// Blocks of which it wrote a part in order, and the rest was copied behind it.
    merges_partial,
    /// Blocks of which every page was copied.
    merges_full,
    /// Programs that this took, of those by garbage collection.
    merge_programs,
    /// Of those, pages in the place of unmapped ones and at the end of superblocks.
    merge_pads,
    /// Pages that shared a flash page with another LPN until their block was put in order.
    merge_unshared,
}

impl Stats {
    /// Counts a remap that became a copy, by cause.
    pub fn demote(&mut self, cause: Demotion) {
        match cause {
            Demotion::CounterFull => self.demoted_counter_full += 1,
            Demotion::NvramFull => self.demoted_nvram_full += 1,
            Demotion::Watermark => self.demoted_watermark += 1,
            Demotion::DegreeFull => self.demoted_degree_full += 1,
            Demotion::Unhinted => self.demoted_unhinted += 1,
        }
    }

    /// The counters of remaps alone, for the difference that one command makes.
    pub fn remap_counts(&self) -> RemapCounts {
        RemapCounts {
            remapped: self.remaps,
            counter_full: self.demoted_counter_full,
            metadata_full: self.demoted_nvram_full + self.demoted_watermark,
            otherwise: self.demoted_degree_full + self.demoted_unhinted + self.copies,
        }
    }

    /// Remaps that became copies, for any cause.
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
