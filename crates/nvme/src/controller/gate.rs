//! Revocable access to a subsystem, for threads that may outlive it in a kernel call or on a
//! socket.
//!
//! Invariant: once closed, no thread is inside and none gets in, so that the device can be given
//! back even if such threads never end. Absent: the lock of the device, which is the subsystem's.

use super::subsystem::Subsystem;
use std::sync::{Arc, PoisonError, RwLock};

/// Access to a subsystem that can be closed.
pub struct Gate(RwLock<Option<Arc<Subsystem>>>);

impl Gate {
    /// An open gate.
    pub fn new(subsystem: Arc<Subsystem>) -> Self {
        Self(RwLock::new(Some(subsystem)))
    }

    /// Calls `work` with the subsystem; `None` if the gate is closed.
    pub fn with<R>(&self, work: impl FnOnce(&Arc<Subsystem>) -> R) -> Option<R> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(work)
    }

    /// Closes it, after every thread inside has left.
    pub fn close(&self) {
        // The write lock is granted when the last reader has left; from here on no thread is
        // inside.
        drop(
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}
