//! The entry of a device-wide log: 16 bytes, two atomic stores.
//!
//! A global log must name the whole flash page, so Table 2's layout does not fit. The incarnation
//! of the page's superblock identifies entries of an earlier life. Invariant: an entry counts only
//! if both torn bits are 1.

use crate::config::Config;
use crate::config::guard::Guard;
use crate::contract::Remapping;
use crate::recovery::witnesses::Witnesses;
use crate::superblock::{Superblock, SuperblockState, Superblocks};
use bitfield_struct::bitfield;
use remap_ssd_media::{Geometry, Lpn, MediaError, Ppn, SbId};

/// Entries in a 4 KiB log page.
pub(super) const ENTRIES_PER_PAGE: usize = 256;

/// First word of a saved entry whose own first word was unreadable: 0 is not a valid number.
pub(super) const UNNUMBERED: u64 = 1;

/// A remap in a device-wide log.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub(super) struct LogEntry {
    pub torn_first: bool,
    /// Low bits of the superblock's incarnation.
    #[bits(21)]
    pub incarnation: u32,
    #[bits(42)]
    pub wsn: u64,
    pub torn_second: bool,
    #[bits(31)]
    pub lpn: Lpn,
    __: bool,
    #[bits(31)]
    pub ppn: u32,
}

const _: () = assert!(size_of::<LogEntry>() == 16);

impl LogEntry {
    pub(super) fn of(blocks: &Superblocks, geometry: Geometry, remapping: &Remapping) -> Self {
        let sb = geometry.superblock(remapping.ppn);
        Self::new_in(
            blocks.get(sb).life.incarnation(),
            remapping.wsn,
            remapping.lpn,
            remapping.ppn,
        )
    }

    /// The entry of a remap into this incarnation of a superblock.
    #[inline]
    pub(super) fn new_in(incarnation: u32, wsn: u64, lpn: Lpn, ppn: Ppn) -> Self {
        Self::new()
            .with_torn_first(true)
            .with_incarnation(incarnation)
            .with_wsn(wsn)
            .with_torn_second(true)
            .with_lpn(lpn)
            .with_ppn(ppn.0)
    }

    pub(super) fn words(self) -> [u64; 2] {
        let bits = self.into_bits();
        [bits as u64, (bits >> 64) as u64]
    }

    pub(super) fn from_words(words: [u64; 2]) -> Self {
        Self::from_bits(u128::from(words[0]) | u128::from(words[1]) << 64)
    }

    /// Reports the LPNs in doubt because of an entry with an unreadable word.
    ///
    /// # Errors
    /// The LPN is unknown, and the entry may be valid.
    pub(super) fn doubt(
        blocks: &Superblocks,
        config: &Config,
        witnesses: &mut Witnesses,
        words: [Result<u64, MediaError>; 2],
    ) -> Result<(), MediaError> {
        let is_torn = |word: &u64| word & 1 == 0 && config.guards.has(Guard::TornBits);

        match words {
            // The readable word has no torn bit, so the entry was never complete, whatever the
            // other word holds.
            [Ok(word), Err(_)] | [Err(_), Ok(word)] if is_torn(&word) => Ok(()),
            // The LPN is known, the number is not: it may be newer than all other witnesses.
            [_, Ok(second)] => {
                witnesses.doubt(Self::from_words([0, second]).lpn(), u64::MAX);
                Ok(())
            }
            // The LPN is unknown. The entry matters only if its page may still exist.
            [first, Err(damaged)] => {
                let first = first.map(|first| Self::from_words([first, 0]));
                let is_current = |(_, sb): (SbId, &Superblock)| {
                    holds_entries(sb.state)
                        && first.is_ok_and(|entry| entry.incarnation() == sb.life.incarnation())
                };
                if first.is_err() || blocks.iter().any(is_current) {
                    Err(damaged)
                } else {
                    Ok(())
                }
            }
        }
    }

    pub(super) fn is_intact(self) -> bool {
        self.torn_first() && self.torn_second()
    }

    /// Returns true if it names a page of a superblock's current incarnation.
    pub(super) fn is_current(self, blocks: &Superblocks, geometry: Geometry) -> bool {
        let ppn = Ppn(self.ppn());
        self.ppn() < geometry.pages()
            && blocks.get(geometry.superblock(ppn)).life.incarnation() == self.incarnation()
    }
}

fn holds_entries(state: SuperblockState) -> bool {
    matches!(state, SuperblockState::Open | SuperblockState::Closed)
}
