//! Results of points: a Parquet data set, one file per point, partitioned by scheme.
//!
//! ```text
//! FOLDER/scheme=NAME/KEY.parquet     one row: key, option.NAME as text, figures by their names with dots, the run as JSON
//! ```
//! ```
//! use remap_ssd_study::{Comparison, keep, load, of_file, of_json, path, unfollowed};
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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! The command line and the Python package use the same files. Other tools read such a folder as
//! one table; they ignore names that begin with `_` or `.`. Invariants: a file is written under a
//! temporary name and renamed, so it is complete or absent; an existing result is never
//! overwritten. Absent: the definition of a point.

use crate::Error;
use crate::parquet::{self, Column};
use crate::point::Name;
use serde_json::Value;
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

fn columns(point: &Name, run: &Value) -> Vec<Column> {
    let one = |text: &str| vec![text.to_owned()];
    let mut columns = vec![Column::words("key", one(&point.key))];
    for (name, word) in &point.options {
        columns.push(Column::words(&format!("option.{name}"), one(word)));
    }
    flat("", run, &mut columns);
    columns.push(Column::words("run", one(&run.to_string())));
    columns
}

/// Flattens figures to names with dots. Lists and missing figures are only in the JSON.
fn flat(prefix: &str, value: &Value, columns: &mut Vec<Column>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = match prefix {
                    // The folder's name has it.
                    "" if name == "scheme" => continue,
                    "" => name.clone(),
                    _ => format!("{prefix}.{name}"),
                };
                flat(&name, value, columns);
            }
        }
        Value::String(text) => columns.push(Column::words(prefix, vec![text.clone()])),
        // Integers stay integers, so that their sums are exact.
        Value::Number(number) => columns.push(match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Column::integers(prefix, vec![integer]),
            (None, float) => Column::numbers(prefix, vec![float.unwrap_or(f64::NAN)]),
        }),
        Value::Null | Value::Bool(_) | Value::Array(_) => {}
    }
}
