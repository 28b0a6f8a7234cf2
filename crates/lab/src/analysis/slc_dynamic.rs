//! What a burst of writes gains by a dynamic SLC cache, a static one and none, by how full the device is.
//!
//! Throughput is that of `slc_bursts`.

use super::Findings;
use super::levels::{Compared, LevelStudy, Load, Over, SCHEMES, WRITE_AMPLIFICATION};
use super::slc_bursts::throughput_in_burst;
use super::slc_cache::in_slc;
use crate::LabError;
use crate::table::Table;

const STUDY: LevelStudy = LevelStudy {
    name: "slc-dynamic",
    column: "full, cache",
    reading: "By how full the device is, without an SLC cache, with a static one of 5 % of the superblocks, and with a dynamic one of half of them at most; means of three seeds with 95 % intervals.",
    levels: &[
        ("slc-none-10", "10 %, none"),
        ("slc-static-10", "10 %, static"),
        ("slc-dynamic-10", "10 %, dynamic"),
        ("slc-none-50", "50 %, none"),
        ("slc-static-50", "50 %, static"),
        ("slc-dynamic-50", "50 %, dynamic"),
        ("slc-none-90", "90 %, none"),
        ("slc-static-90", "90 %, static"),
        ("slc-dynamic-90", "90 %, dynamic"),
    ],
    schemes: SCHEMES,
    loads: &[Load {
        workload: "randwrite",
        arrivals: "burst:32768:2,bound=32",
        about: "bursts of 128 MiB",
    }],
    compared: &[
        Compared {
            name: "throughput",
            title: "Throughput in a burst",
            y: "MiB/s",
            of: throughput_in_burst,
            over: Over::Nothing,
        },
        Compared {
            name: "cached",
            title: "Share of the programs for the host that are in SLC mode",
            y: "share",
            of: |row| {
                let programs = row.number("host_programs")?;
                Ok(in_slc(row) / programs)
            },
            over: Over::Nothing,
        },
        Compared {
            title: "Flash pages programmed for a page that the host writes, in both modes",
            ..WRITE_AMPLIFICATION
        },
    ],
};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
