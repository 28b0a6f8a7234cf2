//! Group commit: commands that wait for durability share one commit.
//!
//! A command that needs durability is executed like any other; its position in the device's history
//! must be durable before the command is acknowledged (`Outcome::sync_to`). One of the waiting
//! threads commits everything executed so far, for all threads that wait for no later position. The
//! device is not held during the commit.
//!
//! Invariants: one commit at a time; a durable position is never committed again, so a flush after
//! which nothing was written costs nothing. Absent: the steps of a commit (`turn`), and how it works
//! (`remap_ssd_media::folder::FolderCommit`).

use crate::spec::status::Status;
use remap_ssd_device::Device;
use remap_ssd_media::folder::HistoryPosition;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct CommitState {
    /// Everything before this position is durable.
    until: Option<HistoryPosition>,
    under_way: bool,
    /// True if the disk has failed: nothing more can become durable.
    failed: bool,
    commits: u64,
    /// Positions lost while commands waited for them, when the power of the volatile cache was cut:
    /// after the first, up to the second.
    lost: Vec<(Option<HistoryPosition>, HistoryPosition)>,
}

impl CommitState {
    /// Returns true if a power cut has taken back changes of a command with this position.
    fn has_lost(&self, wanted: HistoryPosition) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(after, until)| Some(wanted) > *after && wanted <= *until)
    }
}

/// The durable position, and whether a commit is in progress.
#[derive(Default)]
pub(super) struct Durable {
    state: Mutex<CommitState>,
    changed: Condvar,
    /// Pages programmed before the last commit began.
    programs: AtomicU64,
}

impl Durable {
    /// Waits until everything before a position is durable. The caller must not have the device.
    /// `commit` makes everything executed so far durable; one thread at a time calls it, for all.
    ///
    /// # Errors
    /// Write Fault: the disk has failed, and no command may be acknowledged any more. Commands
    /// Aborted due to Power Loss Notification: the power of the volatile cache was cut in the
    /// meantime.
    pub(super) fn wait(
        &self,
        wanted: HistoryPosition,
        commit: impl Fn() -> io::Result<Option<HistoryPosition>>,
    ) -> Result<(), Status> {
        let mut state = self.state();

        loop {
            if state.failed {
                return Err(Status::WRITE_FAULT);
            }
            if state.has_lost(wanted) {
                return Err(Status::POWER_LOSS);
            }

            if state.until >= Some(wanted) {
                return Ok(());
            }

            // The first thread commits for all commands executed by then. It checks again
            // afterwards, because a commit may fail.
            if !state.under_way {
                state.under_way = true;
                state.commits += 1;
                drop(state);

                // Pessimistic until the end: if this panics, dropping it reports a failed commit,
                // and no thread waits forever.
                let mut under_way = UnderWay {
                    durable: self,
                    until: Err(io::Error::other("the commit did not end")),
                };
                under_way.until = commit();
                drop(under_way);

                state = self.state();
                continue;
            }

            // Another thread's commit may have begun too early for this position; then the next
            // iteration begins another.
            let changed = self.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that a commit takes everything executed so far.
    pub(super) fn begins(&self, device: &Device) {
        let programs = device.ftl().media().counts.programs;
        self.programs.store(programs, Ordering::Relaxed);
    }

    /// Pages programmed since the last commit began.
    pub(super) fn pages_unwritten(&self, device: &Device) -> u64 {
        let programs = device.ftl().media().counts.programs;
        let unwritten = programs.saturating_sub(self.programs.load(Ordering::Relaxed));
        // Of an indirection unit, all of its pages.
        unwritten * u64::from(device.config().geometry.host_pages())
    }

    /// Number of commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.state().commits
    }

    fn state(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a cut of the volatile cache's power, when everything before `durable_until` was
    /// durable and the device's history ended at `position`. Commands that wait for a position
    /// between the two have lost data, although the disk will have all of it.
    pub(super) fn lose(
        &self,
        durable_until: Option<HistoryPosition>,
        position: Option<HistoryPosition>,
    ) {
        // With a device in memory no command waits.
        let lost = position.map(|position| (durable_until, position));
        self.state().lost.extend(lost);
    }
}

/// Ends a commit, even on panic, so that no thread waits forever.
struct UnderWay<'a> {
    durable: &'a Durable,
    until: io::Result<Option<HistoryPosition>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.durable.state();
        state.under_way = false;
        match &self.until {
            Ok(until) => state.until = state.until.max(*until),
            Err(_) => state.failed = true,
        }
        self.durable.changed.notify_all();
    }
}
