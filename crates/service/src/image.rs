//! Devices in folders: creating them with all the space they will ever need, checking, repairing,
//! and renaming copies.
//!
//! Invariant: only `repair` gives up data, all of which `check` lists. Absent: the definition of
//! damage (`media::folder`).

use crate::error::ServiceError;
use crate::kept::{RESERVATIONS, ReservationFolder, SERVICE, ServiceFile};
use crate::nqn::{is_nqn, new_nqn, no_nqn};
use crate::shape::Shape;
use remap_ssd_device::{Device, DeviceConfig, FolderCheck};
use remap_ssd_media::Media;
use remap_ssd_media::folder::FileDamage;
use remap_ssd_nvme::controller::KeptNamespace;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Creates a new, empty device in a folder that is new or empty. Its space is reserved, so that a
/// full disk is an error now, not in service.
///
/// # Errors
/// The device cannot be created; nothing is left in the folder.
pub fn create(dir: &Path, shape: &Shape) -> Result<(DeviceConfig, ServiceFile), ServiceError> {
    let Some(size) = shape.size else {
        return Err(ServiceError::usage(
            "how large shall it be? For example: --size 2GiB",
        ));
    };

    let config = shape.config(size)?;
    let service = shape.service(&config)?;
    let about = |error: &dyn Display| ServiceError::about(dir.display(), error);

    // Only a folder created here may be removed again.
    let existed = dir.exists();
    let device =
        Device::create_in_folder(dir, config.clone(), None).map_err(|error| about(&error))?;

    let done = service
        .save(dir)
        .and_then(|()| device.close().map_err(|error| about(&error)));

    // Remove the files of a device that could not be completed.
    if let Err(error) = done {
        let files = Device::folder_files(dir)
            .into_iter()
            .chain([dir.join(SERVICE)]);
        files.for_each(|file| drop(std::fs::remove_file(file)));

        if !existed {
            let _ = std::fs::remove_dir(dir);
        }

        return Err(error);
    }

    Ok((config, service))
}

/// Looks for damage, including the files of the service, and reads every page, without changing
/// anything.
///
/// # Errors
/// There is no image, or a service has it open.
pub fn check(dir: &Path) -> Result<FolderCheck, ServiceError> {
    // Two parts: the device's own files, and the service file.
    let mut found =
        Device::check_folder(dir).map_err(|error| ServiceError::about(dir.display(), error))?;
    // Namespaces are checked against the device's size if that is known.
    let pages = Device::folder_config(dir).map_or(u32::MAX, |config| config.host_lpns());
    if let Err(error) = ServiceFile::read(dir, pages) {
        found.damage.push(FileDamage {
            file: SERVICE.into(),
            offset: 0,
            what: error.to_string(),
            lost: "the name and the namespaces, if the file cannot be read: a new name, and one namespace; \
                   otherwise what hosts have changed of them since"
                .into(),
        });
    }
    if let Err(error) = ReservationFolder(dir.to_owned()).load() {
        found.damage.push(FileDamage {
            file: RESERVATIONS.into(),
            offset: 0,
            what: error.to_string(),
            lost: "what hosts have reserved since, or all of it if the file cannot be read: hosts that were shut out \
                   can write again"
                .into(),
        });
    }
    Ok(found)
}

/// Drops damaged data so that the image opens again. Returns the folder with the files as they
/// were, if any were replaced.
///
/// # Errors
/// The system's reason.
pub fn repair(dir: &Path) -> Result<Option<PathBuf>, ServiceError> {
    let about = |error: &dyn Display| ServiceError::about(dir.display(), error);
    let (_, kept) = Device::repair_folder(dir).map_err(|error| about(&error))?;
    let config = Device::folder_config(dir).map_err(|error| about(&error))?;

    if ServiceFile::read(dir, config.host_lpns()).is_err() {
        let file = dir.join(SERVICE);
        // `repair_folder` keeps a copy, unless only the service file was damaged.
        if kept.is_none() && file.exists() {
            std::fs::copy(&file, dir.join(format!("{SERVICE}.damaged")))
                .map_err(|error| about(&error))?;
        }

        // Readable fields are kept, even without a valid checksum: the old name is worth more than
        // a new one.
        ServiceFile::unsigned(dir, config.host_lpns())
            .unwrap_or_else(|| {
                let unit = config.geometry.host_pages();
                ServiceFile::new(new_nqn(), config.host_lpns(), (1, 4096), &[], unit)
            })
            .save(dir)?;
    }
    let reservations = ReservationFolder(dir.to_owned());
    if reservations.load().is_err() {
        reservations.repair()?;
    }

    Ok(kept)
}

/// The name of a copy of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyName {
    /// A new unique name.
    New,
    /// This NVMe qualified name.
    Given(String),
    /// The name of the original, which is gone.
    Kept,
}

/// Gives a copy of an image its name and serial number, so that hosts can tell it from the
/// original. Returns the name.
///
/// # Errors
/// The name is invalid, or the image is damaged or in service.
pub fn adopt(dir: &Path, name: CopyName) -> Result<String, ServiceError> {
    let about = |error: &dyn Display| ServiceError::about(dir.display(), error);

    let config = Device::folder_config(dir).map_err(|error| about(&error))?;
    // Locked: a running service would continue under the old name.
    let _lock = Media::lock_folder(dir).map_err(|error| about(&error))?;

    let mut service = ServiceFile::read(dir, config.host_lpns())?;

    service.nqn = match name {
        CopyName::Given(nqn) if is_nqn(&nqn) => nqn,
        CopyName::Given(nqn) => return Err(no_nqn(&nqn)),
        CopyName::Kept => service.nqn,
        CopyName::New => new_nqn(),
    };

    service.save(dir)?;
    Ok(service.nqn)
}

/// Mapped pages outside all namespaces. Accepting an older list of namespaces leaves such pages.
pub fn mapped_outside(dir: &Path, found: &FolderCheck) -> u64 {
    let config = Device::folder_config(dir).ok();
    let (pages, unit) = config.map_or((u32::MAX, 1), |config| {
        (config.host_lpns(), config.geometry.host_pages())
    });
    let namespaces = ServiceFile::read(dir, pages)
        .ok()
        .and_then(|service| service.kept_namespaces().ok());
    let Some(namespaces) = namespaces else {
        return 0;
    };

    // Namespaces do not overlap, so each page is counted once.
    let inside = |range: &Range<u32>| {
        let of_one = |one: &KeptNamespace| {
            // The rest of its last unit is in no namespace, and cannot be written.
            let last = one.first_lpn.0.saturating_add(one.pages);
            let last = last.checked_next_multiple_of(unit).unwrap_or(u32::MAX);
            let end = range.end.min(last);
            u64::from(end.saturating_sub(range.start.max(one.first_lpn.0)))
        };
        namespaces.list.iter().map(of_one).sum::<u64>()
    };
    let inside: u64 = found.mapped_lpns.iter().map(inside).sum();
    found.mapped.saturating_sub(inside)
}
