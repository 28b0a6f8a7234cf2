//! Follows a job and may stop it: a terminal line, or a program that calls the library.
//!
//! Invariant: a job's work does not depend on its watch. Absent: the result that a stopped job
//! would have had.

use super::BAR_STEPS;
use indicatif::ProgressBar;
use remap_ssd_sim::source::{HostPage, Source, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Follows one job, on the thread that runs it.
pub trait Watch: Sync {
    /// Called when the job begins, on its own thread.
    fn begin(&self) {}
    /// Current activity, in a word: `recovering`, `aging`, `saving` or `measuring`.
    fn set_message(&self, message: &'static str);
    /// Progress of the measured run: 0 to 1000.
    fn set_position(&self, position: u64);
    /// Called when aging is over and the measured run begins.
    fn reset_elapsed(&self) {}
    /// Called when the job has ended, successfully or not.
    fn end(&self);
    /// Returns true to stop the job. Polled every few thousand pages; a stopped job fails.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A terminal line for a job that a signal stops.
pub(crate) struct Bar {
    line: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Bar {
    pub(crate) fn new(line: ProgressBar, stop: Arc<AtomicBool>) -> Self {
        Self { line, stop }
    }

    /// Removes the line, so that others may be written.
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

/// A source for aging, which has no cancellation: it fails when the job is stopped.
pub(super) struct Stoppable<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) watch: &'a dyn Watch,
}

impl Source for Stoppable<'_> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        // Aging has no progress callback, so it is stopped at its reads.
        if self.watch.is_stopped() {
            return Err(SourceError::Unusable {
                file: "aging".into(),
                reason: "stopped".into(),
            });
        }
        self.source.fill(out, want)
    }
}
