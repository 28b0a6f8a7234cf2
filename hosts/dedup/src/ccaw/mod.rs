//! CCAW: writes of content that the disk already holds become copies (Copyless Copy §III-B).
//!
//! Addresses do not change, so losing the table loses duplicates but no data: only the table is
//! stored, and only the window's flush is waited for. A copy costs nothing on a device that remaps.
//! On a device that does not, or has no room for another remap, the device copies the page in full,
//! with the same result.
//!
//! Order of a change: 1. valid segments that cover the target are marked invalid, durably
//! (`segments.rs`)  2. the target leaves the table  3. data or copy  4. the target enters. In
//! between the target is no source. If 3 fails it stays out, since its content is unknown.
//!
//! Invariants: the signature in the table for an address matches its content; no source of a
//! batch's copies is a target in that batch. Absent: mappings, counts, and recovery of anything but
//! the table.

mod format;
mod segments;
mod table;

use crate::DedupError;
use crate::engine::{Engine, Own};
use crate::guard::Guard;
use crate::pages::{BATCH_PAGES, Page, runs, whole};
use crate::signature::Signature;
use crate::statistics::Statistics;
use crate::superblock::{self, NewDedup, Scheme};
use crate::window::Window;
use format::Layout;
use remap_ssd_device::{Disk, DiskRemap};
use remap_ssd_media::geometry::PAGE_BYTES;
use rustc_hash::FxHashMap;
use segments::Segments;
use std::ops::Range;
use table::{Source, Table};

/// Options of a [`Ccaw`]; none of them is stored.
#[derive(Clone, Copy, Debug)]
pub struct CcawOptions {
    /// Pages written between flushes; 0: flushes only on request.
    pub window: u32,
    /// Compare contents before a copy; by default, if the hash is not trusted.
    pub compare: Option<bool>,
    /// Maximum entries of the table in memory, about 80 bytes each.
    pub entries_max: u32,
    /// Maximum addresses that share a page. A device whose counter is full copies the page, which
    /// is slower than a write; so at this limit the page is written. A 4-bit counter counts to 15;
    /// 255 is no limit.
    pub shared_max: u8,
    /// Changes to a segment before it is written and marked valid again; by default, its number of
    /// addresses.
    pub commit_after: Option<u32>,
    #[doc(hidden)]
    pub without: Option<Guard>,
}

impl Default for CcawOptions {
    fn default() -> Self {
        Self {
            window: 100,
            compare: None,
            entries_max: u32::MAX,
            shared_max: 15,
            commit_after: None,
            without: None,
        }
    }
}

/// A disk that copies what it has instead of writing it again.
pub type Ccaw<D> = Engine<D, CopyTable>;

/// State of [`Ccaw`] itself: the signature table, in memory and on the disk.
pub struct CopyTable {
    layout: Layout,
    table: Table,
    segments: Segments,
    options: CcawOptions,
}

/// Storage decision for a page of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Write,
    /// Copied from an address; `shared` counts the addresses that share its page after the copy.
    Copy(Source),
}

impl Plan {
    /// Number of addresses that share the page afterwards.
    fn shared(self) -> u8 {
        match self {
            Self::Write => 1,
            Self::Copy(source) => source.shared,
        }
    }
}

