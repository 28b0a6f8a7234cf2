//! Choice of the versions that survive a power cut: per block, any since its last durable one.
//!
//! A version that is on the device, but that no sync has made durable, may be lost like any other.
//! Then the base of its sectors survives: the previous content of the device.
//!
//! Invariants: the seed determines everything; data replaced by the newest durable version never
//! comes back, since it is neither here nor on the device. Absent: writing the survivors to the
//! device (`access`).

use super::page::{CachedPage, WrittenBack, copy_sector};
use super::{CachedVersion, SECTOR_BYTES, Sectors, VolatileCache};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
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

/// How many of its newest versions each block loses. No single distribution finds all faults:
/// sometimes one block among many is old, sometimes a whole command is missing while a later one is
/// present.
enum Draw {
    /// Every version: blocks are as the device has them.
    All,
    /// Some versions in these pages, none in others.
    Few(BTreeSet<Lpn>),
    /// The versions of these commands, unless a later command's version is kept.
    Commands(BTreeSet<u64>),
    /// Some versions, in this share of the blocks.
    Share(f64),
}

impl Draw {
    fn new(cache: &VolatileCache, random: &mut Xoshiro256PlusPlus) -> Self {
        match random.random_range(0..6u32) {
            0 => Self::All,
            1 => {
                let pages: Vec<Lpn> = cache.pages.keys().copied().collect();
                let count = random.random_range(1..=3usize);

                let chosen = (0..count).filter(|_| !pages.is_empty());
                Self::Few(
                    chosen
                        .map(|_| pages[random.random_range(0..pages.len())])
                        .collect(),
                )
            }
            2 | 3 => {
                let share = random.random::<f64>();

                let commands: BTreeSet<u64> = cache
                    .pages
                    .values()
                    .flat_map(|page| &page.versions)
                    .map(|version| version.command)
                    .collect();

                Self::Commands(
                    commands
                        .into_iter()
                        .filter(|_| random.random_bool(share))
                        .collect(),
                )
            }
            _ => Self::Share(random.random()),
        }
    }

    /// Number of the newest of a block's versions (oldest first) that are lost.
    fn lost(
        &self,
        lpn: Lpn,
        versions: &[&CachedVersion],
        random: &mut Xoshiro256PlusPlus,
    ) -> usize {
        match self {
            Self::All => versions.len(),
            Self::Few(pages) if pages.contains(&lpn) => random.random_range(1..=versions.len()),
            Self::Few(_) => 0,
            // An unbroken run of the newest ones: a version missing under a newer one is not
            // visible.
            Self::Commands(gone) => versions
                .iter()
                .rev()
                .take_while(|version| gone.contains(&version.command))
                .count(),
            Self::Share(share) if random.random_bool(*share) => {
                random.random_range(1..=versions.len())
            }
            Self::Share(_) => 0,
        }
    }
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
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draw = Draw::new(self, &mut random);
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

                let gone = draw.lost(lpn, &of_block, &mut random);
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
