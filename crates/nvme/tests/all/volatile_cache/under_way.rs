//! The power is cut while a flush, or a write with FUA, waits until the disk has what it did. The
//! device has it by then, and nothing was acknowledged: so it may be lost, block by block.
//!
//! A test executes a command and cuts the power before it waits, which is the instant at which
//! nearly all cuts under a load that syncs come.

use crate::volatile_cache::bench::{self, Bench, block_of};
use remap_ssd_nvme::controller::{Blocks, CutReport, IoRequest, RemapBlocks, Subsystem};
use remap_ssd_nvme::spec::status::Status;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const SEEDS: u64 = 24;
const COUNT: usize = 12;

/// Writes one block with a stamp.
fn write(bench: &Bench, slba: u64, stamp: u64) {
    let blocks = Blocks { slba, count: 1 };
    bench.must(
        1,
        &IoRequest::Write { blocks, fua: false },
        &block_of(stamp, 12),
    );
}

fn write_all(bench: &Bench, stamp: u64) {
    (0..COUNT as u64).for_each(|slba| write(bench, slba, stamp));
}

fn flush(bench: &Bench) {
    bench.must(1, &IoRequest::Flush, &[]);
}

fn cut(bench: &Bench, seed: u64) -> CutReport {
    let cut = bench.subsystem.cut_power(seed, |_, report| report);
    let report = cut.expect("the device takes it");
    assert_eq!(bench.subsystem.cached_bytes(), Some(0));
    report
}

fn left(bench: &Bench) -> Vec<u64> {
    bench.stamps(1, false)[..COUNT].to_vec()
}

// Stamp 1 is durable; 2 and 3 are what the flush writes back. A drive may keep any of the three.
#[test]
fn a_cut_before_a_flush_is_acknowledged_leaves_each_block_any_version_since_the_last_one() {
    let mut seen = BTreeSet::new();
    let mut mixed = 0;
    for seed in 0..SEEDS {
        let bench = Bench::in_folder(1 << 20, seed);
        write_all(&bench, 1);
        flush(&bench);
        write_all(&bench, 2);
        write_all(&bench, 3);

        let (outcome, _) = bench.begin(1, &IoRequest::Flush, &[]);
        assert_eq!(outcome.status, Status::SUCCESS);
        assert!(outcome.sync_to.is_some(), "it has to wait for the disk");
        bench.subsystem.check_cache();

        let report = cut(&bench, seed);
        assert_eq!(report.blocks_cached, COUNT as u64);
        assert_eq!(report.blocks_awaiting_sync, COUNT as u64);
        assert_eq!(report.blocks_lost_awaiting_sync, report.blocks_lost);

        let left = left(&bench);
        let lost = left.iter().filter(|stamp| **stamp != 3).count();
        assert_eq!(report.blocks_lost, lost as u64, "seed {seed}");
        mixed += u64::from(lost > 0 && lost < COUNT);
        seen.extend(left);

        // What was lost is not acknowledged afterwards either; the next flush is.
        let ended = bench.subsystem.wait_until_durable(outcome).status;
        let expected = if lost > 0 {
            Status::POWER_LOSS
        } else {
            Status::SUCCESS
        };
        assert_eq!(ended, expected, "seed {seed}");
        flush(&bench);
    }
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
    assert!(mixed > 0, "blocks are lost one by one");
}

#[test]
fn a_cut_after_a_flush_is_acknowledged_loses_nothing_of_it() {
    for seed in 0..SEEDS {
        let bench = Bench::in_folder(1 << 20, seed);
        write_all(&bench, 1);
        flush(&bench);
        write_all(&bench, 2);
        flush(&bench);
        assert_eq!(bench.subsystem.cached_bytes(), Some(0));

        // Later writes may be lost; what comes back then is what was flushed, not what was before.
        write(&bench, 0, 3);
        write(&bench, 1, 3);
        let report = cut(&bench, seed);
        assert_eq!((report.blocks_cached, report.blocks_awaiting_sync), (2, 0));
        let left = left(&bench);
        assert!(left[..2].iter().all(|stamp| [2, 3].contains(stamp)));
        assert_eq!(left[2..], [2; COUNT - 2], "seed {seed}");
    }
}

// Each flush has what came before it, and a later one may be lost while an earlier one is not.
#[test]
fn of_two_flushes_under_way_the_acknowledged_one_is_kept() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let bench = Bench::in_folder(1 << 20, seed);
        write_all(&bench, 1);
        let (first, _) = bench.begin(1, &IoRequest::Flush, &[]);
        assert_eq!(
            bench.subsystem.wait_until_durable(first).status,
            Status::SUCCESS
        );

        write_all(&bench, 2);
        let (second, _) = bench.begin(1, &IoRequest::Flush, &[]);
        write_all(&bench, 3);
        let (third, _) = bench.begin(1, &IoRequest::Flush, &[]);
        if seed % 2 == 0 {
            let ended = bench.subsystem.wait_until_durable(second).status;
            assert_eq!(ended, Status::SUCCESS);
        }
        bench.subsystem.check_cache();
        let _ = third;

        cut(&bench, seed);
        let left = left(&bench);
        if seed % 2 == 0 {
            assert!(
                left.iter().all(|stamp| *stamp >= 2),
                "seed {seed}: {left:?}"
            );
        }
        seen.extend(left);
    }
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
}

