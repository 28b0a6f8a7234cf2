//! The baseline: the cost of an FTL that consists only of arrays.
//!
//! L2P, P2L, nibble reference counts and greedy garbage collection in one flat loop, with the same
//! prefetching as the firmware: no metadata, no persistence, no remaps, no contents, no time. Any
//! additional time of the firmware is the price of these features.
//!
//! Invariants: a page is live if its count is not 0, and then `l2p[p2l[page]] == page`; at least
//! one superblock is free after each write. Absent: everything else.

use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{Geometry, Lpn, Ppn, SbId};

/// Entry of an unmapped LPN in `l2p`.
const NONE: u32 = 0;

/// Prefetch distance of garbage collection, in pages.
const COLLECT_AHEAD: usize = 16;

/// The arrays needed for bare remapping.
pub(crate) struct Bare {
    geometry: Geometry,
    /// Page number plus one, so that zeroed memory maps nothing.
    l2p: Slab<u32>,
    p2l: Slab<u32>,
    /// Counters of two pages per byte.
    counts: Slab<u8>,
    live: Vec<u32>,
    closed: Vec<bool>,
    free: Vec<u32>,
    /// Garbage collection starts at this number of free superblocks.
    gc_start: usize,
    host: Cursor,
    gc: Cursor,
    /// LPNs of the victim's live pages.
    moving: Vec<Lpn>,
    /// Number of pages moved so far.
    pub moves: u64,
}

/// Write position of a stream.
#[derive(Clone, Copy)]
struct Cursor {
    next: u32,
    end: u32,
}

impl Bare {
    /// Creates the arrays of a device whose pages are all free.
    pub(crate) fn new(geometry: Geometry, lpns: u32, gc_start: u32) -> Self {
        let superblocks = geometry.superblocks();
        Self {
            geometry,
            l2p: Slab::zeroed(lpns as usize),
            p2l: Slab::zeroed(geometry.pages() as usize),
            counts: Slab::zeroed(geometry.pages().div_ceil(2) as usize),
            live: vec![0; superblocks as usize],
            closed: vec![false; superblocks as usize],
            free: (0..superblocks).rev().collect(),
            gc_start: gc_start as usize,
            host: Cursor { next: 0, end: 0 },
            gc: Cursor { next: 0, end: 0 },
            moving: Vec::with_capacity(geometry.pages_per_superblock() as usize),
            moves: 0,
        }
    }

    /// Prefetch for a write of this LPN about 16 writes ahead.
    #[inline(always)]
    pub(crate) fn look_ahead_far(&self, lpn: Lpn) {
        prefetch(&self.l2p, lpn.index());
    }

    /// Prefetch for a write of this LPN about 8 writes ahead.
    #[inline(always)]
    pub(crate) fn look_ahead_near(&self, lpn: Lpn) {
        prefetch(
            &self.counts,
            self.l2p[lpn.index()].wrapping_sub(1) as usize / 2,
        );
    }

    /// Writes one page, and runs garbage collection if needed.
    #[inline(always)]
    pub(crate) fn write(&mut self, lpn: Lpn) {
        let old = self.l2p[lpn.index()];
        // The old page is released first, so that garbage collection finds it dead.
        if old != NONE {
            self.release(old - 1);
        }
        if self.host.next == self.host.end {
            self.host = self.open(self.host);
            // Garbage collection stops at the limit, or when every superblock is full of live
            // pages.
            while self.free.len() <= self.gc_start && self.collect() {}
        }
        let page = self.host.next;
        self.host.next += 1;
        self.place(lpn, page);
    }

    #[inline(always)]
    fn place(&mut self, lpn: Lpn, page: u32) {
        self.l2p[lpn.index()] = page + 1;
        self.p2l[page as usize] = lpn.0;
        self.counts[page as usize / 2] += 1 << (4 * (page % 2));
        self.live[self.geometry.superblock(Ppn(page)).0 as usize] += 1;
    }

