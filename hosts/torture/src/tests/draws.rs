//! Replay codes are seeds: what a number draws may not change.

use super::reachable::random_script;
use crate::atomic::AtomicUnit;
use crate::contents::ZEROES;
use crate::cut::{Choice, DiskState, Version};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
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

#[test]
fn with_an_atomic_unit_a_number_draws_the_losses_that_it_always_drew() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let script = random_script(&mut random, 8, 200);
    let recording = &script.recording;
    let state = DiskState::at(recording, recording.events.len());
    let unit = AtomicUnit::new(recording, 3 * 512).unwrap().unwrap();
    let mut hash = blake3::Hasher::new();
    for number in 0..300 {
        for one in unit.draw(&state, number) {
            hash.update(&one.block.to_le_bytes());
            hash.update(&one.versions.to_le_bytes());
        }
        hash.update(b";");
    }
    assert_eq!(&hash.finalize().to_hex()[..16], "6d2b1bdf4544780b");
}
