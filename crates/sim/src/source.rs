//! Input of a device under test: a stream of page operations, in batches.
//!
//! Invariants: `lpn < addressable`, and so are all pages of a remap; the pages of one request are
//! adjacent in the stream, and only the last of them carries `last`; `at_ns` never decreases, and
//! is at most `TIME_MAX_NS`. Absent: time of completion (the device's) and folding of LBAs (the
//! trace reader's).

pub use remap_ssd_device::{HostLpn, Lpn, PageKind};

/// The latest time of a request, nanoseconds: 146 years. Sums with durations of a run stay below 64
/// bits.
pub const TIME_MAX_NS: u64 = 1 << 62;

/// One page of one host request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPage {
    /// Arrival of the request, in nanoseconds from the start of the trace; used by open-loop
    /// replay.
    pub at_ns: u64,
    /// Identity of the content written: equal identities mean equal 4 KiB. Never 0 for writes.
    pub content: u64,
    /// Logical page number, already folded into the addressable range; the first target of a remap.
    pub lpn: HostLpn,
    /// The operation on the page.
    pub kind: PageKind,
    /// True for the last page of its request.
    pub last: bool,
}

const _: () = assert!(size_of::<HostPage>() == 32);

/// A stream of page operations: a synthetic workload or a trace.
pub trait Source {
    /// Appends up to about `want` page operations to `out`, never splitting a request.
    ///
    /// Returns `false` if the source is exhausted (nothing was appended). Synthetic workloads never
    /// are.
    ///
    /// # Errors
    /// A malformed trace names file, line and reason.
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError>;

    /// Malformed records skipped so far, at the user's request.
    fn skipped(&self) -> u64 {
        0
    }

    /// Number of pages in the whole stream if known beforehand, for progress bars.
    fn len_hint(&self) -> Option<u64> {
        None
    }
}

/// Why a source failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file could not be read.
    #[error("{file}: {source}")]
    Io {
        /// Path of the trace file.
        file: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A record of the trace is malformed.
    #[error("{file}:{line}: {reason}")]
    Malformed {
        /// Path of the trace file.
        file: String,
        /// Line number from 1; for binary formats the record number.
        line: u64,
        /// The error, in a few words.
        reason: String,
    },
    /// The file as a whole cannot be used (unknown format, empty, impossible option).
    #[error("{file}: {reason}")]
    Unusable {
        /// Name of the trace file, as given.
        file: String,
        /// The error, and valid alternatives.
        reason: String,
    },
}
