//! Handling of `fork`: a child does not use files, places and locks inherited from its parent, and
//! starts with none of its own.
//!
//! ```text
//! an inherited file         an I/O error; closing it does not affect the parent
//! statics of this crate     one value for each process (`PerProcess`): no mutex stays locked by a thread
//!                           that the child does not have
//! inherited lock files      closed in the child before it opens one: SQLite's VFS would take the parent's
//!                           locks, which a child does not have (fcntl(2)), for its own (`vfs/lock.rs`)
//! a volume's descriptors    closed in the child: what they lock ends with the parent
//! ```
//!
//! SQLite's own rule stays ("How To Corrupt An SQLite Database File" §2.6): a connection is used by
//! the process that opened it. A child opens its own.
//!
//! Invariant: no inherited value is dropped, since dropping may write to the parent's device.

use remap_ssd_nvme::process::Process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, TryLockError};

/// A static that is reset in a child of `fork`.
///
/// Values are never freed: there is one for each process and static.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Entry<T>>);

struct Entry<T: 'static> {
    process: Process,
    value: T,
    /// The entry of the process that this one was forked from.
    inherited: Option<&'static Entry<T>>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// This process's value.
    pub(crate) fn get(&self) -> &'static T {
        &self.entry().value
    }

    /// The values of the ancestors, as of the fork.
    pub(crate) fn inherited(&self) -> impl Iterator<Item = &'static T> {
        let first = self.entry().inherited;
        std::iter::successors(first, |entry| entry.inherited).map(|entry| &entry.value)
    }

    fn entry(&self) -> &'static Entry<T> {
        let process = Process::current();
        loop {
            let known = self.0.load(Ordering::Acquire);
            // SAFETY: null, or a box that was leaked below: it is valid for as long as the process,
            // and only shared references to it are made.
            let entry = unsafe { known.as_ref() };
            if let Some(entry) = entry.filter(|entry| entry.process == process) {
                return entry;
            }

            let new = Box::into_raw(Box::new(Entry {
                process,
                value: T::default(),
                inherited: entry,
            }));
            let exchanged =
                self.0
                    .compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire);
            if exchanged.is_err() {
                // Another thread was faster.
                // SAFETY: it was made above, and has not been shared.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

/// Takes the value of an inherited mutex, unless a thread had it locked at the fork: then the value
/// may be half changed, and stays.
pub(crate) fn take_inherited<T: Default>(mutex: &Mutex<T>) -> T {
    match mutex.try_lock() {
        Ok(mut value) => std::mem::take(&mut value),
        Err(TryLockError::Poisoned(poisoned)) => std::mem::take(&mut poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => T::default(),
    }
}
