//! NVRAM garbage collection, recovery of the groups, and their check.
//!
//! Active GC takes the group with the most invalid entries, rewrites the valid ones into free segments and
//! releases the old ones (FAST'21 §4.4). Invariant: released segments are zeroed only after everything that
//! superseded their entries is durable. Absent: when to reclaim for whom (`admit` decides).

use super::segment::{Group, SegmentHead, SegmentLink};
use super::{RemapSsd, RmmEntry, Second};
use crate::core::Core;
use crate::guard::Guard;
use crate::recovery::{RecoveryError, Witnesses};
use crate::scheme::Remapping;
use crate::scheme::sift::find_doubtful;
use remap_ssd_media::{After, OpKind, Ppn, Purpose, SbId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Active GC pays only if more than one entry in so many is invalid.
const INVALID_SHARE: u64 = 20;

/// Entries whose tables are asked for before they are looked at.
const AHEAD: usize = 24;

/// Segments asked for before they are looked at.
const SEGMENTS_AHEAD: usize = 3;

impl RemapSsd {
    fn invalid(&self, core: &Core) -> u64 {
        self.entries.saturating_sub(core.blocks.remapped_total())
    }

    /// Secures a slot for `sb` without touching the reserve.
    #[cold]
    pub(super) fn make_room(&mut self, core: &mut Core, sb: SbId, may_reclaim: bool) -> bool {
        if self.invalid(core) < self.hopeless_below {
            return false;
        }
        self.set_fullest(core.blocks.remapped_max() + 1);
        loop {
            let spare = self.free.len() as i64 - self.reserve() as i64;
            if spare > 0 || (spare == 0 && self.has_slot(sb)) {
                return true;
            }
            if !may_reclaim {
                return false;
            }
            let invalid = self.invalid(core);
            if invalid * INVALID_SHARE <= self.entries || !self.reclaim_one(core) {
                self.hopeless_below = invalid + 2 * u64::from(self.slots);
                return false;
            }
        }
    }

    /// After recovery: frees segments until GC has its reserve again, as far as that is possible.
    pub(super) fn regain(&mut self, core: &mut Core) {
        while self.free.len() < self.reserve() && self.reclaim_one(core) {}
    }

    /// Reclaims the group with the most invalid entries among those that give segments back.
    fn reclaim_one(&mut self, core: &mut Core) -> bool {
        let best = core
            .blocks
            .iter_owners()
            .filter_map(|(id, owners)| {
                let group = &self.groups[id.0 as usize];
                let needed = owners.remapped.div_ceil(self.slots) as usize;
                let gains = needed < group.segments.len() && needed <= self.free.len();
                gains.then(|| (group.entries - owners.remapped.min(group.entries), id))
            })
            .max_by_key(|(invalid, id)| (*invalid, std::cmp::Reverse(id.0)));
        let Some((_, sb)) = best else { return false };
        core.stats.metadata_gc_runs += 1;
        self.migrate(core, sb);
        true
    }

    fn migrate(&mut self, core: &mut Core, sb: SbId) {
        let bytes = self.groups[sb.0 as usize].entries * self.entry_words as u32 * 8;
        core.media.charge(OpKind::NvRead, bytes, Purpose::Gc, After::NOTHING);
        let (mut gone, mut kept) = (std::mem::take(&mut self.gone), std::mem::take(&mut self.kept));
        kept.clear();
        let is_known = self.find_gone(core, sb, &mut gone);
        if !is_known {
            self.find_valid(core, sb, &mut kept);
        }
        // 1. entries at their new place  2. zeroes at the old one (`release` waits for everything before it).
        // Cut between: both are read, and say the same.
        let group = &mut self.groups[sb.0 as usize];
        let old = std::mem::replace(group, Group { sequence: group.sequence, ..Group::default() });
        self.entries -= u64::from(old.entries);
        if is_known {
            self.append_all_but(core, sb, &old, &gone);
        } else {
            kept.iter().rev().for_each(|words| self.append_moved(core, sb, *words));
        }
        core.ended.settle(sb);
        let bytes = self.groups[sb.0 as usize].entries * self.entry_words as u32 * 8;
        core.media.charge(OpKind::NvWrite, bytes, Purpose::Gc, After::NOTHING);
        (self.gone, self.kept) = (gone, kept);
        self.release(core, &old.segments);
    }

    /// Where the entries of a group are that are not in force, in its order; `false` if some mapping has two entries that
    /// look valid, or if NVRAM must be read word by word. Only entries whose remap may have ended are looked up in L2P.
    fn find_gone(&self, core: &Core, sb: SbId, gone: &mut Vec<u32>) -> bool {
        let Some(words) = core.media.words() else { return false };
        match self.entry_words {
            2 => self.find_suspects::<2>(core, sb, words, gone),
            _ => self.find_suspects::<3>(core, sb, words, gone),
        }
        let base = core.geometry.page(sb, 0).0;
        gone.retain(|at| {
            let entry = RmmEntry::from_words(words[*at as usize], words[*at as usize + 1]);
            !(core.is_in_force(entry.target(), Ppn(base + entry.offset()), entry.wsn()) && entry.is_intact())
        });
        self.groups[sb.0 as usize].entries - gone.len() as u32 == core.blocks.owners(sb).remapped
    }

    /// The words of the entries in one segment of a group, oldest first.
    fn entries_at(&self, group: &Group, index: usize) -> Range<usize> {
        let slots = if index + 1 == group.segments.len() { group.used } else { self.slots } as usize;
        let from = self.slot_word(group.segments[index], 0);
        from..from + slots * self.entry_words
    }

    /// Where the entries are that may be invalid, in the group's order. Asks for their L2P entries, and for the
    /// segments ahead.
    fn find_suspects<const W: usize>(&self, core: &Core, sb: SbId, words: &[u64], found: &mut Vec<u32>) {
        let ended = core.ended.of(sb);
        let group = &self.groups[sb.0 as usize];
        found.clear();
        for index in 0..group.segments.len() {
            let range = self.entries_at(group, index);
            if let Some(later) = group.segments.get(index + SEGMENTS_AHEAD) {
                core.media.prefetch_words(self.words_of(*later));
            }
            let entries = words[range.clone()].as_chunks::<W>().0;
            let (lpn_of, place_of) = (
                |entry: &[u64; W]| Second::from_bits(entry[1]).target(),
                |index: usize| (range.start + index * W) as u32,
            );
            find_doubtful(&core.map, ended, entries, lpn_of, place_of, found);
        }
    }

    /// Appends all entries that a group had but those at `gone`, which is in the group's order. The caller charges it.
    fn append_all_but(&mut self, core: &mut Core, sb: SbId, old: &Group, gone: &[u32]) {
        let is_plain = self.entry_words == 2 && core.media.is_plain();
        let kept = old.entries - gone.len() as u32;
        let mut gone = gone.iter().map(|at| *at as usize);
        let mut next = gone.next();
        let mut room = 0..0;
        for index in 0..old.segments.len() {
            let mut run = self.entries_at(old, index);
            if let Some(later) = old.segments.get(index + 2) {
                core.media.prefetch_words(self.words_of(*later));
            }
            if let Some((free, _)) = self.free.get(1) {
                core.media.prefetch_words(self.words_of(*free));
            }
            loop {
                let stop = next.filter(|at| run.contains(at));
                let rest = run.start..stop.unwrap_or(run.end);
                match is_plain {
                    true => self.move_run(core, sb, rest, &mut room),
                    false => rest.step_by(self.entry_words).for_each(|at| {
                        self.append_moved(core, sb, [core.media.peek(at), core.media.peek(at + 1)]);
                    }),
                }
                let Some(at) = stop else { break };
                run.start = at + self.entry_words;
                next = gone.next();
            }
        }
        if is_plain && kept > 0 {
            let group = &mut self.groups[sb.0 as usize];
            (group.used, group.end, group.entries) = (self.slots - room.len() as u32 / 2, room.start, kept);
            self.entries += u64::from(kept);
        }
    }

    /// Moves entries of two words as they stand. `room`: what is left of the segment that is being filled.
    #[inline(always)]
    fn move_run(&mut self, core: &mut Core, sb: SbId, mut run: Range<usize>, room: &mut Range<usize>) {
        while !run.is_empty() {
            if room.start == room.end {
                self.grow(core, sb, Purpose::Gc);
                let begin = self.groups[sb.0 as usize].end;
                *room = begin..begin + 2 * self.slots as usize;
            }
            let words = run.len().min(room.end - room.start);
            core.media.move_words_plain(run.start..run.start + words, room.start);
            run.start += words;
            room.start += words;
        }
    }

    fn words_of(&self, segment: u32) -> Range<usize> {
        let at = self.word(segment);
        at..at + self.segment_words
    }

    /// A group's valid entries as they stand, newest first. An LPN once seen is hidden, so that older entries of the
    /// same mapping count as invalid.
    fn find_valid(&mut self, core: &mut Core, sb: SbId, kept: &mut Vec<[u64; 2]>) {
        let base = core.geometry.page(sb, 0);
        let mut all = std::mem::take(&mut self.scratch);
        all.clear();
        self.read_group(core, sb, &mut all);
        for (index, entry) in all.iter().enumerate().rev() {
            if let Some(next) = index.checked_sub(AHEAD).and_then(|next| all.get(next)) {
                core.map.prefetch(next.target());
            }
            if core.is_in_force(entry.target(), Ppn(base.0 + entry.offset()), entry.wsn()) {
                core.map.hide_remapped(entry.target());
                kept.push(entry.words());
            }
        }
        self.scratch = all;
        kept.iter().for_each(|[_, second]| core.map.mark_remapped(Second::from_bits(*second).target()));
    }

    /// Zeroes segments and puts them at the end of the free list.
    pub(super) fn release(&mut self, core: &mut Core, segments: &[u32]) {
        let waits = core.config.guards.has(Guard::ClearWaits);
        for &segment in segments {
            let after = if waits { After::ALL } else { After::NOTHING };
            let clear = core.media.clear(self.word(segment), self.segment_words, after);
            self.free.push_back((segment, clear));
        }
    }

    /// A group's entries, oldest first.
    pub(super) fn read_group(&mut self, core: &mut Core, sb: SbId, out: &mut Vec<RmmEntry>) {
        let group = &self.groups[sb.0 as usize];
        let pages = core.geometry.pages_per_superblock();
        let (start, mut lost) = (out.len(), false);
        for (index, &segment) in group.segments.iter().enumerate() {
            let last = index + 1 == group.segments.len();
            if let Some(&next) = group.segments.get(index + 2) {
                core.media.prefetch_words(self.words_of(next));
            }
            let (from, slots) = (self.slot_word(segment, 0), if last { group.used } else { self.slots } as usize);
            let mut keep = |first: u64, second: u64| {
                let entry = RmmEntry::from_words(first, second);
                if entry.is_intact() && entry.offset() < pages {
                    out.push(entry);
                }
            };
            if let Some(words) = core.media.words() {
                words[from..from + slots * self.entry_words]
                    .chunks_exact(self.entry_words)
                    .for_each(|entry| keep(entry[0], entry[1]));
                continue;
            }
            for at in (from..from + slots * self.entry_words).step_by(self.entry_words) {
                match (core.media.load(at), core.media.load(at + 1)) {
                    (Ok(first), Ok(second)) => keep(first, second),
                    _ => lost = true,
                }
            }
        }
        if lost {
            find_lost(core, sb, start, out);
        }
    }

    /// Step 3 of recovery (FAST'21 §4.5): examines all segments.
    pub(super) fn read_back(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let words = self.segments as usize * self.segment_words;
        witnesses.report.nvram_bytes += words as u64 * 8;
        core.media.charge(OpKind::NvRead, (words * 8) as u32, Purpose::Meta, After::NOTHING);
        let mut found: Vec<Vec<(u32, u32)>> = vec![Vec::new(); self.groups.len()];
        let mut free = Vec::new();
        for segment in 0..self.segments {
            match self.owner_of(core, witnesses, segment)? {
                Some((sb, sequence)) => found[sb.0 as usize].push((sequence, segment)),
                None => free.push(segment),
            }
        }
        self.free.clear();
        for segment in free {
            // Old entries in a free segment would come alive with its next owner.
            let at = self.word(segment);
            let zero = (at..at + self.segment_words).all(|word| core.media.load(word) == Ok(0));
            let clear = if zero || !core.config.guards.has(Guard::SegmentZeroed) {
                Default::default()
            } else {
                core.media.clear(at, self.segment_words, After::NOTHING)
            };
            self.free.push_back((segment, clear));
        }
        for (sb, mut segments) in found.into_iter().enumerate() {
            segments.sort_unstable();
            let mut group = Group {
                sequence: segments.last().map_or(0, |(sequence, _)| sequence + 1),
                segments: segments.iter().map(|(_, segment)| *segment).collect(),
                ..Group::default()
            };
            for (index, &segment) in group.segments.iter().enumerate() {
                let used = self.replay_segment(core, witnesses, SbId(sb as u32), segment)?;
                let last = index + 1 == group.segments.len();
                group.entries += if last { used } else { self.slots };
                group.used = used;
                group.end = self.slot_word(segment, used);
            }
            self.entries += u64::from(group.entries);
            self.groups[sb] = group;
        }
        Ok(())
    }

    /// Whose segment is it? `None` for a free one and for one of an earlier incarnation.
    fn owner_of(
        &self,
        core: &mut Core,
        witnesses: &mut Witnesses,
        segment: u32,
    ) -> Result<Option<(SbId, u32)>, RecoveryError> {
        let at = self.word(segment);
        let (Ok(first), Ok(second)) = (core.media.load(at), core.media.load(at + 1)) else {
            return Err(RecoveryError::NvramDamaged { word: at });
        };
        let (head, link) = (SegmentHead::from_bits(first), SegmentLink::from_bits(second));
        let torn_bits = core.config.guards.has(Guard::TornBits);
        if torn_bits && !(head.torn() && link.torn()) || first == 0 || second == 0 {
            return Ok(None);
        }
        witnesses.saw(head.wsn());
        let sb = SbId(head.superblock());
        let sequence_is_sane = link.sequence() < 1 << 30;
        if sb.0 >= core.geometry.superblocks() || !witnesses.is_live(sb) || !sequence_is_sane {
            return Ok(None);
        }
        // A head's WSN is newer than every segment of the incarnations before.
        let stale = head.wsn() < core.blocks.get(sb).opened;
        if stale && core.config.guards.has(Guard::StaleSegments) {
            return Ok(None);
        }
        Ok(Some((sb, link.sequence())))
    }

    /// Tells the entries of a segment; how many of its slots are used, torn ones included.
    fn replay_segment(
        &self,
        core: &mut Core,
        witnesses: &mut Witnesses,
        sb: SbId,
        segment: u32,
    ) -> Result<u32, RecoveryError> {
        let mut used = 0;
        for slot in 0..self.slots {
            let at = self.slot_word(segment, slot);
            let mut words = [0; 3];
            let mut damaged = None;
            for (index, word) in words[..self.entry_words].iter_mut().enumerate() {
                match core.media.load(at + index) {
                    Ok(value) => *word = value,
                    Err(_) => damaged = Some(index),
                }
            }
            if damaged.is_none() && words == [0; 3] {
                continue;
            }
            used = slot + 1;
            if let Some(index) = damaged {
                // Whose mapping it was is in the second word; without it, any page may be the one.
                let target = (index != 1).then(|| RmmEntry::from_words(0, words[1]).target());
                let target = target.ok_or(RecoveryError::NvramDamaged { word: at + index })?;
                witnesses.lost(target);
                continue;
            }
            let entry = RmmEntry::from_words(words[0], words[1]);
            let intact = entry.is_intact() && (self.entry_words == 2 || words[2] & 1 == 1);
            if !intact && core.config.guards.has(Guard::TornBits) {
                continue;
            }
            if entry.offset() < core.geometry.pages_per_superblock() {
                let ppn = core.geometry.page(sb, entry.offset());
                witnesses.remap(core, entry.target(), ppn, entry.wsn(), entry.relocated_source());
            }
        }
        Ok(used)
    }

    pub(super) fn check_groups(&self, core: &Core) -> Result<(), String> {
        self.check_segments()?;
        for (id, owners) in core.blocks.iter_owners() {
            let group = &self.groups[id.0 as usize];
            if owners.remapped > group.entries {
                return Err(format!("{id:?} has {} remapped LPNs and {} entries", owners.remapped, group.entries));
            }
        }
        for (sb, _) in core.blocks.iter_owners() {
            let Some(words) = core.media.words() else { break };
            let (base, ended) = (core.geometry.page(sb, 0).0, core.ended.of(sb));
            let group = &self.groups[sb.0 as usize];
            let ranges = (0..group.segments.len()).map(|index| self.entries_at(group, index));
            for at in ranges.flat_map(|range| range.step_by(self.entry_words)) {
                let entry = RmmEntry::from_words(words[at], words[at + 1]);
                let in_force = core.map.is_remapped_at(entry.target(), Ppn(base + entry.offset()));
                if !in_force && !ended.may_have_ended(entry.target()) {
                    return Err(format!("{sb:?} has an entry for LPN {} that ended unnoticed", entry.target()));
                }
            }
        }
        Ok(())
    }
}

/// An entry could not be read: asks the L2P table which remapped LPNs of the superblock are not in
/// `out[start..]`. They get a new sequence number: it is the mapping in force.
#[cold]
pub(in crate::scheme) fn find_lost(core: &mut Core, sb: SbId, start: usize, out: &mut Vec<RmmEntry>) {
    let known = out[start..].iter().filter(|entry| !core.is_aborted(entry.wsn()));
    let known: BTreeSet<(u32, u32)> = known.map(|entry| (entry.target(), entry.offset())).collect();
    for lpn in 0..core.map.len() {
        if let Some(mapping) = core.map.get(lpn)
            && mapping.remapped
            && core.geometry.superblock(mapping.ppn) == sb
        {
            let offset = core.geometry.offset(mapping.ppn);
            if !known.contains(&(lpn, offset)) {
                let wsn = core.tick();
                let remapping = Remapping { lpn, ppn: mapping.ppn, wsn, source: None, atomic: None };
                out.push(RmmEntry::of(&remapping, offset));
            }
        }
    }
}
