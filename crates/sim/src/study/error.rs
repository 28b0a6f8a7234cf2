//! Why a run has no result.

use std::fmt::Display;

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// The description is impossible.
    #[error("{0}")]
    Impossible(String),
    /// The run has failed, or was stopped.
    #[error("{0}")]
    Failed(String),
}

impl StudyError {
    pub(super) fn impossible(error: impl Display) -> Self {
        Self::Impossible(error.to_string())
    }

    pub(super) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    pub(super) fn about(what: impl Display, error: impl Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}
