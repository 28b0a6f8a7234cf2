//! Remaps of pages in the write buffer that wait for flash, beside those that name a page there.

use super::Findings;
use super::levels::{Compared, LevelStudy, Over, WRITE_AMPLIFICATION, closed, throughput};
use crate::LabError;
use crate::table::{Row, Table};

/// The setup with the same buffer in which remaps wait.
fn waiting(setup: &str) -> String {
    setup.replace("named", "buffer")
}

/// Mean time of a remap; 0 if there are none.
fn remap_latency(row: &Row) -> Result<f64, LabError> {
    match row.number("requests.remaps")? {
        0.0 => Ok(0.0),
        _ => row.number("remap_latency_us.mean"),
    }
}

const STUDY: LevelStudy = LevelStudy {
    name: "buffered-remaps",
    column: "buffer",
    reading: "By the size of the write buffer of a device of 32 GiB, and by what remaps do with pages in it; means of three seeds with 95 % intervals.",
    levels: &[
        ("buffer-16", "16 MiB, wait"),
        ("named-16", "16 MiB, name"),
        ("buffer-64", "64 MiB, wait"),
        ("named-64", "64 MiB, name"),
        ("buffer-256", "256 MiB, wait"),
        ("named-256", "256 MiB, name"),
        ("buffer-1024", "1 GiB, wait"),
        ("named-1024", "1 GiB, name"),
    ],
    loads: &[
        closed("randrw:50", "random"),
        closed("journal", "journal"),
        closed("journal,size=0.25", "small journal"),
        closed("snapshot", "clones"),
    ],
    schemes: &["remap-ssd", "remap-ssd-x"],
    compared: &[
        Compared {
            name: "speedup",
            title: "Throughput, over that of remaps that wait",
            y: "times that of remaps that wait",
            of: throughput,
            over: Over::Setup(waiting),
        },
        WRITE_AMPLIFICATION,
        Compared {
            name: "write latency",
            title: "Mean latency of a write",
            y: "microseconds",
            of: |row| row.number("latency_us.mean"),
            over: Over::Nothing,
        },
        Compared {
            name: "remap latency",
            title: "Mean latency of a remap",
            y: "microseconds",
            of: remap_latency,
            over: Over::Nothing,
        },
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
