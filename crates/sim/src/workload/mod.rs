//! Synthetic workloads: endless sources of page operations, the same from the same seed anywhere.
//!
//! A workload is a [`Pattern`] of addresses, a share of reads, a request size and a
//! [`ContentModel`]; or it is one of the [`MODELS`] of published applications and traces.
//! [`NamedWorkload`] is either, by name, on all or a part of the pages. Addresses are drawn as *units* of `request_pages` pages;
//! if the addressable range is no multiple of that, its last unit is shorter. Invariants: `lpn <
//! addressable`; the stream does not depend on the batch size; the pages read and written do not
//! depend on the content model; nothing is allocated per page. Absent: time. Requests have `at_ns`
//! 0: the queue depth is set by the run, arrival times by `crate::arrivals`.

mod bursts;
mod content;
mod draw;
mod fileserver;
mod fio_job;
mod fiu;
mod flushed;
mod innodb;
mod journal;
mod measured;
mod model;
mod modelled;
mod named;
mod oltp;
mod present;
mod runs;
mod script;
mod snapshot;
mod space;
mod spec;
mod sysbench;
mod tpcc;
mod ycsb;
mod zipf;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::HostLpn;
use serde::Serialize;

pub use bursts::Bursts;
pub use content::ContentModel;
pub use fio_job::{FioJob, FioJobError};
pub use measured::Copies;
pub use model::{MODELS, Model, ModelKind, ModelSpec};
pub use modelled::Modelled;
pub use named::{NamedWorkload, WorkloadKind};
pub use spec::WorkloadSpec;
pub use zipf::Zipf;

use crate::source::{HostPage, PageKind, Source, SourceError};
use content::Contents;
pub(crate) use draw::unit;
use draw::{Chance, below_any};

/// Distribution of the addresses of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Every unit is equally likely.
    Random,
    /// One unit after the other, from the first again after the last.
    Sequential,
    /// The unit of rank `i` with probability proportional to `i^-theta`. Ranks are scattered over
    /// the range by a fixed permutation, so that hot units are not neighbours.
    Zipf {
        /// The skew; 0 is uniform, 0.99 is the customary strong one.
        theta: f64,
    },
    /// A share of the units receives its own share of the requests; both are uniform within. The hot
    /// units are scattered over the range.
    HotCold {
        /// Percentage of the units that is hot, 1 to 99.
        data_percent: u8,
        /// Percentage of the requests for hot units, 1 to 99.
        request_percent: u8,
    },
}

/// An endless source that assigns identities to contents.
pub trait Endless: Source {
    /// All content identities given so far are below this one and above the base.
    fn content_end(&self) -> u64;
}

/// All parameters that determine the stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkloadConfig {
    /// Distribution of the addresses of requests.
    pub pattern: Pattern,
    /// Percentage of requests that read.
    pub read_percent: u8,
    /// Pages of 4 KiB in a request.
    pub request_pages: u32,
    /// Contents of the writes.
    pub content: ContentModel,
    /// Logical pages; every address is below this.
    pub addressable: u64,
    /// Seed of all draws.
    pub seed: u64,
    /// Contents get identities larger than this. With the same base two workloads share contents; a
    /// second one with separate contents begins at the first one's [`Workload::content_end`] - 1.
    pub content_base: u64,
}

/// An impossible workload, its aging, arrivals or precision, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(String);

impl WorkloadError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// An endless source of page operations.
pub struct Workload {
    config: WorkloadConfig,
    units: u64,
    place: PatternState,
    reads: Chance,
    requests: Xoshiro256PlusPlus,
    contents: Contents,
}

/// The state of a [`Pattern`]; yields units.
enum PatternState {
    Random,
    Sequential {
        next: u64,
    },
    Zipf {
        ranks: Zipf,
        stride: u64,
    },
    HotCold {
        hot: u64,
        is_hot: Chance,
        stride: u64,
    },
}

impl Workload {
    /// Creates a workload before its first request.
    ///
    /// # Errors
    /// A value is out of range; the message names it, and the range.
    pub fn new(config: WorkloadConfig) -> Result<Self, WorkloadError> {
        let WorkloadConfig {
            addressable,
            request_pages,
            read_percent,
            ..
        } = config;

        // Checked here and not in the command line parser: workloads are also created in code.
        if addressable == 0 {
            return Err(WorkloadError::new(
                "a workload needs at least one addressable page",
            ));
        }

        if request_pages == 0 || u64::from(request_pages) > addressable {
            return Err(WorkloadError::new(format!(
                "a request of {request_pages} pages does not fit: 1 to {addressable} are possible"
            )));
        }

        if read_percent > 100 {
            return Err(WorkloadError::new(format!(
                "{read_percent} % reads: at most 100"
            )));
        }

        // The last unit may be shorter than the others.
        let units = addressable.div_ceil(request_pages.into());
        let requests = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        // The contents' generator starts 2^128 steps later, so that the two never overlap.
        let mut draws = requests.clone();
        draws.jump();

        Ok(Self {
            config,
            units,
            place: PatternState::new(config.pattern, units)?,
            reads: Chance::of(f64::from(read_percent) / 100.0),
            requests,
            contents: Contents::new(config.content, addressable, config.content_base, draws)?,
        })
    }

