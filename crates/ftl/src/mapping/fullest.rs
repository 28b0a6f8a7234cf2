//! Blocks sorted by their number of extension entries: finds the one with the most in constant
//! time.
//!
//! One list for each number; the block that has had it longest comes first. Invariant: a block with
//! entries is in the list of its number, and one without is in none. Absent: the entries.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct FullestLink {
    entries: u32,
    before: u32,
    after: u32,
}

/// Lists of blocks by their number of entries.
pub(super) struct FullestBlocks {
    links: Vec<FullestLink>,
    /// First and last block of each list.
    ends: Vec<(u32, u32)>,
    /// Upper bound of the numbers whose list has a block.
    top: usize,
}

impl FullestBlocks {
    /// `blocks` blocks without entries, each with at most `entries_max`.
    pub(super) fn new(blocks: u32, entries_max: u32) -> Self {
        let link = FullestLink {
            entries: 0,
            before: NONE,
            after: NONE,
        };
        Self {
            links: vec![link; blocks as usize],
            ends: vec![(NONE, NONE); entries_max as usize + 1],
            top: 0,
        }
    }

    /// Number of extension entries of a block.
    pub(super) fn entries(&self, block: u32) -> u32 {
        self.links[block as usize].entries
    }

    /// Sets a block's number of entries.
    pub(super) fn set(&mut self, block: u32, entries: u32) {
        let FullestLink {
            entries: old,
            before,
            after,
        } = self.links[block as usize];
        if old > 0 {
            match before {
                NONE => self.ends[old as usize].0 = after,
                before => self.links[before as usize].after = after,
            }
            match after {
                NONE => self.ends[old as usize].1 = before,
                after => self.links[after as usize].before = before,
            }
        }

        // At the end of its new list: of blocks with equally many entries the one that has had them
        // longest is merged first.
        let last = if entries > 0 {
            self.ends[entries as usize].1
        } else {
            NONE
        };
        self.links[block as usize] = FullestLink {
            entries,
            before: last,
            after: NONE,
        };
        if entries > 0 {
            match last {
                NONE => self.ends[entries as usize].0 = block,
                last => self.links[last as usize].after = block,
            }
            self.ends[entries as usize].1 = block;
            self.top = self.top.max(entries as usize);
        }
        // Amortized constant: each step down undoes an earlier step up.
        while self.top > 0 && self.ends[self.top].0 == NONE {
            self.top -= 1;
        }
    }

    /// The block other than `but` with the most entries, and their number; `None` if no other has
    /// any.
    pub(super) fn first(&self, but: Option<u32>) -> Option<(u32, u32)> {
        (1..=self.top).rev().find_map(|entries| {
            let first = self.ends[entries].0;
            let second = if first == NONE {
                NONE
            } else {
                self.links[first as usize].after
            };
            let found = if Some(first) == but { second } else { first };
            (found != NONE).then_some((found, entries as u32))
        })
    }
}
