//! Standing of a queue. It may go on as long as its controller, since the connection of the queue,
//! has not been reset, ended, or shut down.
//!
//! A controller has an epoch. A reset begins the next one; the end of the controller is a bit of
//! it. A shutdown is another bit, which only a reset clears: commands fail, and the queues stay
//! (Base 2.0 §3.6.2, CSTS.SHST in §3.1.3.6). A queue remembers the epoch in which it was connected.
//!
//! A command may wait many times: for its data, its turn at the device, the next slice, memory, the
//! disk. So the epoch is checked not where a command waits but where it resumes: by
//! `DeviceTurn::enter` each time a turn gets the device, by `commands` for operations without a
//! turn, and by a connection before each PDU and each answer.
//!
//! Order in which queues end:
//!
//! 1. the epoch changes
//! 2. `settle`: every slice and every command that began before 1 has ended
//! 3. the reset, drop or revocation is acknowledged
//!
//! A slice that begins after step 2 finds the new epoch, so no command of these queues is executed
//! after step 3. Absent: who ends queues.

use crate::spec::status::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Set if the controller has ended.
const ENDED: u64 = 1 << 63;
/// Set if the controller is shut down.
const SHUT_DOWN: u64 = 1 << 62;

/// Number of resets of a controller, and whether it has ended or is shut down.
#[derive(Debug, Default)]
pub(super) struct Epoch(AtomicU64);

impl Epoch {
    /// The epoch to remember for queues connected now. A shutdown does not change it.
    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !SHUT_DOWN
    }

    /// Handles a reset: older queues may not go on. It ends a shutdown.
    pub(super) fn advance(&self) {
        let next = |now: u64| Some((now & !SHUT_DOWN) + 1);
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Commands of I/O queues fail from now on, until a reset.
    pub(super) fn shut_down(&self) {
        self.0.fetch_or(SHUT_DOWN, Ordering::AcqRel);
    }

    fn is_shut_down(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHUT_DOWN != 0
    }

    /// No queue may go on any more, old or new.
    pub(super) fn end(&self) {
        self.0.fetch_or(ENDED, Ordering::AcqRel);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.now() & ENDED != 0
    }
}

/// A queue's permission to go on, as of its connection.
#[derive(Clone, Debug)]
pub struct Standing {
    epoch: Arc<Epoch>,
    /// The epoch of an I/O queue. An admin queue outlives resets: only the end stops it.
    since: Option<u64>,
}

impl Standing {
    pub(super) fn of_io_queue(epoch: &Arc<Epoch>, since: u64) -> Self {
        let (epoch, since) = (epoch.clone(), Some(since));
        Self { epoch, since }
    }

    pub(super) fn of_admin_queue(epoch: &Arc<Epoch>) -> Self {
        let (epoch, since) = (epoch.clone(), None);
        Self { epoch, since }
    }

    /// Returns true if its controller was reset or has ended since.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        match self.since {
            Some(since) => self.epoch.now() != since,
            None => self.epoch.is_ended(),
        }
    }

    /// Checks that its commands are executed.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion; Command Sequence Error after a shutdown.
    pub(super) fn must_be(&self) -> Result<(), Status> {
        if self.is_over() {
            Err(Status::QUEUE_GONE)
        } else if self.since.is_some() && self.epoch.is_shut_down() {
            Err(Status::SEQUENCE)
        } else {
            Ok(())
        }
    }
}

/// Commands that work without a turn at the device: those that change namespaces, reservations and
/// features.
#[derive(Debug, Default)]
pub(super) struct CommandsUnderWay(RwLock<()>);

impl CommandsUnderWay {
    /// Begins a command of a queue; `settle` waits until the guard is dropped.
    ///
    /// # Errors
    /// The queue may not go on.
    pub(super) fn begin(&self, standing: &Standing) -> Result<RwLockReadGuard<'_, ()>, Status> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // Under the guard: a thread that ends the queue changes the epoch before it takes the lock.
        standing.must_be()?;
        Ok(guard)
    }

    /// Waits for the end of every command begun before.
    pub(super) fn settle(&self) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_may_go_on_until_its_controller_is_reset_or_ends() {
        let epoch = Arc::<Epoch>::default();
        let admin = Standing::of_admin_queue(&epoch);
        let first = Standing::of_io_queue(&epoch, epoch.now());
        assert!(!first.is_over() && !admin.is_over());

        epoch.advance();
        let second = Standing::of_io_queue(&epoch, epoch.now());
        assert!(first.is_over() && !second.is_over());
        assert!(!admin.is_over(), "an admin queue outlives a reset");

        // A shutdown ends no queue, and a reset ends the shutdown.
        epoch.shut_down();
        assert!(!second.is_over() && second.must_be() == Err(Status::SEQUENCE));
        assert!(admin.must_be().is_ok() && first.must_be() == Err(Status::QUEUE_GONE));
        epoch.advance();
        assert!(second.is_over());
        let second = Standing::of_io_queue(&epoch, epoch.now());
        assert!(second.must_be().is_ok());

        epoch.end();
        assert!(first.is_over() && second.is_over() && admin.is_over());
        epoch.advance();
        assert!(second.is_over() && admin.is_over(), "the end is the end");
    }
}
