//! Options of a run, and its progress.

use crate::arrivals::RegularBursts;
use crate::precision::Precision;

/// Options of a run, for any source.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stop after the request that reaches this many pages; `None`: when the source is exhausted.
    pub pages: Option<u64>,
    /// A warm-up: stop when write amplification is steady over rounds of at least this many pages. Bit errors, if the device has any, do
    /// not begin.
    pub warm_up_round: Option<u64>,
    /// Stop when the device is worn out and refuses a write.
    pub until_worn_out: bool,
    /// Requests in flight, in a closed loop.
    pub queue_depth: u32,
    /// Host's time before each request, in a closed loop.
    pub host_ns: u64,
    /// Requests enter at their own time instead.
    pub open_loop: bool,
    /// Maximum requests outstanding in an open loop; later arrivals wait.
    pub bound: Option<u32>,
    /// Requests arrive in bursts, in an open loop. The run then consists of whole bursts, each with the pause before it, and so does each
    /// part of it that is compared with another.
    pub bursts: Option<RegularBursts>,
    /// Initial virtual time between points of the series.
    pub sample_interval_ns: u64,
    /// Approximate number of points of the series.
    pub samples: usize,
    /// Stop when a figure is this precise in a steady state, but neither before this many pages nor
    /// after `pages`. The run then uses one thread.
    pub precision: Option<(Precision, u64)>,
    /// Threads that the run may use. With two or more the firmware gets its own, where that changes
    /// no result. The choice never shows in the results.
    pub threads: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            pages: None,
            warm_up_round: None,
            until_worn_out: false,
            queue_depth: 32,
            host_ns: 0,
            open_loop: false,
            bound: None,
            bursts: None,
            sample_interval_ns: 10_000_000,
            samples: 200,
            precision: None,
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
