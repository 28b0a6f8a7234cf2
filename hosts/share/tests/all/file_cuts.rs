//! Power cuts at every point of scripts that make, delete and roll back snapshots of files in a
//! volume: a complete snapshot equals the files at its creation; a mixture is reported as one;
//! other files never change; an interrupted operation can be finished.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_share::files::{self, FileState};
use remap_ssd_store::{Create, NewVolume, OpenOptions, Processes, Store, Volume};
use remap_ssd_testkit::{MemDisk, PAGE, contents, kept, subsets, tagged};
use std::collections::{BTreeMap, HashMap};

const PAGES: u64 = 200;
const SLOTS: u32 = 14;
const FILES: [&str; 2] = ["x", "y"];
const NAMES: [&str; 2] = ["a", "b"];

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Create(&'static str),
    Delete(&'static str),
    Rollback(&'static str),
    Copy,
}

/// State before a step, the step, and the number of operations by its end.
struct Moment {
    files: Files,
    snapshots: BTreeMap<&'static str, Files>,
    step: Step,
    operations: usize,
}

fn quiet(_: u64, _: u64) {}

fn content_of(volume: &Volume<MemDisk>, name: &str) -> Option<Vec<u8>> {
    volume
        .open(name, OpenOptions::default())
        .ok()
        .map(|file| contents(volume, file))
}

fn script(seed: u64, steps: usize) -> (MemDisk, usize, Vec<Moment>) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: SLOTS,
        ..NewVolume::default()
    };
    let volume = Volume::create(disk.clone(), &Processes::One, &new, &mut quiet).expect("possible");
    let begin = disk.medium().log.len();
    let (mut now, mut snapshots, mut moments) = (
        Files::new(),
        BTreeMap::<&'static str, Files>::new(),
        Vec::new(),
    );
    for number in 0..steps as u64 {
        let name = NAMES[random.random_range(0..NAMES.len())];
        let (before, known) = (now.clone(), snapshots.clone());
        let step = match (random.random_range(0..5), snapshots.contains_key(name)) {
            (0 | 1, _) => Step::Write,
            (2, true) => Step::Delete(name),
            (3, _) if now.contains_key("x") && !now.contains_key("copy") => Step::Copy,
            (_, true) => Step::Rollback(name),
            (_, false) if !now.is_empty() => Step::Create(name),
            _ => continue,
        };
        match &step {
            Step::Write => {
                let name = FILES[random.random_range(0..FILES.len())];
                let bytes = tagged(seed << 32 | number, random.random_range(1..6 * PAGE));
                let file = volume.open(name, Create::IfAbsent.into());
                let file = file.expect("there is room");
                volume.write(file, 0, &bytes).expect("there is room");
                volume.set_size(file, bytes.len() as u64).expect("possible");
                volume.sync(file).expect("possible");
                now.insert(name.into(), bytes);
            }
            Step::Create(name) => {
                files::create(&volume, name, &[], number, &mut quiet).expect("there is room");
                snapshots.insert(name, now.clone());
            }
            Step::Delete(name) => {
                files::delete(&volume, name).expect("it is there");
                snapshots.remove(name);
            }
            Step::Rollback(name) => {
                files::rollback(&volume, name, &mut quiet).expect("it is there");
                now.extend(snapshots[name].clone());
            }
            Step::Copy => {
                files::copy(&volume, "x", "copy").expect("there is room");
                now.insert("copy".into(), now["x"].clone());
            }
        }
        for (name, bytes) in &now {
            assert!(
                content_of(&volume, name).as_ref() == Some(bytes),
                "{step:?}: {name}"
            );
        }
        moments.push(Moment {
            files: before,
            snapshots: known,
            step,
            operations: disk.medium().log.len(),
        });
    }
    let operations = disk.medium().log.len();
    moments.push(Moment {
        files: now,
        snapshots,
        step: Step::Write,
        operations,
    });
    (disk, begin, moments)
}

/// Returns true if a file's size and each of its pages come from one of two states.
fn is_old_or_new(is: &[u8], old: Option<&Vec<u8>>, new: Option<&Vec<u8>>) -> bool {
    let states: Vec<&[u8]> = [old, new]
        .into_iter()
        .flatten()
        .map(Vec::as_slice)
        .chain([&[][..]])
        .collect();
    is.chunks(PAGE).enumerate().all(|(page, there)| {
        states.iter().any(|state| {
            let mut bytes = [0; PAGE];
            let part = state.get(page * PAGE..).unwrap_or_default();
            let part = &part[..part.len().min(PAGE)];
            bytes[..part.len()].copy_from_slice(part);
            bytes[..there.len()] == *there
        })
    })
}

