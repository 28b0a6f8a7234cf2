//! The SLC area: superblocks whose cells store one bit each, although they could store several.
//!
//! It consists of the first superblocks of the device, as many in each group of dies. A block in SLC mode has one flash
//! page of a plane for each word line, so it holds 1 / `cell_bits` of the pages: its first rows. One operation programs
//! the flash page on all planes, and no other pages share its cells.
//!
//! ```text
//! rows of a block, one plane with one part, three bits:    word line 0   word line 1   word line 2
//! all bits                                                  0, 1, 2       3, 4, 5       6, 7, 8 ..
//! SLC mode                                                  0             1             2 ..
//! ```
//!
//! Invariant: the mode of a page follows from its number. Absent: which data is in the area (the firmware), durations.

use crate::geometry::{Geometry, Ppn, SbId};

/// The superblocks in SLC mode, and the division of their word lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlcArea {
    superblocks: u32,
    pages: u32,
    line: u32,
    rows: u32,
}

impl SlcArea {
    /// No superblock is in SLC mode.
    pub const NONE: Self = Self {
        superblocks: 0,
        pages: 0,
        line: 1,
        rows: 0,
    };

    /// The area that consists of the first superblocks of a device.
    pub fn new(geometry: &Geometry, superblocks: u32) -> Self {
        if superblocks == 0 {
            return Self::NONE;
        }
        let bits = geometry.word_line().bits;
        Self {
            superblocks,
            pages: superblocks * geometry.pages_per_superblock(),
            line: geometry.stripe() / bits,
            rows: geometry.pages_per_block() / bits,
        }
    }

    /// Superblocks of the area.
    #[inline]
    pub fn superblocks(self) -> u32 {
        self.superblocks
    }
    /// Returns true if a superblock is in SLC mode.
    #[inline(always)]
    pub fn has(self, sb: SbId) -> bool {
        sb.0 < self.superblocks
    }
    /// Returns true if a page is in SLC mode.
    #[inline(always)]
    pub fn has_page(self, page: Ppn) -> bool {
        page.0 < self.pages
    }
    /// Pages that one operation programs in SLC mode, and that share cells: a flash page on all planes.
    #[inline]
    pub fn line(self) -> u32 {
        self.line
    }
    /// Pages of a block in SLC mode.
    #[inline]
    pub fn rows(self) -> u32 {
        self.rows
    }
}
