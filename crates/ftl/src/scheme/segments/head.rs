//! The head of a segment (FAST'21 §4.3, "segment metadata entry").
//!
//! Invariant: the two words of a segment's head are atomic by themselves; the segment belongs to a
//! group only if both torn bits are 1. The next-link is written when the successor is allocated,
//! over the second word.

use bitfield_struct::bitfield;

/// First word of a segment: whose it is, since when.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SegmentHead {
    pub torn: bool,
    /// Superblock whose group the segment begins.
    #[bits(21)]
    pub superblock: u32,
    /// WSN when it was allocated; older than the superblock's head means an earlier incarnation.
    #[bits(42)]
    pub wsn: u64,
}

/// Second word: its place in the group.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SegmentLink {
    pub torn: bool,
    /// Segment sequence number in the group.
    #[bits(31)]
    pub sequence: u32,
    /// Next segment ID plus one; 0 until there is one.
    #[bits(32)]
    pub next: u32,
}

impl SegmentLink {
    /// A link that ends a group.
    pub fn of(sequence: u32) -> Self {
        Self::new().with_torn(true).with_sequence(sequence)
    }
}
