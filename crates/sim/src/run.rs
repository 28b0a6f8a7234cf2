//! One run: a source's requests through a device, in virtual time.
//!
//! Closed loop: a request enters when the earliest of the outstanding ones ends, `queue_depth` of them at a time.
//! Open loop: it enters at its own time, however many are outstanding or as soon as a bounded number of places has one
//! free, and between requests the device may work for itself. A flush enters when all requests before it have ended, and
//! requests after it when it has. All pages of a request enter together, and its latency is that of the last to be done.
//!
//! Invariants: every request that the source yields ends up completed or refused, or the run is an error;
//! submission times never decrease. Absent: what a request means (the device's) and aging.

use crate::inflight::InFlight;
use crate::metrics::{Meters, Passed};
use crate::open::OpenLoop;
use crate::source::{HostPage, PageKind, Source, SourceError};
use crate::summary::{Accounting, RunSummary};
use remap_ssd_device::{Completion, Device, LOOK_AHEAD_FAR, PageCommand};
use remap_ssd_ftl::Refusal;
use std::ops::ControlFlow;
use std::time::Instant;

/// How to run.
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
    /// In an open loop, at most so many at a time; what arrives meanwhile waits.
    pub bound: Option<u32>,
    /// Virtual time between points of the series, to begin with.
    pub sample_interval_ns: u64,
    /// About how many points the series shall have.
    pub samples: usize,
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
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pages submitted.
    pub pages: u64,
    /// Pages in all, if known.
    pub pages_total: Option<u64>,
    /// Virtual seconds since the start.
    pub seconds_simulated: f64,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source cannot go on.
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
        /// What was counted.
        what: &'static str,
        /// Handed to the device.
        submitted: u64,
        /// Completed or refused.
        ended: u64,
    },
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
}

/// Pages taken from the source at a time.
const BATCH_PAGES: usize = 4096;

/// Runs `source` on `device` and says what was measured. `progress` is told now and then and may stop the run.
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
    let start = device.timing().busy_until();
    let stats = device.ftl().stats();
    let pages_total = options.pages.or(source.len_hint());
    let mut run = Run {
        clock: match options.open_loop {
            true => Clock::Open(Box::new(OpenLoop::new(start, options.bound))),
            false => Clock::Closed(InFlight::new(options.queue_depth, start)),
        },
        meters: Meters::start(device, start, options.sample_interval_ns, options.samples),
        device,
        tally: Tally::default(),
        request: None,
        entered: start,
        ended: start,
        flushed: start,
        trim: None,
        limit: options.pages.unwrap_or(u64::MAX),
        until_worn_out: options.until_worn_out,
    };
    let mut feed = Feed::default();
    // A request that has begun is brought to its end.
    while (run.request.is_some() || run.tally.passed.operations < run.limit)
        && feed.refill(source)?
    {
        feed.drain(&mut run);
        let told = Progress {
            pages: run.tally.passed.operations,
            pages_total,
            seconds_simulated: (run.entered - start) as f64 / 1e9,
        };
        if progress(&told).is_break() {
            return Err(RunError::Stopped);
        }
    }
    let Run {
        device,
        meters,
        tally,
        request,
        ended,
        clock,
        ..
    } = run;
    if request.is_some() {
        return Err(RunError::Unfinished);
    }
    tally.check(&(device.ftl().stats() - stats))?;
    let mut summary = meters.finish(device, ended, tally.passed);
    if let Clock::Open(open) = &clock {
        summary.arrivals = Some(open.finish(ended));
    }
    summary.requests = tally.requests;
    summary.requests.skipped = source.skipped();
    summary.wall_s = began.elapsed().as_secs_f64();
    Ok(summary)
}

/// A window on the source that looks ahead.
#[derive(Default)]
pub(crate) struct Feed {
    pages: Vec<HostPage>,
    next: usize,
    exhausted: bool,
}

impl Feed {
    /// Moves the rest to the front and fills up; `false` if nothing is left.
    pub(crate) fn refill(&mut self, source: &mut dyn Source) -> Result<bool, SourceError> {
        self.pages.drain(..self.next);
        self.next = 0;
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

    /// Takes the next page, while the window behind it is long enough to look ahead, and asks for the tables of
    /// the pages that follow.
    #[inline(always)]
    pub(crate) fn next(&mut self, device: &Device) -> Option<HostPage> {
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

    fn drain(&mut self, run: &mut Run<'_>) {
        while run.request.is_some() || run.tally.passed.operations < run.limit {
            let Some(page) = self.next(run.device) else {
                return;
            };
            run.page(&page);
        }
    }
}

/// The device's form of a page.
#[inline(always)]
pub(crate) fn command(page: &HostPage) -> PageCommand {
    PageCommand {
        content: page.content,
        lpn: page.lpn,
        kind: page.kind,
    }
}

/// When requests enter.
enum Clock {
    Closed(InFlight),
    Open(Box<OpenLoop>),
}

/// A request some of whose pages have been submitted.
#[derive(Clone, Copy)]
struct Request {
    kind: PageKind,
    done_at: u64,
    result: Result<(), Refusal>,
}

struct Run<'a> {
    device: &'a mut Device,
    clock: Clock,
    meters: Meters,
    tally: Tally,
    request: Option<Request>,
    /// Pages of the request under way that are to be deallocated: the first one, and how many.
    trim: Option<(u32, u32)>,
    /// When the latest request entered, and the latest end of any.
    entered: u64,
    ended: u64,
    /// When the latest flush ended: what comes after it enters no earlier.
    flushed: u64,
    /// Pages to submit.
    limit: u64,
    until_worn_out: bool,
}

impl Run<'_> {
    #[inline(always)]
    fn page(&mut self, page: &HostPage) {
        let mut request = match self.request.take() {
            Some(request) => request,
            None => {
                let after = if page.kind == PageKind::Flush {
                    self.ended
                } else {
                    self.flushed
                };
                self.enter(page.at_ns, after);
                Request {
                    kind: page.kind,
                    done_at: self.entered,
                    result: Ok(()),
                }
            }
        };
        let completion = match page.kind {
            PageKind::Trim => self.trim(page),
            _ if page.last => self.device.submit(self.entered, &command(page)),
            // Nothing of a request is acknowledged before all of it.
            _ => self.device.submit_more(self.entered, &command(page)),
        };
        self.tally.page(page.kind);
        request.done_at = request.done_at.max(completion.done_at);
        request.result = request.result.and(completion.result);
        if page.kind == PageKind::ReadModifyWrite {
            request.kind = page.kind;
        }
        if page.last {
            self.leave(&request);
        } else {
            self.request = Some(request);
        }
    }

