//! What remapping gains on drives whose mapping table has entries for units larger than 4 KiB, by the size of the unit.

use super::Findings;
use super::levels::{
    Compared, LevelStudy, Over, SCHEMES, WRITE_AMPLIFICATION, closed, gain, per_host_page,
    throughput,
};
use crate::LabError;
use crate::table::Table;

const STUDY: LevelStudy = LevelStudy {
    name: "indirection-units",
    column: "unit",
    reading: "By the indirection unit; means of three seeds with 95 % intervals.",
    levels: &[
        ("unit-4", "4 KiB"),
        ("unit-8", "8 KiB"),
        ("unit-16", "16 KiB"),
        ("unit-32", "32 KiB"),
        ("unit-64", "64 KiB"),
    ],
    loads: &[
        closed("randwrite", "4 KiB"),
        closed("randwrite,pages=64", "256 KiB"),
        closed("snapshot", "snapshots"),
    ],
    schemes: SCHEMES,
    compared: &[
        gain("Throughput, over that of none with the same unit"),
        Compared {
            name: "rest",
            title: "Throughput, over that with a unit of 4 KiB",
            y: "share of that with 4 KiB",
            of: throughput,
            over: Over::First,
        },
        WRITE_AMPLIFICATION,
        Compared {
            name: "unaligned",
            title: "Pages copied instead of remapped for a page that the host writes: other places in their units",
            y: "pages",
            of: |row| per_host_page(row, "demotions.unaligned"),
            over: Over::Nothing,
        },
        Compared {
            name: "partial",
            title: "Pages copied instead of remapped for a page that the host writes: parts of units",
            y: "pages",
            of: |row| per_host_page(row, "demotions.partial_unit"),
            over: Over::Nothing,
        },
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
