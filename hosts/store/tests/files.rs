//! Files are bytes by name: the same steps on a device in this process, on one behind the network, on a disk that refuses
//! to remap and on the operating system's files leave the same bytes.

mod kit;

use kit::{MemDisk, PAGE, contents, discard, tagged, write};
use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Health, Latency, Subsystem};
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_store::{
    Create, FileId, FileWrite, NewVolume, OpenOptions, OsStore, Processes, Share, Store,
    StoreError, Volume,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMES: [&str; 4] = ["database", "database-wal", "database-journal", "other"];
const BYTES: u64 = 32 << 20;
/// Bytes of a file that the steps use.
const SPAN: usize = 40 * PAGE;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open {
        name: usize,
        create: Create,
    },
    Delete {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Write {
        name: usize,
        offset: usize,
        bytes: usize,
    },
    /// Pieces of so many bytes, each so many behind the one before.
    WriteAll {
        name: usize,
        offset: usize,
        bytes: usize,
        pieces: usize,
        gap: usize,
    },
    SetSize {
        name: usize,
        size: usize,
    },
    Discard {
        name: usize,
        offset: usize,
        bytes: usize,
    },
    Share {
        from: usize,
        from_offset: usize,
        to: usize,
        to_offset: usize,
        bytes: usize,
        pieces: usize,
    },
    Sync {
        name: usize,
    },
    SyncAll,
}

/// An offset, mostly at a page.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![3 => (0..SPAN / PAGE).prop_map(|page| page * PAGE), 1 => 0..SPAN]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![3 => (0..12usize).prop_map(|pages| pages * PAGE), 1 => 0..6 * PAGE]
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let create = prop_oneof![
        Just(Create::Never),
        Just(Create::IfAbsent),
        Just(Create::New)
    ];
    prop_oneof![
        3 => (name(), create).prop_map(|(name, create)| Step::Open { name, create }),
        1 => name().prop_map(|name| Step::Delete { name }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        6 => (name(), place(), length()).prop_map(|(name, offset, bytes)| Step::Write { name, offset, bytes }),
        4 => (name(), place(), length(), 0..4usize, length()).prop_map(
            |(name, offset, bytes, pieces, gap)| Step::WriteAll { name, offset, bytes, pieces, gap: gap / 3 }
        ),
        2 => (name(), place()).prop_map(|(name, size)| Step::SetSize { name, size }),
        2 => (name(), place(), length()).prop_map(|(name, offset, bytes)| Step::Discard { name, offset, bytes }),
        5 => (name(), place(), name(), place(), length(), 1..4usize).prop_map(
            |(from, from_offset, to, to_offset, bytes, pieces)| {
                Step::Share { from, from_offset, to, to_offset, bytes, pieces }
            }
        ),
        1 => name().prop_map(|name| Step::Sync { name }),
        1 => Just(Step::SyncAll),
    ]
}

/// Ranges of a list of shares: each behind the one before, so that later ones may read what earlier ones wrote.
fn ranges(step: &Step) -> Vec<(usize, usize, usize)> {
    let Step::Share {
        from_offset,
        to_offset,
        bytes,
        pieces,
        ..
    } = *step
    else {
        return Vec::new();
    };
    (0..pieces)
        .map(|piece| {
            (
                from_offset + piece * bytes,
                to_offset + piece * bytes,
                bytes,
            )
        })
        .collect()
}

fn file(store: &dyn Store, name: usize) -> Option<FileId> {
    store.open(NAMES[name], OpenOptions::default()).ok()
}

/// Does one step on a store and by definition; both must agree on whether it is possible.
fn perform(store: &dyn Store, files: &mut BTreeMap<&str, Vec<u8>>, index: usize, step: &Step) {
    match *step {
        Step::Open { name, create } => {
            let name = NAMES[name];
            let opened = store.open(
                name,
                OpenOptions {
                    create,
                    open_end: false,
                },
            );
            match (files.contains_key(name), create) {
                (true, Create::New) => assert!(matches!(opened, Err(StoreError::Exists(_)))),
                (false, Create::Never) => assert!(matches!(opened, Err(StoreError::NotFound(_)))),
                _ => {
                    store.close(opened.expect("possible"));
                    files.entry(name).or_default();
                }
            }
        }
        Step::Delete { name } => match files.remove(NAMES[name]) {
            Some(_) => store.delete(NAMES[name]).expect("possible"),
            None => assert!(matches!(
                store.delete(NAMES[name]),
                Err(StoreError::NotFound(_))
            )),
        },
        Step::Rename { from, to } => {
            let done = store.rename(NAMES[from], NAMES[to]);
            if files.contains_key(NAMES[from]) && (from == to || !files.contains_key(NAMES[to])) {
                done.expect("possible");
                let bytes = files.remove(NAMES[from]).expect("it is there");
                files.insert(NAMES[to], bytes);
            } else {
                assert!(matches!(
                    done,
                    Err(StoreError::NotFound(_) | StoreError::Exists(_))
                ));
            }
        }
        Step::Write {
            name,
            offset,
            bytes,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            let data = tagged(index as u64, bytes);
            store.write(file, offset as u64, &data).expect("possible");
            write(known, offset, &data);
            store.close(file);
        }
        Step::WriteAll {
            name,
            offset,
            bytes,
            pieces,
            gap,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            let places: Vec<usize> = (0..pieces)
                .map(|piece| offset + piece * (bytes + gap))
                .collect();
            let data: Vec<Vec<u8>> = places
                .iter()
                .map(|place| tagged((index + place) as u64, bytes))
                .collect();
            let writes: Vec<FileWrite<'_>> = places
                .iter()
                .zip(&data)
                .map(|(place, data)| FileWrite {
                    offset: *place as u64,
                    data,
                })
                .collect();
            store.write_all(file, &writes).expect("possible");
            places
                .iter()
                .zip(&data)
                .filter(|_| bytes > 0)
                .for_each(|(place, data)| write(known, *place, data));
            store.close(file);
        }
        Step::SetSize { name, size } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            store.set_size(file, size as u64).expect("possible");
            known.resize(size, 0);
            store.close(file);
        }
        Step::Discard {
            name,
            offset,
            bytes,
        } => {
            let Some(known) = files.get_mut(NAMES[name]) else {
                return;
            };
            let file = file(store, name).expect("it is there");
            store
                .discard(file, offset as u64, bytes as u64)
                .expect("possible");
            discard(known, offset, bytes);
            store.close(file);
        }
        Step::Share { from, to, .. } => {
            let (Some(source), Some(target)) = (file(store, from), file(store, to)) else {
                return;
            };
            let mut possible = true;
            for (from_offset, to_offset, bytes) in ranges(step) {
                let known = &files[NAMES[from]];
                possible = bytes == 0 || from_offset + bytes <= known.len();
                if !possible {
                    break; // What was before it has been done.
                }
                let taken = if bytes == 0 {
                    Vec::new()
                } else {
                    known[from_offset..from_offset + bytes].to_vec()
                };
                write(
                    files.get_mut(NAMES[to]).expect("it is there"),
                    to_offset,
                    &taken,
                );
            }
            let shares: Vec<Share> = ranges(step)
                .iter()
                .map(|&(from_offset, to_offset, bytes)| Share {
                    from: source,
                    from_offset: from_offset as u64,
                    to: target,
                    to_offset: to_offset as u64,
                    bytes: bytes as u64,
                })
                .collect();
            let done = store.share_all(&shares);
            assert_eq!(done.is_ok(), possible, "{step:?}: {done:?}");
            if !possible {
                // How much of the list was done is not promised.
                files.insert(NAMES[to], contents(store, target));
            }
            store.close(source);
            store.close(target);
        }
        Step::Sync { name } => {
            if let Some(file) = file(store, name) {
                store.sync(file).expect("possible");
                store.close(file);
            }
        }
        Step::SyncAll => store.sync_all().expect("possible"),
    }
}

