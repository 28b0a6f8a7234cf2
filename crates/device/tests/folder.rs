//! Devices in folders under the real firmware: what a machine that dies leaves of what was acknowledged.

use remap_ssd_device::{Device, DeviceConfig, OpenError};
use remap_ssd_ftl::{Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{ContentMode, Geometry, Page, Payload};
use std::path::Path;

const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
const SECTOR: usize = 512;
const LPNS: u32 = 90;

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
fn tiny(scheme: SchemeKind, dedup: bool) -> DeviceConfig {
    let sizes = (20..60).flat_map(|superblocks| [4096, 16_384, 65_536].map(|log_bytes| (superblocks, log_bytes)));
    let configs = sizes.map(|(superblocks, log_bytes)| {
        let mut config = DeviceConfig::preset("fast21-32g").expect("a preset");
        config.geometry =
            Geometry::new(Shape { channels: 1, dies: 2, superblocks, pages_per_block: 8 }).expect("valid");
        config.content = ContentMode::Bytes;
        config.addressable = 1.0;
        let firmware = &mut config.firmware;
        (firmware.lpns, firmware.scheme, firmware.dedup) = (LPNS, scheme, dedup);
        (firmware.log_bytes, firmware.segment_bytes, firmware.dealloc_slots) = (log_bytes, 128, 8);
        config
    });
    configs.clone().find(|config| config.check().is_ok()).unwrap_or_else(|| panic!("{scheme} suits none of these"))
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| std::fs::read(dir.join(name)).expect("the file is there")).collect()
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

/// What each page has held since the last sync, oldest first.
struct Oracle(Vec<Vec<u64>>);

impl Oracle {
    fn now(&self, lpn: u32) -> u64 {
        *self.0[lpn as usize].last().expect("never empty")
    }
    fn set(&mut self, lpn: u32, content: u64) {
        self.0[lpn as usize].push(content);
    }
    fn synced(&mut self) {
        self.0.iter_mut().for_each(|history| *history = vec![*history.last().expect("never empty")]);
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

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn survives(scheme: SchemeKind, dedup: bool) {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut device = Device::create_in_folder(live.path(), tiny(scheme, dedup), Some(16 << 10)).expect("room for it");
    std::fs::copy(live.path().join("device.toml"), copy.path().join("device.toml")).expect("room for it");
    let mut oracle = Oracle(vec![vec![0]; LPNS as usize]);
    let mut numbers = Numbers(number("FOLDER_SEED").unwrap_or(0) + scheme.name().len() as u64);
    let mut versions = vec![files(live.path())];
    let (mut lost, mut erases) = (0, 0);
    for step in 0..number("FOLDER_STEPS").unwrap_or(500) {
        let syncs = device.ftl().media().syncs();
        command(&mut device, &mut oracle, &mut numbers);
        let now = files(live.path());
        let begins = |file: usize| versions[versions.len() - 1][file][..16] != now[file][..16];
        if begins(3) || begins(4) {
            // A journal is begun when its state is durable: what came before the command is.
            versions = vec![now];
        } else if device.ftl().media().syncs() != syncs {
            // The firmware synced in the middle of the command: what came before is durable, the command may be.
            versions = vec![now];
            erases += 1;
        } else {
            versions.push(now);
        }
        if numbers.below(12) == 0 {
            device.sync().expect("the disk works");
            oracle.synced();
            versions = vec![files(live.path())];
        }
        if step % 4 != 0 {
            continue;
        }
        for (file, name) in FILES.iter().enumerate() {
            let last = &versions[versions.len() - 1][file];
            let mixed: Vec<u8> = (0..last.len())
                .step_by(SECTOR)
                .flat_map(|at| {
                    let version = &versions[numbers.below(versions.len() as u64) as usize][file];
                    version[at..(at + SECTOR).min(last.len())].to_vec()
                })
                .collect();
            std::fs::write(copy.path().join(name), mixed).expect("room for it");
        }
        let (mut found, _) = Device::open_in_folder(copy.path()).expect("recoverable");
        found.ftl().check().expect("consistent");
        for lpn in 0..LPNS {
            let content = read(&mut found, lpn);
            let history = &oracle.0[lpn as usize];
            assert!(history.contains(&content), "{scheme}, step {step}: LPN {lpn} reads {content}, not of {history:?}");
            lost += u32::from(content != oracle.now(lpn));
        }
    }
    assert!(
        lost > 10 && erases > 2,
        "{scheme}: {lost} pages older than the last write, {erases} syncs inside commands"
    );
    drop(device);
    let (mut again, _) = Device::open_in_folder(live.path()).expect("recoverable");
    (0..LPNS).for_each(|lpn| assert_eq!(read(&mut again, lpn), oracle.now(lpn), "the process died, not the machine"));
    again.close().expect("the disk works");
    let before = files(live.path());
    let (mut copy, _) = Device::look_into_folder(live.path()).expect("recoverable");
    for lpn in 0..LPNS {
        assert_eq!(read(&mut copy, lpn), oracle.now(lpn));
        copy.write(0, lpn, &Payload::Bytes(&page(1))).result.expect("there is room");
    }
    drop(copy);
    assert!(before == files(live.path()), "looking changes nothing");
}

#[test]
fn what_was_synced_survives_the_machine_and_the_rest_the_process() {
    let holds = |scheme: &SchemeKind| scheme.is_durable() && !scheme.uses_hints();
    for scheme in SchemeKind::ALL.into_iter().filter(holds) {
        survives(scheme, scheme != SchemeKind::None);
    }
}

#[test]
fn a_folder_that_is_no_device_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(matches!(Device::open_in_folder(dir.path()), Err(OpenError::Image(ImageError::NotAnImage))));
    std::fs::write(dir.path().join("mine"), "text").expect("room for it");
    let made = Device::create_in_folder(dir.path(), tiny(SchemeKind::RemapSsd, false), None);
    assert!(matches!(made, Err(OpenError::NotEmpty)));
    assert_eq!(std::fs::read_dir(dir.path()).expect("still there").count(), 1);
    let made = Device::create_in_folder(&dir.path().join("new"), tiny(SchemeKind::Opt, false), None);
    assert!(matches!(made, Err(OpenError::NotDurable("opt"))));
    let made = Device::create_in_folder(&dir.path().join("new"), tiny(SchemeKind::WalSsd, false), None);
    assert!(matches!(made, Err(OpenError::NoSecondOwners("wal-ssd"))));
    assert!(!dir.path().join("new").exists());
}

#[test]
fn devices_for_service_of_any_size_can_be_filled_and_overwritten() {
    for bytes in [16 << 20, 100_000_000, 1 << 30] {
        let config = DeviceConfig::for_service(bytes, SchemeKind::RemapSsd, false).expect("possible");
        assert_eq!(u64::from(config.firmware.lpns), bytes.div_ceil(4096));
        let spare = f64::from(config.geometry.pages()) / f64::from(config.firmware.lpns);
        assert!((1.12..1.35).contains(&spare), "{bytes}: {spare}");
    }
    let config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let lpns = config.firmware.lpns;
    let mut device = Device::format(config).expect("possible");
    let mut numbers = Numbers(1);
    for step in 0..3 * u64::from(lpns) {
        let lpn = if step < u64::from(lpns) { step as u32 } else { numbers.below(u64::from(lpns)) as u32 };
        assert_eq!(device.write(0, lpn, &Payload::Bytes(&page(step))).result, Ok(()));
    }
    assert_eq!(device.write(0, lpns, &Payload::Bytes(&page(1))).result, Err(Refusal::OutOfRange));
}
