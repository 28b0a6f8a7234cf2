//! Why nothing was measured.

use std::fmt;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The settings describe no possible device.
    #[error("{0}")]
    Impossible(String),
    /// The measurement failed.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    /// No device is like this.
    pub(crate) fn impossible(error: impl fmt::Display) -> Self {
        Self::Impossible(error.to_string())
    }

    /// A failed operation.
    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}