fn compare(store: &dyn Store, files: &BTreeMap<&str, Vec<u8>>, what: &str) {
    let list = store.list().expect("possible");
    let known: Vec<(&str, u64)> = files
        .iter()
        .map(|(name, bytes)| (*name, bytes.len() as u64))
        .collect();
    let found: Vec<(&str, u64)> = list
        .iter()
        .map(|info| (info.name.as_str(), info.bytes))
        .collect();
    assert_eq!(found, known, "{what}");
    for (name, bytes) in files {
        let file = store
            .open(name, OpenOptions::default())
            .expect("it is there");
        assert!(contents(store, file) == *bytes, "{name} {what}");
        // A range that begins and ends within pages, and one that reaches beyond the end.
        let (first, mut part) = (bytes.len() / 3, vec![1; 5000]);
        let read = store.read(file, first as u64, &mut part).expect("possible");
        assert!(
            part[..read] == bytes[first..(first + 5000).min(bytes.len())],
            "{name} {what}"
        );
        assert_eq!(
            store
                .read(file, bytes.len() as u64, &mut part)
                .expect("possible"),
            0
        );
        store.close(file);
    }
}

fn run(store: &dyn Store, steps: &[Step], what: &str) {
    // What an earlier run that failed has left.
    store
        .list()
        .expect("possible")
        .iter()
        .for_each(|info| store.delete(&info.name).expect("it is there"));
    let mut files = BTreeMap::new();
    // Two files to begin with, so that there is something to share.
    for name in 0..2 {
        perform(
            store,
            &mut files,
            0,
            &Step::Open {
                name,
                create: Create::New,
            },
        );
        perform(
            store,
            &mut files,
            1000 + name,
            &Step::Write {
                name,
                offset: 0,
                bytes: 30 * PAGE,
            },
        );
    }
    for (index, step) in steps.iter().enumerate() {
        perform(store, &mut files, index, step);
    }
    compare(store, &files, what);
    files
        .keys()
        .for_each(|name| store.delete(name).expect("it is there"));
}

