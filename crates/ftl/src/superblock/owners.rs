//! How many need a superblock.
//!
//! Invariant: they are what L2P says (`Ftl::check` counts). Absent: how many need a page
//! (`counts`), and who they are (L2P). Only what takes owners away is noted for its region: those
//! who look for the most garbage need not know of what makes it less.

use super::Superblocks;
use remap_ssd_media::SbId;

/// Who needs a superblock's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Pages that at least one LPN owns.
    pub live: u32,
    /// LPNs whose mapping into it was made by a remap.
    pub remapped: u32,
}

impl Superblocks {
    /// Owners of the pages of one superblock.
    #[inline]
    pub fn owners(&self, sb: SbId) -> Owners {
        self.owners[sb.0 as usize]
    }
    /// Of all superblocks, with their numbers.
    pub fn iter_owners(&self) -> impl Iterator<Item = (SbId, Owners)> {
        self.owners
            .iter()
            .enumerate()
            .map(|(index, owners)| (SbId(index as u32), *owners))
    }
    /// The most LPNs remapped to pages of one superblock.
    pub fn remapped_max(&self) -> u32 {
        self.owners
            .iter()
            .map(|owners| owners.remapped)
            .max()
            .unwrap_or(0)
    }
    /// LPNs whose mapping was made by a remap, in the whole device.
    #[inline]
    pub fn remapped_total(&self) -> u64 {
        self.remapped_total
    }
    /// A page of `sb` gained an owner: its first, or one more.
    #[inline]
    pub fn gain(&mut self, sb: SbId, first: bool, remapped: bool) {
        let entry = &mut self.owners[sb.0 as usize];
        entry.live += u32::from(first);
        entry.remapped += u32::from(remapped);
        self.remapped_total += u64::from(remapped);
    }
    /// A page of `sb` lost an owner: its last, or one of several.
    #[inline]
    pub fn lose(&mut self, sb: SbId, last: bool, remapped: bool) {
        let entry = &mut self.owners[sb.0 as usize];
        entry.live -= u32::from(last);
        entry.remapped -= u32::from(remapped);
        self.remapped_total -= u64::from(remapped);
        self.changed.note(sb);
    }
    /// So many pages of `from`, each with one owner by a write, have been copied to `to`.
    #[inline]
    pub fn move_owned(&mut self, from: SbId, to: SbId, pages: u32) {
        self.owners[from.0 as usize].live -= pages;
        self.owners[to.0 as usize].live += pages;
        self.changed.note(from);
    }
}
