//! What a grid has run, for those who read its results: the device, options and seeds; the points as
//! JSON.
//!
//! Absent: the figures (`means`), and how they are shown (`remap_ssd_sim::report::grid`).

use crate::Point;
use crate::field::text_of;
use remap_ssd_sim::report::grid::GridAxis;
use serde_json::{Map, Value, json};

/// The program that makes the results.
const PROGRAM: &str = concat!("remap-ssd ", env!("CARGO_PKG_VERSION"));

/// The names of a grid with their values, in order.
pub(crate) fn axes<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<GridAxis> {
    let mut axes: Vec<GridAxis> = Vec::new();
    for (name, value) in points.flat_map(|point| &point.of_grid) {
        let at = axes.iter().position(|axis| axis.name == *name);
        let at = at.unwrap_or_else(|| {
            axes.push(GridAxis::named(name));
            axes.len() - 1
        });
        axes[at].add(value);
    }
    axes
}

/// The values that all points have.
fn options(points: &[&Point]) -> Map<String, Value> {
    let values = points.iter().flat_map(|point| {
        let is_option =
            |(name, _): &&(String, Value)| !point.of_grid.iter().any(|(other, _)| other == name);
        point.values.iter().filter(is_option)
    });
    values.cloned().collect()
}

/// What was run, a label and a text each.
pub(crate) fn about(points: &[&Point], command: &str) -> Vec<(String, String)> {
    let distinct = |text: &dyn Fn(&Point) -> String| {
        let mut axis = GridAxis::named("");
        points.iter().for_each(|point| axis.add(&text(point)));
        axis.values.join(", ")
    };
    let option = |(name, value): (&String, &Value)| Some(format!("{name} {}", text_of(value)?));
    let options: Vec<String> = options(points).iter().filter_map(option).collect();

    let lines = [
        (PROGRAM, command.to_owned()),
        ("device", distinct(&|point| point.device.clone())),
        ("options", options.join(", ")),
        ("seed", distinct(&|point| point.spec.seed().to_string())),
    ];
    lines
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| (label.to_owned(), text))
        .collect()
}

/// What determines the results of a grid: the options of all points, the lists of values, and the
/// command of each point.
pub fn grid_config(points: &[Point], command: &str) -> Value {
    let grid = axes(points.iter());
    let grid: Map<String, Value> = grid
        .into_iter()
        .map(|axis| (axis.name, json!(axis.values)))
        .collect();
    json!({
        "program": PROGRAM,
        "command": command,
        "options": options(&points.iter().collect::<Vec<_>>()),
        "grid": grid,
        "points": points.iter().map(|point| point.spec.command.join(" ")).collect::<Vec<_>>(),
    })
}

/// All points, each with its run or null.
///
/// ```
/// use remap_ssd_study::{grid_config, of_json, points_json};
///
/// let json = r#"{"options": [["writes", 2000]], "grid": [["seed", [1, 2]]]}"#;
/// let points = of_json(json, None)?;
/// let config = grid_config(&points, "remap-ssd sweep seeds.toml");
/// assert_eq!(config["grid"]["seed"][1], "2");
///
/// let found: Vec<_> = points.iter().map(|point| (point, None)).collect();
/// let json = points_json(&found);
/// assert_eq!(points[1].title(), "seed=2");
/// assert!(json["points"][1]["run"].is_null());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn points_json(found: &[(&Point, Option<Value>)]) -> Value {
    let one = |(point, run): &(&Point, Option<Value>)| {
        let values = point
            .of_grid
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)));
        json!({
            "key": point.name.key,
            "point": values.collect::<Map<_, _>>(),
            "command": point.spec.command,
            "run": run,
        })
    };
    json!({ "format_version": 1, "points": found.iter().map(one).collect::<Vec<_>>() })
}
