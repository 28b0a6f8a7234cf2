//! Hybrid mapping (Copyless Copy §II): a table of blocks, each with a page-level extension.
//!
//! A logical block is `block_pages` LPNs. Its entry gives the place of its first page; its other
//! pages follow in the allocation order of the superblock's pages, which excludes the head and the
//! blocks that were bad when it was opened. Pages that are elsewhere (written out of order, or
//! remapped to another LPN's page) are listed in the block's extension.
//!
//! Invariants: a page is *in place* (its bit in `here` is set), or in its block's extension, or
//! unmapped; a block has a base if and only if a page of it is in place. Internal LPNs, one for
//! each 128 MiB, are mapped by page. Absent: when blocks are put in order (`hybrid`), and the limit
//! of the extension (`Config::extension_entries`).

use crate::dies::DieMask;
use crate::error::Contradiction;
use crate::mapping::Mapping;
use crate::mapping::fullest::FullestBlocks;
use remap_ssd_media::{Geometry, Lpn, Ppn, SbId};

/// The block that the host is writing in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockInOrder {
    pub(crate) block: u32,
    /// Place of its first page.
    pub(crate) start: Ppn,
    /// Index of its next page.
    pub(crate) next: u32,
}

const NOWHERE: u32 = u32::MAX;

/// Allocation order of a superblock's pages: those after the head, in blocks that were good when it
/// was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageOrder {
    /// Dies that are excluded.
    pub skipped: DieMask,
    pub head: u32,
}

impl PageOrder {
    fn good(self, dies: u32) -> u32 {
        self.skipped.count_others(dies)
    }

    /// Number of pages allocated before the one at this offset.
    fn rank(self, offset: u32, dies: u32) -> u32 {
        let past_head = u32::from(offset > self.head);
        if self.skipped.is_empty() {
            return offset - past_head;
        }
        // Excluded blocks are missing from every row, so whole rows can be counted.
        let (row, die) = (offset / dies, offset % dies);
        let before = self.skipped.count_others(die);
        row * self.good(dies) + before - past_head
    }

    /// Offset of the page that is allocated after `rank` others.
    fn offset(self, rank: u32, dies: u32) -> u32 {
        let good = self.good(dies);
        // The head occupies one page of the first row.
        let head = self.skipped.count_others(self.head);
        let rank = rank + u32::from(rank >= head);
        if self.skipped.is_empty() {
            return rank;
        }
        let (row, nth) = (rank / good, rank % good);
        let die = self
            .skipped
            .others(dies)
            .nth(nth as usize)
            .expect("a good die");
        row * dies + die
    }
}

/// A page of a block that is not in place.
#[derive(Clone, Copy)]
struct ExtensionEntry {
    index: u16,
    ppn: u32,
}

struct Block {
    base: u32,
    in_place: u16,
    extension: Vec<ExtensionEntry>,
}

/// Use of a superblock by the block table.
#[derive(Clone, Copy, Default)]
struct BlockUse {
    order: PageOrder,
    /// Blocks whose base is in it.
    based: u32,
    /// LPNs in place in it.
    here: u32,
}

/// The block table with its extension, and the LR bitmap.
pub(crate) struct BlockMap {
    geometry: Geometry,
    block_pages: u32,
    lpns: u32,
    blocks: Vec<Block>,
    internal: Vec<u32>,
    here: Vec<u64>,
    remapped: Vec<u64>,
    superblocks: Vec<BlockUse>,
    entries: u32,
    fullest: FullestBlocks,
}

fn bit(bits: &[u64], lpn: Lpn) -> bool {
    bits[lpn.index() / 64] >> (lpn.0 % 64) & 1 == 1
}

fn set_bit(bits: &mut [u64], lpn: Lpn, value: bool) {
    let word = &mut bits[lpn.index() / 64];
    *word = *word & !(1 << (lpn.0 % 64)) | u64::from(value) << (lpn.0 % 64);
}

