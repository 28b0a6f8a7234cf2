//! Write amplification of uniform random writes against closed forms, over spare space.

use super::Findings;
use crate::LabError;
use crate::plot::{Lines, MarkKind, Plot};
use crate::table::{Ask, Row, Table};
use remap_ssd_sim::theory::{GREEDY, write_amplification};
use std::fmt::Write as _;

/// Setup, policy, how many blocks it chooses among, and its name in the figure.
const ARMS: [(&str, &str, f64, &str); 3] = [
    ("background", "greedy", GREEDY, "greedy, ahead of need"),
    ("published", "greedy", GREEDY, "greedy, at once"),
    ("background", "d-choices", 10.0, "best of ten"),
];

/// Points of a curve.
const POINTS: u32 = 24;

/// Spare space, and what theory and the run say of it.
struct Point {
    spare: f64,
    predicted: f64,
    measured: f64,
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut lines = Vec::new();
    found.text = "| collection | spare space | closed form | measured | off |\n".into();
    found.text += "| --- | ---: | ---: | ---: | ---: |\n";

    for (setup, gc, draws, name) in ARMS {
        let rows = table.rows(Ask {
            setup: Some(setup),
            gc: Some(gc),
            ..Ask::default()
        });
        let points: Vec<Point> = rows
            .map(|row| point(row, draws))
            .collect::<Result<_, _>>()?;

        let mut farthest = 1.0_f64;
        for point in &points {
            let off = point.measured / point.predicted;
            if (off - 1.0).abs() > (farthest - 1.0).abs() {
                farthest = off;
            }
            _ = writeln!(
                found.text,
                "| {name} | {:.1} % | {:.3} | {:.3} | {:+.1} % |",
                point.spare * 100.0,
                point.predicted,
                point.measured,
                (off - 1.0) * 100.0
            );
            found.measure(
                format!("wa {gc} {setup} {:.3}", point.spare),
                point.measured,
            );
        }
        found.measure(format!("off {gc} {setup}"), farthest);

        let measured = points.iter().map(|point| (point.spare, point.measured));
        lines.push((format!("{name}, measured"), measured.collect()));
    }

    for (draws, name) in [
        (GREEDY, "greedy, closed form"),
        (10.0, "best of ten, closed form"),
    ] {
        let curve = curve(table, draws);
        lines.push((name.to_owned(), curve));
    }
    found.plots.push(Plot {
        name: "closed-forms".into(),
        title: "Write amplification over spare space".into(),
        reading: "Uniform random writes in a steady state: points are runs, curves are theory's."
            .into(),
        y: "flash pages per page written".into(),
        shape: MarkKind::Lines(Lines {
            x: "spare space, as a share of the data".into(),
            logarithmic: false,
            lines,
        }),
    });
    Ok(found)
}

/// Data pages of a block, and of all blocks but those that are kept free.
fn data_pages(row: &Row) -> (u32, f64) {
    let device = &row.run.device;
    let (firmware, geometry) = (&device.firmware, &device.geometry);
    let of_block = firmware.data_pages(geometry);
    let blocks = geometry.superblocks() - firmware.gc_start(geometry);
    (of_block, f64::from(blocks) * f64::from(of_block))
}

fn point(row: &Row, draws: f64) -> Result<Point, LabError> {
    let (of_block, total) = data_pages(row);
    let addressed = f64::from(row.run.device.addressable_lpns());
    Ok(Point {
        spare: total / addressed - 1.0,
        predicted: write_amplification(of_block, addressed / total, draws),
        measured: row.number("write_amplification_data")?,
    })
}

/// Theory's curve between the runs with the least and the most spare space.
fn curve(table: &Table, draws: f64) -> Vec<(f64, f64)> {
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
    let at = |index: u32| least + (most - least) * f64::from(index) / f64::from(POINTS);
    let point = |index| {
        (
            at(index),
            write_amplification(of_block, 1.0 / (1.0 + at(index)), draws),
        )
    };
    (0..=POINTS).map(point).collect()
}
