//! The NAND array as cells: the contents of each page, and the programmed rows of each block.
//!
//! Invariants: a block is programmed row by row (`next_row`); a torn or spoiled page reads as
//! uncorrectable until its block is erased. One `NandArray` holds either the whole device (the live
//! view) or a single superblock (a chunk of an [`crate::Image`]), so both follow the same rules.
//! Absent: pending operations, time, and NVRAM.

use crate::content::{ContentMode, Page, PageBytes, PageView};
use crate::geometry::{BlockId, Geometry, PAGE_BYTES, PageSlot, Ppn, SbId};
use crate::identities::Identities;
use crate::oob::{OOB_BYTES, Oob, SecondOwner};
use crate::pages::MappedPages;
use crate::slab::{Slab, prefetch};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The data stored by one program.
#[derive(Clone, Debug)]
pub enum StoredPage {
    /// Only the OOB record.
    Nothing,
    /// A data page by identity.
    Identity(u64),
    /// A data page by bytes.
    Bytes(PageBytes),
    /// A metadata page: real bytes in every mode, at most 4 KiB.
    Meta(Arc<[u8]>),
}

/// Data pages' contents, by content mode.
pub(crate) enum PageContents {
    None,
    Identity(Identities),
    Bytes(Vec<Option<PageBytes>>),
    /// Bytes in a mapped file.
    Mapped(MappedPages),
}

impl Clone for PageContents {
    fn clone(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Identity(cells) => Self::Identity(cells.clone()),
            Self::Bytes(cells) => Self::Bytes(cells.clone()),
            // A copy does not belong to the file.
            Self::Mapped(pages) => {
                Self::Bytes((0..pages.len()).map(|at| Some(pages.bytes(at))).collect())
            }
        }
    }
}

impl PageContents {
    fn blank(&mut self, at: usize) {
        match self {
            PageContents::None => {}
            PageContents::Identity(cells) => cells.set(at, 0),
            PageContents::Bytes(cells) => cells[at] = None,
            PageContents::Mapped(pages) => pages.blank(at),
        }
    }
}

/// Maximum metadata page buffers kept for reuse.
const SPARE_MAX: usize = 1024;

/// Pages are programmed in order: their cells are prefetched this many pages ahead.
pub(crate) const PAGES_AHEAD: usize = 32;

#[derive(Clone)]
pub(crate) struct NandArray {
    pub(crate) geometry: Geometry,
    pub(crate) oob: Slab<[u8; OOB_BYTES]>,
    /// Extended OOB records; empty until the first one is programmed.
    pub(crate) seconds: Slab<u32>,
    pub(crate) contents: PageContents,
    /// Rows programmed so far, per block.
    pub(crate) next_row: Vec<u32>,
    pub(crate) erase_counts: Vec<u32>,
    pub(crate) meta: BTreeMap<u32, Arc<[u8]>>,
    /// One bit per page: set if it is in `meta`. Data pages need no tree lookup.
    meta_bits: Vec<u64>,
    /// Full-page buffers that are no longer shared, for reuse.
    spare: Vec<Arc<[u8]>>,
    /// Pages whose program was cut or failed.
    pub(crate) torn: BTreeSet<u32>,
    /// Blocks whose erase was cut or failed.
    pub(crate) spoiled: BTreeSet<u32>,
}

impl NandArray {
    pub(crate) fn new(geometry: Geometry, mode: ContentMode) -> Self {
        let pages = geometry.pages() as usize;
        let blocks = geometry.blocks() as usize;

        Self {
            geometry,
            oob: Slab::zeroed(pages),
            seconds: Slab::zeroed(0),
            contents: match mode {
                ContentMode::None => PageContents::None,
                ContentMode::Identity => PageContents::Identity(Identities::new(pages)),
                ContentMode::Bytes => PageContents::Bytes(vec![None; pages]),
            },
            next_row: vec![0; blocks],
            erase_counts: vec![0; blocks],
            meta: BTreeMap::new(),
            meta_bits: vec![0; pages.div_ceil(64)],
            spare: Vec::new(),
            torn: BTreeSet::new(),
            spoiled: BTreeSet::new(),
        }
    }

    #[inline]
    pub(crate) fn block_of(&self, ppn: Ppn) -> (BlockId, u32) {
        let sb = self.geometry.superblock(ppn);
        let offset = self.geometry.offset(ppn);
        (
            self.geometry.block(sb, self.geometry.die_of_offset(offset)),
            self.geometry.row_of_offset(offset),
        )
    }

