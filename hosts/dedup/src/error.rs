//! Errors of deduplicating disks: each message is a sentence.

use remap_ssd_media::geometry::PAGE_BYTES;
use std::error::Error;

/// A name that no scheme or hash has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`: {known}")]
pub struct UnknownName {
    /// What is chosen.
    pub(crate) what: &'static str,
    /// The name that was given.
    pub(crate) name: String,
    /// The names that there are.
    pub(crate) known: &'static str,
}

/// Why an operation on a deduplicating disk failed.
#[derive(Debug, thiserror::Error)]
pub enum DedupError<E: Error + 'static> {
    /// Error of the disk below.
    #[error(transparent)]
    Disk(#[from] E),
    /// The range ends beyond the disk.
    #[error("page {page} + {pages} is beyond the end")]
    OutOfRange {
        /// First page of the range.
        page: u64,
        /// Number of pages of the range.
        pages: u64,
    },
    /// A buffer that is not a whole number of pages.
    #[error("{0} bytes are not whole pages of {PAGE_BYTES}")]
    NotWholePages(usize),
    /// There is no deduplicating disk of this kind.
    #[error("there is no deduplicating disk here: {0}")]
    NotFound(String),
    /// The disk is not blank.
    #[error("the disk is not blank: {0}; --force overwrites it")]
    NotBlank(String),
    /// Impossible parameters.
    #[error("{0}")]
    BadShape(String),
    /// Metadata are damaged.
    #[error("{0}")]
    Damaged(String),
    /// An atomic remap whose mappings are not in one page.
    #[error(
        "an atomic remap of these pages is not possible here: their mappings are in more than one page"
    )]
    NotAtomic,
    /// No block is free, even after all freeable blocks were freed.
    #[error("no block is free: damaged mappings may use any of the remaining blocks")]
    Full,
    /// A flush failed: earlier writes may be lost.
    #[error(
        "a flush failed before: what was written since the last one may be lost; open the disk again"
    )]
    Broken,
}
