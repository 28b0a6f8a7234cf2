//! Live pages whose fingerprints found no slot in their line.
//!
//! An exact store finds duplicates of them here. Other stores use the list only to count the duplicates that they miss.
//!
//! Invariants: a listed page may be garbage by now, and is dropped when its line is next searched; a line without pages
//! has no list. Absent: what a page holds, and whether it is live (the store checks); which lines to skip (the line's
//! own spill bits).

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::Slab;

/// A page and the tag of what it held when it spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpilledPage {
    pub tag: u32,
    pub ppn: Ppn,
}

pub(super) struct Spilled {
    /// By line: the number of its list plus one, or 0.
    heads: Slab<u32>,
    lists: Vec<Vec<SpilledPage>>,
    /// Unused lists, kept for their memory.
    free: Vec<u32>,
}

impl Spilled {
    pub fn new(lines: usize) -> Self {
        Self { heads: Slab::zeroed(lines), lists: Vec::new(), free: Vec::new() }
    }

    fn list(&mut self, line: usize) -> Option<&mut Vec<SpilledPage>> {
        self.heads[line].checked_sub(1).map(|head| &mut self.lists[head as usize])
    }

    /// The pages that a line has spilled.
    pub fn pages(&self, line: usize) -> &[SpilledPage] {
        self.heads[line].checked_sub(1).map_or(&[], |head| &self.lists[head as usize])
    }

    pub fn add(&mut self, line: usize, page: SpilledPage) {
        if self.heads[line] == 0 {
            let head = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                self.lists.len() as u32 - 1
            });
            self.heads[line] = head + 1;
        }
        if let Some(list) = self.list(line) {
            list.retain(|other| other.ppn != page.ppn);
            list.push(page);
        }
    }

    /// Drops the pages of a line that are not to be kept.
    pub fn retain(&mut self, line: usize, mut keep: impl FnMut(Ppn) -> bool) {
        let Some(list) = self.list(line) else { return };
        list.retain(|page| keep(page.ppn));
        if list.is_empty() {
            self.free.push(self.heads[line] - 1);
            self.heads[line] = 0;
        }
    }

    /// A page of a line has moved.
    pub fn moved(&mut self, line: usize, from: Ppn, to: Ppn) {
        let page = self.list(line).and_then(|list| list.iter_mut().find(|page| page.ppn == from));
        if let Some(page) = page {
            page.ppn = to;
        }
    }
}
