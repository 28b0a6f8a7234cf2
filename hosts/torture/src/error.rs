//! Errors that prevent a verdict.
//!
//! Absent: failed checks, which are results (`campaign`).

use std::io;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// A block that no disk has.
    #[error("--block {0}: it is 512, or a power of two from 4096 to 65536")]
    Block(u32),
    /// An atomic write unit that is not a number of whole blocks.
    #[error("--atomic-writes {bytes}: it is a multiple of the disk's block of {block} bytes")]
    AtomicWrites {
        /// The unit.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// A size that no disk has.
    #[error("--size {0}: it is from 1MiB to 64GiB")]
    Size(u64),
    /// A missing requirement, with a remedy.
    #[error("{0}")]
    Missing(String),
    /// The workload failed, so its recording proves nothing.
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
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
    /// The temporary file with the disk's contents failed.
    #[error(
        "what the disk holds is kept in a temporary file, and that failed ({0}): make room, or set TMPDIR to another folder"
    )]
    Scratch(io::Error),
    /// The system refused an operation.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TortureError {
    /// Creates an error for a missing requirement of this machine.
    pub(crate) fn missing(sentence: impl Into<String>) -> Self {
        Self::Missing(sentence.into())
    }
}
