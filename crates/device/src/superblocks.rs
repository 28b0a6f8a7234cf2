//! Superblocks of host software: pages 0 and 1 of its disk, twice the same.
//!
//! ```text
//! magic (8)  CRC-32C of all following bytes (4)  version (4)  the owner's data
//! ```
//!
//! Both copies are written together and never change. So two sound copies are equal, and one is
//! enough. Absent: the owner's data, and when copies are written.

use remap_ssd_media::folder::checksum;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Superblocks: pages 0 and 1.
pub const SUPERBLOCKS: u64 = 2;

/// Pages read at a time.
const LOOK_PAGES: u64 = 256;

// After the magic (8 bytes) and the checksum (4).
const CRC_FROM: usize = 12;

/// The checksum of a superblock.
pub fn superblock_crc(page: &[u8]) -> u32 {
    checksum(&page[CRC_FROM..])
}

/// Why a page is no valid superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Only such a page may be overwritten without asking.
    #[error("it is blank")]
    Blank,
    /// The page has another magic.
    #[error("it is something else")]
    Foreign,
    /// The page is damaged.
    #[error("its checksum is wrong")]
    Checksum,
    /// The page was written by another version of the program.
    #[error("it is of version {found}, and only {known} is known")]
    Version {
        /// Version of the page.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The disk does not return the page.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The page is sound, and its values are not possible on this disk.
    #[error("{0}")]
    Values(String),
}

/// Checks that a page is a valid superblock with this magic and version.
///
/// # Errors
/// What the page is instead.
pub fn check(page: &[u8; PAGE_BYTES], magic: [u8; 8], version: u32) -> Result<(), SuperblockError> {
    // Blank, foreign and damaged pages differ: only a blank one may be overwritten without asking.
    if *page == [0; PAGE_BYTES] {
        return Err(SuperblockError::Blank);
    }
    if page[..8] != magic {
        return Err(SuperblockError::Foreign);
    }

    let number =
        |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if number(8) != superblock_crc(page) {
        return Err(SuperblockError::Checksum);
    }
    match number(CRC_FROM) {
        found if found == version => Ok(()),
        found => Err(SuperblockError::Version {
            found,
            known: version,
        }),
    }
}

/// Result of comparing the two copies of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies<S> {
    /// The superblock; the page of a copy that must be rewritten, if any, and why.
    Sound(S, Option<(u64, SuperblockError)>),
    /// Both are sound, but belong to different disks: neither may overwrite the other.
    Contradict,
    /// Neither is sound, for this reason.
    Neither(String),
}

impl<S: PartialEq> Copies<S> {
    /// Compares the superblocks decoded from pages 0 and 1.
    pub fn judge(copies: [Result<S, SuperblockError>; SUPERBLOCKS as usize]) -> Self {
        match copies.into() {
            (Ok(first), Ok(second)) if first == second => Self::Sound(first, None),
            (Ok(_), Ok(_)) => Self::Contradict,
            (Ok(first), Err(why)) => Self::Sound(first, Some((1, why))),
            (Err(why), Ok(second)) => Self::Sound(second, Some((0, why))),
            (Err(first), Err(second)) if first == second => {
                Self::Neither(format!("page 0: {first}"))
            }
            (Err(first), Err(second)) => {
                Self::Neither(format!("page 0: {first}; page 1: {second}"))
            }
        }
    }
}

/// Finds the first of `pages` pages that is not all zeroes. `progress` gets the number of pages
/// checked so far, and `pages`.
///
/// # Errors
/// Those of `read`, which reads whole pages from the given one on.
pub fn first_written<E>(
    pages: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<u64>, E> {
    let mut bytes = vec![[0; PAGE_BYTES]; LOOK_PAGES as usize];
    for first in (0..pages).step_by(LOOK_PAGES as usize) {
        let bytes = &mut bytes[..LOOK_PAGES.min(pages - first) as usize];
        // Pages must be read: a device does not report which pages are mapped.
        read(first, bytes.as_flattened_mut())?;
        if let Some(index) = bytes.iter().position(|page| *page != [0; PAGE_BYTES]) {
            return Ok(Some(first + index as u64));
        }
        progress(first + bytes.len() as u64, pages);
    }
    Ok(None)
}
