//! OrderMergeDedup: content is stored once, and addresses are mapped to it (Chen and Shen, FAST'16;
//! DEDUP in Copyless Copy).
//!
//! Works on any disk that reads, writes and flushes. It stores its own mappings, counts and
//! signatures, in order: counts before the mappings that need them, mappings after their data. It
//! does so in windows (`commit.rs`), so that several changes to one page of metadata are one write.
//!
//! Lowered counts are written when another count in their page goes up, or at close: after a cut
//! they are recomputed from the mappings. (So metadata cost less here than in a design that must
//! not read all mappings.)
//!
//! Invariants: a block that a mapping references, in memory or on the disk, is not free; reads
//! follow the mapping in memory. Unflushed state is partly in this process only and is lost when it
//! ends, like a disk's volatile cache on power loss. Absent: more addresses than blocks.

mod blocks;
mod commit;
mod format;
mod opening;

use crate::DedupError;
use crate::engine::{Engine, Own};
use crate::guard::Guard;
use crate::pages::{BATCH_PAGES, Page, runs, whole};
use crate::signature::Signature;
use crate::statistics::Statistics;
use crate::superblock::{self, NewDedup, Scheme};
use crate::window::Window;
use blocks::Blocks;
use format::{LOST, Layout, PAGE_MAPPINGS, UNMAPPED};
use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_media::geometry::PAGE_BYTES;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Options of an [`OrderMerge`]; none of them is stored.
#[derive(Clone, Copy, Debug)]
pub struct OrderMergeOptions {
    /// Pages written between commits; 0: commits on a flush, or when no block is free.
    pub window: u32,
    /// Compare contents before a block is shared; by default, if the hash is not trusted.
    pub compare: Option<bool>,
    #[doc(hidden)]
    pub without: Option<Guard>,
}

impl Default for OrderMergeOptions {
    fn default() -> Self {
        Self {
            window: 100,
            compare: None,
            without: None,
        }
    }
}

/// A disk that stores each content once.
pub type OrderMerge<D> = Engine<D, BlockMap>;

/// State of [`OrderMerge`] itself: mappings and reference counts.
pub struct BlockMap {
    layout: Layout,
    /// By address: block number plus 1, `UNMAPPED` or `LOST`.
    mapping: Vec<u32>,
    blocks: Blocks,
    /// Dirty pages of mappings.
    changed: BTreeSet<u32>,
    /// Blocks that mappings on the disk may reference, and mappings in memory no longer do; once
    /// per lost reference.
    replaced: Vec<u32>,
    counts_too_low: u64,
}

/// Storage decision for a page of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// Written to a free block.
    New,
    Block(u32),
    /// Same content as a page of the batch, by index.
    Same(usize),
}

