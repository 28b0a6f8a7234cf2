//! Threads that several runs share.
//!
//! Each run has a thread anyway. Those that are allowed besides, or that others have done with, are
//! lent to runs that can use a second one. Invariant: never more are lent than there are. Absent:
//! which results depend on it (none does).

use std::sync::atomic::{AtomicU32, Ordering};

/// Processor threads that runs lend each other.
#[derive(Debug, Default)]
pub struct Cores(AtomicU32);

/// A thread that is given back when this is dropped.
#[derive(Debug)]
pub struct Loan<'a>(&'a Cores);

impl Cores {
    /// So many to begin with.
    pub fn new(spare: u32) -> Self {
        Self(AtomicU32::new(spare))
    }

    /// One, if there is one left.
    pub fn borrow(&self) -> Option<Loan<'_>> {
        // In one step, so that no two runs take the last one.
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spare| {
                spare.checked_sub(1)
            });
        taken.ok().map(|_| Loan(self))
    }

    /// Somebody has done with one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Loan<'_> {
    /// Threads that a run with this loan, or without one, may have.
    pub fn threads(loan: Option<&Self>) -> u32 {
        1 + u32::from(loan.is_some())
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.add();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_lent_than_there_are_and_what_is_given_back_is_lent_again() {
        let cores = Cores::new(1);
        let first = cores.borrow();
        let second = cores.borrow();
        assert_eq!(
            [&first, &second].map(|loan| Loan::threads(loan.as_ref())),
            [2, 1]
        );
        drop((first, second));
        cores.add();
        let both = [cores.borrow(), cores.borrow(), cores.borrow()];
        assert_eq!(both.map(|loan| loan.is_some()), [true, true, false]);
    }
}