    #[inline]
    pub(crate) fn is_programmed(&self, ppn: Ppn) -> bool {
        let (block, row) = self.block_of(ppn);
        row < self.next_row[block.0 as usize]
    }

    #[inline]
    pub(crate) fn is_damaged(&self, ppn: Ppn) -> bool {
        if self.is_pristine() {
            return false;
        }
        self.torn.contains(&ppn.0) || self.spoiled.contains(&self.block_of(ppn).0.0)
    }

    /// Programs a data page by identity, if identities are stored: the hot path of `put`.
    #[inline(always)]
    pub(crate) fn put_identity(&mut self, slot: PageSlot, oob: Oob, identity: u64) {
        let (ppn, row) = (slot.ppn, slot.row);
        let next = &mut self.next_row[slot.block.0 as usize];
        // Real flash could not program a row out of order: a bug of ours, never a media event.
        assert!(
            *next == row,
            "programs within a block are in order: row {row}, expected {next}"
        );
        *next = row + 1;
        let at = ppn.0 as usize;
        self.oob[at] = oob.to_bytes();
        if oob.second() != SecondOwner::NONE {
            self.put_second(at, oob.second());
        }

        // Pages are allocated in order, so the next ones are known; a cache miss here would be the
        // longest step of a program.
        prefetch(&self.oob, at + PAGES_AHEAD);
        if let PageContents::Identity(cells) = &mut self.contents {
            cells.set(at, identity);
            cells.prefetch(at + PAGES_AHEAD);
        }
    }

    /// Advances the rows of consecutive dies whose data pages are programmed, or the row of one die by as many pages
    /// of a word line.
    #[inline(always)]
    pub(crate) fn advance_row(&mut self, PageSlot { block, row, .. }: PageSlot, len: usize) {
        let first = block.0 as usize;
        let (dies, rows) = match self.geometry.stripe() {
            1 => (len, 1),
            _ => (1, len as u32),
        };
        for next in &mut self.next_row[first..first + dies] {
            assert!(
                *next == row,
                "programs within a block are in order: row {row}, expected {next}"
            );
            *next = row + rows;
        }
    }

    /// Programs a data page with bytes, copying them once.
    pub(crate) fn put_bytes(&mut self, slot: PageSlot, oob: Oob, bytes: &[u8]) {
        assert!(
            bytes.len() == self.geometry.page_bytes(),
            "a page is programmed whole"
        );
        self.put_identity(slot, oob, 0);
        match &mut self.contents {
            PageContents::Bytes(cells) => cells[slot.ppn.0 as usize] = Some(Arc::from(bytes)),
            PageContents::Mapped(pages) => pages.put(slot.ppn.0 as usize, bytes),
            PageContents::None | PageContents::Identity(_) => {}
        }
    }

    /// Programs a data page with the contents of another one, within the mapped file.
    pub(crate) fn put_copy(&mut self, from: Ppn, to: PageSlot, oob: Oob) {
        self.put_identity(to, oob, 0);
        if let PageContents::Mapped(pages) = &mut self.contents {
            pages.copy(from.0 as usize, to.ppn.0 as usize);
        }
    }

    pub(crate) fn put(&mut self, ppn: Ppn, oob: Oob, stored: StoredPage) {
        let (block, row) = self.block_of(ppn);

        let next = &mut self.next_row[block.0 as usize];
        assert!(
            *next == row,
            "programs within a block are in order: row {row}, expected {next}"
        );
        *next = row + 1;

        let at = ppn.0 as usize;
        self.oob[at] = oob.to_bytes();
        if oob.second() != SecondOwner::NONE {
            self.put_second(at, oob.second());
        }

        match (stored, &mut self.contents) {
            (StoredPage::Identity(identity), PageContents::Identity(cells)) => {
                cells.set(at, identity)
            }
            (StoredPage::Bytes(bytes), PageContents::Bytes(cells)) => cells[at] = Some(bytes),
            (StoredPage::Bytes(bytes), PageContents::Mapped(pages)) => pages.put(at, &bytes[..]),
            (StoredPage::Meta(bytes), contents) => {
                if let PageContents::Mapped(pages) = contents {
                    pages.put(at, &bytes);
                }
                self.meta.insert(ppn.0, bytes);
                self.meta_bits[at / 64] |= 1 << (at % 64);
                // A leftover identity must not look like this page's content.
                contents.blank(at);
            }
            (_, contents) => contents.blank(at),
        }
    }

