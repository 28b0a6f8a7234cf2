//! Counts of a superblock's owners.
//!
//! Invariant: they match L2P (`Ftl::check`). Absent: counts per page (`counts`), and the owners
//! (L2P). Only a loss of owners is noted for a region: searches for the most garbage need not know
//! what reduces it.

use super::Superblocks;
use remap_ssd_media::SbId;

/// Owner counts of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Pages with at least one owner.
    pub live: u32,
    /// LPNs whose mapping into it was made by a remap.
    pub remapped: u32,
}

impl Superblocks {
    /// Owners of the pages of one superblock.
    #[inline]
    pub(crate) fn owners(&self, sb: SbId) -> Owners {
        self.owners[sb.0 as usize]
    }
    /// Owner counts of all superblocks, with their numbers.
    pub(crate) fn iter_owners(&self) -> impl Iterator<Item = (SbId, Owners)> {
        self.owners
            .iter()
            .enumerate()
            .map(|(index, owners)| (SbId(index as u32), *owners))
    }
    /// Largest number of LPNs remapped to pages of one superblock.
    pub(crate) fn remapped_max(&self) -> u32 {
        self.owners
            .iter()
            .map(|owners| owners.remapped)
            .max()
            .unwrap_or(0)
    }
    /// LPNs whose mapping was made by a remap, in the whole device.
    #[inline]
    pub(crate) fn remapped_total(&self) -> u64 {
        self.remapped_total
    }
    /// A page of `sb` gained an owner: its first, or one more.
    #[inline]
    pub(crate) fn gain(&mut self, sb: SbId, first: bool, remapped: bool) {
        let entry = &mut self.owners[sb.0 as usize];
        entry.live += u32::from(first);
        entry.remapped += u32::from(remapped);
        self.remapped_total += u64::from(remapped);
    }
    /// A page of `sb` lost an owner: its last, or one of several.
    #[inline]
    pub(crate) fn lose(&mut self, sb: SbId, last: bool, remapped: bool) {
        let entry = &mut self.owners[sb.0 as usize];
        entry.live -= u32::from(last);
        entry.remapped -= u32::from(remapped);
        self.remapped_total -= u64::from(remapped);
        self.changed.note(sb);
    }
    /// Moves `pages` pages, each with one owner by a write, from `from` to `to`.
    #[inline]
    pub(crate) fn move_owned(&mut self, from: SbId, to: SbId, pages: u32) {
        self.owners[from.0 as usize].live -= pages;
        self.owners[to.0 as usize].live += pages;
        self.changed.note(from);
    }
}
