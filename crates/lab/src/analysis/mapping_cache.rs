//! What remapping gains when the mapping table does not fit into DRAM, by the share of its entries that do.

use super::levels::{Compared, Over, Study, per_host_page, throughput};

pub(super) const STUDY: Study = Study {
    name: "mapping-cache",
    level: "in DRAM",
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
    workloads: &[("randrw:50", "random"), ("hotrw:20:80:50", "hot")],
    schemes: &["none", "remap-ssd", "remap-ssd-x", "opt"],
    reading: "By the share of the table's entries that fit into DRAM; means of three seeds with 95 % intervals.",
    compared: COMPARED,
};

const COMPARED: &[Compared] = &[
    Compared {
        name: "gain",
        title: "Throughput, over that of none with the same cache",
        y: "times that of none",
        of: throughput,
        over: Over::Baseline,
    },
    Compared {
        name: "rest",
        title: "Throughput, over that with the whole table in DRAM",
        y: "share of that with the whole table in DRAM",
        of: throughput,
        over: Over::First,
    },
    Compared {
        name: "write amplification",
        title: "Flash pages programmed for a page that the host writes",
        y: "write amplification",
        of: |row| row.number("write_amplification"),
        over: Over::Nothing,
    },
    Compared {
        name: "table pages",
        title: "Translation pages programmed for a page that the host writes",
        y: "pages",
        of: |row| per_host_page(row, "mapping.table_pages"),
        over: Over::Nothing,
    },
];
