//! Tests of LevelDB's files on a volume, without LevelDB. `rig/leveldb check` runs LevelDB itself.

mod appender;
mod place;
mod replace;

use remap_ssd_leveldb::Files;
use remap_ssd_store::{NewVolume, Processes, Volume};
use remap_ssd_testkit::MemDisk;
use std::sync::Arc;

const PAGES: u64 = 2048;

/// A disk with a new volume for a few files.
fn disk() -> MemDisk {
    let disk = MemDisk::new(PAGES);
    let new = NewVolume {
        files_max: 16,
        ..NewVolume::default()
    };
    let made = Volume::create(disk.clone(), &Processes::One, &new, &mut |_, _| {});
    drop(made.expect("possible"));
    disk
}

fn files(disk: &MemDisk) -> Files {
    let volume = Volume::open(disk.clone(), &Processes::One).expect("a volume");
    Files::open(Arc::new(volume)).expect("possible")
}

fn write(files: &Files, name: &str, bytes: &[u8]) {
    let mut appender = files.appender(name, false).expect("possible");
    appender.append(bytes).expect("room");
    appender.sync().expect("possible");
}

fn contents(files: &Files, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; files.size(name).expect("there") as usize];
    let reader = files.reader(name).expect("there");
    assert_eq!(reader.read(0, &mut bytes).expect("readable"), bytes.len());
    bytes
}
