//! The spare area of a flash page: its owner when it was programmed, and the time.
//!
//! Invariant: 10 bytes on flash, no padding; 14 on a device whose pages can name a second owner.
//! The tail metadata of a superblock is the same record for each of its pages, so that the media
//! keep one copy with two views.

use crate::geometry::Lpn;
use bitfield_struct::bitfield;

/// Bytes of a persisted OOB record.
pub const OOB_BYTES: usize = 10;

/// Bytes of its extension: a second owner.
pub const SECOND_BYTES: usize = 4;

/// The extension: an LPN that shares the page, or may later.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SecondOwner {
    /// The LPN plus one; 0 is none.
    #[bits(31)]
    lpn_plus_one: u32,
    /// True if it owns the page as of the record's WSN. If not, it is the future target of the
    /// page.
    pub owns: bool,
}

impl SecondOwner {
    /// The field of a page with only one owner.
    pub const NONE: Self = Self::new();

    /// This LPN, which may get the page (`owns` false) or has it.
    #[inline]
    pub fn of(lpn: Lpn, owns: bool) -> Self {
        Self::new().with_lpn_plus_one(lpn.0 + 1).with_owns(owns)
    }

    /// The LPN, if there is one.
    #[inline]
    pub fn lpn(self) -> Option<Lpn> {
        self.lpn_plus_one().checked_sub(1).map(Lpn)
    }
}

#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct OobLow {
    #[bits(32)]
    lpn: Lpn,
    #[bits(32)]
    wsn_low: u32,
}

#[bitfield(u16)]
#[derive(PartialEq, Eq)]
struct OobHigh {
    #[bits(10)]
    wsn_high: u16,
    #[bits(6)]
    incarnation: u8,
}

/// The incarnation in its place in `OobHigh`.
#[inline(always)]
const fn incarnation_bits(incarnation: u32) -> u16 {
    ((incarnation & 63) as u16) << 10
}

/// Owner, virtual time and incarnation of a page.
///
/// ```text
/// bit  0-31  LPN, or one of the metadata kinds below
///     32-73  WSN: write/remap sequence number of the mapping (FAST'21 section 4.3)
///     74-79  low bits of the superblock's incarnation number
///    80-111  the extension, where there is one
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oob {
    low: OobLow,
    high: OobHigh,
    second: SecondOwner,
}

const _: () = assert!(size_of::<Oob>() == 16);

impl Oob {
    /// OOB "LPN" of a page of head metadata.
    pub const HEAD: Lpn = Lpn(u32::MAX);
    /// OOB "LPN" of a page of tail metadata.
    pub const TAIL: Lpn = Lpn(u32::MAX - 1);
    /// OOB "LPN" of a page of a remapping log on flash.
    pub const LOG: Lpn = Lpn(u32::MAX - 2);
    /// OOB "LPN" of the parity page, which closes a log superblock: the XOR of its other pages.
    pub const PARITY: Lpn = Lpn(u32::MAX - 3);
    /// OOB "LPN" of a padding page in the place of an unmapped one, which keeps a block in order.
    pub const PAD: Lpn = Lpn(u32::MAX - 4);
    /// OOB "LPN" of a page that lists LPNs in doubt.
    pub const DOUBTS: Lpn = Lpn(u32::MAX - 5);

    /// The record of a page.
    #[inline(always)]
    pub fn new(lpn: Lpn, wsn: u64, incarnation: u32) -> Self {
        debug_assert!(wsn < 1 << 42);
        // As the fields' setters, which other crates do not inline.
        let wsn_high = (wsn >> 32) as u16 & 0x3ff;
        Self {
            low: OobLow::from_bits(u64::from(lpn.0) | wsn << 32),
            high: OobHigh::from_bits(wsn_high | incarnation_bits(incarnation)),
            second: SecondOwner::NONE,
        }
    }

    /// The same record in a superblock of this incarnation.
    #[inline(always)]
    pub fn with_incarnation(self, incarnation: u32) -> Self {
        let wsn_high = self.high.into_bits() & 0x3ff;
        Self {
            high: OobHigh::from_bits(wsn_high | incarnation_bits(incarnation)),
            ..self
        }
    }

    /// The same record with this extension.
    #[inline(always)]
    pub fn with_second(self, second: SecondOwner) -> Self {
        Self { second, ..self }
    }

    /// The second owner, of the extended form.
    #[inline(always)]
    pub fn second(self) -> SecondOwner {
        self.second
    }

    /// Host LPN, internal LPN or metadata kind.
    #[inline(always)]
    pub fn lpn(self) -> Lpn {
        self.low.lpn()
    }

    /// Write/remap sequence number (WSN) of the program.
    #[inline(always)]
    pub fn wsn(self) -> u64 {
        u64::from(self.low.wsn_low()) | u64::from(self.high.wsn_high()) << 32
    }

    /// Superblock incarnation, low 6 bits.
    #[inline(always)]
    pub fn incarnation(self) -> u32 {
        u32::from(self.high.incarnation())
    }

    /// The bytes on flash, without the extension.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; OOB_BYTES] {
        let mut out = [0; OOB_BYTES];
        out[..8].copy_from_slice(&self.low.into_bits().to_le_bytes());
        out[8..].copy_from_slice(&self.high.into_bits().to_le_bytes());
        out
    }

    /// Parses the bytes on flash, without the extension.
    #[inline(always)]
    pub fn from_bytes(bytes: [u8; OOB_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = bytes;
        Self {
            low: OobLow::from_bits(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            high: OobHigh::from_bits(u16::from_le_bytes([i, j])),
            second: SecondOwner::NONE,
        }
    }
}

const _: () = assert!(32 + 42 + 6 == OOB_BYTES * 8);
