//! References that a collection would have to copy, under schemes whose room for entries may be too small.
//!
//! Hosts leave room for the fullest superblock's references, but collections can gather those of several
//! superblocks in one: then it may have more than there is room for. Invariant: all owners of a superblock's pages
//! beyond one of each count, so that a superblock that cannot be collected has as many LPNs as pages, and some
//! other one can. Absent: how much room there is.

use crate::contract::CopiesOf;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;

/// The references that have no room if `room` entries can be added, by superblock.
pub(super) fn references_beyond<'a>(
    room: u64,
    tables: &'a Tables,
    blocks: &'a Superblocks,
) -> CopiesOf<'a> {
    Box::new(move |sb| {
        // The usual case. The rest scans all pages of the superblock.
        if u64::from(blocks.owners(sb).remapped) <= room {
            return 0;
        }

        // One owner goes into the page's OOB; each of the others takes an entry.
        let geometry = tables.geometry;
        let pages = (0..geometry.pages_per_superblock()).map(|at| geometry.page(sb, at));
        let others: u64 = pages
            .map(|ppn| u64::from(tables.counts.get(ppn).saturating_sub(1)))
            .sum();
        others.saturating_sub(room) as u32
    })
}
