//! Reclaiming the log: all of it is read, the valid entries are rewritten unit by unit, and the old
//! units are zeroed.
//!
//! Invariant: a unit is zeroed only after its valid entries have been stored elsewhere, so one free
//! unit suffices to begin. Absent: when hosts are refused (`device_log`).

use super::{CHUNK, NLog, SLOT_WORDS, load};
use crate::config::guard::Guard;
use crate::contract::Remapping;
use crate::core::Core;
use crate::mapping::tables::Tables;
use crate::scheme::device_log::LogMedium;
use crate::scheme::in_force::keep_gone;
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::LogEntry;
use crate::superblock::Superblocks;
use remap_ssd_media::{After, Lpn, Media, Ppn, Purpose, SbId};
use std::collections::BTreeSet;
use std::ops::Range;

impl NLog {
    /// Reads all entries, rewrites the valid ones unit by unit, and zeroes the old units.
    pub(super) fn rewrite(&mut self, core: &mut Core, index: &mut OwnerIndex) {
        core.stats.metadata_gc_runs += 1;
        self.charge_scan(&mut core.media);
        let old: Vec<Range<usize>> = self.ranges().collect();
        // All units are old now. Their ranges stay readable until each is released.
        self.units.clear();
        self.used = 0;
        if self.find_gone(&mut core.tables, &core.blocks, &core.media, &old) {
            self.rewrite_all_but_gone(&mut core.media, &old);
        } else {
            self.rewrite_valid(index, &mut core.tables, &core.blocks, &mut core.media, &old);
        }

        // All dead entries have been dropped, so the filters can start over.
        (0..core.geometry.superblocks()).for_each(|sb| core.tables.ended.start_over(SbId(sb)));
    }

    /// Collects the places of the entries that are not in force in `gone`, in log order. Returns
    /// false if NVRAM must be read word by word, or if the rest is not exactly one entry per
    /// remapped LPN. Looks up entries whose remap may have ended.
    fn find_gone(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &Media,
        old: &[Range<usize>],
    ) -> bool {
        let (mut gone, mut hidden) = (
            std::mem::take(&mut self.gone),
            std::mem::take(&mut self.hidden),
        );
        gone.clear();
        let can_scan = find_doubtful(tables, blocks, media, old, &mut gone);
        if can_scan {
            keep_gone(tables, &mut gone, &mut hidden, |tables, at| {
                let at = at as usize;
                let entry = LogEntry::from_words([media.peek(at), media.peek(at + 1)]);
                (entry.is_intact()
                    && entry.is_current(blocks, tables.geometry)
                    && !tables.is_aborted(entry.wsn()))
                .then(|| (entry.lpn(), Ppn(entry.ppn())))
            });
        }

        // Exactly one entry per remapped LPN: then the others may be moved without a lookup.
        let entries: usize = old.iter().map(|range| range.len() / SLOT_WORDS).sum();
        let is_known = can_scan && (entries - gone.len()) as u64 == blocks.remapped_total();
        (self.gone, self.hidden) = (gone, hidden);
        is_known
    }

    fn rewrite_all_but_gone(&mut self, media: &mut Media, old: &[Range<usize>]) {
        let places = std::mem::take(&mut self.gone);
        let mut gone = places.iter().map(|at| *at as usize).peekable();
        // Per unit: 1. valid entries at their new place  2. zeroes at the old one.
        for range in old {
            let mut rest = range.clone();
            while let Some(at) = gone.next_if(|at| rest.contains(at)) {
                self.store_run(media, rest.start..at);
                rest.start = at + SLOT_WORDS;
            }
            self.store_run(media, rest);
            self.release(media, range);
        }
        self.gone = places;
    }

    /// Stores the entries at these words again, unchanged.
    fn store_run(&mut self, media: &mut Media, mut run: Range<usize>) {
        let (guards, page_of) = (self.guards, |words: &[u64; SLOT_WORDS]| {
            After::page(Ppn(LogEntry::from_words(*words).ppn()))
        });
        while !run.is_empty() {
            if !self.is_open() {
                self.begin_unit(media, Purpose::Gc);
            }

            let len = (run.len() / SLOT_WORDS).min(self.slots - self.used);
            let end = run.start + len * SLOT_WORDS;

            // Charged as a unit: the zeroing of the old unit waits for everything else that the
            // entries wait for, such as their pages.
            let clear = After::clear(self.clear);
            media.charge_stores(len * SLOT_WORDS, Purpose::Gc, clear);

            let to = self.next_slot_word();
            media.move_records(run.start..end, to, Purpose::Gc, |words| {
                clear.and(guards.waits(Guard::EntryAfterPage, page_of(words)))
            });
            self.used += len;
            run.start = end;
        }
    }

