//! The signature table on the disk: valid segments, dirty pages, and the order of writes.
//!
//! A valid segment is correct about its addresses after any power cut, because
//! - *a change* of an address whose segment is valid: 1. header "invalid"  2. flush  3. the page,
//!   written or copied. Cut before the end of 2: valid and unchanged, or invalid. Cut after 2:
//!   invalid.
//! - *a batch* of segments: 1. the dirty pages  2. flush, of the data as well  3. headers "valid".
//!   Cut before 3: invalid. Cut in 3: each is invalid, or valid with pages and data that are
//!   durable because of 2. The next change begins with a header of its own, which is the later one.
//! - *opening* an invalid segment: its pages are trimmed, since some may be older than the cut
//!   and some newer; the trim is durable before the segment is valid, because of 2. A page with a
//!   wrong checksum carries no information and is dirty.
//!
//! Invariant: `valid` is never true here if a change may follow the header on the disk. Absent: the
//! table's contents (`table.rs`).

use super::format::{self, Layout, PAGE_SIGNATURES};
use super::table::Table;
use crate::guard::Guard;
use crate::pages::{read_each, write_each};
use crate::signature::UNKNOWN;
use crate::statistics::Statistics;
use crate::superblock::Superblock;
use remap_ssd_device::Disk;
use std::ops::Range;

/// State of the table on the disk.
pub(super) struct Segments {
    superblock: Superblock,
    layout: Layout,
    valid: Vec<bool>,
    /// Changes since each segment was valid.
    updates: Vec<u32>,
    /// Dirty pages of signatures.
    dirty: Vec<bool>,
    without: Option<Guard>,
}

impl Segments {
    /// Reads all valid segments into the table.
    pub(super) fn open<D: Disk>(
        disk: &mut D,
        superblock: Superblock,
        layout: Layout,
        table: &mut Table,
        notes: &mut Vec<String>,
        without: Option<Guard>,
    ) -> Result<Self, D::Error> {
        let segments = layout.segments() as usize;
        let mut all = Self {
            superblock,
            layout,
            valid: vec![false; segments],
            updates: vec![0; segments],
            dirty: vec![false; layout.table_pages() as usize],
            without,
        };

        // An invalid segment is normal: it was being changed, or power was cut.
        let mut invalid = 0;
        for segment in 0..layout.segments() {
            let place = layout.header(segment);
            read_each(disk, place, 1, |_, page| {
                all.valid[segment as usize] =
                    page.is_ok_and(|page| format::is_valid(&superblock, place, page));
            });
            if all.valid[segment as usize] {
                all.read(disk, segment, table, notes)
            } else {
                invalid += 1;
                // Its contents on the disk are unreliable, so its pages are dirty.
                all.forget(disk, segment)?;
            }
        }
        if invalid > 0 {
            notes.push(format!(
                "{invalid} of {segments} segments of the signature table are not valid: contents of their pages are learned anew"
            ));
        }
        Ok(all)
    }

    fn read<D: Disk>(
        &mut self,
        disk: &mut D,
        segment: u32,
        table: &mut Table,
        notes: &mut Vec<String>,
    ) {
        let pages = self.layout.table_pages_of(segment);
        let first = self.layout.place(pages.start);
        read_each(disk, first, pages.len() as u64, |index, page| {
            let (table_page, place) = (pages.start + index as u32, first + index);
            let found = page
                .ok()
                .and_then(|page| format::read_signatures(&self.superblock, place, page));

            // Only this page is lost. The others of the segment have checksums of their own.
            let Some(signatures) = found else {
                self.dirty[table_page as usize] = true;
                notes.push(format!(
                    "page {place} of the signature table is damaged and is not believed"
                ));
                return;
            };

            let lbas = table_page * PAGE_SIGNATURES..self.layout.logical;
            let known = lbas
                .zip(signatures)
                .filter(|(_, signature)| **signature != UNKNOWN);
            known.for_each(|(lba, signature)| table.enter(lba, *signature, 1));
        });
    }

    /// Removes an invalid segment's signatures from the disk.
    fn forget<D: Disk>(&self, disk: &mut D, segment: u32) -> Result<(), D::Error> {
        let pages = self.layout.table_pages_of(segment);
        match self.without {
            Some(Guard::TrimInvalid) => Ok(()),
            _ => disk.trim(self.layout.place(pages.start), pages.len() as u64),
        }
    }

