//! Bit errors of flash: what each read needs, by a model that is given to the media.
//!
//! Invariant: a model knows reads, programs and erases in the order of their execution, and nothing else; so
//! the same operations have the same outcomes. Absent: the model itself (rates, randomness and parameters
//! are no part of this crate), and durations.

use crate::geometry::{BlockId, Ppn};
use crate::op::ReadOutcome;

/// A model of the bit errors of flash.
pub trait BitErrors: Send + Sync {
    /// A page is read.
    fn read(&mut self, page: Ppn) -> ReadOutcome;
    /// A page has been programmed. `wsn`: the number in its OOB, of which the largest is the device's age in writes;
    /// 0 if it has none.
    fn programmed(&mut self, page: Ppn, wsn: u64);
    /// A block has been erased.
    fn erased(&mut self, block: BlockId);
}
