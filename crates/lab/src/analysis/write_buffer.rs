//! What remapping gains behind a write buffer, by its size.

use super::Findings;
use super::levels::{
    Compared, LevelStudy, Over, SCHEMES, WRITE_AMPLIFICATION, closed, gain, throughput,
};
use crate::LabError;
use crate::table::Table;

/// Throughput over that of the same scheme without a buffer.
pub(super) const SPEEDUP: Compared = Compared {
    name: "speedup",
    title: "Throughput, over that without a buffer",
    y: "times that without a buffer",
    of: throughput,
    over: Over::First,
};

const STUDY: LevelStudy = LevelStudy {
    name: "write-buffer",
    column: "buffer",
    reading: "By the size of the write buffer of a device of 32 GiB; means of three seeds with 95 % intervals.",
    levels: &[
        ("buffer-0", "none"),
        ("buffer-4", "4 MiB"),
        ("buffer-16", "16 MiB"),
        ("buffer-64", "64 MiB"),
        ("buffer-256", "256 MiB"),
        ("buffer-1024", "1 GiB"),
    ],
    loads: &[
        closed("randrw:50", "random"),
        closed("hotrw:20:80:50", "hot"),
    ],
    schemes: SCHEMES,
    compared: &[
        gain("Throughput, over that of none with the same buffer"),
        SPEEDUP,
        WRITE_AMPLIFICATION,
        Compared {
            name: "write latency",
            title: "Mean latency of a write",
            y: "microseconds",
            of: |row| row.number("latency_us.mean"),
            over: Over::Nothing,
        },
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
