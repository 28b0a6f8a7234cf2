//! Power cuts at every point of scripts that make, delete and roll back snapshots of a namespace,
//! with several subsets of unflushed writes: a complete snapshot equals its source at creation;
//! each page of the source is old or the snapshot's, and a record says so unless all pages are of
//! one state; an interrupted operation can be finished.

use crate::kit::MemNamespaces;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_share::snapshot::{self, NewSnapshot, SnapshotState};
use remap_ssd_share::{NamespacePage, Namespaces, ShareError};
use remap_ssd_testkit::{Content, MemDisk, kept, subsets};
use std::collections::{BTreeMap, HashMap};

const PAGES: u64 = 6;
const SIZES: [u64; 3] = [PAGES, PAGES + 1, PAGES + 3];
const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Create(&'static str),
    Delete(&'static str),
    Rollback(&'static str),
}

/// State before a step, the step, and the number of operations by its end.
struct Moment {
    source: Vec<u64>,
    snapshots: BTreeMap<&'static str, Vec<u64>>,
    step: Step,
    operations: usize,
}

fn new(name: &str) -> NewSnapshot {
    NewSnapshot {
        name: name.into(),
        source: 1,
        into: None,
        now: 5,
    }
}

fn quiet(_: u64, _: u64) {}

/// Runs a script on a device; returns the state before each step and at the end.
fn script(seed: u64, steps: usize) -> (MemNamespaces, Vec<Moment>) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut device = MemNamespaces::new(&SIZES);
    let mut source = vec![0; PAGES as usize];
    let mut snapshots: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    let mut moments = Vec::new();
    let mut number = 0;
    for _ in 0..steps {
        let name = NAMES[random.random_range(0..NAMES.len())];
        let (before, known) = (source.clone(), snapshots.clone());
        let step = match (random.random_range(0..4), snapshots.contains_key(name)) {
            (0, _) => Step::Write,
            (1, true) => Step::Delete(name),
            (_, true) => Step::Rollback(name),
            (_, false) if snapshots.len() < 2 => Step::Create(name),
            _ => continue,
        };
        match &step {
            Step::Write => {
                for page in 0..PAGES {
                    if random.random_bool(0.5) {
                        number += 1;
                        source[page as usize] = number;
                        device.put(1, page, number);
                    }
                }
                device.flush().expect("it works");
            }
            Step::Create(name) => {
                snapshot::create(&mut device, &new(name), &mut quiet).expect("there is room");
                snapshots.insert(name, source.clone());
            }
            Step::Delete(name) => {
                snapshot::delete(&mut device, name, &mut quiet).expect("it is there");
                snapshots.remove(name);
            }
            Step::Rollback(name) => {
                snapshot::rollback(&mut device, name, &mut quiet).expect("it is there");
                source.clone_from(&snapshots[name]);
            }
        }
        assert_eq!(device.numbers(1, 0..PAGES), source, "{step:?}");
        let operations = device.disk.medium().log.len();
        moments.push(Moment {
            source: before,
            snapshots: known,
            step,
            operations,
        });
    }
    let operations = device.disk.medium().log.len();
    moments.push(Moment {
        source,
        snapshots,
        step: Step::Write,
        operations,
    });
    (device, moments)
}

/// Checks the state after a cut inside a step; `next` is the state after the step.
fn judge(pages: HashMap<u64, Content>, now: &Moment, next: &Moment) -> Result<(), String> {
    let disk = MemDisk::holding(SIZES.iter().sum(), pages);
    let mut device = MemNamespaces::over(disk, &SIZES);
    let listed = snapshot::list(&mut device).map_err(|error| error.to_string())?;
    if let Some(why) = listed.damage.first() {
        return Err(why.clone());
    }
    for nsid in &listed.vacant {
        let pages = 0..device.pages(*nsid) - 1;
        if device
            .numbers(*nsid, pages)
            .iter()
            .any(|number| *number != 0)
        {
            return Err(format!("namespace {nsid} is vacant, and not empty"));
        }
    }

    // Complete snapshots are unchanged.
    for name in NAMES {
        let found = listed.snapshots.iter().find(|one| one.name == name);
        let state = found.map(|one| one.state);
        let whole = matches!(
            state,
            Some(SnapshotState::Complete | SnapshotState::RollingBack)
        );
        let (was, will) = (now.snapshots.get(name), next.snapshots.get(name));
        match (was, will) {
            (Some(_), Some(_)) if !whole => return Err(format!("snapshot {name} is {state:?}")),
            (None, None) if found.is_some() => {
                return Err(format!("snapshot {name} was never made"));
            }
            _ => {}
        }
        if let (Some(found), true, Some(numbers)) = (found, whole, was.or(will))
            && device.numbers(found.nsid, 0..PAGES) != *numbers
        {
            return Err(format!("snapshot {name} is not what its source was"));
        }
    }

    // Each page of the source is old or new; a mixture requires a record that says so.
    let source = device.numbers(1, 0..PAGES);
    let mixed = |page: usize| source[page] != now.source[page] && source[page] != next.source[page];
    if let Some(page) = (0..PAGES as usize).find(|page| mixed(*page)) {
        return Err(format!(
            "page {page} of the source was never {}",
            source[page]
        ));
    }
    let rolling = listed
        .snapshots
        .iter()
        .find(|one| one.state == SnapshotState::RollingBack)
        .map(|one| one.name.clone());
    let is_one = source == now.source || source == next.source;
    if now.step != Step::Write && !is_one && rolling.is_none() {
        return Err("the source is a mixture, and nothing says so".into());
    }
    if let (Some(name), step) = (&rolling, &now.step)
        && !matches!(step, Step::Rollback(of) if of == name)
    {
        return Err(format!("a rollback to {name} that was not asked for"));
    }

    // The interrupted operation can be finished.
    if let Some(name) = rolling {
        let refused = snapshot::create(&mut device, &new("later"), &mut quiet);
        if !matches!(&refused, Err(ShareError::Refused(why)) if why.contains("interrupted")) {
            return Err(format!("a snapshot of a mixture was made: {refused:?}"));
        }
        snapshot::rollback(&mut device, &name, &mut quiet).map_err(|error| error.to_string())?;
        if device.numbers(1, 0..PAGES) != next.source {
            return Err("the rollback was not finished".into());
        }
    }
    let source = device.numbers(1, 0..PAGES);
    let unfinished: Vec<String> = listed
        .snapshots
        .iter()
        .filter(|one| matches!(one.state, SnapshotState::Creating | SnapshotState::Deleting))
        .map(|one| one.name.clone())
        .collect();
    for name in unfinished {
        if snapshot::rollback(&mut device, &name, &mut quiet).is_ok() {
            return Err(format!("a rollback to {name}, which is not whole"));
        }
        let (made, _) = snapshot::create(&mut device, &new(&name), &mut quiet)
            .map_err(|error| error.to_string())?;
        if device.numbers(made.nsid, 0..PAGES) != source {
            return Err(format!("{name} was made again, and is something else"));
        }
        snapshot::delete(&mut device, &name, &mut quiet).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn every_cut_leaves_whole_snapshots_or_says_what_was_under_way() {
    let mut cuts = 0;
    for seed in 0..40 {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xc0ffee);
        let (device, moments) = script(seed, 14);
        let log = std::mem::take(&mut device.disk.medium().log);
        let mut begin = 0;
        for pair in moments.windows(2) {
            let [now, next] = pair else {
                unreachable!("windows of two")
            };
            for operations in begin..=now.operations {
                let log = &log[..operations];
                for subset in subsets(log, random) {
                    let pages = kept(&HashMap::new(), log, |index| subset[index]);
                    judge(pages, now, next).unwrap_or_else(|error| {
                        panic!(
                            "seed {seed}, {:?}, after {operations} operations, {subset:?}: {error}",
                            now.step
                        )
                    });
                    cuts += 1;
                }
            }
            begin = now.operations;
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}

#[test]
fn a_rollback_that_is_cut_again_and_again_is_finished_in_the_end() {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(3);
    for _ in 0..300 {
        let mut device = MemNamespaces::new(&SIZES);
        (0..PAGES).for_each(|page| device.put(1, page, 10 + page));
        snapshot::create(&mut device, &new("a"), &mut quiet).expect("there is room");
        (0..PAGES).for_each(|page| device.put(1, page, 20 + page));
        device.flush().expect("it works");
        let mut pages = kept(&HashMap::new(), &device.disk.medium().log, |_| true);

        for _ in 0..4 {
            let disk = MemDisk::holding(SIZES.iter().sum(), pages.clone());
            let mut device = MemNamespaces::over(disk, &SIZES);
            snapshot::rollback(&mut device, "a", &mut quiet).expect("it is whole");
            let log = std::mem::take(&mut device.disk.medium().log);
            let cut = random.random_range(0..=log.len());
            pages = kept(&pages, &log[..cut], |_| random.random_bool(0.5));
        }
        let mut device = MemNamespaces::over(MemDisk::holding(SIZES.iter().sum(), pages), &SIZES);
        snapshot::rollback(&mut device, "a", &mut quiet).expect("it is whole");
        assert_eq!(
            device.numbers(1, 0..PAGES),
            (10..10 + PAGES).collect::<Vec<_>>()
        );
        assert_eq!(
            snapshot::list(&mut device).expect("it works").snapshots[0].state,
            SnapshotState::Complete
        );
    }
}

#[test]
fn what_another_host_writes_meanwhile_ends_a_snapshot_and_a_rollback() {
    let mut device = MemNamespaces::new(&SIZES);
    (0..PAGES).for_each(|page| device.put(1, page, 10 + page));
    device.disturbance = Some((0, 3));
    let refused = snapshot::create(&mut device, &new("a"), &mut quiet).expect_err("somebody wrote");
    assert!(
        refused.to_string().contains("another host wrote 1 pages"),
        "{refused}"
    );
    let listed = snapshot::list(&mut device).expect("it works");
    assert_eq!(
        (listed.snapshots.len(), listed.vacant),
        (0, vec![2]),
        "nothing is left of it"
    );

    snapshot::create(&mut device, &new("a"), &mut quiet).expect("nobody writes");
    device.disturbance = Some((0, 5));
    snapshot::rollback(&mut device, "a", &mut quiet).expect_err("somebody wrote");
    assert_eq!(
        snapshot::list(&mut device).expect("it works").snapshots[0].state,
        SnapshotState::RollingBack
    );
    let refused = snapshot::delete(&mut device, "a", &mut quiet).expect_err("first it is finished");
    assert!(
        refused.to_string().contains("share snapshot rollback a"),
        "{refused}"
    );
    let before = device.numbers(2, 0..PAGES);
    snapshot::rollback(&mut device, "a", &mut quiet).expect("nobody writes");
    assert_eq!(device.numbers(1, 0..PAGES), before);
}

#[test]
fn what_cannot_be_is_one_sentence_and_changes_nothing() {
    let mut device = MemNamespaces::new(&[8, 8, 9, 20]);
    (0..8).for_each(|page| device.put(1, page, 10 + page));
    device.put(4, 7, 1);
    let mut refused = |new: NewSnapshot, words: &str| {
        let error = snapshot::create(&mut device, &new, &mut quiet)
            .expect_err(words)
            .to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    };
    refused(new(""), "must have a name");
    refused(new("a b"), "cannot be a snapshot's name");
    refused(new(&"x".repeat(65)), "at most 64 bytes");
    refused(
        NewSnapshot {
            into: Some(2),
            ..new("a")
        },
        "needs another one of 9",
    );
    refused(
        NewSnapshot {
            into: Some(1),
            ..new("a")
        },
        "needs another one of 9",
    );
    refused(
        NewSnapshot {
            into: Some(4),
            ..new("a")
        },
        "namespace 4 is not empty: something is in page 7",
    );
    refused(
        NewSnapshot {
            into: Some(5),
            ..new("a")
        },
        "there is no namespace 5",
    );
    refused(
        NewSnapshot {
            source: 0,
            ..new("a")
        },
        "there is no namespace 0",
    );
    refused(
        NewSnapshot {
            source: 4,
            ..new("a")
        },
        "there is no free namespace of 21 pages",
    );

    snapshot::create(&mut device, &new("a"), &mut quiet).expect("namespace 3 is free");
    let error = snapshot::create(&mut device, &new("a"), &mut quiet)
        .expect_err("exists")
        .to_string();
    assert!(error.contains("already, in namespace 3"), "{error}");
    let error = snapshot::create(&mut device, &new("b"), &mut quiet)
        .expect_err("no room")
        .to_string();
    assert!(error.contains("no free namespace of 9 pages"), "{error}");
    let of_snapshot = NewSnapshot {
        source: 3,
        ..new("b")
    };
    let error = snapshot::create(&mut device, &of_snapshot, &mut quiet)
        .expect_err("not of those")
        .to_string();
    assert!(error.contains("for snapshots itself"), "{error}");
    snapshot::rollback(&mut device, "b", &mut quiet).expect_err("there is none");
    snapshot::delete(&mut device, "b", &mut quiet).expect_err("there is none");

    // A record copied with its namespace is invalid, and a damaged one is reported.
    let mut page = [0; 4096];
    device
        .read(NamespacePage { nsid: 3, page: 8 }, &mut page)
        .expect("it works");
    device
        .write(NamespacePage { nsid: 4, page: 19 }, &page)
        .expect("it works");
    let listed = snapshot::list(&mut device).expect("it works");
    assert_eq!(
        (listed.snapshots.len(), listed.damage.len()),
        (1, 1),
        "{listed:?}"
    );
}
