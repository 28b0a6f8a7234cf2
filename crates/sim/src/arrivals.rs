//! Arrival times of requests in an open loop.
//!
//! ```text
//! trace[:SPEED][,bound=N]    the trace's or workload's own times; SPEED times as fast
//! rate:R[,bound=N]           Poisson arrivals at a mean rate of R per second
//! burst:N:S[,bound=N]        bursts of N requests at once, one every S seconds, from S seconds on
//! ```
//!
//! Runs with bursts consist of whole ones.
//!
//! With `bound` at most N requests are outstanding; later arrivals wait. Without it there is no
//! limit. [`Timed`] applies such times to any source.
//!
//! Invariants: times never decrease, and all pages of a request have the same time; reads and
//! writes do not depend on the times; a time that cannot be represented is an error. `Display` output parses back to the same value. Absent: the
//! cost of waiting (`run`).

use crate::source::{HostPage, Source, SourceError, TIME_MAX_NS};
use crate::workload::{Bursts, NamedWorkload, WorkloadError, unit};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::str::FromStr;

/// Source of the arrival times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Times {
    /// The source's own times, `speed` times as fast.
    Own {
        /// Speed-up factor.
        speed: f64,
    },
    /// Poisson arrivals at a mean rate.
    Rate {
        /// Mean requests per second.
        per_second: f64,
    },
    /// Bursts at regular times.
    Burst {
        /// Requests of a burst, which arrive at once.
        requests: u32,
        /// Seconds from one burst to the next, and before the first.
        every_s: f64,
    },
}

/// Arrival times of requests, and a bound on those outstanding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Source of the arrival times.
    pub times: Times,
    /// Maximum requests outstanding; `None`: unlimited.
    pub bound: Option<u32>,
}

/// Bursts of one size at equal distances in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegularBursts {
    /// Requests that arrive at once.
    pub requests: u32,
    /// Time from one burst to the next, and before the first.
    pub every_ns: u64,
}

impl Arrivals {
    /// Arrivals at the source's own times.
    pub const OWN: Self = Self {
        times: Times::Own { speed: 1.0 },
        bound: None,
    };

    /// Checks that this workload supports these arrivals.
    ///
    /// # Errors
    /// The workload has no times of its own.
    pub fn check(&self, workload: &NamedWorkload) -> Result<(), WorkloadError> {
        match (self.times, workload.bursts()) {
            (Times::Own { .. }, None) => Err(WorkloadError::new(format!(
                "the workload `{workload}` has no times of its own: use `rate:R` or `burst:N:S`, or fiu-homes, fiu-mail or fiu-webvm"
            ))),
            _ => Ok(()),
        }
    }

    /// The bursts, if requests arrive in bursts at regular times.
    pub fn bursts(&self) -> Option<RegularBursts> {
        match self.times {
            Times::Burst { requests, every_s } => Some(RegularBursts {
                requests,
                every_ns: (every_s * 1e9) as u64,
            }),
            Times::Own { .. } | Times::Rate { .. } => None,
        }
    }

    /// Applies these times to a workload's requests.
    ///
    /// # Errors
    /// The workload has no times of its own.
    pub fn over_workload<'a>(
        &self,
        inner: &'a mut dyn Source,
        workload: &NamedWorkload,
        seed: u64,
    ) -> Result<Timed<'a>, WorkloadError> {
        self.check(workload)?;

        // The workload's own times are bursts; other times replace them.
        let clock = match (self.times, workload.bursts()) {
            (Times::Own { speed }, Some(bursts)) => ArrivalClock::Bursts {
                bursts,
                left: 0,
                speed,
            },
            _ => self.clock(),
        };

        Ok(Timed::new(inner, clock, *self, seed))
    }

    /// Applies these times to a trace's requests.
    pub(crate) fn over_trace<'a>(&self, inner: &'a mut dyn Source, seed: u64) -> Timed<'a> {
        Timed::new(inner, self.clock(), *self, seed)
    }

    /// The clock for a source without bursts of its own.
    fn clock(&self) -> ArrivalClock {
        match self.times {
            Times::Own { speed } => ArrivalClock::Own { speed },
            Times::Rate { per_second } => ArrivalClock::Rate {
                mean_ns: 1e9 / per_second,
            },
            Times::Burst { requests, every_s } => ArrivalClock::Regular {
                requests: requests.into(),
                every_ns: every_s * 1e9,
                count: 0,
            },
        }
    }
}

impl FromStr for Arrivals {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = || {
            WorkloadError::new(format!(
                "`{text}` is none of trace, trace:SPEED, rate:R and burst:N:S, with numbers above 0, each with `,bound=N` or without"
            ))
        };
        let positive = |number: &str| {
            number
                .parse::<f64>()
                .ok()
                // NaN is not above 0 either.
                .filter(|n| *n > 0.0 && *n <= 1e9)
                .ok_or_else(wrong)
        };

        let (times, bound) = match text.split_once(",bound=") {
            Some((times, bound)) => (
                times,
                Some(
                    bound
                        .parse::<u32>()
                        .ok()
                        .filter(|n| (1..=65_535).contains(n)),
                ),
            ),
            None => (text, None),
        };
        // Distinguishes an invalid bound from an absent one.
        let bound = match bound {
            Some(None) => {
                return Err(WorkloadError::new(format!(
                    "the bound in `{text}` is not a number of requests from 1 to 65535"
                )));
            }
            Some(some) => some,
            None => None,
        };

