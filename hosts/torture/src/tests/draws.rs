//! Replay codes are seeds: what a number draws may not change.

use crate::contents::ZEROES;
use crate::cut::{Choice, DiskState, Version};
use std::collections::BTreeMap;

/// 40 blocks with one to four versions of 60 commands.
fn state() -> DiskState {
    let mut pending = BTreeMap::<u64, Vec<Version>>::new();
    for event in 0..60u32 {
        for block in [event * 7 % 40, event * event % 40] {
            let versions = pending.entry(block.into()).or_default();
            let content = event + 1;
            versions.push(Version { event, content });
        }
    }
    DiskState {
        durable: vec![ZEROES; 40],
        pending,
    }
}

#[test]
fn a_number_draws_the_losses_that_it_always_drew() {
    let state = state();
    let mut hash = blake3::Hasher::new();
    let mut shapes = [0, 0];
    for number in 0..300 {
        let lost = state.lost(&Choice::Drawn(number));
        shapes[usize::from(lost.len() < 4)] += 1;
        for one in lost {
            hash.update(&one.block.to_le_bytes());
            hash.update(&one.versions.to_le_bytes());
        }
        hash.update(b";");
    }
    assert!(shapes.iter().all(|count| *count > 40), "{shapes:?}");
    assert_eq!(&hash.finalize().to_hex()[..16], "f679a80aa6f7590c");
}
