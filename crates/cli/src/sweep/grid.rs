//! A grid in a file: options of `compare` and values of the device, each combination a point.
//!
//! ```toml
//! [options]                      # the same for all points
//! scale = "1/64"
//! writes = "200k"
//! [grid]                         # every combination; the last name changes fastest
//! scheme = ["none", "remap-ssd"]
//! "firmware.gc_free" = [0.1, 0.2]
//! seed = [1, 2, 3]
//! ```
//!
//! The names and the meaning of a point are those of `remap_ssd.sweep` in Python: options of `compare` with `_` or `-`, values of
//! the device with a dot; what decides how a run is done and not what it finds is no part of a point.
//! Invariants: all that is wrong with a file is said at once, before anything runs; a point's key is a hash of everything that
//! decides its run: options, files' contents, this program. Absent: running points (`run`).

use crate::compare::Args as CompareArgs;
use crate::failure::Failure;
use clap::{CommandFactory, Parser};
use remap_ssd_device::Setting;
use remap_ssd_device::keys::did_you_mean;
use std::collections::BTreeMap;
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// How a run is done and what it leaves besides its figures: no part of a point.
const NO_PART: [&str; 9] = [
    "memory",
    "threads",
    "report",
    "out",
    "json",
    "details",
    "save_aged",
    "age",
    "set",
];

/// What a point's key stands for: changed when the meaning of a point changes.
const FORMAT: u32 = 1;

/// One combination of values.
#[derive(Debug)]
pub struct Point {
    /// A hash of everything that decides the run.
    pub key: String,
    /// The values of the grid, in its order.
    pub of_grid: Vec<(String, String)>,
    /// What it is for `compare`.
    pub args: CompareArgs,
}

#[derive(Parser)]
#[command(name = "compare", no_binary_name = true, disable_help_flag = true)]
struct PointCommand {
    #[command(flatten)]
    args: CompareArgs,
}

/// All points of a file, in order.
///
/// # Errors
/// The file cannot be read, or everything that is wrong with it.
pub fn points(path: &Path, program: &str) -> Result<Vec<Point>, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::about(path.display(), error);
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    let file: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map_or(0, |span| text[..span.start].matches('\n').count())
            + 1;
        about(&format_args!(
            "line {line}: {}",
            error.message().replace('\n', ", ")
        ))
    })?;

    let mut wrong = Vec::new();
    let known: Vec<String> = PointCommand::command()
        .get_arguments()
        .filter_map(|arg| Some(arg.get_long()?.replace('-', "_")))
        .filter(|name| !NO_PART.contains(&name.as_str()))
        .collect();
    for name in file
        .keys()
        .filter(|name| !["options", "grid"].contains(&name.as_str()))
    {
        wrong.push(format!("`{name}` is neither [options] nor [grid]"));
    }
    let options = values(&file, "options", &known, &mut wrong);
    let mut grid = values(&file, "grid", &known, &mut wrong);
    // Tables are sorted by name; a grid is in the order of the file.
    let order = order(&text, "grid");
    let place = |name: &str| order.iter().position(|other| other == name);
    grid.sort_by_key(|(name, _)| place(name).or_else(|| place(&name.replace('_', "-"))));
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
    if grid.is_empty() && wrong.is_empty() {
        wrong.push("there is no [grid]".into());
    }

    let mut points = Vec::new();
    if wrong.is_empty() {
        let folder = path.parent().unwrap_or(Path::new("."));
        for of_grid in combinations(&grid) {
            match point(&options, of_grid, folder, program) {
                Ok(point) => points.push(point),
                Err(text) if !wrong.contains(&text) => wrong.push(text),
                Err(_) => {}
            }
        }
    }
    match &wrong[..] {
        [] => Ok(points),
        [one] => Err(Failure::usage(format_args!("{}: {one}", path.display()))),
        several => {
            let lines: String = several.iter().map(|line| format!("\n  {line}")).collect();
            let count = several.len();
            Err(Failure::usage(format_args!(
                "{}: {count} things are wrong:{lines}",
                path.display()
            )))
        }
    }
}

type Values = Vec<(String, Vec<String>)>;

/// The names of a table in the order in which the file says them.
fn order(text: &str, table: &str) -> Vec<String> {
    let Ok(file) = DeTable::parse(text) else {
        return Vec::new();
    };
    let table = file
        .get_ref()
        .iter()
        .find(|(name, _)| name.get_ref() == table);
    let Some(DeValue::Table(table)) = table.map(|(_, value)| value.get_ref()) else {
        return Vec::new();
    };
    let mut names: Vec<(usize, String)> = table
        .keys()
        .map(|name| (name.span().start, name.get_ref().to_string()))
        .collect();
    names.sort();
    names.into_iter().map(|(_, name)| name).collect()
}

