//! Why a comparison or a grid has no result.
//!
//! Invariant: a panic, which is a bug, ends only the run or point in which it occurs. Absent: its
//! location, which the panic hook prints.

use remap_ssd_sim::study::StudyError;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a comparison or a grid has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The description is impossible: reported before anything runs.
    #[error("{0}")]
    Usage(String),
    /// It would clearly take more memory than there is: reported before anything runs.
    #[error("{0}")]
    Memory(String),
    /// A file cannot be read or written, or a run has failed.
    #[error("{0}")]
    Failed(String),
    /// The caller has stopped it.
    #[error("{0}")]
    Stopped(&'static str),
}

impl Error {
    pub(crate) fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// The same, followed by notes, one per line.
    pub(crate) fn with_notes(self, notes: &[String]) -> Self {
        let with = |text: String| {
            let lines: String = notes.iter().map(|note| format!("\n{note}")).collect();
            text + &lines
        };
        match self {
            Self::Usage(text) => Self::Usage(with(text)),
            Self::Memory(text) => Self::Memory(with(text)),
            Self::Failed(text) => Self::Failed(with(text)),
            Self::Stopped(text) => Self::Stopped(text),
        }
    }

    /// Does `work`, whose panic becomes an error with its message.
    pub(crate) fn of_panics<T>(work: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
            let message = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("without a message");
            Err(Self::Failed(format!("a bug of the simulator: {message}")))
        })
    }

    pub(crate) fn about(what: impl Display, error: impl Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

impl From<StudyError> for Error {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Impossible(text) => Self::Usage(text),
            StudyError::Failed(text) => Self::Failed(text),
        }
    }
}
