//! Sizes that follow from a configuration: tails, bitmaps, mapping tables, superblocks that
//! collection may open.
//!
//! Invariant: functions of the configuration and the geometry alone. Absent: limits (`limits`),
//! addresses (`layout`).

use crate::config::granularity::Granularity;
use crate::config::{CHUNK_LPNS, Config};
use crate::mapping::cache::TRANSLATION_ENTRIES;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Geometry, Lpn, SlcArea, oob};

/// Bytes of an entry of the page table or the block table: a flash page and the LR bit.
const CELL_BYTES: u64 = 4;
/// Bytes of an entry of the extension: the page of the block, the flash page, and a link to the
/// next entry.
const ENTRY_BYTES: u64 = 8;
/// Minimum size of the extension.
const ENTRIES_MIN: u32 = 16;
/// Superblocks that putting blocks in order may open during the collection of one superblock.
const ORDERED: usize = 2;

impl Config {
    /// OOB records that fit in one tail page: 4096 / 10, or 4096 / 14 with the extension (FAST'21
    /// §4.5 keeps "P2L mappings and WSN of all data pages").
    pub(crate) fn tail_records(&self) -> u32 {
        let extension = if self.scheme.uses_hints() {
            oob::SECOND_BYTES
        } else {
            0
        };
        (PAGE_BYTES / (oob::OOB_BYTES + extension)) as u32
    }

    /// Tail pages of a superblock.
    pub fn tail_pages(&self, geometry: &Geometry) -> u32 {
        geometry
            .pages_per_superblock()
            .div_ceil(self.tail_records())
    }

    /// Pages of a superblock that its metadata occupy: the word lines of its head and its tail.
    pub fn metadata_pages(&self, geometry: &Geometry) -> u32 {
        let stripe = geometry.stripe();
        stripe + self.tail_pages(geometry).next_multiple_of(stripe)
    }

    /// Pages of a superblock that can hold data if none of its blocks is bad.
    pub fn data_pages(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_superblock() - self.metadata_pages(geometry)
    }

    /// Pads that collecting a superblock programs at most by itself, if the controller's buffer does not survive a
    /// power cut: the last word line of each zone is filled up before the victim is erased. Commands in between
    /// may fill up more of them.
    pub(crate) fn pads_most(&self, geometry: &Geometry) -> u32 {
        if self.power_loss_protection {
            0
        } else {
            self.gc_policy.zones() as u32 * (geometry.stripe() - 1)
        }
    }

    /// Internal logical pages: bitmaps of deallocations, then translation pages.
    pub(crate) fn internal_lpns(&self) -> u32 {
        self.chunks() + self.translation_pages()
    }

    /// Translation pages: the whole table, if only a part of it is in DRAM.
    pub(crate) fn translation_pages(&self) -> u32 {
        if self.caches_mapping() {
            self.lpns.div_ceil(TRANSLATION_ENTRIES)
        } else {
            0
        }
    }

    /// The internal LPN of a translation page.
    pub(crate) fn translation_lpn(&self, page: u32) -> Lpn {
        Lpn(self.lpns + self.chunks() + page)
    }

    /// Superblocks that translation pages hold open.
    pub(crate) fn table_opens(&self) -> u32 {
        self.caches_mapping().into()
    }

    /// Superblocks in SLC mode: the share of each group of dies, at least one.
    pub fn slc_superblocks(&self, geometry: &Geometry) -> u32 {
        if self.slc_share == 0.0 {
            return 0;
        }
        let of_group = (f64::from(geometry.blocks_per_die()) * self.slc_share) as u32;
        geometry.groups() * of_group.max(1)
    }

    /// The superblocks that are or may be in SLC mode.
    pub fn slc_area(&self, geometry: &Geometry) -> SlcArea {
        match self.slc_dynamic > 0.0 {
            true => SlcArea::dynamic(geometry),
            false => SlcArea::new(geometry, self.slc_superblocks(geometry)),
        }
    }

