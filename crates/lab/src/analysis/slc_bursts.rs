//! What a burst of writes gains by an SLC cache that is folded in the pauses, by the share of the superblocks in SLC mode.
//!
//! During a burst the device always has `BOUND` requests, so the throughput is their bytes over the mean time that one of them
//! takes (Little's law). Only at the end of a burst there are fewer.

use super::Findings;
use super::levels::{Compared, LevelStudy, Load, Over, SCHEMES, WRITE_AMPLIFICATION};
use super::slc_cache::in_slc;
use crate::LabError;
use crate::table::{Row, Table};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Requests at the device.
const BOUND: f64 = 32.0;

const STUDY: LevelStudy = LevelStudy {
    name: "slc-bursts",
    column: "SLC share",
    reading: "By the share of the superblocks in SLC mode, which are folded in the pauses; means of three seeds with 95 % intervals.",
    levels: &[
        ("slc-idle-0", "0 %"),
        ("slc-idle-2", "2 %"),
        ("slc-idle-5", "5 %"),
        ("slc-idle-10", "10 %"),
        ("slc-idle-20", "20 %"),
    ],
    loads: &[
        Load {
            workload: "randwrite",
            arrivals: "burst:2048:1,bound=32",
            about: "bursts of 8 MiB",
        },
        Load {
            workload: "randwrite",
            arrivals: "burst:8192:1,bound=32",
            about: "bursts of 32 MiB",
        },
        Load {
            workload: "randwrite",
            arrivals: "burst:32768:1,bound=32",
            about: "bursts of 128 MiB",
        },
    ],
    schemes: SCHEMES,
    compared: &[
        Compared {
            name: "throughput",
            title: "Throughput in a burst",
            y: "MiB/s",
            of: throughput_in_burst,
            over: Over::Nothing,
        },
        Compared {
            name: "speedup",
            title: "Throughput in a burst, over that without an SLC cache",
            y: "times that without a cache",
            of: throughput_in_burst,
            over: Over::First,
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

pub(super) fn throughput_in_burst(row: &Row) -> Result<f64, LabError> {
    let seconds = row.number("latency_us.mean")? / 1e6;
    Ok(BOUND * PAGE_BYTES as f64 / (1 << 20) as f64 / seconds)
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    STUDY.analyse(table)
}
