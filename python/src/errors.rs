//! Maps failures to exceptions, which Python defines (`remap_ssd/_errors.py`).
//!
//! A mistake in the arguments is a `UsageError`, a failed operation `Failed`, a missing file
//! `NotFound`, a command that the device refused `Refused`. Absent: their texts.

use pyo3::{PyErr, import_exception};
use remap_ssd_study::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;

import_exception!(remap_ssd._errors, Failed);
import_exception!(remap_ssd._errors, NotFound);
import_exception!(remap_ssd._errors, OutOfMemory);
import_exception!(remap_ssd._errors, Refused);
import_exception!(remap_ssd._errors, Stopped);
import_exception!(remap_ssd._errors, UsageError);

/// Converts an error of the library.
pub(crate) fn failed(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        // Of a grid with several mistakes, a missing file may be one.
        _ if is_missing(&text) && !text.contains(" things are wrong:") => NotFound::new_err(text),
        Error::Memory(_) => OutOfMemory::new_err(text),
        Error::Usage(_) => UsageError::new_err(text),
        Error::Stopped(_) => Stopped::new_err(text),
        Error::Failed(_) => Failed::new_err(text),
    }
}

/// Converts a failure at a file.
pub(crate) fn failed_at(path: &Path, error: impl Display) -> PyErr {
    failed(Error::Failed(format!("{}: {error}", path.display())))
}

/// Converts a mistake in the arguments.
pub(crate) fn mistake(error: impl Display) -> PyErr {
    UsageError::new_err(error.to_string())
}

/// Returns true if the library says that a file or a folder is missing: its errors are sentences.
fn is_missing(text: &str) -> bool {
    /// The system's number of "no such file or directory".
    const ENOENT: i32 = 2;
    let system = io::Error::from_raw_os_error(ENOENT).to_string();
    let own = [
        ": there is no folder ",
        ": no such file, nor one of a scheme ",
    ];
    text.contains(&system) || own.iter().any(|said| text.contains(said))
}