impl<D: Disk> OrderMerge<D> {
    /// Opens a disk; a blank one is formatted first, and with `new.force` any.
    ///
    /// # Errors
    /// As of `open` and `create`.
    pub fn open_or_create(
        mut disk: D,
        new: &NewDedup,
        options: OrderMergeOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DedupError<D::Error>> {
        if !new.force && superblock::scheme_on(&mut disk)?.is_some() {
            return Self::open(disk, options);
        }
        Self::create(disk, new, options, progress)
    }

    /// Formats a disk as an empty one of this kind. `progress` receives pages checked and pages in
    /// total.
    ///
    /// # Errors
    /// The disk is not blank, or it is too small or too large.
    pub fn create(
        mut disk: D,
        new: &NewDedup,
        options: OrderMergeOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DedupError<D::Error>> {
        let superblock = superblock::new(Scheme::OrderMerge, new, disk.pages(), |pages| {
            let layout = Layout::fitting(pages, new.spare).ok_or_else(|| {
                format!(
                    "{pages} pages do not suffice for blocks, {} of them to spare, and records",
                    new.spare
                )
            })?;
            Ok((layout.logical, layout.blocks))
        })?;

        superblock::make(&mut disk, &superblock, new, options.without, progress)?;
        // A new disk has no mappings; that needs no note.
        Ok(Self {
            notes: Vec::new(),
            ..Self::open(disk, options)?
        })
    }

    /// Opens a disk. `notes` lists damage that was found.
    ///
    /// # Errors
    /// There is no such disk.
    pub fn open(mut disk: D, options: OrderMergeOptions) -> Result<Self, DedupError<D::Error>> {
        let (superblock, mut notes) =
            superblock::open(&mut disk, Scheme::OrderMerge, options.without)?;

        let layout = Layout::of(&superblock)?;
        let opened = opening::read(&mut disk, &superblock, layout, &mut notes);

        Ok(Self {
            disk,
            superblock,
            first_data_page: layout.first_data_page(),
            window: Window::new(options.window),
            statistics: Statistics::default(),
            compare: options.compare.unwrap_or(!superblock.hash.is_trusted()),
            without: options.without,
            notes,
            broken: false,
            own: BlockMap {
                layout,
                mapping: opened.mapping,
                blocks: opened.blocks,
                changed: BTreeSet::new(),
                replaced: Vec::new(),
                counts_too_low: opened.counts_too_low,
            },
        })
    }

    /// Blocks whose recorded count at open was below the number of mappings that reference them. No
    /// power cut leaves any.
    pub fn counts_too_low(&self) -> u64 {
        self.own.counts_too_low
    }

    /// Adds pages to the window, and ends it if it is full.
    fn took(&mut self, pages: usize) -> Result<(), DedupError<D::Error>> {
        if self.window.add(pages) {
            self.commit()
        } else {
            Ok(())
        }
    }

    /// Maps an address to a block, or unmaps it.
    fn map(&mut self, lba: u32, entry: u32) {
        let old = std::mem::replace(&mut self.own.mapping[lba as usize], entry);
        // The same content was written again: nothing changes.
        if old == entry {
            return;
        }
        if entry != UNMAPPED {
            self.own.blocks.hold(entry - 1);
        }
        // Until this is durable the mapping on the disk references the old block.
        if old != UNMAPPED && old != LOST {
            self.own.replaced.push(old - 1);
        }
        self.own.changed.insert(lba / PAGE_MAPPINGS);
    }

    /// Ensures that there are free blocks; returns how many of `pages` pages can be written now.
    fn room(&mut self, pages: usize) -> Result<usize, DedupError<D::Error>> {
        // Blocks replaced in this window are free only after its end: end it early.
        if (self.own.blocks.free() as usize) < pages {
            self.commit()?;
        }
        match self.own.blocks.free() as usize {
            0 => Err(DedupError::Full),
            free => Ok(pages.min(free)),
        }
    }

    /// Writes pages of one window. There must be enough free blocks.
    fn write_batch(&mut self, first: u32, pages: &[Page]) -> Result<(), DedupError<D::Error>> {
        let signatures = self.signatures(pages);

        // Planned before any write, so that duplicates within the batch are found too.
        let plans = self.plan(pages, &signatures);

        // 1. Data to free blocks. If that fails, they are still free.
        let new: Vec<usize> = (0..plans.len())
            .filter(|index| plans[*index] == Plan::New)
            .collect();
        let chosen = self.own.blocks.choose(new.len());

        // Consecutive pages in consecutive blocks are one write.
        let follows = |before: usize, this: usize| {
            new[before] + 1 == new[this] && chosen[before] + 1 == chosen[this]
        };
        for run in runs(new.len(), follows) {
            let (from, to) = (new[run.start], new[run.end - 1] + 1);
            self.disk.write(
                self.place(chosen[run.start]),
                pages[from..to].as_flattened(),
            )?;
            self.statistics.data_pages += run.len() as u64;
        }

        // 2. Mappings and counts, in memory; on the disk at the end of the window.
        let mut homes = vec![0; plans.len()];
        new.iter()
            .zip(&chosen)
            .for_each(|(index, block)| homes[*index] = *block);
        for (index, plan) in plans.iter().enumerate() {
            let block = match plan {
                Plan::New => homes[index],
                Plan::Block(block) => *block,
                Plan::Same(before) => homes[*before],
            };
            self.map(first + index as u32, block + 1);
            // Only now: a signature leads to a block that a mapping references.
            if *plan == Plan::New {
                self.own.blocks.learn(block, signatures[index]);
            }
        }
        self.statistics.host_pages += pages.len() as u64;
        self.statistics.duplicates += (pages.len() - new.len()) as u64;
        Ok(())
    }

    /// Decides how each page of a batch is stored.
    fn plan(&mut self, pages: &[Page], signatures: &[Signature]) -> Vec<Plan> {
        let compare = self.compare;
        let mut in_batch: FxHashMap<Signature, usize> = FxHashMap::default();
        let mut plans = Vec::with_capacity(pages.len());
        for (index, (page, signature)) in pages.iter().zip(signatures).enumerate() {
            // Pages of this batch come first: they are not on the disk yet.
            let plan = match (in_batch.get(signature), self.own.blocks.find(signature)) {
                (Some(before), _) if !compare || pages[*before] == *page => Plan::Same(*before),
                (None, Some(block)) if !compare || self.holds(block, page) => Plan::Block(block),
                _ => Plan::New,
            };

            if plan == Plan::New {
                in_batch.insert(*signature, index);
            }
            plans.push(plan);
        }

        plans
    }

    /// The mappings of addresses; an error if one is lost.
    fn entries(&self, lbas: Range<u32>) -> Result<Vec<u32>, DedupError<D::Error>> {
        let entries = &self.own.mapping[lbas.start as usize..lbas.end as usize];
        match entries.iter().position(|entry| *entry == LOST) {
            None => Ok(entries.to_vec()),
            Some(index) => Err(DedupError::Damaged(format!(
                "page {} cannot be read: its mapping is damaged; it can be written",
                lbas.start + index as u32
            ))),
        }
    }
}

impl<D: Disk> Own<D> for BlockMap {
    fn settle(engine: &mut OrderMerge<D>) -> Result<(), DedupError<D::Error>> {
        engine.settle()
    }
}

impl<D: Disk> Disk for OrderMerge<D> {
    type Error = DedupError<D::Error>;

    fn pages(&self) -> u64 {
        self.superblock.logical.into()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let lbas = self.lbas(page, whole(into.len())?)?;
        let entries = self.entries(lbas)?;
        let pages = into.as_chunks_mut::<PAGE_BYTES>().0;

        // Blocks of adjacent addresses may lie anywhere; consecutive ones are one read.
        let follows = |before: usize, this: usize| match (entries[before], entries[this]) {
            (UNMAPPED, next) => next == UNMAPPED,
            (entry, next) => entry + 1 == next,
        };
        for run in runs(entries.len(), follows) {
            let into = pages[run.clone()].as_flattened_mut();
            match entries[run.start] {
                UNMAPPED => into.fill(0),
                entry => self
                    .disk
                    .read(self.first_data_page + u64::from(entry - 1), into)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        let mut lba = self.lbas(page, whole(data.len())?)?.start;
        let mut rest = data.as_chunks::<PAGE_BYTES>().0;
        while !rest.is_empty() {
            let fitting = self.room(self.window.fitting(rest.len(), BATCH_PAGES))?;
            let (now, later) = rest.split_at(fitting);
            self.write_batch(lba, now)?;
            self.took(now.len())?;
            (lba, rest) = (lba + now.len() as u32, later);
        }
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        let lbas = self.lbas(page, pages)?;
        lbas.for_each(|lba| self.map(lba, UNMAPPED));
        // A trim counts as one page of the window, however long: it changes mappings and writes no
        // data.
        self.took(1)
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        self.usable()?;
        self.commit()
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        let target = self.lbas(remap.target, remap.pages.into())?;
        let source = self.lbas(remap.source, remap.pages.into())?;
        if target.is_empty() {
            return Ok(());
        }
        // A page of mappings is old or new as a whole.
        let home = |lba: u32| lba / PAGE_MAPPINGS;
        let mut homes = vec![home(target.start), home(target.end - 1)];
        if remap.relocate {
            homes.extend([home(source.start), home(source.end - 1)]);
        }
        if remap.atomic && homes.iter().any(|page| *page != homes[0]) {
            return Err(DedupError::NotAtomic);
        }

        // All entries are read first: the ranges may overlap.
        let entries = self.entries(source.clone())?;
        target
            .clone()
            .zip(entries)
            .for_each(|(lba, entry)| self.map(lba, entry));
        if remap.relocate {
            source
                // Where the ranges overlap, the target's new mapping stays.
                .filter(|lba| !target.contains(lba))
                .for_each(|lba| self.map(lba, UNMAPPED));
        }
        self.took(remap.pages as usize)
    }
}
