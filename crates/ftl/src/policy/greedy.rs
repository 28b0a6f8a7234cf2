//! Greedy victim selection: the most garbage wins. One zone.

use super::VictimCandidate;
use std::cell::Cell;
use std::cmp::Reverse;

/// The superblock with the most unreferenced pages, the oldest of several (FAST'21 §4.4). Raises
/// `least` to the garbage of the best candidate so far.
pub(super) fn victim(
    candidates: impl Iterator<Item = VictimCandidate>,
    least: &Cell<u32>,
) -> Option<VictimCandidate> {
    let rank = |candidate: &VictimCandidate| (candidate.garbage(), Reverse(candidate.opened));
    let mut best = None;
    for candidate in candidates {
        let wins = best
            .as_ref()
            .is_none_or(|best| rank(&candidate) >= rank(best));
        if candidate.garbage() > 0 && wins {
            least.set(candidate.garbage());
            best = Some(candidate);
        }
    }
    best
}
