//! Who watches a job, and may stop it: a line on a terminal, or a program that calls the library.
//!
//! Invariant: what is watched does not depend on who watches. Absent: what a stopped job's result
//! would have been.

use super::BAR_STEPS;
use indicatif::ProgressBar;
use remap_ssd_sim::source::{HostPage, Source, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Watches one job, from the thread that does it.
pub trait Watch: Sync {
    /// Called when the job begins, from its own thread.
    fn begin(&self) {}
    /// What it does from now on, in a word: `recovering`, `aging`, `saving` or `measuring`.
    fn set_message(&self, message: &'static str);
    /// How far the measured run has come: 0 to 1000.
    fn set_position(&self, position: u64);
    /// Called when aging is over and the measured run begins.
    fn reset_elapsed(&self) {}
    /// Called when the job has ended, well or not.
    fn end(&self);
    /// Shall it stop? Asked every few thousand pages; a job that is stopped fails.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A line on a terminal, for a job that a signal stops.
pub(crate) struct Bar {
    line: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Bar {
    pub(crate) fn new(line: ProgressBar, stop: Arc<AtomicBool>) -> Self {
        Self { line, stop }
    }

    /// Takes the line away, so that others may be written.
    pub(crate) fn clear(&self) {
        self.line.finish_and_clear();
    }
}

impl Watch for Bar {
    fn begin(&self) {
        self.line.enable_steady_tick(Duration::from_millis(200));
    }

    fn set_message(&self, message: &'static str) {
        self.line.set_message(message);
    }

    fn set_position(&self, position: u64) {
        self.line.set_position(position.min(BAR_STEPS));
    }

    fn reset_elapsed(&self) {
        self.line.reset_elapsed();
    }

    fn end(&self) {
        self.line.finish_with_message("done");
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A source for aging, which asks nobody whether to go on: it fails when the job is stopped.
pub(super) struct Stoppable<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) watch: &'a dyn Watch,
}

impl Source for Stoppable<'_> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        // Aging has no progress that could be asked, so it is stopped where it reads.
        if self.watch.is_stopped() {
            return Err(SourceError::Unusable {
                file: "aging".into(),
                reason: "stopped".into(),
            });
        }
        self.source.fill(out, want)
    }
}
