//! What garbage collection decides: which superblock to collect, where each page of it goes, how
//! worn a superblock to open for that.
//!
//! A policy is three pure functions, and any policy works with any scheme:
//!
//! ```text
//! candidates       -> victim
//! reference count  -> zone       pages of one zone share superblocks
//! zone             -> wear       open the least or the most worn free superblock
//! ```
//!
//! Invariants: a victim has garbage, so that collecting it gains space; a page with one reference
//! goes to the first zone under every policy. When the host waits for space, and to level wear, the
//! choice is not the policy's. Absent: moving pages (`gc`), and what a zone's superblocks are
//! called on flash (`superblock::Stream`).

mod cagc;
mod coldmap;
mod cost_benefit;
mod greedy;
mod victim;

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
pub use victim::{VictimCandidate, least_worn};

/// Zones of the policy that has most.
pub const ZONES_MAX: usize = 3;

/// How garbage collection chooses victims and places for their pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GcPolicy {
    /// The superblock with the most garbage; all pages go to one place (FAST'21 §4.4).
    #[default]
    #[serde(rename = "greedy")]
    Greedy,
    /// Garbage gained for each page moved, weighed by age.
    #[serde(rename = "cost-benefit")]
    CostBenefit,
    /// Coldmap: pages with several references go to superblocks chosen among the most worn.
    #[serde(rename = "coldmap")]
    Coldmap,
    /// CAGC: pages are kept apart by how many references they have.
    #[serde(rename = "cagc")]
    Cagc,
}

/// Which free superblock a zone is opened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wear {
    /// The one with the fewest erases.
    Least,
    /// The one with the most erases.
    Most,
}

impl GcPolicy {
    /// All policies, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Greedy, Self::CostBenefit, Self::Coldmap, Self::Cagc];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::CostBenefit => "cost-benefit",
            Self::Coldmap => "coldmap",
            Self::Cagc => "cagc",
        }
    }

    /// Zones that pages are sorted into.
    pub fn zones(self) -> usize {
        match self {
            Self::Greedy | Self::CostBenefit => 1,
            Self::Coldmap => coldmap::ZONES,
            Self::Cagc => cagc::ZONES,
        }
    }

    /// The zone of a page with so many references.
    pub fn zone(self, references: u32) -> usize {
        match self {
            Self::Greedy | Self::CostBenefit => 0,
            Self::Coldmap => coldmap::zone(references),
            Self::Cagc => cagc::zone(references),
        }
    }

    /// What a zone is opened on.
    pub fn wear(self, zone: usize) -> Wear {
        match self {
            Self::Greedy | Self::CostBenefit | Self::Cagc => Wear::Least,
            Self::Coldmap => coldmap::wear(zone),
        }
    }

    /// The superblock to collect at virtual time `now`, ahead of need. Raises `least` to the garbage
    /// that a candidate must have, as far as that is known: those with less need not be drawn.
    pub fn victim(
        self,
        candidates: impl Iterator<Item = VictimCandidate>,
        least: &Cell<u32>,
        now: u64,
    ) -> Option<VictimCandidate> {
        match self {
            Self::CostBenefit => cost_benefit::victim(candidates, now),
            Self::Greedy | Self::Coldmap | Self::Cagc => greedy::victim(candidates, least),
        }
    }

    /// The superblock to collect when the host waits for space: whatever gains most, since a policy
    /// that prefers old superblocks with little garbage could go on for ever without freeing one.
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
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                format!("no policy of garbage collection is named '{name}'; there are {known}")
            })
    }
}
