//! The head of a segment (FAST'21 §4.3, "segment metadata entry").
//!
//! Invariant: each of the two words of a segment's head is atomic; the segment belongs to a group
//! only if both torn bits are 1. The next-link is written when the successor is allocated, over the
//! second word.

use bitfield_struct::bitfield;

/// First word of a segment: its owner, and when it was allocated.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub torn: bool,
    /// Superblock whose group the segment belongs to.
    #[bits(21)]
    pub superblock: u32,
    /// WSN of its allocation; one older than the superblock's head means an earlier incarnation.
    #[bits(42)]
    pub wsn: u64,
}

/// Second word: its position in the group.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(crate) struct SegmentLink {
    pub torn: bool,
    /// Sequence number of the segment in the group.
    #[bits(31)]
    pub sequence: u32,
    /// ID of the next segment plus one; 0 if there is none yet.
    #[bits(32)]
    pub next: u32,
}

impl SegmentLink {
    /// The link of a group's last segment.
    pub(crate) fn of(sequence: u32) -> Self {
        Self::new().with_torn(true).with_sequence(sequence)
    }
}
