//! The commit record: its format, and how it grows during its command.
//!
//! A record names LPNs, not pages. The remaps of one command in one superblock share a record as
//! long as each continues the previous one, upwards or downwards.
//!
//! Invariants: a record counts only if both torn bits are set; when it is stored, all pages it
//! refers to are in one superblock. Absent: the log's slots (`Wal`), and finding the pages
//! (`recover`).

use crate::contract::Remapping;
use bitfield_struct::bitfield;
use remap_ssd_media::{ClearId, Geometry, Lpn, Media, Ppn, Purpose, SbId};

/// NVRAM words of a record and of its slot.
pub(super) const SLOT_WORDS: usize = 2;

/// A commit record: two atomic stores.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub(super) struct CommitRecord {
    pub torn_first: bool,
    #[bits(21)]
    pub len: u32,
    #[bits(42)]
    pub wsn: u64,
    pub torn_second: bool,
    #[bits(31)]
    pub target: Lpn,
    __: bool,
    /// First LPN under which the pages were written.
    #[bits(31)]
    pub source: Lpn,
}

const _: () = assert!(size_of::<CommitRecord>() == 8 * SLOT_WORDS);

impl CommitRecord {
    pub(super) fn words(self) -> [u64; 2] {
        let bits = self.into_bits();
        [bits as u64, (bits >> 64) as u64]
    }

    pub(super) fn from_words([first, second]: [u64; 2]) -> Self {
        Self::from_bits(u128::from(first) | u128::from(second) << 64)
    }

    pub(super) fn is_intact(self) -> bool {
        self.torn_first() && self.torn_second()
    }

    /// Homes, each with the LPN under which its page was written.
    pub(super) fn pairs(self) -> impl Iterator<Item = (Lpn, Lpn)> {
        (0..self.len()).map(move |at| (self.target().offset(at), self.source().offset(at)))
    }
}

/// A record that may still grow.
pub(super) struct OpenCommit {
    pub commit: CommitRecord,
    pub slot: u32,
    pub clear: ClearId,
    pub sb: SbId,
    /// First and last page.
    pub pages: (Ppn, Ppn),
    pub purpose: Purpose,
}

impl OpenCommit {
    /// The record and the range of pages extended by one page, if it is the next one of the same
    /// command.
    pub(super) fn extended(
        &self,
        geometry: Geometry,
        media: &Media,
        remapping: &Remapping,
    ) -> Option<(CommitRecord, (Ppn, Ppn))> {
        let (home, lpn) = (remapping.lpn, media.oob(remapping.ppn).lpn());
        let (target, source, len) = (
            self.commit.target(),
            self.commit.source(),
            self.commit.len(),
        );
        let pages = (
            self.pages.0.min(remapping.ppn),
            self.pages.1.max(remapping.ppn),
        );

        // A record is released with one superblock, and its constraint covers a range of at most
        // 2^16 - 1 pages.
        if geometry.superblock(remapping.ppn) != self.sb
            || pages.1.0 - pages.0.0 >= u32::from(u16::MAX)
        {
            return None;
        }

        let longer = self.commit.with_len(len + 1);
        if (home, lpn) == (target.offset(len), source.offset(len)) {
            return Some((longer, pages));
        }

        // A remap whose target is above its source proceeds downwards.
        let is_before = (home.offset(1), lpn.offset(1)) == (target, source);
        is_before.then(|| (longer.with_target(home).with_source(lpn), pages))
    }
}
