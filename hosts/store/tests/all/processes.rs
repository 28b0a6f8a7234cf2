//! Several users of one volume, each with its own connection: no page gets two owners, and no user
//! relies on state that another one has changed. (With separate processes:
//! `crates/cli/tests/all/volumes.rs`.)

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_store::guard::Guard;
use remap_ssd_store::{
    Create, FileId, NewVolume, OpenOptions, Processes, Store, StoreError, Volume,
};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const NEW: OpenOptions = OpenOptions {
    create: Create::IfAbsent,
    open_end: false,
    written_next: false,
};

fn make(disk: &MemDisk, dir: &Path) -> Processes {
    let processes = Processes::Several(dir.to_path_buf());
    let new = NewVolume {
        files_max: 16,
        ..NewVolume::default()
    };
    Volume::create(disk.clone(), &processes, &new, &mut |_, _| {}).expect("possible");
    processes
}

/// The words of the tenancy that has a volume open.
fn words(dir: &Path, uuid: &str) -> std::path::PathBuf {
    let entries = std::fs::read_dir(dir).expect("it is there");
    let folders = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_dir());
    let mut of_volume = folders.filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(uuid))
    });
    of_volume.next().expect("a tenancy").join("words")
}

#[test]
fn four_writers_that_allocate_at_once_never_get_the_same_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(6000);
    let processes = make(&disk, dir.path());
    let work = |number: u64| {
        let volume = Volume::open(disk.clone(), &processes).expect("possible");
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(number);
        let name = format!("database {number}");
        let mut known = Vec::new();
        for round in 0..150 {
            let file = volume.open(&name, NEW).expect("possible");
            match random.random_range(0..10) {
                0 => {
                    volume.delete(&name).expect("it is there");
                    known.clear();
                }
                1 => {
                    let size = random.random_range(0..=known.len());
                    volume.set_size(file, size as u64).expect("possible");
                    known.truncate(size);
                }
                2 => volume.sync(file).expect("possible"),
                _ if known.len() < 300 * PAGE => {
                    let data = tagged(number << 32 | round, random.random_range(1..12 * PAGE));
                    volume
                        .write(file, known.len() as u64, &data)
                        .expect("there is room");
                    known.extend_from_slice(&data);
                }
                _ => {}
            }
            if let Ok(file) = volume.open(&name, OpenOptions::default()) {
                assert!(contents(&volume, file) == known, "{name} in round {round}");
            }
        }
        (name, known)
    };
    let left: Vec<(String, Vec<u8>)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..5)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("no writer failed"))
            .collect()
    });
    let volume = Volume::open(disk.clone(), &processes).expect("possible");
    let damage = volume.damage().expect("readable");
    assert!(damage.is_empty(), "no page is claimed twice: {damage:?}");
    for (name, known) in left {
        match volume.open(&name, OpenOptions::default()) {
            Ok(file) => assert!(contents(&volume, file) == known, "{name}"),
            Err(error) => assert!(
                known.is_empty() && matches!(error, StoreError::NotFound(_)),
                "{name}: {error}"
            ),
        }
    }
}

/// A log that is about to be written: it is created with its first pages.
const LOG: OpenOptions = OpenOptions {
    create: Create::IfAbsent,
    open_end: true,
    written_next: true,
};

/// The next process that writes dies when the disk has done it. Just before, `early` reads the table.
fn dies_in_the_next_write(disk: &MemDisk, early: &Arc<Volume<MemDisk>>) {
    let reader = Arc::clone(early);
    let read = Box::new(move || drop(reader.list().expect("readable")));
    let mut medium = disk.medium();
    medium.before_write = Some((0..600, read));
    medium.fails_after_write = true;
}

// One process dies between the record of a file and the end of its change; a second one has read
// the table just before the record.
#[test]
fn a_file_whose_maker_died_is_the_same_for_all_before_one_writes_to_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(600);
    let processes = make(&disk, dir.path());
    let [early, maker, writer] =
        [(); 3].map(|()| Arc::new(Volume::open(disk.clone(), &processes).expect("possible")));

    dies_in_the_next_write(&disk, &early);
    maker.open("log", LOG).expect_err("it dies");
    disk.medium().fails_after_write = false;

    let file = writer.open("log", LOG).expect("possible");
    writer
        .write(file, 0, &tagged(1, 3 * PAGE))
        .expect("possible");
    writer.sync(file).expect("possible");
    let same = early.open("log", OpenOptions::default());
    assert_eq!(same.expect("it is there"), file);
    assert!(contents(&*early, file).starts_with(&tagged(1, 3 * PAGE)));
}

