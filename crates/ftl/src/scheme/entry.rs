//! The remapping metadata entry, bit by bit (FAST'21 Table 2).
//!
//! Invariant: an entry counts only if the torn bit of each of its words is 1; a segment is zeroed
//! before use. Absent: the location of entries.

use crate::contract::{OwnerRef, Remapping};
use bitfield_struct::bitfield;
use remap_ssd_media::Lpn;

/// First 8 bytes, bits 0-63 of Table 2.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct EntryPlace {
    pub torn: bool,
    /// Bits 1-21: flash page offset in the superblock.
    #[bits(21)]
    pub offset: u32,
    /// Bits 22-63: write/remap sequence number.
    #[bits(42)]
    pub wsn: u64,
}

/// Second 8 bytes, bits 64-127 of Table 2.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct EntryOwners {
    pub torn: bool,
    /// Bits 65-95: target LPN, which the remap maps to the page.
    #[bits(31)]
    pub target: Lpn,
    /// Bit 96: remapping flag; the source has lost the page.
    pub flag: bool,
    /// Bits 97-127: source LPN if the flag is set, else null.
    #[bits(31)]
    pub source: Lpn,
}

/// 16 bytes, two atomic stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmmEntry {
    /// Word stored first: the page.
    pub first: EntryPlace,
    /// Word stored second: the owners.
    pub second: EntryOwners,
}

/// Third word of the 24-byte form: the command that the entry belongs to.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub(crate) struct CommandWord {
    /// Torn bit of this word.
    pub torn: bool,
    /// First target LPN of the command.
    #[bits(31)]
    pub start: Lpn,
    /// True if it belongs to an atomic command.
    pub atomic: bool,
    /// Pages of the whole command.
    #[bits(31)]
    pub pages: u32,
}

const _: () = assert!(size_of::<RmmEntry>() == 16 && size_of::<CommandWord>() == 8);

impl RmmEntry {
    /// The entry of a remapping to a page offset.
    #[inline]
    pub(crate) fn of(remapping: &Remapping, offset: u32) -> Self {
        let second = EntryOwners::from_bits(Self::second_of(remapping.lpn, remapping.source));
        Self {
            first: EntryPlace::new()
                .with_torn(true)
                .with_offset(offset)
                .with_wsn(remapping.wsn),
            second,
        }
    }

    /// The second word of a remap of this LPN.
    #[inline]
    pub fn second_of(target: Lpn, source: Option<Lpn>) -> u64 {
        let second = EntryOwners::new().with_torn(true).with_target(target);
        second
            .with_flag(source.is_some())
            .with_source(source.unwrap_or(Lpn::ZERO))
            .into_bits()
    }

    /// The entry as two NVRAM words.
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        [self.first.into_bits(), self.second.into_bits()]
    }

    /// The entry held by two NVRAM words.
    #[inline]
    pub fn from_words(first: u64, second: u64) -> Self {
        Self {
            first: EntryPlace::from_bits(first),
            second: EntryOwners::from_bits(second),
        }
    }

    /// Returns true if both torn bits are set, so both words were stored.
    #[inline]
    pub fn is_intact(self) -> bool {
        self.first.torn() && self.second.torn()
    }

    /// Flash page offset in the superblock.
    #[inline]
    pub(crate) fn offset(self) -> u32 {
        self.first.offset()
    }

    /// Write/remap sequence number of the remap.
    #[inline]
    pub(crate) fn wsn(self) -> u64 {
        self.first.wsn()
    }

    /// LPN that now reads the page.
    #[inline]
    pub fn target(self) -> Lpn {
        self.second.target()
    }

    /// The LPN that lost the page.
    #[inline]
    pub(crate) fn relocated_source(self) -> Option<Lpn> {
        self.second.flag().then(|| self.second.source())
    }
}

impl CommandWord {
    /// The word of an entry that no longer belongs to a command: it counts on its own.
    pub(crate) fn alone(target: Lpn) -> Self {
        Self::new().with_torn(true).with_start(target).with_pages(1)
    }

    /// The word of a remapping.
    pub(crate) fn of(remapping: &Remapping) -> Self {
        let (start, len) = remapping.atomic.unwrap_or((remapping.lpn, 1));
        Self::new()
            .with_torn(true)
            .with_start(start)
            .with_pages(len)
            .with_atomic(remapping.atomic.is_some())
    }
}

impl OwnerRef {
    /// The owner that an entry of a superblock names.
    pub(crate) fn of(entry: &RmmEntry) -> Self {
        let (offset, lpn, wsn) = (entry.offset(), entry.target(), entry.wsn());
        Self {
            offset,
            lpn,
            wsn,
            source: entry.relocated_source(),
        }
    }
}
