//! Files are bytes by name: the same steps on a local device, on a served one, on a disk that
//! refuses to remap and on the operating system's files leave the same bytes.

mod shares;
mod steps;

use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::Subsystem;
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_nvme::tcp::server::{ConnectionLabel, Log, Server};
use remap_ssd_nvme::tcp::target::{Allowed, Port};
use remap_ssd_store::{
    Create, FileWrite, NewVolume, OpenOptions, OsStore, Processes, Share, Store, StoreError, Volume,
};
use remap_ssd_testkit::{MemDisk, PAGE, contents, tagged, write};
use std::collections::BTreeMap;
use std::sync::Arc;
use steps::*;

// From page 11 to page 12, a page and a few bytes: those are of page 12, the target of the page.
#[test]
fn a_range_whose_tail_alone_overlaps_its_target_is_read_before_it_is_written() {
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume::default();
    let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("possible");
    let options = OpenOptions::from(Create::New);
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

// The cached page of the source is older than the one that the disk shares.
#[test]
fn a_page_that_another_process_wrote_is_shared_as_it_is_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let processes = Processes::Several(folder.path().into());
    let disk = MemDisk::new(BYTES / PAGE as u64);
    let new = NewVolume::default();
    let first = Volume::create(disk.clone(), &processes, &new, &mut |_, _| {}).expect("possible");
    let second = Volume::open(disk, &processes).expect("possible");
    let options = OpenOptions::from(Create::IfAbsent);
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

// Two processes take turns; each reads everything after each step, and caches it.
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
    // One caches everything, the other one less than a file.
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

/// A log without readers.
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
    let subsystem = Subsystem::new(device, "nqn.2026-11.test:store", &[]);
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
        let options = OpenOptions::from(Create::New);
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

/// A process that died before it set a file's size leaves its data after the file's end.
#[test]
fn a_gap_in_a_list_of_writes_is_zeroes_whatever_was_on_its_pages() {
    const HAD: usize = 18;
    let disk = MemDisk::new(300);
    let volume = volume(disk.clone());
    let file = volume.open("a", Create::New.into()).expect("possible");
    let mut known = tagged(1, HAD * PAGE);
    let (most, last) = known.split_at((HAD - 1) * PAGE);
    volume.write(file, 0, most).expect("there is room");
    volume
        .write(file, most.len() as u64, last)
        .expect("there is room");
    {
        // A growing file gets more pages than it needs: they are among these.
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
    let create = |name: &str| volume.open(name, Create::New.into());
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
