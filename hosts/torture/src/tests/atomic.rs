//! Cuts of a disk with an atomic write unit: exactly the disks that some of the writes leave, each
//! whole.

use super::kit::{Script, content_of};
use super::reachable::{durable, random_script};
use crate::atomic::AtomicUnit;
use crate::contents::{ContentId, ZEROES};
use crate::cut::{Choice, DiskState};
use crate::record::{Event, Recording};
use crate::{Campaign, Cut, Finding, TortureError, Verdict};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);
const BLOCKS: u64 = 4;

fn unit(recording: &Recording, blocks: u64) -> AtomicUnit<'_> {
    let block_bytes = u64::from(recording.shape.block_bytes);
    let unit = AtomicUnit::new(recording, blocks * block_bytes).unwrap();
    unit.expect("more than a block")
}

/// Sets of versions, by entry and block, that are kept or lost together.
fn pieces(recording: &Recording, unit: u64) -> Vec<(usize, Vec<u64>)> {
    let mut pieces = Vec::new();
    for (at, event) in recording.events.iter().enumerate() {
        let written: Vec<u64> = (0..BLOCKS)
            .filter(|block| content_of(recording, event, *block).is_some())
            .collect();
        match event {
            Event::Write { .. } if written.len() as u64 <= unit => pieces.push((at, written)),
            _ => pieces.extend(written.into_iter().map(|block| (at, vec![block]))),
        }
    }
    pieces
}

/// Every disk that a cut at the end can leave: durable writes, and any of the others, in order.
fn allowed(recording: &Recording, unit: u64) -> BTreeSet<Vec<ContentId>> {
    let pieces = pieces(recording, unit);
    let end = recording.events.len();
    let is_durable: Vec<bool> = pieces
        .iter()
        .map(|(at, _)| durable(recording, *at, end))
        .collect();
    let free = is_durable.iter().filter(|durable| !**durable).count();
    let disk = |kept: u32| {
        let mut disk = vec![ZEROES; BLOCKS as usize];
        let mut index = 0;
        for ((at, blocks), durable) in pieces.iter().zip(&is_durable) {
            let keeps = *durable || kept >> index & 1 == 1;
            index += u32::from(!durable);
            for block in blocks.iter().filter(|_| keeps) {
                let content = content_of(recording, &recording.events[*at], *block);
                disk[*block as usize] = content.unwrap();
            }
        }
        disk
    };
    (0..1 << free).map(disk).collect()
}

// Exactly: all disks that the definition allows are drawn, and no others.
#[test]
fn draws_reach_every_disk_on_which_writes_within_the_unit_are_whole_and_no_other() {
    let (mut disks, mut fewer) = (0, 0);
    for seed in 0..200 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let script = random_script(&mut random, BLOCKS, 14);
        let recording = &script.recording;
        let blocks = 2 + seed % 3;
        let allowed = allowed(recording, blocks);
        // Each disk of a large set is drawn too rarely.
        if allowed.len() > 60 {
            continue;
        }
        let state = DiskState::at(recording, recording.events.len());

        let mut drawn = BTreeSet::new();
        for number in 0..100_000 {
            let lost = unit(recording, blocks).draw(&state, number);
            drawn.insert(state.after(&lost));
            if number > 2000 && drawn.len() >= allowed.len() {
                break;
            }
        }
        assert!(drawn.is_subset(&allowed), "seed {seed}, unit {blocks}");
        assert_eq!(drawn.len(), allowed.len(), "seed {seed}, unit {blocks}");
        disks += allowed.len();
        fewer += usize::from(allowed.len() < self::allowed(recording, 1).len());
    }
    // A unit that makes no difference would prove nothing.
    assert!(disks > 1000 && fewer > 50, "{disks} {fewer}");
}

#[test]
fn the_pieces_of_a_draw_lose_the_blocks_of_the_draw() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let script = random_script(&mut random, 8, 200);
    let state = DiskState::at(&script.recording, script.recording.events.len());
    let unit = unit(&script.recording, 3);
    for number in 0..500 {
        let lost = unit.draw(&state, number);
        assert_eq!(unit.without(&state, &unit.pieces(&state, &lost)), lost);
    }
}

/// Two writes of four blocks that overlap, one of six, and one of a single block.
fn recording() -> Recording {
    let mut script = Script::new(16);
    script.recording.about.nvme_tcp = true;
    script.recording.events.push(Event::Start);
    for (block, count) in [(1, 4), (3, 4), (8, 6), (15, 1)] {
        let request = script.write(block, count, false);
        script.done(request);
    }
    script.recording.events.push(Event::End);
    script.recording
}

// The unit counts from the start of a write: block 1 is no multiple of it.
#[test]
fn a_write_of_the_unit_is_whole_wherever_it_starts_and_a_longer_one_tears() {
    let recording = recording();
    let state = DiskState::at(&recording, recording.events.len());
    let id = |word: usize| recording.words[word];
    let mut long = BTreeSet::new();
    for number in 0..20_000 {
        let disk = state.after(&unit(&recording, 4).draw(&state, number));
        let [first, second] = [disk[1] == id(0), disk[6] == id(7)];
        assert_eq!(disk[1..3], if first { [id(0), id(1)] } else { [ZEROES; 2] });
        assert_eq!(
            disk[5..7],
            if second { [id(6), id(7)] } else { [ZEROES; 2] }
        );
        let both = match (first, second) {
            (_, true) => [id(4), id(5)],
            (true, false) => [id(2), id(3)],
            (false, false) => [ZEROES; 2],
        };
        assert_eq!(disk[3..5], both);
        long.insert(disk[8..14].to_vec());
    }
    assert_eq!(long.len(), 1 << 6);
}

fn failed() -> Verdict {
    Verdict {
        finding: Finding::Passed,
        output: String::new(),
        pending: 0,
        lost: 0,
    }
}

// Every check passes here, as the failure does: the losses are not the cause.
#[test]
fn the_fewest_lost_writes_are_counted_and_a_code_lists_their_blocks() {
    let recording = recording();
    let mut campaign = Campaign::new(&recording, "true", Duration::MAX, &STOP)
        .unwrap()
        .with_atomic_writes(4 * 512)
        .unwrap();
    let cut = Cut {
        instant: recording.events.len(),
        choice: Choice::Drawn(1),
    };
    let minute = Duration::from_secs(60);
    let smallest = campaign.shrink(&cut, failed(), minute).unwrap();
    assert_eq!((smallest.writes, smallest.lost.len()), (Some(0), 0));
}

#[test]
fn a_unit_is_a_number_of_blocks() {
    let recording = recording();
    for bytes in [0, 100, 513] {
        let campaign = Campaign::new(&recording, "true", Duration::MAX, &STOP).unwrap();
        let refused = campaign.with_atomic_writes(bytes).err().unwrap();
        assert!(
            matches!(refused, TortureError::AtomicWrites { block: 512, .. }),
            "{refused}"
        );
    }
    // A block is atomic in any case.
    assert!(AtomicUnit::new(&recording, 512).unwrap().is_none());
}
