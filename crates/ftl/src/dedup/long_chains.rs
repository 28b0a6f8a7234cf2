//! Chains of spilled pages that are too long to scan: one content on many pages.
//!
//! An exact store lists all pages of a content, all but one or two of them full of references.
//! `SpilledTable` scans a chain; here indices give the same results. They preserve the order of the
//! cells, and the fill level that the last bucket would have, which determines when stale pages are
//! dropped.
//!
//! Invariants: a cell is in `holders` under its page's count, unless the count is 0, the page was
//! found to hold another content, or the page is in `changed` (or noted by `Counts`); a cell that
//! is not in `suspects` was live when last checked, and its page's count has not changed since. A
//! page changes its content only while nothing owns it. Absent: the contents of pages.

use super::spilled_cell::{CELLS, FREE_CELLS_MIN, SpilledCell};
use crate::mapping::counts::Counts;
use remap_ssd_media::Ppn;
use std::collections::{BTreeMap, BTreeSet};

/// A cell: the number of its chain, and its rank among all cells.
type CellId = (u32, u64);

/// All long chains of a store.
#[derive(Default)]
pub(super) struct LongChains {
    chains: BTreeMap<u32, LongChain>,
    cells: BTreeMap<CellId, LongCell>,
    next: u64,
    /// Page, chain, key, order.
    by_page: BTreeSet<(Ppn, u32, u32, u64)>,
    /// Chain, key, order.
    by_key: BTreeSet<(u32, u32, u64)>,
    /// Chain, key, count, order.
    holders: BTreeSet<(u32, u32, u32, u64)>,
    suspects: BTreeSet<CellId>,
    /// Pages to check again.
    changed: BTreeSet<Ppn>,
    /// Number of cell accesses so far: a measure of the cost.
    looks: u64,
}

#[derive(Default)]
struct LongChain {
    len: usize,
    /// Cells in the last bucket that the chain would have.
    last_used: usize,
}

struct LongCell {
    key: u32,
    ppn: Ppn,
    /// The count under which it is in `holders`; 0 if it is not.
    held: u32,
}

impl LongChains {
    #[inline]
    pub(super) fn has(&self, chain: u32) -> bool {
        !self.chains.is_empty() && self.chains.contains_key(&chain)
    }

    /// Number of cell accesses so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Takes over a chain that has become long: its cells in order, and the number of cells in its
    /// last bucket.
    pub(super) fn adopt(&mut self, chain: u32, cells: &[SpilledCell], last_used: usize) {
        self.chains.insert(chain, LongChain { len: 0, last_used });
        cells.iter().for_each(|cell| self.insert(chain, *cell));
    }

    /// Adds a cell unless it exists.
    pub(super) fn add(&mut self, chain: u32, cell: SpilledCell) {
        if self.first(chain, cell).is_some() {
            return;
        }
        if let Some(of) = self.chains.get_mut(&chain) {
            of.last_used = of.last_used % CELLS + 1;
        }
        self.insert(chain, cell);
    }

    fn insert(&mut self, chain: u32, cell: SpilledCell) {
        let (key, ppn, order) = (cell.key(), cell.ppn(), self.next);
        self.next += 1;
        self.cells
            .insert((chain, order), LongCell { key, ppn, held: 0 });
        self.by_page.insert((ppn, chain, key, order));
        self.by_key.insert((chain, key, order));
        self.changed.insert(ppn);
        if let Some(of) = self.chains.get_mut(&chain) {
            of.len += 1;
        }
    }

    /// The order of the first identical cell.
    fn first(&mut self, chain: u32, cell: SpilledCell) -> Option<u64> {
        self.looks += 1;
        let (ppn, key) = (cell.ppn(), cell.key());
        let mut same = self
            .by_page
            .range((ppn, chain, key, 0)..=(ppn, chain, key, u64::MAX));
        same.next().map(|(.., order)| *order)
    }

    /// Returns true if the last bucket would have no free cell.
    pub(super) fn is_full(&self, chain: u32) -> bool {
        self.chains
            .get(&chain)
            .is_some_and(|of| of.last_used == CELLS)
    }

    /// Adds a bucket if few cells are free.
    pub(super) fn make_room(&mut self, chain: u32) {
        if let Some(of) = self.chains.get_mut(&chain)
            && CELLS - of.last_used < FREE_CELLS_MIN
        {
            of.last_used = 0;
        }
    }

    /// The distinct keys of a chain.
    pub(super) fn keys(&self, chain: u32) -> impl Iterator<Item = u32> {
        let first_from = move |key: u32| {
            let mut rest = self.by_key.range((chain, key, 0)..(chain + 1, 0, 0));
            rest.next().map(|(_, key, _)| *key)
        };
        std::iter::successors(first_from(0), move |key| first_from(key + 1))
    }

    /// Updates a cell whose page has moved.
    pub(super) fn moved(&mut self, chain: u32, from: SpilledCell, to: SpilledCell) {
        let Some(order) = self.first(chain, from) else {
            return;
        };
        self.let_go((chain, order));
        self.by_page.remove(&(from.ppn(), chain, from.key(), order));
        self.by_page.insert((to.ppn(), chain, to.key(), order));
        if let Some(cell) = self.cells.get_mut(&(chain, order)) {
            cell.ppn = to.ppn();
        }
        self.changed.insert(to.ppn());
    }

