//! Entry and completion times of requests, and their latencies.
//!
//! Invariants: submission times never decrease; results depend only on the sequence of calls, so
//! the device may have executed the requests long before. Absent: the contents of requests, and
//! their execution (`run`, `pipeline`).

use crate::inflight::InFlight;
use crate::metrics::{Meters, PageOps, Reading};
use crate::open::OpenLoop;
use remap_ssd_device::PageKind;
use remap_ssd_device::nand::Causes;
use remap_ssd_ftl::Glimpse;

pub(crate) enum RunClock {
    Closed(InFlight),
    Open(Box<OpenLoop>),
}

#[derive(Clone, Copy)]
pub(crate) struct PageOutcome {
    pub kind: PageKind,
    pub served: bool,
}

pub(crate) struct RequestTimes {
    pub clock: RunClock,
    /// Host's time before each request, in a closed loop.
    host_ns: u64,
    pub meters: Meters,
    /// Entry of the latest request, and the latest completion of any.
    pub entered: u64,
    pub ended: u64,
    /// Completion of the latest flush: later requests enter no earlier.
    flushed: u64,
    /// Completion of all pages of the latest request so far.
    done_at: u64,
}

impl RequestTimes {
    pub(crate) fn new(clock: RunClock, host_ns: u64, meters: Meters, start: u64) -> Self {
        Self {
            clock,
            host_ns,
            meters,
            entered: start,
            ended: start,
            flushed: start,
            done_at: start,
        }
    }

    /// A request enters. Returns the number outstanding, in an open loop.
    #[inline(always)]
    pub(crate) fn enter(&mut self, at_ns: u64, is_flush: bool) -> Option<u64> {
        // A flush waits for all earlier requests, any other request for the latest flush.
        let after = if is_flush { self.ended } else { self.flushed };
        let (now, backlog) = match &mut self.clock {
            RunClock::Closed(queue) => (queue.earliest().max(after + self.host_ns), None),
            RunClock::Open(open) => {
                let now = open.arrive(at_ns).max(self.entered).max(after);
                (now, Some(open.backlog()))
            }
        };
        (self.entered, self.done_at) = (now, now);
        backlog
    }

    /// Returns true if the next request, at `at_ns` of its source, is the first one after a burst whose end is to be read.
    #[inline(always)]
    pub(crate) fn is_burst_over(&self, at_ns: u64) -> bool {
        match (&self.clock, &self.meters.bursts) {
            (RunClock::Open(open), Some(bursts)) => open.arrival(at_ns) >= bursts.due_ns,
            _ => false,
        }
    }

    /// Takes the reading at the end of a burst, before the work of the device in the pause after it.
    #[cold]
    pub(crate) fn read_burst(&mut self, glimpse: Glimpse, page_ops: PageOps, at_ns: u64) {
        if let (RunClock::Open(open), Some(bursts)) = (&self.clock, &mut self.meters.bursts) {
            bursts.read(Reading {
                at_ns: open.arrival(at_ns),
                page_ops,
                glimpse,
                backlog: None,
            });
        }
    }

    /// Returns true if a reading of the counters is due, now that a request has entered.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.entered >= self.meters.series.due_ns
    }

    /// Takes the due reading.
    #[cold]
    pub(crate) fn read(&mut self, glimpse: Glimpse, page_ops: PageOps, backlog: Option<u64>) {
        self.meters.series.read(Reading {
            at_ns: self.entered,
            page_ops,
            glimpse,
            backlog,
        });
    }

    /// Records the completion of a part of the request.
    #[inline(always)]
    pub(crate) fn done(&mut self, at: u64) {
        self.done_at = self.done_at.max(at);
    }

    /// The request completes when all its parts have.
    #[inline(always)]
    pub(crate) fn leave(&mut self, PageOutcome { kind, served }: PageOutcome) {
        let done_at = self.done_at;
        match &mut self.clock {
            RunClock::Closed(queue) => queue.replace_earliest(done_at + self.host_ns),
            RunClock::Open(open) => open.end(open.arrived(), done_at),
        }

        // A flush has no latency of its own, and delays the following requests.
        self.ended = self.ended.max(done_at);
        if kind == PageKind::Flush {
            self.flushed = done_at;
        }

        let (entered, arrived) = (self.entered, self.arrived());
        self.record(PageOutcome { kind, served }, arrived, entered, done_at);
    }

    /// Arrival of the latest request, in an open loop.
    pub(crate) fn arrived(&self) -> u64 {
        match &self.clock {
            RunClock::Closed(_) => self.entered,
            RunClock::Open(open) => open.arrived(),
        }
    }

    /// Records the times of a request that has ended.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        PageOutcome { kind, served }: PageOutcome,
        arrived: u64,
        entered: u64,
        done_at: u64,
    ) {
        // The time of a refused request is not comparable.
        if !served {
            return;
        }

        if let RunClock::Open(open) = &mut self.clock {
            let is_read = match kind {
                PageKind::Read => Some(true),
                kind if kind.writes() => Some(false),
                _ => None,
            };
            open.served(done_at - arrived, is_read);
        }

        let latency = done_at - entered;
        match kind {
            PageKind::Read => self.meters.reads.record(latency),
            PageKind::Remap { .. } => self.meters.remaps.record(latency),
            kind if kind.writes() => self.meters.writes.record(latency),
            _ => {}
        }
    }

    /// Records what the request of this latency waited for.
    pub(crate) fn record_causes(
        &mut self,
        PageOutcome { kind, served }: PageOutcome,
        causes: Causes,
    ) {
        let is_remap = matches!(kind, PageKind::Remap { .. });
        let is_read = kind == PageKind::Read;
        if served && !is_remap && (is_read || kind.writes()) {
            self.meters.flash.add(is_read, causes);
        }
    }
}
