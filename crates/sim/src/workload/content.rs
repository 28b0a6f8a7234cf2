//! Contents of writes: identities, with the duplicates of a model.
//!
//! Invariants: fresh identities and drawn ones are disjoint; a page costs a constant number of
//! draws; no identity is at or below the base. Absent: which contents are still on flash. A
//! duplicate here is a duplicate to the host; whether it is found depends on the device.

use remap_ssd_device::HostLpn;
use std::fmt;
use std::str::FromStr;

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::draw::{Chance, below};
use super::measured::{Copies, Measured};
use super::present::{Drawn, NOTHING, Present};
use super::runs::Runs;
use super::{WorkloadError, Zipf};

/// Source of the contents of writes.
///
/// As text: `papers:RATIO[:EXPONENT]`, `plain:SHARE`, `repeat:SHARE`, `runs:SHARE[:PAGES]`,
/// `history:SHARE`, `measured:COPIES@SHARE[:...]` or `unique`.
///
/// ```
/// use remap_ssd_sim::workload::ContentModel;
/// let model: ContentModel = "papers:0.3".parse().unwrap();
/// assert_eq!(model, ContentModel::Papers { duplicate_ratio: 0.3, exponent: 0.2 });
/// assert_eq!(model.to_string(), "papers:0.3:0.2");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum ContentModel {
    /// The published evaluations' "10 % / 30 % duplicate data": *every* write draws a content out
    /// of `(1 - duplicate_ratio) x logical pages`, the i-th with probability proportional to
    /// `i^-exponent`. On a full device about two thirds of such writes find their content there.
    Papers {
        /// 0.1 and 0.3 are the published values.
        duplicate_ratio: f64,
        /// 0.2 is the published value.
        exponent: f64,
    },
    /// This share of writes repeats the present content of a page chosen at random; the others are
    /// new. Needs eight bytes of memory per logical page.
    Plain {
        /// Share of duplicate writes, 0 to 1.
        duplicate_share: f64,
    },
    /// This share of writes repeats the content of the previous write; the others are new. FIO's
    /// `dedupe_percentage` does so by default (`dedupe_mode=repeat`): copies are written one after
    /// the other and belong to different pages.
    Repeat {
        /// Share of duplicate writes, 0 to 1.
        duplicate_share: f64,
    },
    /// Writes come in runs of `pages` pages; this share of the runs repeats the present contents of
    /// a run of pages chosen at random, the others are new. Needs eight bytes of memory per logical
    /// page.
    Runs {
        /// Share of duplicate writes, 0 to 1.
        duplicate_share: f64,
        /// Pages of a run of duplicates.
        pages: u32,
    },
    /// This share of writes repeats the content of an earlier write, whose distance is uniform on a
    /// logarithmic scale up to 2^21 writes (8 GiB; fewer on a device of less than 256 GiB: a 32nd
    /// of the logical pages); the others are new. This is the share as described for the FIU
    /// traces: the content was written before, whether or not it is still stored.
    History {
        /// Share of duplicate writes, 0 to 1.
        duplicate_share: f64,
    },
    /// Contents are written as many times as measured in a trace with digests. How far apart was
    /// not measured: a content's copies are spread over about as many writes as the device has
    /// logical pages. Needs at most eight bytes of memory per logical page.
    Measured {
        /// How many times contents are written.
        copies: Copies,
    },
    /// Each write has a unique content.
    #[default]
    Unique,
}

impl ContentModel {
    /// The exponent of the published evaluations.
    pub const PAPERS_EXPONENT: f64 = 0.2;
    /// Default pages of a run: 256 KiB.
    pub(crate) const RUN_PAGES: u32 = 64;
}

impl fmt::Display for ContentModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentModel::Papers {
                duplicate_ratio,
                exponent,
            } => {
                write!(f, "papers:{duplicate_ratio}:{exponent}")
            }
            ContentModel::Plain { duplicate_share } => write!(f, "plain:{duplicate_share}"),
            ContentModel::Repeat { duplicate_share } => write!(f, "repeat:{duplicate_share}"),
            ContentModel::Runs {
                duplicate_share,
                pages,
            } => write!(f, "runs:{duplicate_share}:{pages}"),
            ContentModel::History { duplicate_share } => write!(f, "history:{duplicate_share}"),
            ContentModel::Measured { copies } => write!(f, "measured:{copies}"),
            ContentModel::Unique => f.write_str("unique"),
        }
    }
}

