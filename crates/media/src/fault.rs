//! Faults that a test or a campaign can plant, and the errors they surface as.
//!
//! Invariant: every fault is a property of a place (a page, a block, a word), never of time, so
//! that a run with faults is as repeatable as one without.

use crate::geometry::{BlockId, Ppn};
use std::collections::{BTreeMap, BTreeSet};

/// The medium's event: handled by the firmware or passed up, never a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// A page could not be programmed; its block must not be programmed again.
    #[error("program failed")]
    ProgramFailed,
    /// A block could not be erased; it must be retired.
    #[error("erase failed")]
    EraseFailed,
    /// A flash page or an NVRAM word could not be read: more errors than ECC corrects.
    #[error("uncorrectable read")]
    Uncorrectable,
}

/// Planted faults of flash pages, blocks and NVRAM words.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Programs of these blocks fail from this row on.
    pub program: BTreeMap<BlockId, u32>,
    /// Erases of these blocks fail.
    pub erase: BTreeSet<BlockId>,
    /// Reads of these pages fail until their block is erased.
    pub read: BTreeSet<Ppn>,
    /// Flipped bits of NVRAM words, until the word is stored again.
    pub flips: BTreeMap<usize, u64>,
}

impl Faults {
    /// True if nothing is planted.
    pub fn is_empty(&self) -> bool {
        self.program.is_empty()
            && self.erase.is_empty()
            && self.read.is_empty()
            && self.flips.is_empty()
    }
}
