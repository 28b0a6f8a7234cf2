//! A spilled page in the store's list: its tag, and its line in the chain.
//!
//! Absent: the chains (`spilled`, `long_chains`).

use remap_ssd_media::Ppn;

/// Lines that share a chain of buckets.
pub(super) const SHARED: usize = 4;
/// Cells of a bucket.
pub(super) const CELLS: usize = 7;
/// A chain with fewer free cells after stale pages were dropped gets another bucket: otherwise it
/// would soon be searched for stale pages again.
pub(super) const FREE_CELLS_MIN: usize = 3;
pub(super) const TAG_BITS: u32 = super::TAG_BITS;

/// A page and the tag of its content when it spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpilledPage {
    pub tag: u32,
    pub ppn: Ppn,
}

/// A page of one of a bucket's lines.
#[derive(
    Clone, Copy, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
)]
#[repr(C)]
pub(super) struct SpilledCell {
    /// The tag, and above it the line's number in the bucket.
    key: u32,
    /// Page number plus one; 0 is an empty cell.
    page: u32,
}

pub(super) const EMPTY: SpilledCell = SpilledCell { key: 0, page: 0 };

impl SpilledCell {
    pub(super) fn new(line: usize, page: SpilledPage) -> Self {
        Self {
            key: page.tag | ((line % SHARED) as u32) << TAG_BITS,
            page: page.ppn.0 + 1,
        }
    }

    /// The cell with a key.
    pub(super) fn of_key(key: u32, ppn: Ppn) -> Self {
        Self {
            key,
            page: ppn.0 + 1,
        }
    }

    /// The line within its chain, and the tag.
    pub(super) fn key(self) -> u32 {
        self.key
    }

    /// The page of a cell that is not empty.
    pub(super) fn ppn(self) -> Ppn {
        Ppn(self.page - 1)
    }

    /// The line's number in its chain.
    pub(super) fn line(self) -> usize {
        (self.key >> TAG_BITS) as usize
    }

    /// The page and tag of a cell that is not empty.
    pub(super) fn spilled(self) -> SpilledPage {
        SpilledPage {
            tag: self.key & super::TAG,
            ppn: Ppn(self.page - 1),
        }
    }
}
