//! CAGC's placement: pages are separated by reference count, since a page lives longer the more
//! LPNs share it. Greedy victims. Absent: deduplication during collection, which finds nothing if
//! writes are deduplicated.

/// Zones: one reference, two, and more.
pub(super) const ZONES: usize = 3;

/// The zone of a reference count.
pub(super) fn zone(references: u32) -> usize {
    (references.max(1) as usize - 1).min(ZONES - 1)
}
