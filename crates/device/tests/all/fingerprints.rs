//! Fingerprints of deduplication after a shutdown, after a kill, and with a file that does not
//! belong to the device.

use remap_ssd_device::{Device, DeviceConfig, Fingerprints, Lpn, Relearner, SavedFingerprints};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Page, Payload};
use std::path::Path;

const PAGES: u32 = 1500;
const FILE: &str = "fingerprints";

fn page(content: u64) -> [u8; PAGE_BYTES] {
    let mut page = [7; PAGE_BYTES];
    page[..8].copy_from_slice(&content.to_le_bytes());
    page
}

fn write(device: &mut Device, lpn: u32, content: u64) {
    device
        .write(0, Lpn(lpn), &Payload::Bytes(&page(content)))
        .result
        .expect("there is room");
}

fn reads(device: &mut Device, lpn: u32, content: u64) -> bool {
    matches!(device.read(0, Lpn(lpn)).1, Ok(Page::Bytes(bytes)) if *bytes == page(content))
}

/// A device with 1500 different pages.
fn made(dir: &Path) -> Device {
    let config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, true).expect("possible");
    let mut device = Device::create_in_folder(dir, config, None).expect("room for it");
    (0..PAGES).for_each(|lpn| write(&mut device, lpn, u64::from(lpn)));
    device
}

fn close(device: Device) -> u64 {
    match device.close().expect("the disk works") {
        SavedFingerprints::Saved(pages) => pages,
        other => panic!("{other:?}"),
    }
}

fn open(dir: &Path) -> Device {
    let (device, _) = Device::open_in_folder(dir).expect("recoverable");
    assert!(
        !dir.join(FILE).exists(),
        "it is removed before anything changes"
    );
    device
}

/// Number of duplicates found among second copies of all pages.
fn hits(device: &mut Device) -> u64 {
    let before = device.ftl().stats();
    (0..PAGES).for_each(|lpn| write(device, PAGES + lpn, u64::from(lpn)));
    (0..PAGES).for_each(|lpn| assert!(reads(device, PAGES + lpn, lpn.into())));
    device.ftl().check().expect("consistent");
    let after = device.ftl().stats();
    assert_eq!(after.collisions, 0);
    // Duplicates found, but not remapped for lack of NVRAM, count too.
    after.dedup_hits + after.demoted() - before.dedup_hits - before.demoted()
}

fn all_are_found(device: &mut Device) {
    let hits = hits(device);
    assert!(hits >= u64::from(PAGES) * 98 / 100, "{hits} of {PAGES}");
}

fn relearn(dir: &Path, device: &mut Device) -> u64 {
    let mut relearner = Relearner::new(dir, device).expect("readable");
    while let Some(pages) = relearner.list(device) {
        let digests = relearner.read(&pages).expect("readable");
        relearner.enter(device, digests);
    }
    relearner.entered()
}

