//! The records of blocks and of mappings.
//!
//! ```text
//! 2 ..      blocks: signature and count, 204 a page      zeroes are "free"
//! ..        mappings: the block of an address, 1,020 a page  zeroes are "none": the address reads as zeroes
//! ..        data: block 0 and so on
//! ```
//! Invariants: checksums cover the disk's identity and the page's number; blocks are more than
//! addresses. Absent: when they are written (`commit.rs`).

use crate::DedupError;
use crate::pages::Page;
use crate::signature::{SIGNATURE_BYTES, Signature};
use crate::superblock::{SUPERBLOCKS, Superblock};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Blocks whose records are in a page.
pub const PAGE_BLOCKS: u32 = 204;
/// Addresses whose mappings are in a page.
pub const PAGE_MAPPINGS: u32 = 1020;
/// The mapping of an address that has none.
pub const UNMAPPED: u32 = 0;
/// The mapping of an address that was in a damaged page.
pub const LOST: u32 = u32::MAX;

/// A block, as it is kept.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BlockRecord {
    /// Of what it holds, if a mapping names it.
    pub signature: [u8; SIGNATURE_BYTES],
    /// Mappings that name it, or more.
    pub count: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct BlocksRecord {
    /// CRC-32C of identity, page number and everything behind it.
    crc: U32,
    zeroes: [u8; 12],
    blocks: [BlockRecord; PAGE_BLOCKS as usize],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MappingsRecord {
    /// CRC-32C of identity, page number and everything behind it.
    crc: U32,
    zeroes: [u8; 12],
    /// The block's number and 1; 0: none; 2^32 - 1: lost.
    mappings: [U32; PAGE_MAPPINGS as usize],
}

const _: () =
    assert!(size_of::<BlocksRecord>() == PAGE_BYTES && size_of::<MappingsRecord>() == PAGE_BYTES);
// Behind the checksum itself.
const CRC_FROM: usize = 4;

/// Places of mapping, block and data pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub logical: u32,
    pub blocks: u32,
}

impl Layout {
    /// The largest that fits into so many pages, with so many blocks to spare.
    pub fn fitting(pages: u64, spare: u32) -> Option<Self> {
        let mut blocks = u32::try_from(pages.checked_sub(SUPERBLOCKS)?).ok()?;
        loop {
            // Blocks are more than addresses: a page is written before the one that it replaces is
            // free.
            let logical = blocks
                .checked_sub(spare.max(1))
                .filter(|logical| *logical > 0)?;
            let layout = Self { logical, blocks };
            let over = (layout.first_data_page() + u64::from(blocks)).saturating_sub(pages);
            if over == 0 {
                return Some(layout);
            }
            // Half of what is too much: fewer blocks also need fewer pages of records.
            blocks = blocks.saturating_sub(over.div_ceil(2) as u32);
        }
    }

    /// As a superblock says; or why it cannot be.
    pub fn of<E: std::error::Error>(superblock: &Superblock) -> Result<Self, DedupError<E>> {
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

    pub fn block_pages(&self) -> u32 {
        self.blocks.div_ceil(PAGE_BLOCKS)
    }
    pub fn mapping_pages(&self) -> u32 {
        self.logical.div_ceil(PAGE_MAPPINGS)
    }
    /// The first page of records of blocks.
    pub fn first_block_page(&self) -> u64 {
        SUPERBLOCKS
    }
    /// The first page of mappings.
    pub fn first_mapping_page(&self) -> u64 {
        self.first_block_page() + u64::from(self.block_pages())
    }
    /// First page of the data.
    pub fn first_data_page(&self) -> u64 {
        self.first_mapping_page() + u64::from(self.mapping_pages())
    }
}

/// A page of block records by index.
pub fn blocks(superblock: &Superblock, page: u64, of: impl Fn(u32) -> (Signature, u32)) -> Page {
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

/// The blocks of a page; `None` if it cannot be believed.
pub fn read_blocks<'a>(
    superblock: &Superblock,
    page: u64,
    bytes: &'a Page,
) -> Option<&'a [BlockRecord]> {
    let record: &BlocksRecord = zerocopy::transmute_ref!(bytes);
    is_right(superblock, page, record.crc, bytes).then_some(&record.blocks[..])
}

/// A page of mappings by index.
pub fn mappings(superblock: &Superblock, page: u64, of: impl Fn(u32) -> u32) -> Page {
    let mappings = std::array::from_fn(|index| of(index as u32).into());
    let mut record = MappingsRecord {
        crc: U32::ZERO,
        zeroes: [0; 12],
        mappings,
    };
    record.crc = superblock.crc(page, &record.as_bytes()[CRC_FROM..]).into();
    zerocopy::transmute!(record)
}

/// The mappings of a page; `None` if it cannot be believed.
pub fn read_mappings<'a>(superblock: &Superblock, page: u64, bytes: &'a Page) -> Option<&'a [U32]> {
    let record: &MappingsRecord = zerocopy::transmute_ref!(bytes);
    is_right(superblock, page, record.crc, bytes).then_some(&record.mappings[..])
}

fn is_right(superblock: &Superblock, page: u64, crc: U32, bytes: &Page) -> bool {
    // Zeroes are a new disk's: nothing is mapped, and nothing is damaged.
    *bytes == [0; PAGE_BYTES] || crc.get() == superblock.crc(page, &bytes[CRC_FROM..])
}
