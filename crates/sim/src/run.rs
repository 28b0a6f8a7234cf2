//! One run: a source's requests through a device, in virtual time.
//!
//! Closed loop: a request enters when the earliest outstanding one completes, with `queue_depth` of
//! them outstanding. Open loop: a request enters at its own time, however many are outstanding, or
//! waits for one of a bounded number of places; between requests the device may do background work.
//! A flush enters when all requests before it have completed, and requests after it enter when it
//! has. In a closed loop the host takes its time (`host_ns`) before each of these entries. All pages of a
//! request enter together; its latency is that of its last page, without the host's time.
//!
//! Invariants: every request that the source yields is completed or refused, or the run is an
//! error; submission times never decrease. Absent: the semantics of a request (the device's) and
//! aging.

mod error;
mod feed;
mod front;
mod options;
mod pipeline;
mod queued;
mod tally;
mod warm_up;

pub use error::RunError;
pub(crate) use feed::Feed;
pub use options::{Progress, RunOptions};
pub use warm_up::warm_up;

use crate::flash_time::FlashTimes;
use crate::inflight::InFlight;
use crate::metrics::{Meters, PageOps};
use crate::open::OpenLoop;
use crate::source::{HostPage, PageKind, Source};
use crate::summary::RunSummary;
use crate::times::{PageOutcome, RequestTimes, RunClock};
use feed::command;
use front::{Front, Sink};
use queued::{Queue, Queued, engine};
use remap_ssd_device::{Device, HostLpn};
use remap_ssd_ftl::Refusal;
use std::ops::ControlFlow;
use std::time::Instant;
use tally::Tally;
use warm_up::Rounds;

/// The accounting of a run, and true if the source ended inside a request.
type Accounts = (Tally, bool);

