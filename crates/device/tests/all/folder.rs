//! Devices in folders under the real firmware: acknowledged data after a crash of the machine.

use crate::kit::numbers::Numbers;
use crate::kit::{self, FILES, Oracle, command, files, read, write};
use remap_ssd_device::{Device, DeviceConfig, OpenError};
use remap_ssd_ftl::{Refusal, SchemeKind};
use remap_ssd_media::image_file::ImageError;
use std::path::Path;

const SECTOR: usize = 512;
const LPNS: u32 = 90;

fn tiny(scheme: SchemeKind, dedup: bool) -> DeviceConfig {
    kit::tiny(scheme, dedup, LPNS, 20)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

/// The files after each command since the last sync: a crash of the machine leaves a mixture of
/// them.
struct Versions(Vec<Vec<Vec<u8>>>);

impl Versions {
    /// Records the files after a command; returns true if there was a sync inside it.
    fn after_command(&mut self, now: Vec<Vec<u8>>, synced: bool) -> bool {
        let last = self.0.last().expect("never empty");
        let begins = |file: usize| last[file][..16] != now[file][..16];

        if begins(3) || begins(4) {
            // A journal is begun when its state is durable: so is everything before the command.
            self.0 = vec![now];
            false
        } else if synced {
            // The firmware synced in the middle of the command: earlier commands are durable, this
            // one may be.
            self.0 = vec![now];
            true
        } else {
            self.0.push(now);
            false
        }
    }

    fn put_mixture(&self, dir: &Path, numbers: &mut Numbers) {
        for (file, name) in FILES.iter().enumerate() {
            let last = &self.0[self.0.len() - 1][file];
            let pick = |(sector, bytes): (usize, &[u8])| {
                let version = &self.0[numbers.below(self.0.len() as u64) as usize][file];
                version[sector * SECTOR..][..bytes.len()].to_vec()
            };
            let mixed: Vec<u8> = last.chunks(SECTOR).enumerate().flat_map(pick).collect();
            std::fs::write(dir.join(name), mixed).expect("room for it");
        }
    }
}

fn survives(scheme: SchemeKind, dedup: bool) {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let mut device = Device::create_in_folder(live.path(), tiny(scheme, dedup), Some(16 << 10))
        .expect("room for it");
    std::fs::copy(
        live.path().join("device.toml"),
        copy.path().join("device.toml"),
    )
    .expect("room for it");

    let mut oracle = Oracle::new(LPNS);
    let mut numbers = Numbers(number("FOLDER_SEED").unwrap_or(0) + scheme.name().len() as u64);
    let mut versions = Versions(vec![files(live.path())]);
    let (mut lost, mut inner_syncs) = (0, 0);
    for step in 0..number("FOLDER_STEPS").unwrap_or(500) {
        let syncs = device.ftl().media().syncs();
        command(&mut device, &mut oracle, &mut numbers);
        let synced = device.ftl().media().syncs() != syncs;
        inner_syncs += u32::from(versions.after_command(files(live.path()), synced));

        if numbers.below(12) == 0 {
            device.sync().expect("the disk works");
            oracle.synced();
            versions = Versions(vec![files(live.path())]);
        }
        if step % 4 != 0 {
            continue;
        }

        versions.put_mixture(copy.path(), &mut numbers);
        let (mut found, _) = Device::open_in_folder(copy.path()).expect("recoverable");
        found.ftl().check().expect("consistent");
        for lpn in 0..LPNS {
            let content = read(&mut found, lpn);
            let history = &oracle.0[lpn as usize];
            assert!(
                history.contains(&content),
                "{scheme}, step {step}: LPN {lpn} reads {content}, not of {history:?}"
            );
            lost += u32::from(content != oracle.now(lpn));
        }
    }
    let what =
        format!("{lost} pages older than the last write, {inner_syncs} syncs inside commands");
    assert!(lost > 10 && inner_syncs > 2, "{scheme}: {what}");

    drop(device);
    let (mut again, _) = Device::open_in_folder(live.path()).expect("recoverable");
    (0..LPNS).for_each(|lpn| {
        assert_eq!(
            read(&mut again, lpn),
            oracle.now(lpn),
            "the process died, not the machine"
        )
    });
    again.close().expect("the disk works");

    let before = files(live.path());
    let (mut copy, _) = Device::look_into_folder(live.path()).expect("recoverable");
    for lpn in 0..LPNS {
        assert_eq!(read(&mut copy, lpn), oracle.now(lpn));
        write(&mut copy, lpn, 1).expect("there is room");
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
    assert!(matches!(
        Device::open_in_folder(dir.path()),
        Err(OpenError::Image(ImageError::NoConfig("device.toml")))
    ));
    assert!(matches!(
        Device::open_in_folder(&dir.path().join("absent")),
        Err(OpenError::Image(ImageError::Io(_)))
    ));

    std::fs::write(dir.path().join("mine"), "text").expect("room for it");
    let made = Device::create_in_folder(dir.path(), tiny(SchemeKind::RemapSsd, false), None);
    assert!(matches!(made, Err(OpenError::NotEmpty)));
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("still there").count(),
        1
    );

    let made =
        Device::create_in_folder(&dir.path().join("new"), tiny(SchemeKind::Opt, false), None);
    assert!(matches!(made, Err(OpenError::NotDurable("opt"))));

    let made = Device::create_in_folder(
        &dir.path().join("new"),
        tiny(SchemeKind::WalSsd, false),
        None,
    );
    assert!(matches!(made, Err(OpenError::NoSecondOwners("wal-ssd"))));
    assert!(!dir.path().join("new").exists());
}

#[test]
fn devices_for_service_of_any_size_can_be_filled_and_overwritten() {
    for bytes in [16 << 20, 100_000_000, 1 << 30] {
        let config =
            DeviceConfig::for_service(bytes, SchemeKind::RemapSsd, false).expect("possible");
        assert_eq!(u64::from(config.firmware.lpns), bytes.div_ceil(4096));
        let spare = f64::from(config.geometry.pages()) / f64::from(config.firmware.lpns);
        assert!((1.12..1.35).contains(&spare), "{bytes}: {spare}");
    }

    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let lpns = config.firmware.lpns;
    let mut device = Device::format(config).expect("possible");
    let mut numbers = Numbers(1);

    for step in 0..3 * u64::from(lpns) {
        let lpn = if step < u64::from(lpns) {
            step as u32
        } else {
            numbers.below(u64::from(lpns)) as u32
        };
        assert_eq!(write(&mut device, lpn, step), Ok(()));
    }
    assert_eq!(write(&mut device, lpns, 1), Err(Refusal::OutOfRange));
}
