//! Pages of a volatile write buffer that leave it together: those of untorn writes.
//!
//! Writes overlap. If one of them has overwritten a page of another, neither may land without the rest of both: their pages are one
//! set. A page stays in its set when it is written again, and leaves it when something durable supersedes it.
//!
//! Invariant: the sets are disjoint. Absent: the pages, and when they leave.

use remap_ssd_media::Lpn;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The sets by number.
#[derive(Default)]
pub(crate) struct PageSets {
    sets: BTreeMap<u64, BTreeSet<Lpn>>,
    of: BTreeMap<Lpn, u64>,
    last: u64,
}

impl PageSets {
    /// The set of a page, if it has others.
    pub(crate) fn of(&self, lpn: Lpn) -> Option<u64> {
        let set = self.of.get(&lpn).copied()?;
        (self.sets[&set].len() > 1).then_some(set)
    }

    /// The pages of a set, in order.
    pub(crate) fn pages(&self, set: u64) -> impl Iterator<Item = Lpn> {
        self.sets[&set].iter().copied()
    }

    /// Pages outside of a range that are in a set with one inside.
    pub(crate) fn beside(&self, lpns: &Range<Lpn>) -> Vec<Lpn> {
        let sets: BTreeSet<u64> = self.of.range(lpns.clone()).map(|(_, set)| *set).collect();
        let pages = sets.iter().flat_map(|set| self.pages(*set));
        pages.filter(|lpn| !lpns.contains(lpn)).collect()
    }

    /// Makes one set of the pages of a range and of all that are in a set with them.
    pub(crate) fn join(&mut self, lpns: Range<Lpn>) {
        let beside = self.beside(&lpns);
        self.last += 1;
        for lpn in Lpn::between(lpns).chain(beside) {
            self.leave(lpn);
            self.of.insert(lpn, self.last);
            self.sets.entry(self.last).or_default().insert(lpn);
        }
    }

    /// A page leaves its set.
    pub(crate) fn leave(&mut self, lpn: Lpn) {
        let Some(set) = self.of.remove(&lpn) else {
            return;
        };
        if let Some(pages) = self.sets.get_mut(&set) {
            pages.remove(&lpn);
            if pages.is_empty() {
                self.sets.remove(&set);
            }
        }
    }
}
