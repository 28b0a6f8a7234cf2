//! CAGC's placement: pages are kept apart by reference count, since the more LPNs share a page, the
//! longer it lives. Greedy victims. Absent: deduplication during collection, which finds nothing
//! where writes are deduplicated.

/// Zones: one reference, two, and more.
pub const ZONES: usize = 3;

/// The zone of a reference count.
pub fn zone(references: u32) -> usize {
    (references.max(1) as usize - 1).min(ZONES - 1)
}
