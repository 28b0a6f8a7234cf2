//! PebbleSSD §6.3: F2FS's cleaning by remap, and its fsync by the device's lists.

use super::phases::{Phase, phases};
use super::{Findings, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::Table;

const SETUP: &str = "f2fs";
const SCHEME: &str = "pebble";
/// Syncs of the synchronous writers: 4 times 500.
const SYNCS: f64 = 2000.0;
/// Their recordings, with the KiB written before each sync.
const SYNCED: [(&str, u32); 3] = [("sync", 4), ("sync-8k", 8), ("sync-16k", 16)];
/// Blocks of data under filebench's OLTP, by F2FS's own count when it was recorded.
const FILEBENCH_DATA: [(&str, f64); 2] = [("stock", 6527.0), ("lists", 6528.0)];
/// Transactions of sysbench between two marks.
const TRANSACTIONS: f64 = 500.0;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    // The first phase is the load, the second is cleaning.
    let [_, stock]: [Phase; 2] = phases(table, SETUP, "f2fs-fileserver-stock", SCHEME)?;
    let [_, ours]: [Phase; 2] = phases(table, SETUP, "f2fs-fileserver-flagged", SCHEME)?;
    found.measure("cleaning_time_saved", 1.0 - ours.seconds / stock.seconds);
    for (name, seconds) in [
        ("cleaning_seconds_stock", stock.seconds),
        ("cleaning_seconds", ours.seconds),
    ] {
        found.measure(name, seconds);
    }
    found.measure(
        "cleaning_pages_saved",
        1.0 - ours.flash_pages / stock.flash_pages,
    );
    let values = [("stock", stock), ("pebble", ours)]
        .map(|(arm, phase)| (arm.to_owned(), phase.flash_pages));
    let title = "F2FS: flash pages in cleaning";
    found.plots.push(bars("cleaning", title, &values));

    databases(table, &mut found)?;
    writers(table, &mut found)?;
    Ok(found)
}

/// Filebench's OLTP, and MariaDB: device time, and pages written for a page of data.
fn databases(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let mut amplification = Vec::new();
    let mut seconds = Vec::new();
    for (arm, data) in FILEBENCH_DATA {
        let [phase]: [Phase; 1] = phases(table, SETUP, &format!("f2fs-filebench-{arm}"), SCHEME)?;
        let index = phase.host_pages - data;
        if arm == "lists" && !(0.0..=8.0).contains(&index) {
            return Err(LabError::wrong(
                "f2fs-filebench-lists",
                format!(
                    "{} pages for {data} blocks of data: the count is of another recording",
                    phase.host_pages
                ),
            ));
        }

        found.measure(format!("filebench_seconds {arm}"), phase.seconds);
        found.measure(format!("filebench_pages {arm}"), phase.host_pages);
        found.measure(format!("filebench_index {arm}"), phase.host_pages - data);
        found.measure(
            format!("filebench_amplification {arm}"),
            phase.host_pages / data,
        );
        amplification.push((arm.to_owned(), phase.host_pages / data));
        seconds.push(phase.seconds);
    }

    found.measure("filebench_throughput", seconds[0] / seconds[1]);
    let title = "F2FS under filebench's OLTP: pages written for a page of data";
    found.plots.push(bars("filebench", title, &amplification));

    let [stock]: [Phase; 1] = phases(table, SETUP, "f2fs-oltp-stock", SCHEME)?;
    let [lists]: [Phase; 1] = phases(table, SETUP, "f2fs-oltp-lists", SCHEME)?;
    found.measure("oltp_throughput", stock.seconds / lists.seconds);
    found.measure("oltp_amplification", stock.host_pages / lists.host_pages);
    for (arm, phase) in [("stock", stock), ("lists", lists)] {
        found.measure(format!("oltp_pages {arm}"), phase.host_pages / TRANSACTIONS);
        found.measure(format!("oltp_ms {arm}"), phase.seconds * 1e3 / TRANSACTIONS);
    }
    Ok(())
}

/// Synchronous writers, by the size of what they sync.
fn writers(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    for (name, kib) in SYNCED {
        let [stock, _]: [Phase; 2] = phases(table, SETUP, &format!("f2fs-{name}-stock"), SCHEME)?;
        let [lists, _]: [Phase; 2] = phases(table, SETUP, &format!("f2fs-{name}-lists"), SCHEME)?;

        let data = SYNCS * f64::from(kib / 4);
        let amplification = [stock, lists].map(|phase| phase.host_pages / data);

        found.measure(format!("throughput {kib}"), stock.seconds / lists.seconds);
        found.measure(format!("amplification_stock {kib}"), amplification[0]);
        found.measure(format!("amplification_lists {kib}"), amplification[1]);
        found.measure(
            format!("amplification_saved {kib}"),
            1.0 - amplification[1] / amplification[0],
        );

        let title = format!("F2FS: pages written for a page of data, syncs of {kib} KiB");
        let arms = ["stock", "pebble"].map(str::to_owned).into_iter();
        let values: Vec<_> = arms.zip(amplification).collect();
        found.plots.push(bars(name, &title, &values));
    }
    Ok(())
}

fn bars(name: &str, title: &str, arms: &[(String, f64)]) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        reading: "Less is better.".into(),
        y: "pages".into(),
        shape: one_panel("", vec![(String::new(), arms.to_vec())], None),
    }
}
