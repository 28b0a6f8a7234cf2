//! One run: a source's requests through a device, in virtual time.
//!
//! Closed loop: a request enters when the earliest outstanding one completes, with `queue_depth` of
//! them outstanding. Open loop: a request enters at its own time, however many are outstanding, or
//! waits for one of a bounded number of places; between requests the device may do background work.
//! A flush enters when all requests before it have completed, and requests after it enter when it
//! has. All pages of a request enter together; its latency is that of its last page.
//!
//! Invariants: every request that the source yields is completed or refused, or the run is an
//! error; submission times never decrease. Absent: the semantics of a request (the device's) and
//! aging.

use crate::inflight::InFlight;
use crate::metrics::{Meters, PageOps};
use crate::open::OpenLoop;
use crate::pipeline;
use crate::source::{HostPage, PageKind, Source, SourceError};
use crate::summary::{Accounting, RunSummary};
use crate::times::{PageOutcome, RequestTimes, RunClock};
use remap_ssd_device::{Device, LOOK_AHEAD_FAR, Lpn, PageCommand};
use remap_ssd_ftl::{Refusal, UsablePages};
use std::ops::ControlFlow;
use std::time::Instant;

/// Options of a run, for any source.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stop after the request that reaches this many pages; `None`: when the source is exhausted.
    pub pages: Option<u64>,
    /// Stop when the device is worn out and refuses a write.
    pub until_worn_out: bool,
    /// Requests in flight, in a closed loop.
    pub queue_depth: u32,
    /// Requests enter at their own time instead.
    pub open_loop: bool,
    /// Maximum requests outstanding in an open loop; later arrivals wait.
    pub bound: Option<u32>,
    /// Initial virtual time between points of the series.
    pub sample_interval_ns: u64,
    /// Approximate number of points of the series.
    pub samples: usize,
    /// Threads that the run may use. With two or more the firmware gets its own, where that changes
    /// no result. The choice never shows in the results.
    pub threads: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            pages: None,
            until_worn_out: false,
            queue_depth: 32,
            open_loop: false,
            bound: None,
            sample_interval_ns: 10_000_000,
            samples: 200,
            threads: 1,
        }
    }
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Page operations submitted so far.
    pub pages: u64,
    /// Total number of pages, if known.
    pub pages_total: Option<u64>,
    /// Virtual seconds since the start.
    pub seconds_simulated: f64,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source had no request at all.
    #[error("the workload has no requests: nothing was measured")]
    Nothing,
    /// The source ended inside a request.
    #[error("the workload ends inside a request")]
    Unfinished,
    /// Requests were lost or counted twice: a bug.
    #[error("{what}: {submitted} submitted and {ended} ended")]
    Unaccounted {
        /// Kind of count: requests, pages read or pages written.
        what: &'static str,
        /// Number handed to the device.
        submitted: u64,
        /// Number completed or refused.
        ended: u64,
    },
    /// The caller stopped the run.
    #[error("stopped")]
    Stopped,
}

/// Pages taken from the source at a time.
const BATCH_PAGES: usize = 1024;

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
    // The device may have a past (aging, an earlier run); only this run's share is measured.
    let start = device.timing().busy_until();
    let stats = device.ftl().stats();
    let pages_total = options.pages.or(source.len_hint());
    // An open loop has no queue depth: requests enter when they arrive.
    let clock = if options.open_loop {
        RunClock::Open(Box::new(OpenLoop::new(start, options.bound)))
    } else {
        RunClock::Closed(InFlight::new(options.queue_depth, start))
    };
    let meters = Meters::start(device, start, options.sample_interval_ns, options.samples);
    let mut times = RequestTimes::new(clock, meters, start);
    let mut tell = |told: Progress| {
        progress(&Progress {
            pages_total,
            ..told
        })
    };

    // Only where time does not affect the firmware's decisions: see `pipeline`.
    let divides = options.threads > 1 && !options.open_loop && !options.until_worn_out;
    let divided = if divides {
        pipeline::run(device, source, options, &mut times, &mut tell).transpose()?
    } else {
        None
    };
    let (tally, is_inside) = match divided {
        Some(accounts) => accounts,
        None => {
            let accounts;
            (accounts, times) = run_directly(device, source, options, times, &mut tell)?;
            accounts
        }
    };
    // A partial request was never completed.
    if is_inside {
        return Err(RunError::Unfinished);
    }

    // Counted both here and in the firmware: a request lost in the queue would otherwise only make
    // the run look faster.
    tally.check(&(device.ftl().stats() - stats))?;

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

