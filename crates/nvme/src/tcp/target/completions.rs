//! Completions that are not due yet, with their data.
//!
//! Invariant: completions due at the same time leave in the order of insertion. Absent: the clock.

use super::cids::Cids;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A completion with its data.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DelayedCompletion {
    at: u64,
    /// Orders completions with the same time by insertion.
    order: u64,
    cid: u16,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub(super) struct DelayedCompletions {
    held: BinaryHeap<Reverse<DelayedCompletion>>,
    cids: Cids,
    bytes: usize,
    order: u64,
}

impl DelayedCompletions {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Returns true if the completion of this command is delayed.
    pub(super) fn has(&self, cid: u16) -> bool {
        self.cids.contains(cid)
    }
    /// When the next one is due.
    pub(super) fn next(&self) -> Option<u64> {
        self.held.peek().map(|Reverse(held)| held.at)
    }
    pub(super) fn put(&mut self, at: u64, cid: u16, bytes: Vec<u8>) {
        // Of two completions due at the same time, the first inserted comes first.
        self.order += 1;
        self.bytes += bytes.len();
        self.cids.insert(cid);
        self.held.push(Reverse(DelayedCompletion {
            at,
            order: self.order,
            cid,
            bytes,
        }));
    }
    /// Takes a completion that is due, if there is one.
    pub(super) fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let Reverse(DelayedCompletion { cid, bytes, .. }) = self.held.pop()?;
        self.cids.remove(cid);
        self.bytes -= bytes.len();
        Some(bytes)
    }
}
