//! The open loop: requests arrive at their own times; measures response times and backlog.
//!
//! A request's response time counts from its arrival, so it includes waiting for a place, if the
//! number of outstanding requests is bounded, and for flushes. The backlog is the number of
//! requests arrived and not completed. Invariants: requests enter in the order of their arrival; a
//! response time is at least the request's latency. Absent: the contents of requests (`run`).

use crate::inflight::InFlight;
use crate::latencies::Latencies;
use crate::summary::OpenLoop as Summary;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// State of an open loop.
pub(crate) struct OpenLoop {
    start: u64,
    /// Slots of outstanding requests, if bounded, and the bound.
    places: Option<InFlight>,
    bound: Option<u32>,
    arrived: u64,
    arrivals: u64,
    /// Known completion times of the requests outstanding at the latest arrival.
    outstanding: BinaryHeap<Reverse<u64>>,
    /// Number of requests whose completion is not known yet.
    pending: u64,
    backlog_max: u64,
    waited_ns: u128,
    reads: Latencies,
    writes: Latencies,
    all: Latencies,
}

impl OpenLoop {
    pub(crate) fn new(start: u64, bound: Option<u32>) -> Self {
        Self {
            start,
            places: bound.map(|bound| InFlight::new(bound, start)),
            bound,
            arrived: start,
            arrivals: 0,
            outstanding: BinaryHeap::new(),
            pending: 0,
            backlog_max: 0,
            waited_ns: 0,
            reads: Latencies::default(),
            writes: Latencies::default(),
            all: Latencies::default(),
        }
    }

    /// Records the arrival of a request; returns the time from which a slot is free.
    pub(crate) fn arrive(&mut self, at_ns: u64) -> u64 {
        self.arrived = self.arrival(at_ns);
        self.arrivals += 1;
        // Requests that completed before this arrival are not in its backlog.
        while self
            .outstanding
            .peek()
            .is_some_and(|end| end.0 <= self.arrived)
        {
            self.outstanding.pop();
        }
        // Including this request.
        self.backlog_max = self.backlog_max.max(self.backlog() + 1);
        // Without a bound it enters at its arrival.
        self.places
            .as_ref()
            .map_or(self.arrived, |places| places.earliest().max(self.arrived))
    }

    /// Requests outstanding at the latest arrival, and that one too once its completion is
    /// recorded.
    pub(crate) fn backlog(&self) -> u64 {
        self.outstanding.len() as u64 + self.pending
    }

    /// Arrival of a request at `at_ns` of its source.
    pub(crate) fn arrival(&self, at_ns: u64) -> u64 {
        self.start + at_ns
    }

    /// Arrival of the latest request.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// The request that arrived last has entered; its completion is not known yet.
    pub(crate) fn begin(&mut self) {
        self.pending += 1;
    }

    /// A request that has begun and arrived at `arrived` completes at `done_at`, the time that has come.
    pub(crate) fn end_now(&mut self, arrived: u64, done_at: u64) {
        self.pending -= 1;
        // It may end after the next arrival, whose backlog it is in.
        self.outstanding.push(Reverse(done_at));
        self.waited_ns += u128::from(done_at - arrived);
    }

    /// Records the completion of the request that arrived last.
    pub(crate) fn end(&mut self, arrived: u64, done_at: u64) {
        self.outstanding.push(Reverse(done_at));

        // Total response time divided by the length of the run is the mean backlog (Little's law).
        self.waited_ns += u128::from(done_at - arrived);
        if let Some(places) = &mut self.places {
            places.replace_earliest(done_at);
        }
    }

    /// Records the response time of a served request: a read, a write, or another counted only in
    /// the total.
    pub(crate) fn served(&mut self, response: u64, is_read: Option<bool>) {
        self.all.record(response);
        match is_read {
            Some(true) => self.reads.record(response),
            Some(false) => self.writes.record(response),
            None => {}
        }
    }

    /// Returns the results; the last request completed at `end_ns`.
    pub(crate) fn finish(&self, end_ns: u64) -> Summary {
        let per = |amount: f64, ns: u64| if ns > 0 { amount / ns as f64 } else { 0.0 };
        Summary {
            bound: self.bound,
            offered_per_s: per(self.arrivals as f64 * 1e9, self.arrived - self.start),
            response_us: self.all.percentiles(),
            read_response_us: self.reads.percentiles(),
            write_response_us: self.writes.percentiles(),
            backlog_mean: per(self.waited_ns as f64, end_ns - self.start),
            backlog_max: self.backlog_max,
            backlog_end: self.backlog(),
        }
    }
}
