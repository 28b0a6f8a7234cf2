//! Why nothing could be found out.
//!
//! Absent: failed checks, which are results (`campaign`).

use std::io;

/// Why nothing could be found out.
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// The arguments, or what this machine lacks, with what to do.
    #[error("{0}")]
    Missing(String),
    /// The workload ended with an error, so that its record proves nothing.
    #[error(
        "the workload {ended}, so there is nothing to cut: mend it, or see what it wrote:\n{output}"
    )]
    Workload {
        /// How the command ended, in words.
        ended: String,
        /// Last lines of its output.
        output: String,
    },
    /// A file that is not a recording.
    #[error("this is not a recording: {0}")]
    NotARecording(String),
    /// Somebody wants it to end.
    #[error("interrupted")]
    Interrupted,
    /// The temporary file with what the disk holds.
    #[error(
        "what the disk holds is kept in a temporary file, and that failed ({0}): make room, or set TMPDIR to another folder"
    )]
    Scratch(io::Error),
    /// The system refused an operation.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TortureError {
    /// An error for something that is missing on this machine.
    pub fn missing(sentence: impl Into<String>) -> Self {
        Self::Missing(sentence.into())
    }
}
