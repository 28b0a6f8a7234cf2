//! Superblocks in SLC mode: their cells store one bit each, although they could store several.
//!
//! They are the first superblocks of the device, always, or any of them, as the firmware opens them. A block in SLC mode
//! has one flash page of a plane for each word line, so it holds 1 / `cell_bits` of the pages: its first rows. One
//! operation programs the flash page on all planes, and no other pages share its cells.
//!
//! ```text
//! rows of a block, one plane with one part, three bits:    word line 0   word line 1   word line 2
//! all bits                                                  0, 1, 2       3, 4, 5       6, 7, 8 ..
//! SLC mode                                                  0             1             2 ..
//! ```
//!
//! Invariant: a superblock changes its mode only while no page of it is programmed. Absent: which data is in SLC mode
//! (the firmware), durations.

use crate::geometry::{Geometry, Ppn, SbId};

/// The superblocks that are or may be in SLC mode, and the division of their word lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlcArea {
    superblocks: u32,
    pages: u32,
    line: u32,
    rows: u32,
    is_dynamic: bool,
}

impl SlcArea {
    /// No superblock is in SLC mode.
    pub const NONE: Self = Self {
        superblocks: 0,
        pages: 0,
        line: 1,
        rows: 0,
        is_dynamic: false,
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
            is_dynamic: false,
        }
    }

    /// Any superblock may be in SLC mode.
    pub fn dynamic(geometry: &Geometry) -> Self {
        Self {
            superblocks: 0,
            pages: 0,
            is_dynamic: true,
            ..Self::new(geometry, 1)
        }
    }

    /// Returns true if any superblock may be in SLC mode.
    #[inline]
    pub fn is_dynamic(self) -> bool {
        self.is_dynamic
    }
    /// Superblocks that are always in SLC mode.
    #[inline]
    pub fn superblocks(self) -> u32 {
        self.superblocks
    }
    /// Returns true if a superblock is always in SLC mode.
    #[inline(always)]
    pub fn has(self, sb: SbId) -> bool {
        sb.0 < self.superblocks
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

/// The present mode of each superblock.
#[derive(Clone, Debug)]
pub struct SlcModes {
    area: SlcArea,
    geometry: Geometry,
    /// By superblock, if any may be in SLC mode; otherwise empty.
    changing: Vec<bool>,
    /// Superblocks that have been set to SLC mode.
    count: u32,
    changes: u64,
}

impl SlcModes {
    /// The superblocks of the area are in SLC mode; if any may be, none is.
    pub fn new(area: SlcArea, geometry: Geometry) -> Self {
        let changing = match area.is_dynamic {
            true => geometry.superblocks() as usize,
            false => 0,
        };
        Self {
            area,
            geometry,
            changing: vec![false; changing],
            count: 0,
            changes: 0,
        }
    }

    /// The superblocks that are or may be in SLC mode.
    #[inline(always)]
    pub fn area(&self) -> SlcArea {
        self.area
    }
    /// Number of superblocks that are in SLC mode now.
    pub fn count(&self) -> u32 {
        self.area.superblocks + self.count
    }
    /// How often a superblock has changed its mode.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    /// Returns true if a superblock is in SLC mode.
    #[inline(always)]
    pub fn has(&self, sb: SbId) -> bool {
        self.area.has(sb)
            || self
                .changing
                .get(sb.0 as usize)
                .is_some_and(|is_slc| *is_slc)
    }
    /// Returns true if a page is in SLC mode; false if there is no such page.
    #[inline(always)]
    pub fn has_page(&self, page: Ppn) -> bool {
        page.0 < self.area.pages
            || (self.area.is_dynamic && self.has(self.geometry.superblock(page)))
    }
    /// From now on a superblock is in this mode. No effect on those that are always in one.
    pub fn set(&mut self, sb: SbId, is_slc: bool) {
        if let Some(mode) = self.changing.get_mut(sb.0 as usize)
            && std::mem::replace(mode, is_slc) != is_slc
        {
            self.changes += 1;
            match is_slc {
                true => self.count += 1,
                false => self.count -= 1,
            }
        }
    }
}
