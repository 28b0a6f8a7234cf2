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
use remap_ssd_device::Lpn;
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
use draw::{Chance, below};

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
    /// Pages per request.
    pub request_pages: u32,
    /// Contents of the writes.
    pub content: ContentModel,
    /// Logical pages; every address is below this.
    pub addressable: u32,
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
    units: u32,
    place: PatternState,
    reads: Chance,
    requests: Xoshiro256PlusPlus,
    contents: Contents,
}

/// The state of a [`Pattern`]; yields units.
enum PatternState {
    Random,
    Sequential {
        next: u32,
    },
    Zipf {
        ranks: Zipf,
        stride: u32,
    },
    HotCold {
        hot: u32,
        is_hot: Chance,
        stride: u32,
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

        if request_pages == 0 || request_pages > addressable {
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
        let units = addressable.div_ceil(request_pages);
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

        let first = unit * request_pages;
        // The range may end within the last unit.
        let len = request_pages.min(addressable - first);
        let last = Lpn(first + len - 1);

        for lpn in Lpn::range(Lpn(first), len) {
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
    fn new(pattern: Pattern, units: u32) -> Result<Self, WorkloadError> {
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
                let hot = (u64::from(units) * u64::from(data_percent)).div_ceil(100) as u32;
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

    fn next(&mut self, units: u32, rng: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            PatternState::Random => below(units, rng),
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
                    below(*hot, rng)
                } else {
                    *hot + below(units - *hot, rng)
                };
                scattered(rank, *stride, units)
            }
        }
    }
}

/// The unit of a rank that counts from 0. Popular units are not neighbours.
fn scattered(rank: u32, stride: u32, units: u32) -> u32 {
    (u64::from(rank) * u64::from(stride) % u64::from(units)) as u32
}

/// A step near `units` / golden ratio without a common divisor: ranks this far apart visit every
/// unit once, and the hottest ones are distributed as evenly as possible.
pub(crate) fn stride(units: u32) -> u32 {
    const INVERSE_GOLDEN_RATIO: u64 = 2_654_435_769; // of 2^32
    let near = (u64::from(units) * INVERSE_GOLDEN_RATIO) >> 32;
    let coprime = |&step: &u32| greatest_common_divisor(step, units) == 1;
    (near.max(1) as u32..=units).find(coprime).unwrap_or(1)
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}
