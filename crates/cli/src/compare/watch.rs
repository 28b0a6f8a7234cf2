//! Who watches a job, and may stop it: a line on a terminal, or a program that calls the library.
//!
//! Invariant: what is watched does not depend on who watches. Absent: what a stopped job's result would have been.

use super::BAR_STEPS;
use indicatif::ProgressBar;
use remap_ssd_sim::source::{HostPage, Source, SourceError};
use std::time::Duration;

/// Watches one job, from the thread that does it.
pub trait Watch: Sync {
    /// The job begins.
    fn begin(&self) {}
    /// What it does from now on, in a word: `recovering`, `aging`, `saving` or `measuring`.
    fn set_message(&self, message: &'static str);
    /// How far the measured run has come: 0 to 1000.
    fn set_position(&self, position: u64);
    /// The measured run begins.
    fn reset_elapsed(&self) {}
    /// The job has ended.
    fn end(&self);
    /// Shall it stop? Asked every few thousand pages; a job that is stopped fails.
    fn is_stopped(&self) -> bool {
        false
    }
}

impl Watch for ProgressBar {
    fn begin(&self) {
        self.enable_steady_tick(Duration::from_millis(200));
    }

    fn set_message(&self, message: &'static str) {
        ProgressBar::set_message(self, message);
    }

    fn set_position(&self, position: u64) {
        ProgressBar::set_position(self, position.min(BAR_STEPS));
    }

    fn reset_elapsed(&self) {
        ProgressBar::reset_elapsed(self);
    }

    fn end(&self) {
        self.finish_with_message("done");
    }
}

/// A source for aging, which asks nobody whether to go on: it fails when the job is stopped.
pub(super) struct Stoppable<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) watch: &'a dyn Watch,
}

impl Source for Stoppable<'_> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        if self.watch.is_stopped() {
            return Err(SourceError::Unusable {
                file: "aging".into(),
                reason: "stopped".into(),
            });
        }
        self.source.fill(out, want)
    }
}
