//! Sets of pages as ranges, for detecting overlapping commands.
//!
//! Invariant: ranges are disjoint and not empty. Absent: removing pages.

use std::collections::BTreeMap;

/// A set of pages, stored as ranges that do not touch.
///
/// ```
/// let mut pages = remap_ssd_device::PageRanges::default();
/// pages.add(10, 20);
/// pages.add(20, 30);
/// assert!(pages.meets(29, 40) && !pages.meets(30, 40));
/// ```
#[derive(Clone, Debug, Default)]
pub struct PageRanges {
    /// The end of each range by its first page.
    ends: BTreeMap<u64, u64>,
}

impl PageRanges {
    /// Returns true if a page of `first..end` is in the set.
    pub fn meets(&self, first: u64, end: u64) -> bool {
        // Ranges are disjoint, so only the last one that begins before `end` can overlap.
        first < end
            && self
                .ends
                .range(..end)
                .next_back()
                .is_some_and(|(_, known_end)| *known_end > first)
    }

    /// Adds the pages `first..end`, joining adjacent ranges.
    pub fn add(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }

        // Including `end`: a range that begins there is adjacent.
        while let Some((known, known_end)) = self
            .ends
            .range(..=end)
            .next_back()
            .map(|(first, end)| (*first, *end))
        {
            if known_end < first {
                break;
            }
            self.ends.remove(&known);
            (first, end) = (first.min(known), end.max(known_end));
        }
        self.ends.insert(first, end);
    }
}
