//! Logical blocks of a namespace, and the pages of the device that hold them.
//!
//! Invariant: `Namespace::blocks` returns blocks within the namespace only. Absent: which namespaces
//! there are (`namespaces`).

use crate::spec::status::Status;
use remap_ssd_device::Lpn;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::ops::Range;

/// log2 of the size of a flash page.
pub(super) const PAGE_SHIFT: u8 = PAGE_BYTES.trailing_zeros() as u8;
/// Largest namespace number.
pub const NSID_MAX: u32 = 128;
/// Supported block sizes, as powers of two, in the order of the LBA formats.
pub(super) const LBA_SHIFTS: [u8; 2] = [PAGE_SHIFT, 9];

/// Logical blocks of one namespace, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first of the blocks, in blocks of the namespace.
    pub slba: u64,
    /// Number of blocks, at least one.
    pub count: u32,
}

/// Specification of a new namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    /// Its size in flash pages.
    pub pages: u32,
    /// log2 of the logical block size: 9 or 12.
    pub lba_shift: u8,
}

/// A namespace of the subsystem, with its place on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its number, which counts from 1.
    pub nsid: u32,
    /// First logical page of the device.
    pub first_lpn: Lpn,
    /// Its size in logical pages.
    pub pages: u32,
    /// log2 of the logical block size: 9 or 12.
    pub lba_shift: u8,
    /// Tells it from previous namespaces with its number: 0 if it was created with the image,
    /// otherwise its place in the order of creation since.
    pub serial: u32,
    /// Changes whenever the number may denote another namespace, or the block size changes.
    pub version: u32,
}

impl Namespace {
    /// The device's page that contains a logical block.
    #[inline]
    pub(crate) fn page_of(&self, slba: u64) -> Lpn {
        self.first_lpn
            .offset((slba << self.lba_shift >> PAGE_SHIFT) as u32)
    }

    /// Its size in logical blocks of its format.
    pub fn size_blocks(&self) -> u64 {
        u64::from(self.pages) << (PAGE_SHIFT - self.lba_shift)
    }

    /// Returns true if it contains a page of the device.
    pub(super) fn has_page(&self, lpn: Lpn) -> bool {
        (self.first_lpn..self.first_lpn.offset(self.pages)).contains(&lpn)
    }

    /// A range, if it lies within the namespace.
    ///
    /// # Errors
    /// LBA Out of Range.
    pub fn blocks(&self, slba: u64, count: u32) -> Result<Blocks, Status> {
        // The sum may not fit into 64 bits: a host can name any block.
        match slba.checked_add(u64::from(count)) {
            Some(end) if end <= self.size_blocks() => Ok(Blocks { slba, count }),
            _ => Err(Status::LBA_RANGE),
        }
    }
}

/// The bytes of the device that hold blocks of a namespace.
pub(super) fn bytes_of(namespace: &Namespace, blocks: Blocks) -> Range<u64> {
    let first = u64::from(namespace.first_lpn.0) << PAGE_SHIFT;
    let start = first + (blocks.slba << namespace.lba_shift);
    start..start + (u64::from(blocks.count) << namespace.lba_shift)
}

/// A part of one page.
pub(super) struct Piece {
    pub lpn: Lpn,
    /// First byte in the page.
    pub start: usize,
    pub len: usize,
}

/// The pages that a range of blocks covers, whole or in part.
pub(super) fn pieces(namespace: &Namespace, blocks: Blocks) -> impl Iterator<Item = Piece> + use<> {
    let start = blocks.slba << namespace.lba_shift;
    let end = start + (u64::from(blocks.count) << namespace.lba_shift);
    pieces_of(namespace.first_lpn, start..end)
}

/// Like `pieces`, for a range of bytes relative to the page `first_lpn`.
pub(super) fn pieces_of(
    first_lpn: Lpn,
    Range { start, end }: Range<u64>,
) -> impl Iterator<Item = Piece> + use<> {
    let mut at = start;
    std::iter::from_fn(move || {
        let start = (at as usize) & (PAGE_BYTES - 1);
        let len = (PAGE_BYTES - start).min((end - at) as usize);
        let piece = (at < end).then_some(Piece {
            lpn: first_lpn.offset((at >> PAGE_SHIFT) as u32),
            start,
            len,
        });
        at += len as u64;
        piece
    })
}

/// The whole pages of a range (first page and count), and the partial pages at its ends.
pub(super) fn whole_pages(
    namespace: &Namespace,
    blocks: Blocks,
) -> ((Lpn, u32), impl Iterator<Item = Piece> + use<>) {
    let page = PAGE_BYTES as u64;

    // Pages entirely within the range. If there is none, `behind` may be below `first`.
    let start = blocks.slba << namespace.lba_shift;
    let end = start + (u64::from(blocks.count) << namespace.lba_shift);
    let (first, behind) = (start.div_ceil(page), end / page);

    // A range within one page is only a head: the tail begins where the head ends.
    let head = start..end.min(first * page);
    let tail = head.end.max(behind * page)..end;

    let first_lpn = namespace.first_lpn;
    let parts = [head, tail]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(move |part| Piece {
            lpn: first_lpn.offset((part.start / page) as u32),
            start: (part.start % page) as usize,
            len: (part.end - part.start) as usize,
        });

    (
        (
            first_lpn.offset(first as u32),
            behind.saturating_sub(first) as u32,
        ),
        parts,
    )
}
