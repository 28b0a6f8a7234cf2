//! Which versions survive a power cut: for each block, on its own, any since its last durable one.
//!
//! Invariants: everything follows from the seed; what the newest durable version has replaced never
//! comes back, since it is neither here nor on the device. Absent: writing the survivors to the
//! device (`access`).

use super::{CachedVersion, SECTOR_BYTES, Sectors, VolatileCache};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_media::Lpn;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of one page that do not keep their newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// Number of the page on the device.
    pub lpn: Lpn,
    /// Blocks of it that lose something.
    pub blocks: u32,
    /// Versions that they lose, together.
    pub versions: u32,
}

/// What a power cut did to the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Everything was drawn from it.
    pub seed: u64,
    /// Blocks that had versions in the cache.
    pub blocks_cached: u64,
    /// Blocks that do not have their newest version.
    pub blocks_lost: u64,
    /// They by page, in order.
    pub lost: Vec<LostBlocks>,
}

/// How many of its newest versions each block loses. No single distribution finds all faults:
/// sometimes a block among many is old, sometimes a whole command is missing while a later one is
/// there.
enum Draw {
    /// Every version: blocks are as the device has them.
    All,
    /// Some versions in these pages, none in others.
    Few(BTreeSet<Lpn>),
    /// What these commands wrote, where no later command's version is kept.
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
                    .flatten()
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

    /// Of a block's versions, oldest first, how many of the newest are lost.
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
            // An unbroken run of its newest ones: a version that is missing below a newer one does
            // not show.
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

/// What survives of a page: sectors that change on the device, with their content.
pub(super) struct Survivor {
    pub lpn: Lpn,
    pub sectors: Sectors,
    pub page: Box<[u8; PAGE_BYTES]>,
}

impl VolatileCache {
    /// Empties the cache as a power cut does. `block_bytes` is the size of a logical block, by
    /// page. The survivors come in no meaningful order.
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

        let pages: BTreeMap<Lpn, Vec<CachedVersion>> = std::mem::take(&mut self.pages);
        // Empty from here on: what survives goes to the device.
        self.ages.clear();
        self.used_bytes = 0;

        let survivors = pages.into_iter().filter_map(|(lpn, versions)| {
            let block_sectors = block_bytes(lpn) / SECTOR_BYTES;
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

            for first in (0..PAGE_BYTES / SECTOR_BYTES).step_by(block_sectors) {
                // Logical blocks are written whole, so that their first sector speaks for all.
                let of_block: Vec<&CachedVersion> = versions
                    .iter()
                    .filter(|version| version.sectors.has(first))
                    .collect();
                if of_block.is_empty() {
                    continue;
                }

                let gone = draw.lost(lpn, &of_block, &mut random);
                report.blocks_cached += 1;
                lost.blocks += u32::from(gone > 0);
                lost.versions += gone as u32;

                // With no version kept, the block is as the device has it.
                let kept = of_block.len() - gone;
                if let Some(version) = kept.checked_sub(1).map(|index| of_block[index]) {
                    for sector in first..first + block_sectors {
                        version.show(sector, &mut survivor.page);
                    }
                    let bytes = block_sectors * SECTOR_BYTES;
                    let block = Sectors::of(first * SECTOR_BYTES, bytes);
                    survivor.sectors = survivor.sectors.with(block);
                }
            }

            if lost.blocks > 0 {
                report.blocks_lost += u64::from(lost.blocks);
                report.lost.push(lost);
            }
            (survivor.sectors != Sectors::NONE).then_some(survivor)
        });
        let survivors = survivors.collect();
        (survivors, report)
    }
}
