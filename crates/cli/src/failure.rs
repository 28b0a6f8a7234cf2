//! Failures of commands: a message and an exit code.
//!
//! Invariant: every external problem becomes one of these; a panic is a bug of ours. Absent:
//! mistakes in the arguments that clap finds, which it reports itself, with exit code 2.

use remap_ssd_service::ServiceError;
use remap_ssd_sim::study::StudyError;
use std::fmt;
use std::io;

/// Why a command failed, and its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are inconsistent: exit code 2.
    Usage(String),
    /// The operation failed, or a condition that it checks does not hold: exit code 1.
    Failed(String),
    /// The command completed with a bad finding, already on standard output: exit code 1.
    Found,
    /// Standard output cannot be written.
    Output(io::Error),
    /// Part of a command ended early, or did not start, because the whole command is being stopped.
    Stopped(&'static str),
    /// A signal ended the command early; the shell's exit code is that of the signal.
    Interrupted {
        /// Number of the signal, which also ends this process.
        signal: i32,
        /// The state at the end, in one sentence.
        said: String,
    },
}

impl Failure {
    /// A mistake in the arguments.
    pub fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// A failed operation.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failed operation, and its object.
    pub fn about(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Found => f.write_str("see above"),
            Self::Stopped(text) => f.write_str(text),
            Self::Interrupted { said, .. } => f.write_str(said),
            Self::Output(error) => write!(f, "standard output: {error}"),
        }
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Impossible(text) => Self::Usage(text),
            StudyError::Failed(text) => Self::Failed(text),
        }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Usage(text) => Self::Usage(text),
            ServiceError::Failed(text) => Self::Failed(text),
        }
    }
}

impl From<remap_ssd_study::Error> for Failure {
    fn from(error: remap_ssd_study::Error) -> Self {
        match error {
            remap_ssd_study::Error::Usage(text) => Self::Usage(text),
            remap_ssd_study::Error::Failed(text) => Self::Failed(text),
            remap_ssd_study::Error::Stopped(text) => Self::Stopped(text),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
