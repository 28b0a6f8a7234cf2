//! Requests on a device whose dies choose: their ends are known when they come.
//!
//! The host waits where it would wait on the other engine, for a free place in its queue or for a flush,
//! and lets the device's time go on until then. With two threads the order of requests is the same, so the
//! times are.
//!
//! Invariants: a request enters when everything that ends until then has been recorded; each number of a
//! request in flight is in use once. Absent: the execution of requests.

use super::feed::command;
use super::front::Sink;
use crate::metrics::PageOps;
use crate::source::{HostPage, PageKind};
use crate::times::{PageOutcome, RequestTimes, RunClock};
use remap_ssd_device::nand::{Nand, RequestEnd};
use remap_ssd_device::{Device, HostLpn};
use remap_ssd_ftl::Refusal;
use std::collections::VecDeque;

/// A request in flight.
#[derive(Clone, Copy)]
struct InDevice {
    arrived: u64,
    entered: u64,
    outcome: PageOutcome,
}

/// The host's queue: places, and the requests in flight.
pub(super) struct Queue {
    /// When each free place may be taken, in order; `None` if their number has no bound.
    places: Option<VecDeque<u64>>,
    /// Host's time before each request.
    host_ns: u64,
    requests: Vec<InDevice>,
    /// Numbers that no request in flight has.
    free: Vec<u32>,
    /// The number of the latest request, and whether all others wait for it.
    request: u32,
    is_barrier: bool,
}

impl Queue {
    /// `places`, all of them free when the host has taken its time after `now`.
    pub(super) fn new(places: Option<u32>, host_ns: u64, now: u64) -> Self {
        Self {
            places: places.map(|count| vec![now + host_ns; count.max(1) as usize].into()),
            host_ns,
            requests: Vec::new(),
            free: Vec::new(),
            request: 0,
            is_barrier: false,
        }
    }

    /// A request enters. Returns the number in flight before it, in an open loop.
    pub(super) fn enter(
        &mut self,
        times: &mut RequestTimes,
        nand: &mut Nand,
        at_ns: u64,
        is_flush: bool,
    ) -> Option<u64> {
        // A flush waits for all earlier requests, any other request for the latest flush.
        let mut after = 0;
        if is_flush || self.is_barrier {
            while self.next_end(times, nand) {}
            after = times.ended + self.host_ns;
        }
        self.is_barrier = is_flush;

        if let RunClock::Open(open) = &times.clock {
            let arrival = open.arrival(at_ns);
            self.ends_until(arrival, times, nand);
        }

        while self.places.as_ref().is_some_and(VecDeque::is_empty) {
            self.next_end(times, nand);
        }
        let place = self.places.as_mut().and_then(VecDeque::pop_front);
        let place = place.unwrap_or(0);

        let (now, backlog) = match &mut times.clock {
            RunClock::Closed(_) => (place.max(after), None),
            RunClock::Open(open) => {
                let arrived = open.arrive(at_ns);
                let backlog = open.backlog();
                open.begin();
                (arrived.max(place).max(after), Some(backlog))
            }
        };

        // What ends until now frees its number, which this request may take.
        times.entered = now.max(times.entered);
        self.ends_until(times.entered, times, nand);
        self.request = self.free.pop().unwrap_or(self.requests.len() as u32);
        nand.open(self.request);
        backlog
    }

    /// The latest request has no further part.
    pub(super) fn leave(&mut self, times: &RequestTimes, nand: &mut Nand, outcome: PageOutcome) {
        let request = InDevice {
            arrived: times.arrived(),
            entered: times.entered,
            outcome,
        };
        match self.requests.get_mut(self.request as usize) {
            Some(place) => *place = request,
            None => self.requests.push(request),
        }
        nand.close(self.request);
    }

    pub(super) fn request(&self) -> u32 {
        self.request
    }

    /// Waits until a request ends; `false` if none is in flight.
    pub(super) fn next_end(&mut self, times: &mut RequestTimes, nand: &mut Nand) -> bool {
        let end = nand.next_end();
        if let Some(end) = end {
            self.ended(end, times, nand);
        }
        end.is_some()
    }

    fn ends_until(&mut self, time: u64, times: &mut RequestTimes, nand: &mut Nand) {
        nand.advance(time);
        while let Some(end) = nand.take_end() {
            self.ended(end, times, nand);
        }
    }

    fn ended(&mut self, end: RequestEnd, times: &mut RequestTimes, nand: &Nand) {
        let RequestEnd { request, at } = end;
        self.free.push(request);
        let InDevice {
            arrived,
            entered,
            outcome,
        } = self.requests[request as usize];

        times.ended = times.ended.max(at);
        if let Some(places) = &mut self.places {
            places.push_back(at + self.host_ns);
        }
        if let RunClock::Open(open) = &mut times.clock {
            open.end_now(arrived, at);
        }

        times.record(outcome, arrived, entered, at);
        let causes = nand.causes(request);

        debug_assert!(
            !outcome.served || causes.total() == at - entered,
            "causes add up: {causes:?} of {} ns",
            at - entered
        );
        times.record_causes(outcome, causes);
    }
}

/// Submits each page to the device as a part of its request.
pub(super) struct Queued<'a> {
    pub device: &'a mut Device,
    pub times: RequestTimes,
    pub queue: Queue,
}

/// The engine of a device whose requests are queued.
pub(super) fn engine(device: &mut Device) -> &mut Nand {
    device.nand().expect("the device has this engine")
}

impl Sink for Queued<'_> {
    fn enter(&mut self, page: &HostPage, page_ops: PageOps) {
        let before = self.times.entered;
        let is_flush = page.kind == PageKind::Flush;
        if self.times.is_burst_over(page.at_ns) {
            let glimpse = self.device.glimpse();
            self.times.read_burst(glimpse, page_ops, page.at_ns);
        }

        if let RunClock::Open(open) = &self.times.clock {
            // Only an open loop has time without submissions.
            let arrival = open.arrival(page.at_ns);
            self.device.idle(before, arrival);
        }

        let nand = engine(self.device);
        let backlog = self
            .queue
            .enter(&mut self.times, nand, page.at_ns, is_flush);

        if self.times.is_due() {
            let glimpse = self.device.glimpse();
            self.times.read(glimpse, page_ops, backlog);
        }
    }

    fn submit(&mut self, page: &HostPage) -> Result<(), Refusal> {
        let request = self.queue.request();
        self.device
            .submit_part(request, self.times.entered, &command(page), !page.last)
    }

    fn deallocate(&mut self, lpn: HostLpn, len: u32) -> Result<(), Refusal> {
        let request = self.queue.request();
        self.device
            .deallocate_part(request, self.times.entered, lpn, len)
    }

    fn leave(&mut self, outcome: PageOutcome) {
        let nand = engine(self.device);
        self.queue.leave(&self.times, nand, outcome);
    }
}
