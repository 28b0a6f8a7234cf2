//! A pool of spare threads for concurrent runs.
//!
//! Each run has its own thread. Additional threads, allowed by the user or released by finished
//! runs, are lent to runs that can use a second one. Invariant: never more are lent than exist.
//! Absent: results; none depends on it.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pool of spare threads.
#[derive(Debug, Default)]
pub struct Cores(AtomicU32);

/// A borrowed thread, returned on drop.
#[derive(Debug)]
pub(crate) struct Loan<'a>(&'a Cores);

impl Cores {
    /// A pool of `spare` threads.
    pub fn new(spare: u32) -> Self {
        Self(AtomicU32::new(spare))
    }

    /// Borrows a thread, if one is left.
    pub(crate) fn borrow(&self) -> Option<Loan<'_>> {
        // Atomically, so that no two runs take the last one.
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spare| {
                spare.checked_sub(1)
            });
        taken.ok().map(|_| Loan(self))
    }

    /// Adds a thread that a run no longer needs.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Loan<'_> {
    /// Number of threads for a run with or without this loan.
    pub(crate) fn threads(loan: Option<&Self>) -> u32 {
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
