//! Follows a job and may stop it: a terminal line, or a program that calls the library.
//!
//! Invariant: a job's work does not depend on its watch. Absent: the result that a stopped job
//! would have had.

use remap_ssd_sim::study::Stage;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Position of a watch at the end of the measured run.
pub const STEPS: u64 = 1000;

/// Follows one job, on the thread that runs it.
pub trait Watch: Sync {
    /// Called when the job begins, on its own thread.
    fn begin(&self) {}
    /// Current activity, in a word: `recovering`, `aging`, `saving` or `measuring`.
    fn set_message(&self, _message: &'static str) {}
    /// Progress of the measured run: 0 to [`STEPS`].
    fn set_position(&self, _position: u64) {}
    /// Called when aging is over and the measured run begins.
    fn reset_elapsed(&self) {}
    /// Called when the job has ended, successfully or not.
    fn end(&self) {}
    /// Returns true to stop the job. Polled every few thousand pages; a stopped job fails.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A watch without output that never stops.
impl Watch for () {}

/// A watch without output that stops once the flag is set.
impl Watch for &AtomicBool {
    fn is_stopped(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

/// Tells the stages of a run to its watch, which may stop it.
pub(crate) fn following(watch: &dyn Watch) -> impl FnMut(Stage) -> ControlFlow<()> {
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
            watch.set_position((progress.pages * STEPS / total).min(STEPS));
        }

        if watch.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
