//! Sections on remaps: their number, why some became copies, and the sizes of their metadata and
//! the mapping table.
//!
//! Invariant: all causes of a demotion are listed. Absent: remap latencies (`details`).

use super::super::format::{MISSING, bytes, exact, percent, seconds, share, years};
use super::compare::demoted;
use super::{Section, optional};
use crate::summary::{Demotions, RunSummary};

pub(super) fn remapping(run: &RunSummary) -> Section {
    let Demotions {
        counter_full,
        nvram_full,
        watermark,
        degree_full,
        unhinted,
        unaligned,
        partial_unit,
    } = run.demotions;

    let mut section = Section {
        title: "Remaps, pages",
        rows: vec![
            ("remapped", exact(run.remaps)),
            ("demoted to copies", exact(demoted(&run.demotions))),
            ("because the counter was full", exact(counter_full)),
            ("because NVRAM was full", exact(nvram_full)),
            ("because of the watermark", exact(watermark)),
            ("because the page's slots were full", exact(degree_full)),
            ("because it was not the page's home", exact(unhinted)),
            ("LPNs that lost their data", exact(run.lost_references)),
            ("P2L lookup time", seconds(run.p2l_lookup_s)),
            (
                "P2L share of the run",
                optional(share(run.p2l_lookup_s, run.seconds_simulated), percent),
            ),
        ],
    };
    if run.indirection.is_some() {
        section.rows.extend([
            ("because places in units differed", exact(unaligned)),
            ("because it was a part of a unit", exact(partial_unit)),
        ]);
    }
    section
}

/// What units larger than a page cost, if the device has them.
pub(super) fn indirection(run: &RunSummary) -> Option<Section> {
    let cost = run.indirection?;
    Some(Section {
        title: "Indirection units",
        rows: vec![
            ("size", bytes(cost.unit_bytes)),
            ("written whole", exact(cost.whole_writes)),
            ("read, changed and written", exact(cost.read_modify_writes)),
            ("changed in the write buffer", exact(cost.merged_in_buffer)),
            ("copied for remaps", exact(cost.copied_units)),
            ("pages not deallocated", exact(cost.kept_pages)),
        ],
    })
}

pub(super) fn remapping_metadata(run: &RunSummary) -> Section {
    Section {
        title: "Remapping metadata",
        rows: vec![
            ("room", bytes(run.nvram_room_bytes)),
            (
                "of that heads and rests: no entries",
                unusable(run.nvram_heads_bytes, run.nvram_room_bytes),
            ),
            (
                "of that left to GC",
                unusable(run.nvram_reserve_bytes, run.nvram_room_bytes),
            ),
            ("room in use", percent(run.nvram_used)),
            ("of that valid", percent(run.nvram_valid)),
            ("largest segment group", bytes(run.largest_group_bytes)),
            ("L2P table in NVRAM", bytes(run.l2p_bytes)),
            ("P2L table in NVRAM", bytes(run.p2l_bytes)),
            ("NVRAM bytes written", bytes(run.nvram_bytes_written)),
            ("projected NVRAM life", years(run.nvram_life_years)),
        ],
    }
}

/// Bytes, and their fraction of the space.
fn unusable(part: u64, room: u64) -> String {
    match room {
        0 => MISSING.to_owned(),
        room => format!("{} ({})", bytes(part), percent(part as f64 / room as f64)),
    }
}

/// Size of the mapping table. Page mapping has no merges.
pub(super) fn mapping(run: &RunSummary) -> Section {
    let cost = &run.mapping;
    Section {
        title: "Mapping table",
        rows: vec![
            ("bytes", bytes(cost.table_bytes)),
            (
                "entries of the extension",
                format!(
                    "{} of {}",
                    exact(cost.extension_entries),
                    exact(cost.extension_room)
                ),
            ),
            ("blocks switched", exact(cost.merges_switch)),
            ("partial merges", exact(cost.merges_partial)),
            ("full merges", exact(cost.merges_full)),
            ("pages programmed by merges", exact(cost.merge_pages)),
            ("of those without data", exact(cost.merge_pads)),
            ("references unshared", exact(cost.unshared)),
        ],
    }
}

/// Use of the mapping cache, if there is one.
pub(super) fn mapping_cache(run: &RunSummary) -> Option<Section> {
    let cost = &run.mapping;
    (cost.cache_bytes > 0).then(|| Section {
        title: "Mapping cache",
        rows: vec![
            ("capacity", bytes(cost.cache_bytes)),
            ("most bytes at a time", bytes(cost.cache_peak_bytes)),
            ("entries cached", hits(cost.cache_hits, cost.cache_misses)),
            ("translation pages read", exact(cost.table_reads)),
            ("translation pages programmed", exact(cost.table_pages)),
        ],
    })
}

/// Use of the write buffer, if there is one.
pub(super) fn write_buffer(run: &RunSummary) -> Option<Section> {
    run.write_buffer.as_ref().map(|used| Section {
        title: "Write buffer",
        rows: vec![
            ("capacity", bytes(used.bytes)),
            ("pages read from it", exact(used.hits)),
            ("pages overwritten in it", exact(used.overwritten)),
            ("pages deallocated in it", exact(used.deallocated)),
            ("pages remapped in it", exact(used.remapped)),
            ("pages written back", exact(used.written_back)),
            ("pages left at the end", exact(used.pages_left)),
        ],
    })
}

/// Entries that were cached when they were needed, with their share.
fn hits(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => MISSING.to_owned(),
        all => format!("{} ({})", exact(hits), percent(hits as f64 / all as f64)),
    }
}
