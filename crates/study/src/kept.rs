//! Results of points: a Parquet data set, one file per point, partitioned by scheme.
//!
//! ```text
//! FOLDER/scheme=NAME/KEY.parquet     one row: key, program and sources, options by name, figures by
//!                                    their names with dots, the run as JSON
//! ```
//! ```
//! use remap_ssd_study::{Comparison, keep, load, of_file, of_json, of_other_sources, path, unfollowed};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("grid.toml");
//! std::fs::write(&file, "[options]\nscale = '1/256'\nwrites = '2k'\n[grid]\nseed = [1, 2]")?;
//! let points = of_file(&file, None)?;
//!
//! let json = r#"{"options": [["writes", 2000], ["scale", "1/256"]], "grid": [["seed", [1, 2]]]}"#;
//! assert_eq!(of_json(json, None)?.len(), points.len());
//!
//! // A point with a result is done: its key is that of the same point in any later grid.
//! let point = &points[0];
//! if !path(folder.path(), &point.name).exists() {
//!     let comparison = Comparison::new(point.spec.clone(), unfollowed())?;
//!     let measured = comparison.run(&[()])?;
//!     keep(folder.path(), &point.name, &comparison.json(&measured)["runs"][0])?;
//! }
//! let run = load(folder.path(), &point.name).expect("it is done");
//! assert_eq!(run["host_pages"], 2000);
//! assert_eq!(of_other_sources(folder.path(), points.iter().map(|point| &point.name)), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! The command line and the Python package use the same files. Other tools read such a folder as
//! one table; they ignore names that begin with `_` or `.`. Invariants: all files have the same columns
//! with the same types (`schema`), nulls included; a file is written under a
//! temporary name and renamed, so it is complete or absent; an existing result is never overwritten.
//! Absent: the definition of a point.

use crate::Error;
use crate::fields::Type;
use crate::parquet::{self, Column, Nullable};
use crate::point::{Name, SOURCES};
use crate::schema;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The result file of a point.
pub fn path(folder: &Path, point: &Name) -> PathBuf {
    folder
        .join(format!("scheme={}", point.scheme))
        .join(format!("{}.parquet", point.key))
}

/// Loads a point's run, if it exists.
pub fn load(folder: &Path, point: &Name) -> Option<Value> {
    let bytes = fs::read(path(folder, point)).ok()?;
    let runs = parquet::read_words(&bytes, "run")?;
    serde_json::from_str(runs.first()?).ok()
}

/// Writes a point's run, unless it exists.
///
/// # Errors
/// The system's reason, with the file's name.
pub fn keep(folder: &Path, point: &Name, run: &Value) -> Result<(), Error> {
    let path = path(folder, point);
    let about = |error: io::Error| Error::about(path.display(), error);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(about)?;

    // A process killed here leaves a file that is ignored.
    let mut beside = tempfile::Builder::new()
        .prefix(&format!(".{}-", point.key))
        // Readable by others too, subject to the umask.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(about)?;
    beside
        .write_all(&parquet::write(&columns(point, run)))
        .map_err(about)?;

    // Durable before it has its name: an existing point is never run again.
    beside.as_file().sync_all().map_err(about)?;

    match beside.persist_noclobber(&path) {
        // Another process has finished the same point, with the same result.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(about(error.error)),
        Ok(_) => Ok(()),
    }
}

/// The row of a point, in the columns of all files.
fn columns(point: &Name, run: &Value) -> Vec<Column> {
    let mut options = Map::new();
    for (name, text) in &point.options {
        options.extend(schema::typed_option(name, text).map(|(name, value)| (name.into(), value)));
    }
    options.insert("scheme".into(), point.scheme.clone().into());

    let one = |(name, of): (String, Type)| {
        let text = match &name[..] {
            "key" => point.key.clone(),
            "program_version" => env!("CARGO_PKG_VERSION").into(),
            "sources" => SOURCES.into(),
            "run" => run.to_string(),
            _ => {
                let value = match name.strip_prefix("option.") {
                    Some(option) => options.get(option),
                    None => figure(run, &name),
                };
                return Column::nullable(&name, cell(&of, value));
            }
        };
        Column::words(&name, vec![text])
    };
    schema::columns().into_iter().map(one).collect()
}

/// A figure by its name with dots.
fn figure<'a>(run: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(run, |value, part| value.get(part))
}

/// A value with the column's type; null if it is missing.
fn cell(of: &Type, value: Option<&Value>) -> Nullable {
    match of {
        Type::Optional(of) => cell(of, value),
        Type::Boolean => Nullable::Booleans(vec![value.and_then(Value::as_bool)]),
        Type::Integer => Nullable::Integers(vec![value.and_then(Value::as_i64)]),
        Type::Number => Nullable::Numbers(vec![value.and_then(Value::as_f64)]),
        _ => Nullable::Words(vec![value.and_then(Value::as_str).map(str::to_owned)]),
    }
}

/// Number of results in a folder that other sources have made, as far as they are not of these
/// points. They are never reused: the column `sources` tells them apart.
pub fn of_other_sources<'a>(folder: &Path, points: impl IntoIterator<Item = &'a Name>) -> u64 {
    let own: HashSet<PathBuf> = points
        .into_iter()
        .map(|point| path(folder, point))
        .collect();
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();

    let mut others = 0;
    for scheme in entries(folder) {
        if !scheme.file_name().to_string_lossy().starts_with("scheme=") {
            continue;
        }
        for file in entries(&scheme.path()).map(|entry| entry.path()) {
            let is_result = file
                .extension()
                .is_some_and(|extension| extension == "parquet");
            if !is_result || own.contains(&file) {
                continue;
            }

            // Files of versions without the column are of other sources too.
            let bytes = fs::read(&file).unwrap_or_default();
            let sources = parquet::read_words(&bytes, "sources").unwrap_or_default();
            others += u64::from(sources.first().is_none_or(|sources| sources != SOURCES));
        }
    }
    others
}
