//! Cost-benefit victim selection, as in log-structured file systems (Rosenblum and Ousterhout 1992;
//! Kawaguchi 1995 for flash): the most garbage per page that must be read and programmed again,
//! weighted by age. One zone.
//!
//! Age is the number of sequence numbers since the superblock was opened: the device's own time,
//! kept for every superblock.

use super::VictimCandidate;
use std::cmp::Reverse;

/// The candidate with the largest `age * garbage / (2 * live)`; empty ones first, and of several
/// the oldest.
pub(super) fn victim(
    candidates: impl Iterator<Item = VictimCandidate>,
    now: u64,
) -> Option<VictimCandidate> {
    let score = |candidate: &VictimCandidate| {
        let age = u128::from(now.saturating_sub(candidate.opened)) + 1;
        // 42, 21 and 32 bits: no overflow.
        ((age * u128::from(candidate.garbage())) << 32) / u128::from((2 * candidate.live).max(1))
    };
    candidates
        .filter(|candidate| candidate.garbage() > 0)
        .max_by_key(|candidate| {
            (
                candidate.live == 0,
                score(candidate),
                Reverse(candidate.opened),
            )
        })
}
