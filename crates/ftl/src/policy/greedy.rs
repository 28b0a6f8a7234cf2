//! Greedy: the most garbage wins. One zone.

use super::Candidate;

/// The superblock with the most unreferenced pages, the oldest of several (FAST'21 §4.4).
pub fn victim(candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    candidates
        .filter(|candidate| candidate.garbage() > 0)
        .max_by_key(|candidate| (candidate.garbage(), std::cmp::Reverse(candidate.opened)))
}
