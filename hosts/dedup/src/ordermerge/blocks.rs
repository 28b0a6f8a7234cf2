//! Blocks: content signatures, reference counts, and free blocks.
//!
//! A block's count covers the mappings in memory *and* those on the disk: it goes up when a mapping
//! is made, and down when the mapping that replaced it is durable (`commit.rs`). At 0 the block is
//! free: no mapping references it after any power cut.
//!
//! Invariants: a signature leads to a block that holds such content and is not free; a raised count
//! must be written before the mapping, a lowered one at any time. Absent: disks.

use super::format::PAGE_BLOCKS;
use crate::signature::{Signature, UNKNOWN};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// All blocks with their signatures and counts.
pub(super) struct Blocks {
    counts: Vec<u32>,
    signatures: Vec<Signature>,
    by_signature: FxHashMap<Signature, u32>,
    free: u32,
    /// Position of the next search for a free block.
    hand: u32,
    /// Pages of records in which a count went up.
    risen: BTreeSet<u32>,
    /// Pages in which counts only went down.
    fallen: BTreeSet<u32>,
}

impl Blocks {
    /// Creates a table of `blocks` free blocks.
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            counts: vec![0; blocks as usize],
            signatures: vec![UNKNOWN; blocks as usize],
            by_signature: FxHashMap::default(),
            free: blocks,
            hand: 0,
            risen: BTreeSet::new(),
            fallen: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.counts.len() as u32
    }
    /// Number of free blocks.
    pub(super) fn free(&self) -> u32 {
        self.free
    }
    pub(super) fn count(&self, block: u32) -> u32 {
        self.counts[block as usize]
    }
    /// The block's record: signature and count.
    pub(super) fn record(&self, block: u32) -> (Signature, u32) {
        (self.signatures[block as usize], self.counts[block as usize])
    }

    /// Returns a block with content of this signature.
    pub(super) fn find(&self, signature: &Signature) -> Option<u32> {
        self.by_signature.get(signature).copied()
    }

    /// Chooses `wanted` free blocks, which stay free until they are held. There must be enough.
    pub(super) fn choose(&mut self, wanted: usize) -> Vec<u32> {
        assert!(
            wanted <= self.free as usize,
            "{wanted} blocks of {} free ones",
            self.free
        );

        // Continues after the last search, so that blocks are used in turn.
        let mut chosen = Vec::with_capacity(wanted);
        while chosen.len() < wanted {
            if self.counts[self.hand as usize] == 0 {
                chosen.push(self.hand);
            }
            self.hand = (self.hand + 1) % self.len();
        }
        chosen
    }

    /// Sets a block's count when the disk is opened, without changing it on the disk.
    pub(super) fn restore(&mut self, block: u32, count: u32) {
        // No page is marked: the disk has this count already.
        let old = std::mem::replace(&mut self.counts[block as usize], count);
        match (old, count) {
            (0, 1..) => self.free -= 1,
            (1.., 0) => self.free += 1,
            _ => {}
        }
    }

    /// Sets the signature of a referenced block.
    pub(super) fn learn(&mut self, block: u32, signature: Signature) {
        assert!(self.counts[block as usize] > 0, "block {block} is free");
        if signature != UNKNOWN {
            self.signatures[block as usize] = signature;
            // Of several blocks with the same content the newest is found; the others stay while
            // mappings reference them.
            self.by_signature.insert(signature, block);
        }
    }

    /// Adds a reference by a mapping.
    pub(super) fn hold(&mut self, block: u32) {
        let count = &mut self.counts[block as usize];
        self.free -= u32::from(*count == 0);
        *count += 1;
        self.mark(block);
    }

    /// Marks its record to be written with the next batch.
    pub(super) fn mark(&mut self, block: u32) {
        // A page that is written for a raised count includes its lowered counts.
        let page = block / PAGE_BLOCKS;
        self.fallen.remove(&page);
        self.risen.insert(page);
    }

    /// Marks a record whose count is too high: it is corrected when that costs nothing.
    pub(super) fn mark_late(&mut self, block: u32) {
        let page = block / PAGE_BLOCKS;
        // The page will be written anyway, with this count.
        if !self.risen.contains(&page) {
            self.fallen.insert(page);
        }
    }

    /// Removes a reference, in memory and on the disk.
    pub(super) fn let_go(&mut self, block: u32) {
        let count = &mut self.counts[block as usize];
        *count = count
            .checked_sub(1)
            .expect("a block that a mapping named has a count");
        if *count == 0 {
            self.free += 1;
            let signature = std::mem::replace(&mut self.signatures[block as usize], UNKNOWN);

            // Another block of this signature may have taken its place.
            if self.by_signature.get(&signature) == Some(&block) {
                self.by_signature.remove(&signature);
            }
        }
        self.mark_late(block);
    }

    /// Pages of records in which a count went up.
    pub(super) fn risen(&self) -> Vec<u32> {
        self.risen.iter().copied().collect()
    }
    pub(super) fn risen_written(&mut self) {
        self.risen.clear();
    }
    /// Pages of records in which counts only went down.
    pub(super) fn fallen(&self) -> Vec<u32> {
        self.fallen.iter().copied().collect()
    }
    pub(super) fn fallen_written(&mut self) {
        self.fallen.clear();
    }
}
