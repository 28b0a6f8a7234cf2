//! What a burst of writes gains by an SLC cache that is folded in the pauses, at random and in order: by the share of the
//! superblocks in SLC mode, and by how full a device is that has a static cache, a dynamic one or none.
//!
//! During a burst the device always has `BOUND` requests, so the throughput is their bytes over the mean time that one of them
//! takes (Little's law). Only at the end of a burst there are fewer.

use super::Findings;
use super::levels::{Compared, LevelStudy, Load, Over, WRITE_AMPLIFICATION};
use super::slc_cache::{course, in_slc, over_written};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Row, Table};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Requests at the device.
const BOUND: f64 = 32.0;

const SCHEMES: &[&str] = &["none", "remap-ssd"];

const COMPARED: &[Compared] = &[
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
        over: Over::Setup(without_cache),
    },
    Compared {
        name: "cached",
        title: "Share of the programs for the host that are in SLC mode",
        y: "share",
        of: |row| Ok(in_slc(row) / row.number("host_programs")?),
        over: Over::Nothing,
    },
    Compared {
        title: "Flash pages programmed for a page that the host writes, in both modes",
        ..WRITE_AMPLIFICATION
    },
];

const BY_SHARE: LevelStudy = LevelStudy {
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
    schemes: SCHEMES,
    loads: &[
        at_random("burst:2048:1,bound=32", "8 MiB at random"),
        at_random("burst:8192:1,bound=32", "32 MiB at random"),
        at_random("burst:32768:1,bound=32", "128 MiB at random"),
        in_order("burst:2048:1,bound=32", "8 MiB in order"),
        in_order("burst:8192:1,bound=32", "32 MiB in order"),
        in_order("burst:32768:1,bound=32", "128 MiB in order"),
    ],
    compared: COMPARED,
};

const BY_FILL: LevelStudy = LevelStudy {
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
    loads: &[
        at_random("burst:32768:2,bound=32", "128 MiB at random"),
        in_order("burst:32768:2,bound=32", "128 MiB in order"),
    ],
    compared: COMPARED,
};

/// Used devices that get one burst after a pause.
const USED: [(&str, &str, &str); 4] = [
    ("slc-used-0", "none", "none, no cache"),
    ("slc-used-10", "none", "none, 10 %"),
    ("slc-used-0", "remap-ssd", "remap-ssd, no cache"),
    ("slc-used-10", "remap-ssd", "remap-ssd, 10 %"),
];

const fn at_random(arrivals: &'static str, about: &'static str) -> Load {
    Load {
        workload: "randwrite",
        arrivals,
        about,
    }
}

const fn in_order(arrivals: &'static str, about: &'static str) -> Load {
    Load {
        workload: "seqwrite",
        arrivals,
        about,
    }
}

/// The setup without a cache that is otherwise the same.
fn without_cache(setup: &str) -> String {
    match setup.rsplit_once('-') {
        Some(("slc-idle", _)) => "slc-idle-0".to_owned(),
        Some((_, full)) => format!("slc-none-{full}"),
        None => setup.to_owned(),
    }
}

fn throughput_in_burst(row: &Row) -> Result<f64, LabError> {
    let seconds = row.number("latency_us.mean")? / 1e6;
    Ok(BOUND * PAGE_BYTES as f64 / (1 << 20) as f64 / seconds)
}

pub(super) fn by_share(table: &Table) -> Result<Findings, LabError> {
    let mut found = BY_SHARE.analyse(table)?;
    found.plots.push(cliff(table)?);
    Ok(found)
}

pub(super) fn by_fill(table: &Table) -> Result<Findings, LabError> {
    BY_FILL.analyse(table)
}

/// Throughput within one burst.
fn cliff(table: &Table) -> Result<Plot, LabError> {
    let mut lines = Vec::new();
    for (setup, scheme, about) in USED {
        let row = table.row(Ask {
            setup: Some(setup),
            scheme: Some(scheme),
            ..Ask::default()
        })?;
        lines.push((about.to_owned(), course(row)?));
    }
    Ok(over_written(
        "slc-bursts-cliff",
        "Throughput within a burst of 512 MiB in order, to a used device of 3 GiB",
        "After a pause, with 30 % of duplicates, without an SLC cache and with one of 10 % of the superblocks.",
        lines,
    ))
}
