//! Consistency check of every table against every other.
//!
//! Tests call it after each script and each recovery, and `inspect` prints its result.

use crate::core::Core;
use crate::error::Contradiction;
use crate::ftl::Ftl;
use crate::superblock::{Stream, SuperblockState};
use remap_ssd_media::{Lpn, Ppn};

impl Ftl {
    /// Checks all tables.
    ///
    /// # Errors
    /// The first contradiction, in one sentence.
    pub fn check(&self) -> Result<(), Contradiction> {
        let core = &self.core;
        core.blocks.check_pool()?;
        self.check_peaks()?;
        self.check_refresh()?;

        let found = check_mappings(core)?;
        check_counts(core, &found)?;

        if core.tables.map.len() != core.config.lpns + core.config.internal_lpns() {
            return Err(Contradiction("the map has the wrong length".into()));
        }
        self.check_slc()?;
        self.check_translation_pages()?;
        if let Some(buffer) = &self.buffer {
            buffer.check(&core.media, &core.tables.map)?;
        }
        if self.hybrid {
            core.tables.map.blocks().check()?;
        }

        self.files.check(&core.media)?;
        self.scheme.check(&core.tables, &core.blocks, &core.media)
    }
}

/// What L2P, the only complete table, says about pages and superblocks.
struct FoundOwners {
    /// References of each page.
    counts: Vec<u32>,
    /// Remapped LPNs of each superblock.
    remapped: Vec<u32>,
}

/// Checks that each mapping names a page that its LPN can have.
fn check_mappings(core: &Core) -> Result<FoundOwners, Contradiction> {
    let geometry = core.geometry;
    let mut counts = vec![0u32; geometry.pages() as usize];
    let mut remapped = vec![0u32; geometry.superblocks() as usize];
    for lpn in Lpn::range(Lpn::ZERO, core.tables.map.len()) {
        let Some(mapping) = core.tables.map.get(lpn) else {
            continue;
        };

        if mapping.ppn.0 >= geometry.pages() {
            return Err(Contradiction(format!(
                "LPN {lpn} is mapped to {:?}, past the last page",
                mapping.ppn
            )));
        }

        counts[mapping.ppn.0 as usize] += 1;
        let sb = geometry.superblock(mapping.ppn);
        remapped[sb.0 as usize] += u32::from(mapping.remapped);

        if !core.media.is_programmed(mapping.ppn) {
            return Err(Contradiction(format!(
                "LPN {lpn} is mapped to {:?}, which is not programmed",
                mapping.ppn
            )));
        }

        if !matches!(
            core.blocks.get(sb).state,
            SuperblockState::Open | SuperblockState::Closed
        ) {
            return Err(Contradiction(format!(
                "LPN {lpn} is mapped into {sb:?}, which is {:?}",
                core.blocks.get(sb).state
            )));
        }

        if core.blocks.get(sb).stream == Stream::Log {
            return Err(Contradiction(format!(
                "LPN {lpn} is mapped into {sb:?}, which is part of a log"
            )));
        }

        let oob = core.media.oob(mapping.ppn);
        // Unreadable pages too: garbage collection relies on it.
        if !mapping.remapped && oob.lpn() != lpn {
            return Err(Contradiction(format!(
                "LPN {lpn} was written to {:?}, whose OOB says LPN {}",
                mapping.ppn,
                oob.lpn()
            )));
        }
    }

    Ok(FoundOwners { counts, remapped })
}

/// Checks the counts that the hot paths maintain incrementally.
fn check_counts(core: &Core, found: &FoundOwners) -> Result<(), Contradiction> {
    let (geometry, FoundOwners { counts, remapped }) = (core.geometry, found);
    for (page, count) in counts.iter().enumerate() {
        let kept = core.tables.counts.get(Ppn(page as u32));
        if kept != *count {
            return Err(Contradiction(format!(
                "page {page} has {count} owners and a reference count of {kept}"
            )));
        }
    }

    let mut total = 0;
    let mut free = 0;
    for (id, sb) in core.blocks.iter() {
        let first = geometry.page(id, 0).0 as usize;
        let pages = &counts[first..first + geometry.pages_per_superblock() as usize];
        let live = pages.iter().filter(|count| **count > 0).count() as u32;
        let kept = core.blocks.owners(id);
        if live != kept.live {
            return Err(Contradiction(format!(
                "{id:?} has {live} pages with owners and counts {}",
                kept.live
            )));
        }

        if remapped[id.0 as usize] != kept.remapped {
            let have = remapped[id.0 as usize];
            return Err(Contradiction(format!(
                "{id:?} has {have} remapped LPNs and counts {}",
                kept.remapped
            )));
        }

        total += u64::from(kept.remapped);
        free += u32::from(sb.state == SuperblockState::Free && !core.blocks.slc.area.has(id));
    }

    if total != core.blocks.remapped_total() || free != core.blocks.free() {
        return Err(Contradiction(format!(
            "{total} remapped LPNs and {free} free superblocks, counted {} and {}",
            core.blocks.remapped_total(),
            core.blocks.free()
        )));
    }

    Ok(())
}