        let times = match times.split_once(':') {
            None if times == "trace" => Times::Own { speed: 1.0 },
            Some(("trace", speed)) => Times::Own {
                speed: positive(speed)?,
            },
            Some(("rate", rate)) => Times::Rate {
                per_second: positive(rate)?,
            },
            Some(("burst", burst)) => {
                let (requests, every_s) = burst.split_once(':').ok_or_else(wrong)?;
                Times::Burst {
                    requests: requests
                        .parse()
                        .ok()
                        .filter(|requests| *requests > 0)
                        .ok_or_else(wrong)?,
                    every_s: positive(every_s)?,
                }
            }
            _ => return Err(wrong()),
        };
        Ok(Self { times, bound })
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            Times::Own { speed: 1.0 } => f.write_str("trace")?,
            Times::Own { speed } => write!(f, "trace:{speed}")?,
            Times::Rate { per_second } => write!(f, "rate:{per_second}")?,
            Times::Burst { requests, every_s } => write!(f, "burst:{requests}:{every_s}")?,
        }
        match self.bound {
            Some(bound) => write!(f, ",bound={bound}"),
            None => Ok(()),
        }
    }
}

enum ArrivalClock {
    Own {
        speed: f64,
    },
    Rate {
        mean_ns: f64,
    },
    Bursts {
        bursts: Bursts,
        left: u32,
        speed: f64,
    },
    Regular {
        requests: u64,
        every_ns: f64,
        /// Requests that have arrived.
        count: u64,
    },
}

/// A source whose requests arrive at given times.
pub struct Timed<'a> {
    inner: &'a mut dyn Source,
    clock: ArrivalClock,
    /// The description of these times, for errors.
    arrivals: Arrivals,
    rng: Xoshiro256PlusPlus,
    /// Arrival of the latest request; fractional, so that rounding errors do not add up.
    at_ns: f64,
    /// The last page returned was not the last of its request.
    inside: bool,
}

impl<'a> Timed<'a> {
    fn new(inner: &'a mut dyn Source, clock: ArrivalClock, arrivals: Arrivals, seed: u64) -> Self {
        // 2^192 steps after any draw of a workload.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        rng.long_jump();
        Self {
            inner,
            clock,
            arrivals,
            rng,
            at_ns: 0.0,
            inside: false,
        }
    }

    /// Arrival time of the next request.
    fn next(&mut self, own_ns: u64) -> f64 {
        // Intervals of a Poisson process; `unit` is never 0, so that the logarithm is finite.
        let exponential =
            |rng: &mut Xoshiro256PlusPlus, mean_ns: f64| -mean_ns * libm::log(unit(rng));

        match &mut self.clock {
            ArrivalClock::Own { speed } => own_ns as f64 / *speed,
            ArrivalClock::Rate { mean_ns } => self.at_ns + exponential(&mut self.rng, *mean_ns),
            ArrivalClock::Bursts {
                bursts,
                left,
                speed,
            } if *left == 0 => {
                // The first request of a burst comes after the gap, the others after short
                // intervals.
                *left = bursts.len(&mut self.rng) - 1;
                self.at_ns + bursts.gap_ns(&mut self.rng) / *speed
            }
            ArrivalClock::Bursts {
                bursts,
                left,
                speed,
            } => {
                *left -= 1;
                self.at_ns + exponential(&mut self.rng, bursts.interval_ns()) / *speed
            }
            ArrivalClock::Regular {
                requests,
                every_ns,
                count,
            } => {
                *count += 1;
                count.div_ceil(*requests) as f64 * *every_ns
            }
        }
    }
}

impl Source for Timed<'_> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let start = out.len();
        let more = self.inner.fill(out, want)?;
        for page in &mut out[start..] {
            if !self.inside {
                // Times never decrease, even if the source's do.
                self.at_ns = self.next(page.at_ns).max(self.at_ns);
                if self.at_ns > TIME_MAX_NS as f64 {
                    return Err(SourceError::Unusable {
                        file: format!("arrivals {}", self.arrivals),
                        reason:
                            "a request would arrive after 146 years, the latest time of a run: \
                                 use a higher rate or speed, or fewer requests"
                                .into(),
                    });
                }
            }
            page.at_ns = self.at_ns as u64;
            self.inside = !page.last;
        }
        Ok(more)
    }

    fn skipped(&self) -> u64 {
        self.inner.skipped()
    }

    fn len_hint(&self) -> Option<u64> {
        self.inner.len_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_reads_back_the_same() {
        for text in [
            "trace",
            "trace:12.5",
            "rate:5000",
            "rate:0.5,bound=32",
            "trace,bound=1",
            "burst:2048:0.5",
            "burst:1:10,bound=32",
        ] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }

        for text in [
            "",
            "rate",
            "rate:0",
            "rate:-1",
            "rate:NaN",
            "trace:",
            "burst",
            "burst:8",
            "burst:8:",
            "burst:0:1",
            "burst:1.5:1",
            "burst:8:0",
            "burst:-8:1",
            "closed",
            "trace,bound=0",
            "trace,depth=3",
        ] {
            assert!(text.parse::<Arrivals>().is_err(), "{text}");
        }
    }
}
