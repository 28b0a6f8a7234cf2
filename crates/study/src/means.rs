//! Figures of a grid's points, averaged over seeds.
//!
//! Invariant: points that differ by their seed alone are one row, with the interval of Student's t
//! over the seeds; a single run keeps its own interval. Absent: tables and pictures
//! (`remap_ssd_sim::report::grid`).

use crate::axis::numbers;
use crate::{Point, about};
use remap_ssd_sim::interval::{Interval, mean, of_run};
use remap_ssd_sim::report::grid::{Grid, GridAxis, GridRow};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The name of the axis that is averaged.
const SEED: &str = "seed";

/// The figures of points, each with its run if it is done. Figures are named as in the JSON of a
/// run, inner ones with a dot.
pub fn means(
    title: &str,
    command: &str,
    points: &[(&Point, Option<Value>)],
    figures: &[String],
) -> Grid {
    let all: Vec<&Point> = points.iter().map(|(point, _)| *point).collect();
    let mut axes = about::axes(all.iter().copied());

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
    let mut known: HashMap<Vec<usize>, usize> = HashMap::new();

    // A value given twice is no second run.
    let mut counted = HashSet::new();
    for (point, run) in points {
        let values = axes.iter().filter_map(|axis| axis.find(&point.of_grid));
        let row = *known.entry(values.collect()).or_insert_with_key(|values| {
            rows.push((values.clone(), Vec::new()));
            rows.len() - 1
        });
        if counted.insert((row, &point.name.key)) {
            rows[row].1.extend(run);
        }
    }

    let row = |(values, runs): (Vec<usize>, Vec<&Value>)| GridRow {
        values,
        is_steady: true_of_all(&runs, is_steady),
        is_precise: true_of_all(&runs, is_precise),
        figures: (!runs.is_empty())
            .then(|| figures.iter().map(|name| averaged(&runs, name)).collect()),
    };

    Grid {
        title: title.to_owned(),
        scheme: match points {
            [(first, _), rest @ ..]
                if rest
                    .iter()
                    .all(|(other, _)| other.name.scheme == first.name.scheme) =>
            {
                first.name.scheme.clone()
            }
            _ => String::new(),
        },
        seeds,
        transient: count_not(points, is_steady),
        imprecise: count_not(points, is_precise),
        about: about::about(&all, command),
        axes,
        figures: figures.to_vec(),
        rows: rows.into_iter().map(row).collect(),
    }
}

fn is_steady(run: &Value) -> Option<bool> {
    run.pointer("/steady/is_steady")?.as_bool()
}

fn is_precise(run: &Value) -> Option<bool> {
    run.pointer("/steady/is_precise")?.as_bool()
}

/// The number of runs of which something is false.
fn count_not(points: &[(&Point, Option<Value>)], is: fn(&Value) -> Option<bool>) -> usize {
    let runs = points.iter().filter_map(|(_, run)| run.as_ref());
    runs.filter(|run| is(run) == Some(false)).count()
}

/// False if it is false of a run, true if it is true of all, else unknown.
fn true_of_all(runs: &[&Value], is: fn(&Value) -> Option<bool>) -> Option<bool> {
    let states: Vec<Option<bool>> = runs.iter().map(|run| is(run)).collect();
    if states.contains(&Some(false)) {
        Some(false)
    } else {
        (!states.is_empty() && !states.contains(&None)).then_some(true)
    }
}

/// A figure of runs that differ by their seed alone. If all seeds give the same, such as a latency in
/// the same class, it is known as well as from the best run.
fn averaged(runs: &[&Value], name: &str) -> Option<Interval> {
    let found: Vec<Interval> = runs.iter().filter_map(|run| of_run(run, name)).collect();
    let values: Vec<f64> = found.iter().map(|figure| figure.value).collect();
    let own = found
        .iter()
        .map(|figure| figure.half)
        .fold(f64::NAN, f64::min);
    match mean(&values) {
        Some(Interval { value, half: 0.0 }) if own.is_finite() => {
            Some(Interval { value, half: own })
        }
        mean => mean.or(found.first().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::of_json;
    use serde_json::json;

    #[test]
    fn points_that_differ_by_their_seed_alone_are_one_row() {
        let text = r#"{"options": [["writes", 2000], ["scale", "1/256"]],
            "grid": [["scheme", ["none", "remap-ssd"]], ["seed", [1, 2, 3]]]}"#;
        let points = of_json(text, None).unwrap();
        let run = |wa: f64| {
            json!({
                "write_amplification": wa,
                "ci95": { "write_amplification": 0.5 },
                "steady": { "is_steady": wa > 2.0, "is_precise": wa > 3.0 },
            })
        };
        // Of the second scheme only one seed is done.
        let runs = [2.0, 4.0, 6.0, 3.0].map(run).map(Some);
        let runs = runs.into_iter().chain([None, None]);
        let found: Vec<_> = points.iter().zip(runs).collect();
        let grid = means(
            "grid",
            "remap-ssd sweep grid.toml",
            &found,
            &["write_amplification".into(), "gc_pages".into()],
        );

        assert_eq!((grid.seeds, grid.rows.len(), grid.axes.len()), (3, 2, 1));
        assert_eq!(grid.transient, 1);
        assert_eq!(grid.imprecise, 2);
        let states: Vec<_> = grid.rows.iter().map(|row| row.is_steady).collect();
        assert_eq!(states, [Some(false), Some(true)]);
        let reached: Vec<_> = grid.rows.iter().map(|row| row.is_precise).collect();
        assert_eq!(reached, [Some(false), Some(false)]);
        let about = |label: &str| grid.about.iter().find(|line| line.0 == label);
        assert_eq!(about("device").unwrap().1, "fast21-32g at 1/256");
        assert_eq!(about("options").unwrap().1, "scale 1/256, writes 2000");
        assert_eq!(about("seed").unwrap().1, "1, 2, 3");
        let figures: Vec<_> = grid
            .rows
            .iter()
            .flat_map(|row| row.figures.clone())
            .collect();
        let all = figures[0][0].unwrap();
        assert!(
            all.value == 4.0 && (all.half - 4.9683).abs() < 1e-3,
            "{all:?}"
        );
        assert_eq!(
            figures[1],
            [
                Some(Interval {
                    value: 3.0,
                    half: 0.5
                }),
                None
            ]
        );
    }

    #[test]
    fn seeds_that_agree_know_a_figure_as_well_as_one_run_does() {
        let run = |half: f64| json!({ "p99": 53.2, "ci95": { "p99": half } });
        let (a, b, unknown) = (run(0.4), run(0.1), json!({ "p99": 53.2 }));
        let half = |runs: &[&Value]| averaged(runs, "p99").unwrap().half;
        assert_eq!(half(&[&a, &b]), 0.1);
        assert_eq!(half(&[&unknown, &unknown]), 0.0);
    }

    #[test]
    fn a_seed_given_twice_is_one_run() {
        let text =
            r#"{"options": [["writes", 2000], ["scale", "1/256"]], "grid": [["seed", [1, 1, 2]]]}"#;
        let points = of_json(text, None).unwrap();
        let runs = [4.65, 4.65, 4.67].map(|wa| Some(json!({ "write_amplification": wa })));
        let found: Vec<_> = points.iter().zip(runs).collect();
        let grid = means("grid", "", &found, &["write_amplification".into()]);
        let figure = grid.rows[0].figures.as_ref().unwrap()[0].unwrap();
        // Student's t for two values: 12.706 * 0.01.
        assert!(
            (figure.value - 4.66).abs() < 1e-9 && (figure.half - 0.127).abs() < 1e-3,
            "{figure:?}"
        );
    }
}
