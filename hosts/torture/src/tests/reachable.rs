//! All cuts of random recordings. The oracle decides for each block and version, from the
//! definition alone, if a disk may have kept it: no newer version is durable. It has no state, and
//! shares nothing with the cutter.

use super::kit::{Script, content_of, possible};
use crate::contents::{ContentId, ZEROES};
use crate::cut::{Choice, DiskState};
use crate::record::{Event, Recording};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// Position of a request's completion.
fn completed(recording: &Recording, request: usize) -> Option<usize> {
    recording
        .events
        .iter()
        .position(|event| *event == Event::Done(request as u32))
}

/// Returns true if a write is durable before entry `cut`.
pub(super) fn durable(recording: &Recording, write: usize, cut: usize) -> bool {
    let before = |request, limit| completed(recording, request).is_some_and(|at| at < limit);
    if matches!(recording.events[write], Event::Write { through: true, .. }) && before(write, cut) {
        return true;
    }
    let flushes = (0..cut).filter(|at| recording.events[*at] == Event::Flush);
    flushes
        .filter(|flush| before(*flush, cut))
        .any(|flush| write < flush && before(write, flush))
}

/// Possible contents of a block before entry `cut`.
fn allowed(recording: &Recording, block: u64, cut: usize) -> BTreeSet<ContentId> {
    let writes = (0..cut).filter_map(|at| {
        Some((
            Some(at),
            content_of(recording, &recording.events[at], block)?,
        ))
    });
    let versions: Vec<(Option<usize>, ContentId)> =
        std::iter::once((None, ZEROES)).chain(writes).collect();
    let newer_durable = |index: usize| {
        versions[index + 1..]
            .iter()
            .any(|(write, _)| write.is_some_and(|write| durable(recording, write, cut)))
    };
    (0..versions.len())
        .filter(|index| !newer_durable(*index))
        .map(|index| versions[index].1)
        .collect()
}

/// Requests that overlap in time, on a few blocks.
pub(super) fn random_script(random: &mut Xoshiro256PlusPlus, blocks: u64, length: usize) -> Script {
    let mut script = Script::new(blocks);
    let mut open = Vec::new();
    for _ in 0..length {
        let block = random.random_range(0..blocks);
        let count = random.random_range(1..=blocks - block);
        match random.random_range(0..10) {
            0..=3 => open.push(script.write(block, count, random.random_bool(0.2))),
            4 => open.push(script.zero(block, count)),
            5 => open.push(script.flush()),
            _ if open.is_empty() => {}
            _ => script.done(open.swap_remove(random.random_range(0..open.len()))),
        }
    }
    script
}

#[test]
fn every_cut_of_many_records_can_leave_what_the_definition_says_and_no_more() {
    let (mut cuts, mut choices) = (0, BTreeSet::new());
    for seed in 0..400 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let script = random_script(&mut random, 4, 40);
        for cut in 0..=script.recording.events.len() {
            let expected: Vec<_> = (0..4)
                .map(|block| allowed(&script.recording, block, cut))
                .collect();
            assert_eq!(
                possible(&DiskState::at(&script.recording, cut)),
                expected,
                "seed {seed}, cut {cut}"
            );
            cuts += 1;
            choices.insert(expected.iter().map(BTreeSet::len).max().unwrap());
        }
    }
    // Recordings in which nothing can be lost would prove nothing.
    assert!(
        cuts > 10_000 && choices.contains(&1) && choices.iter().any(|count| *count > 4),
        "{cuts} {choices:?}"
    );
}

// Counts exactly: the disks drawn are all that the oracle allows, and no others.
#[test]
fn draws_reach_every_disk_that_a_cut_can_leave_and_no_other() {
    for seed in 0..20 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let script = random_script(&mut random, 3, 16);
        let cut = script.recording.events.len();
        let state = DiskState::at(&script.recording, cut);
        let allowed: Vec<_> = (0..3)
            .map(|block| allowed(&script.recording, block, cut))
            .collect();
        let count: usize = allowed.iter().map(BTreeSet::len).product();

        let mut drawn = BTreeSet::new();
        for number in 0..(count as u64 * 200) {
            let disk = state.after(&state.lost(&Choice::Drawn(number)));
            assert!(
                disk.iter()
                    .zip(&allowed)
                    .all(|(content, allowed)| allowed.contains(content)),
                "seed {seed}"
            );
            drawn.insert(disk);
        }
        // Two versions of a block may both be zeroes.
        assert_eq!(drawn.len(), count, "seed {seed}");
    }
}

#[test]
fn a_list_of_what_is_lost_is_the_same_disk_as_the_draw_it_is_from() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let script = random_script(&mut random, 8, 200);
    let state = DiskState::at(&script.recording, script.recording.events.len());
    for number in 0..500 {
        let lost = state.lost(&Choice::Drawn(number));
        assert_eq!(
            lost,
            state.lost(&Choice::Drawn(number)),
            "a number means one choice"
        );
        assert_eq!(
            state.after(&lost),
            state.after(&state.lost(&Choice::Lost(lost.clone())))
        );
    }
}
