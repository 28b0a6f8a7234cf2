//! Figures of a grid's points, averaged over seeds.
//!
//! Invariant: points that differ by their seed alone are one row, with the interval of Student's t
//! over the seeds; a single run keeps its own interval. Absent: tables and pictures
//! (`remap_ssd_sim::report::grid`).

use crate::Point;
use crate::axis::numbers;
use crate::diff::number_at;
use remap_ssd_sim::interval::{Interval, mean};
use remap_ssd_sim::report::grid::{Grid, GridAxis, GridRow};
use serde_json::Value;

/// The name of the axis that is averaged.
const SEED: &str = "seed";

/// The figures of points, each with its run if it is done. Figures are named as in the JSON of a
/// run, inner ones with a dot.
pub fn means(title: &str, points: &[(&Point, Option<Value>)], figures: &[String]) -> Grid {
    let mut axes: Vec<GridAxis> = Vec::new();
    for (name, value) in points.iter().flat_map(|(point, _)| &point.of_grid) {
        let axis = match axes.iter().position(|axis| axis.name == *name) {
            Some(at) => at,
            None => {
                axes.push(GridAxis::named(name));
                axes.len() - 1
            }
        };
        axes[axis].add(value);
    }

    // A single seed is an axis like any other.
    let is_averaged = |axis: &GridAxis| axis.name == SEED && axis.values.len() > 1;
    let seeds = axes
        .iter()
        .find(|axis| is_averaged(axis))
        .map_or(1, |axis| axis.values.len());
    axes.retain(|axis| !is_averaged(axis));
    for axis in &mut axes {
        axis.numbers = numbers(&axis.name, &axis.values);
    }

    let mut rows: Vec<(Vec<usize>, Vec<&Value>)> = Vec::new();
    for (point, run) in points {
        let values: Vec<usize> = axes
            .iter()
            .filter_map(|axis| axis.find(&point.of_grid))
            .collect();
        let row = match rows.iter().position(|row| row.0 == values) {
            Some(at) => at,
            None => {
                rows.push((values, Vec::new()));
                rows.len() - 1
            }
        };
        rows[row].1.extend(run);
    }

    let row = |(values, runs): (Vec<usize>, Vec<&Value>)| GridRow {
        values,
        figures: (!runs.is_empty())
            .then(|| figures.iter().map(|name| averaged(&runs, name)).collect()),
    };
    Grid {
        title: title.to_owned(),
        scheme: points
            .first()
            .map_or(String::new(), |(point, _)| point.name.scheme.clone()),
        seeds,
        axes,
        figures: figures.to_vec(),
        rows: rows.into_iter().map(row).collect(),
    }
}

/// A figure of runs that differ by their seed alone.
fn averaged(runs: &[&Value], name: &str) -> Option<Interval> {
    let values: Vec<f64> = runs.iter().filter_map(|run| number_at(run, name)).collect();
    let own = || {
        let half = number_at(runs[0].get("ci95")?, name);
        half.filter(|_| runs.len() == 1)
    };
    mean(&values).or_else(|| {
        Some(Interval {
            value: *values.first()?,
            half: own().unwrap_or(f64::NAN),
        })
    })
}
