//! Reasons that a run fails.

use crate::source::SourceError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source had no request at all.
    #[error("the workload has no requests: nothing was measured")]
    Nothing,
    /// The source ended inside a request.
    #[error("the workload ends inside a request")]
    Unfinished,
    /// Requests were lost or counted twice: a bug.
    #[error("{what}: {submitted} submitted and {ended} ended")]
    Unaccounted {
        /// Kind of count: requests, pages read or pages written.
        what: &'static str,
        /// Number handed to the device.
        submitted: u64,
        /// Number completed or refused.
        ended: u64,
    },
    /// The caller stopped the run.
    #[error("stopped")]
    Stopped,
}
