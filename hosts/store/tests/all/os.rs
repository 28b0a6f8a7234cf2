//! The operating system's files: shared where the file system can, else copied and reported so.
//!
//! Mounting needs rights that a test may lack; then it reports that and checks the rest.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_fuse::{Mounted, file_name};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use remap_ssd_store::{Create, OpenOptions, OsStore, Share, Statistics, Store};
use remap_ssd_testkit::{PAGE, contents, tagged};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const NEW: OpenOptions = OpenOptions {
    create: Create::New,
    open_end: false,
    written_next: false,
};
const PAGES: usize = 64;

/// Shares whole pages between two files, then a list of ranges page by page, as in a checkpoint.
fn shared_in(folder: &Path) -> Statistics {
    let store = OsStore::open(folder).expect("it is there");
    let (a, b) = (
        store.open("a", NEW).expect("possible"),
        store.open("b", NEW).expect("possible"),
    );
    let data = tagged(1, PAGES * PAGE + 100);
    store.write(a, 0, &data).expect("there is room");
    store
        .share(&Share {
            from: a,
            from_offset: 0,
            to: b,
            to_offset: 0,
            bytes: data.len() as u64,
        })
        .expect("possible");
    assert!(contents(&store, b) == data);

    let page = |page: usize| (page * PAGE) as u64;
    let one = |at: usize| Share {
        from: a,
        from_offset: page(at),
        to: b,
        to_offset: page(PAGES - 1 - at),
        bytes: PAGE as u64,
    };
    store
        .share_all(&(0..PAGES).map(one).collect::<Vec<_>>())
        .expect("possible");
    store.sync(b).expect("possible");
    let (found, last) = (contents(&store, b), PAGES - 1);
    for at in 0..PAGES {
        assert!(
            found[(last - at) * PAGE..][..PAGE] == data[at * PAGE..][..PAGE],
            "page {at}"
        );
    }
    store.statistics()
}

#[test]
fn a_file_system_that_cannot_share_is_said_to_copy() {
    // `/dev/shm` is tmpfs, which cannot share.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let counted = shared_in(folder.path());
    assert_eq!(
        (counted.pages_shared, counted.pages_copied),
        (0, 2 * PAGES as u64 + 1)
    );
    assert!(
        counted
            .copied_because
            .expect("there is a reason")
            .contains("cannot share")
    );
}

#[test]
fn xfs_shares() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, mountpoint) = (folder.path().join("image"), folder.path().join("mounted"));
    std::fs::create_dir(&mountpoint).expect("possible");
    // The smallest size for mkfs.
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(320 << 20))
        .expect("there is room");
    let run = |program: &str, args: &[&Path]| {
        let ran = Command::new(program).args(args).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let mounted = run("mkfs.xfs", &[Path::new("-q"), &image])
        && run(
            "mount",
            &[Path::new("-o"), Path::new("loop"), &image, &mountpoint],
        );
    if !mounted {
        eprintln!("not checked: no XFS can be made and mounted here");
        return;
    }
    let counted = std::panic::catch_unwind(|| shared_in(&mountpoint));
    assert!(run("umount", &[&mountpoint]));
    let counted = counted.expect("see above");
    assert_eq!(
        (counted.pages_shared, counted.pages_copied),
        (2 * PAGES as u64, 1)
    );
    assert!(
        counted
            .copied_because
            .expect("there is a reason")
            .contains("part of a page")
    );
}

#[test]
fn a_share_on_files_of_our_mount_is_a_remap_of_the_device() {
    let config =
        DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::format(config).expect("possible");
    let subsystem = Subsystem::new(device, "nqn.2026-11.test:os", &[]);
    let subsystem = Arc::new(subsystem.expect("possible"));
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = match Mounted::mount(
        Gate::new(subsystem.clone()),
        folder.path(),
        Instant::now(),
        || {},
    ) {
        Ok(mounted) => mounted,
        Err(error) => return eprintln!("not checked: {error}"),
    };

    let store = OsStore::open(folder.path()).expect("it is there");
    let disk = store
        .open(&file_name(1), OpenOptions::default())
        .expect("it is there");
    let data = tagged(1, PAGES * PAGE);
    store.write(disk, 0, &data).expect("possible");
    let share = Share {
        from: disk,
        from_offset: 0,
        to: disk,
        to_offset: 1 << 20,
        bytes: data.len() as u64,
    };
    store.share(&share).expect("possible");
    let mut found = vec![0; data.len()];
    store.read(disk, 1 << 20, &mut found).expect("possible");
    assert!(found == data);
    let counted = store.statistics();
    drop(store);

    assert!(mounted.unmount().expect("the service works"));
    assert_eq!(
        (counted.pages_shared, counted.pages_copied),
        (PAGES as u64, 0),
        "{:?}",
        counted.copied_because
    );
    assert_eq!(subsystem.device().ftl().stats().remaps, PAGES as u64);
}
