//! Devices that this VFS makes itself, so that a program needs neither a server nor a command: in
//! the memory of the process (`memory=SIZE`), or in a folder that does not exist yet
//! (`image=FOLDER&size=SIZE`).
//!
//! Invariants: a folder appears under its name with a complete device and volume, or not at all. A
//! device in memory lives as long as the process that made it, and no child of `fork` uses it: the
//! two would have different contents under one name.
//!
//! Absent: options of the device; `remap-ssd image create` has them.

use remap_ssd_device::{Device, DeviceConfig, LocalDisk};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::process::Process;
use remap_ssd_store::{ImageDisk, NewVolume, Processes, Store, Volume};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};

type Failure = Box<dyn Error + Send + Sync>;

/// A device could not be made: a sentence with its parameter.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MadeError(pub String);

/// The devices in memory by their size, each with the process that made it and what that keeps of it.
pub(crate) struct InMemory<P>(Mutex<BTreeMap<u64, (Process, Arc<P>)>>);

/// A size such as `256MiB`, `1G` or `1073741824`; units are powers of 1024.
pub(crate) fn size(key: &str, text: &str) -> Result<u64, MadeError> {
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
        MadeError(format!(
            "{key}={text}: give a whole number of bytes, KiB, MiB, GiB or TiB, such as 256MiB"
        ))
    })
}

impl<P> InMemory<P> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// What this process keeps of its device of this size, which is made if there is none.
    ///
    /// # Errors
    /// The size is impossible, or the device belongs to a parent; or those of `keep`.
    pub(crate) fn of_size<E: From<MadeError>>(
        &self,
        bytes: u64,
        cache_bytes: u64,
        keep: impl FnOnce(Arc<dyn Store>) -> Result<Arc<P>, E>,
    ) -> Result<Arc<P>, E> {
        let inherited = || {
            E::from(MadeError(format!(
                "memory={bytes}: the device is in the memory of the process that this one was forked from; \
                 use another size, image= or device="
            )))
        };
        // The caller opens one place at a time, so a mutex that is locked was locked at the fork.
        let mut devices = match self.0.try_lock() {
            Ok(devices) => devices,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(inherited()),
        };
        if let Some((process, kept)) = devices.get(&bytes) {
            return match process.is_current() {
                true => Ok(Arc::clone(kept)),
                false => Err(inherited()),
            };
        }

        let store = volume_in_memory(bytes, cache_bytes)
            .map_err(|why| MadeError(format!("memory={bytes}: {why}")))?;
        let (process, kept) = (Process::current(), keep(store)?);
        devices.insert(bytes, (process, Arc::clone(&kept)));
        Ok(kept)
    }
}

fn volume_in_memory(bytes: u64, cache_bytes: u64) -> Result<Arc<dyn Store>, Failure> {
    let config = DeviceConfig::for_service(bytes, SchemeKind::default(), false)?;
    let disk = LocalDisk::new(Device::in_memory(config)?);
    let new = NewVolume::default();
    let volume = Volume::create(disk, &Processes::One, &new, &mut |_, _| {})?;
    Ok(Arc::new(volume.with_cache(cache_bytes)))
}

/// Makes a device of this size with a volume in a folder, unless the folder exists.
///
/// # Errors
/// The size is impossible, or the folder cannot be made.
pub(crate) fn in_folder(folder: &Path, bytes: u64) -> Result<(), MadeError> {
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
        MadeError(format!(
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