/// Executes each command after the previous one has its times. The flag is true if the source ended
/// inside a request.
fn run_directly(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    times: RequestTimes,
    tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<((Tally, bool), RequestTimes), RunError> {
    let start = times.entered;
    let mut front = Front::new(Direct { device, times }, options);
    let mut feed = Feed::default();

    while front.goes_on() && feed.refill(source)? {
        feed.drain(&mut front);

        let told = Progress {
            pages: front.tally.page_ops.operations,
            pages_total: None,
            seconds_simulated: (front.sink.times.entered - start) as f64 / 1e9,
        };

        if tell(told).is_break() {
            return Err(RunError::Stopped);
        }
    }

    let is_inside = front.is_inside_request();
    Ok(((front.tally, is_inside), front.sink.times))
}

/// A look-ahead window on the source.
#[derive(Default)]
pub(crate) struct Feed {
    pages: Vec<HostPage>,
    next: usize,
    exhausted: bool,
}

impl Feed {
    /// Moves the rest to the front and refills; `false` if nothing is left.
    pub(crate) fn refill(&mut self, source: &mut dyn Source) -> Result<bool, SourceError> {
        // The rest stays before the next batch: look-ahead does not end at a batch boundary.
        self.pages.drain(..self.next);
        self.next = 0;
        // As many as look-ahead needs, and at most a batch more.
        while !self.exhausted && self.pages.len() < BATCH_PAGES {
            let before = self.pages.len();
            self.exhausted = !source.fill(&mut self.pages, BATCH_PAGES)?;
            assert!(
                self.exhausted || self.pages.len() > before,
                "a source that goes on yields pages"
            );
        }
        Ok(!self.pages.is_empty())
    }

    /// Takes the next page if the window after it is long enough for look-ahead, and prefetches the
    /// tables of the pages that follow.
    #[inline(always)]
    pub(crate) fn next(&mut self, device: &Device) -> Option<HostPage> {
        // Short for the common case: this runs once per page, millions of times in a run.
        if self.next + LOOK_AHEAD_FAR >= self.pages.len() {
            return self.next_without_window(device);
        }
        device.look_ahead(&self.pages, self.next, command);
        let page = self.pages[self.next];
        self.next += 1;
        Some(page)
    }

    #[cold]
    fn next_without_window(&mut self, device: &Device) -> Option<HostPage> {
        if !self.exhausted {
            return None;
        }
        device.look_ahead(&self.pages, self.next, command);
        let page = self.pages.get(self.next).copied();
        self.next += usize::from(page.is_some());
        page
    }

    /// Pages read from the source and not taken.
    pub(crate) fn window(&self) -> &[HostPage] {
        &self.pages[self.next..]
    }

    /// Returns true if the source has ended.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Takes the first `len` pages of the window.
    pub(crate) fn take(&mut self, len: usize) {
        self.next += len;
    }

    fn drain(&mut self, front: &mut Front<Direct<'_>>) {
        while front.goes_on() {
            let Some(page) = self.next(front.sink.device) else {
                return;
            };
            front.page(&page);
        }
    }
}

/// Converts a page to the device's form.
#[inline(always)]
pub(crate) fn command(page: &HostPage) -> PageCommand {
    PageCommand {
        content: page.content,
        lpn: page.lpn,
        kind: page.kind,
    }
}

/// Executes requests: immediately (`Direct`), or recorded for the timing thread (`pipeline`).
pub(crate) trait Sink {
    /// A request enters, before its first page; `page_ops` counts the operations before it.
    fn enter(&mut self, page: &HostPage, page_ops: PageOps);
    /// Submits a page of the request.
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal>;
    /// Deallocates a range of the request.
    fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal>;
    /// The request ends after its last page.
    fn leave(&mut self, outcome: PageOutcome);
}

/// A request with some of its pages submitted.
#[derive(Clone, Copy)]
struct OpenRequest {
    kind: PageKind,
    result: Result<(), Refusal>,
}

/// Assembles requests from pages, and accounts for them.
pub(crate) struct Front<S> {
    pub sink: S,
    pub tally: Tally,
    request: Option<OpenRequest>,
    /// Pages to deallocate of the current request: the first one, and the count.
    trim: Option<(Lpn, u32)>,
    limit: u64,
    until_worn_out: bool,
}

impl<S: Sink> Front<S> {
    pub(crate) fn new(sink: S, options: &RunOptions) -> Self {
        Self {
            sink,
            tally: Tally::default(),
            request: None,
            trim: None,
            limit: options.pages.unwrap_or(u64::MAX),
            until_worn_out: options.until_worn_out,
        }
    }

    /// Returns true if a request has begun and not ended.
    pub(crate) fn is_inside_request(&self) -> bool {
        self.request.is_some()
    }

    /// Returns true if another page is wanted. A request that has begun is completed.
    #[inline(always)]
    pub(crate) fn goes_on(&self) -> bool {
        self.request.is_some() || self.tally.page_ops.operations < self.limit
    }

    #[inline(always)]
    pub(crate) fn page(&mut self, page: &HostPage) {
        let mut request = match self.request.take() {
            Some(request) => request,
            None => {
                // The request enters with its first page.
                self.sink.enter(page, self.tally.page_ops);
                self.tally.requests.submitted += 1;
                OpenRequest {
                    kind: page.kind,
                    result: Ok(()),
                }
            }
        };

        let result = match page.kind {
            PageKind::Trim => self.trim(page),
            _ => self.sink.submit(page),
        };
        self.tally.page(page.kind);
        request.result = request.result.and(result);

        // A request with a partial page is a read-modify-write.
        if page.kind == PageKind::ReadModifyWrite {
            request.kind = page.kind;
        }

        if page.last {
            self.leave(&request);
        } else {
            self.request = Some(request);
        }
    }

    /// Merges adjacent pages deallocated by one request into one command, as hosts send it.
    fn trim(&mut self, page: &HostPage) -> Result<(), Refusal> {
        let mut whole = Ok(());
        let extent = match self.trim.take() {
            // Continues the last range: one record in the firmware.
            Some((lpn, len)) if lpn.offset(len) == page.lpn => (lpn, len + 1),
            Some((lpn, len)) => {
                whole = self.sink.deallocate(lpn, len);
                (page.lpn, 1)
            }
            None => (page.lpn, 1),
        };
        // The end of the request ends the command.
        if page.last {
            whole.and(self.sink.deallocate(extent.0, extent.1))
        } else {
            self.trim = Some(extent);
            whole
        }
    }

    #[inline(always)]
    fn leave(&mut self, request: &OpenRequest) {
        let outcome = PageOutcome {
            kind: request.kind,
            served: request.result.is_ok(),
        };
        self.sink.leave(outcome);
        match request.result {
            Ok(()) => self.tally.serve(request.kind),
            Err(refusal) => {
                // The awaited wear-out ends the run normally.
                if refusal == Refusal::ReadOnly && self.until_worn_out {
                    self.limit = 0;
                }
                self.tally.refuse(refusal);
            }
        }
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

        // Only an open loop has time without submissions.
        if backlog.is_some() {
            self.device.idle(before, self.times.entered);
        }
        if self.times.is_due() {
            // Recounted: here a reading is rare, whereas a pipeline takes a glimpse for each
            // request.
            let glimpse = self.device.ftl().glimpse(&mut UsablePages::default());
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

    fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        let completion = self.device.deallocate(self.times.entered, lpn, len);
        self.times.done(completion.done_at);
        completion.result
    }

    #[inline(always)]
    fn leave(&mut self, outcome: PageOutcome) {
        self.times.leave(outcome);
    }
}

/// Counts of requests by outcome, and of pages submitted.
#[derive(Default)]
pub(crate) struct Tally {
    requests: Accounting,
    pub page_ops: PageOps,
    page_reads: u64,
    page_writes: u64,
}

impl Tally {
    #[inline(always)]
    fn page(&mut self, kind: PageKind) {
        match kind {
            PageKind::Remap { .. } => return self.remapped(kind.pages()),
            PageKind::Flush => return,
            _ => {}
        }
        self.page_ops.operations += 1;
        self.page_ops.transfers += u64::from(kind != PageKind::Trim);
        self.page_reads += u64::from(matches!(kind, PageKind::Read | PageKind::ReadModifyWrite));
        self.page_writes += u64::from(kind.writes());
    }

    /// Remapped pages count as served and written, although nothing is transferred.
    fn remapped(&mut self, pages: u64) {
        self.page_ops.operations += pages;
        self.page_ops.transfers += pages;
        self.page_writes += pages;
    }

    #[inline(always)]
    fn serve(&mut self, kind: PageKind) {
        let requests = &mut self.requests;
        match kind {
            PageKind::Read => requests.reads += 1,
            PageKind::Write | PageKind::WriteFor { .. } => requests.writes += 1,
            PageKind::ReadModifyWrite => requests.read_modify_writes += 1,
            PageKind::Trim => requests.trims += 1,
            PageKind::Flush => requests.flushes += 1,
            PageKind::Remap { .. } => requests.remaps += 1,
        }
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) {
        *self
            .requests
            .refused
            .entry(refusal.to_string())
            .or_default() += 1;
    }

    /// Checks that every submitted request ended, and that the firmware saw the same pages.
    fn check(&self, stats: &remap_ssd_ftl::Stats) -> Result<(), RunError> {
        let all = &self.requests;
        // An empty run proves nothing.
        if all.submitted == 0 {
            return Err(RunError::Nothing);
        }

        let completed =
            all.reads + all.writes + all.read_modify_writes + all.trims + all.remaps + all.flushes;
        let refused = all.refused.values().sum::<u64>();

        let agree = |what, submitted, ended| {
            if submitted == ended {
                Ok(())
            } else {
                Err(RunError::Unaccounted {
                    what,
                    submitted,
                    ended,
                })
            }
        };

        agree("requests", all.submitted, completed + refused)?;
        // The firmware's counts of a refused page are not specified.
        if refused == 0 {
            agree("pages read", self.page_reads, stats.host_reads)?;
            agree("pages written", self.page_writes, stats.host_writes)?;
        }

        Ok(())
    }
}
