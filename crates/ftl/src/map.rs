//! Logical to physical: one 32-bit word a page, with the LR bit on top.
//!
//! Invariants: `UNMAPPED` or a valid flash page; the LR bit (FAST'21 §4.4) is set if the mapping was made by
//! a remap, so that its witness is a remapping entry, and clear if the page's own OOB names the LPN.
//! Absent: reference counts and owners' lists.

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::{Slab, prefetch};

const REMAPPED: u32 = 1 << 31;
const NOWHERE: u32 = REMAPPED - 1;

/// Where a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The flash page.
    pub ppn: Ppn,
    /// Was it remapped there (true) or written there?
    pub remapped: bool,
}

/// The L2P table with the LR-bitmap in its spare bit.
pub struct Map {
    cells: Slab<u32>,
}

impl Map {
    /// A table of unmapped pages.
    pub fn new(len: u32) -> Self {
        let mut cells = Slab::zeroed(len as usize);
        cells.fill(NOWHERE);
        Self { cells }
    }

    /// Number of logical pages, internal ones included.
    pub fn len(&self) -> u32 {
        self.cells.len() as u32
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Where is it?
    #[inline]
    pub fn get(&self, lpn: u32) -> Option<Mapping> {
        Self::mapping(self.cells[lpn as usize])
    }

    /// Sets where it is; where it was.
    #[inline(always)]
    pub fn replace(&mut self, lpn: u32, Mapping { ppn, remapped }: Mapping) -> Option<Mapping> {
        let cell = &mut self.cells[lpn as usize];
        let old = std::mem::replace(cell, ppn.0 | if remapped { REMAPPED } else { 0 });
        Self::mapping(old)
    }

    /// What a cell says.
    #[inline(always)]
    fn mapping(cell: u32) -> Option<Mapping> {
        let ppn = cell & !REMAPPED;
        if ppn == NOWHERE { None } else { Some(Mapping { ppn: Ppn(ppn), remapped: cell & REMAPPED != 0 }) }
    }

    /// Is it exactly there, by a write?
    #[inline]
    pub fn is_written_at(&self, lpn: u32, ppn: Ppn) -> bool {
        // The OOB of a damaged image, or of a page of metadata, may name any LPN.
        self.cells.get(lpn as usize) == Some(&ppn.0)
    }

    /// Is it exactly there, by a remap?
    #[inline]
    pub fn is_remapped_at(&self, lpn: u32, ppn: Ppn) -> bool {
        // An entry of a damaged image may name any LPN.
        self.cells.get(lpn as usize) == Some(&(ppn.0 | REMAPPED))
    }

    /// Sets where it is.
    #[inline]
    pub fn set(&mut self, lpn: u32, mapping: Option<Mapping>) {
        self.cells[lpn as usize] = match mapping {
            None => NOWHERE,
            Some(Mapping { ppn, remapped }) => ppn.0 | if remapped { REMAPPED } else { 0 },
        };
    }

    /// It was written there.
    #[inline(always)]
    pub fn set_written(&mut self, lpn: u32, ppn: Ppn) {
        self.cells[lpn as usize] = ppn.0;
    }

    /// Clears the LR bit of a remapped page, to drop the older duplicates of its entry during a newest-first
    /// scan; `mark_remapped` restores it.
    #[inline]
    pub fn hide_remapped(&mut self, lpn: u32) {
        self.cells[lpn as usize] &= !REMAPPED;
    }

    /// Undoes `hide_remapped`.
    #[inline]
    pub fn mark_remapped(&mut self, lpn: u32) {
        self.cells[lpn as usize] |= REMAPPED;
    }

    /// Asks for a cache line.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        prefetch(&self.cells, lpn as usize);
    }
}
