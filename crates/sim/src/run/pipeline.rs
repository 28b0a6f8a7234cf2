//! One run on two threads, with the same results as on one.
//!
//! The firmware does not know time. In a closed loop a request enters when an earlier one
//! completes, but the order of requests does not depend on that. So a second thread lets the
//! firmware execute request after request and records the operations; this thread draws the
//! requests and computes the times of the records:
//!
//! ```text
//! this thread      source ──pages──►                    ──record──► timing, latencies, time series
//! other thread                firmware, accounting
//! ```
//!
//! Lots of about a thousand pages circulate between the threads. Their vectors are reused, so that
//! nothing is allocated once they have grown, and there are few of them, so that they stay in the
//! caches of the two cores.
//!
//! Not for runs in which time affects the firmware. In an open loop the device does background work
//! between arrivals, and its amount depends on earlier completion times. A run until wear-out uses
//! one thread as well: the capacity of such a device changes with every page, and counting it for
//! each request would take longer than a second thread saves.
//!
//! Invariants: requests are not divided between lots; the source is read as far as on one thread;
//! each request has its own glimpse of the counters, so a reading is that of the moment when the
//! request entered. Absent: clocks.

use super::error::RunError;
use super::feed::{Feed, command};
use super::front::{Front, Sink};
use super::options::{Progress, RunOptions};
use super::queued::Queue;
use super::{Accounts, queue};
use crate::metrics::PageOps;
use crate::source::{HostPage, PageKind, Source, SourceError};
use crate::times::{PageOutcome, RequestTimes};
use remap_ssd_device::{CommandRecord, Device, FirmwareHalf, HostLpn, LOOK_AHEAD_FAR, TimingHalf};
use remap_ssd_ftl::{Glimpse, Refusal};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Lots in circulation between the two threads.
const LOTS: usize = 4;

/// An executed request.
#[derive(Clone, Copy)]
struct DoneRequest {
    outcome: PageOutcome,
    /// True for a flush, which waits for all earlier requests.
    is_flush: bool,
    steps: u32,
    /// Operations before it.
    page_ops: PageOps,
}

/// A batch of requests in circulation.
#[derive(Default)]
struct Lot {
    /// Pages, followed by those for look-ahead.
    pages: Vec<HostPage>,
    /// Number of pages to submit.
    len: usize,
    requests: Vec<DoneRequest>,
    glimpses: Vec<Glimpse>,
    record: CommandRecord,
    /// Operations at its end.
    page_ops: PageOps,
}

/// Runs the source on both halves of the device; `None` if it cannot be divided.
///
/// # Errors
/// As [`super::run`].
pub(crate) fn run(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    times: &mut RequestTimes,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Option<Result<Accounts, RunError>> {
    let (firmware, mut timing) = device.halves()?;
    let front = Front::new(RequestRecorder::new(firmware), options);

    // Capacity for all lots: no thread ever waits for room in a channel, only for work.
    let (to_firmware, ordered) = sync_channel(LOTS);
    let (done, from_firmware) = sync_channel(LOTS);

    Some(thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("firmware".into())
            .spawn_scoped(scope, move || do_lots(front, &ordered, &done))
            .expect("the system has room for another thread");

        let mut feeder = Feeder::new(options);
        let mut clock = Clock {
            queue: timing.nand().is_some().then(|| queue(options, times)),
            timing,
            times,
        };

        let kept = keep_time(
            &mut feeder,
            source,
            &mut clock,
            to_firmware,
            &from_firmware,
            report,
        );

        // With both channel ends of this thread dropped, the other thread ends too. Its panic is
        // passed on.
        drop(from_firmware);
        let accounts = worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        kept.map(|()| accounts)
    }))
}

/// The firmware's thread: executes lots until the channel closes.
fn do_lots(
    mut front: Front<RequestRecorder<'_>>,
    ordered: &Receiver<Lot>,
    done: &SyncSender<Lot>,
) -> Accounts {
    while let Ok(mut lot) = ordered.recv() {
        // Moved out and back, so that the lot's vectors keep their memory.
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
            break; // The run has been aborted.
        }
    }

    let is_inside = front.is_inside_request();
    (front.tally, is_inside)
}

