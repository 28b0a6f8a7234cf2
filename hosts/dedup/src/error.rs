//! Why a deduplicating disk did not do something: each a sentence.

use remap_ssd_media::geometry::PAGE_BYTES;
use std::error::Error;

/// Why a deduplicating disk did not do something.
#[derive(Debug, thiserror::Error)]
pub enum DedupError<E: Error + 'static> {
    /// The disk below refused or failed.
    #[error(transparent)]
    Disk(#[from] E),
    /// The range ends beyond the disk.
    #[error("page {page} + {pages} is beyond the end")]
    OutOfRange {
        /// First page of the range.
        page: u64,
        /// How many pages the range has.
        pages: u64,
    },
    /// A buffer that is not whole pages.
    #[error("{0} bytes are not whole pages of {PAGE_BYTES}")]
    NotWholePages(usize),
    /// There is no deduplicating disk of this kind where one was looked for.
    #[error("there is no deduplicating disk here: {0}")]
    NotFound(String),
    /// Something is in the way of a new one.
    #[error("the disk is not blank: {0}; --force overwrites it")]
    NotBlank(String),
    /// It cannot be made like this.
    #[error("{0}")]
    BadShape(String),
    /// Metadata is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// An atomic remap whose mappings are not in one page.
    #[error(
        "an atomic remap of these pages is not possible here: their mappings are in more than one page"
    )]
    NotAtomic,
    /// No block is free, although all that can be has been freed.
    #[error("no block is free: damaged mappings may use any of the remaining blocks")]
    Full,
    /// A flush failed: what was written before it may be lost.
    #[error(
        "a flush failed before: what was written since the last one may be lost; open the disk again"
    )]
    Broken,
}