impl<D: Disk> Ccaw<D> {
    /// Opens a disk; a blank one is formatted first, and with `new.force` any.
    ///
    /// # Errors
    /// As of `open` and `create`.
    pub fn open_or_create(
        mut disk: D,
        new: &NewDedup,
        options: CcawOptions,
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
        options: CcawOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DedupError<D::Error>> {
        let superblock = superblock::new(Scheme::Ccaw, new, disk.pages(), |pages| {
            let layout = Layout::fitting(pages, new.segment_pages).ok_or_else(|| {
                format!(
                    "{pages} pages do not suffice for a table in segments of {}",
                    new.segment_pages
                )
            })?;
            Ok((layout.logical, new.segment_pages))
        })?;

        superblock::make(&mut disk, &superblock, new, options.without, progress)?;
        // A new disk has an empty table; that needs no note.
        Ok(Self {
            notes: Vec::new(),
            ..Self::open(disk, options)?
        })
    }

    /// Opens a disk. `notes` lists damage that was found; it costs duplicates, but no data.
    ///
    /// # Errors
    /// There is no such disk.
    pub fn open(mut disk: D, options: CcawOptions) -> Result<Self, DedupError<D::Error>> {
        let (superblock, mut notes) = superblock::open(&mut disk, Scheme::Ccaw, options.without)?;

        // A valid superblock with impossible sizes belongs to other software.
        let layout = Layout::of(&superblock)?;

        let mut table = Table::new(options.entries_max);
        let segments = Segments::open(
            &mut disk,
            superblock,
            layout,
            &mut table,
            &mut notes,
            options.without,
        )?;

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
            own: CopyTable {
                layout,
                table,
                segments,
                options,
            },
        })
    }

    /// Prepares a change of addresses: removes them from the table, in memory and on the disk.
    fn change(&mut self, lbas: &Range<u32>) -> Result<(), DedupError<D::Error>> {
        // 1. "invalid"  2. flush. Cut before the end of 2: nothing has changed yet.
        let valid = self.own.segments.valid(lbas);
        if !valid.is_empty() {
            self.own
                .segments
                .invalidate(&mut self.disk, &valid, &mut self.statistics)?;
            if self.keeps(Guard::FlushInvalid) {
                self.flush_below()?;
            }
            self.own.segments.invalidated(&valid);
            self.statistics.segments_invalidated += valid.len() as u64;
        }

        // 3. The targets are no longer sources.
        self.own.segments.change(lbas);
        if self.keeps(Guard::TargetLeaves) {
            lbas.clone().for_each(|lba| self.own.table.leave(lba));
        }
        Ok(())
    }

    /// Writes pages of one window.
    fn write_batch(&mut self, first: u32, pages: &[Page]) -> Result<(), DedupError<D::Error>> {
        let lbas = first..first + pages.len() as u32;
        self.change(&lbas)?;

        // Each signature is computed once, for the lookup and for the table.
        let signatures = self.signatures(pages);
        let plans = self.plan(first, pages, &signatures);

        // 4. New content is written first: copies within the batch need it.
        let written: Vec<usize> = (0..plans.len())
            .filter(|index| plans[*index] == Plan::Write)
            .collect();
        self.write_pages(first, pages, &written)?;
        written.iter().for_each(|index| {
            self.own
                .table
                .enter(first + *index as u32, signatures[*index], 1)
        });

        // 5. The others are copied; only then are they sources.
        self.copy_pages(first, pages, &plans)?;
        let copied = (0..plans.len()).filter(|index| plans[*index] != Plan::Write);
        copied.for_each(|index| {
            self.own.table.enter(
                first + index as u32,
                signatures[index],
                plans[index].shared(),
            )
        });

        // Counted only when the whole batch succeeded.
        self.statistics.host_pages += pages.len() as u64;
        self.statistics.duplicates += (pages.len() - written.len()) as u64;
        // A segment is written again only after many changes: each commit costs a flush, and the
        // next change invalidates the segment again.
        let each = self
            .own
            .options
            .commit_after
            .unwrap_or(self.own.layout.segment_lbas());
        let due = self.own.segments.due(&lbas, each.max(1));
        if due.is_empty() {
            Ok(())
        } else {
            self.commit(&due)
        }
    }

    /// Decides how each page of a batch is stored.
    fn plan(&mut self, first: u32, pages: &[Page], signatures: &[Signature]) -> Vec<Plan> {
        let compare = self.compare;

        // One owner is the source itself, so a copy needs room for one more.
        let shared_max = if self.own.options.shared_max == u8::MAX {
            u8::MAX
        } else {
            self.own.options.shared_max.saturating_sub(1)
        };
        let mut in_batch: FxHashMap<Signature, (Source, Option<usize>)> = FxHashMap::default();
        let mut plans = Vec::with_capacity(pages.len());
        for (index, (page, signature)) in pages.iter().zip(signatures).enumerate() {
            // Sources in this batch come first: their counts are exact.
            let known = in_batch.get(signature).copied();
            let known = known.or_else(|| Some((self.own.table.find(signature)?, None)));
            let known = known.filter(|(source, _)| source.shared <= shared_max);

            // A hash with known collisions is not decisive: the bytes are compared.
            let equal = |disk: &mut Self, source: Source, before: Option<usize>| match before {
                _ if !compare => true,
                Some(before) => pages[before] == *page,
                None => disk.holds(source.lba, page),
            };

            let (plan, written) = match known {
                Some((source, before)) if equal(self, source, before) => (
                    Plan::Copy(Source {
                        shared: source.shared.saturating_add(1),
                        ..source
                    }),
                    before,
                ),
                _ => (Plan::Write, Some(index)),
            };
            // A copied page is no source within its batch: all copies go to the disk as one list,
            // after the writes.
            let lba = if let Plan::Copy(source) = plan {
                source.lba
            } else {
                first + index as u32
            };

            // The newest page of a batch with this signature is the source from here on: its
            // counter is fresh.
            in_batch.insert(
                *signature,
                (
                    Source {
                        lba,
                        shared: plan.shared(),
                    },
                    written,
                ),
            );
            plans.push(plan);
        }
        plans
    }

    fn write_pages(
        &mut self,
        first: u32,
        pages: &[Page],
        indices: &[usize],
    ) -> Result<(), DedupError<D::Error>> {
        // Adjacent pages are one write.
        for run in runs(indices.len(), |before, this| {
            indices[before] + 1 == indices[this]
        }) {
            let (from, to) = (indices[run.start], indices[run.end - 1] + 1);
            self.disk.write(
                self.place(first + from as u32),
                pages[from..to].as_flattened(),
            )?;
            self.statistics.data_pages += run.len() as u64;
        }
        Ok(())
    }

    fn copy_pages(
        &mut self,
        first: u32,
        pages: &[Page],
        plans: &[Plan],
    ) -> Result<(), DedupError<D::Error>> {
        let copies = plans
            .iter()
            .enumerate()
            .filter_map(|(index, plan)| match plan {
                Plan::Copy(source) => Some((index, source.lba)),
                Plan::Write => None,
            });
        let copies: Vec<(usize, u32)> = copies.collect();
        if copies.is_empty() {
            return Ok(());
        }

        // Copies with consecutive sources and consecutive targets are one remap.
        let follows = |before: usize, this: usize| {
            let ((index, source), (next, next_source)) = (copies[before], copies[this]);
            index + 1 == next && source + 1 == next_source
        };
        let remap = |run: Range<usize>| {
            let (index, source) = copies[run.start];
            let (target, source) = (self.place(first + index as u32), self.place(source));
            DiskRemap {
                target,
                source,
                pages: run.len() as u32,
                relocate: false,
                atomic: false,
            }
        };
        let remaps: Vec<DiskRemap> = runs(copies.len(), follows).into_iter().map(remap).collect();
        if self.disk.remap_all(&remaps).is_ok() {
            return Ok(());
        }

        // If the disk refuses copies, the pages are written. If that fails too, its error is
        // reported.
        self.statistics.copies_refused += copies.len() as u64;
        let indices: Vec<usize> = copies.iter().map(|(index, _)| *index).collect();
        self.write_pages(first, pages, &indices)
    }

    /// Writes segments of the table and marks them valid.
    fn commit(&mut self, segments: &[u32]) -> Result<(), DedupError<D::Error>> {
        // 1. table pages  2. flush  3. "valid". Cut before 3: invalid.
        self.own.segments.write(
            &mut self.disk,
            segments,
            &self.own.table,
            &mut self.statistics,
        )?;
        if self.keeps(Guard::FlushTable) {
            self.flush_below()?;
        }
        Ok(self
            .own
            .segments
            .validate(&mut self.disk, segments, &mut self.statistics)?)
    }
}

