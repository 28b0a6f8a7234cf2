//! The spare area of a flash page: who owned the page when it was programmed, and when.
//!
//! Invariant: 10 bytes on the medium, no padding. The tail metadata of a superblock is the same record for
//! each of its pages, so that the medium keeps one copy and shows two views of it.

use bitfield_struct::bitfield;

/// Bytes of a persisted OOB record.
pub const OOB_BYTES: usize = 10;

/// Owner, virtual time and incarnation of a page.
///
/// ```text
/// bit  0-31  LPN, or one of the metadata kinds below
///     32-73  WSN: write/remap sequence number of the mapping (FAST'21 section 4.3)
///     74-79  low bits of the superblock's incarnation number
/// ```
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Oob {
    /// Host LPN, internal LPN or metadata kind.
    #[bits(32)]
    pub lpn: u32,
    /// Write/remap sequence number.
    #[bits(42)]
    pub wsn: u64,
    /// Superblock incarnation, low 6 bits.
    #[bits(6)]
    pub incarnation: u8,
    #[bits(48)]
    __: u64,
}

impl Oob {
    /// OOB "LPN" of a page of head metadata.
    pub const HEAD: u32 = u32::MAX;
    /// OOB "LPN" of a page of tail metadata.
    pub const TAIL: u32 = u32::MAX - 1;
    /// OOB "LPN" of a page of a remapping log on flash.
    pub const LOG: u32 = u32::MAX - 2;
    /// OOB "LPN" of a page that was filled without an owner.
    pub const FILLER: u32 = u32::MAX - 3;

    /// The bytes on the medium.
    #[inline]
    pub fn to_bytes(self) -> [u8; OOB_BYTES] {
        let all = self.into_bits().to_le_bytes();
        let mut out = [0; OOB_BYTES];
        out.copy_from_slice(&all[..OOB_BYTES]);
        out
    }

    /// Reads the bytes on the medium.
    #[inline]
    pub fn from_bytes(bytes: [u8; OOB_BYTES]) -> Self {
        let mut all = [0; 16];
        all[..OOB_BYTES].copy_from_slice(&bytes);
        Self::from_bits(u128::from_le_bytes(all))
    }
}

const _: () = assert!(32 + 42 + 6 == OOB_BYTES * 8);
