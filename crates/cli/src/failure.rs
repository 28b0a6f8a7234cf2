//! How a command fails: a sentence and an exit code.
//!
//! Invariant: whatever is wrong with the world becomes one of these; a panic is a bug of ours.
//! Absent: what clap finds wrong with the arguments, which it reports itself, with exit code 2.

use std::fmt;
use std::io;

/// Why a command failed, and with which exit code.
#[derive(Debug)]
pub enum Failure {
    /// The arguments do not fit together: exit code 2.
    Usage(String),
    /// It could not be done, or what was looked for is not so: exit code 1.
    Failed(String),
    /// It was done, and what was found is bad; standard output has said so: exit code 1.
    Found,
    /// Standard output cannot be written.
    Output(io::Error),
    /// Part of a command ended early, or did not begin, because the whole of it is to stop.
    Stopped(&'static str),
    /// The command ended early, by a signal: that of the shell's exit code.
    Interrupted {
        /// Number of the signal, by which this process ends as well.
        signal: i32,
        /// What became of it, in one sentence.
        said: String,
    },
}

impl Failure {
    /// A mistake in the arguments.
    pub fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// Something that could not be done.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Something that could not be done, and to what.
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

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