    /// Notes that the content of a page has become known or has changed.
    pub(super) fn note_content(&mut self, ppn: Ppn) {
        if !self.chains.is_empty() && self.cells_of(ppn).next().is_some() {
            self.changed.insert(ppn);
        }
    }

    /// The page with the fewest owners that satisfies `is_same`, and its count; of several the
    /// first in the chain. `is_live`: the page holds that content, or another one with the tag.
    pub(super) fn find(
        &mut self,
        (chain, key): (u32, u32),
        counts: &Counts,
        is_same: impl Fn(Ppn) -> bool,
        is_live: impl Fn(Ppn) -> bool,
    ) -> Option<(u32, Ppn)> {
        self.refresh(counts);
        let mut from = (chain, key, 1, 0);
        loop {
            self.looks += 1;
            let mut held = self.holders.range(from..(chain, key + 1, 0, 0));
            let &(.., count, order) = held.next()?;
            let ppn = self.cells.get(&(chain, order))?.ppn;
            if is_same(ppn) {
                return Some((count, ppn));
            }
            // Two contents with one tag are rare. A cell that is not live is not checked again
            // until its count changes: its page keeps its content until then.
            from = (chain, key, count, order + 1);
            if !is_live(ppn) {
                self.let_go((chain, order));
            }
        }
    }

    /// Drops the cells that are not live: those of one key, or all suspects.
    pub(super) fn drop_stale(
        &mut self,
        chain: u32,
        key: Option<u32>,
        counts: &Counts,
        is_live: impl Fn(SpilledCell) -> bool,
    ) {
        self.refresh(counts);
        let orders: Vec<u64> = match key {
            Some(key) => {
                let cells = self.by_key.range((chain, key, 0)..=(chain, key, u64::MAX));
                cells.map(|(.., order)| *order).collect()
            }
            None => {
                let cells = self.suspects.range((chain, 0)..=(chain, u64::MAX));
                cells.map(|(_, order)| *order).collect()
            }
        };

        for order in orders {
            self.looks += 1;
            let Some(cell) = self.cells.get(&(chain, order)) else {
                continue;
            };
            if is_live(SpilledCell::of_key(cell.key, cell.ppn)) {
                self.suspects.remove(&(chain, order));
            } else {
                self.remove((chain, order));
            }
        }
        self.compact(chain);
    }

    /// Drops the cells of a page whose keys are in a range.
    pub(super) fn drop_page(&mut self, chain: u32, keys: std::ops::Range<u32>, ppn: Ppn) {
        let cells = self
            .by_page
            .range((ppn, chain, keys.start, 0)..(ppn, chain, keys.end, 0));
        let orders: Vec<u64> = cells.map(|(.., order)| *order).collect();
        orders
            .into_iter()
            .for_each(|order| self.remove((chain, order)));
        self.compact(chain);
    }

    /// Sets the fill level as after rewriting the cells into as few buckets as possible.
    fn compact(&mut self, chain: u32) {
        if let Some(of) = self.chains.get_mut(&chain) {
            let buckets = of.len.div_ceil(CELLS).max(1);
            of.last_used = of.len - (buckets - 1) * CELLS;
        }
    }

    fn remove(&mut self, id: CellId) {
        self.let_go(id);
        self.suspects.remove(&id);
        let (chain, order) = id;
        if let Some(LongCell { key, ppn, .. }) = self.cells.remove(&id) {
            self.by_page.remove(&(ppn, chain, key, order));
            self.by_key.remove(&(chain, key, order));
            if let Some(of) = self.chains.get_mut(&chain) {
                of.len -= 1;
            }
        }
    }

    fn let_go(&mut self, (chain, order): CellId) {
        if let Some(cell) = self.cells.get_mut(&(chain, order)) {
            self.holders.remove(&(chain, cell.key, cell.held, order));
            cell.held = 0;
        }
    }

    /// Checks the pages whose counts have changed, and watches for their next change.
    fn refresh(&mut self, counts: &Counts) {
        let mut changed = std::mem::take(&mut self.changed);
        counts.take_changed(&mut changed);

        for ppn in changed {
            let found: Vec<CellId> = self.cells_of(ppn).collect();
            if found.is_empty() {
                continue;
            }

            counts.watch(ppn);
            let count = counts.get(ppn);
            for id in found {
                self.looks += 1;
                self.let_go(id);
                self.suspects.insert(id);
                if let Some(cell) = self.cells.get_mut(&id).filter(|_| count > 0) {
                    cell.held = count;
                    self.holders.insert((id.0, cell.key, count, id.1));
                }
            }
        }
    }

    /// The cells of a page in all chains.
    fn cells_of(&self, ppn: Ppn) -> impl Iterator<Item = CellId> {
        let cells = self
            .by_page
            .range((ppn, 0, 0, 0)..=(ppn, u32::MAX, u32::MAX, u64::MAX));
        cells.map(|(_, chain, _, order)| (*chain, *order))
    }
}
