//! The points of a sweep as text, as JSON, and as files.
//!
//! Absent: running them; figures and pictures (`remap_ssd_sim::report::grid`).

use super::Args;
use crate::failure::Failure;
use crate::output::{counted, table};
use remap_ssd_sim::report::grid::Grid;
use remap_ssd_sim::report::sheet::TableForm;
use remap_ssd_study::Point;
use remap_ssd_study::file::Pending;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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
    let remarks: String = grid
        .remarks()
        .iter()
        .map(|said| format!("{said}\n"))
        .collect();
    let done = found.iter().filter(|(_, result)| result.is_some()).count();

    format!(
        "{}\n{remarks}{done} of {} done, in {}\n",
        table(&head, &rows),
        counted(found.len() as u64, "point"),
        folder.display()
    )
}

/// The files that the options name.
pub(super) struct Files {
    report: Option<Pending>,
    table: Option<(TableForm, Pending)>,
}

impl Files {
    /// Checks that they can be written: hours of work must not end at a missing folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn begin(args: &Args) -> Result<Self, Failure> {
        let table = |path: &PathBuf| {
            let form = TableForm::of(path).map_err(Failure::usage)?;
            Ok::<_, Failure>((form, Pending::begin(path)?))
        };
        Ok(Self {
            report: args.report.as_deref().map(Pending::begin).transpose()?,
            table: args.table.as_ref().map(table).transpose()?,
        })
    }

    /// Writes them.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn write(self, grid: &Grid, points: &[Point]) -> Result<(), Failure> {
        if let Some(report) = self.report {
            report.write(&grid.page(&config(points)))?;
        }
        if let Some((form, table)) = self.table {
            let notes = vec![format!("{PROGRAM}: {}", command())];
            table.write(&grid.sheet(notes).write(form))?;
        }
        Ok(())
    }
}

const PROGRAM: &str = concat!("remap-ssd ", env!("CARGO_PKG_VERSION"));

/// What determines the results, for their page.
fn config(points: &[Point]) -> Value {
    let mut options = serde_json::Map::new();
    let mut grid: Vec<(String, Vec<&str>)> = Vec::new();
    for point in points {
        for (name, value) in &point.of_grid {
            match grid.iter_mut().find(|(other, _)| other == name) {
                Some((_, values)) if values.contains(&value.as_str()) => {}
                Some((_, values)) => values.push(value),
                None => grid.push((name.clone(), vec![value])),
            }
        }
        let is_option = |(name, _): &&(String, Value)| !grid.iter().any(|(other, _)| other == name);
        options.extend(point.values.iter().filter(is_option).cloned());
    }
    json!({
        "program": PROGRAM,
        "command": command(),
        "options": options,
        "grid": grid.into_iter().map(|(name, values)| (name, json!(values))).collect::<serde_json::Map<_, _>>(),
        "points": points.iter().map(|point| point.spec.command.join(" ")).collect::<Vec<_>>(),
    })
}

/// The command line, without the folder of the program.
fn command() -> String {
    remap_ssd_study::said(std::env::args_os().map(|word| word.to_string_lossy().into())).join(" ")
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
