//! Basis of both schemes: the disk, its superblock, counters, and whether a flush has failed.
//!
//! Invariant: after a failed flush every operation fails, since what is durable is unknown.
//! Absent: the handling of a page that is written (`ccaw`, `ordermerge`).

use crate::guard::Guard;
use crate::pages::{Page, inside};
use crate::signature::Signature;
use crate::statistics::Statistics;
use crate::superblock::Superblock;
use crate::window::Window;
use crate::{DedupError, Hash};
use remap_ssd_device::Disk;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::ops::Range;

/// A disk that stores equal pages once: a [`Ccaw`](crate::Ccaw) or an
/// [`OrderMerge`](crate::OrderMerge).
pub struct Engine<D, S> {
    pub(crate) disk: D,
    pub(crate) superblock: Superblock,
    /// Address, on the disk below, of the scheme's page 0.
    pub(crate) first_data_page: u64,
    pub(crate) window: Window,
    pub(crate) statistics: Statistics,
    /// Compares contents before sharing a page.
    pub(crate) compare: bool,
    pub(crate) without: Option<Guard>,
    pub(crate) notes: Vec<String>,
    pub(crate) broken: bool,
    /// State of the scheme itself.
    pub(crate) own: S,
}

/// Functions in which the schemes differ.
pub trait Own<D: Disk>: Sized {
    /// Makes everything durable before the disk is returned.
    ///
    /// # Errors
    /// The disk.
    fn settle(engine: &mut Engine<D, Self>) -> Result<(), DedupError<D::Error>>;

    /// Number of table entries discarded because the table was full.
    fn discarded(&self) -> u64 {
        0
    }
}

impl<D: Disk, S: Own<D>> Engine<D, S> {
    /// Makes everything durable, including the scheme's records, and returns the disk.
    ///
    /// # Errors
    /// The disk. What was flushed before is there.
    pub fn close(mut self) -> Result<D, DedupError<D::Error>> {
        self.usable()?;
        S::settle(&mut self)?;
        Ok(self.disk)
    }

    /// Returns the disk as it is, without a flush, like the end of the process.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The disk below, for reading its state.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk below, for operations that do not change its pages.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Findings of the opening, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Hash function of the signatures.
    pub fn hash(&self) -> Hash {
        self.superblock.hash
    }

    /// Counters since it was opened.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            entries_discarded: self.own.discarded(),
            ..self.statistics
        }
    }

    pub(crate) fn keeps(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    pub(crate) fn usable(&self) -> Result<(), DedupError<D::Error>> {
        if self.broken {
            Err(DedupError::Broken)
        } else {
            Ok(())
        }
    }

    /// Address, on the disk below, of one of the scheme's pages.
    pub(crate) fn place(&self, number: u32) -> u64 {
        self.first_data_page + u64::from(number)
    }

    pub(crate) fn lbas(&self, page: u64, pages: u64) -> Result<Range<u32>, DedupError<D::Error>> {
        self.usable()?;
        inside(page, pages, self.superblock.logical.into())?;
        Ok(page as u32..(page + pages) as u32)
    }

    pub(crate) fn flush_below(&mut self) -> Result<(), DedupError<D::Error>> {
        self.statistics.flushes += 1;
        // After a failure it is unknown what is durable, and a later success does not tell:
        // a kernel reports a failed write-back to one flush and forgets it.
        self.disk.flush().map_err(|error| {
            self.broken = true;
            error.into()
        })
    }

    pub(crate) fn signatures(&self, pages: &[Page]) -> Vec<Signature> {
        let Superblock { hash, key, .. } = &self.superblock;
        pages.iter().map(|page| hash.signature(key, page)).collect()
    }

    /// Tells whether one of the scheme's pages holds these contents.
    pub(crate) fn holds(&mut self, number: u32, page: &Page) -> bool {
        let mut found = [0; PAGE_BYTES];
        self.statistics.compared += 1;
        let place = self.place(number);
        // An unreadable page is not shared: the new page is written instead, and is intact.
        let equal = self.disk.read(place, &mut found).is_ok() && found == *page;
        self.statistics.mismatches += u64::from(!equal);
        equal
    }
}
