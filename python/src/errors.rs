//! Maps failures to exceptions.
//!
//! A mistake in the arguments is a `ValueError`, a failed operation `remap_ssd.Failed`, a command
//! that the device refused `remap_ssd.Refused`. Absent: their texts.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use remap_ssd_study::Error;
use std::fmt::Display;

create_exception!(
    remap_ssd,
    Failed,
    PyRuntimeError,
    "It could not be done; the message says why."
);
create_exception!(
    remap_ssd,
    Refused,
    Failed,
    "The device refused a command; the message is its reason."
);

/// Converts an error of the library.
pub(crate) fn failed(error: Error) -> PyErr {
    match error {
        Error::Usage(text) => PyValueError::new_err(text),
        other => Failed::new_err(other.to_string()),
    }
}

/// Converts a mistake in the arguments.
pub(crate) fn mistake(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
