//! The segment groups, one a superblock.
//!
//! Invariant: whoever may change a group says so for its region, so that the search for the group
//! with the most invalid entries passes over what is as before. Absent: what segments hold
//! (`segments`).

use crate::scheme::segments::SegmentChain;
use crate::superblock::RegionChanges;
use remap_ssd_media::SbId;
use std::ops::Index;

pub(super) struct Groups {
    chains: Vec<SegmentChain>,
    changes: RegionChanges,
}

impl Groups {
    /// A group for each superblock, none of which has a segment yet.
    pub(super) fn new(superblocks: u32) -> Self {
        Self {
            chains: vec![SegmentChain::default(); superblocks as usize],
            changes: RegionChanges::new(superblocks),
        }
    }

    /// A group that is going to change.
    #[inline]
    pub(super) fn change(&mut self, sb: SbId) -> &mut SegmentChain {
        self.changes.note(sb);
        &mut self.chains[sb.0 as usize]
    }

    /// Grows with every change in a region.
    pub(super) fn changes(&self, region: usize) -> u64 {
        self.changes.of(region)
    }

    /// All of them, in the order of their superblocks.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SegmentChain> {
        self.chains.iter()
    }
}

impl Index<SbId> for Groups {
    type Output = SegmentChain;

    #[inline]
    fn index(&self, sb: SbId) -> &SegmentChain {
        &self.chains[sb.0 as usize]
    }
}
