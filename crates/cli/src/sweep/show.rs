//! The points of a sweep as a table and as JSON.
//!
//! Absent: running them; figures and pictures (`remap_ssd_sim::report::grid`).

use crate::output::{counted, table};
use remap_ssd_sim::report::grid::Grid;
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

/// The table, and the location of the results.
pub(super) fn text(grid: &Grid, folder: &Path, found: &[PointResult<'_>]) -> String {
    let (head, rows) = grid.table();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let remark = format!("{}\n", grid.remark());
    let done = found.iter().filter(|(_, result)| result.is_some()).count();

    format!(
        "{}\n{remark}{done} of {} done, in {}\n",
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
