//! Write amplification of random writes against closed forms, over spare space: all pages alike, and a
//! fifth of them receiving four fifths of the writes.

use super::Findings;
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::report::sheet::Sheet;
use remap_ssd_sim::theory::hot_cold::{self, Moved, Skew};
use remap_ssd_sim::theory::{self, GREEDY};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Workload of the experiment, what measures add to its names, its skew, and the figure's words.
const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "randwrite",
        suffix: "",
        skew: None,
        plot: "closed-forms",
        about: "Uniform random writes",
    },
    Workload {
        name: "hot:20:80",
        suffix: " hot",
        skew: Some(Skew {
            hot_data: 0.2,
            hot_writes: 0.8,
        }),
        plot: "closed-forms-hot-cold",
        about: "Random writes, 80 % of them to 20 % of the data",
    },
];

struct Workload {
    name: &'static str,
    suffix: &'static str,
    skew: Option<Skew>,
    plot: &'static str,
    about: &'static str,
}

/// How victims are chosen and where their pages go.
struct Collection {
    setup: &'static str,
    gc: &'static str,
    draws: f64,
    moved: Moved,
    name: &'static str,
}

const COLLECTIONS: [Collection; 3] = [
    Collection {
        setup: "background",
        gc: "greedy",
        draws: GREEDY,
        moved: Moved::Apart,
        name: "greedy, ahead of need",
    },
    Collection {
        setup: "published",
        gc: "greedy",
        draws: GREEDY,
        moved: Moved::WithHost,
        name: "greedy, at once",
    },
    Collection {
        setup: "background",
        gc: "d-choices",
        draws: 10.0,
        moved: Moved::Apart,
        name: "best of ten",
    },
];

/// Points of a curve.
const POINTS: u32 = 16;

/// Spare space, and what theory and the run say of it.
struct Point {
    spare: f64,
    predicted: f64,
    measured: f64,
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut compared = Vec::new();
    for workload in &WORKLOADS {
        compare(table, workload, &mut compared, &mut found)?;
    }
    let columns = [
        ("writes", false),
        ("collection", false),
        ("spare space", true),
        ("closed form", true),
        ("measured", true),
        ("off", true),
    ];
    found.table = Some(Sheet::of_words(&columns, compared, Vec::new()));
    Ok(found)
}

/// Adds a workload's measures, rows and figure.
fn compare(
    table: &Table,
    workload: &Workload,
    compared: &mut Vec<Vec<String>>,
    found: &mut Findings,
) -> Result<(), LabError> {
    let mut lines = Vec::new();
    for collection in &COLLECTIONS {
        let rows = table.rows(Ask {
            setup: Some(collection.setup),
            gc: Some(collection.gc),
            workload: Some(workload.name),
            ..Ask::default()
        });
        let points: Vec<Point> = rows
            .map(|row| point(row, workload, collection))
            .collect::<Result<_, _>>()?;

        let Collection { setup, gc, .. } = collection;
        let suffix = workload.suffix;
        let mut farthest = 1.0_f64;
        for point in &points {
            let off = point.measured / point.predicted;
            if (off - 1.0).abs() > (farthest - 1.0).abs() {
                farthest = off;
            }
            compared.push(vec![
                workload.name.to_owned(),
                collection.name.to_owned(),
                format!("{:.1} %", point.spare * 100.0),
                format!("{:.3}", point.predicted),
                format!("{:.3}", point.measured),
                format!("{:+.1} %", (off - 1.0) * 100.0),
            ]);
            found.measure(
                format!("wa {gc} {setup}{suffix} {:.3}", point.spare),
                point.measured,
            );
        }
        found.measure(format!("off {gc} {setup}{suffix}"), farthest);

        let measured = points.iter().map(|point| (point.spare, point.measured));
        lines.push((format!("{}, measured", collection.name), measured.collect()));
    }

    lines.extend(curves(table, workload));
    found.plots.push(Plot {
        name: workload.plot.into(),
        title: format!("{}: write amplification over spare space", workload.about),
        reading: "Runs in a steady state: points are measured, curves are theory's.".into(),
        y: "flash pages per page written".into(),
        shape: MarkKind::Lines(Lines {
            x: "spare space, as a share of the data".into(),
            logarithmic: false,
            lines,
        }),
    });
    Ok(())
}

/// Theory's curves between the runs with the least and the most spare space; without skew it does not
/// matter where the pages of a victim go.
fn curves(table: &Table, workload: &Workload) -> Vec<(String, Vec<(f64, f64)>)> {
    let Some(row) = table.rows.first() else {
        return Vec::new();
    };
    let spares = table.rows.iter().map(|row| {
        let (_, total) = data_pages(row);
        total / f64::from(row.run.device.addressable_lpns()) - 1.0
    });
    let (least, most) = spares.fold((f64::INFINITY, 0.0), |(least, most), spare| {
        (spare.min(least), spare.max(most))
    });
    let (of_block, _) = data_pages(row);
    let curve = |collection: &Collection| {
        let point = |index: u32| {
            let spare = least + (most - least) * f64::from(index) / f64::from(POINTS);
            (
                spare,
                workload.predict(of_block, 1.0 / (1.0 + spare), collection),
            )
        };
        (0..=POINTS).map(point).collect()
    };

    let is_apart =
        |collection: &&Collection| workload.skew.is_some() || collection.moved == Moved::Apart;
    let curves = COLLECTIONS.iter().filter(is_apart);
    curves
        .map(|collection| {
            let name = match workload.skew {
                Some(_) => collection.name,
                None if collection.gc == "greedy" => "greedy",
                None => collection.name,
            };
            (format!("{name}, closed form"), curve(collection))
        })
        .collect()
}

/// Predictions by pages of a block, bits of the valid share, draws and place of moved pages. The analysis is
/// made again for each run's interval, and a solution takes some 50 ms.
static SOLVED: Mutex<BTreeMap<(u32, u64, u64, bool), f64>> = Mutex::new(BTreeMap::new());

impl Workload {
    fn predict(&self, block_pages: u32, valid: f64, collection: &Collection) -> f64 {
        let Collection { draws, moved, .. } = *collection;
        let Some(skew) = self.skew else {
            return theory::write_amplification(block_pages, valid, draws);
        };
        let is_apart = moved == Moved::Apart;
        let key = (block_pages, valid.to_bits(), draws.to_bits(), is_apart);
        let mut solved = SOLVED.lock().unwrap_or_else(PoisonError::into_inner);
        *solved.entry(key).or_insert_with(|| {
            hot_cold::write_amplification(block_pages, valid, draws, skew, moved)
        })
    }
}

/// Data pages of a block, and of all blocks but those that are kept free.
fn data_pages(row: &Row) -> (u32, f64) {
    let device = &row.run.device;
    let (firmware, geometry) = (&device.firmware, &device.geometry);
    let of_block = firmware.data_pages(geometry);
    let blocks = geometry.superblocks() - firmware.gc_start(geometry);
    (of_block, f64::from(blocks) * f64::from(of_block))
}

fn point(row: &Row, workload: &Workload, collection: &Collection) -> Result<Point, LabError> {
    let (of_block, total) = data_pages(row);
    let addressed = f64::from(row.run.device.addressable_lpns());
    Ok(Point {
        spare: total / addressed - 1.0,
        predicted: workload.predict(of_block, addressed / total, collection),
        measured: row.number("write_amplification_data")?,
    })
}
