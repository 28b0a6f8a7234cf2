//! OrderMergeDedup: content is stored once, and addresses are mapped to it (Chen and Shen, FAST'16;
//! DEDUP in Copyless Copy).
//!
//! For any disk: nothing is asked of it but reads, writes and flushes. Mappings, counts and
//! signatures are its own, and have to be written: counts before the mappings that need them,
//! mappings after their data. It does so in windows (`commit.rs`), so that several changes of one
//! page of metadata are one write.
//!
//! Counts that go down are written with their page when another one of it goes up, or when the disk
//! is closed: the mappings tell after a cut. (So metadata costs less here than in a design that
//! must not read all mappings.)
//!
//! Invariants: a block that a mapping names, in memory or on the disk, is not free; what is read is
//! what the mapping in memory names. What has not been flushed is in this process alone, in part:
//! it ends with it, as the cache of a disk ends with its power. Absent: more addresses than blocks.

mod blocks;
mod commit;
mod format;
mod opening;

use crate::guard::Guard;
use crate::pages::{BATCH_PAGES, Page, inside, runs, whole};
use crate::signature::Signature;
use crate::statistics::Statistics;
use crate::superblock::{self, NewDedup, Scheme, Superblock};
use crate::window::Window;
use crate::{DedupError, Hash};
use blocks::Blocks;
use format::{LOST, Layout, PAGE_MAPPINGS, UNMAPPED};
use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_media::geometry::PAGE_BYTES;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// How an [`OrderMerge`] works; nothing of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct OrderMergeOptions {
    /// Pages written after which everything is made durable; 0: when it is flushed, or out of free
    /// blocks.
    pub window: u32,
    /// Compare contents before a block is shared; if not given, where the hash is not trusted.
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
pub struct OrderMerge<D> {
    disk: D,
    superblock: Superblock,
    layout: Layout,
    /// By address: the block's number and 1, `UNMAPPED` or `LOST`.
    mapping: Vec<u32>,
    blocks: Blocks,
    /// Pages of mappings that have changed.
    changed: BTreeSet<u32>,
    /// Blocks that mappings on the disk may name, and those in memory do not any more; as often as
    /// that is so.
    replaced: Vec<u32>,
    window: Window,
    options: OrderMergeOptions,
    statistics: Statistics,
    notes: Vec<String>,
    counts_too_low: u64,
    broken: bool,
}

/// What becomes of a page of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// It is written to a free block.
    New,
    Block(u32),
    /// A page of the batch has it, by its index.
    Same(usize),
}

