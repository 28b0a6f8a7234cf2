//! Creating a volume.
//!
//! *Make*: 1. trim of everything  2. flush  3. both superblocks  4. flush. Cut before 3: the old
//! contents are partly gone, as requested, and there may be an old superblock over them
//! (`--force`), or none. Cut in 3 or 4: no superblock, one or both; one is enough, and the table is
//! blank because of 2.
//!
//! Invariant: nothing but blank pages is overwritten without `force`. Absent: files.

use super::Volume;
use super::format::{SLOTS_DEFAULT, SLOTS_MAX, SUPERBLOCKS, Superblock};
use super::random::random;
use super::superblocks::find;
use super::tenancy::{Membership, Processes};
use crate::StoreError;
use remap_ssd_device::Disk;
use remap_ssd_device::superblocks::first_written;

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Maximum number of files.
    pub files_max: u32,
    /// Size in pages; `None` for the whole disk.
    pub pages: Option<u64>,
    /// True if existing data may be overwritten.
    pub force: bool,
}

impl Default for NewVolume {
    fn default() -> Self {
        Self {
            files_max: SLOTS_DEFAULT,
            pages: None,
            force: false,
        }
    }
}

impl<D: Disk> Volume<D> {
    /// Creates a volume on a disk. `progress` gets the number of pages checked and the total.
    ///
    /// # Errors
    /// The disk is not blank, in use, or too small.
    pub fn create(
        mut disk: D,
        processes: &Processes,
        new: &NewVolume,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, StoreError> {
        let pages = new.pages.unwrap_or(disk.pages());
        let superblock = Superblock {
            uuid: new_uuid(),
            pages,
            slots: new.files_max,
        };

        // Checked before the disk is touched.
        check(&superblock, disk.pages())?;

        // Exclusive, even with `force`: present users are not disturbed, and no process can open
        // the volume while it is created.
        let mut membership = Membership::join(processes, &mut disk, true)?;
        membership.let_join()?;
        let made = make(&mut disk, &superblock, new.force, progress);
        membership.leave(&mut disk, |_| Ok(()), |disk| disk);
        made?;
        Self::open(disk, processes)
    }
}

/// Creates a volume on a disk that this process holds exclusively.
fn make<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoreError> {
    let pages = superblock.pages;

    // An earlier volume, or anything else, is overwritten on request only. An error of the disk is one in either case.
    match find(disk) {
        Ok(_) | Err(StoreError::NoVolume(_)) if force => {}
        Ok((old, _)) => {
            return Err(StoreError::NotBlank(format!(
                "volume {} is on it",
                old.uuid_text()
            )));
        }
        Err(StoreError::NoVolume(_)) => {
            if let Some(page) =
                first_written(pages, progress, |first, bytes| disk.read(first, bytes))
                    .map_err(StoreError::disk)?
            {
                return Err(StoreError::NotBlank(format!("something is in page {page}")));
            }
        }
        Err(error) => return Err(error),
    }

    // The steps of *Make* in the file header.
    disk.trim(0, pages).map_err(StoreError::disk)?;
    disk.flush().map_err(StoreError::disk)?;
    disk.write(0, &[superblock.encode(); SUPERBLOCKS as usize].concat())
        .map_err(StoreError::disk)?;
    disk.flush().map_err(StoreError::disk)
}

fn check(superblock: &Superblock, disk_pages: u64) -> Result<(), StoreError> {
    let Superblock { pages, slots, .. } = *superblock;
    let wrong = if slots == 0 || slots > SLOTS_MAX {
        format!("a volume has room for 1 to {SLOTS_MAX} files, not for {slots}")
    } else if pages > disk_pages {
        format!("a volume of {pages} pages does not fit on a disk of {disk_pages}")
    } else if pages <= superblock.first_data_page() {
        format!(
            "a volume with room for {slots} files has more than {} pages, not {pages}",
            superblock.first_data_page()
        )
    } else {
        return Ok(());
    };
    Err(StoreError::BadShape(wrong))
}

/// A random UUID (RFC 9562, version 4).
fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = random();
    // Version 4 and variant 10, as RFC 9562 places them.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
