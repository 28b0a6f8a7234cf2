//! Cost-benefit, as log-structured file systems choose (Rosenblum and Ousterhout 1992; Kawaguchi
//! 1995 for flash): the most garbage for each page that must be read and programmed again, weighed
//! by age. One zone.
//!
//! Age is how many sequence numbers ago the superblock was opened: the device's own time, kept for
//! every superblock.

use super::VictimCandidate;
use std::cmp::Reverse;

/// The largest `age * garbage / (2 * live)`, an empty one before all others, the oldest of several.
pub fn victim(
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