impl<D: Disk> OrderMerge<D> {
    /// Makes a disk into an empty one of this kind. `progress` is told how many of how many pages
    /// have been looked at.
    ///
    /// # Errors
    /// Something is on the disk already, or it is too small or too large.
    pub fn create(
        mut disk: D,
        new: &NewDedup,
        options: OrderMergeOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DedupError<D::Error>> {
        // Everything that may not fit is known before the first page is written.
        let pages = superblock::pages_used(new, disk.pages())?;

        let layout = Layout::fitting(pages, new.spare).ok_or_else(|| {
            DedupError::BadShape(format!(
                "{pages} pages do not suffice for blocks, {} of them to spare, and records",
                new.spare
            ))
        })?;

        let (uuid, key) = superblock::identity(new);
        let superblock = Superblock {
            scheme: Scheme::OrderMerge,
            hash: new.hash,
            uuid,
            key,
            pages,
            logical: layout.logical,
            extent: layout.blocks,
        };

        superblock::make(&mut disk, &superblock, new, options.without, progress)?;
        // That a new one knows nothing needs no note.
        Ok(Self {
            notes: Vec::new(),
            ..Self::open(disk, options)?
        })
    }

    /// Opens one. What was found damaged is said by `notes`.
    ///
    /// # Errors
    /// There is none.
    pub fn open(mut disk: D, options: OrderMergeOptions) -> Result<Self, DedupError<D::Error>> {
        let (superblock, mut notes) =
            superblock::open(&mut disk, Scheme::OrderMerge, options.without)?;

        let layout = Layout::of(&superblock)?;
        let opened = opening::read(&mut disk, &superblock, layout, &mut notes);

        Ok(Self {
            disk,
            superblock,
            layout,
            mapping: opened.mapping,
            blocks: opened.blocks,
            changed: BTreeSet::new(),
            replaced: Vec::new(),
            window: Window::new(options.window),
            options,
            statistics: Statistics::default(),
            notes,
            counts_too_low: opened.counts_too_low,
            broken: false,
        })
    }

    /// Makes everything durable and gives the disk back.
    ///
    /// # Errors
    /// The disk. What was flushed before is there.
    pub fn close(mut self) -> Result<D, DedupError<D::Error>> {
        self.usable()?;
        self.settle()?;
        Ok(self.disk)
    }

    /// Gives the disk back as it is, as the end of the process would.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The disk below, to look at.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk below, for what does not change its pages.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// What was found when it was opened, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Hash function of the signatures.
    pub fn hash(&self) -> Hash {
        self.superblock.hash
    }

    /// Counters since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Blocks that no mapping names.
    pub fn blocks_free(&self) -> u32 {
        self.blocks.free()
    }

    /// Blocks whose record had a count below the number of mappings that name them, when it was
    /// opened: no power cut leaves any.
    pub fn counts_too_low(&self) -> u64 {
        self.counts_too_low
    }

    fn keeps(&self, guard: Guard) -> bool {
        self.options.without != Some(guard)
    }

    fn usable(&self) -> Result<(), DedupError<D::Error>> {
        if self.broken {
            Err(DedupError::Broken)
        } else {
            Ok(())
        }
    }

    /// Where a block is on the disk below.
    fn place(&self, block: u32) -> u64 {
        self.layout.first_data_page() + u64::from(block)
    }

    fn lbas(&self, page: u64, pages: u64) -> Result<Range<u32>, DedupError<D::Error>> {
        self.usable()?;
        inside(page, pages, self.layout.logical.into())?;
        Ok(page as u32..(page + pages) as u32)
    }

    fn flush_below(&mut self) -> Result<(), DedupError<D::Error>> {
        self.statistics.flushes += 1;
        // After a failure nobody knows what is durable, and a later success would not say.
        // A kernel reports a failed write-back to one flush and forgets it.
        self.disk.flush().map_err(|error| {
            self.broken = true;
            error.into()
        })
    }

    /// Counts pages of the window, and ends it if it is full.
    fn took(&mut self, pages: usize) -> Result<(), DedupError<D::Error>> {
        if self.window.add(pages) {
            self.commit()
        } else {
            Ok(())
        }
    }

    /// Maps an address to a block, or to none.
    fn map(&mut self, lba: u32, entry: u32) {
        let old = std::mem::replace(&mut self.mapping[lba as usize], entry);
        // The same content was written again: nothing changes, and nothing is to be made durable.
        if old == entry {
            return;
        }
        if entry != UNMAPPED {
            self.blocks.hold(entry - 1);
        }
        // Until this is durable the disk names the old one.
        if old != UNMAPPED && old != LOST {
            self.replaced.push(old - 1);
        }
        self.changed.insert(lba / PAGE_MAPPINGS);
    }

    /// Sees that there are free blocks, and says how many of so many pages can be written now.
    fn room(&mut self, pages: usize) -> Result<usize, DedupError<D::Error>> {
        // Blocks that were replaced in this window are free only after its end: end it early.
        if (self.blocks.free() as usize) < pages {
            self.commit()?;
        }
        match self.blocks.free() as usize {
            0 => Err(DedupError::Full),
            free => Ok(pages.min(free)),
        }
    }

    /// Writes pages of one window, for which there are free blocks.
    fn write_batch(&mut self, first: u32, pages: &[Page]) -> Result<(), DedupError<D::Error>> {
        let key = &self.superblock.key;
        let signatures: Vec<Signature> = pages
            .iter()
            .map(|page| self.superblock.hash.signature(key, page))
            .collect();

        // Planned before anything is written, so that duplicates within the batch are found too.
        let plans = self.plan(pages, &signatures);

        // 1. Data to free blocks. If that fails, they are still free.
        let new: Vec<usize> = (0..plans.len())
            .filter(|index| plans[*index] == Plan::New)
            .collect();
        let chosen = self.blocks.choose(new.len());

        // Blocks that follow one another and pages that do are one write.
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
            // Only now: a signature leads to a block that a mapping names.
            if *plan == Plan::New {
                self.blocks.learn(block, signatures[index]);
            }
        }
        self.statistics.host_pages += pages.len() as u64;
        self.statistics.duplicates += (pages.len() - new.len()) as u64;
        Ok(())
    }

    /// What becomes of each page of a batch.
    fn plan(&mut self, pages: &[Page], signatures: &[Signature]) -> Vec<Plan> {
        let compare = self
            .options
            .compare
            .unwrap_or(!self.superblock.hash.is_trusted());

        let mut in_batch: FxHashMap<Signature, usize> = FxHashMap::default();
        let mut plans = Vec::with_capacity(pages.len());
        for (index, (page, signature)) in pages.iter().zip(signatures).enumerate() {
            // Pages of this batch come first: a block that the batch will need must not be looked
            // for on the disk.
            let plan = match (in_batch.get(signature), self.blocks.find(signature)) {
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

    /// Whether a block holds this.
    fn holds(&mut self, block: u32, page: &Page) -> bool {
        let mut found = [0; PAGE_BYTES];
        self.statistics.compared += 1;
        let place = self.place(block);
        // A block that cannot be read is shared with nobody: the new page is written, and is whole.
        let equal = self.disk.read(place, &mut found).is_ok() && found == *page;
        self.statistics.mismatches += u64::from(!equal);
        equal
    }

    /// The mappings of addresses, if none is lost.
    fn entries(&self, lbas: Range<u32>) -> Result<Vec<u32>, DedupError<D::Error>> {
        let entries = &self.mapping[lbas.start as usize..lbas.end as usize];
        match entries.iter().position(|entry| *entry == LOST) {
            None => Ok(entries.to_vec()),
            Some(index) => Err(DedupError::Damaged(format!(
                "page {} cannot be read: its mapping is damaged; it can be written",
                lbas.start + index as u32
            ))),
        }
    }
}

impl<D: Disk> Disk for OrderMerge<D> {
    type Error = DedupError<D::Error>;

    fn pages(&self) -> u64 {
        self.layout.logical.into()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let lbas = self.lbas(page, whole(into.len())?)?;
        let entries = self.entries(lbas)?;
        let pages = into.as_chunks_mut::<PAGE_BYTES>().0;

        // Blocks of neighbouring addresses may lie anywhere; those that follow one another are one
        // read.
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
                    .read(self.layout.first_data_page() + u64::from(entry - 1), into)?,
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
        // One page of the window, however long it is: it changes mappings and writes no data.
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

        // All entries are taken first: the ranges may overlap.
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
