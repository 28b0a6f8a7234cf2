//! Devices that this VFS makes itself, so that a program needs neither a server nor a command: in
//! the memory of the process (`memory=SIZE`), or in a folder that does not exist yet
//! (`image=FOLDER&size=SIZE`).
//!
//! Invariants: a folder appears under its name with a complete device and volume, or not at all. A
//! device in memory lives as long as the process that made it, and no child of `fork` uses it: the
//! two would have different contents under one name.
//!
//! Absent: options of the device; `remap-ssd image create` has them.

use crate::place::{PlaceError, StorePlace};
use remap_ssd_device::{Device, DeviceConfig, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::process::Process;
use remap_ssd_store::{ImageDisk, NewVolume, Processes, Store, Volume};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};

type Failure = Box<dyn Error + Send + Sync>;

/// The devices in memory by their size, with the process that made each.
static IN_MEMORY: Mutex<Option<HashMap<u64, Made>>> = Mutex::new(None);

struct Made {
    process: Process,
    /// Kept with its locks: a volume refuses files whose locks are not those of before.
    place: Arc<StorePlace>,
}

/// A size such as `256MiB`, `1G` or `1073741824`; units are powers of 1024.
pub(crate) fn size(key: &str, text: &str) -> Result<u64, PlaceError> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => Some(0),
        "K" | "KiB" => Some(10),
        "M" | "MiB" => Some(20),
        "G" | "GiB" => Some(30),
        "T" | "TiB" => Some(40),
        _ => None,
    };
    let bytes = shift
        .zip(digits.parse::<u64>().ok())
        .and_then(|(shift, number)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| {
        PlaceError::Parameter(format!(
            "{key}={text}: give a whole number of bytes, KiB, MiB, GiB or TiB, such as 256MiB"
        ))
    })
}

/// The place of this process's device in memory of this size, which is made if there is none.
///
/// # Errors
/// The size is impossible, or the device belongs to a parent.
pub(crate) fn in_memory(
    bytes: u64,
    cache_bytes: u64,
    place_of: impl FnOnce(Arc<dyn Store>) -> Result<Arc<StorePlace>, PlaceError>,
) -> Result<Arc<StorePlace>, PlaceError> {
    let inherited = || {
        PlaceError::Parameter(format!(
            "memory={bytes}: the device is in the memory of the process that this one was forked from; \
             use another size, image= or device="
        ))
    };
    // The caller opens one place at a time, so a mutex that is locked was locked at the fork.
    let mut made = match IN_MEMORY.try_lock() {
        Ok(made) => made,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(inherited()),
    };
    let devices = made.get_or_insert_default();
    if let Some(known) = devices.get(&bytes) {
        return match known.process.is_current() {
            true => Ok(Arc::clone(&known.place)),
            false => Err(inherited()),
        };
    }

    let make = || -> Result<Arc<dyn Store>, Failure> {
        let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false)?;
        let disk = LocalDisk::new(Device::in_memory(config)?);
        let new = NewVolume::default();
        let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {})?;
        Ok(Arc::new(volume.with_cache(cache_bytes)))
    };
    let store = make().map_err(|why| PlaceError::Parameter(format!("memory={bytes}: {why}")))?;
    let (process, place) = (Process::current(), place_of(store)?);
    let kept = Arc::clone(&place);
    devices.insert(bytes, Made { process, place });
    Ok(kept)
}

/// Makes a device of this size with a volume in a folder, unless the folder exists.
///
/// # Errors
/// The size is impossible, or the folder cannot be made.
pub(crate) fn in_folder(folder: &Path, bytes: u64) -> Result<(), PlaceError> {
    if folder.exists() {
        return Ok(());
    }
    let unfinished = beside(folder);
    let made = make_folder(&unfinished, bytes).and_then(|()| {
        // Refused if another process has been faster; its device is as good.
        match fs::rename(&unfinished, folder) {
            Err(error) if !folder.exists() => Err(error.into()),
            _ => Ok(()),
        }
    });
    if unfinished.exists() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    made.map_err(|why| {
        PlaceError::Parameter(format!(
            "{}: a device of {bytes} bytes could not be made: {why}",
            folder.display()
        ))
    })
}

fn make_folder(folder: &Path, bytes: u64) -> Result<(), Failure> {
    let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false)?;
    Device::create_in_folder(folder, config, None)?.close()?;
    let disk = ImageDisk::open(folder, 1)?;
    Volume::create(disk, &Processes::One, &NewVolume::default(), &mut |_, _| {})?;
    Ok(())
}

/// The name under which a folder is made: another one in each process and thread.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    let thread = std::thread::current().id();
    name.push(format!(".new-{}-{thread:?}", std::process::id()));
    folder.with_file_name(name)
}
