//! Filebench's `oltp`: small random updates of a few files, and a log.
//!
//! Source: `oltp.f` of filebench with its parameters, as used by FAST'21 (section 5.2) and
//! PebbleSSD: 10 data files of 10 MB and one log file of 10 MB; 200 readers read 2 KiB at random;
//! 10 writers each write 100 times 2 KiB at random for every 1,000 reads, since a read posts to the
//! semaphore of each writer; one log write of 256 KiB, at random in the log, for every 3,200 reads.
//! Writes are synchronous (`dsync`), so the cache merges none.
//!
//! At the block layer: one read per data write, 3,200 data writes per log write. Two KiB are half a
//! page: through the page cache the whole page is written and reads stay in the host; with `direct`
//! the page is written in part and reads go to the device. The writers take turns from file to
//! file. Invariants: files are contiguous from the start of the device, the log last; log writes
//! are aligned.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkloadError;
use super::draw::below;
use super::script::{Scale, Script, Steps};
use super::space::PageExtent;

pub(super) const ABOUT: &str = "filebench oltp: 10 files of 10 MB, 2 KiB I/O, 200 readers, 10 writers, 256 KiB log \
     writes (FAST'21 figure 5)";

const FILES: u32 = 10;
const FILE_PAGES: f64 = 2560.0;
const LOG_WRITE_PAGES: u32 = 64;
const READS_PER_LOG_WRITE: u32 = 3200;
const READS_PER_DATA_WRITE: u32 = 1;
const DATA_WRITES_PER_LOG_WRITE: u32 = READS_PER_LOG_WRITE / READS_PER_DATA_WRITE;

pub(super) struct Oltp {
    direct: bool,
    file_pages: u32,
    log_slots: u32,
    /// Data writes since the last log write, and the next file.
    since_log: u32,
    file: u32,
    rng: Xoshiro256PlusPlus,
}

impl Oltp {
    pub(super) fn new(scale: &Scale) -> Result<Self, WorkloadError> {
        let file_pages = scale.of(FILE_PAGES, 1);
        // The last slot may extend past the file: the log's size is rounded up.
        let log_slots = file_pages.div_ceil(LOG_WRITE_PAGES);
        scale.needs(
            u64::from(FILES) * u64::from(file_pages) + u64::from(log_slots * LOG_WRITE_PAGES),
        )?;
        Ok(Self {
            direct: scale.direct,
            file_pages,
            log_slots,
            since_log: 0,
            file: 0,
            rng: scale.rng.clone(),
        })
    }

    /// A random page of the next file.
    fn page(&mut self) -> PageExtent {
        let first = self.file * self.file_pages + below(self.file_pages, &mut self.rng);
        self.file = (self.file + 1) % FILES;
        PageExtent { first, len: 1 }
    }
}

impl Script for Oltp {
    fn step(&mut self, steps: &mut Steps) {
        // The log write comes before the next data write.
        if self.since_log == DATA_WRITES_PER_LOG_WRITE {
            self.since_log = 0;
            // At random, as in the script: filebench's log is not appended to.
            let slot = below(self.log_slots, &mut self.rng);
            let first = FILES * self.file_pages + slot * LOG_WRITE_PAGES;
            return steps.write(PageExtent {
                first,
                len: LOG_WRITE_PAGES,
            });
        }

        self.since_log += 1;

        if self.direct {
            // Through the page cache the reads stay in the host.
            (0..READS_PER_DATA_WRITE).for_each(|_| {
                let page = self.page();
                steps.read(page);
            });
        }

        let page = self.page();
        // Half a page: with direct I/O the other half is read first.
        if self.direct {
            steps.modify(page)
        } else {
            steps.write(page)
        }
    }
}
