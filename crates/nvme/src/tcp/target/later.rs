//! Completions that are not due yet.
//!
//! Invariant: those due at one time leave in the order in which they were put. Absent: the clock.

use super::cids::Cids;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Held completions, each with its data.
#[derive(Default)]
pub(super) struct Later {
    /// When it is due, in which order it was put, its command, and the bytes.
    held: BinaryHeap<Reverse<(u64, u64, u16, Vec<u8>)>>,
    cids: Cids,
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
    /// Is the completion of this command held?
    pub fn has(&self, cid: u16) -> bool {
        self.cids.contains(cid)
    }
    pub fn put(&mut self, at: u64, cid: u16, bytes: Vec<u8>) {
        self.order += 1;
        self.bytes += bytes.len();
        self.cids.insert(cid);
        self.held.push(Reverse((at, self.order, cid, bytes)));
    }
    /// One that is due.
    pub fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, _, cid, bytes)) = self.held.pop()?;
        self.cids.remove(cid);
        self.bytes -= bytes.len();
        Some(bytes)
    }
}
