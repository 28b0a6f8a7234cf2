//! The RC table: how many LPNs share a flash page (FAST'21 §4.4).
//!
//! Invariants: `get(p) == |{ l : map[l] == p }|`; a page with count 0 is garbage. Four bits a page;
//! what exceeds them is in `overflow`, which has the pages with more than 15 owners and no others. It is
//! ordered by page, so nothing depends on hashing. The firmware refuses a remap that would exceed its
//! maximum (`count_max`). Recovery may find more owners than that (an unacknowledged overwrite was lost,
//! the remap that took its place was kept). Absent: which LPNs; only the OOB and the scheme know.

use remap_ssd_media::Ppn;
use remap_ssd_media::slab::{Slab, prefetch};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const FULL: u8 = 15;

/// Reference counts of all flash pages.
pub(crate) struct Counts {
    nibbles: Slab<u8>,
    /// Owners beyond 15, by page.
    overflow: BTreeMap<u32, u32>,
    /// Watched pages; `None` until one is watched.
    watch: RefCell<Option<Box<CountWatch>>>,
}

/// Pages whose next change is to be noted, and those that have changed.
#[derive(Default)]
struct CountWatch {
    watched: Vec<u64>,
    changed: Vec<Ppn>,
}

impl CountWatch {
    #[inline(never)]
    fn note(&mut self, ppn: Ppn) {
        let (word, bit) = (ppn.0 as usize / 64, 1 << (ppn.0 % 64));
        if let Some(watched) = self.watched.get_mut(word).filter(|word| **word & bit != 0) {
            *watched &= !bit;
            self.changed.push(ppn);
        }
    }
}

