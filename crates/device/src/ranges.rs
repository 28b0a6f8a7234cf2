//! Sets of pages as ranges, to find out whether commands overlap.
//!
//! Invariant: ranges are disjoint and not empty. Absent: removing pages.

use std::collections::BTreeMap;

/// A set of pages, kept as ranges that do not touch.
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
    /// Whether a page of `first..end` is in the set.
    pub fn meets(&self, first: u64, end: u64) -> bool {
        // Ranges are disjoint: only the last that begins before `end` can meet it.
        first < end
            && self
                .ends
                .range(..end)
                .next_back()
                .is_some_and(|(_, known_end)| *known_end > first)
    }

    /// Adds the pages `first..end`, joining ranges that touch.
    pub fn add(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }

        // Up to and with `end`: a range that begins there touches this one.
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