/// Two processes that take turns; each looks at everything after each step, and keeps what it has seen.
// From page 11 to page 12, a page and a bit: the bit is of page 12, which the page goes to.
#[test]
fn a_range_whose_tail_alone_overlaps_its_target_is_read_before_it_is_written() {
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume::default();
    let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let options = OpenOptions {
        create: Create::New,
        ..OpenOptions::default()
    };
    let file = volume.open("database", options).expect("possible");
    let bytes: Vec<u8> = (0..20 * PAGE).map(|at| (at / PAGE) as u8).collect();
    volume.write(file, 0, &bytes).expect("possible");

    let share = Share {
        from: file,
        from_offset: 11 * PAGE as u64,
        to: file,
        to_offset: 12 * PAGE as u64,
        bytes: PAGE as u64 + 100,
    };
    volume.share(&share).expect("possible");
    let mut found = vec![0; PAGE + 100];
    volume
        .read(file, 12 * PAGE as u64, &mut found)
        .expect("possible");
    assert!(found[..PAGE].iter().all(|byte| *byte == 11));
    assert!(
        found[PAGE..].iter().all(|byte| *byte == 12),
        "the tail is page 12 as it was"
    );
}

// A program that cleans `/tmp` takes the file away by which processes know of each other's changes.
#[test]
fn a_process_whose_coordination_file_was_deleted_believes_nothing_that_it_remembers() {
    let folder = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(folder.path().into());
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume::default();
    let first = Volume::create(disk.clone(), &processes, &new, &mut |_, _| {}).expect("possible");
    let options = OpenOptions {
        create: Create::New,
        ..OpenOptions::default()
    };
    let file = first.open("database", options).expect("possible");
    first.write(file, 0, &[1; PAGE]).expect("possible");
    first.sync(file).expect("possible");

    for entry in std::fs::read_dir(folder.path()).expect("it is there") {
        std::fs::remove_file(entry.expect("it is there").path()).expect("possible");
    }
    let second = Volume::open(disk, &processes).expect("possible");
    let same = second
        .open("database", OpenOptions::default())
        .expect("it is there");
    second.write(same, 0, &[2; PAGE]).expect("possible");

    let mut found = [0; PAGE];
    first.read(file, 0, &mut found).expect("possible");
    assert!(found == [2; PAGE], "the page of before is in memory");
}

