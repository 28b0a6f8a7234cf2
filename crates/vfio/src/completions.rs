//! Delayed completions.
//!
//! Invariant: completions due at the same time leave in the order of insertion. Absent: the clock.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A completion that is not due yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DelayedCompletion {
    /// Due time, in nanoseconds since the epoch.
    pub at: u64,
    /// Breaks ties in the order of `put`.
    order: u64,
    pub sqid: u16,
    pub cid: u16,
    pub status: u16,
    pub result: u64,
}

impl DelayedCompletion {
    pub(crate) fn new(at: u64, (sqid, cid): (u16, u16), status: u16, result: u64) -> Self {
        Self {
            at,
            order: 0,
            sqid,
            cid,
            status,
            result,
        }
    }
}

/// Completions that wait until they are due.
#[derive(Default)]
pub(crate) struct DelayedCompletions {
    delayed: BinaryHeap<Reverse<DelayedCompletion>>,
    /// Queue and identifier of each command in `delayed`.
    commands: BTreeSet<(u16, u16)>,
    order: u64,
}

impl DelayedCompletions {
    /// Returns true if this command's completion is delayed.
    pub(crate) fn has(&self, sqid: u16, cid: u16) -> bool {
        self.commands.contains(&(sqid, cid))
    }

    /// Time at which the next one is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.delayed.peek().map(|Reverse(due)| due.at)
    }

    pub(crate) fn put(&mut self, due: DelayedCompletion) {
        // The heap alone would not order those with the same time.
        self.order += 1;
        self.commands.insert((due.sqid, due.cid));
        self.delayed.push(Reverse(DelayedCompletion {
            order: self.order,
            ..due
        }));
    }

    /// Takes a completion due at `now`, the earliest first.
    pub(crate) fn take(&mut self, now: u64) -> Option<DelayedCompletion> {
        if self.next()? > now {
            return None;
        }
        let Reverse(due) = self.delayed.pop()?;
        self.commands.remove(&(due.sqid, due.cid));
        Some(due)
    }

    /// Takes all completions of a queue, in the order of their due times.
    pub(crate) fn take_queue(&mut self, sqid: u16) -> Vec<DelayedCompletion> {
        self.commands.retain(|(other, _)| *other != sqid);
        let all = std::mem::take(&mut self.delayed).into_sorted_vec();

        // With `Reverse` the earliest is the last.
        let (taken, kept) = all
            .into_iter()
            .rev()
            .partition(|Reverse(due)| due.sqid == sqid);
        self.delayed = BinaryHeap::from(kept);
        let taken: Vec<Reverse<DelayedCompletion>> = taken;
        taken.into_iter().map(|Reverse(due)| due).collect()
    }

    /// For a reset: earlier commands are not completed to the next controller.
    pub(crate) fn clear(&mut self) {
        self.delayed.clear();
        self.commands.clear();
    }
}
