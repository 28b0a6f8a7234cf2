//! Devices in folders under the real firmware, on a machine that dies again and again.
//!
//! The disk is a model: what was not synced may be found in any mixture, so that a sync that is left out is noticed.

#![cfg(target_os = "linux")]

#[path = "../../media/tests/kit/disk.rs"]
mod disk;

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::{Remap, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{ContentMode, Geometry, Page, Payload};
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

const LPNS: u32 = 60;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// As small as the scheme allows.
fn tiny(scheme: SchemeKind) -> DeviceConfig {
    let sizes = (14..60).flat_map(|superblocks| [4096, 16_384, 65_536].map(|log_bytes| (superblocks, log_bytes)));
    let mut configs = sizes.map(|(superblocks, log_bytes)| {
        let mut config = DeviceConfig::preset("fast21-32g").expect("a preset");
        config.geometry =
            Geometry::new(Shape { channels: 1, dies: 2, superblocks, pages_per_block: 8 }).expect("valid");
        config.content = ContentMode::Bytes;
        config.addressable = 1.0;
        let firmware = &mut config.firmware;
        (firmware.lpns, firmware.scheme, firmware.dedup) = (LPNS, scheme, true);
        (firmware.log_bytes, firmware.segment_bytes, firmware.dealloc_slots) = (log_bytes, 128, 8);
        config
    });
    configs.find(|config| config.check().is_ok()).unwrap_or_else(|| panic!("{scheme} suits none of these"))
}

/// Content of a page; 0 is zeroes.
fn read(device: &mut Device, lpn: u32) -> u64 {
    match device.read(0, lpn).1.expect("readable") {
        Page::Zeroes => 0,
        Page::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("a page has more than 8 bytes")),
        other => panic!("{other:?}"),
    }
}

fn page(content: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = content.to_le_bytes());
    page
}

/// What each page may be found to hold: what it has held since the last sync, the newest last.
struct Oracle(Vec<Vec<u64>>);

impl Oracle {
    fn now(&self, lpn: u32) -> u64 {
        *self.0[lpn as usize].last().expect("never empty")
    }
    fn set(&mut self, lpn: u32, content: u64) {
        self.0[lpn as usize].push(content);
    }
    fn synced(&mut self) {
        self.0.iter_mut().for_each(|held| drop(held.drain(..held.len() - 1)));
    }
}

fn command(device: &mut Device, oracle: &mut Oracle, numbers: &mut Numbers) {
    let lpn = numbers.below(u64::from(LPNS)) as u32;
    let len = (1 + numbers.below(6) as u32).min(LPNS - lpn);
    let source = numbers.below(u64::from(LPNS - len + 1)) as u32;
    match numbers.below(10) {
        0..6 => {
            let repeats = numbers.below(3) == 0;
            let content = 1 + numbers.below(if repeats { 20 } else { 1 << 40 });
            device.write(0, lpn, &Payload::Bytes(&page(content))).result.expect("there is room");
            oracle.set(lpn, content);
        }
        6..9 => {
            let remap = Remap { target: lpn, source, len, relocate: false, atomic: false };
            device.remap(0, &remap).result.expect("there is room");
            let contents: Vec<u64> = (0..len).map(|index| oracle.now(source + index)).collect();
            (lpn..).zip(contents).for_each(|(lpn, content)| oracle.set(lpn, content));
        }
        _ => {
            device.deallocate(0, lpn, len).result.expect("there is room");
            (lpn..lpn + len).for_each(|lpn| oracle.set(lpn, 0));
        }
    }
}

/// The machine dies, and its disk is found by another one.
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
        // As `Device` makes it: in a folder that is there and empty.
        let device = Device::create_in_folder(parent.path(), tiny(SchemeKind::RemapSsd), Some(16 << 10));
        let device = device.expect("room for it");
        let mut found = open(crash(&mut Numbers(seed)).path());
        assert!((0..LPNS).all(|lpn| read(&mut found, lpn) == 0));
        drop(device);
    }
}

/// What was synced is there, what a host has seen after one crash is there after the next, and nothing older comes back.
#[test]
fn a_host_may_go_on_after_a_crash_and_crash_again() {
    let (mut older, mut opened_twice) = (0, 0);
    for (nth, scheme) in
        [SchemeKind::RemapSsd, SchemeKind::None, SchemeKind::NLog, SchemeKind::RemapSsdX].into_iter().enumerate()
    {
        for seed in 0..3 {
            let mut numbers = Numbers(seed * 100 + nth as u64);
            let mut dir = tempfile::tempdir().expect("a folder");
            let mut device = Device::create_in_folder(dir.path(), tiny(scheme), Some(16 << 10)).expect("room for it");
            disk::attach(dir.path());
            let mut oracle = Oracle(vec![vec![0]; LPNS as usize]);
            for crashes in 0..8 {
                for step in 0..20 + numbers.below(120) {
                    command(&mut device, &mut oracle, &mut numbers);
                    if step % 4 == 0 {
                        disk::look();
                    }
                    if numbers.below(20) == 0 {
                        device.sync().expect("the disk works");
                        oracle.synced();
                    }
                }
                let before = std::mem::replace(&mut dir, crash(&mut numbers));
                device = open(dir.path());
                drop(before);
                if numbers.below(3) == 0 {
                    // It dies before anything is done with it.
                    opened_twice += 1;
                    let before = std::mem::replace(&mut dir, crash(&mut numbers));
                    device = open(dir.path());
                    drop(before);
                }
                device.ftl().check().expect("consistent");
                for lpn in 0..LPNS {
                    let content = read(&mut device, lpn);
                    let held: BTreeSet<u64> = oracle.0[lpn as usize].iter().copied().collect();
                    let at = || format!("{scheme}, seed {seed}, crash {crashes}: LPN {lpn} reads {content}");
                    assert!(held.contains(&content), "{}, and may read {held:?}", at());
                    older += u32::from(content != oracle.now(lpn));
                    oracle.0[lpn as usize] = vec![content];
                }
            }
        }
    }
    assert!(older > 40 && opened_twice > 10, "{older} pages older than the last write, {opened_twice} opened twice");
}
