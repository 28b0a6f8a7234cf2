//! Choice of the versions that survive a power cut: per block, any since its last durable one.
//!
//! A version that is on the device, but that no sync has made durable, may be lost like any other.
//! Then the base of its sectors survives: the previous content of the device.
//!
//! Invariants: the seed determines everything; data replaced by the newest durable version never
//! comes back, since it is neither here nor on the device. Absent: how losses are drawn (`draw`), and
//! writing the survivors to the device (`access`).

use super::draw::LossDraw;
use super::page::{CachedPage, WrittenBack, copy_sector};
use super::{CachedVersion, SECTOR_BYTES, Sectors, VolatileCache};
use remap_ssd_media::Lpn;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks of one page that do not keep their newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// Number of the page on the device.
    pub lpn: Lpn,
    /// Blocks of it that lose something.
    pub blocks: u32,
    /// Versions lost by all of them together.
    pub versions: u32,
}

/// Effect of a power cut on the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Seed of all random choices.
    pub seed: u64,
    /// Blocks that had versions in the cache.
    pub blocks_cached: u64,
    /// Of them, blocks with a version that was on the device and not durable: a flush, or a write
    /// with FUA, may have been waiting for it.
    pub blocks_awaiting_sync: u64,
    /// Blocks that lost their newest version.
    pub blocks_lost: u64,
    /// Of them, blocks that lost a version that was on the device.
    pub blocks_lost_awaiting_sync: u64,
    /// The lost blocks by page, in order.
    pub lost: Vec<LostBlocks>,
}

/// Surviving part of a page: sectors to change on the device, with their content.
pub(super) struct Survivor {
    pub lpn: Lpn,
    pub sectors: Sectors,
    pub page: Box<[u8; PAGE_BYTES]>,
}

impl VolatileCache {
    /// Empties the cache as a power cut does. `block_bytes` returns the size of a logical block of
    /// a page. The survivors come in no meaningful order.
    pub(super) fn cut(
        &mut self,
        seed: u64,
        block_bytes: impl Fn(Lpn) -> usize,
    ) -> (Vec<Survivor>, CutReport) {
        let places: Vec<Lpn> = self.pages.keys().copied().collect();
        let versions = self.pages.values().flat_map(|page| &page.versions);
        let commands: BTreeSet<u64> = versions.map(|version| version.command).collect();
        let mut draw = LossDraw::new(seed, &places, &commands);
        let mut report = CutReport {
            seed,
            ..CutReport::default()
        };

        // Empty from here on: the survivors go to the device.
        let pages = self.empty();

        let survivors = pages.into_iter().filter_map(|(lpn, page)| {
            let mut survivor = Survivor {
                lpn,
                sectors: Sectors::NONE,
                page: Box::new([0; PAGE_BYTES]),
            };
            let mut lost = LostBlocks {
                lpn,
                blocks: 0,
                versions: 0,
            };

            let block_sectors = block_bytes(lpn) / SECTOR_BYTES;
            for first in (0..PAGE_BYTES / SECTOR_BYTES).step_by(block_sectors) {
                // Logical blocks are written whole, so the first sector represents all.
                let of_block: Vec<&CachedVersion> = page
                    .versions
                    .iter()
                    .filter(|version| version.sectors.has(first))
                    .collect();
                if of_block.is_empty() {
                    continue;
                }

                let commands: Vec<u64> = of_block.iter().map(|version| version.command).collect();
                let gone = draw.lost(lpn, &commands);
                let kept = of_block.len() - gone;
                report.count(&of_block, kept);
                lost.blocks += u32::from(gone > 0);
                lost.versions += gone as u32;

                let kept = kept.checked_sub(1).map(|index| of_block[index]);
                survivor.keep(first..first + block_sectors, kept, &page);
            }

            report.lost.extend((lost.blocks > 0).then_some(lost));
            (survivor.sectors != Sectors::NONE).then_some(survivor)
        });
        let survivors = survivors.collect();
        (survivors, report)
    }

    /// Takes all pages out of it.
    fn empty(&mut self) -> BTreeMap<Lpn, CachedPage> {
        self.ages.clear();
        self.unwritten.clear();
        self.awaiting.clear();
        self.used_bytes = 0;
        std::mem::take(&mut self.pages)
    }
}

impl CutReport {
    /// Counts a block with versions, oldest first, of which it keeps the first `kept`.
    fn count(&mut self, versions: &[&CachedVersion], kept: usize) {
        let lost = &versions[kept..];
        // Not only the newest: a version that a flush waits for may be hidden by one only cached.
        let awaits_sync = |versions: &[&CachedVersion]| {
            let mut versions = versions.iter();
            versions.any(|version| version.written_back != WrittenBack::No)
        };
        self.blocks_cached += 1;
        self.blocks_awaiting_sync += u64::from(awaits_sync(versions));
        self.blocks_lost += u64::from(!lost.is_empty());
        self.blocks_lost_awaiting_sync += u64::from(awaits_sync(lost));
    }
}

impl Survivor {
    /// A block keeps a version. If none, it gets the device's content from before the first.
    fn keep(&mut self, block: Range<usize>, kept: Option<&CachedVersion>, page: &CachedPage) {
        for sector in block.clone() {
            match (kept, page.base(sector)) {
                (Some(version), _) => version.show(sector, &mut self.page),
                (None, Some(base)) => copy_sector(sector, base, &mut self.page),
                // The device still has it.
                (None, None) => return,
            }
        }
        let bytes = block.start * SECTOR_BYTES..block.end * SECTOR_BYTES;
        let block = Sectors::of(bytes.start, bytes.len());
        self.sectors = self.sectors.with(block);
    }
}
