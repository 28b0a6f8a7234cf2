//! Group commit: commands that wait for durability share one commit.
//!
//! A command that needs durability is executed like any other; its position in the device's history
//! must be durable before the command is acknowledged (`Outcome::sync_to`). One of the waiting
//! threads commits everything executed so far, for all threads that wait for no later position. The
//! device is not held during the commit.
//!
//! Invariants: one commit at a time; a durable position is never committed again, so a flush after
//! which nothing was written costs nothing. Absent: how a commit works
//! (`remap_ssd_media::folder::FolderCommit`).

use super::execute::Outcome;
use super::subsystem::Subsystem;
use crate::spec::status::Status;
use remap_ssd_device::Device;
use remap_ssd_media::folder::{FolderCommit, HistoryPosition};
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

impl Subsystem {
    /// Waits until everything before a position is durable. The caller must not have the device.
    ///
    /// # Errors
    /// Write Fault: the disk has failed, and no command may be acknowledged any more. Commands
    /// Aborted due to Power Loss Notification: the power of the volatile cache was cut in the
    /// meantime.
    pub fn make_durable(&self, wanted: HistoryPosition) -> Result<(), Status> {
        let mut state = self.durable.state();

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
                self.commit();
                state = self.durable.state();
                continue;
            }

            // Another thread's commit may have begun too early for this position; then the next
            // iteration begins another.
            state = self
                .durable
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until a command's position is durable, and returns the outcome to acknowledge. The
    /// caller must not hold the device.
    pub fn wait_until_durable(&self, outcome: Outcome) -> Outcome {
        let Some(wanted) = outcome.sync_to else {
            return outcome;
        };
        match self.make_durable(wanted) {
            Ok(()) => Outcome {
                sync_to: None,
                ..outcome
            },
            // The command's own status does not matter if its effect may be lost.
            Err(status) => Outcome {
                sync_to: None,
                status,
                result: 0,
                failed_block: None,
                ..outcome
            },
        }
    }

    fn commit(&self) {
        let failed = || Err(io::Error::other("the commit did not end"));
        // Pessimistic until the end: if this panics, dropping it reports a failed commit, and no
        // thread waits forever.
        let mut under_way = UnderWay {
            durable: &self.durable,
            until: failed(),
        };

        // The device is held only to take the changes out of it. Other commands run while they are
        // written.
        let begun = {
            let mut device = self.device();
            let begun = device.begin_commit();
            self.durable
                .programs
                .store(device.ftl().media().counts.programs, Ordering::Relaxed);
            begun
        };

        under_way.until = match begun {
            Ok(None) => Ok(None),
            Ok(Some(commit)) => self.write_commit(commit).map(Some),
            Err(error) => Err(error),
        };

        // No command may be acknowledged from now on: the device's content may never become
        // durable.
        if let Err(error) = &under_way.until {
            self.device().commit_failed(error);
        }
    }

    fn write_commit(&self, mut commit: FolderCommit) -> io::Result<HistoryPosition> {
        // The device is held between the writes, never during them. A commit that ends before the
        // journal is written has no effect.
        commit.write_contents()?;
        self.device().vouch(&mut commit)?;
        let until = commit.write_journal()?;
        self.note_durable(until);
        Ok(until)
    }

    /// Everything before a position is durable. The device and the volatile cache are updated in
    /// one turn, before any command that waits for it is acknowledged: so a power cut in another
    /// turn finds such a command either not acknowledged or with nothing left to lose.
    fn note_durable(&self, until: HistoryPosition) {
        let mut turn = self.device();
        turn.finish_commit(until);
        if let Some(mut cache) = turn.cache() {
            cache.durable_until(until);
        }
    }

    /// Pages programmed since the last commit began.
    pub(super) fn pages_unwritten(&self, device: &Device) -> u64 {
        device
            .ftl()
            .media()
            .counts
            .programs
            .saturating_sub(self.durable.programs.load(Ordering::Relaxed))
    }

    /// Number of commits so far.
    pub fn commits(&self) -> u64 {
        self.durable.state().commits
    }

    /// Makes everything acknowledged durable, for a host that shuts its controller down.
    ///
    /// # Errors
    /// As `make_durable`.
    pub(super) fn flush_all(&self) -> Result<(), Status> {
        self.witness_flush();
        // A cache in this process is written back first, which ends with the same wait.
        if self.has_cache() {
            return self.drain();
        }
        let wanted = self.device().ftl().media().position();
        wanted.map_or(Ok(()), |wanted| self.make_durable(wanted))
    }
}
