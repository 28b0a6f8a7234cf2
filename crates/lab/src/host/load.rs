//! Load of the host software: writes with a given ratio of duplicates, and a mail server's
//! requests.
//!
//! ```text
//! ratio:R            random writes; all but one in R have the content of a page drawn uniformly among those written so far
//! mail:R[:READS]     pages, runs and reads as in the model of the FIU trace "mail"; R as above, but an earlier content at the
//!                    model's distances; READS: fraction of reads, the additional ones of recently requested pages
//! ```
//! Invariant: one seed, one sequence. Absent: times of day.

use crate::RunError;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::PageKind;
use remap_ssd_sim::source::{HostPage, Source};
use remap_ssd_sim::workload::{ContentModel, ModelKind, ModelSpec};
use std::collections::VecDeque;
use std::str::FromStr;

/// Recent requests from which the additional reads are drawn.
const RECENT: usize = 1 << 16;
/// Pages requested from the model at a time.
const BATCH: usize = 1024;

/// One request of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Writes a content to a page.
    Write {
        page: u32,
        content: u64,
    },
    Read {
        page: u32,
    },
}

/// A load by its model and parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoadSpec {
    /// Random writes of this deduplication ratio.
    Ratio(f64),
    /// A mail server's, of this ratio; fraction of reads, if not the model's.
    Mail { ratio: f64, reads: Option<f64> },
}

impl FromStr for LoadSpec {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        let wrong = || {
            format!(
                "unknown load `{text}`: ratio:R or mail:R[:READS], R at least 1, READS a share below 1"
            )
        };

        let fields: Vec<&str> = text.split(':').collect();
        let number = |field: &str| field.parse::<f64>().map_err(|_| wrong());
        let ratio = |field: &str| {
            number(field).and_then(|ratio| {
                if ratio >= 1.0 {
                    Ok(ratio)
                } else {
                    Err(wrong())
                }
            })
        };

        match fields[..] {
            ["ratio", of] => Ok(Self::Ratio(ratio(of)?)),
            ["mail", of] => Ok(Self::Mail {
                ratio: ratio(of)?,
                reads: None,
            }),

            ["mail", of, reads] => {
                let reads = number(reads)
                    .ok()
                    .filter(|reads| (0.0..1.0).contains(reads))
                    .ok_or_else(wrong)?;
                Ok(Self::Mail {
                    ratio: ratio(of)?,
                    reads: Some(reads),
                })
            }
            _ => Err(wrong().into()),
        }
    }
}

/// A load, before its first request.
pub(super) enum Load {
    Random {
        duplicates: f64,
        pages: u32,
        written: Vec<u64>,
        fresh: u64,
        random: Xoshiro256PlusPlus,
    },
    Mail(Box<Mail>),
}

/// The model, with additional reads.
pub(super) struct Mail {
    model: Box<dyn Source + Send>,
    pages: VecDeque<HostPage>,
    recent: VecDeque<u32>,
    /// Target fraction of reads.
    wanted: Option<f64>,
    reads: u64,
    requests: u64,
    random: Xoshiro256PlusPlus,
}

impl Load {
    /// Creates the load over this number of pages.
    ///
    /// # Errors
    /// The model needs more pages.
    pub(super) fn new(spec: LoadSpec, pages: u32, seed: u64) -> Result<Self, RunError> {
        // The constant is "load" in ASCII: the model uses the same seed, and must have other draws.
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6c6f_6164);
        match spec {
            LoadSpec::Ratio(ratio) => Ok(Self::Random {
                duplicates: 1.0 - 1.0 / ratio,
                pages,
                written: Vec::new(),
                fresh: 0,
                random,
            }),
            LoadSpec::Mail { ratio, reads } => {
                let content = ContentModel::History {
                    duplicate_share: 1.0 - 1.0 / ratio,
                };
                let model =
                    ModelSpec::new(ModelKind::FiuMail).source(content, pages.into(), seed, 0);

                let mail = Mail {
                    model: Box::new(model?),
                    pages: VecDeque::new(),
                    recent: VecDeque::with_capacity(RECENT),
                    wanted: reads,
                    reads: 0,
                    requests: 0,
                    random,
                };

                Ok(Self::Mail(Box::new(mail)))
            }
        }
    }

    /// Returns the next request.
    ///
    /// # Errors
    /// The model has none.
    pub(super) fn next(&mut self) -> Result<Request, RunError> {
        match self {
            Self::Random {
                duplicates,
                pages,
                written,
                fresh,
                random,
            } => {
                let content = if !written.is_empty() && random.random_bool(*duplicates) {
                    written[random.random_range(0..written.len())]
                } else {
                    *fresh += 1;
                    *fresh
                };

                // Few of these contents have been overwritten: there are many more pages than
                // writes.
                written.push(content);
                Ok(Request::Write {
                    page: random.random_range(0..*pages),
                    content,
                })
            }
            Self::Mail(mail) => mail.next(),
        }
    }
}

impl Mail {
    fn next(&mut self) -> Result<Request, RunError> {
        self.requests += 1;
        // Inserts a read whenever reads are below their fraction, so that it is right at any time.
        let behind = |wanted: f64| (self.reads as f64) < wanted * self.requests as f64;
        if self.wanted.is_some_and(behind) && !self.recent.is_empty() {
            self.reads += 1;
            return Ok(Request::Read {
                page: self.recent[self.random.random_range(0..self.recent.len())],
            });
        }

        while self.pages.is_empty() {
            let mut more = Vec::new();
            if !self.model.fill(&mut more, BATCH)? {
                return Err("the model has ended".into());
            }
            self.pages.extend(more);
        }
        let page = self.pages.pop_front().expect("the model has more");
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        // The device's unit is a page.
        let number = page.lpn.unit(0).0;
        self.recent.push_back(number);
        Ok(match page.kind {
            PageKind::Read => {
                self.reads += 1;
                Request::Read { page: number }
            }
            _ => Request::Write {
                page: number,
                content: page.content,
            },
        })
    }
}
