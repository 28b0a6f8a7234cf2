//! The mapping cache: the part of L2P for which a controller with little DRAM has room (DFTL, ASPLOS'09).
//!
//! The table itself is on flash, in *translation pages* of consecutive entries. The cache holds single entries,
//! and evicts the least recently used one. An entry that has changed since its translation page was
//! programmed is *dirty*. Before it can leave, the page is programmed, with all changes of its entries at once.
//!
//! Here L2P stays in memory: it is the truth, and the cache decides which reads and programs of flash a
//! controller would need. Commands may exceed the capacity until the next one makes room.
//!
//! Invariants: an entry that differs from its translation page is cached and dirty (`Ftl::check` compares
//! them); entries outside the cache are those on flash. Absent: flash operations (`verbs::table`).

use remap_ssd_media::Lpn;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::slab::Slab;

/// Entries of a translation page: a word of 32 bits each.
pub(crate) const TRANSLATION_ENTRIES: u32 = (PAGE_BYTES / 4) as u32;
/// Bytes of a cached entry: an LPN and its word.
const CACHED_BYTES: u64 = 8;
/// No entry, or no translation page.
const NONE: u32 = u32::MAX;

/// The translation page that has an LPN's entry.
pub(crate) const fn translation_page_of(lpn: Lpn) -> u32 {
    lpn.0 / TRANSLATION_ENTRIES
}

/// A cached entry in two lists: of all entries by use, and of the dirty ones of its translation page.
#[derive(Clone, Copy)]
struct CachedEntry {
    lpn: Lpn,
    newer: u32,
    older: u32,
    is_dirty: bool,
    next_dirty: u32,
}

/// What must happen before the cache is within its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// Nothing: it is.
    Done,
    /// This translation page must be programmed: the least recently used entry is dirty.
    Program(u32),
}

/// Which entries are cached, and which of them are dirty.
pub(crate) struct MappingCache {
    capacity: usize,
    /// For each LPN, its place in `entries` plus one; 0 if it is not cached.
    places: Slab<u32>,
    entries: Vec<CachedEntry>,
    /// Places of evicted entries.
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// For each translation page, its dirty entry that changed last.
    dirty: Vec<u32>,
    /// The translation page that was read last: it is still in the controller.
    at_hand: u32,
    /// Translation pages that have to be read.
    missed: Vec<u32>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Most entries at any time.
    peak: usize,
}

impl MappingCache {
    /// Entries for which `bytes` have room.
    pub(crate) const fn capacity_of(bytes: u64) -> u64 {
        bytes / CACHED_BYTES
    }

    /// An empty cache of `bytes` for a table of `lpns` entries.
    pub(crate) fn new(lpns: u32, bytes: u64) -> Self {
        let pages = lpns.div_ceil(TRANSLATION_ENTRIES) as usize;
        Self {
            capacity: Self::capacity_of(bytes) as usize,
            places: Slab::zeroed(lpns as usize),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            dirty: vec![NONE; pages],
            at_hand: NONE,
            missed: Vec::new(),
            hits: 0,
            misses: 0,
            peak: 0,
        }
    }