fn ignored(device: &Device, reason: &str) {
    match device.fingerprints() {
        Fingerprints::Ignored(why) => assert!(why.contains(reason), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn after_a_shutdown_in_good_order_all_duplicates_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(close(made(dir.path())), u64::from(PAGES));
    let mut device = open(dir.path());
    assert_eq!(device.fingerprints(), &Fingerprints::Recalled(PAGES.into()));
    assert_eq!(
        relearn(dir.path(), &mut device),
        0,
        "nothing is left to read"
    );

    all_are_found(&mut device);
    assert!(
        device.ftl().stats().verified >= u64::from(PAGES) * 98 / 100,
        "each was compared with its page"
    );

    // Known and compared: a second shutdown saves as many.
    assert!(close(device) >= u64::from(PAGES));
    let mut device = open(dir.path());
    all_are_found(&mut device);
}

#[test]
fn after_a_kill_the_pages_are_read_and_a_file_of_before_is_ignored() {
    let dir = tempfile::tempdir().expect("a folder");
    close(made(dir.path()));
    let kept = std::fs::read(dir.path().join(FILE)).expect("saved");
    let mut device = open(dir.path());

    // Half of the pages get other contents, then the process dies.
    (0..PAGES / 2).for_each(|lpn| write(&mut device, lpn, u64::from(lpn) + 100_000));
    (0..PAGES / 2).for_each(|lpn| write(&mut device, lpn, u64::from(lpn) + u64::from(PAGES)));
    (0..PAGES / 2).for_each(|lpn| write(&mut device, lpn, u64::from(lpn)));
    drop(device);

    let mut device = open(dir.path());
    ignored(&device, "has not saved them");
    assert_eq!(relearn(dir.path(), &mut device), u64::from(PAGES));

    all_are_found(&mut device);
    drop(device);

    // An old file is put back; the device has changed since.
    std::fs::write(dir.path().join(FILE), kept).expect("room for it");
    let mut device = open(dir.path());
    ignored(&device, "an earlier state");
    assert_eq!(device.ftl().stats().verified, 0);
    assert!(relearn(dir.path(), &mut device) >= u64::from(PAGES));
    all_are_found(&mut device);
}

#[test]
fn a_damaged_file_is_ignored_and_one_with_a_good_hash_is_not_believed_unseen() {
    let dir = tempfile::tempdir().expect("a folder");
    close(made(dir.path()));
    let path = dir.path().join(FILE);
    let good = std::fs::read(&path).expect("saved");
    let mut device = {
        let mut bad = good.clone();
        bad[100] ^= 1;
        std::fs::write(&path, bad).expect("room for it");
        open(dir.path())
    };

    ignored(&device, "hash");
    assert_eq!(relearn(dir.path(), &mut device), u64::from(PAGES));
    close(device);

    for (len, reason) in [(20, "fill"), (good.len() - 40, "fill"), (0, "fill")] {
        let now = std::fs::read(&path).expect("saved");
        std::fs::write(&path, &now[..len.min(now.len())]).expect("room for it");
        let mut device = open(dir.path());
        ignored(&device, reason);
        relearn(dir.path(), &mut device);
        close(device);
    }

    // All digests are shifted by one page, as if the file described another copy of the device.
    let mut bad = std::fs::read(&path).expect("saved");
    let end = bad.len() - 32;
    let digests: Vec<[u8; 32]> = bad[32..end]
        .chunks(36)
        .map(|record| record[4..].try_into().expect("32 bytes"))
        .collect();
    for (record, digest) in bad[32..end]
        .chunks_mut(36)
        .zip(digests.iter().cycle().skip(1))
    {
        record[4..].copy_from_slice(digest);
    }
    let hash = *blake3::hash(&bad[..end]).as_bytes();

    bad[end..].copy_from_slice(&hash);
    std::fs::write(&path, bad).expect("room for it");
    let mut device = open(dir.path());
    assert_eq!(device.fingerprints(), &Fingerprints::Recalled(PAGES.into()));
    assert_eq!(hits(&mut device), 0, "no page holds what the file says");
    assert!(device.ftl().stats().verified > 1000);
}

#[test]
fn a_device_that_does_not_deduplicate_has_no_such_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let mut device = Device::create_in_folder(dir.path(), config, None).expect("room for it");
    write(&mut device, 1, 1);
    assert!(matches!(
        device.close().expect("the disk works"),
        SavedFingerprints::None
    ));
    let device = open(dir.path());
    assert_eq!(device.fingerprints(), &Fingerprints::NotSaved);
}

// The digests need disk space at a shutdown, but lack of space is no reason to fail it.
#[test]
fn a_shutdown_that_cannot_save_them_is_in_good_order_all_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let device = made(dir.path());
    std::fs::create_dir(dir.path().join("fingerprints.part")).expect("room for it");
    assert!(matches!(
        device.close().expect("the disk works"),
        SavedFingerprints::Failed(_)
    ));
    let mut device = open(dir.path());
    ignored(&device, "has not saved them");
    assert!((0..PAGES).all(|lpn| reads(&mut device, lpn, lpn.into())));
}

// Digests are of indirection units, which are read from their places in the file.
#[test]
fn fingerprints_of_units_are_found_again_by_reading_them() {
    const UNIT: u32 = 4;
    let settings = [
        "geometry.page_bytes=16384",
        "geometry.indirection_bytes=16384",
        "geometry.pages_per_block=256",
    ];
    let settings = settings.map(|one| one.parse().expect("valid"));
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, true);
    let config = config.expect("possible").with(&settings).expect("possible");
    let write_units = |device: &mut Device, first: u32| {
        for page in 0..PAGES / UNIT * UNIT {
            let bytes = self::page(page.into());
            let lpn = Lpn(first + page);
            let written = device.write_more(0, lpn, &Payload::Bytes(&bytes));
            written.result.expect("there is room");
        }
        device.end_write(0).result.expect("there is room");
    };

    let dir = tempfile::tempdir().expect("a folder");
    let mut device = Device::create_in_folder(dir.path(), config, None).expect("room for it");
    write_units(&mut device, 0);
    close(device);
    std::fs::remove_file(dir.path().join(FILE)).expect("saved");
    let mut device = open(dir.path());
    let units = u64::from(PAGES / UNIT);
    assert_eq!(relearn(dir.path(), &mut device), units);

    write_units(&mut device, PAGES / UNIT * UNIT);
    let stats = device.ftl().stats();
    assert!(stats.dedup_hits >= units * 98 / 100, "{}", stats.dedup_hits);
    assert_eq!(stats.collisions, 0);
    device.ftl().check().expect("consistent");
}
