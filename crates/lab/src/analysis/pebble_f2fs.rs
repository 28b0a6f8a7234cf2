//! PebbleSSD §6.3: F2FS's cleaning by remap, and its fsync by the device's lists.

use super::phases::{Phase, phases};
use super::{Findings, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::Table;

const SCHEME: &str = "pebble";
/// Pages written by the synchronous writers: 4 times 500.
const SYNCED_PAGES: f64 = 2000.0;
/// Transactions of sysbench between two marks.
const TRANSACTIONS: f64 = 500.0;

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    // The first phase is the load, the second is cleaning.
    let [_, stock]: [Phase; 2] = phases(table, "f2fs-fileserver-stock", SCHEME)?;
    let [_, ours]: [Phase; 2] = phases(table, "f2fs-fileserver-flagged", SCHEME)?;
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
    found.plots.push(bars(
        "cleaning",
        "F2FS: flash pages in cleaning",
        "pages",
        stock.flash_pages,
        ours.flash_pages,
    ));

    let [stock]: [Phase; 1] = phases(table, "f2fs-oltp-stock", SCHEME)?;
    let [lists]: [Phase; 1] = phases(table, "f2fs-oltp-lists", SCHEME)?;
    found.measure("oltp_throughput", stock.seconds / lists.seconds);
    for (arm, phase) in [("stock", stock), ("lists", lists)] {
        found.measure(format!("oltp_pages {arm}"), phase.host_pages / TRANSACTIONS);
        found.measure(format!("oltp_ms {arm}"), phase.seconds * 1e3 / TRANSACTIONS);
    }

    let [stock, _]: [Phase; 2] = phases(table, "f2fs-sync-stock", SCHEME)?;
    let [lists, _]: [Phase; 2] = phases(table, "f2fs-sync-lists", SCHEME)?;
    let amplification = |phase: Phase| phase.host_pages / SYNCED_PAGES;
    found.measure("sync_throughput", stock.seconds / lists.seconds);
    found.measure("sync_amplification_stock", amplification(stock));
    found.measure("sync_amplification_lists", amplification(lists));
    found.measure(
        "sync_amplification_saved",
        1.0 - lists.host_pages / stock.host_pages,
    );
    let title = "F2FS: pages written for a page that is synced";
    found.plots.push(bars(
        "sync",
        title,
        "pages",
        amplification(stock),
        amplification(lists),
    ));
    Ok(found)
}

fn bars(name: &str, title: &str, y: &str, stock: f64, ours: f64) -> Plot {
    let groups = vec![(
        String::new(),
        vec![("stock".to_owned(), stock), ("pebble".to_owned(), ours)],
    )];
    Plot {
        name: name.into(),
        title: title.into(),
        reading: "Less is better.".into(),
        y: y.into(),
        shape: one_panel("", groups, None),
    }
}