// The page that is remembered of the source is older than the one that the disk shares.
#[test]
fn a_page_that_another_process_wrote_is_shared_as_it_is_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(folder.path().into());
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume::default();
    let first = Volume::create(disk.clone(), &processes, &new, &mut |_, _| {}).expect("possible");
    let second = Volume::open(disk, &processes).expect("possible");
    let options = OpenOptions {
        create: Create::IfAbsent,
        ..OpenOptions::default()
    };
    let [from, to] = ["database", "copy"].map(|name| first.open(name, options).expect("possible"));
    first.write(from, 0, &[1; PAGE]).expect("possible");
    let same = second.open("database", options).expect("it is there");
    second.write(same, 0, &[2; PAGE]).expect("possible");

    let share = Share {
        from,
        from_offset: 0,
        to,
        to_offset: 0,
        bytes: PAGE as u64,
    };
    first.share(&share).expect("possible");
    let mut found = [0; PAGE];
    first.read(to, 0, &mut found).expect("possible");
    assert!(found == [2; PAGE], "the page that was remembered");
}

#[test]
fn what_processes_keep_in_memory_is_what_the_disk_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(folder.path().into());
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    Volume::create(disk.clone(), &processes, &new, &mut |_, _| {}).expect("possible");
    // One keeps everything, the other one less than a file.
    let open = || Volume::open(disk.clone(), &processes).expect("possible");
    let volumes = [open(), open().with_cache(20 * PAGE as u64)];

    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(step(), 1..40), |steps| {
            let mut files = BTreeMap::new();
            for (name, volume) in volumes.iter().enumerate() {
                perform(
                    volume,
                    &mut files,
                    0,
                    &Step::Open {
                        name,
                        create: Create::New,
                    },
                );
                perform(
                    volume,
                    &mut files,
                    1000 + name,
                    &Step::Write {
                        name,
                        offset: 0,
                        bytes: 30 * PAGE,
                    },
                );
            }
            for (index, step) in steps.iter().enumerate() {
                perform(&volumes[index % 2], &mut files, index, step);
                volumes.iter().for_each(|volume| {
                    compare(volume, &files, &format!("after step {index}, {step:?}"))
                });
            }
            files
                .keys()
                .for_each(|name| volumes[0].delete(name).expect("it is there"));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));

    for volume in volumes {
        let counted = volume.statistics();
        assert!(
            counted.pages_found > 1000 && counted.pages_read > 1000,
            "{counted:?}"
        );
    }
}

fn config() -> DeviceConfig {
    DeviceConfig::for_service(BYTES, SchemeKind::RemapSsd, false).expect("possible")
}

fn volume<D: remap_ssd_device::Disk>(disk: D) -> Volume<D> {
    let new = NewVolume {
        files_max: 8,
        ..NewVolume::default()
    };
    Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("possible")
}

/// Nobody reads a log here.
struct Silent;

