//! Reads of a file whose pages have lost their order across dies, beside those of a file just written.
//!
//! Each figure is a mean over seeds, of which each draws another order. Absent: how the order was lost
//! (`order`).

use super::Findings;
use crate::LabError;
use crate::order::DEPTHS;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Table};
use remap_ssd_sim::interval::{self, Interval};
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;
use std::collections::BTreeMap;

/// Kinds of devices: the ends of their setups' names and of those of the devices with the new file, and the words for them.
const DEVICES: [(&str, &str, &str); 6] = [
    ("8", "8", "8 dies"),
    ("16", "16", "16 dies"),
    ("32", "32", "32 dies"),
    ("64", "64", "64 dies"),
    ("tlc", "tlc", "32 dies, TLC"),
    ("32-lpn", "32", "32 dies by LPN"),
];

/// A file's pasts: workload, setup, and the words for it.
const PASTS: [(&str, &str, &str); 6] = [
    ("overwritten", "roomy", "overwritten"),
    ("overwritten,run=8", "roomy", "overwritten, runs of 8"),
    ("remapped", "roomy", "remapped"),
    ("remapped,run=8", "roomy", "remapped, runs of 8"),
    ("deduplicated:0.5", "roomy", "half deduplicated"),
    ("collected", "full", "collected"),
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    let mut panels: Vec<Panel> = DEPTHS
        .iter()
        .map(|depth| Panel {
            title: format!("{depth} in flight"),
            groups: Vec::new(),
        })
        .collect();

    let mut halves = BTreeMap::new();
    for (device, new, device_name) in DEVICES {
        for panel in &mut panels {
            panel.groups.push((device_name.to_owned(), Vec::new()));
        }
        for (workload, room, past) in PASTS {
            let setup = format!("order-{room}-{device}");
            let mut cells = vec![device_name.to_owned(), past.to_owned()];
            for (depth, panel) in DEPTHS.into_iter().zip(&mut panels) {
                let rate = format!("depth_{depth}.mib_s");
                let fresh = rates(table, &format!("order-{room}-{new}"), "fresh", &rate)?;
                let rates = rates(table, &setup, workload, &rate)?;
                let shares: Vec<f64> = rates
                    .iter()
                    .zip(&fresh)
                    .map(|(of, fresh)| of / fresh)
                    .collect();

                let share = over_seeds(&shares);
                cells.push(number(super::mean(&fresh)));
                cells.push(number(super::mean(&rates)));
                cells.push(format!(
                    "{:+.1} ±{:.1} %",
                    (share.value - 1.0) * 100.0,
                    share.half * 100.0
                ));

                found.measure(
                    format!("{past}, {device_name}, {depth} in flight"),
                    share.value,
                );
                halves.insert(
                    [&panel.title, device_name, past].map(str::to_owned),
                    share.half * 100.0,
                );
                if let Some((_, bars)) = panel.groups.last_mut() {
                    bars.push((past.to_owned(), share.value * 100.0));
                }
            }
            rows.push(cells);
        }
    }

    let mut columns = vec![
        ("device".to_owned(), false),
        ("the file was".to_owned(), false),
    ];
    for depth in DEPTHS {
        columns.push((format!("new, {depth} in flight, MiB/s"), true));
        columns.push(("then".to_owned(), true));
        columns.push(("change".to_owned(), true));
    }
    let columns: Vec<(&str, bool)> = columns
        .iter()
        .map(|(name, right)| (name.as_str(), *right))
        .collect();
    found.table = Some(Sheet::of_words(&columns, rows, Vec::new()));
    found.plots.push(Plot {
        name: "die-order".into(),
        title: "Sequential reads of 128 KiB, of files that have lost their order across dies"
            .into(),
        reading:
            "100 is a file that was written in order. Means of three orders with 95 % intervals."
                .into(),
        y: "% of a new file's throughput".into(),
        shape: MarkKind::Means(panels, Some(100.0), halves),
    });
    Ok(found)
}

/// A figure of each seed.
fn rates(table: &Table, setup: &str, workload: &str, name: &str) -> Result<Vec<f64>, LabError> {
    let rows = table.rows(Ask {
        setup: Some(setup),
        workload: Some(workload),
        ..Ask::default()
    });
    rows.map(|row| row.number(name)).collect()
}

/// The mean over seeds, with its interval.
pub(super) fn over_seeds(values: &[f64]) -> Interval {
    interval::mean(values).unwrap_or(Interval {
        value: super::mean(values),
        half: f64::NAN,
    })
}