/// Runs `source` on `device` and returns the measurements. `progress` is called now and then and
/// may stop the run.
///
/// # Errors
/// The source fails or is empty, requests are unaccounted for, or `progress` breaks.
pub fn run(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<RunSummary, RunError> {
    let began = Instant::now();
    // A run that was stopped may have left requests.
    let flash = FlashTimes::begin(device.nand().map(|nand| {
        nand.settle();
        &*nand
    }));
    if options.warm_up_round.is_none() {
        device.begin_bit_errors();
    }

    // The device may have a past (aging, an earlier run); only this run's share is measured.
    let start = device.busy_until();
    let stats = device.stats();

    let pages_total = options.pages.or(source.len_hint());
    let mut meters = Meters::start(device, start, options.sample_interval_ns, options.samples);
    meters.is_open = options.open_loop;
    if let Some(bursts) = options.bursts {
        meters.compare_bursts(bursts.every_ns);
    }
    meters.flash = flash;

    let times = RequestTimes::new(clock_of(options, start), options.host_ns, meters, start);
    let mut report = |so_far: Progress| {
        progress(&Progress {
            pages_total,
            ..so_far
        })
    };

    let ((tally, is_inside), times) = execute(device, source, options, times, &mut report)?;
    // A partial request was never completed.
    if is_inside {
        return Err(RunError::Unfinished);
    }

    // Counted both here and in the firmware: a request lost in the queue would otherwise only make
    // the run look faster.
    tally.check(&(device.stats() - stats))?;

    let RequestTimes {
        clock,
        meters,
        ended,
        ..
    } = times;
    let mut summary = meters.finish(device, ended, tally.page_ops);
    if let RunClock::Open(open) = &clock {
        summary.arrivals = Some(open.finish(ended));
    }
    summary.requests = tally.requests;
    summary.requests.skipped = source.skipped();

    // A refusal takes next to no time. Counted as served, it would make a full device the fastest.
    let refused: u64 = summary.requests.refused.values().sum();
    summary.requests_per_s =
        (summary.requests.submitted - refused) as f64 / summary.seconds_simulated;
    summary.wall_s = began.elapsed().as_secs_f64();
    Ok(summary)
}

/// Executes the requests, on two threads if possible.
fn execute(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    mut times: RequestTimes,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Accounts, RequestTimes), RunError> {
    // Only where time does not affect the firmware's decisions: see `pipeline`.
    // A wanted precision is looked at during the run, and takes the times so far.
    let divides = options.threads > 1
        && !options.open_loop
        && !options.until_worn_out
        && options.precision.is_none();

    if divides && let Some(done) = pipeline::run(device, source, options, &mut times, report) {
        return Ok((done?, times));
    }

    if device.nand().is_some() {
        run_queued(device, source, options, times, report)
    } else {
        run_directly(device, source, options, times, report)
    }
}

/// An open loop has no queue depth: requests enter when they arrive.
fn clock_of(options: &RunOptions, start: u64) -> RunClock {
    if options.open_loop {
        RunClock::Open(Box::new(OpenLoop::new(start, options.bound)))
    } else {
        RunClock::Closed(InFlight::new(options.queue_depth, start + options.host_ns))
    }
}

/// Executes each command after the previous one has its times. The flag is true if the source ended
/// inside a request.
fn run_directly(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    times: RequestTimes,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Accounts, RequestTimes), RunError> {
    let mut front = Front::new(Direct { device, times }, options);
    drain_all(&mut front, source, options, report)?;
    let is_inside = front.is_inside_request();
    Ok(((front.tally, is_inside), front.sink.times))
}

/// The same on a device whose requests end when their time has come.
fn run_queued(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    times: RequestTimes,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Accounts, RequestTimes), RunError> {
    let queue = queue(options, &times);
    let sink = Queued {
        device,
        times,
        queue,
    };
    let mut front = Front::new(sink, options);
    drain_all(&mut front, source, options, report)?;
    let is_inside = front.is_inside_request();

    let Queued {
        device,
        mut times,
        mut queue,
    } = front.sink;
    engine(device).end_timeline();
    // A request whose end is missing never ends.
    while !is_inside && queue.next_end(&mut times, engine(device)) {}
    let nand = engine(device);
    times.meters.flash.end(nand);
    nand.settle();
    Ok(((front.tally, is_inside), times))
}

/// The host's queue of a run.
fn queue(options: &RunOptions, times: &RequestTimes) -> Queue {
    let places = if options.open_loop {
        options.bound
    } else {
        Some(options.queue_depth)
    };
    let host_ns = if options.open_loop {
        0
    } else {
        options.host_ns
    };
    Queue::new(places, host_ns, times.entered)
}

/// Takes pages from the source until it or the run ends.
fn drain_all<S: Timed>(
    front: &mut Front<S>,
    source: &mut dyn Source,
    options: &RunOptions,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let start = front.sink.parts().0.entered;
    let mut feed = Feed::default();

    let device = front.sink.parts().1;
    let mut rounds = options
        .warm_up_round
        .map(|pages| Rounds::new(device, pages));
    let mut precision = options.precision;
    // Nothing is wanted but the rest of the request or burst that has begun.
    let (mut is_enough, mut is_round_over) = (false, false);

    while front.goes_on() && feed.refill(source)? {
        drain(&mut feed, front, is_enough || is_round_over);

        let so_far = Progress {
            pages: front.tally.page_ops.operations,
            pages_total: None,
            seconds_simulated: (front.sink.parts().0.entered - start) as f64 / 1e9,
        };

        if report(so_far).is_break() {
            return Err(RunError::Stopped);
        }

        // Rarely: the more often one looks, the more often an interval is narrow by chance.
        if let Some((wanted, next_look)) = &mut precision
            && so_far.pages >= *next_look
        {
            let page_ops = front.tally.page_ops;
            let (times, device) = front.sink.parts();
            is_enough |= times
                .meters
                .is_precise(wanted, device, times.ended, page_ops);
            *next_look = so_far.pages + so_far.pages / 4;
        }
        if let Some(rounds) = &mut rounds {
            is_round_over = options.bursts.is_some() && rounds.is_over(so_far.pages);
            if !is_round_over || !front.is_inside_burst() {
                is_enough |= rounds.are_steady(front.sink.parts().1, so_far.pages);
                is_round_over = false;
            }
        }
        if is_enough && !front.is_inside_burst() {
            break;
        }
    }
    Ok(())
}

/// Takes the pages of the window that look-ahead permits, as far as they are wanted. `ends`: only those
/// of the request or burst that has begun.
fn drain<S: Timed>(feed: &mut Feed, front: &mut Front<S>, ends: bool) {
    while front.goes_on() && (front.is_inside_burst() || !ends) {
        let Some(page) = feed.next(front.sink.parts().1) else {
            return;
        };
        front.page(&page);
    }
}

/// A sink that executes on a device, and has the times.
trait Timed: Sink {
    fn parts(&mut self) -> (&mut RequestTimes, &Device);
}

impl Timed for Direct<'_> {
    fn parts(&mut self) -> (&mut RequestTimes, &Device) {
        (&mut self.times, self.device)
    }
}

impl Timed for Queued<'_> {
    fn parts(&mut self) -> (&mut RequestTimes, &Device) {
        (&mut self.times, self.device)
    }
}

/// Submits each page to the device, which returns its completion time at once.
struct Direct<'a> {
    device: &'a mut Device,
    times: RequestTimes,
}

impl Sink for Direct<'_> {
    #[inline(always)]
    fn enter(&mut self, page: &HostPage, page_ops: PageOps) {
        let before = self.times.entered;
        let backlog = self.times.enter(page.at_ns, page.kind == PageKind::Flush);

        if self.times.is_burst_over(page.at_ns) {
            let glimpse = self.device.glimpse();
            self.times.read_burst(glimpse, page_ops, page.at_ns);
        }
        // Only an open loop has time without submissions.
        if backlog.is_some() {
            self.device.idle(before, self.times.entered);
        }
        if self.times.is_due() {
            // Recounted: here a reading is rare, whereas a pipeline takes a glimpse for each
            // request.
            let glimpse = self.device.glimpse();
            self.times.read(glimpse, page_ops, backlog);
        }
    }

    #[inline(always)]
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal> {
        let completion = if page.last {
            self.device.submit(self.times.entered, &command(page))
        } else {
            // No part of a request is acknowledged before all of it is.
            self.device.submit_more(self.times.entered, &command(page))
        };
        self.times.done(completion.done_at);
        completion.result
    }

    fn deallocate(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
        let completion = self
            .device
            .submit_deallocation(self.times.entered, lpn, len);
        self.times.done(completion.done_at);
        completion.result
    }

    #[inline(always)]
    fn leave(&mut self, outcome: PageOutcome) {
        self.times.leave(outcome);
    }
}
