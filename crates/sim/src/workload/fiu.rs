//! Models of the FIU traces *homes*, *mail* and *web-vm*, from their published statistics and
//! excerpts.
//!
//! Source: Koller and Rangaswami, *I/O Deduplication*, FAST'10: three weeks of a research group's
//! home directories, a mail server, and a host of two web servers. Only excerpts of some hundred
//! requests are available without registration.
//!
//! **Taken from published statistics**: the share of writes (of the 15th day), the share of writes
//! whose content was written before (in a slice of 8 GiB), and the working set in GiB.
//!
//! **Fitted to the excerpts** (1,000 requests each; `tests/all/models.rs` repeats the comparison):
//!
//! - *Sizes*: each record is one block of 4 KiB, so each request has one page.
//! - *Sequentiality*: lengths of runs of adjacent blocks follow Zipf's law, up to the longest seen.
//!   Exponents by the mean length of a run: homes 1.81 (exponent 2.4, up to 32), web-vm 5.85 (1.6,
//!   up to 89). The excerpt of mail has 984 reads by one program and 16 writes, too few to fit: its
//!   mean of 2.7 gives an exponent of 1.9.
//! - *Popularity of addresses*: starts of runs are drawn by Zipf's law over the pages of the
//!   working set, scattered. Its exponent is fitted so that 1,000 writes rewrite as many pages as
//!   in the excerpt (homes 129, web-vm 86). Mail's is assumed to be between those.
//! - *Popularity of contents*: a duplicate repeats the content of an earlier write, at a distance
//!   that is uniform on a logarithmic scale up to 8 GiB of writes
//!   ([`super::ContentModel::History`]). Of homes' 33.5 % duplicates this leaves about 15 % within
//!   1,000 writes, where the excerpt has 17.1 %; the median distance is 26 in both. Web-vm's
//!   excerpt has too many (15.5 % of all writes are duplicates, against 9 %): it is nearly all of
//!   one journal.
//!
//! - *Times* ([`super::bursts`]), for runs in which requests arrive at their own times: 0.89
//!   requests per second for homes and 3.1 for web-vm. Mail's are those of both excerpts together,
//!   1,122 requests of two busy seconds each: 308 per second, which is not a daily mean.
//!
//! Invariants: pages are below the working set, which starts at the device's first page. Reads and
//! writes have the same distribution. Absent: daily patterns; rewrites that leave a page unchanged
//! (59 of web-vm's 86, 22 of homes' 129 in the excerpts: in the long run the published shares
//! exclude as many).

use rand_xoshiro::Xoshiro256PlusPlus;

use super::bursts::{BurstFacts, Bursts};
use super::draw::Chance;
use super::script::{Scale, Script, Steps};
use super::space::PageExtent;
use super::{ContentModel, WorkloadError, Zipf, stride};

/// Parameters of a trace.
pub(super) struct Facts {
    pub about: &'static str,
    working_set_gib: f64,
    write_share: f64,
    duplicate_share: f64,
    theta: f64,
    /// Zipf exponent of run lengths, and the longest.
    run_exponent: f64,
    run_pages_max: u32,
    bursts: BurstFacts,
}

pub(super) const HOMES: Facts = Facts {
    about: "FIU homes: 80.5 % writes, 33.5 % of them duplicates, 17.4 GiB working set (FAST'21 figure 6)",
    working_set_gib: 17.4,
    write_share: 0.805,
    duplicate_share: 0.335,
    theta: 0.97,
    run_exponent: 2.4,
    run_pages_max: 32,
    bursts: BurstFacts {
        exponent: 1.536,
        requests_max: 198,
        interval_ns: 91_806.0,
        pause_max_s: 132.2,
    },
};

pub(super) const MAIL: Facts = Facts {
    about: "FIU mail: 78.5 % writes, 88.0 % of them duplicates, 56.2 GiB working set (FAST'21 figure 6)",
    working_set_gib: 56.2,
    write_share: 0.785,
    duplicate_share: 0.88,
    theta: 0.98,
    run_exponent: 1.9,
    run_pages_max: 32,
    bursts: BurstFacts {
        exponent: 0.640,
        requests_max: 80,
        interval_ns: 35_843.0,
        pause_max_s: 0.541,
    },
};

pub(super) const WEBVM: Facts = Facts {
    about: "FIU web-vm: 69.8 % writes, 20.0 % of them duplicates, 2.1 GiB working set",
    working_set_gib: 2.1,
    write_share: 0.698,
    duplicate_share: 0.2,
    theta: 0.99,
    run_exponent: 1.6,
    run_pages_max: 89,
    bursts: BurstFacts {
        exponent: 1.568,
        requests_max: 211,
        interval_ns: 56_894.0,
        pause_max_s: 31.3,
    },
};

impl Facts {
    pub(super) fn content(&self) -> ContentModel {
        ContentModel::History {
            duplicate_share: self.duplicate_share,
        }
    }

    pub(super) fn bursts(&self) -> Bursts {
        Bursts::new(self.bursts)
    }
}

pub(super) struct Fiu {
    pages: u32,
    writes: Chance,
    starts: Zipf,
    stride: u64,
    lengths: Zipf,
    rng: Xoshiro256PlusPlus,
}

/// Pages of 4 KiB, the unit of its requests.
const PAGES_PER_GIB: f64 = 262_144.0;

impl Fiu {
    pub(super) fn new(facts: &Facts, scale: &Scale) -> Result<Self, WorkloadError> {
        let pages = scale.of(facts.working_set_gib * PAGES_PER_GIB, facts.run_pages_max);
        scale.needs(pages.into())?;
        Ok(Self {
            pages,
            writes: Chance::of(facts.write_share),
            starts: Zipf::new(pages.into(), facts.theta)?,
            stride: stride(pages.into()),
            lengths: Zipf::new(facts.run_pages_max.into(), facts.run_exponent)?,
            rng: scale.rng.clone(),
        })
    }
}

impl Script for Fiu {
    fn step(&mut self, steps: &mut Steps) {
        let write = self.writes.happens(&mut self.rng);

        // Scattered: the most popular runs are no neighbours.
        let rank_z = self.starts.draw(&mut self.rng) - 1;
        let first = (rank_z * self.stride % u64::from(self.pages)) as u32;

        // Runs end at the end of the working set.
        let end = (first + self.lengths.draw(&mut self.rng) as u32).min(self.pages);

        // A record of these traces is one block, so each page is a request.
        for first in first..end {
            let page = PageExtent { first, len: 1 };
            if write {
                steps.write(page)
            } else {
                steps.read(page)
            }
        }
    }
}
