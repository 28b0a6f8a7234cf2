//! The signature table in memory: finds addresses by the signature of their content.
//!
//! An entry is an address and its signature; entries with the same signature form a list. A copy is
//! made from the head, which is the newest: if an older page has reached the device's share limit
//! and was written or copied in full again, later copies use a page with a fresh counter. When the
//! table is full, a clock evicts entries that were not used since the hand last passed.
//!
//! Invariants: an address has at most one entry; an entry is in the list of its signature. Absent:
//! pages and disks; dependence on the iteration order of hash maps.

use crate::signature::Signature;
use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    signature: Signature,
    lba: u32,
    next: u32,
    previous: u32,
    /// Copied from, or entered, since the hand last passed.
    used: bool,
    free: bool,
    /// Known number of addresses that share its page, this one included.
    shared: u8,
}

/// An address that holds the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub lba: u32,
    /// Known number of addresses that share its page.
    pub shared: u8,
}

/// Addresses by signature, and signatures by address.
pub(super) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_lba: FxHashMap<u32, u32>,
    newest: FxHashMap<Signature, u32>,
    limit: usize,
    hand: usize,
    discarded: u64,
}

impl Table {
    /// Creates an empty table with at most `limit` entries.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_lba: FxHashMap::default(),
            newest: FxHashMap::default(),
            limit: limit.max(1) as usize,
            hand: 0,
            discarded: 0,
        }
    }

    /// Entries evicted.
    pub(super) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Returns an address with content of this signature.
    pub(super) fn find(&mut self, signature: &Signature) -> Option<Source> {
        let entry = &mut self.entries[*self.newest.get(signature)? as usize];
        // Sources of copies are worth keeping when the table is full.
        entry.used = true;
        Some(Source {
            lba: entry.lba,
            shared: entry.shared,
        })
    }

    /// Returns the signature of an address's content.
    pub(super) fn signature(&self, lba: u32) -> Option<Signature> {
        Some(self.entries[*self.by_lba.get(&lba)? as usize].signature)
    }

    /// Removes an address whose content is about to change.
    pub(super) fn leave(&mut self, lba: u32) {
        let Some(at) = self.by_lba.remove(&lba) else {
            return;
        };
        let Entry {
            signature,
            next,
            previous,
            ..
        } = self.entries[at as usize];

        // The entry may be alone, the newest, the oldest or in between.
        match (previous, next) {
            (NONE, NONE) => drop(self.newest.remove(&signature)),
            (NONE, next) => drop(self.newest.insert(signature, next)),
            (previous, next) => self.entries[previous as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        self.entries[at as usize].free = true;
        self.free.push(at);
    }

    /// Adds an address with its signature and the number of addresses that share its page.
    pub(super) fn enter(&mut self, lba: u32, signature: Signature, shared: u8) {
        // An address has one entry: the old one goes first, and its slot may be reused at once.
        self.leave(lba);
        // Evict before the insertion, so that memory never exceeds the limit.
        if self.by_lba.len() >= self.limit {
            self.discard();
        }

        let at = self.free.pop().unwrap_or(self.entries.len() as u32);
        let next = self.newest.insert(signature, at).unwrap_or(NONE);

        let entry = Entry {
            signature,
            lba,
            next,
            previous: NONE,
            used: true,
            free: false,
            shared,
        };

        match self.entries.get_mut(at as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }

        if next != NONE {
            self.entries[next as usize].previous = at;
        }
        self.by_lba.insert(lba, at);
    }

    fn discard(&mut self) {
        // Ends within two rounds: the first one clears every mark. There is an entry, since the
        // limit is at least 1.
        loop {
            let next = (self.hand + 1) % self.entries.len();
            let entry = &mut self.entries[self.hand];

            // Each used entry survives one more round.
            self.hand = next;
            if entry.free {
                continue;
            }
            if !std::mem::take(&mut entry.used) {
                let lba = entry.lba;
                self.leave(lba);
                self.discarded += 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(number: u8) -> Signature {
        [number; 16]
    }

    fn found(table: &mut Table, number: u8) -> Option<u32> {
        table.find(&signature(number)).map(|source| source.lba)
    }

    #[test]
    fn addresses_of_one_content_are_found_newest_first_until_they_leave() {
        let mut table = Table::new(10);
        (0..3).for_each(|lba| table.enter(lba, signature(1), 1));
        table.enter(9, signature(2), 1);
        assert_eq!(found(&mut table, 1), Some(2));
        table.leave(1);
        table.leave(2);
        assert_eq!((found(&mut table, 1), table.signature(2)), (Some(0), None));
        table.enter(0, signature(2), 1);
        assert_eq!(
            (found(&mut table, 1), found(&mut table, 2)),
            (None, Some(0))
        );
        table.leave(0);
        assert_eq!(found(&mut table, 2), Some(9));
    }

    #[test]
    fn a_full_table_gives_up_what_was_not_copied_from() {
        let mut table = Table::new(4);
        (0..4).for_each(|lba| table.enter(lba, signature(lba as u8 + 1), 1));

        table.enter(4, signature(5), 1);
        assert_eq!(
            (found(&mut table, 1), table.discarded()),
            (None, 1),
            "all were new: the first goes"
        );

        assert_eq!(found(&mut table, 2), Some(1));

        table.enter(5, signature(6), 1);
        assert_eq!(
            (found(&mut table, 2), found(&mut table, 3)),
            (Some(1), None),
            "the second was used"
        );

        for lba in 10..1000 {
            table.enter(lba, signature(lba as u8), 1);
            assert!(table.by_lba.len() <= 4 && table.entries.len() <= 4);
        }
    }
}