    /// Superblocks that may be in SLC mode at a time: with a dynamic cache at least one in each group of dies.
    pub fn slc_most(&self, geometry: &Geometry) -> u32 {
        if self.slc_dynamic == 0.0 {
            return self.slc_superblocks(geometry);
        }
        let most = (f64::from(geometry.superblocks()) * self.slc_dynamic) as u32;
        most.max(geometry.groups())
    }

    /// Superblocks that a dynamic cache holds open in each group of dies.
    pub(crate) fn slc_opens(&self) -> u32 {
        (self.slc_dynamic > 0.0).into()
    }

    /// Superblocks that folding may open besides those of garbage collection.
    pub(crate) fn fold_opens(&self) -> u32 {
        if self.slc_share > 0.0 {
            self.gc_policy.zones() as u32
        } else {
            0
        }
    }

    /// Bitmaps of deallocations.
    pub(crate) fn chunks(&self) -> u32 {
        self.lpns.div_ceil(CHUNK_LPNS)
    }

    /// The LPNs covered by a bitmap of deallocations.
    pub(crate) fn chunk(
        &self,
        chunk: u32,
    ) -> impl DoubleEndedIterator<Item = Lpn> + ExactSizeIterator + Clone + use<> {
        let first = chunk * CHUNK_LPNS;
        Lpn::range(Lpn(first), CHUNK_LPNS.min(self.lpns - first))
    }

    /// The internal LPN of a bitmap of deallocations.
    pub(crate) fn bitmap_lpn(&self, chunk: u32) -> Lpn {
        Lpn(self.lpns + chunk)
    }

    /// Returns true with hybrid mapping.
    pub fn is_hybrid(&self) -> bool {
        self.mapping == Granularity::Hybrid
    }

    /// Capacity of the block table's extension. The block that is being written in order may take
    /// one more for each of its pages.
    pub fn extension_entries(&self) -> u32 {
        ((f64::from(self.lpns) * self.extension) as u32).max(ENTRIES_MIN)
    }

    /// Bytes of DRAM of the mapping table. Hybrid: the block table, two bits a page (in place,
    /// remapped), the extension, and a cell for each bitmap of deallocations.
    pub fn mapping_bytes(&self) -> u64 {
        if !self.is_hybrid() {
            return CELL_BYTES * u64::from(self.lpns + self.chunks());
        }
        let blocks = self.lpns.div_ceil(self.block_pages);
        let entries = u64::from(self.extension_entries() + self.block_pages);
        CELL_BYTES * u64::from(blocks + self.chunks())
            + u64::from(self.lpns).div_ceil(4)
            + ENTRY_BYTES * entries
    }

    /// Superblocks that moving a victim's pages may open: one in each zone, and those for blocks
    /// that are put in order.
    pub(crate) fn gc_opens(&self) -> usize {
        self.gc_policy.zones() + if self.is_hybrid() { ORDERED } else { 0 }
    }

    /// Flash pages that logical pages may occupy, and usable pages of a superblock. Hybrid: a block
    /// occupies the places of all its pages, even of those written elsewhere, and every entry of
    /// the extension may occupy one more; the rest of a superblock in which no further block fits
    /// is lost.
    pub(crate) fn pages_needed(&self, geometry: &Geometry) -> (u64, u64) {
        let (pages, data) = (
            u64::from(self.lpns) + u64::from(self.internal_lpns()),
            u64::from(self.data_pages(geometry)),
        );
        if !self.is_hybrid() {
            let pads = u64::from(self.pads_most(geometry));
            return (pages, data.saturating_sub(pads).max(1));
        }

        // Rounded up to blocks, since a shorter last block takes the space of a whole one; plus one
        // block that is being rewritten elsewhere.
        let block = u64::from(self.block_pages);
        let pages = pages.next_multiple_of(block) + u64::from(self.extension_entries()) + block;
        (pages, data.saturating_sub(block - 1))
    }
}
