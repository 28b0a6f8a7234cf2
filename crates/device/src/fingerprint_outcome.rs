//! Outcomes of saving a device's fingerprints at a shutdown and restoring them at power-on.
//!
//! Absent: the file that holds them (`fingerprints`).

use std::io;

/// Outcome of restoring saved fingerprints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fingerprints {
    /// The device does not deduplicate, is new, or is not in a folder.
    NotSaved,
    /// The fingerprints of this many pages were restored.
    Recalled(u64),
    /// They cannot be used, for this reason; the pages must be read.
    Ignored(String),
}

/// Outcome of saving the fingerprints at a shutdown.
#[derive(Debug)]
pub enum SavedFingerprints {
    /// The device does not deduplicate, or is not in a folder.
    None,
    /// The fingerprints of this many pages were saved.
    Saved(u64),
    /// Saving failed, for this reason.
    Failed(io::Error),
}
