//! Follows a job and may stop it: a terminal line, or a program that calls the library.
//!
//! Invariant: a job's work does not depend on its watch. Absent: the result that a stopped job
//! would have had.

use super::BAR_STEPS;
use indicatif::ProgressBar;
use remap_ssd_sim::study::Stage;
use std::ops::ControlFlow;
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

/// Tells the stages of a run to its watch, which may stop it.
pub(super) fn following(watch: &dyn Watch) -> impl FnMut(Stage) -> ControlFlow<()> {
    let mut last = "";

    move |stage| {
        let message = match stage {
            Stage::Recovering => "recovering",
            Stage::Aging => "aging",
            Stage::Saving => "saving",
            Stage::Measuring(_) => "measuring",
        };
        if message != last {
            last = message;
            watch.set_message(message);
            if message == "measuring" {
                watch.reset_elapsed();
            }
        }

        if let Stage::Measuring(progress) = stage {
            // With an unknown length the bar is full at once, and never beyond its end.
            let total = progress.pages_total.unwrap_or(0).max(1);
            watch.set_position((progress.pages * BAR_STEPS / total).min(BAR_STEPS));
        }

        if watch.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
