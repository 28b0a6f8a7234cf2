//! Power cuts at every point of random scripts, with every kind of subset of unflushed writes:
//! pages hold only data written to them, and no flushed data are lost.
//!
//! After a cut a page may hold its content at the last flush, or anything written since. After each
//! cut the scripts continue on the remains, writing contents that are on the disk, so that a wrong
//! table entry leads to a wrong copy. `DEDUP_CUTS` is the number of cuts for each scheme and window
//! (1,000 if not set).

mod script;

use crate::kit::{Setup, Subject, content, contents};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_dedup::guard::Guard;
use remap_ssd_dedup::{Hash, Scheme};
use remap_ssd_device::DiskRemap;
use remap_ssd_testkit::{Content, MemDisk, kept, pending};
use script::Script;
use std::collections::HashMap;

type Random = Xoshiro256PlusPlus;
type Contents = HashMap<u64, Content>;

/// Numbers of contents that recur often; others are written once.
const COMMON: std::ops::Range<u64> = 1..7;

/// Pages in two segments of the table, the first of two pages; or in two pages of mappings.
fn pages_of(setup: &Setup, wide: bool) -> Vec<u64> {
    match (setup.scheme, wide) {
        (Scheme::Ccaw, _) => [0..4, 253..257, 508..514].into_iter().flatten().collect(),
        (Scheme::OrderMerge, false) => (0..10).collect(),
        (Scheme::OrderMerge, true) => [0..4, 1016..1024].into_iter().flatten().collect(),
    }
}

/// An empty disk; if `wide`, filled except for a few blocks.
fn empty(setup: &Setup, wide: bool) -> Contents {
    let disk = MemDisk::new(setup.pages);
    let mut subject = Setup {
        without: None,
        ..*setup
    }
    .create(disk.clone(), 7, false)
    .expect("it fits");
    if wide && setup.scheme == Scheme::OrderMerge {
        let numbers: Vec<u64> = (0..subject.disk().pages())
            .map(|page| 1 << 40 | page)
            .collect();
        subject
            .disk()
            .write(0, &contents(&numbers))
            .expect("there is room");
    }
    subject.close().expect("it closes");
    disk.medium().contents()
}

fn setup(scheme: Scheme, window: u32, wide: bool) -> Setup {
    let pages = match (scheme, wide) {
        (Scheme::Ccaw, _) => 2 + 5 + 520,
        (Scheme::OrderMerge, false) => 2 + 2 + 13,
        (Scheme::OrderMerge, true) => 2 + 6 + 2 + 1027,
    };
    let hash = Hash::Blake3;
    Setup {
        scheme,
        hash,
        pages,
        window,
        commit_after: 7,
        entries_max: u32::MAX,
        without: None,
    }
}

/// Runs several lives of a disk, each cut at many points; each begins with the remains of one cut.
/// Returns the number of cuts.
fn lives(
    setup: Setup,
    wide: bool,
    seed: u64,
    steps: usize,
    cuts: usize,
    exhaust: bool,
) -> Result<usize, String> {
    let random = &mut Random::seed_from_u64(seed);
    let (mut base, mut fresh, mut done) = (empty(&setup, wide), 1000, 0);
    while done < cuts {
        let mut script = Script::begin(setup, pages_of(&setup, wide), base, fresh)?;
        for _ in 0..steps {
            script
                .step(random)
                .map_err(|error| format!("seed {seed}: {error}"))?;
        }
        let (first, last) = (script.moments[0].operations, script.disk.medium().log.len());
        let mut points: Vec<usize> = (first..=last).collect();
        if !exhaust {
            points = (0..40).map(|_| random.random_range(first..=last)).collect();
        }

        base = script.cut(last, |_| true);
        for operations in points {
            for subset in subsets(random, script.unflushed(operations), exhaust) {
                let left = script.cut(operations, |index| subset[index]);
                let judged = script.judge_cut(operations, &left);
                judged.map_err(|error| {
                    format!("seed {seed}, after {operations} of {last} operations: {error}")
                })?;
                done += 1;
                if random.random_bool(0.01) {
                    base = left;
                }
            }
        }
        fresh = script.fresh;
    }
    Ok(done)
}

/// Subsets of `count` unflushed operations to keep.
fn subsets(random: &mut Random, count: usize, exhaust: bool) -> Vec<Vec<bool>> {
    if exhaust && count <= 5 {
        return (0..1 << count)
            .map(|bits: u32| (0..count).map(|index| bits >> index & 1 == 1).collect())
            .collect();
    }
    let mut subsets = vec![vec![true; count], vec![false; count]];
    if count > 0 {
        let one = random.random_range(0..count);
        subsets.push((0..count).map(|index| index == one).collect());
        subsets.push((0..count).map(|index| index != one).collect());
        let share = [0.1, 0.5, 0.9][random.random_range(0..3)];
        subsets.push((0..count).map(|_| random.random_bool(share)).collect());
    }
    subsets
}

