//! Images opened by this process: the tables of the last one closed stay in memory for the next
//! opening.
//!
//! Invariants: a closed image leaves only memory, so that other processes can open, move or
//! delete it; the memory is used only if the image has not changed since (the media compare). A
//! child of `fork` begins without.
//!
//! Absent: several images at a time, which would need memory for each.

use crate::forked::PerProcess;
use remap_ssd_device::OpenError;
use remap_ssd_media::image_file::ImageError as FolderError;
use remap_ssd_store::{ImageDisk, ImageError, Processes, RestingVolume, StoreError, Volume};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A closed image, by its folder and the number of the namespace.
struct Closed {
    folder: PathBuf,
    nsid: u32,
    volume: RestingVolume,
}

static CLOSED: PerProcess<Mutex<Option<Closed>>> = PerProcess::new();

/// Replaces the image that is kept.
fn exchange(closed: Option<Closed>) -> Option<Closed> {
    let mut kept = CLOSED.get().lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut kept, closed)
}

/// Opens the volume in a namespace of an image. At most `memory_max` bytes are used for its pages
/// while open, and for its tables after closing.
///
/// # Errors
/// There is none, it is damaged, or in use.
pub(crate) fn open(
    folder: &Path,
    nsid: u32,
    memory_max: u64,
) -> Result<Volume<ImageDisk>, StoreError> {
    let place = folder.to_owned();
    let keep = move |volume: RestingVolume| {
        if volume.bytes() <= memory_max {
            exchange(Some(Closed {
                folder: place,
                nsid,
                volume,
            }));
        }
    };
    let volume = open_or_resume(folder, nsid)?;
    Ok(volume.with_cache(memory_max).resting(keep))
}

fn open_or_resume(folder: &Path, nsid: u32) -> Result<Volume<ImageDisk>, StoreError> {
    let failed = |error: ImageError| why(folder, error);
    // Opening another image frees the memory of the one kept.
    let closed = exchange(None).filter(|closed| closed.folder == folder && closed.nsid == nsid);
    if let Some(closed) = closed
        && let Some(volume) = closed.volume.resume().map_err(failed)?
    {
        return Ok(volume);
    }
    let disk = ImageDisk::open(folder, nsid).map_err(failed)?;
    Volume::open(disk, &Processes::One)
}

/// Converts the error of opening an image.
fn why(folder: &Path, error: ImageError) -> StoreError {
    let is_in_use = matches!(
        error.downcast_ref::<OpenError>(),
        Some(OpenError::Image(FolderError::InUse))
    );
    if is_in_use {
        StoreError::Held(format!(
            "another process has the image {} open, which one process at a time can use; by `remap-ssd serve` and \
             device= several can",
            folder.display()
        ))
    } else {
        StoreError::Disk(error)
    }
}
