//! Reading and reconciling mappings and counts at open.
//!
//! Mappings are authoritative, counts are upper bounds: after a cut they may be too high. A
//! signature is trusted only if a mapping references the block: another block's record may predate
//! the cut and its content postdate it. Invariant: a block that a mapping may reference, including
//! an unreadable mapping, is not free. Absent: writing.

use super::blocks::Blocks;
use super::format::{self, LOST, Layout, PAGE_BLOCKS, PAGE_MAPPINGS, UNMAPPED};
use crate::pages::read_each;
use crate::superblock::Superblock;
use remap_ssd_device::Disk;

/// Result of opening a disk.
pub(super) struct Opened {
    pub mapping: Vec<u32>,
    pub blocks: Blocks,
    /// Blocks with a recorded count below the number of mappings that reference them. No power cut
    /// leaves any.
    pub counts_too_low: u64,
}

/// Reads mappings and block records.
pub(super) fn read<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    layout: Layout,
    notes: &mut Vec<String>,
) -> Opened {
    let (mapping, damaged) = mappings(disk, superblock, layout, notes);

    // Counts are computed from the mappings, which are authoritative.
    let mut blocks = Blocks::new(layout.blocks);
    for block in named(&mapping) {
        let count = blocks.count(block) + 1;
        blocks.restore(block, count);
    }

    let mut counts_too_low = 0;
    let first = layout.first_block_page();
    read_each(disk, first, layout.block_pages().into(), |index, page| {
        let place = first + index;
        let records = page
            .ok()
            .and_then(|page| format::read_blocks(superblock, place, page));
        if records.is_none() {
            notes.push(format!(
                "page {place} of the blocks' records is damaged: its counts are made anew"
            ));
        }

        let base = index as u32 * PAGE_BLOCKS;
        for (block, index) in (base..layout.blocks.min(base + PAGE_BLOCKS)).zip(0..) {
            let named = blocks.count(block);
            // Without its record the block's signature is unknown.
            let Some(record) = records.map(|records| &records[index]) else {
                // An unreadable mapping may reference it.
                blocks.restore(block, named.max(u32::from(damaged)));
                blocks.mark(block);
                continue;
            };

            let count = record.count.get();
            // A signature is trusted only if a mapping references the block.
            if named > 0 {
                blocks.learn(block, record.signature);
            }
            if damaged {
                blocks.restore(block, named.max(count));
            }

            // A count that is too low would free a referenced block. One that is too high only
            // wastes space.
            match blocks.count(block) {
                held if held > count => {
                    counts_too_low += 1;
                    blocks.mark(block);
                }
                held if held < count => blocks.mark_late(block),
                _ => {}
            }
        }
    });

    if counts_too_low > 0 {
        notes.push(format!(
            "{counts_too_low} blocks had counts below what mappings name: the counts are made anew"
        ));
    }

    Opened {
        mapping,
        blocks,
        counts_too_low,
    }
}

/// Blocks that mappings reference, once per mapping.
fn named(mapping: &[u32]) -> impl Iterator<Item = u32> {
    mapping
        .iter()
        .filter(|entry| **entry != UNMAPPED && **entry != LOST)
        .map(|entry| entry - 1)
}

/// Reads all mappings; also returns true if a page of them is damaged.
fn mappings<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    layout: Layout,
    notes: &mut Vec<String>,
) -> (Vec<u32>, bool) {
    let mut mapping = vec![UNMAPPED; layout.logical as usize];
    let mut damaged = false;
    let first = layout.first_mapping_page();
    read_each(disk, first, layout.mapping_pages().into(), |index, page| {
        let place = first + index;
        let entries = page
            .ok()
            .and_then(|page| format::read_mappings(superblock, place, page));

        // A mapping beyond the disk is impossible: the page is damaged although its checksum is
        // valid. An entry is the block number plus 1, so the largest equals the number of blocks.
        let possible = |entry: u32| entry <= layout.blocks || entry == LOST;
        let entries = entries.filter(|entries| entries.iter().all(|entry| possible(entry.get())));

        let base = index as usize * PAGE_MAPPINGS as usize;
        let end = (base + PAGE_MAPPINGS as usize).min(mapping.len());
        match entries {
            Some(entries) => {
                mapping[base..end]
                    .iter_mut()
                    .zip(entries)
                    .for_each(|(to, from)| *to = from.get());
            }
            None => {
                // Lost is not empty: a read must fail until the address is written.
                mapping[base..end].fill(LOST);
                damaged = true;
                notes.push(format!(
                    "page {place} of the mappings is damaged: pages {base} to {} cannot be read until they are written",
                    end - 1
                ));
            }
        }
    });
    (mapping, damaged)
}
