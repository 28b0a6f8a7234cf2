//! Superblocks of host software: pages 0 and 1 of its disk, twice the same.
//!
//! ```text
//! magic (8)  CRC-32C of everything behind it (4)  version (4)  what the owner keeps
//! ```
//!
//! Both copies are written together and never again. So two sound copies are the same, and one is
//! enough. Absent: what an owner keeps, and when copies are written.

use remap_ssd_media::folder::checksum;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Superblocks: pages 0 and 1.
pub const SUPERBLOCKS: u64 = 2;

/// Pages that are looked at together.
const LOOK_PAGES: u64 = 256;

// Behind the magic (8 bytes) and the checksum itself (4).
const CRC_FROM: usize = 12;

/// The checksum of a superblock.
pub fn superblock_crc(page: &[u8]) -> u32 {
    checksum(&page[CRC_FROM..])
}

/// Whether a page is a whole superblock with this magic and version.
///
/// # Errors
/// What it is instead.
pub fn check(page: &[u8; PAGE_BYTES], magic: [u8; 8], version: u32) -> Result<(), String> {
    // Blank, foreign and damaged are three answers: only a blank page may be overwritten unasked.
    if *page == [0; PAGE_BYTES] {
        return Err("it is blank".into());
    }
    if page[..8] != magic {
        return Err("it is something else".into());
    }

    let number =
        |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if number(8) != superblock_crc(page) {
        return Err("its checksum is wrong".into());
    }
    match number(CRC_FROM) {
        found if found == version => Ok(()),
        found => Err(format!(
            "it is of version {found}, and only {version} is known"
        )),
    }
}

/// What two copies of a superblock say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies<S> {
    /// The superblock; the page of a copy that has to be written again, and why.
    Sound(S, Option<(u64, String)>),
    /// Both are sound, and of two different disks: neither may be written over the other.
    Contradict,
    /// Neither is sound; why.
    Neither(String),
}

impl<S: PartialEq> Copies<S> {
    /// Judges what pages 0 and 1 were decoded as.
    pub fn judge(copies: [Result<S, String>; SUPERBLOCKS as usize]) -> Self {
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

/// The first of so many pages that is not zeroes. `progress` is told how many of how many pages
/// have been looked at.
///
/// # Errors
/// Those of `read`, which reads whole pages from one on.
pub fn first_written<E>(
    pages: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<u64>, E> {
    let mut bytes = vec![[0; PAGE_BYTES]; LOOK_PAGES as usize];
    for first in (0..pages).step_by(LOOK_PAGES as usize) {
        let bytes = &mut bytes[..LOOK_PAGES.min(pages - first) as usize];
        // Only reading tells: a device does not say which pages have a mapping.
        read(first, bytes.as_flattened_mut())?;
        if let Some(index) = bytes.iter().position(|page| *page != [0; PAGE_BYTES]) {
            return Ok(Some(first + index as u64));
        }
        progress(first + bytes.len() as u64, pages);
    }
    Ok(None)
}
