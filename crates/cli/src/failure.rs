//! Failures of commands: a message and an exit code.
//!
//! Invariant: every external problem becomes one of these; a panic is a bug of ours. Absent:
//! mistakes in the arguments that clap finds, which it reports itself, with exit code 2.

use remap_ssd_bench::BenchError;
use remap_ssd_lab::LabError;
use remap_ssd_service::ServiceError;
use remap_ssd_sim::study::StudyError;
use remap_ssd_study::Error as ComparisonError;
use std::fmt;
use std::io;

/// Why a command failed, and its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
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
    pub(crate) fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// A failed operation.
    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A bad finding that was printed, unless there is none.
    ///
    /// # Errors
    /// `is_clean` is false.
    pub(crate) fn found_unless(is_clean: bool) -> Result<(), Self> {
        if is_clean { Ok(()) } else { Err(Self::Found) }
    }

    /// A failed operation, and its object.
    pub(crate) fn about(what: impl fmt::Display, error: impl fmt::Display) -> Self {
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

/// Errors of libraries whose kind determines the exit code.
macro_rules! of_libraries {
    ($($error:ident { $($kind:ident => $failure:ident),+ })+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $($error::$kind(text) => Self::$failure(text),)+
                }
            }
        })+
    };
}

of_libraries! {
    BenchError { Impossible => Usage, Failed => Failed }
    ComparisonError { Usage => Usage, Memory => Usage, Failed => Failed, Stopped => Stopped }
    LabError { Wrong => Usage, Failed => Failed, Disk => Failed }
    ServiceError { Usage => Usage, Failed => Failed }
    StudyError { Impossible => Usage, Failed => Failed }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
