//! The L2P table: one 32-bit word a page, with the LR bit on top; or, with hybrid mapping, a block
//! table.
//!
//! Invariants: a cell is `NOWHERE` or a valid flash page. The LR bit (FAST'21 §4.4) is set if the
//! mapping was made by a remap, so that its witness is a remapping entry, and clear if the page's
//! own OOB names the LPN. With hybrid mapping there are no cells: the bounds check, needed anyway,
//! selects the table, and page mapping pays nothing more. Absent: reference counts and lists of
//! owners.

use crate::mapping::Mapping;
use crate::mapping::block_map::BlockMap;
use crate::mapping::cache::MappingCache;
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Lpn, Ppn};

const REMAPPED: u32 = 1 << 31;
const NOWHERE: u32 = REMAPPED - 1;

/// The L2P table with the LR bitmap in its spare bit.
pub(crate) struct Map {
    cells: Slab<u32>,
    len: u32,
    blocks: Option<Box<BlockMap>>,
    /// Entries that a controller with little DRAM holds; `None` if it holds them all.
    pub cache: Option<Box<MappingCache>>,
}

impl Map {
    /// A table of `len` unmapped pages.
    pub(crate) fn new(len: u32) -> Self {
        let mut cells = Slab::zeroed(len as usize);
        cells.fill(NOWHERE);
        Self {
            cells,
            len,
            blocks: None,
            cache: None,
        }
    }

    /// The same over a block table, which includes the internal pages.
    pub(crate) fn hybrid(blocks: BlockMap) -> Self {
        Self {
            cells: Slab::zeroed(0),
            len: blocks.len(),
            blocks: Some(Box::new(blocks)),
            cache: None,
        }
    }

    /// The block table of the hybrid mapping.
    #[cold]
    #[inline(never)]
    pub(crate) fn blocks(&self) -> &BlockMap {
        self.blocks
            .as_ref()
            .expect("an LPN of the device, or hybrid mapping")
    }

    /// The block table of the hybrid mapping.
    #[cold]
    #[inline(never)]
    pub(crate) fn blocks_mut(&mut self) -> &mut BlockMap {
        self.blocks
            .as_mut()
            .expect("an LPN of the device, or hybrid mapping")
    }

    /// Number of logical pages, internal ones included.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The LPN's mapping, if it has one.
    #[inline]
    pub(crate) fn get(&self, lpn: Lpn) -> Option<Mapping> {
        match self.cells.get(lpn.index()) {
            Some(cell) => Self::mapping(*cell),
            None => self.blocks().get(lpn),
        }
    }

    /// The word of an LPN's entry in a translation page.
    pub(crate) fn word(&self, lpn: Lpn) -> u32 {
        self.cells[lpn.index()]
    }

    /// The word of an entry without a mapping.
    pub(crate) const UNMAPPED: u32 = NOWHERE;

    /// An entry changes.
    #[inline(always)]
    fn note(&mut self, lpn: Lpn) {
        if let Some(cache) = &mut self.cache {
            cache.touch(lpn, true);
        }
    }

    /// Sets the LPN's mapping; returns the old one.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        lpn: Lpn,
        Mapping { ppn, remapped }: Mapping,
    ) -> Option<Mapping> {
        let Some(cell) = self.cells.get_mut(lpn.index()) else {
            return self.blocks_mut().set(lpn, Some(Mapping { ppn, remapped }));
        };
        let old = std::mem::replace(cell, ppn.0 | if remapped { REMAPPED } else { 0 });
        self.note(lpn);
        Self::mapping(old)
    }

    #[inline(always)]
    fn mapping(cell: u32) -> Option<Mapping> {
        let ppn = cell & !REMAPPED;
        if ppn == NOWHERE {
            None
        } else {
            Some(Mapping {
                ppn: Ppn(ppn),
                remapped: cell & REMAPPED != 0,
            })
        }
    }

    /// Returns true if the LPN is mapped to this page by a write.
    #[inline]
    pub(crate) fn is_written_at(&self, lpn: Lpn, ppn: Ppn) -> bool {
        // The OOB of a damaged image, or of a page of metadata, may name any LPN.
        match self.cells.get(lpn.index()) {
            Some(cell) => *cell == ppn.0,
            None => {
                self.blocks.is_some()
                    && self.is_at(
                        lpn,
                        Mapping {
                            ppn,
                            remapped: false,
                        },
                    )
            }
        }
    }

    /// Returns true if the LPN is mapped to this page by a remap.
    #[inline]
    pub(crate) fn is_remapped_at(&self, lpn: Lpn, ppn: Ppn) -> bool {
        // An entry of a damaged image may name any LPN.
        match self.cells.get(lpn.index()) {
            Some(cell) => *cell == ppn.0 | REMAPPED,
            None => {
                self.blocks.is_some()
                    && self.is_at(
                        lpn,
                        Mapping {
                            ppn,
                            remapped: true,
                        },
                    )
            }
        }
    }

    #[cold]
    fn is_at(&self, lpn: Lpn, mapping: Mapping) -> bool {
        lpn.is_below(self.len) && self.blocks().get(lpn) == Some(mapping)
    }

    /// Sets or removes the LPN's mapping.
    #[inline]
    pub(crate) fn set(&mut self, lpn: Lpn, mapping: Option<Mapping>) {
        let Some(cell) = self.cells.get_mut(lpn.index()) else {
            self.blocks_mut().set(lpn, mapping);
            return;
        };
        *cell = match mapping {
            None => NOWHERE,
            Some(Mapping { ppn, remapped }) => ppn.0 | if remapped { REMAPPED } else { 0 },
        };
        self.note(lpn);
    }

    /// Maps the LPN to a page written for it.
    #[inline(always)]
    pub(crate) fn set_written(&mut self, lpn: Lpn, ppn: Ppn) {
        match self.cells.get_mut(lpn.index()) {
            Some(cell) => {
                *cell = ppn.0;
                self.note(lpn);
            }
            None => drop(self.blocks_mut().set(
                lpn,
                Some(Mapping {
                    ppn,
                    remapped: false,
                }),
            )),
        }
    }

    /// Clears the LR bit of a remapped page, so that a newest-first scan drops the older duplicates
    /// of its entry; `mark_remapped` restores it.
    #[inline]
    pub(crate) fn hide_remapped(&mut self, lpn: Lpn) {
        match self.cells.get_mut(lpn.index()) {
            Some(cell) => *cell &= !REMAPPED,
            None => self.blocks_mut().set_remapped(lpn, false),
        }
    }

    /// Sets the LR bit that `hide_remapped` cleared.
    #[inline]
    pub(crate) fn mark_remapped(&mut self, lpn: Lpn) {
        match self.cells.get_mut(lpn.index()) {
            Some(cell) => *cell |= REMAPPED,
            None => self.blocks_mut().set_remapped(lpn, true),
        }
    }

    /// Prefetches a cache line.
    #[inline]
    pub(crate) fn prefetch(&self, lpn: Lpn) {
        prefetch(&self.cells, lpn.index());
    }
}
