//! Copyless Copy figures 2 and 3: SQLite with its stock rollback journal, with copies by the
//! device, and without a journal.
//!
//! Times are means over inserts: throughput (figure 2) with as many commands at a time as the setup has for
//! OFF and FULL, latency (figure 3) with one. The baseline of
//! `synchronous=OFF` includes a writeback by Linux after each insert: then as much data has reached
//! the device as in the other arms.

use super::{Findings, mean};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};

/// Inserts of a recording, as made by `rig/sqlite-figures`.
const INSERTS: f64 = 5_000.0;
const VALUES: [u32; 3] = [100, 1_000, 10_000];
/// Names of the bars, arms under OFF and under FULL.
const ARMS: [(&str, &str, &str); 3] = [
    ("stock", "writeback", "stock"),
    ("copyless", "copyless", "copyless"),
    ("no journal", "nojournal", "nojournal"),
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    for value in VALUES {
        compare(table, value, "off", "writeback", &mut found)?;
        compare(table, value, "single", "writeback", &mut found)?;
        compare(table, value, "full", "stock", &mut found)?;
        left_alone(table, value, &mut found)?;
    }

    let of = |name: &str, value: u32| found.measures[&format!("{name}_{value}")];
    let gain = mean(&VALUES.map(|value| of("full_gain", value)));
    let change = of("single_gap_ms", VALUES[2]) / of("single_gap_ms", VALUES[0]);
    // The larger the share of flushes in the time, the more their numbers alone determine the gain.
    let flushes = |arm: &str| found.measures[&format!("full_flushes_{} {arm}", VALUES[0])];
    let limit = flushes("stock") / flushes("copyless");
    found.measure("full_gain", gain);
    found.measure("single_gap_change", change);
    found.measure("full_gain_if_flushes_were_all", limit);

    plots(table, &mut found)?;
    Ok(found)
}

/// The arms of one size of values under one `synchronous`.
fn compare(
    table: &Table,
    value: u32,
    synchronous: &str,
    stock: &str,
    found: &mut Findings,
) -> Result<(), LabError> {
    let stock = row(table, value, synchronous, stock)?;
    let copyless = row(table, value, synchronous, "copyless")?;
    let none = row(table, value, synchronous, "nojournal")?;
    let pages = |row: &Row| row.number("host_programs");
    let reads = |row: &Row| row.number("requests.reads");

    let mut told =
        |name: &str, figure: f64| found.measure(format!("{synchronous}_{name}_{value}"), figure);
    told("gain", ms(stock)? / ms(copyless)?);
    told("page_gain", pages(stock)? / pages(copyless)?);
    told("over_none", ms(copyless)? / ms(none)?);
    told("gap_ms", ms(copyless)? - ms(none)?);
    told("gap_pages", (pages(copyless)? - pages(none)?) / INSERTS);
    told("gap_reads", (reads(copyless)? - reads(none)?) / INSERTS);

    for (arm, row) in [("stock", stock), ("copyless", copyless), ("none", none)] {
        let mut told = |name: &str, figure: f64| {
            found.measure(format!("{synchronous}_{name}_{value} {arm}"), figure)
        };
        told("ms", ms(row)?);
        told("pages", pages(row)? / INSERTS);
        for name in ["reads", "writes", "flushes"] {
            told(name, row.number(&format!("requests.{name}"))? / INSERTS);
        }
    }
    Ok(())
}

/// A recording's run; with the paper's scheme if the extension may remap. `single`: that of OFF, one command
/// at a time.
fn row<'a>(
    table: &'a Table,
    value: u32,
    synchronous: &str,
    arm: &str,
) -> Result<&'a Row, LabError> {
    let (setup, recorded) = match synchronous {
        "off" => ("sqlite-off", "off"),
        "single" => ("sqlite", "off"),
        other => ("sqlite", other),
    };
    let workload = format!("recording:sqlite-rollback-{value}-{recorded}-{arm}");

    // The arm without a journal has no remaps, but runs on the same device as the arm that it is
    // compared with.
    let scheme = if ["copyless", "nojournal"].contains(&arm) {
        "shadow-oob"
    } else {
        "none"
    };

    table.row(Ask {
        setup: Some(setup),
        workload: Some(&workload),
        scheme: Some(scheme),
        ..Ask::default()
    })
}

/// Mean time of an insert, in milliseconds.
fn ms(row: &Row) -> Result<f64, LabError> {
    Ok(row.number("seconds_simulated")? / INSERTS * 1e3)
}

/// Pages that Linux writes without a writeback request, and remapping metadata in NVRAM compared
/// with the paper's in DRAM.
fn left_alone(table: &Table, value: u32, found: &mut Findings) -> Result<(), LabError> {
    let alone = row(table, value, "off", "stock")?;
    found.measure(
        format!("off_pages_{value} alone"),
        alone.number("host_programs")? / INSERTS,
    );
    found.measure(
        format!("off_alone_over_copyless_{value}"),
        ms(row(table, value, "off", "copyless")?)? / ms(alone)?,
    );

    let workload = format!("recording:sqlite-rollback-{value}-off-copyless");
    let ours = table.row(Ask {
        setup: Some("sqlite-off"),
        workload: Some(&workload),
        scheme: Some("remap-ssd"),
        ..Ask::default()
    })?;
    found.measure(
        format!("remap_ssd_over_shadow_oob_{value}"),
        ms(row(table, value, "off", "copyless")?)? / ms(ours)?,
    );
    Ok(())
}

fn plots(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let panel = |synchronous: &str, figure: fn(f64) -> f64| {
        let mut groups = Vec::new();

        for value in VALUES {
            let bars = ARMS.iter().map(|(name, off, full)| {
                let arm = if synchronous == "full" { full } else { off };
                Ok((
                    (*name).to_owned(),
                    figure(ms(row(table, value, synchronous, arm)?)?),
                ))
            });
            groups.push((
                format!("{value} B"),
                bars.collect::<Result<Vec<_>, LabError>>()?,
            ));
        }

        Ok::<_, LabError>(Panel {
            title: match synchronous {
                "full" => "synchronous=FULL",
                _ => "synchronous=OFF",
            }
            .into(),
            groups,
        })
    };

    for (name, title, y, off, figure) in [
        (
            "fig2",
            "Throughput of SQLite with its rollback journal",
            "inserts a second",
            "off",
            (|ms| 1e3 / ms) as fn(f64) -> f64,
        ),
        (
            "fig3",
            "Latency of SQLite with its rollback journal",
            "ms an insert",
            "single",
            |ms| ms,
        ),
    ] {
        found.plots.push(Plot {
            name: name.into(),
            title: title.into(),
            reading:
                "By the size of values, in random order. With OFF, stock is what Linux writes back after each insert."
                    .into(),
            y: y.into(),
            shape: MarkKind::Bars(vec![panel(off, figure)?, panel("full", figure)?], None),
        });
    }

    Ok(())
}