impl BlockMap {
    /// A table in which no LPN is mapped.
    pub(crate) fn new(geometry: &Geometry, block_pages: u32, lpns: u32, internal: u32) -> Self {
        let blocks = lpns.div_ceil(block_pages);
        let words = (lpns + internal).div_ceil(64) as usize;

        Self {
            geometry: *geometry,
            block_pages,
            lpns,
            blocks: (0..blocks)
                .map(|_| Block {
                    base: NOWHERE,
                    in_place: 0,
                    extension: Vec::new(),
                })
                .collect(),
            internal: vec![NOWHERE; internal as usize],
            here: vec![0; words],
            remapped: vec![0; words],
            superblocks: vec![BlockUse::default(); geometry.superblocks() as usize],
            entries: 0,
            fullest: FullestBlocks::new(blocks, block_pages),
        }
    }

    /// Logical pages, internal ones included.
    pub(crate) fn len(&self) -> u32 {
        self.lpns + self.internal.len() as u32
    }
    /// Entries of the extensions of all blocks.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }
    /// Entries of a block's extension.
    pub(crate) fn entries_of(&self, block: u32) -> u32 {
        self.blocks[block as usize].extension.len() as u32
    }
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }
    /// The block of an LPN, and the index of the LPN in it.
    pub(crate) fn split(&self, lpn: Lpn) -> (u32, u32) {
        (lpn.0 / self.block_pages, lpn.0 % self.block_pages)
    }
    /// Pages of a block: fewer in the last one.
    pub(crate) fn pages_of(&self, block: u32) -> u32 {
        self.block_pages.min(self.lpns - block * self.block_pages)
    }
    /// The first LPN of a block.
    pub(crate) fn first_lpn(&self, block: u32) -> Lpn {
        Lpn(block * self.block_pages)
    }
    /// Place of a block's first page; `None` if no page is in place.
    pub(crate) fn base(&self, block: u32) -> Option<Ppn> {
        let base = self.blocks[block as usize].base;
        (base != NOWHERE).then_some(Ppn(base))
    }
    /// Pages of a block up to its last mapped one.
    pub(crate) fn mapped_len(&self, block: u32) -> u32 {
        let first = self.first_lpn(block);
        (0..self.pages_of(block))
            .rev()
            .find(|index| self.get(first.offset(*index)).is_some())
            .map_or(0, |last| last + 1)
    }
    /// The block other than `but` with the most entries, and their number.
    pub(crate) fn fullest(&self, but: Option<u32>) -> Option<(u32, u32)> {
        self.fullest.first(but)
    }
    /// Blocks whose base is in a superblock, sorted by place.
    pub(crate) fn based_in(&self, sb: SbId) -> Vec<u32> {
        let is_in = |block: &&Block| {
            block.base != NOWHERE && self.geometry.superblock(Ppn(block.base)) == sb
        };
        let found = (0..).zip(&self.blocks).filter(|(_, block)| is_in(block));
        let mut found: Vec<(u32, u32)> = found.map(|(at, block)| (block.base, at)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, at)| at).collect()
    }
    /// Pages that collecting a superblock with `live` owned pages programs: its blocks are put in
    /// order elsewhere, and its other pages move individually.
    pub(crate) fn cost(&self, sb: SbId, live: u32) -> u32 {
        let used = &self.superblocks[sb.0 as usize];
        used.based * self.block_pages + live.saturating_sub(used.here)
    }

    /// The page `index` places after `base`; `None` past the end of the superblock.
    pub(crate) fn place(&self, base: Ppn, index: u32) -> Option<Ppn> {
        let (sb, dies) = (self.geometry.superblock(base), self.geometry.dies());
        let order = self.superblocks[sb.0 as usize].order;
        let offset = order.offset(order.rank(self.geometry.offset(base), dies) + index, dies);
        (offset < self.geometry.pages_per_superblock()).then(|| self.geometry.page(sb, offset))
    }

    /// The base of a block that has page `index` in place at `ppn`.
    pub(crate) fn base_for(&self, index: u32, ppn: Ppn) -> Option<Ppn> {
        let (sb, dies) = (self.geometry.superblock(ppn), self.geometry.dies());
        let order = self.superblocks[sb.0 as usize].order;
        let rank = order
            .rank(self.geometry.offset(ppn), dies)
            .checked_sub(index)?;
        Some(self.geometry.page(sb, order.offset(rank, dies)))
    }

    /// Sets the allocation order of a superblock's pages. It must have no block.
    pub(crate) fn set_order(&mut self, sb: SbId, order: PageOrder) {
        let used = &mut self.superblocks[sb.0 as usize];
        assert!(
            used.order == order || used.based == 0,
            "the order of {sb:?} changes under a block"
        );
        used.order = order;
    }

    /// The LPN's mapping, from the extension or from the block.
    pub(crate) fn get(&self, lpn: Lpn) -> Option<Mapping> {
        let ppn = self.ppn(lpn)?;
        Some(Mapping {
            ppn,
            remapped: bit(&self.remapped, lpn),
        })
    }

    fn ppn(&self, lpn: Lpn) -> Option<Ppn> {
        if !lpn.is_below(self.lpns) {
            let ppn = self.internal[lpn.index() - self.lpns as usize];
            return (ppn != NOWHERE).then_some(Ppn(ppn));
        }
        let (block, index) = self.split(lpn);
        let block = &self.blocks[block as usize];
        if bit(&self.here, lpn) {
            return self.place(Ppn(block.base), index);
        }
        let found = block
            .extension
            .binary_search_by_key(&(index as u16), |entry| entry.index);
        found.ok().map(|at| Ppn(block.extension[at].ppn))
    }

    /// Sets the LPN's mapping; returns the old one.
    pub(crate) fn set(&mut self, lpn: Lpn, mapping: Option<Mapping>) -> Option<Mapping> {
        let old = self.get(lpn);
        set_bit(
            &mut self.remapped,
            lpn,
            mapping.is_some_and(|mapping| mapping.remapped),
        );
        if !lpn.is_below(self.lpns) {
            self.internal[lpn.index() - self.lpns as usize] =
                mapping.map_or(NOWHERE, |mapping| mapping.ppn.0);
            return old;
        }

        let (block, index) = self.split(lpn);
        let base = self.base(block);
        let in_place = mapping.is_some_and(|mapping| {
            base.and_then(|base| self.place(base, index)) == Some(mapping.ppn)
        });
        // Before the base may be removed: counting needs its superblock.
        if bit(&self.here, lpn) != in_place {
            self.count_in_place(block, in_place);
            set_bit(&mut self.here, lpn, in_place);
        }
        self.extend(
            block,
            index as u16,
            mapping.filter(|_| !in_place).map(|mapping| mapping.ppn),
        );
        if self.blocks[block as usize].in_place == 0 {
            self.set_base(block, None);
        }
        old
    }

    fn count_in_place(&mut self, block: u32, more: bool) {
        let entry = &mut self.blocks[block as usize];
        let here = &mut self.superblocks[self.geometry.superblock(Ppn(entry.base)).0 as usize].here;
        if more {
            (entry.in_place, *here) = (entry.in_place + 1, *here + 1);
        } else {
            (entry.in_place, *here) = (entry.in_place - 1, *here - 1);
        }
    }

    /// Sets or removes an entry of the extension.
    fn extend(&mut self, block: u32, index: u16, ppn: Option<Ppn>) {
        let extension = &mut self.blocks[block as usize].extension;
        let before = extension.len() as u32;
        match (
            extension.binary_search_by_key(&index, |entry| entry.index),
            ppn,
        ) {
            (Ok(at), Some(ppn)) => extension[at].ppn = ppn.0,
            (Ok(at), None) => drop(extension.remove(at)),
            (Err(at), Some(ppn)) => extension.insert(at, ExtensionEntry { index, ppn: ppn.0 }),
            (Err(_), None) => {}
        }

        let after = extension.len() as u32;
        if before != after {
            self.entries = self.entries + after - before;
            self.fullest.set(block, after);
        }
    }

    fn set_base(&mut self, block: u32, base: Option<Ppn>) {
        let sb = |base: Ppn| self.geometry.superblock(base).0 as usize;
        if let Some(old) = self.base(block) {
            let at = sb(old);
            self.superblocks[at].based -= 1;
        }
        if let Some(new) = base {
            let at = sb(new);
            self.superblocks[at].based += 1;
        }
        self.blocks[block as usize].base = base.map_or(NOWHERE, |base| base.0);
    }

    /// Sets a block's base: pages that are not in place relative to `base` go to the extension.
    pub(crate) fn set_in_order(&mut self, block: u32, base: Ppn) {
        let first = self.first_lpn(block);
        let mapped: Vec<(Lpn, Mapping)> = Lpn::range(first, self.pages_of(block))
            .filter_map(|lpn| Some((lpn, self.get(lpn)?)))
            .collect();
        // All mappings are removed first: whether a page is in place depends on the base, which
        // changes for every page of the block.
        for (lpn, _) in &mapped {
            self.set(*lpn, None);
        }

        self.set_base(block, Some(base));
        for (lpn, mapping) in mapped {
            // The base stays although no page is in place until the first one.
            let in_place = self.place(base, lpn.offset_from(first)) == Some(mapping.ppn);
            set_bit(&mut self.remapped, lpn, mapping.remapped);
            if in_place {
                set_bit(&mut self.here, lpn, true);
                self.count_in_place(block, true);
            } else {
                self.extend(block, lpn.offset_from(first) as u16, Some(mapping.ppn));
            }
        }

        if self.blocks[block as usize].in_place == 0 {
            self.set_base(block, None);
        }
    }

    /// Sets or clears the LR bit.
    pub(crate) fn set_remapped(&mut self, lpn: Lpn, remapped: bool) {
        set_bit(&mut self.remapped, lpn, remapped);
    }

    /// Checks the counters against the tables.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub(crate) fn check(&self) -> Result<(), Contradiction> {
        let mut counted = vec![(0, 0); self.superblocks.len()];
        let mut entries = 0;
        for (at, block) in (0..).zip(&self.blocks) {
            let lpns = Lpn::range(self.first_lpn(at), self.pages_of(at));
            let in_place = lpns.filter(|lpn| bit(&self.here, *lpn)).count() as u32;
            let listed = block.extension.len() as u32;
            entries += listed;

            if in_place != u32::from(block.in_place) || (in_place > 0) != (block.base != NOWHERE) {
                return Err(Contradiction(format!(
                    "block {at} has {in_place} pages in place and counts {}",
                    block.in_place
                )));
            }

            if !block.extension.is_sorted_by(|a, b| a.index < b.index)
                || self.fullest.entries(at) != listed
            {
                return Err(Contradiction(format!(
                    "the extension of block {at} is not in order"
                )));
            }

            let both = |entry: &ExtensionEntry| {
                bit(
                    &self.here,
                    self.first_lpn(at).offset(u32::from(entry.index)),
                )
            };
            if block.extension.iter().any(both) {
                return Err(Contradiction(format!(
                    "a page of block {at} is in place and in the extension"
                )));
            }

            if let Some(base) = self.base(at) {
                let (based, here) = &mut counted[self.geometry.superblock(base).0 as usize];
                (*based, *here) = (*based + 1, *here + in_place);
            }
        }

        let kept = self.superblocks.iter().map(|used| (used.based, used.here));
        if entries != self.entries || !kept.eq(counted) {
            return Err(Contradiction(format!(
                "{entries} entries of extensions, counted {}",
                self.entries
            )));
        }

        Ok(())
    }
}