// As above, for a file that one process has grown.
#[test]
fn pages_whose_claimer_died_are_the_same_for_all_before_one_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(600);
    let processes = make(&disk, dir.path());
    let [early, claimer, writer] =
        [(); 3].map(|()| Arc::new(Volume::open(disk.clone(), &processes).expect("possible")));
    let file = early.open("log", LOG).expect("possible");

    dies_in_the_next_write(&disk, &early);
    let all = tagged(1, 20 * PAGE);
    claimer.write(file, 0, &all).expect_err("it dies");
    disk.medium().fails_after_write = false;

    writer.write(file, 0, &all).expect("possible");
    writer.sync(file).expect("possible");
    assert!(contents(&*early, file).starts_with(&all));
}

// The device loses power in the flush that makes a change durable, and its process goes on.
#[test]
fn a_change_whose_flush_failed_is_made_again_before_its_pages_are_written() {
    for flushes in 0..2 {
        let dir = tempfile::tempdir().expect("a folder");
        let disk = MemDisk::new(600);
        let processes = make(&disk, dir.path());
        let volume = Volume::open(disk.clone(), &processes).expect("possible");
        let fails = |disk: &MemDisk| disk.medium().flushes_left = Some(flushes);

        fails(&disk);
        volume.open("log", LOG).expect_err("no answer");
        disk.medium().cut(|| false);
        let file = volume.open("log", LOG).expect("possible");

        fails(&disk);
        let all = tagged(1, 20 * PAGE);
        volume.write(file, 0, &all).expect_err("no answer");
        disk.medium().cut(|| false);
        volume.write(file, 0, &all).expect("possible");
        volume.sync(file).expect("possible");
        disk.medium().cut(|| false);

        // Without this process's memory.
        std::mem::forget(volume);
        let elsewhere = tempfile::tempdir().expect("a folder");
        let processes = Processes::Several(elsewhere.path().into());
        let left = Volume::open(disk, &processes).expect("possible");
        let file = left.open("log", OpenOptions::default());
        assert!(contents(&left, file.expect("it is there")).starts_with(&all));
    }
}

#[test]
fn what_one_process_changes_another_one_sees() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(600);
    let processes = make(&disk, dir.path());
    let [one, two] = [(); 2].map(|()| Volume::open(disk.clone(), &processes).expect("possible"));
    let a = one.open("a", NEW).expect("possible");
    one.write(a, 0, &tagged(1, 10 * PAGE + 5))
        .expect("possible");
    let same = two.open("a", OpenOptions::default()).expect("it was made");
    assert!(
        contents(&two, same) == tagged(1, 10 * PAGE + 5),
        "size and pages, without a sync"
    );

    // It grows through either connection.
    two.write(same, 10 * PAGE as u64 + 5, &tagged(2, 40 * PAGE))
        .expect("possible");
    assert_eq!(one.size(a).expect("possible"), 50 * PAGE as u64 + 5);

    // Its pages go to another file; a user with the old places cached must not read there.
    one.set_size(a, 3).expect("possible");
    let b = one.open("b", NEW).expect("possible");
    one.write(b, 0, &tagged(3, 500 * PAGE))
        .expect("the pages are free");
    assert!(contents(&two, same) == tagged(1, 3));
    one.delete("a").expect("it is there");
    assert!(matches!(
        two.read(same, 0, &mut [0; 3]),
        Err(StoreError::Gone)
    ));

    // A volume in use is not overwritten.
    let forced = NewVolume {
        force: true,
        ..NewVolume::default()
    };
    let refused = Volume::create(disk.clone(), &processes, &forced, &mut |_, _| {})
        .err()
        .expect("it is in use");
    assert!(matches!(refused, StoreError::InUse), "{refused}");
    assert!(contents(&two, two.open("b", NEW).expect("it is there")) == tagged(3, 500 * PAGE));
    drop((one, two));
    Volume::create(disk.clone(), &processes, &forced, &mut |_, _| {}).expect("it is free");
}

