//! Live pages whose fingerprints have no slot in their line.
//!
//! An exact store finds duplicates of them here. Other stores use the list only to count missed
//! duplicates.
//!
//! A few lines share a bucket of one cache line, whose address follows from the line's number, so
//! that it can be prefetched. A bucket that overflows continues in further buckets, which are
//! allocated on demand: a device full of distinct contents spills a seventh of its pages, one with
//! many duplicates nearly none.
//!
//! Invariants: a listed page may be garbage, or hold another content by now (the store drops such
//! pages when it looks up their tag or needs room); a line lists a page once per tag; the cells of
//! a chain of buckets have no gaps. Absent: the contents of pages, and whether they are live (the
//! store checks); which lines to skip (the line's own spill bits).

use super::long_chains::LongChains;
use super::spilled_cell::{
    CELLS, EMPTY, FREE_CELLS_MIN, SHARED, SpilledCell, SpilledPage, TAG_BITS,
};
use crate::mapping::counts::Counts;
use remap_ssd_media::Ppn;
use remap_ssd_media::slab::{Slab, prefetch};

/// Number of buckets from which a chain is not scanned but indexed.
const LONG: usize = 32;

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct SpilledBucket {
    cells: [SpilledCell; CELLS],
    /// The next bucket of the chain: an index into `more`, plus one; 0 at the end.
    next: u32,
    unused: u32,
}

const _: () = assert!(size_of::<SpilledBucket>() == 64);

impl SpilledBucket {
    const EMPTY: Self = Self {
        cells: [EMPTY; CELLS],
        next: 0,
        unused: 0,
    };

    fn next(&self) -> Option<usize> {
        (self.next as usize).checked_sub(1)
    }

    /// The filled cells, up to the first empty one.
    fn filled(&self) -> impl Iterator<Item = SpilledCell> {
        self.cells.into_iter().take_while(|cell| *cell != EMPTY)
    }

    fn free_cells(&self) -> usize {
        CELLS - self.filled().count()
    }
}

pub(super) struct SpilledTable {
    /// The first bucket of each chain.
    first: Slab<SpilledBucket>,
    /// All other buckets, and those of them that belong to no chain.
    more: Vec<SpilledBucket>,
    unused: Vec<usize>,
    /// Buffer for the cells that remain while stale pages are dropped.
    kept: Vec<SpilledCell>,
    /// Chains of at least this many buckets are in `long`, and have empty ones here.
    long_from: usize,
    pub long: LongChains,
}

fn chain_of(line: usize) -> u32 {
    (line / SHARED) as u32
}

impl SpilledTable {
    pub(super) fn new(lines: usize) -> Self {
        Self {
            first: Slab::zeroed(lines.div_ceil(SHARED)),
            more: Vec::new(),
            unused: Vec::new(),
            kept: Vec::new(),
            long_from: LONG,
            long: LongChains::default(),
        }
    }

    /// The same with indices for chains of at least `buckets` buckets.
    #[cfg(test)]
    pub(super) fn with_long_from(lines: usize, buckets: usize) -> Self {
        Self {
            long_from: buckets,
            ..Self::new(lines)
        }
    }

    /// The buckets of a line's chain.
    fn chain(&self, line: usize) -> impl Iterator<Item = &SpilledBucket> {
        std::iter::successors(Some(&self.first[line / SHARED]), |bucket| {
            bucket.next().map(|next| &self.more[next])
        })
    }

    fn cells(&self, line: usize) -> impl Iterator<Item = SpilledCell> {
        self.chain(line).flat_map(SpilledBucket::filled)
    }

    /// The last bucket of a line's chain: the only one that may have a free cell.
    fn last(&mut self, line: usize) -> &mut SpilledBucket {
        match self.chain(line).filter_map(SpilledBucket::next).last() {
            Some(at) => &mut self.more[at],
            None => &mut self.first[line / SHARED],
        }
    }

    /// The tags of the pages that a line has spilled, with repetitions.
    pub(super) fn tags(&self, line: usize) -> impl Iterator<Item = u32> {
        let keys = self.long.keys(chain_of(line));
        let keys = keys.map(|key| SpilledCell::of_key(key, Ppn(0)));
        let of_long = keys.filter(move |cell| cell.line() == line % SHARED);
        let here = self.pages(line).map(|page| page.tag);
        here.chain(of_long.map(|cell| cell.spilled().tag))
    }

    /// Returns true if a line's chain is a long one.
    #[inline]
    pub(super) fn is_long(&self, line: usize) -> bool {
        self.long.has(chain_of(line))
    }

    /// Searches a long chain: of the pages that a line has spilled with this tag, the one with the
    /// fewest owners that satisfies `is_same`, and its count. `is_live`: as in `LongChains::find`.
    pub(super) fn find_in_long(
        &mut self,
        (line, tag): (usize, u32),
        counts: &Counts,
        is_same: impl Fn(Ppn) -> bool,
        is_live: impl Fn(Ppn) -> bool,
    ) -> Option<(u32, Ppn)> {
        let key = SpilledCell::new(line, SpilledPage { tag, ppn: Ppn(0) }).key();
        self.long
            .find((chain_of(line), key), counts, is_same, is_live)
    }

    /// The pages that a line has spilled, unless its chain is a long one.
    pub(super) fn pages(&self, line: usize) -> impl Iterator<Item = SpilledPage> {
        let cells = self.cells(line);
        let is_of_line = move |cell: &SpilledCell| cell.line() == line % SHARED;
        cells.filter(is_of_line).map(SpilledCell::spilled)
    }