impl FromStr for ContentModel {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        if let Some(copies) = text.strip_prefix("measured:") {
            let copies = copies.parse()?;
            return Ok(ContentModel::Measured { copies });
        }
        let fields: Vec<&str> = text.split(':').collect();

        let number = |field: &str| {
            let wrong = |_| WorkloadError::new(format!("`{field}` in `{text}` is not a number"));
            // The models check the ranges: here only the text is parsed.
            field.parse::<f64>().map_err(wrong)
        };

        Ok(match fields[..] {
            ["unique"] => ContentModel::Unique,
            ["plain", share] => ContentModel::Plain {
                duplicate_share: number(share)?,
            },
            ["repeat", share] => ContentModel::Repeat {
                duplicate_share: number(share)?,
            },
            ["runs", share] => ContentModel::Runs {
                duplicate_share: number(share)?,
                pages: Self::RUN_PAGES,
            },
            ["runs", share, pages] => {
                let wrong = |_| {
                    WorkloadError::new(format!("`{pages}` in `{text}` is not a number of pages"))
                };
                ContentModel::Runs {
                    duplicate_share: number(share)?,
                    pages: pages.parse().map_err(wrong)?,
                }
            }
            ["history", share] => ContentModel::History {
                duplicate_share: number(share)?,
            },
            ["papers", ratio] => ContentModel::Papers {
                duplicate_ratio: number(ratio)?,
                exponent: Self::PAPERS_EXPONENT,
            },
            ["papers", ratio, exponent] => ContentModel::Papers {
                duplicate_ratio: number(ratio)?,
                exponent: number(exponent)?,
            },
            _ => {
                return Err(WorkloadError::new(format!(
                    "unknown content model `{text}`: papers:RATIO[:EXPONENT], plain:SHARE, repeat:SHARE, \
                     runs:SHARE[:PAGES], history:SHARE, measured:COPIES@SHARE[:...] or unique"
                )));
            }
        })
    }
}

/// The state of a [`ContentModel`].
pub(super) struct Contents {
    base: u64,
    /// Next fresh identity.
    fresh: u64,
    rng: Xoshiro256PlusPlus,
    source: From,
}

enum From {
    Drawn(Zipf),
    Repeated {
        chance: Chance,
        present: Present,
        newest: u64,
    },
    Before {
        chance: Chance,
        newest: u64,
    },
    Runs(Runs),
    Earlier {
        chance: Chance,
        history: History,
    },
    Measured(Measured),
    New,
}

impl Contents {
    pub(super) fn new(
        model: ContentModel,
        addressable: u64,
        base: u64,
        rng: Xoshiro256PlusPlus,
    ) -> Result<Self, WorkloadError> {
        Self::repeating(Drawn::Addressable, model, addressable, base, rng)
    }

    /// With the pages whose contents `plain` and `runs` repeat.
    pub(super) fn repeating(
        repeated: Drawn,
        model: ContentModel,
        addressable: u64,
        base: u64,
        rng: Xoshiro256PlusPlus,
    ) -> Result<Self, WorkloadError> {
        let mut drawn = 0;

        // Tables have one entry per address, so memory is known before the first write.
        let source = match model {
            ContentModel::Unique => From::New,
            ContentModel::Plain { duplicate_share } => {
                check("duplicate share", duplicate_share)?;
                From::Repeated {
                    chance: Chance::of(duplicate_share),
                    present: Present::new(repeated, addressable)?,
                    newest: NOTHING,
                }
            }
            ContentModel::Repeat { duplicate_share } => {
                check("duplicate share", duplicate_share)?;
                From::Before {
                    chance: Chance::of(duplicate_share),
                    newest: NOTHING,
                }
            }
            ContentModel::Runs {
                duplicate_share,
                pages,
            } => {
                check("duplicate share", duplicate_share)?;

                // A run longer than the device could never be repeated.
                if pages == 0 || u64::from(pages) > addressable {
                    return Err(WorkloadError::new(format!(
                        "runs of {pages} pages: 1 to {addressable} are possible"
                    )));
                }

                let present = Present::new(repeated, addressable)?;
                From::Runs(Runs::new(Chance::of(duplicate_share), pages, present))
            }
            ContentModel::History { duplicate_share } => {
                check("duplicate share", duplicate_share)?;
                From::Earlier {
                    chance: Chance::of(duplicate_share),
                    history: History::new(addressable),
                }
            }
            ContentModel::Measured { copies } => From::Measured(Measured::new(copies, addressable)),
            ContentModel::Papers {
                duplicate_ratio,
                exponent,
            } => {
                check("duplicate ratio", duplicate_ratio)?;

                // The papers' ratio counts distinct contents per page; this is their number.
                drawn = ((1.0 - duplicate_ratio) * addressable as f64)
                    .round()
                    .max(1.0) as u64;
                From::Drawn(Zipf::new(drawn, exponent)?)
            }
        };

        Ok(Self {
            base,
            // Fresh identities begin after the drawn ones: the two are disjoint.
            fresh: base + drawn + 1,
            rng,
            source,
        })
    }