fn judge(disk: MemDisk, now: &Moment, next: &Moment) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let volume = Volume::open(disk, &Processes::One).map_err(|error| said(&error))?;
    let damage = volume.damage().map_err(|error| said(&error))?;
    if !damage.is_empty() {
        return Err(damage.join("; "));
    }
    let listed = files::list(&volume).map_err(|error| said(&error))?;

    for name in NAMES {
        let found = listed.iter().find(|one| one.name == name);
        let whole = found.is_some_and(|one| one.state != FileState::Part);
        let (was, will) = (now.snapshots.get(name), next.snapshots.get(name));
        match (was, will) {
            (Some(_), Some(_)) if !whole => return Err(format!("snapshot {name} is {found:?}")),
            (None, None) if found.is_some() => {
                return Err(format!("snapshot {name} was never made"));
            }
            _ => {}
        }
        let Some(wanted) = was.or(will).filter(|_| whole) else {
            continue;
        };
        for (file, bytes) in wanted {
            if content_of(&volume, &format!("{file}@{name}")).as_ref() != Some(bytes) {
                return Err(format!("{file} in snapshot {name} is not what it was"));
            }
        }
    }

    let rolling = listed
        .iter()
        .find(|one| one.state == FileState::RollingBack)
        .map(|one| one.name.clone());
    let names: Vec<&String> = now.files.keys().chain(next.files.keys()).collect();
    let is = |state: &Files| {
        names
            .iter()
            .all(|name| content_of(&volume, name).as_ref() == state.get(*name))
    };
    for name in &names {
        let (old, new) = (now.files.get(*name), next.files.get(*name));
        let there = content_of(&volume, name);
        if there.is_none() && old.is_some() {
            return Err(format!("{name} is gone"));
        }
        // Between a write and the truncation after it there is an intermediate state.
        if now.step != Step::Write && !is_old_or_new(&there.unwrap_or_default(), old, new) {
            return Err(format!("{name} was never like this"));
        }
    }
    let one_or_the_other = is(&now.files) || is(&next.files);
    if now.step != Step::Write && !one_or_the_other && rolling.is_none() {
        return Err("files are a mixture, and nothing says so".into());
    }

    // The interrupted operation can be finished.
    if let Some(name) = rolling {
        if files::create(&volume, "later", &[], 0, &mut quiet).is_ok()
            || files::delete(&volume, &name).is_ok()
        {
            return Err("a rollback is under way, and something else was done".into());
        }
        files::rollback(&volume, &name, &mut quiet).map_err(|error| said(&error))?;
        if !is(&next.files) {
            return Err("the rollback was not finished".into());
        }
    }
    for part in listed.iter().filter(|one| one.state == FileState::Part) {
        files::rollback(&volume, &part.name, &mut quiet).expect_err("it is not whole");
        files::create(&volume, &part.name, &[], 0, &mut quiet).map_err(|error| said(&error))?;
        files::delete(&volume, &part.name).map_err(|error| said(&error))?;
    }
    if now.step == Step::Copy && content_of(&volume, "copy").is_none() {
        files::copy(&volume, "x", "copy").map_err(|error| said(&error))?;
    }
    let left = volume.list().map_err(|error| said(&error))?;
    let known = files::list(&volume).map_err(|error| said(&error))?;
    let stray = left.iter().find(|info| {
        let of_snapshot =
            |one: &files::FileSnapshot| info.name.ends_with(&format!("@{}", one.name));
        info.name.contains('@') && !known.iter().any(of_snapshot)
    });
    stray.map_or(Ok(()), |info| {
        Err(format!("{} belongs to nothing", info.name))
    })
}