    #[inline(always)]
    fn release(&mut self, page: u32) {
        let shift = 4 * (page % 2);
        let pair = self.counts[page as usize / 2] - (1 << shift);
        self.counts[page as usize / 2] = pair;
        if pair >> shift & 15 == 0 {
            self.live[self.geometry.superblock(Ppn(page)).0 as usize] -= 1;
        }
    }

    fn open(&mut self, full: Cursor) -> Cursor {
        // A cursor that was never opened has no superblock to close.
        if full.end > 0 {
            self.closed[self.geometry.superblock(Ppn(full.end - 1)).0 as usize] = true;
        }
        let sb = self.free.pop().expect("collection keeps superblocks free");
        let next = self.geometry.page(SbId(sb), 0).0;
        Cursor {
            next,
            end: next + self.geometry.pages_per_superblock(),
        }
    }

    /// Collects the closed superblock with the fewest live pages; `false` if all are full.
    #[inline(never)]
    fn collect(&mut self) -> bool {
        let closed = (0..self.live.len()).filter(|sb| self.closed[*sb]);
        let Some(victim) = closed.min_by_key(|sb| self.live[*sb]) else {
            return false;
        };

        let pages = self.geometry.pages_per_superblock();
        // Even the emptiest is full: moving it would gain nothing.
        if self.live[victim] == pages {
            return false;
        }

        let first = self.geometry.page(SbId(victim as u32), 0).0;

        // Two passes, so that table entries are prefetched before use.
        self.moving.clear();
        for page in first..first + pages {
            if self.counts[page as usize / 2] >> (4 * (page % 2)) & 15 != 0 {
                self.moving.push(Lpn(self.p2l[page as usize]));
            }
        }

        for at in 0..self.moving.len() {
            if let Some(ahead) = self.moving.get(at + COLLECT_AHEAD) {
                prefetch(&self.l2p, ahead.index());
            }

            let lpn = self.moving[at];
            // Released before it is placed: its count is briefly 0, which is not observed.
            self.release(self.l2p[lpn.index()] - 1);

            if self.gc.next == self.gc.end {
                self.gc = self.open(self.gc);
            }

            let page = self.gc.next;
            self.gc.next += 1;
            self.place(lpn, page);
        }

        self.moves += self.moving.len() as u64;
        self.closed[victim] = false;
        self.free.push(victim as u32);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remap_ssd_media::geometry::Shape;

    /// Checks all tables for consistency.
    fn check(bare: &Bare) {
        let mut live = vec![0; bare.live.len()];

        // Each mapped page points back, and is counted once.
        for (lpn, page) in bare
            .l2p
            .iter()
            .enumerate()
            .filter(|(_, page)| **page != NONE)
        {
            let page = page - 1;
            assert_eq!(bare.p2l[page as usize] as usize, lpn, "page {page}");
            assert_eq!(
                bare.counts[page as usize / 2] >> (4 * (page % 2)) & 15,
                1,
                "page {page}"
            );

            live[bare.geometry.superblock(Ppn(page)).0 as usize] += 1;
        }
        assert_eq!(live, bare.live);

        // Unmapped pages have a count of 0.
        let total: u32 = bare
            .counts
            .iter()
            .map(|pair| u32::from(pair & 15) + u32::from(pair >> 4))
            .sum();
        assert_eq!(total, live.iter().sum::<u32>());
    }

    #[test]
    fn the_arrays_agree_after_many_collections() {
        let shape = Shape {
            channels: 1,
            dies: 2,
            superblocks: 40,
            pages_per_block: 16,
        };
        let geometry = Geometry::new(shape).unwrap();
        let mut bare = Bare::new(geometry, 1000, 4);
        let mut lpn = 1u32;
        for _ in 0..50_000 {
            lpn = lpn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bare.write(Lpn((lpn >> 8) % 1000));
        }
        check(&bare);
        assert!(bare.moves > 1000, "{}", bare.moves);
    }
}
