//! Requests before the measurement, until the firmware is in the steady state of this load.
//!
//! Rounds of equal length are compared by write amplification (`steady`). In a closed loop the firmware does not depend on times, so none are
//! computed ([`warm_up`]). Where requests have arrival times, pauses are part of the load: the device works in them. There the warm-up is a run whose
//! figures are discarded (`RunOptions::warm_up_round`). Where they arrive in bursts, a round consists of whole bursts: in a pause
//! the device programs pages that the burst before it has written.
//!
//! Invariants: whole requests, as the run gets them; the run goes on where the source stands. Absent:
//! whether the measured part was steady, which the run itself finds out.

use super::error::RunError;
use super::feed::command;
use super::front::{Front, Sink};
use super::options::{Progress, RunOptions};
use crate::metrics::PageOps;
use crate::source::{HostPage, Source};
use crate::steady;
use crate::times::PageOutcome;
use remap_ssd_device::{Device, HostLpn};
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
    let mut rounds = Rounds::new(device, round);
    let mut front = Front::new(Untimed(device), &RunOptions::default());
    let mut pages = Vec::new();

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

        if rounds.are_steady(front.sink.0, done) {
            break;
        }
    }
    Ok(front.tally.page_ops.operations)
}

/// Write amplification in rounds of equal length.
pub(super) struct Rounds {
    /// Minimum pages of a round.
    pages: u64,
    /// Pages executed, programmed and written by the host until the last round ended.
    ended: u64,
    programs: u64,
    writes: u64,
    amplification: Vec<f64>,
}

impl Rounds {
    /// Rounds of at least `pages` from now on.
    pub(super) fn new(device: &Device, pages: u64) -> Self {
        let glimpse = device.glimpse();
        Self {
            pages,
            ended: 0,
            programs: glimpse.programs,
            writes: glimpse.host_writes,
            amplification: Vec::new(),
        }
    }

    /// Returns true if a round is long enough, after `done` pages in all.
    pub(super) fn is_over(&self, done: u64) -> bool {
        done - self.ended >= self.pages
    }

    /// Returns true if a round has ended, after `done` pages in all, and further ones would change nothing: the last rounds
    /// were alike, or the host wrote nothing.
    pub(super) fn are_steady(&mut self, device: &Device, done: u64) -> bool {
        if !self.is_over(done) {
            return false;
        }
        let glimpse = device.glimpse();
        let programs = glimpse.programs - self.programs;
        let writes = glimpse.host_writes - self.writes;
        (self.ended, self.programs, self.writes) = (done, glimpse.programs, glimpse.host_writes);

        // Reads change nothing.
        if writes == 0 {
            return true;
        }
        self.amplification.push(programs as f64 / writes as f64);
        steady::is_steady(&self.amplification)
    }
}

/// Executes each page at once, in no time.
struct Untimed<'a>(&'a mut Device);

impl Sink for Untimed<'_> {
    #[inline(always)]
    fn enter(&mut self, _page: &HostPage, _page_ops: PageOps) {}

    #[inline(always)]
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal> {
        self.0.execute(&command(page), !page.last)
    }

    fn deallocate(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
        self.0.execute_deallocation(lpn, len)
    }

    #[inline(always)]
    fn leave(&mut self, _outcome: PageOutcome) {}
}
