//! Why a device could not be served, or stopped being served.
//!
//! Absent: failures of a host's command, which the host gets as an NVMe status.

use std::fmt;

/// An error of this crate: a sentence for an operator, and whose mistake it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The request is inconsistent, or does not match the image. The sentence names the option of
    /// `remap-ssd serve`, which is also the name of the field in [`Spec`](crate::Spec) or
    /// [`Shape`](crate::Shape).
    #[error("{0}")]
    Usage(String),
    /// The device, the disk under it, or the system failed.
    #[error("{0}")]
    Failed(String),
}

impl ServiceError {
    pub(crate) fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failure, and its object.
    pub(crate) fn about(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}