#[test]
fn every_cut_leaves_whole_snapshots_of_files_or_says_what_was_under_way() {
    let mut cuts = 0;
    for seed in 0..25 {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xc0ffee);
        let (disk, mut begin, moments) = script(seed, 14);
        let log = std::mem::take(&mut disk.medium().log);
        for pair in moments.windows(2) {
            let [now, next] = pair else {
                unreachable!("windows of two")
            };
            for operations in begin..=now.operations {
                let log = &log[..operations];
                for subset in subsets(log, random) {
                    let disk =
                        MemDisk::holding(PAGES, kept(&HashMap::new(), log, |index| subset[index]));
                    judge(disk, now, next).unwrap_or_else(|error| {
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
fn what_cannot_be_done_with_files_is_one_sentence() {
    let new = NewVolume {
        files_max: 4,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(MemDisk::new(PAGES), &Processes::One, &new, &mut quiet).expect("possible");
    let create = |name: &str, files: &[&str]| {
        let files: Vec<String> = files.iter().map(|name| (*name).to_owned()).collect();
        files::create(&volume, name, &files, 0, &mut quiet)
            .expect_err("it is refused")
            .to_string()
    };
    assert!(create("a", &[]).contains("no files"));
    let file = volume.open("x", Create::New.into()).expect("there is room");
    volume.write(file, 0, &[7; 9000]).expect("there is room");
    assert!(create("a!", &[]).contains("cannot be a snapshot's name"));
    assert!(create("a", &["nothing"]).contains("no file nothing"));

    files::create(&volume, "a", &[], 0, &mut quiet).expect("there is room");
    assert!(create("a", &[]).contains("already"));
    // The manifest takes the last slot and is removed again.
    assert!(
        create("b", &[]).contains("room for another one"),
        "{}",
        create("b", &[])
    );
    assert_eq!(volume.list().expect("it works").len(), 3);
    volume
        .open("x@b", Create::New.into())
        .expect("there is room");
    assert!(
        create("b", &[]).contains("there is a file x@b already"),
        "another file is not overwritten"
    );
    files::copy(&volume, "x", "x@b").expect_err("it is there");
    files::rollback(&volume, "b", &mut quiet).expect_err("there is none");
    files::delete(&volume, "b").expect_err("there is none");

    let before = contents(&volume, file);
    volume
        .write(file, 100, &[9; 20_000])
        .expect("there is room");
    files::rollback(&volume, "a", &mut quiet).expect("it is there");
    assert!(contents(&volume, file) == before);
    files::delete(&volume, "a").expect("it is there");
    assert_eq!(files::list(&volume).expect("it works"), []);
}

#[test]
fn a_full_volume_refuses_and_nothing_is_left_of_what_was_begun() {
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(MemDisk::new(PAGES), &Processes::One, &new, &mut quiet).expect("possible");
    let file = volume.open("x", Create::New.into()).expect("there is room");
    volume
        .write(file, 0, &tagged(1, 120 * PAGE))
        .expect("there is room");
    let before = volume.info().expect("possible");
    for refused in [
        files::copy(&volume, "x", "y").expect_err("it is full"),
        files::create(&volume, "a", &[], 0, &mut quiet)
            .map(drop)
            .expect_err("it is full"),
    ] {
        assert!(
            refused
                .to_string()
                .contains("the volume is full: 120 pages are needed"),
            "{refused}"
        );
        assert_eq!(volume.info().expect("possible"), before);
    }
}

#[test]
fn a_volume_that_another_process_has_open_is_not_opened_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(dir.path().into());
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: 4,
        ..NewVolume::default()
    };
    let volume = Volume::create(disk.clone(), &processes, &new, &mut quiet).expect("possible");
    assert!(
        Volume::open_alone(disk.clone(), &processes).is_err(),
        "it is in use"
    );
    drop(volume);
    let alone = Volume::open_alone(disk.clone(), &processes).expect("it is free");
    assert!(
        Volume::open(disk.clone(), &processes).is_err(),
        "it is used alone"
    );
    drop(alone);
    Volume::open(disk, &processes)
        .map(drop)
        .expect("it is free");
}

/// The acknowledgement of one write is lost, for each write in turn; the same process cleans up
/// after it.
#[test]
fn a_snapshot_of_files_that_says_it_is_whole_is_whole_after_a_lost_answer() {
    let mut whole = 0;
    for answered in 0.. {
        let disk = MemDisk::new(PAGES);
        let new = NewVolume {
            files_max: SLOTS,
            ..NewVolume::default()
        };
        let volume =
            Volume::create(disk.clone(), &Processes::One, &new, &mut quiet).expect("possible");
        let file = volume.open("x", Create::IfAbsent.into()).expect("possible");
        volume
            .write(file, 0, &tagged(1, 3 * PAGE))
            .expect("possible");
        volume.sync_all().expect("possible");

        disk.medium().answers_left = Some(answered);
        let made = files::create(&volume, "a", &[], 0, &mut quiet);
        let was_lost = disk.medium().answers_left.take().is_none();
        drop(volume);
        assert_eq!(made.is_err(), was_lost, "{answered} writes were answered");
        if made.is_ok() {
            break;
        }

        let volume = Volume::open(disk, &Processes::One).expect("it is whole");
        assert_eq!(
            content_of(&volume, "x").as_deref(),
            Some(&tagged(1, 3 * PAGE)[..])
        );
        for snapshot in files::list(&volume).expect("readable") {
            if snapshot.state == FileState::Complete {
                files::rollback(&volume, "a", &mut quiet).expect("its copies are there");
                whole += 1;
            } else {
                files::delete(&volume, "a").expect("it can be removed");
            }
        }
    }
    assert!(whole > 0, "no answer was lost at the rename");
}
