//! What remapping gains when the mapping table does not fit into DRAM, by the share of its entries that do.

use super::Findings;
use super::levels::{
    Compared, LevelStudy, Over, SCHEMES, WRITE_AMPLIFICATION, closed, gain, per_host_page,
    throughput,
};
use crate::LabError;
use crate::table::Table;

const STUDY: LevelStudy = LevelStudy {
    name: "mapping-cache",
    column: "in DRAM",
    reading: "By the share of the table's entries that fit into DRAM; means of three seeds with 95 % intervals.",
    levels: &[
        ("cache-100", "100 %"),
        ("cache-50", "50 %"),
        ("cache-20", "20 %"),
        ("cache-10", "10 %"),
        ("cache-5", "5 %"),
        ("cache-2", "2 %"),
        ("cache-1", "1 %"),
        ("cache-05", "0.5 %"),
    ],
    loads: &[
        closed("randrw:50", "random"),
        closed("hotrw:20:80:50", "hot"),
    ],
    schemes: SCHEMES,
    compared: &[
        gain("Throughput, over that of none with the same cache"),
        Compared {
            name: "rest",
            title: "Throughput, over that with the whole table in DRAM",
            y: "share of that with the whole table in DRAM",
            of: throughput,
            over: Over::First,
        },
        WRITE_AMPLIFICATION,
        Compared {
            name: "table pages",
            title: "Translation pages programmed for a page that the host writes",
            y: "pages",
            of: |row| per_host_page(row, "mapping.table_pages"),
            over: Over::Nothing,
        },
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