fn cuts() -> usize {
    std::env::var("DEDUP_CUTS").map_or(1000, |text| text.parse().expect("DEDUP_CUTS is a number"))
}

const SCHEMES: [(Scheme, bool); 3] = [
    (Scheme::Ccaw, true),
    (Scheme::OrderMerge, false),
    (Scheme::OrderMerge, true),
];

#[test]
fn a_thousand_cuts_with_each_window_lose_nothing_and_mix_nothing_up() {
    for (scheme, wide) in SCHEMES {
        for window in [0, 1, 10, 100, 1000] {
            // Long enough for windows to end.
            let steps = 40 + window as usize / 2;
            let done = lives(
                setup(scheme, window, wide),
                wide,
                u64::from(window) + 11,
                steps,
                cuts(),
                false,
            );
            let done = done.unwrap_or_else(|error| panic!("{scheme:?}, window {window}: {error}"));
            println!("{scheme:?}, wide {wide}, window {window}: {done} cuts");
        }
    }
}

#[test]
fn every_cut_of_a_short_script_with_every_subset_of_a_short_window() {
    for (scheme, wide) in SCHEMES {
        for (window, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
            let done = lives(setup(scheme, window, wide), wide, seed, 25, 1500, true);
            done.unwrap_or_else(|error| panic!("{scheme:?}, window {window}: {error}"));
        }
    }
}

// MD5's hits are compared, and a small table evicts entries.
#[test]
fn other_hashes_and_small_tables_survive_the_same_cuts() {
    for (scheme, wide) in SCHEMES {
        let setup = Setup {
            hash: Hash::Md5,
            entries_max: 5,
            ..setup(scheme, 10, wide)
        };
        lives(setup, wide, 5, 60, 500, false).unwrap_or_else(|error| panic!("{scheme:?}: {error}"));
    }
}

#[test]
fn each_flush_and_each_order_is_missed_if_it_is_left_out() {
    let noticed = |scheme, guard| {
        let without = |window, wide, seed| {
            let setup = Setup {
                without: Some(guard),
                ..setup(scheme, window, wide)
            };
            let result = lives(setup, wide, seed, 40, 1500, true);
            result.is_err_and(|error| {
                println!("{scheme:?} without {guard:?}: {error}");
                true
            })
        };
        (0..100).any(|seed| {
            without(
                [3, 10, 100][seed % 3],
                scheme == Scheme::Ccaw || seed % 2 == 1,
                seed as u64,
            )
        })
    };
    for (scheme, guards) in [
        (Scheme::Ccaw, &Guard::CCAW[..]),
        (Scheme::OrderMerge, &Guard::ORDER_MERGE[..]),
    ] {
        for guard in guards.iter().filter(|guard| **guard != Guard::FlushTrimmed) {
            assert!(
                noticed(scheme, *guard),
                "{scheme:?}: {guard:?} protects nothing that this test would notice"
            );
        }
    }
}

/// Formats a disk over an older one and cuts power; counts how often the result was none, the new
/// one, the old one.
fn made_over(scheme: Scheme, without: Option<Guard>) -> Result<[u32; 3], String> {
    let setup = Setup {
        without,
        ..setup(scheme, 10, false)
    };
    let random = &mut Random::seed_from_u64(5);
    let disk = MemDisk::new(setup.pages);
    let mut old = setup.create(disk.clone(), 1, false).expect("it fits");
    old.disk()
        .write(0, &contents(&[1, 2, 3, 4]))
        .expect("there is room");
    old.close().expect("it closes");
    let base = disk.medium().contents();
    let from = disk.medium().log.len();
    setup
        .create(disk.clone(), 2, true)
        .expect("it was asked for");
    let log = disk.medium().log.split_off(from);

    let mut found = [0; 3];
    for operations in 0..=log.len() {
        for _ in 0..20 {
            let left = kept(&base, &log[..operations], |_| random.random_bool(0.5));
            let superblock = [0, 1]
                .iter()
                .find_map(|page| left.get(page).cloned().flatten());
            let Ok(mut opened) = setup.open(MemDisk::holding(setup.pages, left)) else {
                found[0] += 1;
                continue;
            };
            // The identity follows magic, checksum and version.
            if superblock.is_some_and(|page| page[16] == 1) {
                found[2] += 1;
                continue;
            }
            let mut bytes = contents(&[9; 10]);
            opened
                .disk()
                .read(0, &mut bytes)
                .map_err(|error| error.to_string())?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Err("the new disk shows what the old one held".into());
            }
            found[1] += 1;
        }
    }
    Ok(found)
}

#[test]
fn a_cut_while_a_disk_is_made_leaves_one_or_none() {
    for scheme in [Scheme::Ccaw, Scheme::OrderMerge] {
        let found = made_over(scheme, None).expect("nothing is mixed up");
        assert!(
            found.iter().all(|count| *count > 0),
            "none, new, old: {found:?}"
        );
        assert!(
            made_over(scheme, Some(Guard::FlushTrimmed)).is_err(),
            "{scheme:?}: the flush protects nothing"
        );
    }
}
