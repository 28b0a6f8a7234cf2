//! Blank volumes on disks in memory, and on devices in folders; databases in them.

use super::engine::{Db, start_with_vfs};
use remap_ssd_device::{Device, DeviceConfig, Disk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sqlite::{Mounted, mount};
use remap_ssd_store::{ImageDisk, NewVolume, Processes, Volume};
use remap_ssd_testkit::MemDisk;
use std::path::Path;
use std::sync::Arc;

/// A device of 32 MiB.
pub fn config() -> DeviceConfig {
    DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible")
}

/// A volume of one process on a blank disk.
pub fn volume<D: Disk>(disk: D) -> Volume<D> {
    let new = NewVolume::default();
    Volume::create(disk, &Processes::One, &new, &mut |_, _| {}).expect("it is blank")
}

/// A device in a folder, with a volume.
pub fn image(folder: &Path) {
    let device = Device::create_in_folder(folder, config(), None).expect("room for it");
    device.close().expect("possible");
    volume(ImageDisk::open(folder, 1).expect("it is there"));
}

/// A disk in memory with a volume, which the VFS knows by this name.
pub fn mounted(name: &str, pages: u64) -> (MemDisk, Mounted) {
    start_with_vfs();
    let disk = MemDisk::new(pages);
    let volume = Arc::new(volume(disk.clone()));
    (disk, mount(name, volume).expect("the name is free"))
}

/// The rows of table `t` of a whole database.
pub fn count(db: &Db) -> i64 {
    let verdict = db.value("PRAGMA integrity_check").expect("readable");
    assert_eq!(verdict.text(), "ok");
    let rows = db.value("SELECT count(*) FROM t").expect("readable");
    rows.integer()
}
