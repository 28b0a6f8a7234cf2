//! A grid, from a file or from Python: options of `compare` and settings of the device; each
//! combination is a point.
//!
//! ```toml
//! [options]                      # the same for all points
//! scale = "1/64"
//! writes = "200k"
//! [grid]                         # every combination; the last name changes fastest
//! scheme = ["none", "remap-ssd", "wal-ssd"]
//! workload = ["randwrite", "journal"]
//! "firmware.gc_free" = [0.1, 0.2]
//! seed = [1, 2, 3]
//! [[skip]]                       # combinations that are no points
//! scheme = "wal-ssd"
//! workload = "randwrite"
//! ```
//!
//! Names are options of `compare` with `_` or `-`, and settings of the device with a dot; options
//! that affect only the execution of a run, not its result, are no part of a point. Invariant: all
//! errors of a grid are reported together, before anything runs. Absent: the definition of a point
//! (`point`), running points.

use crate::field::{Kind, text_of};
use crate::point::{self, Fetch, Files, Point};
use crate::schema::NO_PART;
use crate::settings::listed;
use crate::{ComparisonSpec, Error, OptionDef};
use remap_ssd_device::Setting;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Names in the order of the file, each with all its values.
type Values = Vec<(String, Vec<Value>)>;

/// One value for each name of the grid, in its order.
type Chosen = Vec<(String, Value)>;

/// A grid as given: names in order.
#[derive(Debug, Default, Deserialize)]
struct GridFile {
    #[serde(default)]
    options: Vec<(String, Value)>,
    #[serde(default)]
    grid: Vec<(String, Value)>,
    #[serde(default)]
    skip: Vec<Vec<(String, Value)>>,
}

/// All points of a file, in order.
///
/// # Errors
/// The file cannot be read, or all errors in it.
pub fn of_file(path: &Path, fetch: Option<Fetch<'_>>) -> Result<Vec<Point>, Error> {
    let about = |error: &dyn std::fmt::Display| Error::about(path.display(), error);
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;

    // A line number, because users edit the file.
    let file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map_or(0, |span| text[..span.start].matches('\n').count())
            + 1;
        let reason = error.message().replace('\n', ", ");
        Error::usage(format_args!("{}: line {line}: {reason}", path.display()))
    })?;

    // Errors are collected, so that a user can fix them all at once.
    let mut wrong = Vec::new();
    let given = given(&file, &text, &mut wrong);
    // Paths are relative to the grid's file.
    let folder = path.parent().unwrap_or(Path::new("."));
    points(&given, folder, fetch, wrong)
        .map_err(|wrong| Error::usage(format_args!("{}: {}", path.display(), listed(&wrong))))
}

/// All points of a grid in JSON: `{"options": [[NAME, VALUE], ...], "grid": [[NAME, VALUES], ...],
/// "skip": [[[NAME, VALUES], ...], ...]}`.
///
/// # Errors
/// All errors in it.
pub fn of_json(text: &str, fetch: Option<Fetch<'_>>) -> Result<Vec<Point>, Error> {
    let given: GridFile = serde_json::from_str(text).map_err(Error::usage)?;
    points(&given, Path::new("."), fetch, Vec::new()).map_err(|wrong| Error::usage(listed(&wrong)))
}

/// Extracts the tables of a file.
fn given(file: &toml::Table, text: &str, wrong: &mut Vec<String>) -> GridFile {
    let mut given = GridFile::default();
    for (name, value) in file {
        let value = serde_json::to_value(value).unwrap_or_default();
        match (name.as_str(), value) {
            ("options", Value::Object(table)) => given.options = table.into_iter().collect(),
            ("grid", Value::Object(table)) => given.grid = in_order(table, text),
            ("skip", Value::Array(tables)) if tables.iter().all(Value::is_object) => {
                let tables = tables.into_iter().filter_map(|table| match table {
                    Value::Object(table) => Some(table.into_iter().collect()),
                    _ => None,
                });
                given.skip = tables.collect();
            }
            ("options" | "grid", _) => wrong.push("[options] and [grid] are tables".into()),
            ("skip", _) => wrong.push("[[skip]] are tables".into()),
            _ => wrong.push(format!(
                "`{name}` is none of [options], [grid] and [[skip]]"
            )),
        }
    }

    given
}

/// The names of a grid in the order of the file: parsed tables are sorted by name.
fn in_order(table: Map<String, Value>, text: &str) -> Vec<(String, Value)> {
    // The order matters: the last name changes fastest.
    let mut places: Vec<(usize, String)> = Vec::new();
    if let Ok(file) = DeTable::parse(text) {
        let of_file = file.get_ref().iter();
        for (_, value) in of_file.filter(|(name, _)| name.get_ref() == "grid") {
            if let DeValue::Table(table) = value.get_ref() {
                let names = table.keys();
                places.extend(names.map(|name| (name.span().start, name.get_ref().to_string())));
            }
        }
    }
    let mut values: Vec<(String, Value)> = table.into_iter().collect();
    values.sort_by_key(|(name, _)| {
        let place = places.iter().find(|(_, other)| other == name);
        place.map_or(0, |(place, _)| *place)
    });
    values
}