    /// The same if words are unreadable, or some mapping has several entries: uses the readable
    /// entries.
    #[cold]
    fn rewrite_valid(
        &mut self,
        index: &mut OwnerIndex,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &mut Media,
        old: &[Range<usize>],
    ) {
        // Newest first: an LPN is hidden once found, so that older entries of the same mapping do
        // not count.
        let mut kept: Vec<Vec<LogEntry>> = vec![Vec::new(); old.len()];
        let mut damaged = None;
        for (unit, (range, kept)) in old.iter().zip(&mut kept).enumerate().rev() {
            for at in range.clone().step_by(SLOT_WORDS).rev() {
                if (at..at + SLOT_WORDS).any(|word| media.load(word).is_err()) {
                    damaged = Some(unit);
                }
                let Some(entry) = load(media, at) else {
                    continue;
                };
                if tables.is_in_force(entry.lpn(), Ppn(entry.ppn()), entry.wsn())
                    && entry.is_current(blocks, tables.geometry)
                {
                    tables.map.hide_remapped(entry.lpn());
                    kept.push(entry);
                }
            }
        }

        kept.iter()
            .flatten()
            .for_each(|entry| tables.map.mark_remapped(entry.lpn()));
        if let Some(unit) = damaged {
            // In place of the first unreadable entry: they move with its unit, and need no
            // additional unit.
            let unread = take_unread(index, tables, blocks, &mut kept);
            kept[unit].extend(unread);
        }

        // Per unit: 1. valid entries at their new place  2. zeroes at the old one.
        for (range, entries) in old.iter().zip(kept) {
            for entry in entries.into_iter().rev() {
                self.store(media, entry.words(), Ppn(entry.ppn()), Purpose::Gc);
            }
            self.release(media, range);
        }
    }

    /// Zeroes the unit with these entries, after everything that superseded them, and frees it.
    fn release(&mut self, media: &mut Media, entries: &Range<usize>) {
        let at = entries.start - SLOT_WORDS;
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        let clear = media.clear(at, (self.slots + 1) * SLOT_WORDS, after);
        self.free
            .push_back(((at - self.base) / ((self.slots + 1) * SLOT_WORDS), clear));
    }
}

/// The unreadable entries in force, taken from the index. Readable entries of their LPNs are
/// older, and are dropped.
fn take_unread(
    index: &mut OwnerIndex,
    tables: &mut Tables,
    blocks: &Superblocks,
    read: &mut [Vec<LogEntry>],
) -> Vec<LogEntry> {
    let known: BTreeSet<(Lpn, u64)> = read
        .iter()
        .flatten()
        .map(|entry| (entry.lpn(), entry.wsn()))
        .collect();
    // Stale entries of the index must not be mistaken for unreadable ones.
    index.sort_out(tables);
    let is_unread = |at: &Remapping| !known.contains(&(at.lpn, at.wsn));
    let unread: Vec<Remapping> = index.iter(tables.geometry).filter(is_unread).collect();

    let lpns: BTreeSet<Lpn> = unread.iter().map(|remapping| remapping.lpn).collect();
    read.iter_mut()
        .for_each(|unit| unit.retain(|entry| !lpns.contains(&entry.lpn())));
    unread
        .iter()
        .map(|remapping| LogEntry::of(blocks, tables.geometry, remapping))
        .collect()
}

/// Appends the places of the entries that may not be in force; returns false if NVRAM must be read
/// word by word.
fn find_doubtful(
    tables: &Tables,
    blocks: &Superblocks,
    media: &Media,
    old: &[Range<usize>],
    found: &mut Vec<u32>,
) -> bool {
    let Some(words) = media.words() else {
        return false;
    };

    // A superblock with an unknown filter gets an incarnation that no entry has.
    let incarnation = |sb: SbId, known: u32| {
        if tables.ended.is_known(sb) {
            known
        } else {
            u32::MAX
        }
    };

    let incarnations: Vec<u32> = blocks
        .iter()
        .map(|(id, sb)| incarnation(id, sb.life.incarnation()))
        .collect();
    let is_doubtful = |words: &[u64; SLOT_WORDS]| {
        let entry = LogEntry::from_words(*words);
        let sb = tables.geometry.superblock(Ppn(entry.ppn()));
        // Words that name no page of the device are not an entry.
        let is_current = incarnations.get(sb.0 as usize) == Some(&entry.incarnation());
        !is_current || !entry.is_intact() || tables.ended.is_noted(sb, entry.lpn())
    };

    for range in old {
        let entries = words[range.clone()].as_chunks::<SLOT_WORDS>().0;
        // Branch-free, as in `in_force`.
        for (nth, entries) in entries.chunks(CHUNK).enumerate() {
            let (mut doubtful, mut len) = ([0u32; CHUNK], 0);
            for (index, entry) in entries.iter().enumerate() {
                doubtful[len % CHUNK] = index as u32;
                len += usize::from(is_doubtful(entry));
            }
            let first = range.start + nth * CHUNK * SLOT_WORDS;
            found.extend(
                doubtful[..len]
                    .iter()
                    .map(|index| (first + *index as usize * SLOT_WORDS) as u32),
            );
        }
    }

    true
}
