//! On-disk format of block records and mappings.
//!
//! ```text
//! 2 ..      blocks: signature and count, 204 a page      zeroes are "free"
//! ..        mappings: the block of an address, 1,020 a page  zeroes are "none": the address reads as zeroes
//! ..        data: block 0 and so on
//! ```
//! Invariants: checksums cover the disk's identity and the page number; there are more blocks than
//! addresses. Absent: when pages are written (`commit.rs`).

use crate::DedupError;
use crate::pages::Page;
use crate::signature::{SIGNATURE_BYTES, Signature};
use crate::superblock::{SUPERBLOCKS, Superblock};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Block records per page.
pub(super) const PAGE_BLOCKS: u32 = 204;
/// Mappings per page.
pub(super) const PAGE_MAPPINGS: u32 = 1020;
/// The mapping of an unmapped address.
pub(super) const UNMAPPED: u32 = 0;
/// The mapping of an address from a damaged page.
pub(super) const LOST: u32 = u32::MAX;

/// The record of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct BlockRecord {
    /// Signature of its content, if a mapping references it.
    pub signature: [u8; SIGNATURE_BYTES],
    /// Number of mappings that reference it, or more.
    pub count: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct BlocksRecord {
    /// CRC-32C of identity, page number and all bytes after this field.
    crc: U32,
    zeroes: [u8; 12],
    blocks: [BlockRecord; PAGE_BLOCKS as usize],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MappingsRecord {
    /// CRC-32C of identity, page number and all bytes after this field.
    crc: U32,
    zeroes: [u8; 12],
    /// Block number plus 1; 0: none; 2^32 - 1: lost.
    mappings: [U32; PAGE_MAPPINGS as usize],
}

const _: () =
    assert!(size_of::<BlocksRecord>() == PAGE_BYTES && size_of::<MappingsRecord>() == PAGE_BYTES);
// After the checksum itself.
const CRC_FROM: usize = 4;

/// Positions of mapping, block and data pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub logical: u32,
    pub blocks: u32,
}

impl Layout {
    /// Returns the largest layout that fits into `pages` pages, with `spare` spare blocks.
    pub(super) fn fitting(pages: u64, spare: u32) -> Option<Self> {
        let mut blocks = u32::try_from(pages.checked_sub(SUPERBLOCKS)?).ok()?;
        loop {
            // There are more blocks than addresses: a page is written before the block that it
            // replaces is free.
            let logical = blocks
                .checked_sub(spare.max(1))
                .filter(|logical| *logical > 0)?;
            let layout = Self { logical, blocks };
            let over = (layout.first_data_page() + u64::from(blocks)).saturating_sub(pages);
            if over == 0 {
                return Some(layout);
            }
            // Half of the excess: fewer blocks also need fewer pages of records.
            blocks = blocks.saturating_sub(over.div_ceil(2) as u32);
        }
    }

    /// Returns the layout that a superblock describes, or an error if it is impossible.
    pub(super) fn of<E: std::error::Error>(superblock: &Superblock) -> Result<Self, DedupError<E>> {
        let layout = Self {
            logical: superblock.logical,
            blocks: superblock.extent,
        };
        let fits = layout.logical > 0
            && layout.logical < layout.blocks
            && layout.first_data_page() + u64::from(layout.blocks) <= superblock.pages;
        fits.then_some(layout).ok_or_else(|| {
            DedupError::Damaged("the superblock's sizes contradict each other".into())
        })
    }

    pub(super) fn block_pages(&self) -> u32 {
        self.blocks.div_ceil(PAGE_BLOCKS)
    }
    pub(super) fn mapping_pages(&self) -> u32 {
        self.logical.div_ceil(PAGE_MAPPINGS)
    }
    /// First page of block records.
    pub(super) fn first_block_page(&self) -> u64 {
        SUPERBLOCKS
    }
    /// First page of mappings.
    pub(super) fn first_mapping_page(&self) -> u64 {
        self.first_block_page() + u64::from(self.block_pages())
    }
    /// First page of the data.
    pub(super) fn first_data_page(&self) -> u64 {
        self.first_mapping_page() + u64::from(self.mapping_pages())
    }
}

/// Encodes a page of block records, by index.
pub(super) fn blocks(
    superblock: &Superblock,
    page: u64,
    of: impl Fn(u32) -> (Signature, u32),
) -> Page {
    let record = |index| {
        let (signature, count) = of(index);
        BlockRecord {
            signature,
            count: count.into(),
        }
    };

    let blocks = std::array::from_fn(|index| record(index as u32));
    let mut record = BlocksRecord {
        crc: U32::ZERO,
        zeroes: [0; 12],
        blocks,
    };

    record.crc = superblock.crc(page, &record.as_bytes()[CRC_FROM..]).into();
    zerocopy::transmute!(record)
}

/// Decodes the block records of a page; `None` if it is damaged.
pub(super) fn read_blocks<'a>(
    superblock: &Superblock,
    page: u64,
    bytes: &'a Page,
) -> Option<&'a [BlockRecord]> {
    let record: &BlocksRecord = zerocopy::transmute_ref!(bytes);
    is_right(superblock, page, record.crc, bytes).then_some(&record.blocks[..])
}

/// Encodes a page of mappings, by index.
pub(super) fn mappings(superblock: &Superblock, page: u64, of: impl Fn(u32) -> u32) -> Page {
    let mappings = std::array::from_fn(|index| of(index as u32).into());
    let mut record = MappingsRecord {
        crc: U32::ZERO,
        zeroes: [0; 12],
        mappings,
    };
    record.crc = superblock.crc(page, &record.as_bytes()[CRC_FROM..]).into();
    zerocopy::transmute!(record)
}

/// Decodes the mappings of a page; `None` if it is damaged.
pub(super) fn read_mappings<'a>(
    superblock: &Superblock,
    page: u64,
    bytes: &'a Page,
) -> Option<&'a [U32]> {
    let record: &MappingsRecord = zerocopy::transmute_ref!(bytes);
    is_right(superblock, page, record.crc, bytes).then_some(&record.mappings[..])
}

fn is_right(superblock: &Superblock, page: u64, crc: U32, bytes: &Page) -> bool {
    // A new disk has zeroes: nothing is mapped, and nothing is damaged.
    *bytes == [0; PAGE_BYTES] || crc.get() == superblock.crc(page, &bytes[CRC_FROM..])
}
