//! What recovery reads on devices with a write buffer, a mapping cache or larger units, beside the
//! same device without them.

use super::Findings;
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// Setups, and the part that each of them has.
const PARTS: [(&str, &str); 6] = [
    ("buffer-0", "none"),
    ("buffer-64", "buffer of 64 MiB"),
    ("buffer-1024", "buffer of 1 GiB"),
    ("cache-10", "mapping cache"),
    ("unit-16", "units of 16 KiB"),
    ("unit-64", "units of 64 KiB"),
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut rows = Vec::new();
    for scheme in table.distinct(|run| run.scheme.as_str()) {
        let without = time(table, PARTS[0].0, scheme)?.1;

        for (setup, part) in PARTS {
            let (row, seconds) = time(table, setup, scheme)?;
            rows.push(vec![
                scheme.to_owned(),
                part.to_owned(),
                number(row.number("flash_pages")?),
                number(row.number("report.nvram_bytes")? / f64::from(1 << 20)),
                number(seconds * 1e3),
                number(seconds / without),
            ]);
        }
    }

    let columns = [
        ("scheme", false),
        ("part", false),
        ("flash pages read", true),
        ("NVRAM read, MiB", true),
        ("time, ms", true),
        ("over that without", true),
    ];
    let sheet = Some(Sheet::of_words(&columns, rows, Vec::new()));
    Ok(Findings {
        table: sheet,
        plots: vec![times(table)?],
        ..Findings::default()
    })
}

/// Bars of the schemes for each part.
fn times(table: &Table) -> Result<Plot, LabError> {
    let mut groups = Vec::new();
    for (setup, part) in PARTS {
        let mut bars = Vec::new();
        for scheme in table.distinct(|run| run.scheme.as_str()) {
            bars.push((scheme.to_owned(), time(table, setup, scheme)?.1 * 1e3));
        }
        groups.push((part.to_owned(), bars));
    }

    let title = String::new();
    Ok(Plot {
        name: "recovery-parts".into(),
        title: "Recovery after a power cut, by the parts of a drive".into(),
        reading: "Time to read what recovery needs, on a filled device with each part alone."
            .into(),
        y: "milliseconds".into(),
        shape: MarkKind::Bars(vec![Panel { title, groups }], None),
    })
}

/// The recovery of a scheme on a setup, and its seconds.
fn time<'a>(table: &'a Table, setup: &'a str, scheme: &'a str) -> Result<(&'a Row, f64), LabError> {
    let asked = Ask {
        setup: Some(setup),
        scheme: Some(scheme),
        ..Ask::default()
    };
    let row = table.rows(asked).next();
    let row = row.ok_or_else(|| LabError::Failed(format!("no run of {scheme} on {setup}")))?;
    Ok((row, row.number("seconds")?))
}
