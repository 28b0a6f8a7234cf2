//! The points of a sweep as a table, as JSON, as a figure.
//!
//! Absent: running them.

use super::Args;
use crate::output::{counted, table};
use remap_ssd_lab::plot::{MarkKind, Panel, Plot};
use remap_ssd_sim::report::format::{MISSING, number};
use remap_ssd_study::Point;
use serde_json::{Value, json};
use std::path::Path;

type PointResult<'a> = (&'a Point, Option<Value>);

/// Name of a point, from its values.
pub(super) fn title(point: &Point) -> String {
    let values: Vec<String> = point
        .of_grid
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    values.join(" ")
}

/// A figure of a point's run.
fn figure_of(run: &Value, name: &str) -> Option<f64> {
    let found = name.split('.').try_fold(run, |value, part| value.get(part));
    found.and_then(Value::as_f64)
}

/// The table, and the location of the results.
pub(super) fn text(args: &Args, folder: &Path, found: &[PointResult<'_>]) -> String {
    // The grid's names are the same at every point.
    let names: Vec<&str> = found.first().map_or(Vec::new(), |(point, _)| {
        point
            .of_grid
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    });

    let head: Vec<&str> = names
        .iter()
        .copied()
        .chain(args.show.iter().map(String::as_str))
        .collect();

    let row = |(point, result): &PointResult<'_>| -> Vec<String> {
        let values = point.of_grid.iter().map(|(_, value)| value.clone());

        // A point without a result is shown, not left out.
        let figures = args.show.iter().map(|name| match result {
            None => "not done".to_owned(),
            Some(result) => figure_of(result, name).map_or(MISSING.into(), number),
        });
        values.chain(figures).collect()
    };

    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let done = found.iter().filter(|(_, result)| result.is_some()).count();

    format!(
        "{}\n{done} of {} done, in {}\n",
        table(&head, &rows),
        counted(found.len() as u64, "point"),
        folder.display()
    )
}

/// All points, each with its run or null.
pub(super) fn json(found: &[PointResult<'_>]) -> Value {
    let one = |(point, result): &PointResult<'_>| {
        let values = point
            .of_grid
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)));
        json!({
            "key": point.name.key,
            "point": values.collect::<serde_json::Map<_, _>>(),
            "command": point.spec.command,
            "run": result,
        })
    };
    json!({ "format_version": 1, "points": found.iter().map(one).collect::<Vec<_>>() })
}

/// Bars of the first figure: groups by the first name that is not the scheme, bars by the others.
pub(super) fn figure(args: &Args, found: &[PointResult<'_>]) -> Option<String> {
    let figure = args.show.first()?;
    let names: Vec<&str> = found[0]
        .0
        .of_grid
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();

    // The scheme is the subject of the comparison, so it forms the bars, not the groups.
    let at = names.iter().position(|name| *name != "scheme").unwrap_or(0);

    let mut groups: Vec<(String, Vec<(String, f64)>)> = Vec::new();
    for (point, result) in found {
        // Shows the points finished so far.
        let Some(value) = result.as_ref().and_then(|result| figure_of(result, figure)) else {
            continue;
        };
        let label = format!("{}={}", names[at], point.of_grid[at].1);
        let others: Vec<&str> = point
            .of_grid
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, (_, value))| value.as_str())
            .collect();
        let bar = (others.join(" "), value);
        match groups.iter_mut().find(|(other, _)| *other == label) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((label, vec![bar])),
        }
    }
    if groups.is_empty() {
        return None;
    }
    let plot = Plot {
        name: "figure".into(),
        title: args.file.file_stem()?.to_string_lossy().into_owned(),
        reading: format!("{figure} of each point."),
        y: figure.clone(),
        shape: MarkKind::Bars(
            vec![Panel {
                title: String::new(),
                groups,
            }],
            None,
        ),
    };
    Some(plot.svg())
}