impl<D: Disk> Own<D> for CopyTable {
    fn settle(engine: &mut Ccaw<D>) -> Result<(), DedupError<D::Error>> {
        let segments = engine.own.segments.out_of_date();
        if !segments.is_empty() {
            // One more flush after it: the headers "valid" are written after the commit's own.
            engine.commit(&segments)?;
        }
        engine.flush_below()
    }

    fn discarded(&self) -> u64 {
        self.table.discarded()
    }
}

impl<D: Disk> Disk for Ccaw<D> {
    type Error = DedupError<D::Error>;

    fn pages(&self) -> u64 {
        self.superblock.logical.into()
    }

    fn read(&mut self, page: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let lbas = self.lbas(page, whole(into.len())?)?;
        Ok(self.disk.read(self.place(lbas.start), into)?)
    }

    fn write(&mut self, page: u64, data: &[u8]) -> Result<(), Self::Error> {
        let mut lba = self.lbas(page, whole(data.len())?)?.start;
        let mut rest = data.as_chunks::<PAGE_BYTES>().0;

        // A batch never crosses the end of a window, so that the flush covers whole batches.
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.window.fitting(rest.len(), BATCH_PAGES));
            self.write_batch(lba, now)?;
            // Unless the host flushes, only the end of a window makes data durable.
            if self.window.add(now.len()) {
                self.flush()?;
            }
            (lba, rest) = (lba + now.len() as u32, later);
        }
        Ok(())
    }

    fn trim(&mut self, page: u64, pages: u64) -> Result<(), Self::Error> {
        let lbas = self.lbas(page, pages)?;
        self.change(&lbas)?;
        Ok(self.disk.trim(self.place(lbas.start), pages)?)
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        self.usable()?;
        self.window.begin();
        self.flush_below()
    }

    fn remap(&mut self, remap: &DiskRemap) -> Result<(), Self::Error> {
        let target = self.lbas(remap.target, remap.pages.into())?;
        let source = self.lbas(remap.source, remap.pages.into())?;

        // Read before the sources may leave the table.
        let signatures: Vec<Option<Signature>> = source
            .clone()
            .map(|lba| self.own.table.signature(lba))
            .collect();

        self.change(&target)?;
        if remap.relocate {
            self.change(&source)?;
        }
        let below = DiskRemap {
            target: self.place(target.start),
            source: self.place(source.start),
            ..*remap
        };

        // If it fails, both ranges have left the table: their contents are unknown.
        self.disk.remap(&below)?;

        // The true share count is unknown; 2 is a lower bound. A count that is too low costs a copy
        // that the device makes in full.
        let known = target
            .zip(signatures)
            .filter_map(|(lba, signature)| Some((lba, signature?)));
        known.for_each(|(lba, signature)| self.own.table.enter(lba, signature, 2));
        Ok(())
    }
}
