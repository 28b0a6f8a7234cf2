//! Coverage of a campaign: the number of occurrences of each rare event.
//!
//! Invariant: a mark that is zero is listed as zero, so that its absence can be seen. Absent: any
//! judgement; tests name the marks they need.

use remap_ssd_ftl::{Ftl, SchemeKind, Stats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! marks {
    (firmware { $($name:ident,)* } campaign { $($(#[$doc:meta])* $own:ident,)* }) => {
        /// Number of occurrences of rare events in a campaign.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Marks {
            $(#[doc = concat!("The firmware's counter `", stringify!($name), "`.")] pub $name: u64,)*
            $($(#[$doc])* pub $own: u64,)*
            /// Scheme-specific counters, by name.
            #[serde(flatten)]
            pub of_schemes: SchemeMarks,
        }
        impl Marks {
            /// Adds the firmware's counters since power-on.
            fn add_stats(&mut self, stats: &Stats) {
                $(self.$name += stats.$name;)*
            }
            /// Adds the marks of another campaign.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                $(self.$own += other.$own;)*
                let of_others = &other.of_schemes.0;
                of_others.iter().for_each(|(name, times)| self.of_schemes.add(name, *times));
            }
            /// All marks by name.
            pub fn by_name(&self) -> BTreeMap<&str, u64> {
                let own = [$((stringify!($name), self.$name),)* $((stringify!($own), self.$own),)*];
                let of_schemes = self.of_schemes.0.iter();
                own.into_iter()
                    .chain(of_schemes.map(|(name, times)| (name.as_str(), *times)))
                    .collect()
            }
        }
    };
}

marks! {
    firmware {
    host_writes, host_deallocations, remaps, dedup_hits, verified, no_effect, demoted_counter_full, demoted_nvram_full,
    demoted_watermark, copies, gc_programs, gc_zoned, gc_copies, meta_programs, gc_runs, wear_runs, refresh_runs, metadata_gc_runs,
    blocks_retired, blocks_worn, dealloc_flushes, program_failures, atomic_commands, lost_references,
    demoted_degree_full, demoted_unhinted,
    fs_recorded, fs_files_full, fs_blocks_full, fs_resets,
    merges_switch, merges_partial, merges_full, merge_programs, merge_pads, merge_unshared,
    table_programs, cache_misses, buffer_hits, buffer_overwritten, buffer_deallocated, buffer_remapped, buffer_written_back,
    slc_programs, slc_folded, slc_died,
    }
    campaign {
    /// Commands that main lines and forks submitted.
    commands,
    /// Remaps submitted that deallocate their sources.
    relocations,
    /// Trims and write zeroes submitted.
    trims,
    /// Cuts that left operations torn or missing.
    partial_cuts,
    /// Cuts with recovery's own operations in flight.
    recovery_cuts,
    /// Forks that became the main line.
    forks_adopted,
    /// Atomic commands in flight at a cut that recovery completed.
    atomic_committed,
    /// Atomic commands in flight at a cut that recovery undid.
    atomic_aborted,
    /// Pages listed in the file map after a cut although they were not acknowledged.
    file_pages_kept,
    /// Pages neither acknowledged nor listed after a cut.
    file_pages_dropped,
    /// Resets of the file map in flight at a cut that took effect.
    file_resets_kept,
    /// Resets of the file map in flight at a cut that did not take effect.
    file_resets_dropped,
    /// Flipped NVRAM bits that were corrected.
    flips_corrected,
    /// Devices that wore out and refused to be written.
    worn_out,
    /// Blocks made to fail at a program or an erase.
    faults_planted,
    /// Flash pages made unreadable.
    pages_damaged,
    /// NVRAM words with more flipped bits than ECC corrects.
    words_damaged,
    /// Pages that were media errors after a cut.
    lost_pages_read,
    /// Recoveries refused because of damage.
    refusals,
    }
}

/// Scheme-specific counters, by name: those of all schemes, so that zeros are listed too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemeMarks(BTreeMap<String, u64>);

impl Default for SchemeMarks {
    fn default() -> Self {
        let names = SchemeKind::ALL
            .iter()
            .flat_map(|scheme| scheme.facts().counters);
        Self(names.map(|name| ((*name).to_owned(), 0)).collect())
    }
}

impl SchemeMarks {
    fn add(&mut self, name: &str, times: u64) {
        *self.0.entry(name.to_owned()).or_default() += times;
    }
}

impl Marks {
    /// Adds the counters of a firmware about to be powered off.
    pub(crate) fn collect(&mut self, ftl: &Ftl) {
        self.add_stats(&ftl.stats());
        ftl.scheme_counters()
            .for_each(|(name, times)| self.of_schemes.add(name, times));
        self.flips_corrected += ftl.media().counts.nv_corrected;
    }
}
