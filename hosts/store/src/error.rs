//! Why a store did not do something: each a sentence.
//!
//! Invariant: a user who reads the sentence knows what to do, or which page to look at.

use std::error::Error;
use std::io;

/// Why a store did not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk, or the way to it.
    #[error("{0}")]
    Disk(Box<dyn Error + Send + Sync>),
    /// The operating system refused an operation.
    #[error("{what}: {error}")]
    System {
        /// A path, or what was done.
        what: String,
        /// What the system said was wrong.
        error: io::Error,
    },
    /// There is no volume where one was looked for.
    #[error("there is no volume here: {0}")]
    NoVolume(String),
    /// Something is in the way of a new volume.
    #[error("the disk is not blank: {0}; --force overwrites it")]
    NotBlank(String),
    /// A volume cannot be made like this.
    #[error("{0}")]
    BadShape(String),
    /// Another process has the volume open.
    #[error("the volume is in use by another process")]
    InUse,
    /// The device keeps the volume for others.
    #[error("the volume is in use: {0}")]
    Held(String),
    /// The device cannot keep the volume for the processes that use it.
    #[error("{0}")]
    NotExclusive(String),
    /// Another process has a file of the volume open.
    #[error("{0} is open in another process: close it there first")]
    FileInUse(String),
    /// Files by which processes find each other are gone.
    #[error(
        "{0} was removed while the volume was open: those who have it open may go on, and nothing more can be opened until they have closed it"
    )]
    Removed(String),
    /// A page of the volume is not what was written.
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
    /// The volume has as many files as it can have.
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
    /// The name cannot be a file's.
    #[error("{name:?} cannot be a file's name: {why}")]
    BadName {
        /// The name that was given.
        name: String,
        /// Why it cannot be one.
        why: &'static str,
    },
    /// The file of this handle has been deleted.
    #[error("the file has been deleted since it was opened")]
    Gone,
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
    /// An error of a disk, whatever its type.
    pub(crate) fn disk(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Disk(Box::new(error))
    }

    /// A path of the local files by which processes use a volume together is not what it was.
    pub(crate) fn removed(path: &std::path::Path) -> Self {
        Self::Removed(path.display().to_string())
    }

    /// What the system said, and of what.
    pub(crate) fn system(what: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.to_string(),
            error: error.into(),
        }
    }
}
