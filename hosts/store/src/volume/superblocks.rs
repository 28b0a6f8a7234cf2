//! The two superblocks on a disk: finding a volume, and repairing it.
//!
//! They are written together and never again, so two valid ones are equal. One is enough; the other
//! one is rewritten from it. Absent: creating them (`make`).

use super::format::{Page, SUPERBLOCKS, Superblock};
use crate::StoreError;
use remap_ssd_device::Disk;
use remap_ssd_device::superblocks::{Copies, SuperblockError};
use remap_ssd_media::geometry::PAGE_BYTES;

/// Reads the superblock, with messages about an invalid copy.
pub(super) fn find<D: Disk>(disk: &mut D) -> Result<(Superblock, Vec<String>), StoreError> {
    let pages = disk.pages();
    if pages <= SUPERBLOCKS {
        return Err(StoreError::NoVolume(format!("the disk has {pages} pages")));
    }
    // Both are read even if the first is valid: a damaged copy is repaired while there is a valid
    // one. One command reads both, unless one of them cannot be read.
    let mut copies = [[0; PAGE_BYTES]; SUPERBLOCKS as usize];
    let [first, second] = match disk.read(0, copies.as_flattened_mut()) {
        Ok(()) => copies.map(|page| Superblock::decode(&page, pages)),
        Err(_) => [0, 1].map(|number| {
            let mut page: Page = [0; PAGE_BYTES];
            match disk.read(number, &mut page) {
                Ok(()) => Superblock::decode(&page, pages),
                Err(error) => Err(SuperblockError::Unreadable(error.to_string())),
            }
        }),
    };

    match Copies::judge([first, second]) {
        Copies::Sound(superblock, damaged) => {
            let mended = damaged.map(|(page, why)| {
                format!("page {page} of the volume was written again from its copy: {why}")
            });
            Ok((superblock, mended.into_iter().collect()))
        }
        Copies::Contradict => Err(StoreError::Damaged(
            "pages 0 and 1 are of two different volumes".into(),
        )),
        Copies::Neither(why) => Err(StoreError::NoVolume(why)),
    }
}

/// Rewrites both superblocks if one is invalid.
pub(super) fn repair<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    notes: &[String],
) -> Result<(), StoreError> {
    if notes.is_empty() {
        return Ok(());
    }
    // One at a time: a cut must not destroy both.
    for page in 0..SUPERBLOCKS {
        disk.write(page, &superblock.encode())
            .map_err(StoreError::disk)?;
        disk.flush().map_err(StoreError::disk)?;
    }
    Ok(())
}