#[test]
fn copies_of_a_volume_have_sizes_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = MemDisk::new(600);
    first.identity = Some([1; 16]);
    let processes = make(&first, dir.path());
    let made = Volume::open(first.clone(), &processes).expect("possible");
    let file = made.open("a", NEW).expect("possible");
    made.write(file, 0, &tagged(1, PAGE)).expect("possible");
    made.sync(file).expect("possible");
    drop(made);

    let second = first.copy([2; 16]);
    let [one, two] = [first, second].map(|disk| Volume::open(disk, &processes).expect("possible"));
    let [in_one, in_two] = [&one, &two].map(|volume| {
        volume
            .open("a", OpenOptions::default())
            .expect("it is there")
    });
    one.write(in_one, PAGE as u64, &tagged(2, PAGE))
        .expect("possible");

    assert_eq!(one.size(in_one).expect("possible"), 2 * PAGE as u64);
    assert_eq!(
        two.size(in_two).expect("possible"),
        PAGE as u64,
        "the copy was not written"
    );
}

#[test]
fn what_a_process_that_died_left_half_done_is_made_durable_first() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(600);
    let processes = make(&disk, dir.path());
    let volume = Volume::open(disk.clone(), &processes).expect("possible");
    let uuid = volume.info().expect("possible").uuid;
    let file = volume.open("a", NEW).expect("possible");
    volume
        .write(file, 0, &tagged(1, 10 * PAGE))
        .expect("possible");

    // Another process dies within a change: the generation is odd.
    use std::os::unix::fs::FileExt;
    let coordination = std::fs::File::options()
        .read(true)
        .write(true)
        .open(words(dir.path(), &uuid))
        .expect("it is there");
    let mut word = [0; 8];
    coordination.read_exact_at(&mut word, 0).expect("readable");
    let generation = u64::from_le_bytes(word);
    assert!(generation > 0 && generation % 2 == 0);
    coordination
        .write_all_at(&(generation + 1).to_le_bytes(), 0)
        .expect("writable");

    let flushes = volume.statistics().syncs;
    volume.open("b", NEW).expect("possible");
    assert_eq!(
        volume.statistics().syncs - flushes,
        2,
        "once for what was left, once for the new file"
    );
    coordination.read_exact_at(&mut word, 0).expect("readable");
    assert_eq!(u64::from_le_bytes(word), generation + 4);
    assert!(contents(&volume, file) == tagged(1, 10 * PAGE));
}

/// Two processes and a file of one page, which both have read.
fn two_readers() -> (MemDisk, [Volume<MemDisk>; 2], FileId, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(600);
    let processes = make(&disk, dir.path());
    let volumes = [(); 2].map(|()| Volume::open(disk.clone(), &processes).expect("possible"));
    let file = volumes[0].open("a", NEW).expect("possible");
    volumes[0]
        .write(file, 0, &tagged(1, PAGE))
        .expect("possible");
    volumes
        .iter()
        .for_each(|volume| assert!(contents(volume, file) == tagged(1, PAGE)));
    (disk, volumes, file, dir)
}

#[test]
fn a_page_that_was_read_while_another_process_wrote_it_is_not_kept() {
    let (disk, [one, two], file, _dir) = two_readers();
    assert!(contents(&two, file) == tagged(1, PAGE));
    assert_eq!(two.statistics().pages_found, 1, "it is kept in memory");

    // The other one reads before the disk has the page, and again after.
    let two = Arc::new(two);
    let reader = Arc::clone(&two);
    let read = move || {
        assert!(
            contents(&*reader, file) == tagged(1, PAGE),
            "the write is not there yet"
        )
    };
    disk.medium().before_write = Some((18..600, Box::new(read)));
    one.write(file, 0, &tagged(2, PAGE)).expect("possible");
    assert!(contents(&*two, file) == tagged(2, PAGE));
    assert!(contents(&one, file) == tagged(2, PAGE));
}

#[test]
fn nobody_believes_what_is_in_memory_after_a_write_that_failed() {
    for dies in [false, true] {
        let (disk, [one, two], file, _dir) = two_readers();
        // The write is done, and its response lost; or the process dies before it arrives.
        disk.medium().fails_after_write = true;
        one.write(file, 0, &tagged(2, PAGE)).expect_err("no answer");
        disk.medium().fails_after_write = false;
        if dies {
            drop(one);
        } else {
            assert!(contents(&one, file) == tagged(2, PAGE));
        }
        assert!(contents(&two, file) == tagged(2, PAGE));

        // After the next change all is normal again.
        two.write(file, 0, &tagged(3, PAGE)).expect("possible");
        let found = two.statistics().pages_found;
        assert!(contents(&two, file) == tagged(3, PAGE));
        assert_eq!(two.statistics().pages_found, found + 1);
    }
}