/// The names of a table and their values, as words.
fn values(file: &Table, table: &str, known: &[String], wrong: &mut Vec<String>) -> Values {
    let mut found = Vec::new();
    let Some(table) = file.get(table) else {
        return found;
    };

    let Some(table) = table.as_table() else {
        wrong.push("[options] and [grid] are tables".into());
        return found;
    };

    for (name, value) in table {
        let words = match value {
            Value::Array(values) if values.is_empty() => {
                wrong.push(format!("`{name}` has no values"));
                continue;
            }
            Value::Array(values) => values.iter().map(word).collect(),
            value => word(value).map(|word| vec![word]),
        };

        let Some(words): Option<Vec<String>> = words else {
            wrong.push(format!(
                "`{name}` must be text, a number, true or false, or a list of them"
            ));
            continue;
        };

        let name = if name.contains('.') {
            name.clone()
        } else {
            name.replace('-', "_")
        };

        // With a dot it is a setting of the device, which has no option of its own.
        if name.contains('.') {
            let settings = words.iter().map(|word| format!("{name}={word}"));
            wrong.extend(settings.filter_map(|text| text.parse::<Setting>().err()));
        } else if NO_PART.contains(&name.as_str()) {
            wrong.push(format!("`{name}` is no part of a point"));
        } else if !known.contains(&name) {
            let hint = did_you_mean(&name, known.iter().map(String::as_str));
            wrong.push(format!("`{name}` is no option of `compare`{hint}"));
        }

        found.push((name, words));
    }

    found
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is_so) => Some(is_so.to_string()),
        _ => None,
    }
}

/// Every combination; the last name changes fastest.
fn combinations(grid: &Values) -> Vec<Vec<(String, String)>> {
    let mut all = vec![Vec::new()];
    for (name, values) in grid {
        all = all
            .into_iter()
            .flat_map(|before| {
                values.iter().map(move |value| {
                    let mut point = before.clone();
                    point.push((name.clone(), value.clone()));
                    point
                })
            })
            .collect();
    }
    all
}

fn point(
    options: &Values,
    of_grid: Vec<(String, String)>,
    folder: &Path,
    program: &str,
) -> Result<Point, String> {
    let mut decides: BTreeMap<&str, String> = BTreeMap::from([("scheme", "remap-ssd".into())]);
    let mut words = Vec::new();
    let of_all = options.iter().map(|(name, values)| (name, &values[0]));
    for (name, value) in of_all.chain(of_grid.iter().map(|(name, value)| (name, value))) {
        let mut value = value.clone();
        // Files lie beside the sweep's, and are known by what is in them.
        let decisive = match name.as_str() {
            "trace" | "config" => {
                let path = folder.join(&value);
                let bytes = std::fs::read(&path)
                    .map_err(|error| format!("{name} = {}: {error}", path.display()))?;
                value = path.to_string_lossy().into_owned();
                blake3::hash(&bytes).to_hex().to_string()
            }
            _ => value.clone(),
        };
        decides.insert(name, decisive);
        match (name.contains('.'), value.as_str()) {
            (true, value) => words.push(format!("--set={name}={value}")),
            (_, "false") if name != "dedup" => {}
            (_, "true") if name != "dedup" => words.push(format!("--{}", name.replace('_', "-"))),
            (_, value) => {
                let value = match (name.as_str(), value) {
                    ("dedup", "true") => "on",
                    ("dedup", "false") => "off",
                    (_, value) => value,
                };
                words.push(format!("--{}={value}", name.replace('_', "-")));
            }
        }
    }
    if !words.iter().any(|word| word.starts_with("--scheme=")) {
        words.push("--scheme=remap-ssd".into());
    }
    let mut args = PointCommand::try_parse_from(&words)
        .map_err(|error| {
            let text = error.render().to_string();
            let sentence = text.split("\n\n").next().unwrap_or_default().trim_end();
            sentence
                .strip_prefix("error: ")
                .unwrap_or(sentence)
                .replace('\n', " ")
        })?
        .args;
    if args.scheme.len() != 1 || args.gc.len() > 1 || args.mapping.len() > 1 {
        return Err(
            "a point has one scheme, one policy and one mapping: lists belong into [grid]".into(),
        );
    }
    args.threads = Some(1);
    args.command = [vec!["remap-ssd".into(), "compare".into()], words].concat();

    let said = serde_json::json!([FORMAT, env!("CARGO_PKG_VERSION"), program, decides]);
    let key = blake3::hash(said.to_string().as_bytes()).to_hex()[..32].to_owned();
    Ok(Point { key, of_grid, args })
}
