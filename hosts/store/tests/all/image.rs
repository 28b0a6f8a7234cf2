//! Namespaces of a device in a folder, as seen by a process with exclusive use of the device.

use remap_ssd_device::{Device, DeviceConfig, Disk, SchemeKind};
use remap_ssd_media::folder::{FileVersion, WitnessedFile, witness_version};
use remap_ssd_store::{ImageDisk, ImageNamespace, image_namespaces};
use std::path::Path;

/// Size of each namespace in pages.
const PAGES: u64 = 1000;

/// A device in a folder that was never served.
fn made(folder: &Path) -> DeviceConfig {
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, true).expect("possible");
    Device::create_in_folder(folder, config.clone(), None)
        .expect("room for it")
        .close()
        .expect("the disk works");
    config
}

fn serve(folder: &Path, service: &str) {
    std::fs::write(folder.join("service.json"), service).expect("there is room");
}

/// An entry of the list once a host has changed the namespaces.
fn placed(nsid: u32, first: u64, more: &str) -> String {
    format!(
        r#"{{ "pages": {PAGES}, "block_bytes": 4096 {more}, "place": {{ "nsid": {nsid}, "first_page": {first},
              "serial": 0, "attached": true }} }}"#
    )
}

fn with(namespaces: &[String]) -> String {
    format!(
        r#"{{ "nqn": "nqn.2026-11.test:a", "created": 1, "namespaces": [{}] }}"#,
        namespaces.join(",")
    )
}

fn write(folder: &Path, nsid: u32, byte: u8) {
    let mut disk = ImageDisk::open(folder, nsid).expect("it is there");
    disk.write(7, &[byte; 4096]).expect("in range");
    disk.close().expect("the disk works");
}

fn read(folder: &Path, nsid: u32) -> u8 {
    let mut disk = ImageDisk::open(folder, nsid).expect("it is there");
    let mut page = [0; 4096];
    disk.read(7, &mut page).expect("in range");
    page[0]
}

#[test]
fn namespaces_are_where_they_were_put_when_hosts_created_and_deleted_some() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    made(&folder);

    // In order, as created.
    let plain = |count: usize| {
        let one = format!(r#"{{ "pages": {PAGES}, "block_bytes": 4096 }}"#);
        format!(
            r#"{{ "nqn": "nqn.2026-11.test:a", "namespaces": [{}] }}"#,
            vec![one; count].join(",")
        )
    };
    serve(&folder, &plain(3));
    (1..=3).for_each(|nsid| write(&folder, nsid, nsid as u8));

    // The first one was deleted, and a fourth one has its place.
    let changed = with(&[
        placed(2, PAGES, ""),
        placed(3, 2 * PAGES, ""),
        placed(4, 0, ""),
    ]);
    serve(&folder, &changed);
    assert_eq!((read(&folder, 2), read(&folder, 3)), (2, 3));
    assert_eq!(read(&folder, 4), 1, "this process wrote it");
    let error = ImageDisk::open(&folder, 1).err().expect("it was deleted");
    assert!(error.to_string().contains("in use are 2, 3, 4"), "{error}");
}

#[test]
fn a_namespace_that_a_host_was_formatting_is_not_in_use_before_that_is_finished() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    made(&folder);

    let clearing =
        placed(2, PAGES, "").replace(r#""nsid": 2"#, r#""nsid": 2, "clearing": "format""#);
    serve(&folder, &with(&[placed(1, 0, ""), clearing]));
    let found = image_namespaces(&folder, 8000).expect("it can be read");
    let first = ImageNamespace {
        nsid: 1,
        first: 0,
        pages: PAGES,
        unshared: false,
    };
    assert_eq!(found, [first]);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    made(&folder);

    for (namespaces, why) in [
        ([placed(1, 0, ""), placed(2, PAGES - 1, "")], "overlap"),
        ([placed(1, 0, ""), placed(2, 1 << 40, "")], "larger than"),
        ([placed(1, 0, ""), placed(2, u64::MAX, "")], "larger than"),
        ([placed(1, 0, ""), placed(1, PAGES, "")], "number 1"),
    ] {
        serve(&folder, &with(&namespaces));
        let error = ImageDisk::open(&folder, 1).err().expect(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Data written to one unshared namespace is not shared with another one.
#[test]
fn every_namespace_that_shares_nothing_is_kept_apart_whichever_is_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    made(&folder);
    serve(
        &folder,
        &with(&[
            placed(1, 0, ""),
            placed(2, PAGES, r#", "unshared": true"#),
            placed(3, 2 * PAGES, r#", "unshared": true"#),
        ]),
    );

    for nsid in 1..=3 {
        let disk = ImageDisk::open(&folder, nsid).expect("it is there");
        let apart: Vec<(u32, u32)> = disk
            .device()
            .ftl()
            .apart()
            .iter()
            .map(|lpns| (lpns.start.0, lpns.end.0))
            .collect();
        assert_eq!(apart, [(1000, 2000), (2000, 3000)]);
    }
}

/// Another namespace may have had the pages since.
#[test]
fn a_list_of_namespaces_that_is_older_than_the_image_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("disk");
    let config = made(&folder);
    let version = FileVersion {
        serial: 5,
        crc: 0xabcd,
    };
    witness_version(&folder, &config.geometry, WitnessedFile::Service, version)
        .expect("the disk works");

    let signed = |serial: &str| {
        with(&[placed(1, 0, "")]).replace(r#""created": 1"#, &format!(r#""created": 1 {serial}"#))
    };
    for (service, what) in [
        (
            Some(signed(r#", "serial": 4, "crc32c": "0000abcd""#)),
            "serial number 4",
        ),
        (
            Some(signed(r#", "serial": 5, "crc32c": "0000abce""#)),
            "not the newest",
        ),
        (Some(signed("")), "no serial number"),
        (None, "it is missing"),
    ] {
        match service {
            Some(service) => serve(&folder, &service),
            None => std::fs::remove_file(folder.join("service.json")).expect("it is there"),
        }
        let error = ImageDisk::open(&folder, 1).err().expect(what).to_string();
        assert!(
            error.contains(what) && error.contains("service.json"),
            "{error}"
        );
    }

    // The newest one, and one written just before a kill.
    for serial in [5, 6] {
        serve(
            &folder,
            &signed(&format!(r#", "serial": {serial}, "crc32c": "0000abcd""#)),
        );
        drop(ImageDisk::open(&folder, 1).expect("it is the newest"));
    }
}
