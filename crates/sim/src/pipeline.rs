//! One run on two threads, with the results of one.
//!
//! The firmware knows no time. In a closed loop a request enters when an earlier one ends, but
//! which one is next does not depend on that. So a second thread has the firmware do request after
//! request, and notes what they did; this one draws what is to come, and says of what was done when
//! that was:
//!
//! ```text
//! this thread      source ──pages──►                    ──record──► timing, latencies, time series
//! the other one               firmware, accounting
//! ```
//!
//! Lots of about a thousand pages go round. Their lists are used again, so that nothing is
//! allocated once they have grown, and there are few of them, so that they stay in the caches of
//! the two cores.
//!
//! Not for runs in which time has a say in what the firmware does. In an open loop the device works
//! for itself while nothing arrives, and how much depends on when earlier requests ended. A run
//! until the device is worn out goes on one thread as well: what such a device has room for changes
//! with every page, and counting that for each request would take longer than a second thread
//! saves.
//!
//! Invariants: requests are not divided between lots; the source is read as far as on one thread; a
//! reading of the counters is that of the moment when its request entered, since each request has
//! its own glimpse of them. Absent: clocks.

use crate::metrics::PageOps;
use crate::run::{Feed, Front, Progress, RunError, RunOptions, Sink, Tally, command};
use crate::source::{HostPage, PageKind, Source, SourceError};
use crate::times::{PageOutcome, RequestTimes};
use remap_ssd_device::{CommandRecord, Device, FirmwareHalf, LOOK_AHEAD_FAR, Lpn, TimingHalf};
use remap_ssd_ftl::{Glimpse, Refusal};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Lots on their way between the two threads.
const LOTS: usize = 4;

/// A request as it was done.
#[derive(Clone, Copy)]
struct DoneRequest {
    outcome: PageOutcome,
    /// It is a flush, which waits for all that came before.
    is_flush: bool,
    steps: u32,
    /// What had passed before it.
    page_ops: PageOps,
}

/// Some requests on their way round.
#[derive(Default)]
struct Lot {
    /// Pages, and those that follow to look ahead at.
    pages: Vec<HostPage>,
    /// Of them, those to submit.
    len: usize,
    requests: Vec<DoneRequest>,
    glimpses: Vec<Glimpse>,
    record: CommandRecord,
    /// What had passed at its end.
    page_ops: PageOps,
}

/// What the firmware's thread returns: the accounting, and whether the source ended inside a
/// request.
type Accounts = (Tally, bool);

/// Runs the source on both halves of the device; `None` if it has none.
///
/// # Errors
/// As `run::run`.
pub(crate) fn run(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    times: &mut RequestTimes,
    tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Option<Result<Accounts, RunError>> {
    let (firmware, mut timing) = device.halves()?;
    let front = Front::new(RequestRecorder::new(firmware), options);

    // As many places as there are lots: neither thread ever waits for room in a channel, only for
    // work.
    let (to_firmware, ordered) = sync_channel(LOTS);
    let (done, from_firmware) = sync_channel(LOTS);

    Some(thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("firmware".into())
            .spawn_scoped(scope, move || do_lots(front, &ordered, &done))
            .expect("the system has room for another thread");
        let mut feeder = Feeder::new(options);
        let kept = keep_time(
            &mut feeder,
            source,
            &mut timing,
            times,
            to_firmware,
            &from_firmware,
            tell,
        );
        // With both ends of this thread gone the other one ends too. Its panic is ours.
        drop(from_firmware);
        let accounts = worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        kept.map(|()| accounts)
    }))
}

/// The firmware's thread: does what comes, until nothing comes any more.
fn do_lots(
    mut front: Front<RequestRecorder<'_>>,
    ordered: &Receiver<Lot>,
    done: &SyncSender<Lot>,
) -> Accounts {
    while let Ok(mut lot) = ordered.recv() {
        // Moved out and back, so that the lot's lists keep their memory.
        let pages = std::mem::take(&mut lot.pages);
        front.sink.lot = lot;

        for (index, page) in pages[..front.sink.lot.len].iter().enumerate() {
            if !front.goes_on() {
                break;
            }

            front.sink.firmware.look_ahead(&pages, index, command);
            front.page(page);
        }

        let mut lot = std::mem::take(&mut front.sink.lot);
        lot.pages = pages;
        lot.page_ops = front.tally.page_ops;

        if done.send(lot).is_err() {
            break; // The run has been given up.
        }
    }

    let is_inside = front.is_inside_request();
    (front.tally, is_inside)
}

