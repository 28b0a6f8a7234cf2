//! Policies of garbage collection: the victim, the zone for each of its pages, and the wear of the
//! superblock to open for a zone.
//!
//! A policy consists of three pure functions, and any policy works with any scheme:
//!
//! ```text
//! candidates       -> victim
//! reference count  -> zone       pages of one zone share superblocks
//! zone             -> wear       open the least or the most worn free superblock
//! ```
//!
//! Invariants: a victim has garbage, so collecting it gains space; a page with one reference goes
//! to the first zone under every policy. The policy does not choose the victim when the host waits
//! for space, nor for wear levelling. Absent: moving pages (`gc`), and the names of zones on flash
//! (`superblock::Stream`).

mod cagc;
mod coldmap;
mod cost_benefit;
mod d_choices;
mod greedy;
mod victim;

use crate::error::UnknownChoice;
use crate::names;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
pub use victim::{VictimCandidate, least_worn};

/// Largest number of zones of any policy.
pub(crate) const ZONES_MAX: usize = 3;

/// Victim selection and placement of garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GcPolicy {
    /// The superblock with the most garbage; all pages go to one place (FAST'21 §4.4).
    #[default]
    #[serde(rename = "greedy")]
    Greedy,
    /// Garbage gained per page moved, weighted by age.
    #[serde(rename = "cost-benefit")]
    CostBenefit,
    /// Coldmap: shared pages go to superblocks chosen among the most worn.
    #[serde(rename = "coldmap")]
    Coldmap,
    /// CAGC: pages are separated by their number of references.
    #[serde(rename = "cagc")]
    Cagc,
    /// The superblock with the most garbage of some drawn at random (`gc_choices`).
    #[serde(rename = "d-choices")]
    DChoices,
}

/// The free superblock to open for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wear {
    /// The one with the fewest erases.
    Least,
    /// The one with the most erases.
    Most,
}

impl GcPolicy {
    /// All policies, in the order of help texts.
    pub const ALL: [Self; 5] = [
        Self::Greedy,
        Self::CostBenefit,
        Self::Coldmap,
        Self::Cagc,
        Self::DChoices,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::CostBenefit => "cost-benefit",
            Self::Coldmap => "coldmap",
            Self::Cagc => "cagc",
            Self::DChoices => "d-choices",
        }
    }

    /// Number of zones.
    pub fn zones(self) -> usize {
        match self {
            Self::Greedy | Self::CostBenefit | Self::DChoices => 1,
            Self::Coldmap => coldmap::ZONES,
            Self::Cagc => cagc::ZONES,
        }
    }

    /// The zone of a page with `references` references.
    pub fn zone(self, references: u32) -> usize {
        match self {
            Self::Greedy | Self::CostBenefit | Self::DChoices => 0,
            Self::Coldmap => coldmap::zone(references),
            Self::Cagc => cagc::zone(references),
        }
    }

    /// The wear of the superblock to open for a zone.
    pub fn wear(self, zone: usize) -> Wear {
        match self {
            Self::Greedy | Self::CostBenefit | Self::Cagc | Self::DChoices => Wear::Least,
            Self::Coldmap => coldmap::wear(zone),
        }
    }

    /// The superblock to collect ahead of need, at virtual time `now`; d-choices draws `choices` of them. Raises `least` to the
    /// garbage that a candidate must have, if known: candidates with less can be skipped.
    pub fn victim(
        self,
        candidates: impl Iterator<Item = VictimCandidate>,
        least: &Cell<u32>,
        choices: u32,
        now: u64,
    ) -> Option<VictimCandidate> {
        match self {
            Self::CostBenefit => cost_benefit::victim(candidates, now),
            Self::DChoices => d_choices::victim(candidates, choices, now),
            Self::Greedy | Self::Coldmap | Self::Cagc => greedy::victim(candidates, least),
        }
    }

    /// The superblock to collect when the host waits for space: the one that gains most, since a
    /// policy that prefers old superblocks with little garbage might never free one.
    pub fn victim_in_need(
        candidates: impl Iterator<Item = VictimCandidate>,
        least: &Cell<u32>,
    ) -> Option<VictimCandidate> {
        greedy::victim(candidates, least)
    }
}

impl fmt::Display for GcPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GcPolicy {
    type Err = UnknownChoice;
    fn from_str(name: &str) -> Result<Self, UnknownChoice> {
        names::find("policy of garbage collection", name, &Self::ALL, Self::name)
    }
}