    /// Adjacent pages that one request deallocates are one command, as hosts send it.
    fn trim(&mut self, page: &HostPage) -> Completion {
        let mut whole = Completion {
            done_at: self.entered,
            result: Ok(()),
        };
        let mut submit = |device: &mut Device, (lpn, len): (u32, u32)| {
            let part = device.deallocate(self.entered, lpn, len);
            whole = Completion {
                done_at: whole.done_at.max(part.done_at),
                result: whole.result.and(part.result),
            };
        };
        let extent = match self.trim.take() {
            Some((lpn, len)) if lpn + len == page.lpn => (lpn, len + 1),
            before => {
                before
                    .into_iter()
                    .for_each(|extent| submit(self.device, extent));
                (page.lpn, 1)
            }
        };
        match page.last {
            true => submit(self.device, extent),
            false => self.trim = Some(extent),
        }
        whole
    }

    #[inline(always)]
    fn enter(&mut self, at_ns: u64, after: u64) {
        let mut backlog = None;
        let now = match &mut self.clock {
            Clock::Closed(queue) => queue.earliest().max(after),
            Clock::Open(open) => {
                let now = open.arrive(at_ns).max(self.entered).max(after);
                backlog = Some(open.backlog());
                self.device.idle(self.entered, now);
                now
            }
        };
        self.entered = now;
        self.tally.requests.submitted += 1;
        if now >= self.meters.due_ns {
            self.meters
                .read(self.device, now, self.tally.passed, backlog);
        }
    }

    #[inline(always)]
    fn leave(&mut self, request: &Request) {
        match &mut self.clock {
            Clock::Closed(queue) => queue.replace_earliest(request.done_at),
            Clock::Open(open) => open.end(request.done_at),
        }
        self.ended = self.ended.max(request.done_at);
        if request.kind == PageKind::Flush {
            self.flushed = request.done_at;
        }
        if let Err(refusal) = request.result {
            if refusal == Refusal::ReadOnly && self.until_worn_out {
                self.limit = 0;
            }
            return self.tally.refuse(refusal);
        }
        if let Clock::Open(open) = &mut self.clock {
            let is_read = match request.kind {
                PageKind::Read => Some(true),
                kind if kind.writes() => Some(false),
                _ => None,
            };
            open.served(request.done_at, is_read);
        }
        let latency = request.done_at - self.entered;
        let requests = &mut self.tally.requests;
        match request.kind {
            PageKind::Read => {
                requests.reads += 1;
                self.meters.reads.record(latency);
            }
            PageKind::Write | PageKind::WriteFor { .. } => {
                requests.writes += 1;
                self.meters.writes.record(latency);
            }
            PageKind::ReadModifyWrite => {
                requests.read_modify_writes += 1;
                self.meters.writes.record(latency);
            }
            PageKind::Trim => requests.trims += 1,
            PageKind::Flush => requests.flushes += 1,
            PageKind::Remap { .. } => {
                requests.remaps += 1;
                self.meters.remaps.record(latency);
            }
        }
    }
}

/// How requests ended, and which pages passed.
#[derive(Default)]
struct Tally {
    requests: Accounting,
    passed: Passed,
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
        self.passed.operations += 1;
        self.passed.transfers += u64::from(kind != PageKind::Trim);
        self.page_reads += u64::from(matches!(kind, PageKind::Read | PageKind::ReadModifyWrite));
        self.page_writes += u64::from(kind.writes());
    }

    /// Remapped pages count as served and written, although nothing was transferred.
    fn remapped(&mut self, pages: u64) {
        self.passed.operations += pages;
        self.passed.transfers += pages;
        self.page_writes += pages;
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) {
        *self
            .requests
            .refused
            .entry(refusal.to_string())
            .or_default() += 1;
    }

    /// Everything that was submitted ended, and the firmware saw the same pages.
    fn check(&self, stats: &remap_ssd_ftl::Stats) -> Result<(), RunError> {
        let all = &self.requests;
        if all.submitted == 0 {
            return Err(RunError::Nothing);
        }
        let completed =
            all.reads + all.writes + all.read_modify_writes + all.trims + all.remaps + all.flushes;
        let refused = all.refused.values().sum::<u64>();
        let agree = |what, submitted, ended| match submitted == ended {
            true => Ok(()),
            false => Err(RunError::Unaccounted {
                what,
                submitted,
                ended,
            }),
        };
        agree("requests", all.submitted, completed + refused)?;
        // What the firmware counts of a page that it refuses is its own affair.
        if refused == 0 {
            agree("pages read", self.page_reads, stats.host_reads)?;
            agree("pages written", self.page_writes, stats.host_writes)?;
        }
        Ok(())
    }
}