// An atomic remap puts its sources on the device, and asks for no sync: so one version is durable
// while a newer one, which is on the device as well, may be lost.
#[test]
fn what_a_durable_version_leaves_to_newer_ones_is_itself() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let bench = Bench::in_folder(1 << 20, seed);
        write_all(&bench, 1);
        flush(&bench);
        write_all(&bench, 2);
        let (second, _) = bench.begin(1, &IoRequest::Flush, &[]);
        write_all(&bench, 3);

        let blocks = |slba| Blocks {
            slba,
            count: COUNT as u32,
        };
        let remap = RemapBlocks {
            target: blocks(20),
            source: 0,
            relocate: false,
            atomic: true,
        };
        let namespace = bench.subsystem.namespace(1).expect("there");
        let request = IoRequest::remap(&namespace, &remap, false).expect("whole pages");
        let (outcome, _) = bench.begin(1, &request, &[]);
        assert_eq!((outcome.status, outcome.sync_to), (Status::SUCCESS, None));

        let ended = bench.subsystem.wait_until_durable(second).status;
        assert_eq!(ended, Status::SUCCESS);
        bench.subsystem.check_cache();
        let report = cut(&bench, seed);
        assert_eq!(report.blocks_awaiting_sync, COUNT as u64);
        seen.extend(left(&bench));
    }
    assert_eq!(seen, BTreeSet::from([2, 3]));
}

#[test]
fn a_cut_before_a_write_with_fua_is_acknowledged_may_lose_it() {
    let mut lost = [0, 0];
    for seed in 0..SEEDS {
        // Blocks of 512 bytes: the write changes a part of a page.
        let bench = Bench::in_folder(1 << 20, seed);
        let write = |slba, stamp, fua| {
            let blocks = Blocks { slba, count: 1 };
            let data = block_of(stamp, 9);
            bench.begin(2, &IoRequest::Write { blocks, fua }, &data).0
        };
        for slba in 0..8 {
            write(slba, 1, false);
        }
        flush(&bench);

        write(3, 2, false);
        let outcome = write(3, 3, true);
        assert!(outcome.sync_to.is_some());
        bench.subsystem.check_cache();
        let acknowledged = seed % 2 == 0;
        if acknowledged {
            let ended = bench.subsystem.wait_until_durable(outcome).status;
            assert_eq!(ended, Status::SUCCESS);
        }

        let report = cut(&bench, seed);
        let left = bench.stamps(2, false);
        assert_eq!(left[3] != 3, report.blocks_lost > 0, "seed {seed}");
        assert!((1..=3).contains(&left[3]));
        assert_eq!((left[2], left[4]), (1, 1), "the blocks beside it");
        lost[usize::from(acknowledged)] += report.blocks_lost;
    }
    assert!(lost[0] > 0, "none of {SEEDS} cuts has lost the write");
    assert_eq!(lost[1], 0, "an acknowledged write was lost");
}

// Whatever is lost of what the device has already, the cache never needs more than its capacity.
#[test]
fn flushes_that_nothing_waits_for_take_no_more_room_than_the_cache_has() {
    let capacity = 64 << 10;
    let bench = Bench::in_folder(capacity, 1);
    for round in 1..20 {
        (0..48).for_each(|slba| write(&bench, slba, round));
        let (outcome, _) = bench.begin(1, &IoRequest::Flush, &[]);
        assert_eq!(outcome.status, Status::SUCCESS);
        bench.subsystem.check_cache();
        let cached = bench.subsystem.cached_bytes().expect("it has a cache");
        assert!(cached <= capacity, "{cached} bytes of {capacity}");
    }
    assert_eq!(bench.stamps(1, false), [19; 48]);
    cut(&bench, 1);
}

/// Executes a long write, and cuts the power in a pause of it; `None` if the cut came too late.
fn write_through_cut(subsystem: &Subsystem) -> Option<Status> {
    let was_cut = AtomicBool::new(false);
    let cut = || {
        let cut = subsystem.cut_power(1, |_, _| was_cut.store(true, SeqCst));
        cut.expect("the device takes it");
    };
    bench::write_through(subsystem, false, cut, || was_cut.load(SeqCst))
}

// It would be acknowledged, and half of it is gone: a flush after it would promise what is lost.
#[test]
fn a_command_that_was_paused_while_the_power_was_cut_fails() {
    let subsystem = bench::large(64 << 20);
    let status = loop {
        if let Some(status) = write_through_cut(&subsystem) {
            break status;
        }
    };
    assert_eq!(status, Status::POWER_LOSS);
}

// Random commands of all kinds, some of which are under way when the power is cut.
#[test]
fn what_was_acknowledged_survives_cuts_among_commands_that_are_under_way() {
    let (mut older, mut between, mut cut_off, mut awaiting) = (0, 0, 0, 0);
    for (cache_bytes, seed) in [(16 << 20, 1), (16 << 20, 2), (64 << 10, 3)] {
        let mut bench = Bench::in_folder(cache_bytes, seed);
        for round in 0..30 {
            for step in 0..25 {
                bench.step();
                if step % 5 == 0 {
                    bench.check_reads();
                }
            }
            awaiting += bench.cut(seed << 8 | round).blocks_lost_awaiting_sync;
        }
        older += bench.older;
        between += bench.between;
        cut_off += bench.cut_off;
    }
    assert!(
        older > 500 && between > 100 && cut_off > 20 && awaiting > 100,
        "{older}, {between}, {cut_off}, {awaiting}"
    );
}
