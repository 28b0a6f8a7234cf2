//! Mounting and unmounting. Where a test may not mount, it says so.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_fuse::{Mounted, file_name};
use remap_ssd_nvme::controller::{Gate, Health, Latency, Subsystem};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mounts a small device in a new folder.
fn mounted() -> Option<(tempfile::TempDir, Mounted)> {
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::format(config).expect("possible");
    let subsystem = Subsystem::new(
        device,
        "nqn.2026-11.test:mount",
        &[],
        Latency::None,
        true,
        Health::default(),
    );
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
