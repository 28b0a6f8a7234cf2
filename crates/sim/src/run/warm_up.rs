//! Requests before the measurement, until the firmware is in the steady state of this load.
//!
//! The firmware does not know time, so none is computed here. Rounds of equal length are compared by write amplification (`steady`).
//!
//! Invariants: whole requests, as the run gets them; the run goes on where the source stands. Absent:
//! work in idle time, which a run with arrival times has and this has not; whether the measured part
//! was steady, which the run itself finds out.

use super::error::RunError;
use super::feed::command;
use super::front::{Front, Sink};
use super::options::{Progress, RunOptions};
use crate::metrics::PageOps;
use crate::source::{HostPage, Source};
use crate::steady;
use crate::times::PageOutcome;
use remap_ssd_device::{Device, Lpn};
use remap_ssd_ftl::Refusal;
use std::ops::ControlFlow;

/// Pages taken from the source at a time.
const BATCH_PAGES: usize = 4096;

/// Executes requests in rounds of at least `round` pages, until write amplification is steady or `max`
/// pages have been executed. Returns their number.
///
/// # Errors
/// The source fails, or `progress` breaks.
pub fn warm_up(
    device: &mut Device,
    source: &mut dyn Source,
    round: u64,
    max: u64,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<u64, RunError> {
    let mut front = Front::new(Untimed(device), &RunOptions::default());
    let mut counted = front.sink.counters();
    let (mut rounds, mut pages, mut ended) = (Vec::new(), Vec::new(), 0);

    while front.tally.page_ops.operations < max {
        pages.clear();
        // A batch ends with a whole request.
        while pages.last().is_none_or(|page: &HostPage| !page.last) {
            if !source.fill(&mut pages, BATCH_PAGES)? {
                break;
            }
        }
        if pages.is_empty() {
            break;
        }
        for (index, page) in pages.iter().enumerate() {
            front.sink.0.look_ahead(&pages, index, command);
            front.page(page);
        }

        let done = front.tally.page_ops.operations;
        let so_far = Progress {
            pages: done,
            pages_total: None,
            seconds_simulated: 0.0,
        };
        if progress(&so_far).is_break() {
            return Err(RunError::Stopped);
        }

        if done - ended < round {
            continue;
        }
        ended = done;
        let now = front.sink.counters();
        let (programs, writes) = (now.0 - counted.0, now.1 - counted.1);
        // Reads change nothing.
        if writes == 0 {
            break;
        }
        rounds.push(programs as f64 / writes as f64);
        if steady::is_steady(&rounds) {
            break;
        }
        counted = now;
    }
    Ok(front.tally.page_ops.operations)
}

/// Executes each page at once, in no time.
struct Untimed<'a>(&'a mut Device);

impl Untimed<'_> {
    /// Pages programmed, and pages written by the host.
    fn counters(&self) -> (u64, u64) {
        let glimpse = self.0.glimpse();
        (glimpse.programs, glimpse.host_writes)
    }
}

impl Sink for Untimed<'_> {
    #[inline(always)]
    fn enter(&mut self, _page: &HostPage, _page_ops: PageOps) {}

    #[inline(always)]
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal> {
        self.0.execute(&command(page), !page.last)
    }

    fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.0.execute_deallocation(lpn, len)
    }

    #[inline(always)]
    fn leave(&mut self, _outcome: PageOutcome) {}
}