    fn append_request(&mut self, out: &mut Vec<HostPage>) {
        // From the requests' own generator: addresses do not depend on contents.
        let read = self.reads.happens(&mut self.requests);
        let unit = self.place.next(self.units, &mut self.requests);

        let WorkloadConfig {
            addressable,
            request_pages,
            ..
        } = self.config;

        let first = unit * u64::from(request_pages);
        // The range may end within the last unit.
        let left = u32::try_from(addressable - first).unwrap_or(u32::MAX);
        let len = request_pages.min(left);
        let first = HostLpn::new(first);
        let last = first.offset(len - 1);

        for lpn in HostLpn::range(first, len) {
            let (kind, content) = if read {
                (PageKind::Read, 0)
            } else {
                (PageKind::Write, self.contents.next(lpn))
            };

            out.push(HostPage {
                at_ns: 0,
                content,
                lpn,
                kind,
                last: lpn == last,
            });
        }
    }
}

impl Source for Workload {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        // At least one whole request: it may be more than wanted.
        let full = out.len() + want.max(1);
        while out.len() < full {
            self.append_request(out);
        }
        Ok(true)
    }
}

impl Endless for Workload {
    fn content_end(&self) -> u64 {
        self.contents.end()
    }
}

impl PatternState {
    fn new(pattern: Pattern, units: u64) -> Result<Self, WorkloadError> {
        Ok(match pattern {
            Pattern::Random => PatternState::Random,
            Pattern::Sequential => PatternState::Sequential { next: 0 },
            Pattern::Zipf { theta } => PatternState::Zipf {
                ranks: Zipf::new(units, theta)?,
                stride: stride(units),
            },
            Pattern::HotCold {
                data_percent,
                request_percent,
            } => {
                if [data_percent, request_percent]
                    .iter()
                    .any(|percent| !(1..=99).contains(percent))
                {
                    return Err(WorkloadError::new(format!(
                        "{data_percent} % hot data with {request_percent} % of the requests: 1 to 99 are possible"
                    )));
                }
                // Some, but not all; of a single unit all requests are hot.
                let hot = (units * u64::from(data_percent)).div_ceil(100);
                let hot = hot.min(units - 1).max(1);
                let share = f64::from(request_percent) / 100.0;
                PatternState::HotCold {
                    hot,
                    is_hot: Chance::of(if hot == units { 1.0 } else { share }),
                    stride: stride(units),
                }
            }
        })
    }

    fn next(&mut self, units: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            PatternState::Random => below_any(units, rng),
            PatternState::Sequential { next } => {
                let unit = *next;
                *next = if unit + 1 == units { 0 } else { unit + 1 };
                unit
            }
            PatternState::Zipf { ranks, stride } => scattered(ranks.draw(rng) - 1, *stride, units),
            PatternState::HotCold {
                hot,
                is_hot,
                stride,
            } => {
                let rank = if is_hot.happens(rng) {
                    below_any(*hot, rng)
                } else {
                    *hot + below_any(units - *hot, rng)
                };
                scattered(rank, *stride, units)
            }
        }
    }
}

/// The unit of a rank that counts from 0. Popular units are not neighbours.
fn scattered(rank: u64, stride: u64, units: u64) -> u64 {
    match rank.checked_mul(stride) {
        Some(product) => product % units,
        // More than 2^32 units.
        None => (u128::from(rank) * u128::from(stride) % u128::from(units)) as u64,
    }
}

/// A step near `units` / golden ratio without a common divisor: ranks this far apart visit every
/// unit once, and the hottest ones are distributed as evenly as possible.
pub(crate) fn stride(units: u64) -> u64 {
    const INVERSE_GOLDEN_RATIO: u128 = 2_654_435_769; // of 2^32
    let near = ((u128::from(units) * INVERSE_GOLDEN_RATIO) >> 32) as u64;
    let coprime = |&step: &u64| greatest_common_divisor(step, units) == 1;
    (near.max(1)..=units).find(coprime).unwrap_or(1)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_sequence_begins_again_after_its_last_unit_however_many_there_are() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for units in [(1 << 32) - 1, 1 << 32, (1 << 34) + 3] {
            let mut place = PatternState::Sequential { next: units - 2 };
            let next: Vec<u64> = (0..4).map(|_| place.next(units, &mut rng)).collect();
            assert_eq!(next, [units - 2, units - 1, 0, 1]);
        }
    }

    #[test]
    fn ranks_are_scattered_over_all_units_and_never_meet() {
        for units in [1000, (1 << 32) - 1, (1 << 32) + 1, 15_625_000_000, 1 << 35] {
            let stride = stride(units);
            assert_eq!(greatest_common_divisor(stride, units), 1);
            let ranks = (0..units.min(50_000)).chain(units - units.min(50_000)..units);
            let places = ranks.map(|rank| scattered(rank, stride, units));
            let places: HashSet<u64> = places.collect();
            assert_eq!(places.len() as u64, units.min(100_000));
            let part = units / 16;
            for sixteenth in 0..16 {
                let range = sixteenth * part..(sixteenth + 1) * part;
                assert!(places.iter().any(|place| range.contains(place)));
            }
            assert!(places.iter().all(|place| *place < units));
        }
    }
}
