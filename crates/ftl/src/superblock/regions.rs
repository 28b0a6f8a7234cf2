//! Finding the superblock with the most of something without looking at all of them.
//!
//! Superblocks are counted in *regions* of 64. A region has a number that grows with every change
//! of its superblocks or their owners. Whoever looks for a maximum remembers the largest that each
//! region had (`RegionPeaks`), and passes over the regions that have not changed since and cannot
//! win.
//!
//! Invariant: a region whose number is the same as before has no superblock with more owners,
//! another state or another capacity than before. Absent: what is looked for (`gc`, the schemes).

use super::Superblocks;
use remap_ssd_media::SbId;
use std::cell::Cell;
use std::ops::Range;

/// Superblocks that share one number: a change of any means a look at all.
const REGION: u32 = 64;

/// The number of each region.
pub struct RegionChanges(Vec<u64>);

impl RegionChanges {
    /// Numbers of regions that cover this many superblocks, all zero.
    pub fn new(superblocks: u32) -> Self {
        Self(vec![0; superblocks.div_ceil(REGION) as usize])
    }

    /// A superblock of the region, or its owners, changed.
    #[inline]
    pub fn note(&mut self, sb: SbId) {
        self.0[(sb.0 / REGION) as usize] += 1;
    }

    /// The number of a region.
    pub fn of(&self, region: usize) -> u64 {
        self.0[region]
    }
}

/// What was seen of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionPeak {
    /// The largest number of one of its superblocks; `None` where none has one.
    pub most: Option<u32>,
    /// The largest share that this was of its superblock; 0 where nobody asks for shares.
    pub share: f64,
}

/// What one who looks for a maximum remembers of all regions.
#[derive(Default)]
pub struct RegionPeaks(Vec<Cell<Option<(u64, RegionPeak)>>>);

impl RegionPeaks {
    /// Nothing has been seen of a device of this size.
    pub fn new(superblocks: u32) -> Self {
        Self(vec![Cell::new(None); superblocks.div_ceil(REGION) as usize])
    }

    /// What was seen of a region that has not changed since; `changes` is its number now.
    pub fn of(&self, region: usize, changes: u64) -> Option<RegionPeak> {
        let (seen, peak) = self.0[region].get()?;
        (seen == changes).then_some(peak)
    }

    /// Remembers what a region has at this number.
    pub fn saw(&self, region: usize, changes: u64, peak: RegionPeak) {
        self.0[region].set(Some((changes, peak)));
    }
}

impl Superblocks {
    /// The regions: the superblocks of each, and its number.
    pub fn regions(&self) -> impl Iterator<Item = (Range<u32>, u64)> + '_ {
        let superblocks = self.geometry.superblocks();
        self.changed
            .0
            .iter()
            .enumerate()
            .map(move |(region, changes)| {
                let first = region as u32 * REGION;
                (first..(first + REGION).min(superblocks), *changes)
            })
    }
}
