//! The remapping metadata entry, bit by bit (FAST'21 Table 2).
//!
//! Invariant: an entry counts only if the torn bit of each of its words is 1; a segment is zeroed before use.
//! Absent: where entries are kept.

use crate::scheme::Remapping;
use bitfield_struct::bitfield;

/// 16 bytes, two atomic stores.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct RmmEntry {
    /// Bit 0: torn bit of the first 8 bytes.
    pub torn_first: bool,
    /// Bits 1-21: flash page offset in the superblock.
    #[bits(21)]
    pub offset: u32,
    /// Bits 22-63: write/remap sequence number.
    #[bits(42)]
    pub wsn: u64,
    /// Bit 64: torn bit of the second 8 bytes.
    pub torn_second: bool,
    /// Bits 65-95: target LPN.
    #[bits(31)]
    pub target: u32,
    /// Bit 96: remapping flag; the source has lost the page.
    pub flag: bool,
    /// Bits 97-127: source LPN if the flag is set, else null.
    #[bits(31)]
    pub source: u32,
}

/// Third word of the 24-byte form: the command the entry is part of.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct CommandWord {
    /// Torn bit.
    pub torn: bool,
    /// First target LPN of the command.
    #[bits(31)]
    pub start: u32,
    /// Is the command atomic?
    pub atomic: bool,
    /// Pages of the command.
    #[bits(31)]
    pub len: u32,
}

const _: () = assert!(size_of::<RmmEntry>() == 16 && size_of::<CommandWord>() == 8);

impl RmmEntry {
    /// The entry of a remapping to a page offset.
    #[inline]
    pub fn of(remapping: &Remapping, offset: u32) -> Self {
        Self::new()
            .with_torn_first(true)
            .with_offset(offset)
            .with_wsn(remapping.wsn)
            .with_torn_second(true)
            .with_target(remapping.lpn)
            .with_flag(remapping.source.is_some())
            .with_source(remapping.source.unwrap_or(0))
    }

    /// Its two words.
    #[inline]
    pub fn words(self) -> [u64; 2] {
        let bits = self.into_bits();
        [bits as u64, (bits >> 64) as u64]
    }

    /// From its two words.
    #[inline]
    pub fn from_words(first: u64, second: u64) -> Self {
        Self::from_bits(u128::from(first) | u128::from(second) << 64)
    }

    /// Were both words stored?
    #[inline]
    pub fn is_intact(self) -> bool {
        self.torn_first() && self.torn_second()
    }

    /// The LPN that lost the page.
    #[inline]
    pub fn relocated_source(self) -> Option<u32> {
        self.flag().then(|| self.source())
    }
}

impl CommandWord {
    /// The word of a remapping.
    pub fn of(remapping: &Remapping) -> Self {
        let (start, len) = remapping.atomic.unwrap_or((remapping.lpn, 1));
        Self::new().with_torn(true).with_start(start).with_len(len).with_atomic(remapping.atomic.is_some())
    }
}
