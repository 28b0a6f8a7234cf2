//! d-choices victim selection: the most garbage among a few random superblocks. One zone.
//!
//! It needs no order of all superblocks, and its write amplification is known in closed form (Van Houdt,
//! SIGMETRICS 2013).

use super::VictimCandidate;

/// The superblock with the most unreferenced pages of `choices` ones, any of several: the oldest would be the coldest, and
/// theory does not prefer it. The draw depends on `now` alone, so that a run repeats.
pub(super) fn victim(
    candidates: impl Iterator<Item = VictimCandidate>,
    choices: u32,
    now: u64,
) -> Option<VictimCandidate> {
    let choices = choices as usize;
    // Those with the smallest of random numbers are a sample without repetition.
    let mut drawn: Vec<(u64, VictimCandidate)> = Vec::with_capacity(choices + 1);
    for candidate in candidates.filter(|candidate| candidate.garbage() > 0) {
        let number = mixed(now ^ mixed(u64::from(candidate.sb.0)));
        let place = drawn.partition_point(|(other, _)| *other < number);
        if place < choices {
            drawn.insert(place, (number, candidate));
            drawn.truncate(choices);
        }
    }

    let drawn = drawn.into_iter().map(|(_, candidate)| candidate);
    drawn.max_by_key(VictimCandidate::garbage)
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `value`.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
