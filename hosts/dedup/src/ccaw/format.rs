//! On-disk format of the signature table: segments, each a header page and pages of signatures.
//!
//! ```text
//! 2                 header of segment 0: valid, or not      zeroes are "not"
//! 3 .. 2 + s        its signatures, 255 a page, by address  zeroes are "none known"
//! 2 + s ..          the next segment; the last one is as short as the addresses allow
//! ..                data: address 0 and so on
//! ```
//! Invariants: checksums cover the disk's identity and the page number; an invalid page carries no
//! information. Absent: when pages are written (`segments.rs`).

use crate::DedupError;
use crate::pages::Page;
use crate::signature::{SIGNATURE_BYTES, Signature, UNKNOWN};
use crate::superblock::{SUPERBLOCKS, Superblock};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Signatures per table page.
pub(super) const PAGE_SIGNATURES: u32 = 255;
const VALID: u32 = 1;
const INVALID: u32 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct HeaderRecord {
    /// CRC-32C of identity, page number and all bytes after this field.
    crc: U32,
    /// 1: all pages of the segment are valid; 2: they must not be read.
    state: U32,
    zeroes: [u8; PAGE_BYTES - 8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SignaturesRecord {
    /// CRC-32C of identity, page number and all bytes after this field.
    crc: U32,
    zeroes: [u8; 12],
    signatures: [[u8; SIGNATURE_BYTES]; PAGE_SIGNATURES as usize],
}

const _: () =
    assert!(size_of::<HeaderRecord>() == PAGE_BYTES && size_of::<SignaturesRecord>() == PAGE_BYTES);
// After the checksum itself.
const CRC_FROM: usize = 4;

/// Positions of header, table and data pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub logical: u32,
    pub segment_pages: u32,
}

impl Layout {
    /// Returns the largest layout that fits into `pages` pages.
    pub(super) fn fitting(pages: u64, segment_pages: u32) -> Option<Self> {
        let mut logical = u32::try_from(pages.checked_sub(SUPERBLOCKS)?).ok()?;
        // A header, and at least one page of signatures.
        if segment_pages < 2 {
            return None;
        }
        loop {
            let layout = Self {
                logical,
                segment_pages,
            };

            // The table grows with the addresses, so a guess is corrected until both fit.
            let over = (layout.first_data_page() + u64::from(logical)).saturating_sub(pages);
            if logical == 0 || over == 0 {
                return (logical > 0).then_some(layout);
            }

            // Half of the excess: fewer addresses also need fewer table pages.
            logical = logical.saturating_sub(over.div_ceil(2) as u32);
        }
    }

    /// Returns the layout that a superblock describes, or an error if it is impossible.
    pub(super) fn of<E: std::error::Error>(superblock: &Superblock) -> Result<Self, DedupError<E>> {
        let layout = Self {
            logical: superblock.logical,
            segment_pages: superblock.extent,
        };
        let fits = layout.segment_pages >= 2
            && layout.logical > 0
            && layout.first_data_page() + u64::from(layout.logical) <= superblock.pages;
        fits.then_some(layout).ok_or_else(|| {
            DedupError::Damaged("the superblock's sizes contradict each other".into())
        })
    }

    /// Addresses of a full segment.
    pub(super) fn segment_lbas(&self) -> u32 {
        (self.segment_pages - 1).saturating_mul(PAGE_SIGNATURES)
    }
    pub(super) fn segments(&self) -> u32 {
        self.logical.div_ceil(self.segment_lbas())
    }
    pub(super) fn segment_of(&self, lba: u32) -> u32 {
        lba / self.segment_lbas()
    }
    /// Pages of signatures in all segments.
    pub(super) fn table_pages(&self) -> u32 {
        self.logical.div_ceil(PAGE_SIGNATURES)
    }
    /// Index of the signature page of an address, counted over all segments.
    pub(super) fn table_page_of(&self, lba: u32) -> u32 {
        lba / PAGE_SIGNATURES
    }
    /// Table pages of a segment.
    pub(super) fn table_pages_of(&self, segment: u32) -> std::ops::Range<u32> {
        let each = self.segment_pages - 1;
        // The last segment is as short as the addresses allow. Sizes come from a superblock, so
        // products saturate instead of overflowing.
        segment * each..((segment + 1).saturating_mul(each)).min(self.table_pages())
    }
    /// Position of a segment's header.
    pub(super) fn header(&self, segment: u32) -> u64 {
        SUPERBLOCKS + u64::from(segment) * u64::from(self.segment_pages)
    }
    /// Position of a page of signatures.
    pub(super) fn place(&self, table_page: u32) -> u64 {
        let each = self.segment_pages - 1;
        self.header(table_page / each) + 1 + u64::from(table_page % each)
    }
    /// First page of the data.
    pub(super) fn first_data_page(&self) -> u64 {
        SUPERBLOCKS + u64::from(self.segments()) + u64::from(self.table_pages())
    }
}

/// Encodes the header page of a segment.
pub(super) fn header(superblock: &Superblock, page: u64, valid: bool) -> Page {
    let state = if valid { VALID } else { INVALID };
    let mut record = HeaderRecord {
        crc: U32::ZERO,
        state: state.into(),
        zeroes: [0; PAGE_BYTES - 8],
    };
    record.crc = superblock.crc(page, &record.as_bytes()[CRC_FROM..]).into();
    zerocopy::transmute!(record)
}

/// Returns true if a header marks its segment valid.
pub(super) fn is_valid(superblock: &Superblock, page: u64, bytes: &Page) -> bool {
    let record: &HeaderRecord = zerocopy::transmute_ref!(bytes);
    // A trimmed header reads as zeroes, whose state is neither value.
    record.crc.get() == superblock.crc(page, &bytes[CRC_FROM..]) && record.state.get() == VALID
}

/// Encodes a table page, with signatures by index.
pub(super) fn signatures(
    superblock: &Superblock,
    page: u64,
    of: impl Fn(u32) -> Signature,
) -> Page {
    let mut record = SignaturesRecord {
        crc: U32::ZERO,
        zeroes: [0; 12],
        signatures: [UNKNOWN; PAGE_SIGNATURES as usize],
    };
    (0..)
        .zip(&mut record.signatures)
        .for_each(|(index, signature)| *signature = of(index));
    record.crc = superblock.crc(page, &record.as_bytes()[CRC_FROM..]).into();
    zerocopy::transmute!(record)
}

/// Decodes the signatures of a page; `None` if it is damaged.
pub(super) fn read_signatures<'a>(
    superblock: &Superblock,
    page: u64,
    bytes: &'a Page,
) -> Option<&'a [Signature]> {
    let record: &SignaturesRecord = zerocopy::transmute_ref!(bytes);
    // `forget` leaves zeroes: no signature is known, and nothing is damaged.
    let right =
        *bytes == [0; PAGE_BYTES] || record.crc.get() == superblock.crc(page, &bytes[CRC_FROM..]);
    right.then_some(&record.signatures[..])
}
