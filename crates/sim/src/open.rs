//! The open loop: requests that arrive at their own times, how long they take from then on, and how
//! many wait.
//!
//! A request's response is counted from its arrival, so it has what it waited for a place with the
//! device, if places are bounded, and for flushes. The backlog is what has arrived and has not
//! ended. Invariants: requests enter in the order of their arrival; a response is no shorter than
//! the request's latency. Absent: what requests are (`run`).

use crate::inflight::InFlight;
use crate::metrics::Latencies;
use crate::summary::OpenLoop as Summary;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a run knows of its open loop.
pub(crate) struct OpenLoop {
    start: u64,
    /// Places with the device, if they are bounded, and how many.
    places: Option<InFlight>,
    bound: Option<u32>,
    arrived: u64,
    arrivals: u64,
    /// Ends of the requests that had not ended when the latest arrived.
    outstanding: BinaryHeap<Reverse<u64>>,
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
            backlog_max: 0,
            waited_ns: 0,
            reads: Latencies::default(),
            writes: Latencies::default(),
            all: Latencies::default(),
        }
    }

    /// A request arrives; the time from which on there is a place for it.
    pub(crate) fn arrive(&mut self, at_ns: u64) -> u64 {
        self.arrived = self.start + at_ns;
        self.arrivals += 1;
        // Requests that ended before this one arrived do not wait with it.
        while self
            .outstanding
            .peek()
            .is_some_and(|end| end.0 <= self.arrived)
        {
            self.outstanding.pop();
        }
        // With itself.
        self.backlog_max = self.backlog_max.max(self.backlog() + 1);
        // Without a bound it enters as it arrives.
        self.places
            .as_ref()
            .map_or(self.arrived, |places| places.earliest().max(self.arrived))
    }

    /// Requests that had not ended when the latest arrived, and that one too once it has an end.
    pub(crate) fn backlog(&self) -> u64 {
        self.outstanding.len() as u64
    }

    /// The request that arrived last ends.
    pub(crate) fn end(&mut self, done_at: u64) {
        self.outstanding.push(Reverse(done_at));

        // What all have waited, by the length of the run, is the mean backlog (Little's law).
        self.waited_ns += u128::from(done_at - self.arrived);
        if let Some(places) = &mut self.places {
            places.replace_earliest(done_at);
        }
    }

    /// It was served: a read or a write, or something else that is counted among all.
    pub(crate) fn served(&mut self, done_at: u64, is_read: Option<bool>) {
        let response = done_at - self.arrived;
        self.all.record(response);
        match is_read {
            Some(true) => self.reads.record(response),
            Some(false) => self.writes.record(response),
            None => {}
        }
    }

    /// What came of it; the last request ended at `end_ns`.
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