fn points(
    given: &GridFile,
    folder: &Path,
    fetch: Option<Fetch<'_>>,
    mut wrong: Vec<String>,
) -> Result<Vec<Point>, Vec<String>> {
    let options = values(&given.options, &mut wrong);
    let grid = values(&given.grid, &mut wrong);
    let skip: Vec<Values> = given
        .skip
        .iter()
        .map(|names| values(names, &mut wrong))
        .collect();

    for (name, _) in options
        .iter()
        .filter(|(name, _)| grid.iter().any(|(other, _)| other == name))
    {
        wrong.push(format!(
            "`{name}` is given twice, in [options] and in [grid]"
        ));
    }
    for (name, _) in options.iter().filter(|(_, values)| values.len() != 1) {
        wrong.push(format!(
            "`{name}` in [options] is a list: lists belong into [grid]"
        ));
    }
    for (name, _) in skip.iter().flatten() {
        if !grid.iter().any(|(other, _)| other == name) {
            wrong.push(format!("`{name}` in [[skip]] is not in [grid]"));
        }
    }
    if skip.iter().any(Vec::is_empty) {
        wrong.push("a [[skip]] without names would skip everything".into());
    }
    if given.grid.is_empty() && wrong.is_empty() {
        wrong.push("there is no [grid]".into());
    }

    // Names first. Combinations make sense only if all of them are valid.
    if !wrong.is_empty() {
        return Err(wrong);
    }

    let options: Chosen = options
        .into_iter()
        .map(|(name, mut values)| (name, values.remove(0)))
        .collect();

    let (mut points, mut files) = (Vec::new(), Files::new(folder, fetch));
    for chosen in combinations(&grid) {
        if skip.iter().any(|skip| is_skipped(&chosen, skip)) {
            continue;
        }
        match point::point(&options, &chosen, &mut files) {
            Ok(point) => points.push(point),
            // Many combinations fail for one reason, which is reported once.
            Err(text) if !wrong.contains(&text) => wrong.push(text),
            Err(_) => {}
        }
    }

    if points.is_empty() && wrong.is_empty() {
        wrong.push("[[skip]] leaves no point".into());
    }
    if wrong.is_empty() {
        Ok(points)
    } else {
        Err(wrong)
    }
}

/// The names of a table and their values, validated.
fn values(table: &[(String, Value)], wrong: &mut Vec<String>) -> Values {
    let mut found = Vec::new();
    for (name, value) in table {
        let values = match value {
            Value::Array(values) if values.is_empty() => {
                wrong.push(format!("`{name}` has no values"));
                continue;
            }
            Value::Array(values) => values.clone(),
            value => vec![value.clone()],
        };

        let Some(words) = values.iter().map(text_of).collect::<Option<Vec<String>>>() else {
            wrong.push(format!(
                "`{name}` must be text, a number, true or false, or a list of them"
            ));
            continue;
        };

        // A point's scheme is its option, by which results are found and drawn.
        if name == "firmware.scheme" {
            wrong.push("`firmware.scheme` is the option `scheme`".into());
        }

        // Options may be spelled as in Python or on the command line; settings of a device file
        // have dots.
        let name = if name.contains('.') {
            name.clone()
        } else {
            name.replace('-', "_")
        };

        // Settings are parsed like `--set`.
        if name.contains('.') {
            let settings = words.iter().map(|word| format!("{name}={word}"));
            wrong.extend(
                settings
                    .filter_map(|text| text.parse::<Setting>().err())
                    .map(|error| error.to_string()),
            );
        } else if NO_PART.contains(&name.as_str()) {
            wrong.push(format!("`{name}` is no part of a point"));
        } else {
            let of_point = |option: &OptionDef| !NO_PART.contains(&option.name);
            match OptionDef::find_among(&name, of_point) {
                Err(error) => wrong.push(error.to_string()),
                // Paths are those of a folder, and are checked with their points.
                Ok(option) if option.kind == Kind::Path => {}
                Ok(option) => {
                    let set = |value| ComparisonSpec::default().add(option, value).err();
                    let errors = values.iter().filter_map(set);
                    wrong.extend(errors.map(|error| error.to_string().replace('\n', " ")));
                }
            }
        }
        if found.iter().any(|(other, _)| *other == name) {
            wrong.push(format!("`{name}` is given twice"));
        }

        found.push((name, values));
    }
    found
}

/// All combinations; the last name changes fastest.
fn combinations(grid: &Values) -> Vec<Chosen> {
    let mut all = vec![Vec::new()];
    for (name, values) in grid {
        all = all
            .into_iter()
            .flat_map(|before: Chosen| {
                values.iter().map(move |value| {
                    let mut chosen = before.clone();
                    chosen.push((name.clone(), value.clone()));
                    chosen
                })
            })
            .collect();
    }
    all
}

/// Returns true if a combination has one of the values for each name.
fn is_skipped(chosen: &Chosen, skip: &Values) -> bool {
    skip.iter().all(|(name, values)| {
        let value = chosen.iter().find(|(other, _)| other == name);
        value.is_some_and(|(_, value)| values.iter().any(|other| text_of(other) == text_of(value)))
    })
}