impl Log for Silent {
    fn connection(&self, _: &ConnectionLabel<'_>, _: &str) {}

    fn server(&self, _: &str) {}
}

#[test]
fn every_store_is_the_same_store() {
    let local = volume(LocalDisk::new(
        Device::in_memory(config()).expect("possible"),
    ));
    let poor = MemDisk::new(BYTES / PAGE as u64);
    poor.medium().no_remap = true;
    let poor = volume(poor);
    let folder = tempfile::tempdir().expect("a folder");
    let os = OsStore::open(folder.path()).expect("it is there");

    let device = Device::format(config()).expect("possible");
    let subsystem = Subsystem::new(
        device,
        "nqn.2026-11.test:store",
        &[],
        Latency::None,
        true,
        Health::default(),
    );
    let port = Port::new(
        Arc::new(subsystem.expect("possible")),
        Allowed {
            anybody: true,
            ..Allowed::default()
        },
    );
    let server = Server::bind(
        "127.0.0.1:0".parse().expect("an address"),
        port,
        Box::new(Silent),
    )
    .expect("a free port");
    let (address, stopper) = (
        server.address().expect("bound"),
        server.stopper().expect("bound"),
    );
    let served = std::thread::spawn(|| server.run());
    let remote = volume(Client::connect(address, Options::default()).expect("it listens"));

    let stores: [(&str, &dyn Store); 4] = [
        ("in memory", &local),
        ("behind the network", &remote),
        ("without remaps", &poor),
        ("of the system", &os),
    ];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(step(), 1..40), |steps| {
            stores
                .iter()
                .for_each(|(what, store)| run(*store, &steps, what));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));

    for (what, store) in &stores[..2] {
        let counted = store.statistics();
        assert!(
            counted.pages_shared > 20 && counted.pages_copied > 0,
            "{what}: {counted:?}"
        );
    }
    let refused = poor.statistics();
    assert_eq!(refused.pages_shared, 0);
    assert!(
        refused.pages_copied > 100 && refused.copied_because.is_some(),
        "{refused:?}"
    );
    drop(remote);
    stopper.stop();
    served
        .join()
        .expect("no thread panicked")
        .expect("the device works");
}

#[test]
fn a_shared_page_is_programmed_once_and_a_store_that_cannot_share_says_why() {
    let steps = |store: &dyn Store| {
        let options = OpenOptions {
            create: Create::New,
            open_end: false,
        };
        let (a, b) = (
            store.open("a", options).expect("possible"),
            store.open("b", options).expect("possible"),
        );
        store
            .write(a, 0, &tagged(1, 100 * PAGE + 77))
            .expect("possible");
        let whole = Share {
            from: a,
            from_offset: 0,
            to: b,
            to_offset: 0,
            bytes: (100 * PAGE + 77) as u64,
        };
        store.share(&whole).expect("possible");
        assert!(contents(store, b) == tagged(1, 100 * PAGE + 77));
    };
    let local = volume(LocalDisk::new(
        Device::in_memory(config()).expect("possible"),
    ));
    steps(&local);
    let counted = local.statistics();
    assert_eq!(
        (
            counted.pages_shared,
            counted.pages_copied,
            counted.pages_written
        ),
        (100, 1, 101)
    );
    assert!(
        counted
            .copied_because
            .expect("a part of a page")
            .contains("part of a page")
    );
    let device = local.into_disk().into_device();
    assert_eq!(device.ftl().stats().remaps, 100);

    let poor = MemDisk::new(1000);
    poor.medium().no_remap = true;
    let poor = volume(poor);
    steps(&poor);
    let counted = poor.statistics();
    assert_eq!((counted.pages_shared, counted.pages_copied), (0, 101));
    assert!(
        counted
            .copied_because
            .expect("it was refused")
            .contains("cannot remap")
    );
}

/// A process that died before it set a file's size leaves what it wrote behind the file's end.
#[test]
fn a_gap_in_a_list_of_writes_is_zeroes_whatever_was_on_its_pages() {
    const HAD: usize = 18;
    let disk = MemDisk::new(300);
    let volume = volume(disk.clone());
    let file = volume
        .open(
            "a",
            OpenOptions {
                create: Create::New,
                open_end: false,
            },
        )
        .expect("possible");
    let mut known = tagged(1, HAD * PAGE);
    let (most, last) = known.split_at((HAD - 1) * PAGE);
    volume.write(file, 0, most).expect("there is room");
    volume
        .write(file, most.len() as u64, last)
        .expect("there is room");
    {
        // A file that grows is given more pages than it needs: they are among these.
        let mut medium = disk.medium();
        let empty: Vec<u64> = (0..300)
            .filter(|page| medium.content(*page).is_none())
            .collect();
        empty
            .iter()
            .for_each(|page| medium.set(*page, Some(Arc::new([99; PAGE]))));
    }

    let (first, second) = (tagged(2, PAGE), tagged(3, 2 * PAGE));
    let places = [
        (HAD * PAGE, &first),
        ((HAD + 2) * PAGE, &second),
        ((HAD + 6) * PAGE, &first),
    ];
    let writes = places.map(|(offset, data)| FileWrite {
        offset: offset as u64,
        data,
    });
    volume.write_all(file, &writes).expect("there is room");
    places
        .iter()
        .for_each(|(offset, data)| write(&mut known, *offset, data));
    assert!(contents(&volume, file) == known);
}