    /// Entries that are cached now.
    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Most bytes that the cache has had at any time.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak as u64 * CACHED_BYTES
    }

    /// Number of translation pages.
    pub(crate) fn pages(&self) -> u32 {
        self.dirty.len() as u32
    }

    /// Returns true if an LPN's entry may differ from the one on flash.
    pub(crate) fn is_dirty(&self, lpn: Lpn) -> bool {
        let place = self.places[lpn.index()];
        place > 0 && self.entries[place as usize - 1].is_dirty
    }

    /// Returns true if something must leave.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.len() > self.capacity
    }

    /// The entry of an LPN is read or, if `changes`, changed. Internal LPNs have no entries.
    // Never inlined: most devices have the whole table in DRAM, and their paths stay small.
    #[cold]
    #[inline(never)]
    pub(crate) fn touch(&mut self, lpn: Lpn, changes: bool) {
        let Some(place) = self.places.get(lpn.index()).copied() else {
            return;
        };
        let at = if place > 0 {
            self.hits += 1;
            let at = place - 1;
            if self.newest != at {
                self.leave(at);
                self.join(at);
            }
            at
        } else {
            self.misses += 1;
            self.read(translation_page_of(lpn));
            self.insert(lpn)
        };
        if changes {
            self.mark(at);
        }
    }

    /// Adds an entry that differs from the one on flash, when power comes on.
    pub(crate) fn restore(&mut self, lpn: Lpn) {
        let at = self.insert(lpn);
        self.mark(at);
    }

    fn insert(&mut self, lpn: Lpn) -> u32 {
        let entry = CachedEntry {
            lpn,
            newer: NONE,
            older: NONE,
            is_dirty: false,
            next_dirty: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.places[lpn.index()] = at + 1;
        self.join(at);
        self.peak = self.peak.max(self.len());
        at
    }

    fn mark(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        if !entry.is_dirty {
            entry.is_dirty = true;
            let first = &mut self.dirty[translation_page_of(entry.lpn) as usize];
            entry.next_dirty = std::mem::replace(first, at);
        }
    }

    /// Consecutive misses in one translation page read it once.
    fn read(&mut self, page: u32) {
        if self.at_hand != page {
            self.at_hand = page;
            self.missed.push(page);
        }
    }

    /// Takes the translation pages that have to be read, in order.
    #[inline]
    pub(crate) fn take_missed(&mut self) -> Option<Vec<u32>> {
        (!self.missed.is_empty()).then(|| std::mem::take(&mut self.missed))
    }

    /// Evicts the least recently used entries until the capacity is met or a dirty one would leave.
    pub(crate) fn evict(&mut self) -> Eviction {
        while self.is_over() {
            let CachedEntry { lpn, is_dirty, .. } = self.entries[self.oldest as usize];
            if is_dirty {
                return Eviction::Program(translation_page_of(lpn));
            }
            let at = self.oldest;
            self.leave(at);
            self.places[lpn.index()] = 0;
            self.free.push(at);
        }
        Eviction::Done
    }

    /// A translation page has been programmed as L2P is now: none of its entries is dirty.
    pub(crate) fn programmed(&mut self, page: u32) {
        let mut at = std::mem::replace(&mut self.dirty[page as usize], NONE);
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            entry.is_dirty = false;
            at = std::mem::replace(&mut entry.next_dirty, NONE);
        }
    }

    fn leave(&mut self, at: u32) {
        let CachedEntry { newer, older, .. } = self.entries[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn join(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        match older {
            NONE => self.oldest = at,
            older => self.entries[older as usize].newer = at,
        }
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};

    /// The same by lists that are searched.
    struct Searched {
        capacity: usize,
        /// LPNs, the most recently used one first, and if they are dirty.
        entries: VecDeque<(u32, bool)>,
        reads: Vec<u32>,
    }

    impl Searched {
        fn touch(&mut self, lpn: u32, changes: bool) {
            let found = self.entries.iter().position(|(known, _)| *known == lpn);
            let was_dirty = match found {
                Some(at) => self.entries.remove(at).is_some_and(|(_, dirty)| dirty),
                None => {
                    let page = lpn / TRANSLATION_ENTRIES;
                    if self.reads.last() != Some(&page) {
                        self.reads.push(page);
                    }
                    false
                }
            };
            self.entries.push_front((lpn, was_dirty || changes));
        }

        /// Makes room; returns the translation pages that it programs.
        fn evict(&mut self) -> Vec<u32> {
            let mut programs = Vec::new();
            while self.entries.len() > self.capacity {
                let (lpn, is_dirty) = self.entries.pop_back().expect("over");
                if is_dirty {
                    let page = lpn / TRANSLATION_ENTRIES;
                    programs.push(page);
                    for (other, dirty) in &mut self.entries {
                        *dirty &= *other / TRANSLATION_ENTRIES != page;
                    }
                }
            }
            programs
        }
    }

    #[test]
    fn the_least_recently_used_entry_leaves_and_its_page_is_programmed_once() {
        // A generator that is good enough here, and the same on every machine.
        let mut state = 1u64;
        let mut below = |n: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (((state >> 32) * u64::from(n)) >> 32) as u32
        };
        for capacity in [1, 3, 17, 200] {
            let lpns = 5 * TRANSLATION_ENTRIES + 9;
            let mut cache = MappingCache::new(lpns, capacity * CACHED_BYTES);
            let mut searched = Searched {
                capacity: capacity as usize,
                entries: VecDeque::new(),
                reads: Vec::new(),
            };
            let mut reads = Vec::new();
            for _ in 0..5_000 {
                let near = below(40) + TRANSLATION_ENTRIES - 20;
                let lpn = if below(2) == 0 { near } else { below(lpns) };
                let changes = below(3) == 0;
                cache.touch(Lpn(lpn), changes);
                searched.touch(lpn, changes);
                reads.extend(cache.take_missed().into_iter().flatten());
                if below(4) == 0 {
                    let mut programs = Vec::new();
                    while let Eviction::Program(page) = cache.evict() {
                        programs.push(page);
                        cache.programmed(page);
                    }
                    assert_eq!(programs, searched.evict());
                }
                assert_eq!(cache.len(), searched.entries.len());
            }
            assert_eq!(reads, searched.reads);
            let dirty = |(lpn, dirty): &(u32, bool)| dirty.then_some(*lpn);
            let expected: BTreeSet<u32> = searched.entries.iter().filter_map(dirty).collect();
            let found = (0..lpns).filter(|lpn| cache.is_dirty(Lpn(*lpn)));
            assert_eq!(found.collect::<BTreeSet<u32>>(), expected);
            assert!(cache.hits > 0 && cache.misses > 0 && cache.peak_bytes() >= capacity * 8);
        }
    }

    #[test]
    fn internal_pages_have_no_entries() {
        let mut cache = MappingCache::new(10, 8);
        cache.touch(Lpn(10), true);
        assert_eq!((cache.len(), cache.take_missed()), (0, None));
    }
}
