//! Write amplification of random writes against closed forms, over spare space: all pages alike, and a
//! fifth of them receiving four fifths of the writes.

use super::{Analyse, Findings};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::report::sheet::Sheet;
use remap_ssd_sim::theory::hot_cold::{self, Moved, Skew};
use remap_ssd_sim::theory::{self, GREEDY};

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

/// What theory says of one workload's runs, which their results do not change.
struct Theory {
    /// Spare space and write amplification of each run under each of `COLLECTIONS`.
    points: Vec<Vec<Predicted>>,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// Spare space of a run, and theory's write amplification.
struct Predicted {
    spare: f64,
    amplification: f64,
}

/// Solves the closed forms: a solution takes some 50 ms.
pub(super) fn prepare(table: &Table) -> Analyse {
    let theories = WORKLOADS.each_ref().map(|workload| {
        let points = |collection| {
            let rows = rows(table, workload, collection);
            rows.map(|row| predicted(row, workload, collection))
                .collect()
        };
        Theory {
            points: COLLECTIONS.iter().map(points).collect(),
            curves: curves(table, workload),
        }
    });
    Box::new(move |table| analyse(table, &theories))
}

fn analyse(table: &Table, theories: &[Theory]) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut compared = Vec::new();
    for (workload, theory) in WORKLOADS.iter().zip(theories) {
        compare(table, workload, theory, &mut compared, &mut found)?;
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
    theory: &Theory,
    compared: &mut Vec<Vec<String>>,
    found: &mut Findings,
) -> Result<(), LabError> {
    let mut lines = Vec::new();
    for (collection, predicted) in COLLECTIONS.iter().zip(&theory.points) {
        let rows = rows(table, workload, collection).zip(predicted);
        let points: Vec<Point> = rows
            .map(|(row, predicted)| point(row, predicted))
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

    lines.extend(theory.curves.iter().cloned());
    found.plots.push(Plot {
        name: workload.plot.into(),
        title: format!("{}: write amplification over spare space", workload.about),
        reading: "Runs in a steady state: points are measured, curves are theory's.".into(),
        y: "flash pages per page written".into(),
        shape: MarkKind::Lines(Lines {
            x: "spare space, as a share of the data".into(),
            logarithmic: false,
            lines,
            points: Vec::new(),
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
        total / row.run.device.addressable_lpns() as f64 - 1.0
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

impl Workload {
    fn predict(&self, block_pages: u32, valid: f64, collection: &Collection) -> f64 {
        let Collection { draws, moved, .. } = *collection;
        match self.skew {
            None => theory::write_amplification(block_pages, valid, draws),
            Some(skew) => hot_cold::write_amplification(block_pages, valid, draws, skew, moved),
        }
    }
}

/// The runs of a workload under a collection.
fn rows<'a>(
    table: &'a Table,
    workload: &Workload,
    collection: &Collection,
) -> impl Iterator<Item = &'a Row> {
    table.rows(Ask {
        setup: Some(collection.setup),
        gc: Some(collection.gc),
        workload: Some(workload.name),
        ..Ask::default()
    })
}

/// Data pages of a block, and of all blocks but those that are kept free.
fn data_pages(row: &Row) -> (u32, f64) {
    let device = &row.run.device;
    let (firmware, geometry) = (&device.firmware, &device.geometry);
    let of_block = firmware.data_pages(geometry);
    let blocks = geometry.superblocks() - firmware.gc_start(geometry);
    (of_block, f64::from(blocks) * f64::from(of_block))
}

fn predicted(row: &Row, workload: &Workload, collection: &Collection) -> Predicted {
    let (of_block, total) = data_pages(row);
    let addressed = row.run.device.addressable_lpns() as f64;
    Predicted {
        spare: total / addressed - 1.0,
        amplification: workload.predict(of_block, addressed / total, collection),
    }
}

fn point(row: &Row, predicted: &Predicted) -> Result<Point, LabError> {
    Ok(Point {
        spare: predicted.spare,
        predicted: predicted.amplification,
        measured: row.number("write_amplification_data")?,
    })
}