    /// The pages of all lines that share this line's chain.
    pub(super) fn pages_of_chain(&self, line: usize) -> impl Iterator<Item = Ppn> {
        self.cells(line).map(|cell| cell.spilled().ppn)
    }

    pub(super) fn add(&mut self, line: usize, page: SpilledPage) {
        // A stale page of this line may have the same page number, but another tag. Either may be
        // the live one.
        let cell = SpilledCell::new(line, page);
        if self.is_long(line) {
            return self.long.add(chain_of(line), cell);
        }
        if self.cells(line).any(|other| other == cell) {
            return;
        }

        if self.is_full(line) {
            self.lengthen(line);
        }
        if self.is_long(line) {
            return self.long.add(chain_of(line), cell);
        }
        let cells = &mut self.last(line).cells;
        if let Some(empty) = cells.iter_mut().find(|cell| **cell == EMPTY) {
            *empty = cell;
        }
    }

    /// Returns true if a line's chain has no free cell: then stale pages should be dropped.
    pub(super) fn is_full(&self, line: usize) -> bool {
        if self.is_long(line) {
            return self.long.is_full(chain_of(line));
        }
        self.chain(line)
            .last()
            .is_some_and(|bucket| bucket.free_cells() == 0)
    }

    /// Adds a bucket to a line's chain if few cells are free.
    pub(super) fn make_room(&mut self, line: usize) {
        if self.is_long(line) {
            return self.long.make_room(chain_of(line));
        }
        if self.last(line).free_cells() < FREE_CELLS_MIN {
            self.lengthen(line);
        }
    }

    fn lengthen(&mut self, line: usize) {
        let at = self.unused.pop().unwrap_or_else(|| {
            self.more.push(SpilledBucket::EMPTY);
            self.more.len() - 1
        });
        self.last(line).next = at as u32 + 1;

        if self.chain(line).count() >= self.long_from {
            let cells: Vec<SpilledCell> = self.cells(line).collect();
            let last_used = CELLS - self.last(line).free_cells();
            self.refill(line, &[]);
            self.long.adopt(chain_of(line), &cells, last_used);
        }
    }

    /// Drops a page of a line, under all tags.
    pub(super) fn drop_page(&mut self, line: usize, ppn: Ppn) {
        if self.is_long(line) {
            let first = ((line % SHARED) as u32) << TAG_BITS;
            let keys = first..first + (1 << TAG_BITS);
            return self.long.drop_page(chain_of(line), keys, ppn);
        }
        self.retain_all(line, |other, page| other != line || page.ppn != ppn);
    }

    /// Drops the pages that are not live: those of a line with a tag, or all in the line's chain.
    pub(super) fn drop_stale(
        &mut self,
        line: usize,
        tag: Option<u32>,
        counts: &Counts,
        is_live: impl Fn(usize, SpilledPage) -> bool,
    ) {
        if self.is_long(line) {
            let first_line = line / SHARED * SHARED;
            let key = tag.map(|tag| SpilledCell::new(line, SpilledPage { tag, ppn: Ppn(0) }).key());
            return self.long.drop_stale(chain_of(line), key, counts, |cell| {
                is_live(first_line + cell.line(), cell.spilled())
            });
        }
        self.retain_all(line, |of, page| {
            tag.is_some_and(|tag| (of, page.tag) != (line, tag)) || is_live(of, page)
        });
    }

    /// Keeps only pages that satisfy `keep`, in all lines that share this line's chain.
    fn retain_all(&mut self, line: usize, mut keep: impl FnMut(usize, SpilledPage) -> bool) {
        let first_line = line / SHARED * SHARED;
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        let stays = |cell: &SpilledCell| keep(first_line + cell.line(), cell.spilled());
        kept.extend(self.cells(line).filter(stays));

        self.refill(line, &kept);
        self.kept = kept;
    }

    /// Fills a line's chain with `cells`, and shortens it to the buckets needed.
    fn refill(&mut self, line: usize, cells: &[SpilledCell]) {
        let mut bucket = &mut self.first[line / SHARED];
        let mut rest = cells;
        loop {
            let here;
            (here, rest) = rest.split_at(rest.len().min(CELLS));
            bucket.cells = [EMPTY; CELLS];
            bucket.cells[..here.len()].copy_from_slice(here);
            match bucket.next() {
                Some(next) if !rest.is_empty() => bucket = &mut self.more[next],
                _ => break,
            }
        }

        // The rest of the chain is empty now.
        let mut next = std::mem::take(&mut bucket.next);
        while let Some(at) = (next as usize).checked_sub(1) {
            let bucket = std::mem::replace(&mut self.more[at], SpilledBucket::EMPTY);
            next = bucket.next;
            self.unused.push(at);
        }
    }

    /// Updates a page of a line that has moved. The tag distinguishes it from a stale one with the
    /// same page number.
    pub(super) fn moved(&mut self, line: usize, tag: u32, from: Ppn, to: Ppn) {
        let [from, to] = [from, to].map(|ppn| SpilledCell::new(line, SpilledPage { tag, ppn }));
        if self.is_long(line) {
            return self.long.moved(chain_of(line), from, to);
        }
        let mut bucket = &mut self.first[line / SHARED];
        loop {
            if let Some(cell) = bucket.cells.iter_mut().find(|cell| **cell == from) {
                *cell = to;
                return;
            }
            let Some(next) = bucket.next() else { return };
            bucket = &mut self.more[next];
        }
    }

    /// Prefetches a line's first bucket.
    #[inline]
    pub(super) fn prefetch(&self, line: usize) {
        prefetch(&self.first, line / SHARED);
    }
}
