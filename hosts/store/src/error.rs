//! Errors of stores: each a sentence.
//!
//! Invariant: the sentence tells the user how to proceed, or which page is concerned.

use std::error::Error;
use std::io;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk, or the connection to it.
    #[error("{0}")]
    Disk(Box<dyn Error + Send + Sync>),
    /// The operating system refused an operation.
    #[error("{what}: {error}")]
    System {
        /// A path, or the operation.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// There is no volume on the disk.
    #[error("there is no volume here: {0}")]
    NoVolume(String),
    /// The disk of a new volume is not blank.
    #[error("the disk is not blank: {0}; --force overwrites it")]
    NotBlank(String),
    /// Invalid parameters of a new volume.
    #[error("{0}")]
    BadShape(String),
    /// Another process has the volume open.
    #[error("the volume is in use by another process")]
    InUse,
    /// The device holds the volume for another holder.
    #[error("the volume is in use: {0}")]
    Held(String),
    /// The device cannot hold the volume exclusively.
    #[error("{0}")]
    NotExclusive(String),
    /// Another process has a file of the volume open.
    #[error("{0} is open in another process: close it there first")]
    FileInUse(String),
    /// Files by which processes coordinate were removed.
    #[error(
        "{0} was removed while the volume was open: those who have it open may go on, and nothing more can be opened until they have closed it"
    )]
    Removed(String),
    /// A page of the volume is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The volume has no room.
    #[error("the volume is full: {needed} pages are needed and {free} are free")]
    Full {
        /// Pages that the operation needs.
        needed: u64,
        /// Pages that no file has.
        free: u64,
    },
    /// The volume has its maximum number of files.
    #[error(
        "the volume has its maximum of {0} files and no room for another one: delete a file, or move all to a volume of `volume create --files N` with a larger N"
    )]
    NoSlot(u32),
    /// The file would have too many extents.
    #[error("{0} is in as many pieces as a file can be: export it, delete it and import it again")]
    Fragmented(String),
    /// There is no file of this name.
    #[error("there is no file {0}")]
    NotFound(String),
    /// There is a file of this name already.
    #[error("there is a file {0} already")]
    Exists(String),
    /// The name is not valid for a file.
    #[error("{name:?} cannot be a file's name: {why}")]
    BadName {
        /// The rejected name.
        name: String,
        /// Why it is invalid.
        why: &'static str,
    },
    /// The file of this handle has been deleted.
    #[error("the file has been deleted since it was opened")]
    Gone,
    /// A file cannot be merged into the one that it is a branch of.
    #[error("{name} cannot be merged: {why}")]
    NotMerged {
        /// The file.
        name: String,
        /// The reason.
        why: String,
    },
    /// The store or its disk cannot do this; the sentence says why.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The range is not within the file.
    #[error("bytes {offset} to {offset} + {bytes} are not in the file, which has {size} bytes")]
    Range {
        /// First byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Size of the file in bytes.
        size: u64,
    },
}

impl StoreError {
    /// Wraps any disk error.
    pub(crate) fn disk(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Disk(Box::new(error))
    }

    /// A file or folder by which processes coordinate was removed or replaced.
    pub(crate) fn removed(path: &std::path::Path) -> Self {
        Self::Removed(path.display().to_string())
    }

    /// A system error, with its context.
    pub(crate) fn system(what: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.to_string(),
            error: error.into(),
        }
    }
}