impl Counts {
    /// Counts for `pages` pages, all zero.
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            nibbles: Slab::zeroed((pages as usize).div_ceil(2)),
            overflow: BTreeMap::new(),
            watch: RefCell::new(None),
        }
    }

    /// Notes the next change of a page's count.
    pub(crate) fn watch(&self, ppn: Ppn) {
        let mut watch = self.watch.borrow_mut();
        let watched = &mut watch.get_or_insert_default().watched;
        let word = ppn.0 as usize / 64;
        if watched.len() <= word {
            watched.resize(word + 1, 0);
        }
        watched[word] |= 1 << (ppn.0 % 64);
    }

    /// Adds the watched pages whose counts have changed, and stops watching them.
    pub(crate) fn take_changed(&self, to: &mut BTreeSet<Ppn>) {
        if let Some(watch) = &mut *self.watch.borrow_mut() {
            to.extend(watch.changed.drain(..));
        }
    }

    #[inline(always)]
    fn note_change(&mut self, ppn: Ppn) {
        if let Some(watch) = self.watch.get_mut() {
            watch.note(ppn);
        }
    }

    #[inline]
    fn nibble(&self, ppn: Ppn) -> u8 {
        self.nibbles[(ppn.0 / 2) as usize] >> ((ppn.0 % 2) * 4) & 15
    }

    #[inline]
    fn set_nibble(&mut self, ppn: Ppn, value: u8) {
        let shift = (ppn.0 % 2) * 4;
        let cell = &mut self.nibbles[(ppn.0 / 2) as usize];
        *cell = *cell & !(15 << shift) | value << shift;
    }

    /// Number of LPNs that own the page.
    #[inline]
    pub(crate) fn get(&self, ppn: Ppn) -> u32 {
        let nibble = self.nibble(ppn);
        if nibble == FULL && !self.overflow.is_empty() {
            return u32::from(FULL) + self.overflow.get(&ppn.0).copied().unwrap_or(0);
        }
        u32::from(nibble)
    }

    /// Returns true if no LPN owns the page: it is garbage.
    #[inline]
    pub(crate) fn is_zero(&self, ppn: Ppn) -> bool {
        self.nibble(ppn) == 0
    }

    /// Returns true if the page has owners, but fewer than `max`.
    #[inline]
    pub(crate) fn has_room(&self, ppn: Ppn, max: u32) -> bool {
        let nibble = self.nibble(ppn);
        // 0 has no room either: a garbage page may be erased at any time, so it must not gain an
        // owner through a stale fingerprint.
        (1..max).contains(&u32::from(nibble)) && (nibble < FULL || self.get(ppn) < max)
    }

    /// Sets the number of owners.
    #[inline]
    pub(crate) fn set(&mut self, ppn: Ppn, count: u32) {
        self.note_change(ppn);
        self.set_nibble(ppn, count.min(u32::from(FULL)) as u8);
        if count > u32::from(FULL) {
            self.overflow.insert(ppn.0, count - u32::from(FULL));
        } else if !self.overflow.is_empty() {
            self.overflow.remove(&ppn.0);
        }
    }

    /// Adds an owner; returns the new count.
    #[inline]
    pub(crate) fn add(&mut self, ppn: Ppn) -> u32 {
        self.note_change(ppn);
        let shift = (ppn.0 % 2) * 4;
        let cell = &mut self.nibbles[(ppn.0 / 2) as usize];
        let nibble = *cell >> shift & 15;
        if nibble == FULL {
            return self.add_to_full(ppn);
        }

        // The neighbour's nibble is unaffected: this one is below 15, so there is no carry.
        *cell += 1 << shift;
        u32::from(nibble) + 1
    }

    #[cold]
    fn add_to_full(&mut self, ppn: Ppn) -> u32 {
        let count = self.get(ppn) + 1;
        self.set(ppn, count);
        count
    }

    /// Removes an owner; returns the new count.
    #[inline]
    pub(crate) fn sub(&mut self, ppn: Ppn) -> u32 {
        self.note_change(ppn);
        let shift = (ppn.0 % 2) * 4;
        let cell = &mut self.nibbles[(ppn.0 / 2) as usize];
        let nibble = *cell >> shift & 15;
        assert!(nibble > 0, "a page without owners lost one: {ppn:?}");
        if nibble == FULL && !self.overflow.is_empty() {
            return self.sub_from_full(ppn);
        }
        *cell -= 1 << shift;
        u32::from(nibble) - 1
    }

    #[cold]
    fn sub_from_full(&mut self, ppn: Ppn) -> u32 {
        let count = self.get(ppn) - 1;
        self.set(ppn, count);
        count
    }

    /// Moves all owners of a page to another page that has none.
    #[inline]
    pub(crate) fn hand_over(&mut self, from: Ppn, to: Ppn) {
        self.note_change(from);
        self.note_change(to);
        let shift = (from.0 % 2) * 4;
        let cell = &mut self.nibbles[(from.0 / 2) as usize];
        let nibble = *cell >> shift & 15;
        *cell &= !(15 << shift);
        self.nibbles[(to.0 / 2) as usize] |= nibble << ((to.0 % 2) * 4);
        if nibble == FULL
            && let Some(rest) = self.overflow.remove(&from.0)
        {
            self.overflow.insert(to.0, rest);
        }
    }

    /// Calls `found` with the index and the count (15 for more) of each page with owners among
    /// `len` pages from `first` on.
    #[inline(always)]
    pub(crate) fn each_owned(&self, first: Ppn, len: u32, mut found: impl FnMut(u32, u8)) {
        const LOWEST: u64 = 0x1111_1111_1111_1111;
        let mut index = 0;
        while index < len {
            let ppn = first.0 + index;
            let byte = (ppn / 2) as usize;
            // Sixteen counts at a time if they share an aligned word; most pages of a victim are
            // garbage, and a zero word is skipped at once.
            let word = match self.nibbles.get(byte..byte + 8) {
                Some(bytes) if ppn.is_multiple_of(16) && index + 16 <= len => {
                    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
                }
                _ => {
                    match self.nibble(Ppn(ppn)) {
                        0 => {}
                        count => found(index, count),
                    }
                    index += 1;
                    continue;
                }
            };

            // The lowest bit of each nibble is set if the nibble is above 0.
            let mut owned = (word | word >> 1 | word >> 2 | word >> 3) & LOWEST;
            while owned != 0 {
                let bit = owned.trailing_zeros();
                found(index + bit / 4, (word >> bit & 15) as u8);
                owned &= owned - 1;
            }

            index += 16;
        }
    }

    /// Sets the counts of `len` pages from `first` on to 0 or 1; none of them exceeds 1.
    #[inline]
    pub(crate) fn set_all(&mut self, first: Ppn, len: u32, owned: bool) {
        let value = u8::from(owned);
        let (mut at, mut end) = (first.0, first.0 + len);
        if self.watch.get_mut().is_some() {
            (at..end).for_each(|page| self.note_change(Ppn(page)));
        }
        if at < end && at % 2 == 1 {
            self.set_nibble(Ppn(at), value);
            at += 1;
        }
        if at < end && end % 2 == 1 {
            end -= 1;
            self.set_nibble(Ppn(end), value);
        }

        self.nibbles[(at / 2) as usize..(end / 2) as usize].fill(value * 0x11);
    }

    /// Prefetches a cache line.
    #[inline]
    pub(crate) fn prefetch(&self, ppn: Ppn) {
        prefetch(&self.nibbles, (ppn.0 / 2) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_their_pages_are() {
        for (first, len) in [
            (0, 64),
            (3, 40),
            (16, 16),
            (17, 1),
            (5, 0),
            (31, 34),
            (48, 19),
        ] {
            let mut counts = Counts::new(67);
            (0..67).for_each(|page| counts.set(Ppn(page), page * 7 % 5));

            let mut found = Vec::new();
            counts.each_owned(Ppn(first), len, |index, count| {
                found.push((first + index, u32::from(count)))
            });
            let each = (first..first + len).map(|page| (page, page * 7 % 5));
            assert_eq!(
                found,
                each.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
            );

            for owned in [true, false] {
                counts.set_all(Ppn(first), len, owned);
                for page in 0..67 {
                    let inside = (first..first + len).contains(&page);
                    let expected = if inside {
                        u32::from(owned)
                    } else {
                        page * 7 % 5
                    };
                    assert_eq!(
                        counts.get(Ppn(page)),
                        expected,
                        "page {page} of {first} + {len}"
                    );
                }
            }
        }
    }

    /// Counts far beyond the counter, of pages that share a byte, against a list.
    #[test]
    fn counts_beyond_four_bits_are_what_a_list_says() {
        const PAGES: u32 = 7;
        let mut counts = Counts::new(PAGES);
        let mut model = [0_u32; PAGES as usize];
        let mut most = 0;
        let mut state = 1_u64;
        let mut below = |end: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (((state >> 32) * u64::from(end)) >> 32) as u32
        };

        for step in 0..40_000 {
            let at = below(PAGES) as usize;
            let page = Ppn(at as u32);
            let grows = below(5) < if step / 5000 % 2 == 0 { 4 } else { 1 };
            let unowned = model.iter().position(|count| *count == 0);
            if let Some(to) = unowned.filter(|to| *to != at && below(200) == 0) {
                counts.hand_over(page, Ppn(to as u32));
                model.swap(at, to);
            } else if grows {
                model[at] += 1;
                assert_eq!(counts.add(page), model[at]);
            } else if model[at] > 0 {
                model[at] -= 1;
                assert_eq!(counts.sub(page), model[at]);
            }

            for (page, count) in (0..).map(Ppn).zip(model) {
                assert_eq!(counts.get(page), count);
                assert_eq!(counts.has_room(page, 300), (1..300).contains(&count));
            }
            most = most.max(model.into_iter().max().expect("pages"));
            let beyond = model.iter().filter(|count| **count > 15).count();
            assert_eq!(counts.overflow.len(), beyond);
        }
        assert!(most > 300);
    }
}