    /// Extends the OOB of a page; erasing its block removes the extension.
    #[cold]
    pub(crate) fn put_second(&mut self, at: usize, second: SecondOwner) {
        // Only one scheme has second owners; others save the four bytes per page.
        if self.seconds.is_empty() {
            self.seconds = Slab::zeroed(self.oob.len());
        }
        self.seconds[at] = second.into_bits();
    }

    /// Consumes a page, leaving it unreadable.
    pub(crate) fn tear(&mut self, ppn: Ppn) {
        // It takes its row like any page: a page that failed half-way cannot be programmed again
        // before an erase.
        self.put(ppn, Oob::default(), StoredPage::Nothing);
        self.torn.insert(ppn.0);
    }

    /// Makes a programmed page unreadable.
    pub(crate) fn lose(&mut self, ppn: Ppn) {
        assert!(self.is_programmed(ppn));
        let at = ppn.0 as usize;
        self.oob[at] = Oob::default().to_bytes();
        self.meta.remove(&ppn.0);
        self.meta_bits[at / 64] &= !(1 << (at % 64));
        self.torn.insert(ppn.0);
    }

    /// Erases a block and counts the wear.
    pub(crate) fn erase(&mut self, block: BlockId) {
        let (sb, die) = self.geometry.place_of_block(block);
        // Before the row count is reset: it tells which pages have contents to forget.
        self.forget_block(sb, die);
        self.spoiled.remove(&block.0);
        self.next_row[block.0 as usize] = 0;

        let count = &mut self.erase_counts[block.0 as usize];
        *count = count.saturating_add(1);
    }

    /// Makes a block unreadable and unprogrammable until it is erased.
    pub(crate) fn spoil(&mut self, block: BlockId) {
        let (sb, die) = self.geometry.place_of_block(block);
        self.forget_block(sb, die);
        self.spoiled.insert(block.0);
        // Full, so that it cannot be programmed: half-erased cells take no data.
        self.next_row[block.0 as usize] = self.geometry.pages_per_block();

        // An interrupted erase wears the block like a complete one.
        let count = &mut self.erase_counts[block.0 as usize];
        *count = count.saturating_add(1);
    }

    fn forget_block(&mut self, sb: SbId, die: u32) {
        let geometry = self.geometry;
        let range =
            geometry.page(sb, 0).0..geometry.page(sb, 0).0 + geometry.pages_per_superblock();
        let of_block = |page: &u32| geometry.die_of_offset(geometry.offset(Ppn(*page))) == die;

        if !self.torn.is_empty() {
            let gone: Vec<u32> = self
                .torn
                .range(range.clone())
                .copied()
                .filter(of_block)
                .collect();
            gone.iter().for_each(|page| {
                self.torn.remove(page);
            });
        }

        // In nearly all blocks only a head or a tail is metadata.
        if self.meta.range(range.clone()).next().is_some() {
            let rows = geometry.pages_per_block();
            each_line(&geometry, (sb, die), rows, |line| {
                if line.len() > 1 || self.is_meta(Ppn(line.start)) {
                    self.forget_meta(line);
                }
            });
        }

        // Only programmed rows hold an OOB.
        let rows = self.next_row[geometry.block(sb, die).0 as usize];
        each_line(&geometry, (sb, die), rows, |line| match line.len() {
            1 => self.oob[line.start as usize] = [0; OOB_BYTES],
            _ => self.oob[line.start as usize..line.end as usize].fill([0; OOB_BYTES]),
        });

        if !self.seconds.is_empty() {
            for row in 0..geometry.pages_per_block() {
                self.seconds[(range.start + geometry.offset_of(row, die)) as usize] = 0;
            }
        }

        // Identities may stay: an unprogrammed page is never read, and the next program sets its
        // own.
        if let PageContents::Bytes(cells) = &mut self.contents {
            for row in 0..geometry.pages_per_block() {
                cells[(range.start + geometry.offset_of(row, die)) as usize] = None;
            }
        }
    }

    /// Removes the metadata pages among these.
    fn forget_meta(&mut self, pages: Range<u32>) {
        let mut page = pages.start;
        while page < pages.end {
            // Those whose bits share a word.
            let end = pages.end.min((page | 63) + 1);
            let mask = (u64::MAX >> (64 - (end - page))) << (page % 64);
            let word = &mut self.meta_bits[page as usize / 64];
            let mut bits = *word & mask;
            *word &= !mask;
            while bits != 0 {
                let bytes = self.meta.remove(&((page & !63) + bits.trailing_zeros()));
                bits &= bits - 1;
                let spare =
                    bytes.filter(|bytes| bytes.len() == PAGE_BYTES && self.spare.len() < SPARE_MAX);
                self.spare.extend(spare);
            }
            page = end;
        }
    }

