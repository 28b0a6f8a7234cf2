//! The way to a subsystem for those who may be left behind: threads that wait in a kernel or on a
//! socket.
//!
//! Invariant: once closed, nobody is inside and nobody gets in, so that the device can be given
//! back whatever becomes of such threads. Absent: the lock of the device, which is the subsystem's.

use super::subsystem::Subsystem;
use std::sync::{Arc, PoisonError, RwLock};

/// A way to a subsystem that can be closed.
pub struct Gate(RwLock<Option<Arc<Subsystem>>>);

impl Gate {
    /// A gate that lets everything pass.
    pub fn new(subsystem: Arc<Subsystem>) -> Self {
        Self(RwLock::new(Some(subsystem)))
    }

    /// Does something with the subsystem; `None` if it is closed.
    pub fn with<R>(&self, work: impl FnOnce(&Arc<Subsystem>) -> R) -> Option<R> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(work)
    }

    /// Closes it, after whoever is inside.
    pub fn close(&self) {
        // The write lock comes when the last reader has left, so from here on nobody is inside.
        drop(
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}
