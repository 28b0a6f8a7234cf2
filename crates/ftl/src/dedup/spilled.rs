//! Live pages whose fingerprints found no slot in their line.
//!
//! An exact store finds duplicates of them here. Other stores use the list only to count the
//! duplicates that they miss.
//!
//! A few lines share a bucket of one cache line, so that its address follows from the line's
//! number, and it can be prefetched. A bucket with more pages than it has room for goes on in
//! others, which are taken when they are needed: a device full of contents of their own spills a
//! seventh of its pages, and one with many duplicates nearly none.
//!
//! Invariants: a listed page may be garbage, or hold something else by now (the store drops those
//! when it looks for their tag, or needs room); a line lists a page once for each tag; the cells of
//! a chain of buckets have no gaps. Absent: what a page holds, and whether it is live (the store
//! checks); which lines to skip (the line's own spill bits).

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::{Slab, prefetch};

/// Lines that share a chain of buckets.
const SHARED: usize = 4;
/// Pages that a bucket has room for.
const CELLS: usize = 7;
/// A chain in which fewer cells are free, after stale pages were dropped, gets another bucket: or
/// else it would be searched for stale pages again very soon.
const FREE_CELLS_MIN: usize = 3;
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

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct SpilledBucket {
    cells: [SpilledCell; CELLS],
    /// Where the chain goes on: a number of `more`, plus one; 0 is its end.
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

    /// What its cells hold, up to the first empty one.
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
    /// All others, and which of them belong to no chain.
    more: Vec<SpilledBucket>,
    unused: Vec<usize>,
    /// What is left of a chain while stale pages are dropped.
    kept: Vec<SpilledCell>,
}

impl SpilledTable {
    pub fn new(lines: usize) -> Self {
        Self {
            first: Slab::zeroed(lines.div_ceil(SHARED)),
            more: Vec::new(),
            unused: Vec::new(),
            kept: Vec::new(),
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

    /// The last bucket of a line's chain: the only one that can have a free cell.
    fn last(&mut self, line: usize) -> &mut SpilledBucket {
        match self.chain(line).filter_map(SpilledBucket::next).last() {
            Some(at) => &mut self.more[at],
            None => &mut self.first[line / SHARED],
        }
    }

    /// The pages that a line has spilled.
    pub fn pages(&self, line: usize) -> impl Iterator<Item = SpilledPage> {
        let cells = self.cells(line);
        let is_of_line = move |cell: &SpilledCell| cell.line() == line % SHARED;
        cells.filter(is_of_line).map(SpilledCell::spilled)
    }

    /// The pages of all lines that share this line's chain.
    pub fn pages_of_chain(&self, line: usize) -> impl Iterator<Item = Ppn> {
        self.cells(line).map(|cell| cell.spilled().ppn)
    }

    pub fn add(&mut self, line: usize, page: SpilledPage) {
        // A stale page of this line may have the same page number, but another tag. Either may be
        // the live one.
        let cell = SpilledCell::new(line, page);
        if self.cells(line).any(|other| other == cell) {
            return;
        }

        if self.is_full(line) {
            self.lengthen(line);
        }
        let cells = &mut self.last(line).cells;
        if let Some(empty) = cells.iter_mut().find(|cell| **cell == EMPTY) {
            *empty = cell;
        }
    }

    /// Is there no free cell in a line's chain? Then stale pages should be dropped.
    pub fn is_full(&self, line: usize) -> bool {
        self.chain(line)
            .last()
            .is_some_and(|bucket| bucket.free_cells() == 0)
    }

    /// Adds a bucket to a line's chain where few cells are free.
    pub fn make_room(&mut self, line: usize) {
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
    }

    /// Drops the pages of a line that are not to be kept.
    pub fn retain(&mut self, line: usize, mut keep: impl FnMut(SpilledPage) -> bool) {
        self.retain_all(line, |other, page| other != line || keep(page));
    }

    /// Drops the pages that are not to be kept of all lines that share this line's chain.
    pub fn retain_all(&mut self, line: usize, mut keep: impl FnMut(usize, SpilledPage) -> bool) {
        let first_line = line / SHARED * SHARED;
        let mut kept = std::mem::take(&mut self.kept);
        kept.clear();
        let stays = |cell: &SpilledCell| keep(first_line + cell.line(), cell.spilled());
        kept.extend(self.cells(line).filter(stays));

        self.refill(line, &kept);
        self.kept = kept;
    }

    /// Fills a line's chain with so many cells, and shortens it to what they need.
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

        // What is left of the chain is empty now.
        let mut next = std::mem::take(&mut bucket.next);
        while let Some(at) = (next as usize).checked_sub(1) {
            let bucket = std::mem::replace(&mut self.more[at], SpilledBucket::EMPTY);
            next = bucket.next;
            self.unused.push(at);
        }
    }

    /// A page of a line has moved. The tag tells it from a stale one that was entered with the same
    /// page number.
    pub fn moved(&mut self, line: usize, tag: u32, from: Ppn, to: Ppn) {
        let [from, to] = [from, to].map(|ppn| SpilledCell::new(line, SpilledPage { tag, ppn }));
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

    /// Asks for a line's first bucket.
    #[inline]
    pub fn prefetch(&self, line: usize) {
        prefetch(&self.first, line / SHARED);
    }
}
