//! Finding the superblock with the largest value without scanning all of them.
//!
//! Superblocks are grouped into *regions* of 16. A region has a number that grows with every change
//! of its superblocks or their owners. A search for a maximum caches the largest value of each
//! region (`RegionPeaks`), and skips regions that have not changed since and cannot win.
//!
//! Invariant: in a region whose number is unchanged, no superblock has lost an owner or changed its
//! state or capacity. Absent: the value (`gc`, the schemes).

use super::Superblocks;
use crate::error::Contradiction;
use remap_ssd_media::SbId;
use std::cell::Cell;
use std::ops::Range;

/// Superblocks in a region: a change of one requires a scan of all.
const REGION: u32 = 16;

/// The number of each region.
pub(crate) struct RegionChanges(Vec<u64>);

impl RegionChanges {
    /// Numbers of regions that cover this many superblocks, all zero.
    pub(crate) fn new(superblocks: u32) -> Self {
        Self(vec![0; superblocks.div_ceil(REGION) as usize])
    }

    /// Notes a change of a superblock or its owners.
    #[inline]
    pub(crate) fn note(&mut self, sb: SbId) {
        self.0[(sb.0 / REGION) as usize] += 1;
    }
}

/// Cached maximum of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RegionPeak {
    /// The largest value of its superblocks; `None` if none has a value.
    pub most: Option<u32>,
    /// The largest value as a fraction of its superblock; 0 if fractions are not used.
    pub share: f64,
}

/// The cached maxima of all regions, for one kind of search.
#[derive(Default)]
pub(crate) struct RegionPeaks(Vec<Cell<Option<(u64, RegionPeak)>>>);

impl RegionPeaks {
    /// No cached maxima, for a device of this size.
    pub(crate) fn new(superblocks: u32) -> Self {
        Self(vec![Cell::new(None); superblocks.div_ceil(REGION) as usize])
    }

    /// The cached maximum of a region if it has not changed since; `changes` is its current number.
    pub(crate) fn of(&self, region: usize, changes: u64) -> Option<RegionPeak> {
        let (seen, peak) = self.0[region].get()?;
        (seen == changes).then_some(peak)
    }

    /// The superblock with the largest value among those that `can_win`, the first of several.
    ///
    /// A value may grow only if its region's number grows, but may fall at any time. `can_win` may
    /// change with anything: it is called for each superblock that would be the largest so far.
    pub(crate) fn largest(
        &self,
        regions: impl Iterator<Item = (Range<u32>, u64)>,
        value: impl Fn(SbId) -> Option<u32>,
        can_win: impl Fn(SbId) -> bool,
    ) -> Option<SbId> {
        let (mut best, mut most) = (None, None);
        for (region, (superblocks, changes)) in regions.enumerate() {
            if let Some(seen) = self.of(region, changes)
                && seen.most <= most
            {
                continue;
            }

            let mut peak = RegionPeak::default();
            for sb in superblocks.map(SbId) {
                let value = value(sb);
                peak.most = peak.most.max(value);
                // Of equals the first one wins, so that runs are deterministic.
                if value > most && can_win(sb) {
                    (best, most) = (Some(sb), value);
                }
            }
            self.saw(region, changes, peak);
        }
        best
    }

    /// Checks that no region taken for unchanged has a larger value than its cached maximum.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(
        &self,
        regions: impl Iterator<Item = (Range<u32>, u64)>,
        value: impl Fn(SbId) -> Option<u32>,
    ) -> Result<(), Contradiction> {
        for (region, (superblocks, changes)) in regions.enumerate() {
            let most = superblocks.map(SbId).filter_map(&value).max();
            if let Some(seen) = self.of(region, changes)
                && most > seen.most
            {
                return Err(Contradiction(format!(
                    "region {region} of superblocks has {most:?}, remembered is {seen:?}"
                )));
            }
        }
        Ok(())
    }

    /// Caches the maximum of a region at this number.
    pub(crate) fn saw(&self, region: usize, changes: u64, peak: RegionPeak) {
        self.0[region].set(Some((changes, peak)));
    }
}

impl Superblocks {
    /// The regions: the superblocks of each, and its number.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (Range<u32>, u64)> + '_ {
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

    /// The same, with numbers that also include the changes noted by a scheme.
    pub(crate) fn regions_with<'a>(
        &'a self,
        noted: &'a RegionChanges,
    ) -> impl Iterator<Item = (Range<u32>, u64)> + 'a {
        let regions = self.regions().zip(&noted.0);
        regions.map(|((superblocks, changes), noted)| (superblocks, changes + noted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values change at random, and each search is compared with a full scan.
    #[test]
    fn the_largest_is_found_among_regions_that_are_passed_over() {
        const SUPERBLOCKS: u32 = 300;
        let mut values = vec![None; SUPERBLOCKS as usize];
        let mut changes = RegionChanges::new(SUPERBLOCKS);
        let peaks = RegionPeaks::new(SUPERBLOCKS);

        // A linear congruential generator (Knuth, MMIX).
        let mut state = 1u64;
        let mut below = |bound: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as u32) % bound
        };

        for _ in 0..5_000 {
            // Few distinct values, so that many regions have equal ones.
            let sb = SbId(below(SUPERBLOCKS));
            values[sb.0 as usize] = below(12).checked_sub(1);
            changes.note(sb);

            let banned = below(3);
            let value = |sb: SbId| values[sb.0 as usize];
            let can_win = |sb: SbId| sb.0 % 3 != banned;
            let regions = || {
                (0..SUPERBLOCKS.div_ceil(REGION)).map(|region| {
                    let first = region * REGION;
                    let superblocks = first..(first + REGION).min(SUPERBLOCKS);
                    (superblocks, changes.0[region as usize])
                })
            };

            let all = (0..SUPERBLOCKS).map(SbId);
            let wanted = all
                .filter(|&sb| value(sb).is_some() && can_win(sb))
                .max_by_key(|&sb| (value(sb), std::cmp::Reverse(sb)));
            assert_eq!(peaks.largest(regions(), value, can_win), wanted);
            peaks.check(regions(), value).expect("nothing is stale");
        }
    }

    #[test]
    fn what_may_make_a_superblock_better_is_noted_for_its_region() {
        let shape = remap_ssd_media::geometry::Shape {
            channels: 1,
            dies: 1,
            superblocks: 2 * REGION,
            pages_per_block: 16,
        };
        let geometry = remap_ssd_media::Geometry::new(shape).expect("valid");
        let mut blocks = Superblocks::new(geometry, &crate::Config::default(), 1);
        let numbers = |blocks: &Superblocks| blocks.regions().map(|(_, n)| n).collect::<Vec<u64>>();

        // One superblock of each region.
        let (first, second) = (SbId(0), SbId(REGION));
        (0..2).for_each(|_| blocks.gain(second, true, false));
        let before = numbers(&blocks);

        blocks.move_owned(second, first, 1);
        let moved = numbers(&blocks);
        assert_eq!(moved[0], before[0], "the first has less garbage now");
        assert!(moved[1] > before[1]);

        blocks.lose(second, true, false);
        let lost = numbers(&blocks);
        assert!(lost[0] == moved[0] && lost[1] > moved[1]);

        // Its state, its capacity or its erases.
        let _ = blocks.get_mut(second);
        assert!(numbers(&blocks)[1] > lost[1]);
    }
}