    /// Returns the content that the next write stores in `lpn`.
    #[inline]
    pub(super) fn next(&mut self, lpn: HostLpn) -> u64 {
        match &mut self.source {
            From::Drawn(ranks) => self.base + ranks.draw(&mut self.rng),
            From::New => take(&mut self.fresh),
            From::Before { chance, newest } => {
                // The first write has no predecessor.
                if !chance.happens(&mut self.rng) || *newest == NOTHING {
                    *newest = take(&mut self.fresh);
                }
                *newest
            }
            From::Runs(runs) => {
                let content = runs
                    .repeated(lpn, &mut self.rng)
                    .unwrap_or_else(|| take(&mut self.fresh));

                // Recorded even if repeated: a later run may begin at this copy.
                runs.note(lpn, content);
                content
            }
            From::Earlier { chance, history } => {
                // Drawn even without history, so that later draws stay in step.
                let content = if chance.happens(&mut self.rng) && history.written > 0 {
                    history.draw(&mut self.rng)
                } else {
                    take(&mut self.fresh)
                };

                history.push(content);
                content
            }
            From::Measured(measured) => {
                let fresh = &mut self.fresh;
                measured.draw(&mut self.rng, || take(fresh))
            }
            From::Repeated {
                chance,
                present,
                newest,
            } => {
                // Drawn before the decision, needed or not: a page costs a constant number of
                // draws.
                let other = present.draw(1, &mut self.rng);

                let content = if chance.happens(&mut self.rng) && *newest != NOTHING {
                    // A page not written yet has nothing to repeat: the newest content is used
                    // instead.
                    present.of(other).unwrap_or(*newest)
                } else {
                    take(&mut self.fresh)
                };

                // The old content of the address is gone: only stored contents can be repeated.
                present.set(lpn, content);
                *newest = content;
                content
            }
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.fresh
    }
}

/// The contents of the latest writes.
struct History {
    /// A power of two of them, the oldest overwritten first.
    ring: Vec<u64>,
    written: u64,
}

/// Length of the history in writes: 8 GiB, fewer on a small device.
const HISTORY_WRITES_MAX: u64 = 1 << 21;
const HISTORY_WRITES_MIN: u64 = 1 << 10;
const PAGES_PER_HISTORY_WRITE: u64 = 32;

impl History {
    fn new(addressable: u64) -> Self {
        let writes =
            (addressable / PAGES_PER_HISTORY_WRITE).clamp(HISTORY_WRITES_MIN, HISTORY_WRITES_MAX);
        Self {
            ring: vec![NOTHING; 1 << writes.ilog2()],
            written: 0,
        }
    }

    #[inline]
    fn push(&mut self, content: u64) {
        // The ring is a power of two long, so that a mask is enough.
        let at = self.written as usize & (self.ring.len() - 1);
        self.ring[at] = content;
        self.written += 1;
    }

    /// Draws an earlier content: a uniform octave of distances, then a uniform distance in it.
    /// Distances before the first write are drawn again.
    #[inline]
    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let octaves = self.ring.len().ilog2();
        loop {
            let octave = below(octaves, rng);
            let distance = (1 << octave) + below(1 << octave, rng);
            if u64::from(distance) <= self.written {
                return self.ring
                    [(self.written - u64::from(distance)) as usize & (self.ring.len() - 1)];
            }
        }
    }
}

fn take(fresh: &mut u64) -> u64 {
    let identity = *fresh;
    *fresh += 1;
    identity
}

fn check(name: &str, share: f64) -> Result<(), WorkloadError> {
    if (0.0..=1.0).contains(&share) {
        Ok(())
    } else {
        Err(WorkloadError::new(format!(
            "a {name} of {share}: 0 to 1 are possible"
        )))
    }
}