    #[inline]
    pub(crate) fn oob(&self, ppn: Ppn) -> Oob {
        let oob = Oob::from_bytes(self.oob[ppn.0 as usize]);
        match self.seconds.get(ppn.0 as usize) {
            None => oob,
            Some(second) => oob.with_second(SecondOwner::from_bits(*second)),
        }
    }

    pub(crate) fn page(&self, ppn: Ppn) -> Page {
        match &self.contents {
            PageContents::None => Page::Unknown,
            PageContents::Identity(cells) => Page::Identity(cells.get(ppn.0 as usize)),
            PageContents::Bytes(cells) => cells[ppn.0 as usize]
                .clone()
                .map_or(Page::Unknown, Page::Bytes),
            PageContents::Mapped(pages) => Page::Bytes(pages.bytes(ppn.0 as usize)),
        }
    }

    #[inline]
    pub(crate) fn view(&self, ppn: Ppn) -> PageView<'_> {
        let at = ppn.0 as usize;
        match &self.contents {
            PageContents::None => PageView::Unknown,
            PageContents::Identity(cells) => PageView::Identity(cells.get(at)),
            PageContents::Bytes(cells) => cells[at]
                .as_deref()
                .map_or(PageView::Unknown, PageView::Bytes),
            PageContents::Mapped(pages) => PageView::Bytes(pages.page(at)),
        }
    }

    /// Returns true if a data page matches its checksum, or has none.
    #[inline]
    pub(crate) fn is_whole(&self, ppn: Ppn) -> bool {
        match &self.contents {
            PageContents::Mapped(pages) => self.is_meta(ppn) || pages.is_whole(ppn.0 as usize),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn is_meta(&self, ppn: Ppn) -> bool {
        self.meta_bits[ppn.0 as usize / 64] >> (ppn.0 % 64) & 1 == 1
    }

    /// Returns true if nothing is torn or unreadable.
    #[inline]
    pub(crate) fn is_pristine(&self) -> bool {
        self.torn.is_empty() && self.spoiled.is_empty()
    }

    /// Returns a buffer with the bytes of a metadata page to program.
    pub(crate) fn meta_bytes(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Arc<[u8]> {
        let spare = if len == PAGE_BYTES {
            self.spare.pop()
        } else {
            None
        };
        // A buffer still shared with an image or a pending program is not reused.
        let mut bytes = spare
            .filter(|spare| Arc::strong_count(spare) == 1)
            .unwrap_or_else(|| std::iter::repeat_n(0, len).collect());
        fill(Arc::get_mut(&mut bytes).expect("the only reference"));
        bytes
    }

    /// Takes over a metadata page from another array.
    pub(crate) fn adopt_meta(&mut self, page: u32, bytes: Arc<[u8]>) {
        self.meta.insert(page, bytes);
        self.meta_bits[page as usize / 64] |= 1 << (page % 64);
    }

    /// The data that a copy of this page must store.
    #[inline]
    pub(crate) fn stored(&self, ppn: Ppn) -> StoredPage {
        if self.is_meta(ppn) {
            return StoredPage::Meta(self.meta[&ppn.0].clone());
        }
        match &self.contents {
            PageContents::None => StoredPage::Nothing,
            PageContents::Identity(cells) => StoredPage::Identity(cells.get(ppn.0 as usize)),
            PageContents::Bytes(cells) => cells[ppn.0 as usize]
                .clone()
                .map_or(StoredPage::Nothing, StoredPage::Bytes),
            PageContents::Mapped(pages) => StoredPage::Bytes(pages.bytes(ppn.0 as usize)),
        }
    }

    pub(crate) fn mode(&self) -> ContentMode {
        match self.contents {
            PageContents::None => ContentMode::None,
            PageContents::Identity(_) => ContentMode::Identity,
            PageContents::Bytes(_) | PageContents::Mapped(_) => ContentMode::Bytes,
        }
    }
}

/// Calls `each` with the pages of the first `rows` rows of a block, those of one word line at a time: they follow each
/// other.
#[inline(always)]
fn each_line(
    geometry: &Geometry,
    (sb, die): (SbId, u32),
    rows: u32,
    mut each: impl FnMut(Range<u32>),
) {
    let stripe = geometry.stripe();
    let mut page = geometry.page(sb, 0).0 + die * stripe;
    let mut left = rows;
    while left > 0 {
        let pages = stripe.min(left);
        each(page..page + pages);
        page += stripe * geometry.dies();
        left -= pages;
    }
}