    fn of(&self, lbas: &Range<u32>) -> Range<u32> {
        if lbas.is_empty() {
            0..0
        } else {
            self.layout.segment_of(lbas.start)..self.layout.segment_of(lbas.end - 1) + 1
        }
    }

    /// Valid segments that cover these addresses.
    pub(super) fn valid(&self, lbas: &Range<u32>) -> Vec<u32> {
        self.of(lbas)
            .filter(|segment| self.valid[*segment as usize])
            .collect()
    }

    /// Marks segments invalid on the disk. The caller flushes, then calls `invalidated`.
    pub(super) fn invalidate<D: Disk>(
        &self,
        disk: &mut D,
        segments: &[u32],
        done: &mut Statistics,
    ) -> Result<(), D::Error> {
        // A test omits this step and expects a failure.
        if self.without == Some(Guard::Invalidate) {
            return Ok(());
        }
        for segment in segments {
            let place = self.layout.header(*segment);
            disk.write(place, &format::header(&self.superblock, place, false))?;
            done.metadata_pages += 1;
        }
        Ok(())
    }

    pub(super) fn invalidated(&mut self, segments: &[u32]) {
        segments
            .iter()
            .for_each(|segment| self.valid[*segment as usize] = false);
    }

    /// Notes that addresses change: their signature pages become dirty.
    pub(super) fn change(&mut self, lbas: &Range<u32>) {
        for segment in self.of(lbas) {
            let updates = &mut self.updates[segment as usize];
            // A range over two segments counts in full for both: they are written slightly early.
            *updates = updates.saturating_add(lbas.len() as u32);
        }
        if !lbas.is_empty() {
            let pages =
                self.layout.table_page_of(lbas.start)..=self.layout.table_page_of(lbas.end - 1);
            self.dirty[*pages.start() as usize..=*pages.end() as usize].fill(true);
        }
    }

    /// Segments of some addresses that have changed at least `updates` times.
    pub(super) fn due(&self, lbas: &Range<u32>, updates: u32) -> Vec<u32> {
        self.of(lbas)
            .filter(|segment| self.updates[*segment as usize] >= updates)
            .collect()
    }

    /// Segments with dirty pages.
    pub(super) fn out_of_date(&self) -> Vec<u32> {
        let is = |segment: &u32| self.dirty_pages(*segment).next().is_some();
        (0..self.layout.segments()).filter(is).collect()
    }

    fn dirty_pages(&self, segment: u32) -> impl Iterator<Item = u32> {
        self.layout
            .table_pages_of(segment)
            .filter(|page| self.dirty[*page as usize])
    }

    /// Writes the dirty pages of segments. The caller flushes, then calls `validate`.
    pub(super) fn write<D: Disk>(
        &self,
        disk: &mut D,
        segments: &[u32],
        table: &Table,
        done: &mut Statistics,
    ) -> Result<(), D::Error> {
        for segment in segments {
            let pages: Vec<u32> = self.dirty_pages(*segment).collect();
            let places: Vec<u64> = pages.iter().map(|page| self.layout.place(*page)).collect();

            let (first, base) = (
                self.layout.table_pages_of(*segment).start,
                self.layout.header(*segment) + 1,
            );

            write_each(disk, &places, |place| {
                let lba = (first + (place - base) as u32) * PAGE_SIGNATURES;
                format::signatures(&self.superblock, place, |index| {
                    table.signature(lba + index).unwrap_or(UNKNOWN)
                })
            })?;

            done.metadata_pages += pages.len() as u64;
        }
        Ok(())
    }

    /// Marks segments valid. Their pages, and the data that these describe, must be durable.
    pub(super) fn validate<D: Disk>(
        &mut self,
        disk: &mut D,
        segments: &[u32],
        done: &mut Statistics,
    ) -> Result<(), D::Error> {
        for segment in segments {
            let place = self.layout.header(*segment);
            // From here on the segment may be valid on the disk, even if the write fails.
            self.valid[*segment as usize] = true;
            disk.write(place, &format::header(&self.superblock, place, true))?;

            let pages = self.layout.table_pages_of(*segment);
            // Only after the header: if that failed, the next commit writes the pages once more.
            self.dirty[pages.start as usize..pages.end as usize].fill(false);
            self.updates[*segment as usize] = 0;
            done.metadata_pages += 1;
            done.segments_committed += 1;
        }
        Ok(())
    }
}