/// This thread: keeps lots on their way, and charges those that come back.
fn keep_time(
    feeder: &mut Feeder,
    source: &mut dyn Source,
    timing: &mut TimingHalf<'_>,
    times: &mut RequestTimes,
    to_firmware: SyncSender<Lot>,
    from_firmware: &Receiver<Lot>,
    tell: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let start = times.entered;
    // As many as go round: that bounds how far one thread may be ahead.
    let mut idle: VecDeque<Lot> = (0..LOTS).map(|_| Lot::default()).collect();
    let mut to_firmware = Some(to_firmware);
    loop {
        while let (Some(sender), Some(lot)) = (&to_firmware, idle.front_mut()) {
            if !feeder.fill(lot, source)? {
                // The other thread ends with the channel, after the lots that are still in it; they
                // come back below, so none is lost.
                to_firmware = None;
                break;
            }

            let lot = idle.pop_front().expect("it was there");
            if sender.send(lot).is_err() {
                return Ok(()); // It has panicked, which `join` tells.
            }
        }

        let Ok(mut lot) = from_firmware.recv() else {
            // The other thread has ended, and `join` knows why.
            return Ok(());
        };

        charge(&mut lot, timing, times);
        let told = Progress {
            pages: lot.page_ops.operations,
            pages_total: None,
            seconds_simulated: (times.entered - start) as f64 / 1e9,
        };

        idle.push_back(lot);

        // Told a lot at a time: the caller's terminal is slow beside a page.
        if tell(told).is_break() {
            return Err(RunError::Stopped);
        }
    }
}

/// Says when the requests of a lot entered and ended.
fn charge(lot: &mut Lot, timing: &mut TimingHalf<'_>, times: &mut RequestTimes) {
    for (done, glimpse) in lot.requests.iter().zip(&lot.glimpses) {
        // In the order of one thread, and with what the counters were then: a sample of the time
        // series may fall between any two requests.
        times.enter(0, done.is_flush);
        if times.is_due() {
            times.read(*glimpse, done.page_ops, None);
        }
        for _ in 0..done.steps {
            times.done(timing.charge(times.entered, &mut lot.record));
        }
        times.leave(done.outcome);
    }
}

/// Has requests done, and notes what that was.
struct RequestRecorder<'a> {
    firmware: FirmwareHalf<'a>,
    lot: Lot,
    /// Of the request under way.
    is_flush: bool,
    steps_before: usize,
    page_ops_before: PageOps,
}

impl<'a> RequestRecorder<'a> {
    fn new(firmware: FirmwareHalf<'a>) -> Self {
        Self {
            firmware,
            lot: Lot::default(),
            is_flush: false,
            steps_before: 0,
            page_ops_before: PageOps::default(),
        }
    }
}

impl Sink for RequestRecorder<'_> {
    #[inline(always)]
    fn enter(&mut self, page: &HostPage, page_ops: PageOps) {
        // Before the request's first page, as one thread reads the counters.
        self.lot.glimpses.push(self.firmware.glimpse());
        self.is_flush = page.kind == PageKind::Flush;
        self.steps_before = self.lot.record.steps();
        self.page_ops_before = page_ops;
    }

    #[inline(always)]
    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal> {
        self.firmware
            .submit(&command(page), !page.last, &mut self.lot.record)
    }

    fn deallocate(&mut self, lpn: Lpn, len: u32) -> Result<(), Refusal> {
        self.firmware.deallocate(lpn, len, &mut self.lot.record)
    }

    #[inline(always)]
    fn leave(&mut self, outcome: PageOutcome) {
        self.lot.requests.push(DoneRequest {
            outcome,
            is_flush: self.is_flush,
            steps: (self.lot.record.steps() - self.steps_before) as u32,
            page_ops: self.page_ops_before,
        });
    }
}

/// Cuts the source into lots of whole requests, and reads it exactly as far as a run on one thread
/// does.
struct Feeder {
    feed: Feed,
    /// Pages at the beginning of the window that are in the lot before.
    sent: usize,
    /// Page operations that one thread would have done before the window, and whether that ends
    /// inside a request.
    operations: u64,
    is_inside: bool,
    limit: u64,
}

impl Feeder {
    fn new(options: &RunOptions) -> Self {
        Self {
            feed: Feed::default(),
            sent: 0,
            operations: 0,
            is_inside: false,
            limit: options.pages.unwrap_or(u64::MAX),
        }
    }

    fn goes_on(&self) -> bool {
        self.is_inside || self.operations < self.limit
    }

    /// Fills a lot; `false` if nothing is left to do.
    fn fill(&mut self, lot: &mut Lot, source: &mut dyn Source) -> Result<bool, SourceError> {
        if !self.goes_on() || !self.feed.refill(source)? {
            return Ok(false);
        }

        // One thread would take pages from the window up to here, and look ahead at the rest.
        let pages = self.feed.window();
        let taken = if self.feed.is_exhausted() {
            pages.len()
        } else {
            pages.len().saturating_sub(LOOK_AHEAD_FAR)
        };

        // A lot ends with a request. What it has beyond `taken` is in it already: `sent` says how
        // much.
        let end = (taken..pages.len())
            .find(|end| *end > 0 && pages[end - 1].last)
            .unwrap_or(pages.len());

        lot.pages.clear();
        lot.pages.extend_from_slice(&pages[self.sent..]);
        lot.len = end - self.sent;
        lot.requests.clear();
        lot.glimpses.clear();
        lot.record.clear();

        // As far as one thread would have gone: with a limit on pages, a lot may reach beyond the
        // end.
        for page in &pages[..taken] {
            if !self.goes_on() {
                break;
            }
            self.operations += page.kind.pages();
            self.is_inside = !page.last;
        }
        self.sent = end - taken;
        self.feed.take(taken);
        Ok(true)
    }
}
