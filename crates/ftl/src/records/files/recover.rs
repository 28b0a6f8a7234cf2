//! Recovery of the file map: the entries determine the current generation and the listed pages.
//!
//! Invariants: reading stores nothing; later stores (generation, table, links) only repeat the
//! entries, so a cut in between changes nothing. An entry slot in which part of an entry landed is
//! not reused before the next reset: its words could combine with those of another entry.

use super::FileMap;
use super::record::{ENTRY_WORDS, ListEnds, NONE, SLOT_WORDS, TaggedValue};
use crate::config::guard::Guard;
use remap_ssd_media::{After, Media, Purpose};

/// Result of scanning the file map at recovery.
#[derive(Debug, Default)]
pub(crate) struct FileMapScan {
    /// Entries in force and their files, in order.
    entries: Vec<(u32, u32)>,
    /// NVRAM holds generation 0: the rest of the map is being zeroed.
    starts_over: bool,
}

impl FileMap {
    /// Reads the file map back from NVRAM.
    pub(crate) fn read_back(&mut self, media: &mut Media) -> FileMapScan {
        let (region, mut found) = (self.region, FileMapScan::default());
        if region.slots == 0 {
            return found;
        }

        media.charge_loads(region.words(), Purpose::Meta);

        let word = media.load(region.base);
        if word == Ok(0) {
            found.starts_over = true;
            return found;
        }

        let words: Vec<[Option<TaggedValue>; ENTRY_WORDS]> = (0..region.blocks)
            .map(|index| self.read_entry(media, index))
            .collect();
        // The largest generation found: an entry with it proves the reset that began it.
        let readable = words.iter().flatten().flatten();
        let newest = readable.map(|word| word.generation()).max().unwrap_or(0);
        let stored = word.map_or(0, |word| word as u32);
        self.damaged |= word.is_err();
        self.generation = newest.max(stored).max(1);

        let guards = self.guards;
        for (index, entry) in (0..).zip(&words) {
            let is_mine = |word: TaggedValue| word.generation() == self.generation;
            let mut mine = entry.iter().map(|word| word.is_some_and(is_mine));
            let some = mine.clone().any(|mine| mine);
            let whole = if guards.has(Guard::FsWhole) {
                mine.all(|mine| mine)
            } else {
                mine.next() == Some(true)
            };

            let is_used = entry[0].is_some_and(|word| word.generation() != 0);
            let stale = !guards.has(Guard::FsGenerations) && is_used && !some;
            if some && guards.has(Guard::FsTornPlaces) || whole {
                self.used = index + 1;
            }
            if let Some(inode) = entry[2].filter(|_| whole || stale) {
                found.entries.push((index, inode.value()));
            }
        }

        found
    }

    /// The readable words of an entry.
    fn read_entry(&mut self, media: &mut Media, index: u32) -> [Option<TaggedValue>; ENTRY_WORDS] {
        let at = self.region.entry(index);
        [0, 1, 2, 3].map(|word| {
            let bits = media.load(at + word).ok();
            self.damaged |= bits.is_none();
            bits.map(TaggedValue::from_bits)
        })
    }

    /// Rewrites generation, table and links to match the entries.
    pub(crate) fn repair(&mut self, media: &mut Media, found: &FileMapScan) {
        let region = self.region;
        if region.slots == 0 {
            return;
        }
        if found.starts_over {
            return self.start_over(media);
        }
        // The generation found may be too old, since a damaged word may hold the newest: that word
        // stays until the host resets the map, so that every power-on finds the damage.
        if self.damaged {
            return;
        }

        // Rebuilt from the entries, then compared: words that are already correct are not stored,
        // so that an interrupted recovery costs nothing.
        let mut table = vec![[0u64; SLOT_WORDS]; region.slots as usize];
        let mut links = vec![NONE; found.entries.len()];
        let mut place = std::collections::BTreeMap::new();
        for (at, &(index, inode)) in found.entries.iter().enumerate() {
            let name = TaggedValue::of(self.generation, inode);
            let free = |slot: &u32| [0, name].contains(&table[*slot as usize][0]);
            let Some(slot) = region.probe(inode).find(free) else {
                self.damaged = true; // More files than fit.
                continue;
            };

            let slot = &mut table[slot as usize];
            self.files += u32::from(slot[0] == 0);
            slot[1] = match (slot[0], ListEnds::from(slot[1])) {
                (0, _) => ListEnds {
                    head: index,
                    tail: index,
                },
                (_, ListEnds { head, .. }) => ListEnds { head, tail: index },
            }
            .into();

            slot[0] = name;
            if let Some(before) = place.insert(inode, at) {
                links[before] = index;
            }
        }

        let correct = |media: &mut Media, at: usize, value: u64| {
            if media.load(at) != Ok(value) {
                media.store(at, value, Purpose::Meta, After::NOTHING);
            }
        };

        correct(media, region.base, self.generation.into());
        for (slot, wanted) in (0..).zip(&table) {
            let at = region.slot(slot);
            // A slot of an earlier generation counts as empty. One of a later generation is a
            // remnant of a reset undone by the cut and a file after it: it must not become valid at
            // the next reset.
            let stale = media
                .load(at)
                .map(|word| TaggedValue::from_bits(word).generation() < self.generation);
            if wanted[0] != 0 || stale != Ok(true) {
                correct(media, at, wanted[0]);
                correct(media, at + 1, wanted[1]);
            }
        }

        for (&(index, _), link) in found.entries.iter().zip(links) {
            correct(
                media,
                region.entry(index) + 3,
                TaggedValue::of(self.generation, link),
            );
        }
    }
}
