//! Sweeps: the points of a grid, and the stored run of one point.
//!
//! Invariant: points, keys and files are made by the command line's library, so they are the same.
//! Absent: running the points (`remap_ssd/_engines.py`).

use crate::compare::compare;
use crate::errors::{Failed, failed, failed_at, mistake};
use pyo3::prelude::*;
use remap_ssd_study::{self as study, Error, Name, Point};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The points of a grid file as JSON; `fetch` returns the digest of the file at an address.
#[pyfunction]
pub(crate) fn sweep_of_file(path: PathBuf, fetch: Bound<'_, PyAny>) -> PyResult<String> {
    points(&fetch, |fetch| study::of_file(&path, Some(fetch)))
}

/// The points of a grid as JSON.
#[pyfunction]
pub(crate) fn sweep_of_json(text: &str, fetch: Bound<'_, PyAny>) -> PyResult<String> {
    points(&fetch, |fetch| study::of_json(text, Some(fetch)))
}

fn points(
    fetch: &Bound<'_, PyAny>,
    make: impl Fn(study::Fetch<'_>) -> Result<Vec<Point>, Error>,
) -> PyResult<String> {
    let fetch = |address: &str| -> Result<String, String> {
        let digest = fetch.call1((address,)).and_then(|said| said.extract());
        digest.map_err(|error| error.value(fetch.py()).to_string())
    };

    let points = make(&fetch).map_err(failed)?;

    let one = |point: &Point| {
        let options = point.name.options.iter();
        let values = options.filter_map(|(name, text)| study::typed_option(name, text));
        let of_grid = point.of_grid.iter();
        let title: Vec<String> = of_grid
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        json!({
            "key": point.name.key,
            "title": title.join(" "),
            "scheme": point.name.scheme,
            "options": point.name.options,
            "values": values.collect::<Vec<_>>(),
            "given": point.given,
            "trace": point.trace,
            "memory_bytes": point.memory_bytes,
        })
    };

    Ok(points.iter().map(one).collect::<Value>().to_string())
}

/// Runs a point, unless it has a result, and stores its result in a folder.
///
/// `sources` is the digest of the sources that made the point, on another machine perhaps: its key
/// stands for a run by these sources alone.
#[pyfunction]
pub(crate) fn sweep_point(
    py: Python<'_>,
    sources: &str,
    folder: PathBuf,
    key: String,
    scheme: String,
    options: Vec<(String, String)>,
    given: &str,
) -> PyResult<()> {
    if sources != study::SOURCES {
        return Err(Failed::new_err(format!(
            "the package of this worker has the sources {}, and the sweep those of {sources}: install the same everywhere",
            study::SOURCES
        )));
    }
    let name = Name {
        key,
        scheme,
        options,
    };
    if study::path(&folder, &name).exists() {
        return Ok(());
    }
    let measured: Value =
        serde_json::from_str(&compare(py, given, None, None, false)?.0).map_err(mistake)?;
    study::keep(&folder, &name, &measured["runs"][0]).map_err(failed)
}

/// Number of results in a folder that are neither of these points, given by key and scheme, nor of
/// these sources.
#[pyfunction]
pub(crate) fn sweep_others(folder: PathBuf, points: Vec<(String, String)>) -> u64 {
    let name = |(key, scheme)| Name {
        key,
        scheme,
        options: Vec::new(),
    };
    let points: Vec<Name> = points.into_iter().map(name).collect();
    study::of_other_sources(&folder, &points)
}

/// The types of a run's fields, and the columns of a sweep's files, as JSON.
#[pyfunction]
pub(crate) fn schema() -> String {
    json!({ "run": study::run_type(), "columns": study::columns() }).to_string()
}

/// The name and the value of an option in a table, as JSON.
#[pyfunction]
pub(crate) fn typed_option(name: &str, text: &str) -> Option<String> {
    study::typed_option(name, text).map(|typed| json!(typed).to_string())
}

/// The digest of a file's content.
#[pyfunction]
pub(crate) fn digest_of_file(path: PathBuf) -> PyResult<String> {
    study::digest(&path).map_err(|error| failed_at(&path, error))
}

/// Memory available to a new program, in bytes, if known.
#[pyfunction]
pub(crate) fn memory_available() -> Option<u64> {
    study::available()
}
