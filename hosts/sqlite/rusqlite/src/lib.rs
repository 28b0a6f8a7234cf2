//! rusqlite on a device that can remap, in one process and without a server.
//!
//! Invariant: databases opened here have the same durability as with stock SQLite. Absent: served
//! devices; for these, give `device=HOST:PORT` in the URI instead of `image=FOLDER`.

use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_store::{ImageDisk, NewVolume, Processes, Volume};
use rusqlite::Connection;
use std::error::Error;
use std::path::Path;

/// Creates a device of `bytes` bytes in a folder, with an empty volume on it.
///
/// # Errors
/// The folder is not empty, or the device cannot be that small.
pub fn create(folder: &Path, bytes: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false)?;
    Device::create_in_folder(folder, config, None)?.close()?;

    let disk = ImageDisk::open(folder, 1)?;
    // The image belongs to this process alone, so nothing has to be coordinated.
    Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})?;
    Ok(())
}

/// Opens or creates a database on the volume in a folder.
///
/// # Errors
/// SQLite's.
pub fn open(folder: &Path, name: &str) -> Result<Connection, rusqlite::Error> {
    // May be called any number of times. `false`: the system's VFS stays the default one.
    remap_ssd_sqlite::register(false)
        .map_err(|code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None))?;
    Connection::open(format!("file:{name}?vfs=remap&image={}", folder.display()))
}

/// The connection's counters of pages shared and written.
///
/// # Errors
/// SQLite's, or it is not on this VFS.
pub fn statistics(
    connection: &Connection,
) -> Result<serde_json::Value, Box<dyn Error + Send + Sync>> {
    let text: String = connection.query_row("PRAGMA remap_ssd_statistics", [], |row| row.get(0))?;
    Ok(serde_json::from_str(&text)?)
}
