//! The I/O of a database's storage engine: a redo log and pages that are flushed twice.
//!
//! As MySQL's InnoDB does by default: pages of 16 KiB, four logical pages; a commit writes the redo
//! log's last 4 KiB pages, the last of them repeatedly until it is full; a page changed by a
//! transaction stays in the buffer pool, where later changes cost nothing, until more than a given
//! share of the pool is dirty; then the 64 pages that have been dirty for longest are written to
//! the doublewrite buffer, in one sequence, and with the same contents to their places. The pool
//! holds the database, so nothing is read; with `direct`, a page that is not dirty is read before
//! it changes. Invariants: the log comes first, then the doublewrite buffer, then the pages; a
//! dirty page is queued once. Absent: the choice of pages (the benchmark's), checkpoints by age of
//! the log, undo pages.

use std::collections::VecDeque;

use super::script::{Scale, Steps};
use super::space::PageExtent;

/// Logical pages of a database page.
pub(super) const PAGE_LPNS: u32 = 4;
const LPN_BYTES: u32 = 4096;
const BATCH_PAGES: usize = 64;
/// InnoDB's two files of 48 MiB.
const LOG_LPNS: f64 = 24_576.0;
/// Share of the pages that may be dirty.
const DIRTY_SHARE: f64 = 0.1;

pub(super) struct Engine {
    direct: bool,
    log_lpns: u32,
    /// End of the log: logical page, and bytes of it in use.
    log_at: u32,
    log_filled: u32,
    /// Redo of the current transaction.
    redo_bytes: u32,
    dirty: Vec<bool>,
    /// Dirty pages, the oldest first.
    queue: VecDeque<u32>,
    dirty_max: usize,
}

impl Engine {
    /// The engine of a database of `pages` pages.
    pub(super) fn new(scale: &Scale, pages: u32) -> Self {
        let dirty_max = ((f64::from(pages) * DIRTY_SHARE) as usize).max(BATCH_PAGES);
        Self {
            direct: scale.direct,
            log_lpns: log_lpns(scale),
            log_at: 0,
            log_filled: 0,
            redo_bytes: 0,
            dirty: vec![false; pages as usize],
            queue: VecDeque::with_capacity(dirty_max + 64),
            dirty_max,
        }
    }

    /// Logical pages of a database of `pages` pages.
    pub(super) fn lpns(scale: &Scale, pages: u64) -> u64 {
        u64::from(log_lpns(scale)) + (BATCH_PAGES as u64 + pages) * u64::from(PAGE_LPNS)
    }

    /// Changes a page in the current transaction, with this amount of redo.
    pub(super) fn change(&mut self, page: u32, redo_bytes: u32, steps: &mut Steps) {
        self.redo_bytes += redo_bytes;

        // A page that is already dirty costs nothing more.
        if !self.dirty[page as usize] {
            self.dirty[page as usize] = true;
            self.queue.push_back(page);

            // It may be missing in the pool.
            if self.direct {
                steps.read(self.place(page));
            }
        }
    }

    /// Commits the transaction: it is durable when its redo is.
    pub(super) fn commit(&mut self, steps: &mut Steps) {
        // Records are contiguous across pages: one may end in the next.
        let mut left = std::mem::take(&mut self.redo_bytes);
        while left > 0 {
            let part = left.min(LPN_BYTES - self.log_filled);
            // The whole page again, although only a part is new: the log is written in pages.
            steps.write(PageExtent {
                first: self.log_at,
                len: 1,
            });
            self.log_filled += part;
            left -= part;
            if self.log_filled == LPN_BYTES {
                self.log_filled = 0;
                // The log is a ring; a checkpoint has long freed the overwritten part.
                self.log_at = (self.log_at + 1) % self.log_lpns;
            }
        }

        // After the redo: a page must not reach its place before the change is durable.
        if self.queue.len() > self.dirty_max {
            self.flush(steps);
        }
    }

    fn flush(&mut self, steps: &mut Steps) {
        // All to the doublewrite buffer first, then to their places: a page torn there has its
        // copy.
        steps.keep(PageExtent {
            first: self.log_lpns,
            len: BATCH_PAGES as u32 * PAGE_LPNS,
        });
        for _ in 0..BATCH_PAGES {
            let page = self.queue.pop_front().expect("more are dirty than a batch");
            self.dirty[page as usize] = false;
            steps.again(self.place(page));
        }
    }

    fn place(&self, page: u32) -> PageExtent {
        let first = self.log_lpns + (BATCH_PAGES as u32 + page) * PAGE_LPNS;
        PageExtent {
            first,
            len: PAGE_LPNS,
        }
    }
}

fn log_lpns(scale: &Scale) -> u32 {
    scale.of(LOG_LPNS, 16)
}
