//! What flushes of the host cost without a write buffer, and with one that is saved at a power cut or lost.

use super::Findings;
use super::levels::{LevelStudy, SCHEMES, WRITE_AMPLIFICATION, closed, gain};
use super::write_buffer::SPEEDUP;
use crate::LabError;
use crate::table::Table;

const STUDY: LevelStudy = LevelStudy {
    name: "flushes",
    column: "buffer",
    reading: "A device of 32 GiB without a write buffer, and with one of 1 GiB that a power cut leaves (saved) or empties (volatile); means of three seeds with 95 % intervals.",
    levels: &[
        ("buffer-0", "none"),
        ("buffer-1024", "saved"),
        ("volatile-1024", "volatile"),
    ],
    loads: &[
        closed("randwrite,flush=8", "flush after 8"),
        closed("randwrite,flush=64", "flush after 64"),
        closed("randwrite,flush=512", "flush after 512"),
        closed("randwrite,flush=4096", "flush after 4096"),
    ],
    schemes: SCHEMES,
    compared: &[
        gain("Throughput, over that of none with the same buffer"),
        SPEEDUP,
        WRITE_AMPLIFICATION,
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