#[test]
fn nobody_believes_what_is_in_memory_of_a_device_that_has_lost_power() {
    let (disk, [one, _two], file, _dir) = two_readers();
    one.sync(file).expect("possible");
    one.write(file, 0, &tagged(2, PAGE)).expect("possible");
    assert!(contents(&one, file) == tagged(2, PAGE));

    // It was not synced. The next command, for another file, finds the connection gone.
    let other = one.open("b", NEW).expect("possible");
    one.write(other, 0, &tagged(3, PAGE)).expect("possible");
    one.sync(other).expect("possible");
    one.write(file, 0, &tagged(4, PAGE)).expect("possible");
    disk.medium().cut(|| false);
    disk.medium().fails_after_write = true;
    one.write(other, 0, &tagged(5, PAGE))
        .expect_err("no answer");
    assert!(
        contents(&one, file) == tagged(2, PAGE),
        "what the device has"
    );
}

/// A power cut of the device, and an allocation by another process, at the moment when a process
/// has located its pages and has not written yet.
fn claim_race(without: Option<Guard>) -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = MemDisk::new(200);
    let processes = make(&disk, dir.path());
    let one = Volume::open(disk.clone(), &processes).expect("possible");
    let one = match without {
        Some(guard) => one.without(guard),
        None => one,
    };
    let a = one.open("a", NEW).expect("possible");
    let theirs = tagged(2, 100 * PAGE);
    let (other, data) = (disk.clone(), theirs.clone());
    let other_processes = processes.clone();
    let race = move || {
        other.medium().cut(|| false);
        let two = Volume::open(other, &other_processes).expect("possible");
        let b = two.open("b", NEW).expect("possible");
        two.write(b, 0, &data).expect("there is room");
        two.sync(b).expect("possible");
    };
    // File data begins after two superblocks and 16 records.
    disk.medium().before_write = Some((18..200, Box::new(race)));
    one.write(a, 0, &tagged(1, 20 * PAGE)).expect("possible");
    let b = one.open("b", OpenOptions::default()).expect("it was made");
    (contents(&one, b), theirs)
}

#[test]
fn a_claim_is_durable_before_its_pages_are_written() {
    let (found, written) = claim_race(None);
    assert!(
        found == written,
        "pages of one file were written by another one"
    );
    let (found, written) = claim_race(Some(Guard::FlushClaimed));
    assert!(
        found != written,
        "the flush protects nothing that this test would notice"
    );
}

#[test]
fn a_device_that_loses_power_under_living_processes_keeps_files_apart() {
    for seed in 0..12 {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let dir = tempfile::tempdir().expect("a folder");
        let disk = MemDisk::new(300);
        let processes = make(&disk, dir.path());
        let volumes = [(); 2].map(|()| Volume::open(disk.clone(), &processes).expect("possible"));
        let mut synced: HashMap<String, Vec<u8>> = HashMap::new();
        for round in 0..80u64 {
            // Each process has two files, and syncs them at times.
            let user = random.random_range(0..2);
            let volume = &volumes[user];
            let name = format!("{user}{}", random.random_range(0..2));
            let file = volume.open(&name, NEW).expect("possible");
            match random.random_range(0..8) {
                0 => disk.medium().cut(|| random.random_bool(0.5)),
                1 => {
                    volume.delete(&name).expect("it is there");
                    synced.remove(&name);
                }
                2 => {
                    volume.set_size(file, 2 * PAGE as u64).expect("possible");
                    volume.sync(file).expect("possible");
                    synced.insert(name, contents(volume, file));
                }
                _ => {
                    let data = tagged(seed << 32 | round, random.random_range(1..20) * PAGE);
                    volume.write(file, 0, &data).expect("there is room");
                    volume.sync(file).expect("possible");
                    synced.insert(name, contents(volume, file));
                }
            }
        }
        let fresh = Volume::open(disk.clone(), &processes).expect("possible");
        let damage = fresh.damage().expect("readable");
        assert!(damage.is_empty(), "no page is claimed twice: {damage:?}");
        for (name, known) in synced {
            let file = fresh
                .open(&name, OpenOptions::default())
                .expect("it was synced");
            assert!(contents(&fresh, file) == known, "{name}, seed {seed}");
        }
    }
}