#[test]
fn what_cannot_be_is_one_sentence() {
    let disk = MemDisk::new(300);
    let new = NewVolume {
        files_max: 2,
        ..NewVolume::default()
    };
    let volume =
        Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let create = |name: &str| {
        volume.open(
            name,
            OpenOptions {
                create: Create::New,
                open_end: false,
            },
        )
    };
    for name in ["", "zero\0byte", &"x".repeat(256)] {
        assert!(
            matches!(create(name), Err(StoreError::BadName { .. })),
            "{name:?}"
        );
    }
    let file = create("a").expect("possible");
    create("b").expect("possible");
    assert!(
        create("c")
            .expect_err("two files")
            .to_string()
            .contains("no room for another one")
    );

    // 300 pages less two superblocks and two records.
    volume
        .write(file, 0, &tagged(1, 250 * PAGE))
        .expect("there is room");
    let full = volume
        .write(file, 250 * PAGE as u64, &tagged(1, 60 * PAGE))
        .expect_err("there is no room");
    assert_eq!(
        full.to_string(),
        "the volume is full: 60 pages are needed and 46 are free"
    );
    assert!(
        contents(&volume, file) == tagged(1, 250 * PAGE),
        "what was there is there"
    );
    volume
        .write(file, 250 * PAGE as u64, &tagged(2, 46 * PAGE))
        .expect("that much there is");
    assert_eq!(volume.info().expect("possible").pages_free, 0);
    assert!(volume.write(file, u64::MAX - 5, &[1; 10]).is_err());
    assert!(volume.set_size(file, u64::MAX).is_err());

    volume.delete("a").expect("it is there");
    let gone = volume
        .read(file, 0, &mut [0; 10])
        .expect_err("it was deleted");
    assert!(matches!(gone, StoreError::Gone));
    let other = create("c").expect("there is room again");
    assert!(
        matches!(volume.write(file, 0, &[1]), Err(StoreError::Gone)),
        "another file in the same slot"
    );
    volume
        .write(other, 0, &tagged(3, 290 * PAGE))
        .expect("the pages are free again");
    drop(volume);

    let again = Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {});
    assert!(
        again
            .err()
            .expect("it is not blank")
            .to_string()
            .contains("--force")
    );
    let foreign = MemDisk::new(300);
    foreign.medium().set(200, Some(Arc::new([7; PAGE])));
    let sentence = Volume::open(foreign.clone(), &Processes::One)
        .err()
        .expect("nothing there")
        .to_string();
    assert!(
        sentence.contains("no volume here") && sentence.contains("blank"),
        "{sentence}"
    );
    let sentence = Volume::create(foreign.clone(), &Processes::One, &new, &mut |_, _| {})
        .err()
        .expect("data");
    assert!(sentence.to_string().contains("page 200"), "{sentence}");
    foreign.medium().set(0, Some(Arc::new([7; PAGE])));
    let sentence = Volume::open(foreign.clone(), &Processes::One)
        .err()
        .expect("nothing there")
        .to_string();
    assert!(sentence.contains("something else"), "{sentence}");
    let forced = NewVolume { force: true, ..new };
    Volume::create(foreign, &Processes::One, &forced, &mut |_, _| {}).expect("it was asked for");
}
