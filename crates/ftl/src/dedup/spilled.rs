//! Live pages whose fingerprints found no slot in their line.
//!
//! An exact store finds duplicates of them here. Other stores use the list only to count the
//! duplicates that they miss.
//!
//! Eight lines share a bucket of one cache line, so that its address follows from the line's
//! number, and it can be prefetched. Pages for which a full bucket has no room are in a tree: that
//! is slow, but rare.
//!
//! Invariants: a listed page may be garbage, or hold something else by now (the store drops those
//! when it looks for their tag, or needs room); a line lists a page once for each tag; the tree has
//! pages only of buckets that are full. Absent: what a page holds, and whether it is live (the
//! store checks); which lines to skip (the line's own spill bits).

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::{Slab, prefetch};
use std::collections::BTreeMap;

/// Lines that share a bucket, and pages that it has room for.
const SHARED: usize = 8;
const TAG_BITS: u32 = super::TAG_BITS;

/// A page and the tag of what it held when it spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpilledPage {
    pub tag: u32,
    pub ppn: Ppn,
}

/// A page of some line of a bucket.
#[derive(
    Clone, Copy, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
)]
#[repr(C)]
struct SpilledCell {
    /// The tag, and above it the line's number in the bucket.
    key: u32,
    /// Page number plus one; 0 is an empty cell.
    page: u32,
}

const EMPTY: SpilledCell = SpilledCell { key: 0, page: 0 };

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct Bucket([SpilledCell; SHARED]);

impl SpilledCell {
    fn new(line: usize, page: SpilledPage) -> Self {
        Self {
            key: page.tag | ((line % SHARED) as u32) << TAG_BITS,
            page: page.ppn.0 + 1,
        }
    }

    fn line(self) -> usize {
        (self.key >> TAG_BITS) as usize
    }

    /// Of a cell that is not empty.
    fn spilled(self) -> SpilledPage {
        SpilledPage {
            tag: self.key & super::TAG,
            ppn: Ppn(self.page - 1),
        }
    }
}

impl Bucket {
    fn is_full(&self) -> bool {
        self.0.iter().all(|cell| *cell != EMPTY)
    }
}

pub(super) struct Spilled {
    buckets: Slab<Bucket>,
    /// What full buckets have no room for, by bucket.
    rest: BTreeMap<usize, Vec<SpilledCell>>,
}

impl Spilled {
    pub fn new(lines: usize) -> Self {
        Self {
            buckets: Slab::zeroed(lines.div_ceil(SHARED)),
            rest: BTreeMap::new(),
        }
    }

    /// The pages that a line has spilled.
    pub fn pages(&self, line: usize) -> impl Iterator<Item = SpilledPage> {
        let bucket = &self.buckets[line / SHARED];
        // The tree is asked only where the bucket is full: it has nothing else, and a lookup costs
        // more than the bucket.
        let rest = if bucket.is_full() {
            self.rest.get(&(line / SHARED))
        } else {
            None
        };
        let cells = bucket.0.iter().chain(rest.into_iter().flatten());
        let is_of_line = move |cell: &&SpilledCell| **cell != EMPTY && cell.line() == line % SHARED;
        cells.filter(is_of_line).map(|cell| cell.spilled())
    }

    pub fn add(&mut self, line: usize, page: SpilledPage) {
        // A stale page of this line may have the same page number, but another tag. Either may be
        // the live one.
        if self.pages(line).any(|other| other == page) {
            return;
        }
        let cell = SpilledCell::new(line, page);
        match self.buckets[line / SHARED]
            .0
            .iter_mut()
            .find(|cell| **cell == EMPTY)
        {
            Some(empty) => *empty = cell,
            None => self.rest.entry(line / SHARED).or_default().push(cell),
        }
    }

    /// Should stale pages of a line's bucket be dropped now? When it is full, and each time that
    /// its pages have doubled.
    pub fn is_crowded(&self, line: usize) -> bool {
        let rest = || self.rest.get(&(line / SHARED)).map_or(0, Vec::len);
        self.buckets[line / SHARED].is_full() && (SHARED + rest()).is_power_of_two()
    }

    /// Drops the pages of a line that are not to be kept.
    pub fn retain(&mut self, line: usize, mut keep: impl FnMut(SpilledPage) -> bool) {
        self.retain_all(line, |other, page| other != line || keep(page));
    }

    /// Drops the pages that are not to be kept of all lines that share this line's bucket.
    pub fn retain_all(&mut self, line: usize, mut keep: impl FnMut(usize, SpilledPage) -> bool) {
        let bucket = line / SHARED;
        let mut stays = |cell: &SpilledCell| {
            *cell == EMPTY || keep(bucket * SHARED + cell.line(), cell.spilled())
        };
        let was_full = self.buckets[bucket].is_full();
        let cells = &mut self.buckets[bucket].0;
        cells
            .iter_mut()
            .filter(|cell| !stays(cell))
            .for_each(|cell| *cell = EMPTY);
        if !was_full {
            return;
        }

        let Some(rest) = self.rest.get_mut(&bucket) else {
            return;
        };
        rest.retain(stays);
        // What is left of the rest moves up: the tree has pages only of buckets that are full.
        for empty in cells.iter_mut().filter(|cell| **cell == EMPTY) {
            *empty = rest.pop().unwrap_or(EMPTY);
        }
        if rest.is_empty() {
            self.rest.remove(&bucket);
        }
    }

    /// A page of a line has moved. The tag tells it from a stale one that was entered with the same
    /// page number.
    pub fn moved(&mut self, line: usize, tag: u32, from: Ppn, to: Ppn) {
        let [from, to] = [from, to].map(|ppn| SpilledCell::new(line, SpilledPage { tag, ppn }));
        let bucket = &mut self.buckets[line / SHARED];
        let rest = if bucket.is_full() {
            self.rest.get_mut(&(line / SHARED))
        } else {
            None
        };
        let mut cells = bucket.0.iter_mut().chain(rest.into_iter().flatten());
        if let Some(cell) = cells.find(|cell| **cell == from) {
            *cell = to;
        }
    }

    /// Asks for a line's bucket.
    #[inline]
    pub fn prefetch(&self, line: usize) {
        prefetch(&self.buckets, line / SHARED);
    }
}
