//! What remapping gains beside an SLC cache, by the share of the superblocks in SLC mode, and the throughput of a new device over
//! what has been written.

use super::Findings;
use super::levels::{
    Compared, LevelStudy, Over, SCHEMES, WRITE_AMPLIFICATION, closed, gain, throughput,
};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::table::{Ask, Row, Table};
use serde_json::Value;

const STUDY: LevelStudy = LevelStudy {
    name: "slc-cache",
    column: "SLC share",
    reading: "By the share of the superblocks in SLC mode; means of three seeds with 95 % intervals.",
    levels: &[
        ("slc-0", "0 %"),
        ("slc-2", "2 %"),
        ("slc-5", "5 %"),
        ("slc-10", "10 %"),
    ],
    loads: &[
        closed("randrw:50", "random"),
        closed("hotrw:20:80:50", "hot"),
    ],
    schemes: SCHEMES,
    compared: &[
        gain("Throughput, over that of none with the same SLC cache"),
        Compared {
            name: "speedup",
            title: "Throughput, over that without an SLC cache",
            y: "times that without a cache",
            of: throughput,
            over: Over::First,
        },
        Compared {
            title: "Flash pages programmed for a page that the host writes, in both modes",
            ..WRITE_AMPLIFICATION
        },
        Compared {
            name: "slow pages",
            title: "Pages programmed where cells have three bits, for a page that the host writes",
            y: "pages",
            of: |row| Ok((row.number("flash_pages")? - in_slc(row)) / row.number("host_pages")?),
            over: Over::Nothing,
        },
    ],
};

/// New devices, written in order.
const NEW: [(&str, &str); 3] = [
    ("slc-new-0", "no cache"),
    ("slc-new-5", "5 %"),
    ("slc-new-10", "10 %"),
];
const IN_ORDER: &str = "seqwrite,pages=8";

/// Pages of the host programmed in SLC mode; metadata there count as slow pages.
pub(super) fn in_slc(row: &Row) -> f64 {
    let found = row.result.pointer("/slc/host_pages");
    found.and_then(Value::as_f64).unwrap_or(0.0)
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = STUDY.analyse(table)?;
    found.plots.push(cliff(table)?);
    Ok(found)
}

/// Throughput of new devices, over what has been written to them.
fn cliff(table: &Table) -> Result<Plot, LabError> {
    let mut lines = Vec::new();
    for (setup, about) in NEW {
        let row = table.row(Ask {
            setup: Some(setup),
            workload: Some(IN_ORDER),
            ..Ask::default()
        })?;
        lines.push((about.to_owned(), course(row)?));
    }
    Ok(over_written(
        "slc-cache-cliff",
        "Throughput of a new device that is written in order",
        "By the share of the superblocks in SLC mode; the cache becomes full once.",
        lines,
    ))
}

/// Lines of throughput over what has been written.
pub(super) fn over_written(
    name: &str,
    title: &str,
    reading: &str,
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        reading: reading.into(),
        y: "MiB/s".into(),
        shape: MarkKind::Lines(Lines {
            x: "MiB written".into(),
            logarithmic: false,
            lines,
            points: Vec::new(),
        }),
    }
}

/// MiB written so far, and the throughput of the interval, of each sample: but for those of a pause, and a short one at the end.
pub(super) fn course(row: &Row) -> Result<Vec<(f64, f64)>, LabError> {
    let wrong = || LabError::Failed(format!("run `{}` has no series", row.run.title()));
    let samples = row.result.get("samples").and_then(Value::as_array);
    let (mut at_s, mut written, mut points) = (0.0, 0.0, Vec::new());
    let mut longest = 0.0;
    for sample in samples.ok_or_else(wrong)? {
        let number = |name: &str| sample.get(name).and_then(Value::as_f64).ok_or_else(wrong);
        let (until, speed) = (number("at_s")?, number("written_mib_s")?);
        let length = until - at_s;
        written += speed * length;
        at_s = until;
        if speed > 0.0 && length > longest / 2.0 {
            points.push((written, speed));
            longest = length.max(longest);
        }
    }
    Ok(points)
}
