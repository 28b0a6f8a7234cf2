//! Progress of a comparison on a terminal: a line while its trace is read, and one for each job.
//!
//! Absent: what is followed (`remap_ssd_study`).

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remap_ssd_study::{self as study, BytesRead, Follow, STEPS, Watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        self.line.set_position(position.min(STEPS));
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

/// Delay before progress is shown, so that short files show none.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// A progress line on a terminal; `stop` aborts.
pub(super) fn reading(stop: Arc<AtomicBool>) -> Follow {
    let begun = Instant::now();
    let mut line = ReadingBar(None);
    let mut until = study::until(stop);

    Box::new(move |read| {
        if begun.elapsed() >= SHOWN_AFTER {
            line.show(read);
        }
        until(read)
    })
}

/// Removed when the reading ends, successfully or not.
struct ReadingBar(Option<ProgressBar>);

impl ReadingBar {
    fn show(&mut self, read: BytesRead) {
        let line = self.0.get_or_insert_with(|| {
            let template = match read.total {
                0 => "trace      {spinner} {bytes}  {elapsed}  reading",
                _ => "trace      {bar:40} {percent:>3} %  {elapsed}  reading",
            };
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            ProgressBar::with_draw_target(Some(read.total), ProgressDrawTarget::stderr())
                .with_style(style)
        });
        line.set_position(read.done);
    }
}

impl Drop for ReadingBar {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            line.finish_and_clear();
        }
    }
}
