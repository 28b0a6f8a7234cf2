//! Mounting and unmounting. Where a test may not mount, it says so.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_fuse::{Mounted, file_name};
use remap_ssd_nvme::controller::{Gate, Subsystem};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mounts a small device in a new folder.
fn mounted() -> Option<(tempfile::TempDir, Mounted)> {
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::format(config).expect("possible");
    let subsystem = Subsystem::new(device, "nqn.2026-11.test:mount", &[]);
    let gate = Gate::new(Arc::new(subsystem.expect("possible")));

    let folder = tempfile::tempdir().expect("a folder");
    match Mounted::mount(gate, folder.path(), Instant::now(), || {}) {
        Ok(mounted) => Some((folder, mounted)),
        Err(error) => {
            eprintln!("not checked: {error}");
            None
        }
    }
}

#[test]
fn a_file_that_is_closed_in_a_moment_does_not_hinder_unmounting() {
    let Some((folder, mounted)) = mounted() else {
        return;
    };
    let file = File::open(folder.path().join(file_name(1))).expect("it is there");

    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(file);
    });
    assert!(mounted.unmount().expect("the service works"));
    user.join().expect("it only waits");
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
}

#[test]
fn files_that_stay_open_are_taken_away_and_it_is_said() {
    let Some((folder, mounted)) = mounted() else {
        return;
    };
    let file = File::open(folder.path().join(file_name(1))).expect("it is there");

    assert!(!mounted.unmount().expect("the service works"));
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
    drop(file);
}

// Shells and `cp` open what they write with O_TRUNC, which a block device ignores.
#[test]
fn a_file_is_written_like_a_block_device_and_keeps_its_size() {
    let Some((folder, mounted)) = mounted() else {
        return;
    };
    let name = folder.path().join(file_name(1));
    let size = std::fs::metadata(&name).expect("it is there").len();
    let truncating = || OpenOptions::new().write(true).truncate(true).open(&name);

    let file = truncating().expect("O_TRUNC is ignored");
    file.write_all_at(&[7; 8192], 4096).expect("written");
    drop(file);
    drop(truncating().expect("O_TRUNC is ignored"));
    let bytes = std::fs::read(&name).expect("read");
    assert_eq!(bytes.len() as u64, size);
    assert!(bytes[4096..12288] == [7; 8192], "what was written is there");

    // A backup as large as the file, and one that is shorter.
    let backup = folder.path().with_extension("backup");
    for (fill, length) in [(1, size), (2, 4096)] {
        std::fs::write(&backup, vec![fill; length as usize]).expect("a backup");
        // As `cp` does it; `std::fs::copy` would change the mode as well.
        let mut target = truncating().expect("O_TRUNC is ignored");
        let mut source = File::open(&backup).expect("opened");
        std::io::copy(&mut source, &mut target).expect("copied");
        drop(target);
        let bytes = std::fs::read(&name).expect("read");
        assert_eq!((bytes.len() as u64, bytes[0]), (size, fill));
        assert_eq!(bytes[size as usize - 1], 1);
    }
    std::fs::remove_file(&backup).expect("removed");

    let file = OpenOptions::new().write(true).open(&name).expect("opened");
    file.set_len(size).expect("it has that size");
    for other in [4096, size + 4096] {
        let error = file.set_len(other).expect_err("the size is fixed");
        assert_eq!(error.raw_os_error(), Some(22), "{error}");
    }
    assert_eq!(file.metadata().expect("there").len(), size);
    drop(file);
    assert!(mounted.unmount().expect("the service works"));
}
