//! The end of a window makes its writes durable, in two flushes.
//!
//! 1. pages of records in which a count went up (data was written before)
//! 2. flush
//! 3. pages of mappings
//! 4. flush
//! 5. counts of replaced blocks go down, in memory; their pages are written with those of 1 that
//!    they share, or at close.
//!
//! Cut before the end of 2: mappings are old; newly written blocks have no references, so they are
//! free regardless of their records. Cut in 3 or 4: each page of mappings is old or new. A block
//! that the new page references has data, signature and count because of 2, and a block that the
//! old one references is not free before 5. After 4: new. So on the disk a count is never below the
//! number of mappings that reference the block, and a referenced block holds the content of its
//! record.
//!
//! Counts that are too high after a cut are found at open, which reads all mappings. A damaged page
//! of mappings may reference any block: while there is one, blocks are free only if their counts
//! are 0 too.
//!
//! Invariant: after a failure all changes are still pending. Absent: the contents of mappings
//! (`mod.rs`).

use super::OrderMerge;
use super::format::{self, PAGE_BLOCKS, PAGE_MAPPINGS, UNMAPPED};
use crate::DedupError;
use crate::guard::Guard;
use crate::pages::write_each;
use crate::signature::UNKNOWN;
use remap_ssd_device::Disk;

impl<D: Disk> OrderMerge<D> {
    pub(super) fn commit(&mut self) -> Result<(), DedupError<D::Error>> {
        // 1. Raised counts. Writing them too early is harmless: a count may be too high.
        let risen = self.own.blocks.risen();
        let counts_first = self.keeps(Guard::CountsFirst);
        if counts_first {
            self.write_blocks(&risen)?;
        }

        // 2. Cut before its end: no mapping has changed.
        if self.keeps(Guard::FlushData) || self.own.changed.is_empty() {
            self.flush_below()?;
        }

        // 3. and 4. Each page is old or new.
        if !counts_first {
            self.write_blocks(&risen)?;
        }
        if !self.own.changed.is_empty() {
            self.write_mappings()?;
            if self.keeps(Guard::FlushMappings) {
                self.flush_below()?;
            }
        }
        // Cleared only here: after a failure above all changes are still pending.
        self.own.blocks.risen_written();
        self.own.changed.clear();

        // 5. No mapping on the disk references these any more.
        for block in std::mem::take(&mut self.own.replaced) {
            self.own.blocks.let_go(block);
        }
        self.window.begin();
        Ok(())
    }

    /// Corrects the counts that are too high on the disk.
    pub(super) fn settle(&mut self) -> Result<(), DedupError<D::Error>> {
        // The commit corrects the counts of replaced blocks; only then are the lowered counts
        // known.
        self.commit()?;
        let fallen = self.own.blocks.fallen();
        if !fallen.is_empty() {
            self.write_blocks(&fallen)?;
            self.flush_below()?;
            self.own.blocks.fallen_written();
        }
        Ok(())
    }

    fn write_blocks(&mut self, pages: &[u32]) -> Result<(), DedupError<D::Error>> {
        let first = self.own.layout.first_block_page();
        let places: Vec<u64> = pages.iter().map(|page| first + u64::from(*page)).collect();
        let (blocks, superblock) = (&self.own.blocks, &self.superblock);
        write_each(&mut self.disk, &places, |place| {
            let base = (place - first) as u32 * PAGE_BLOCKS;
            format::blocks(superblock, place, |index| match base + index {
                // The last page has more slots than there are blocks left.
                block if block < blocks.len() => blocks.record(block),
                _ => (UNKNOWN, 0),
            })
        })?;
        self.statistics.metadata_pages += pages.len() as u64;
        Ok(())
    }

    fn write_mappings(&mut self) -> Result<(), DedupError<D::Error>> {
        let first = self.own.layout.first_mapping_page();
        let places: Vec<u64> = self
            .own
            .changed
            .iter()
            .map(|page| first + u64::from(*page))
            .collect();

        let (mapping, superblock) = (&self.own.mapping, &self.superblock);

        write_each(&mut self.disk, &places, |place| {
            let base = (place - first) as usize * PAGE_MAPPINGS as usize;
            // The last page has more slots than there are addresses left.
            let of = |index: u32| {
                mapping
                    .get(base + index as usize)
                    .copied()
                    .unwrap_or(UNMAPPED)
            };
            format::mappings(superblock, place, of)
        })?;

        self.statistics.metadata_pages += places.len() as u64;
        Ok(())
    }
}
