//! Counts the requests of a trace while it is read: requests by kind, duplicates and distinct
//! pages.
//!
//! Invariants: a request without effect on any page is not counted. Absent: storage of requests.

use super::super::expand::{Expander, Item};
use super::super::{TraceOptions, TraceStat};
use crate::source::{HostPage, PageKind};
use remap_ssd_device::HostLpn;
use remap_ssd_media::slab::prefetch;

/// Counts the requests of a trace while it is read.
pub(super) struct Census {
    expander: Expander,
    pages: Vec<HostPage>,
    seen: PageSet,
    /// Contents are numbered in order of appearance: a larger one is new.
    content_max: u64,
    total: TraceStat,
}

impl Census {
    pub(super) fn new(options: &TraceOptions) -> Self {
        Self {
            expander: Expander::new(options, 0),
            pages: Vec::new(),
            seen: PageSet::default(),
            content_max: 0,
            total: TraceStat::default(),
        }
    }

    /// Counts a request; `false` if it affects no page.
    #[inline]
    pub(super) fn count(&mut self, item: &Item) -> bool {
        self.pages.clear();
        // A request without a page is not stored either.
        if !self.expander.expand(item, &mut self.pages) {
            return false;
        }

        for page in &self.pages {
            match page.kind {
                PageKind::Read => self.total.reads += 1,
                PageKind::Write | PageKind::WriteFor { .. } => {
                    self.total.writes += 1;
                    self.total.duplicate_writes += u64::from(page.content <= self.content_max);
                    self.content_max = self.content_max.max(page.content);
                }

                // Always a new content: no digest covers a part of a page.
                PageKind::ReadModifyWrite => {
                    self.total.read_modify_writes += 1;
                    self.content_max = self.content_max.max(page.content);
                }
                PageKind::Trim => self.total.trims += 1,
                PageKind::Remap { len, .. } => self.total.remaps += u64::from(len),
                // A flush names no page, and does not extend the duration.
                PageKind::Flush => continue,
            }

            self.seen.insert(page.lpn);

            // Times begin at 0 and never decrease: the last one is the duration.
            self.total.duration_ns = page.at_ns;
        }

        true
    }

    pub(super) fn total(mut self) -> TraceStat {
        self.total.unique_pages = self.seen.len();
        self.total
    }
}

/// A set of pages, as bits in chunks allocated on demand.
///
/// Pages are inserted in batches, so that the processor fetches the bits of all of them at once.
#[derive(Default)]
struct PageSet {
    chunks: Vec<Option<Box<[u64; CHUNK_WORDS]>>>,
    /// Pages whose bits are being prefetched; `add_waiting` inserts them.
    waiting: Vec<HostLpn>,
    /// Number of distinct pages in the set.
    len: u64,
}

/// Words of a chunk: 4 KiB of bits, for 32,768 pages.
const CHUNK_WORDS: usize = 512;
/// Maximum pages with prefetches pending.
const WAITING_MAX: usize = 64;

impl PageSet {
    #[inline]
    fn insert(&mut self, page: HostLpn) {
        if self.waiting.len() == WAITING_MAX {
            self.add_waiting();
        }

        let (chunk, word) = Self::place(page);

        // A missing chunk cannot be prefetched.
        if let Some(Some(chunk)) = self.chunks.get(chunk) {
            prefetch(&chunk[..], word);
        }
        self.waiting.push(page);
    }

    /// Number of distinct pages inserted.
    fn len(&mut self) -> u64 {
        self.add_waiting();
        self.len
    }

    fn add_waiting(&mut self) {
        for page in self.waiting.drain(..) {
            let (chunk, word) = Self::place(page);
            if chunk >= self.chunks.len() {
                self.chunks.resize(chunk + 1, None);
            }

            let chunk = self.chunks[chunk].get_or_insert_with(|| Box::new([0; CHUNK_WORDS]));
            let bit = 1 << (page.get() % 64);
            self.len += u64::from(chunk[word] & bit == 0);
            chunk[word] |= bit;
        }
    }

    fn place(page: HostLpn) -> (usize, usize) {
        let word = page.index() / 64;
        (word / CHUNK_WORDS, word % CHUNK_WORDS)
    }
}