/// This thread: keeps lots in circulation, and charges those that return.
fn keep_time(
    feeder: &mut Feeder,
    source: &mut dyn Source,
    clock: &mut Clock<'_, '_>,
    to_firmware: SyncSender<Lot>,
    from_firmware: &Receiver<Lot>,
    report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let start = clock.times.entered;
    // All lots: their number bounds how far one thread may be ahead.
    let mut idle: VecDeque<Lot> = (0..LOTS).map(|_| Lot::default()).collect();
    let mut to_firmware = Some(to_firmware);
    loop {
        while let (Some(sender), Some(lot)) = (&to_firmware, idle.front_mut()) {
            if !feeder.fill(lot, source)? {
                // The other thread ends with the channel, after the lots still in it; they return
                // below, so none is lost.
                to_firmware = None;
                break;
            }

            let lot = idle.pop_front().expect("it was there");
            if sender.send(lot).is_err() {
                return Ok(()); // It has panicked; `join` reports it.
            }
        }

        let Ok(mut lot) = from_firmware.recv() else {
            // The other thread has ended; `join` reports why.
            clock.end();
            return Ok(());
        };

        clock.charge(&mut lot);
        let so_far = Progress {
            pages: lot.page_ops.operations,
            pages_total: None,
            seconds_simulated: (clock.times.entered - start) as f64 / 1e9,
        };

        idle.push_back(lot);

        // Once per lot: the caller's terminal is slow compared with a page.
        if report(so_far).is_break() {
            return Err(RunError::Stopped);
        }
    }
}

/// The half that computes times, and the times.
struct Clock<'a, 't> {
    timing: TimingHalf<'a>,
    times: &'t mut RequestTimes,
    /// The host's queue, if requests end when their time has come.
    queue: Option<Queue>,
}

impl Clock<'_, '_> {
    /// Computes when the requests of a lot entered and completed.
    fn charge(&mut self, lot: &mut Lot) {
        let Self {
            timing,
            times,
            queue,
        } = self;
        if let Some(queue) = queue {
            return charge_queued(lot, timing, times, queue);
        }

        for (done, glimpse) in lot.requests.iter().zip(&lot.glimpses) {
            // In the order of one thread, and with the counters of that moment: a sample of the time
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

    /// Waits for the requests in flight, after the last lot.
    fn end(&mut self) {
        if let (Some(queue), Some(nand)) = (&mut self.queue, self.timing.nand()) {
            nand.end_timeline();
            while queue.next_end(self.times, nand) {}
            self.times.meters.flash.end(nand);
            nand.settle();
        }
    }
}

/// The same for requests that end when their time has come.
fn charge_queued(
    lot: &mut Lot,
    timing: &mut TimingHalf<'_>,
    times: &mut RequestTimes,
    queue: &mut Queue,
) {
    for (done, counters) in lot.requests.iter().zip(&lot.glimpses) {
        let nand = timing.nand().expect("the device has this engine");
        queue.enter(times, nand, 0, done.is_flush);
        if times.is_due() {
            times.read(*counters, done.page_ops, None);
        }

        for _ in 0..done.steps {
            timing.submit(queue.request(), times.entered, &mut lot.record);
        }
        let nand = timing.nand().expect("the device has this engine");
        queue.leave(times, nand, done.outcome);
    }
}

/// Executes requests, and records their operations.
struct RequestRecorder<'a> {
    firmware: FirmwareHalf<'a>,
    lot: Lot,
    /// State of the current request.
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
        // Before the request's first page, where a single thread reads the counters.
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

    fn deallocate(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
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

/// Splits the source into lots of whole requests, and reads it exactly as far as a run on one
/// thread does.
struct Feeder {
    feed: Feed,
    /// Pages at the beginning of the window that the previous lot contained.
    sent: usize,
    /// Page operations that one thread would have executed before the window; and true if they end
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

        // One thread would take pages of the window up to here, and use the rest for look-ahead.
        let pages = self.feed.window();
        let taken = if self.feed.is_exhausted() {
            pages.len()
        } else {
            pages.len().saturating_sub(LOOK_AHEAD_FAR)
        };

        // A lot ends with a request. Its pages after `taken` have been submitted with it: `sent`
        // counts them.
        let end = (taken..pages.len())
            .find(|end| *end > 0 && pages[end - 1].last)
            .unwrap_or(pages.len());

        lot.pages.clear();
        lot.pages.extend_from_slice(&pages[self.sent..]);
        lot.len = end - self.sent;
        lot.requests.clear();
        lot.glimpses.clear();
        lot.record.clear();

        // As far as one thread would have gone: with a limit on pages, a lot may extend beyond the
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
