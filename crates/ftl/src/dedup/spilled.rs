//! Live pages whose fingerprints found no slot in their line.
//!
//! With an exact store they are found here. Otherwise nothing is found here: they are known only so that the duplicates
//! that the store misses can be counted.
//! Invariants: a page may be listed that is garbage by now, and whoever looks at its line drops it; a line without pages
//! has no list. Absent: what a page holds, and whether it is live (the store asks).

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::prefetch;
use std::collections::BTreeMap;

/// A page and the tag of what it held when it spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpilledPage {
    pub tag: u32,
    pub ppn: Ppn,
}

pub(super) struct Spilled {
    lists: BTreeMap<usize, Vec<SpilledPage>>,
    /// One bit a line: has it a list? Most have none, and need not ask the tree.
    bits: Vec<u64>,
}

impl Spilled {
    pub fn new(lines: usize) -> Self {
        Self { lists: BTreeMap::new(), bits: vec![0; lines.div_ceil(64)] }
    }

    /// Has a line spilled any page?
    #[inline(always)]
    pub fn has(&self, line: usize) -> bool {
        self.bits[line / 64] >> (line % 64) & 1 == 1
    }

    /// Asks for what `has` will look at.
    #[inline(always)]
    pub fn prefetch(&self, line: usize) {
        prefetch(&self.bits, line / 64);
    }

    /// What a line has spilled.
    pub fn pages(&self, line: usize) -> &[SpilledPage] {
        self.lists.get(&line).map_or(&[], Vec::as_slice)
    }

    pub fn add(&mut self, line: usize, page: SpilledPage) {
        let list = self.lists.entry(line).or_default();
        list.retain(|other| other.ppn != page.ppn);
        list.push(page);
        self.bits[line / 64] |= 1 << (line % 64);
    }

    /// Drops the pages of a line that are not to be kept.
    pub fn retain(&mut self, line: usize, mut keep: impl FnMut(Ppn) -> bool) {
        let Some(list) = self.lists.get_mut(&line) else { return };
        list.retain(|page| keep(page.ppn));
        if list.is_empty() {
            self.lists.remove(&line);
            self.bits[line / 64] &= !(1 << (line % 64));
        }
    }

    /// A page of a line has moved.
    pub fn moved(&mut self, line: usize, from: Ppn, to: Ppn) {
        let list = self.lists.get_mut(&line);
        if let Some(page) = list.and_then(|list| list.iter_mut().find(|page| page.ppn == from)) {
            page.ppn = to;
        }
    }
}
