//! Volumes on images that a process closes and reopens with its cached state.

use remap_ssd_device::{Device, DeviceConfig, SchemeKind};
use remap_ssd_store::{
    Create, ImageDisk, LockFiles, NewVolume, OpenOptions, Processes, RestingVolume, Store, Volume,
};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

/// An image with a volume.
struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    fn new(dedup: bool) -> Self {
        let image = Self {
            dir: tempfile::tempdir().expect("a folder"),
        };
        let config =
            DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, dedup).expect("possible");
        Device::create_in_folder(&image.folder(), config, None)
            .expect("room for it")
            .close()
            .expect("the disk works");
        let disk = ImageDisk::open(&image.folder(), 1).expect("it is there");
        Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})
            .expect("it is blank");
        image
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn open(&self) -> Volume<ImageDisk> {
        let disk = ImageDisk::open(&self.folder(), 1).expect("it is there");
        Volume::open(disk, &Processes::One).expect("it has a volume")
    }
}

/// Closes a volume, keeping its cached state.
fn rest(volume: Volume<ImageDisk>) -> Option<RestingVolume> {
    let (keep, kept) = channel();
    drop(volume.resting(move |resting| keep.send(resting).expect("it is waited for")));
    kept.try_recv().ok()
}

fn put(volume: &Volume<ImageDisk>, name: &str, byte: u8) {
    let options = OpenOptions::from(Create::IfAbsent);
    let file = volume.open(name, options).expect("room for it");
    volume.write(file, 0, &[byte; 5000]).expect("room for it");
    volume.sync(file).expect("the disk works");
}

fn get(volume: &Volume<ImageDisk>, name: &str) -> Option<u8> {
    let file = volume.open(name, OpenOptions::default()).ok()?;
    let mut bytes = [0; 5000];
    assert_eq!(volume.read(file, 0, &mut bytes).expect("it is there"), 5000);
    Some(bytes[4999])
}

#[test]
fn a_volume_that_nobody_has_changed_goes_on_as_it_was() {
    let image = Image::new(false);
    let mut volume = image.open();
    for round in 0..20u8 {
        put(&volume, &format!("file-{}", round % 7), round);
        let resting = rest(volume).expect("nothing has failed");
        assert!(resting.bytes() > 0);
        volume = match round % 5 {
            // A read-only use changes nothing.
            4 => {
                assert_eq!(get(&image.open(), "file-0"), Some(round / 7 * 7));
                resting.resume()
            }
            _ => resting.resume(),
        }
        .expect("it is closed")
        .expect("it is unchanged");
        assert_eq!(get(&volume, &format!("file-{}", round % 7)), Some(round));
    }
    drop(volume);
    assert_eq!(get(&image.open(), "file-5"), Some(19));
}

// The only process makes new lock files whenever it opens the volume.
#[test]
fn lock_files_of_before_do_not_bind_the_next_opening() {
    let image = Image::new(false);
    let volume = image.open();
    put(&volume, "file", 1);
    let note = |volume: &Volume<ImageDisk>, locks| {
        let file = volume.open("file", OpenOptions::default());
        let files = LockFiles { locks, memory: 0 };
        volume.note_lock_files(file.expect("it is there"), files)
    };
    note(&volume, 7).expect("nothing is noted yet");
    note(&volume, 8).expect_err("other files are in their place");

    let resting = rest(volume).expect("nothing has failed");
    let volume = resting.resume().expect("it is closed");
    note(&volume.expect("it is unchanged"), 8).expect("nothing is noted yet");
}

#[test]
fn a_volume_that_another_process_has_changed_is_opened_anew() {
    let image = Image::new(false);
    let volume = image.open();
    put(&volume, "ours", 1);
    let resting = rest(volume).expect("nothing has failed");

    let other = image.open();
    other.delete("ours").expect("it is closed");
    put(&other, "theirs", 2);
    drop(other);

    let resumed = resting.resume().expect("it is closed");
    assert!(resumed.is_none());
    let volume = image.open();
    assert_eq!(
        (get(&volume, "ours"), get(&volume, "theirs")),
        (None, Some(2))
    );
}

#[test]
fn an_image_is_in_use_gone_or_another_one() {
    let image = Image::new(false);
    let resting = rest(image.open()).expect("nothing has failed");
    let other = image.open();
    assert!(resting.resume().is_err(), "another process has it open");

    let resting = rest(other).expect("nothing has failed");
    std::fs::remove_dir_all(image.folder()).expect("it is closed");
    assert!(resting.resume().expect("it is closed").is_none());
}

// The service changes these files while it holds the image exclusively.
#[test]
fn a_list_of_namespaces_or_a_configuration_that_changed_is_noticed() {
    let image = Image::new(false);
    for (name, text) in [
        (
            "service.json",
            r#"{ "namespaces": [{ "pages": 7000 }] }"#.to_owned(),
        ),
        ("device.toml", config_text(&image.folder()) + "# changed\n"),
    ] {
        let resting = rest(image.open()).expect("nothing has failed");
        let path = image.folder().join(name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, text).expect("there is room");
        assert!(resting.resume().expect("it is closed").is_none(), "{name}");
        match before {
            Some(bytes) => std::fs::write(&path, bytes).expect("there is room"),
            None => std::fs::remove_file(&path).expect("it is there"),
        }
    }
}

// A device goes on with the configuration that it was opened with, and the next opening takes the new one.
#[test]
fn a_configuration_that_is_edited_while_the_device_is_open_is_noticed() {
    let image = Image::new(false);
    let volume = image.open();
    let text = config_text(&image.folder()) + "# changed\n";
    std::fs::write(image.folder().join("device.toml"), text).expect("there is room");
    let resting = rest(volume).expect("nothing has failed");
    assert!(resting.resume().expect("it is closed").is_none());
}

fn config_text(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("device.toml")).expect("it is there")
}

// Its fingerprints are saved with a state.
#[test]
fn a_device_that_deduplicates_is_closed_whole() {
    let image = Image::new(true);
    let volume = image.open();
    put(&volume, "file", 3);
    assert!(rest(volume).is_none());
    assert_eq!(get(&image.open(), "file"), Some(3));
}
