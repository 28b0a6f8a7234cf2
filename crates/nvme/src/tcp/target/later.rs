//! Completions that are not due yet.
//!
//! Invariant: those due at one time leave in the order in which they were put. Absent: the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Held completions, each with its data.
#[derive(Default)]
pub(super) struct Later {
    held: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    bytes: usize,
    order: u64,
}

impl Later {
    pub fn len(&self) -> usize {
        self.held.len()
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// When the next one is due.
    pub fn next(&self) -> Option<u64> {
        self.held.peek().map(|Reverse((at, ..))| *at)
    }
    pub fn put(&mut self, at: u64, bytes: Vec<u8>) {
        self.order += 1;
        self.bytes += bytes.len();
        self.held.push(Reverse((at, self.order, bytes)));
    }
    /// One that is due.
    pub fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, _, bytes)) = self.held.pop()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }
}
