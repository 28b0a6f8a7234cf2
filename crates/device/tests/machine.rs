//! Devices in folders under the real firmware, on a machine that crashes repeatedly.
//!
//! The disk is a model: unsynced data may be found in any mixture, so that a missing sync is
//! detected. The model replaces `fdatasync`, `fsync` and `msync` of the whole process, so this is a
//! program of its own.

#![cfg(target_os = "linux")]

#[path = "../../media/tests/kit/disk.rs"]
mod disk;
mod kit;

use kit::numbers::Numbers;
use kit::{Oracle, command, read};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

const LPNS: u32 = 60;
const JOURNAL_BYTES: u64 = 16 << 10;

fn tiny(scheme: SchemeKind) -> DeviceConfig {
    kit::tiny(scheme, true, LPNS, 14)
}

/// Crashes the machine; another one finds its disk.
fn crash(numbers: &mut Numbers) -> TempDir {
    let elsewhere = tempfile::tempdir().expect("a folder");
    disk::crash(elsewhere.path(), |end| numbers.below(end));
    disk::attach(elsewhere.path());
    elsewhere
}

fn open(dir: &Path) -> Device {
    Device::open_in_folder(dir).expect("recoverable").0
}

#[test]
fn a_new_device_is_there_once_it_is_made() {
    for seed in 0..6 {
        let parent = tempfile::tempdir().expect("a folder");
        disk::attach(parent.path());
        // As `Device` does it: in an existing empty folder.
        let device = Device::create_in_folder(
            parent.path(),
            tiny(SchemeKind::RemapSsd),
            Some(JOURNAL_BYTES),
        );
        let device = device.expect("room for it");
        let mut found = open(crash(&mut Numbers(seed)).path());
        assert!((0..LPNS).all(|lpn| read(&mut found, lpn) == 0));
        drop(device);
    }
}

/// Synced data is there, data seen by a host after one crash is there after the next, and nothing
/// older reappears.
#[test]
fn a_host_may_go_on_after_a_crash_and_crash_again() {
    let (mut older, mut opened_twice) = (0, 0);
    let schemes = [
        SchemeKind::RemapSsd,
        SchemeKind::None,
        SchemeKind::NLog,
        SchemeKind::RemapSsdX,
    ];
    for (nth, scheme) in schemes.into_iter().enumerate() {
        for seed in 0..3 {
            let mut numbers = Numbers(seed * 100 + nth as u64);
            let mut dir = tempfile::tempdir().expect("a folder");
            let device = Device::create_in_folder(dir.path(), tiny(scheme), Some(JOURNAL_BYTES));
            let mut device = device.expect("room for it");
            disk::attach(dir.path());
            let mut oracle = Oracle::new(LPNS);

            for crashes in 0..8 {
                work(&mut device, &mut oracle, &mut numbers);
                let opens = 1 + u32::from(numbers.below(3) == 0);
                opened_twice += opens - 1;
                // Sometimes a second crash follows before the device is used.
                for _ in 0..opens {
                    let before = std::mem::replace(&mut dir, crash(&mut numbers));
                    device = open(dir.path());
                    drop(before);
                }

                device.ftl().check().expect("consistent");
                for lpn in 0..LPNS {
                    let content = read(&mut device, lpn);
                    let held: BTreeSet<u64> = oracle.0[lpn as usize].iter().copied().collect();
                    let at = || {
                        format!("{scheme}, seed {seed}, crash {crashes}: LPN {lpn} reads {content}")
                    };
                    assert!(held.contains(&content), "{}, and may read {held:?}", at());
                    older += u32::from(content != oracle.now(lpn));
                    oracle.0[lpn as usize] = vec![content];
                }
            }
        }
    }
    assert!(
        older > 40 && opened_twice > 10,
        "{older} pages older than the last write, {opened_twice} opened twice"
    );
}

/// Some commands, with occasional syncs.
fn work(device: &mut Device, oracle: &mut Oracle, numbers: &mut Numbers) {
    for step in 0..20 + numbers.below(120) {
        command(device, oracle, numbers);
        if step % 4 == 0 {
            disk::look();
        }
        if numbers.below(20) == 0 {
            device.sync().expect("the disk works");
            oracle.synced();
        }
    }
}
