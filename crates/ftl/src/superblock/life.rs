//! The life record of a superblock in NVRAM: which incarnation counts, and which blocks are good.
//!
//! Erasing a superblock takes many erases, and a cut may leave some of them undone. The record
//! therefore declares *before* the first erase that everything opened so far is dead, so that half
//! of an old superblock is never taken for a witness.
//!
//! Invariants: a head counts only if its WSN is larger than `dead_before`; `clean` implies that
//! every good block is erased. Blocks in `bad` are never used again. Blocks in `failing` failed
//! while the superblock was open: they keep their contents until it is erased, and then join `bad`.

use crate::config::layout::LIFE_WORDS;
use crate::dies::DieMask;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, Media, MediaError, Purpose, SbId};

/// First word of a life record.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Life {
    /// Heads with a WSN up to this one are dead.
    #[bits(42)]
    pub dead_before: u64,
    /// All good blocks are erased.
    pub clean: bool,
    /// Number of the next incarnation, which is also the number of erases so far.
    #[bits(21)]
    pub incarnation: u32,
}

/// A superblock's record in NVRAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeRecord {
    /// Incarnation, dead and clean marks.
    pub life: Life,
    /// Dies whose block of this superblock is permanently retired.
    pub bad: DieMask,
    /// Blocks to retire at the next erase.
    pub failing: DieMask,
}

/// A record with the words that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedLife {
    /// Incarnation, dead and clean marks.
    pub life: Result<Life, MediaError>,
    /// Dies whose block of this superblock is permanently retired.
    pub bad: Result<DieMask, MediaError>,
    /// Blocks to retire at the next erase.
    pub failing: Result<DieMask, MediaError>,
}

impl LoadedLife {
    /// Returns true if all words can be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.life.is_ok() && self.masks_are_whole()
    }

    /// Returns true if both masks can be read.
    pub(crate) fn masks_are_whole(&self) -> bool {
        self.bad.is_ok() && self.failing.is_ok()
    }
}

impl LifeRecord {
    /// Reads the words of a record.
    pub(crate) fn load(media: &mut Media, sb: SbId) -> LoadedLife {
        let at = sb.0 as usize * LIFE_WORDS;
        LoadedLife {
            life: media.load(at).map(Life::from_bits),
            bad: media.load(at + 1).map(DieMask),
            failing: media.load(at + 2).map(DieMask),
        }
    }

    /// Stores the first word: `dead_before`, `clean` and the incarnation.
    pub(crate) fn store_life(media: &mut Media, sb: SbId, life: Life, after: After) {
        media.store(
            sb.0 as usize * LIFE_WORDS,
            life.into_bits(),
            Purpose::Meta,
            after,
        );
    }

    /// Stores the mask of retired blocks.
    pub(crate) fn store_bad(media: &mut Media, sb: SbId, bad: DieMask) {
        media.store(
            sb.0 as usize * LIFE_WORDS + 1,
            bad.0,
            Purpose::Meta,
            After::NOTHING,
        );
    }

    /// Stores the mask of blocks that are retired at the next erase.
    pub(crate) fn store_failing(media: &mut Media, sb: SbId, failing: DieMask) {
        media.store(
            sb.0 as usize * LIFE_WORDS + 2,
            failing.0,
            Purpose::Meta,
            After::NOTHING,
        );
    }
}
