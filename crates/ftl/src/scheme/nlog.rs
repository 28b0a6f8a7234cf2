//! NLog: one device-wide log of remaps in NVRAM.
//!
//! Entries are appended in units; finding the owners of a victim's pages means reading the whole
//! log, and so does reclaiming it: read all, rewrite what is valid, zero the rest (FAST'21 §3.3,
//! §5.1).
//!
//! Invariants: units are in order of their sequence numbers; of two entries with one LPN and page
//! the later is the newer; enough units stay free for the fullest superblock's references and one
//! unit of rewriting. Absent: per-superblock structure on the medium (`index` is the simulator's,
//! its cost is the scan's).

use super::in_force::keep_gone;
use super::index::OwnerIndex;
use super::log_entry::LogEntry;
use crate::clock::WsnClock;
use crate::config::Config;
use crate::contract::{
    Inspect, LookAhead, OwnerRef, Ownership, Persist, Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::Ended;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::{Guard, Guards};
use crate::kind::{Hue, SchemeFacts};
use crate::layout::Layout;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Geometry, Media, OpKind, Ppn, Purpose, SbId};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The scheme as the catalogue lists it.
pub const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "nlog",
        hue: Some(Hue::Purple),
        ..SchemeFacts::DURABLE
    },
    |config, geometry| Box::new(NLog::new(config, geometry)),
)
.with_nvram_log()
.with_check(|config, _| check(config));

/// Entries of a unit in a log of ordinary size.
const UNIT_ENTRIES_MAX: usize = 256;
/// Units in the smallest log.
const UNITS_MIN: usize = 8;
/// Units that only GC and reclaiming may use, beyond the fullest superblock's references.
const SLACK: usize = 2;
/// Words of an entry and of a unit's head slot.
const SLOT_WORDS: usize = 2;
/// Reclaiming pays only if more than one entry in so many is invalid.
const INVALID_SHARE: u64 = 20;
/// Limit of unit sequence numbers: at one unit per nanosecond it is not reached in a hundred years.
const SEQUENCE_END: u64 = 1 << 62;
/// Entries gone through at a time.
const CHUNK: usize = 64;

/// First word of a unit.
#[bitfield(u64)]
struct UnitHead {
    torn: bool,
    #[bits(63)]
    sequence: u64,
}

pub(super) struct NLog {
    guards: Guards,
    base: usize,
    slots: usize,
    /// Units in use, oldest first.
    units: VecDeque<usize>,
    /// Slots used in the newest.
    used: usize,
    clear: ClearId,
    free: VecDeque<(usize, ClearId)>,
    total_units: usize,
    sequence: u64,
    index: OwnerIndex,
    fullest: u32,
    reclaim_pays_from: u64,
    gone: Vec<u32>,
    hidden: Vec<u32>,
    /// Units whose heads were unreadable at recovery, and entries that were.
    heads: Vec<(usize, u64)>,
    damaged: Vec<usize>,
}

/// What recovery finds of the log.
struct FoundUnits {
    /// Units in use by their newest sequence number.
    used: Vec<(u64, usize)>,
    /// A unit with entries whose head cannot be read: one at most.
    headless: Option<usize>,
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let least = UNITS_MIN * 3 * SLOT_WORDS * 8;
    if config.log_bytes < least as u64 {
        return Err(ConfigError(format!(
            "log_bytes = {} is too small for a log: use at least {least}",
            config.log_bytes
        )));
    }
    Ok(())
}

impl NLog {
    pub fn new(config: &Config, geometry: &Geometry) -> Self {
        let slots_in_all = config.log_bytes as usize / (SLOT_WORDS * 8);
        let slots = (slots_in_all / UNITS_MIN - 1).min(UNIT_ENTRIES_MAX);
        let total_units = slots_in_all / (slots + 1);

        Self {
            guards: config.guards,
            base: Layout::new(config, geometry).scheme,
            slots,
            units: VecDeque::new(),
            used: 0,
            clear: ClearId::default(),
            free: (0..total_units)
                .map(|unit| (unit, ClearId::default()))
                .collect(),
            total_units,
            sequence: 1,
            index: OwnerIndex::new(geometry),
            fullest: 0,
            reclaim_pays_from: 0,
            gone: Vec::new(),
            hidden: Vec::new(),
            heads: Vec::new(),
            damaged: Vec::new(),
        }
    }

    fn word(&self, unit: usize) -> usize {
        self.base + unit * (self.slots + 1) * SLOT_WORDS
    }
    fn entries(&self) -> u64 {
        match self.units.len() {
            0 => 0,
            full => ((full - 1) * self.slots + self.used) as u64,
        }
    }
    fn has_slot(&self) -> bool {
        !self.units.is_empty() && self.used < self.slots
    }
    /// The words of the entries of each unit in use, oldest first.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.units.iter().enumerate().map(|(index, unit)| {
            let from = self.word(*unit) + SLOT_WORDS;
            from..from
                + SLOT_WORDS
                    * if index + 1 == self.units.len() {
                        self.used
                    } else {
                        self.slots
                    }
        })
    }
    fn reserve(&self) -> usize {
        (self.fullest as usize).div_ceil(self.slots) + SLACK
    }
    fn charge_scan(&self, media: &mut Media) {
        let bytes = self.entries() * (SLOT_WORDS * 8) as u64;
        media.charge(OpKind::NvRead, bytes as u32, Purpose::Gc, After::NOTHING);
    }

    fn begin_unit(&mut self, media: &mut Media, purpose: Purpose) {
        let (unit, clear) = self.free.pop_front().expect("a free unit was secured");
        // 1. zeroes  2. the unit's head  3. entries.
        // A head that landed before the zeroes would be erased by them, and one after its entries
        // would leave them without an order.
        let head = UnitHead::new().with_torn(true).with_sequence(self.sequence);
        media.store(self.word(unit), head.into(), purpose, After::clear(clear));
        media.fence();
        self.sequence += 1;
        self.units.push_back(unit);
        (self.used, self.clear) = (0, clear);
    }

    /// First word of the next slot; there is one.
    fn next_slot_word(&self) -> usize {
        let unit = *self.units.back().expect("a log with a slot has a unit");
        self.word(unit) + (self.used + 1) * SLOT_WORDS
    }

    fn store(&mut self, media: &mut Media, words: [u64; 2], page: Ppn, purpose: Purpose) {
        if !self.has_slot() {
            self.begin_unit(media, purpose);
        }
        let at = self.next_slot_word();
        self.used += 1;
        let after = After::clear(self.clear)
            .and(self.guards.waits(Guard::EntryAfterPage, After::page(page)));
        media.store_record(at, &words, purpose, after);
    }

    /// Stores all entries that are at these words, as they stand.
    fn store_run(&mut self, media: &mut Media, mut run: Range<usize>) {
        let (guards, page_of) = (self.guards, |words: &[u64; SLOT_WORDS]| {
            After::page(Ppn(LogEntry::from_words(*words).ppn()))
        });
        while !run.is_empty() {
            if !self.has_slot() {
                self.begin_unit(media, Purpose::Gc);
            }

            let len = (run.len() / SLOT_WORDS).min(self.slots - self.used);
            let end = run.start + len * SLOT_WORDS;

            // Charged as one: what the entries wait for besides, their pages, the zeroing of the
            // old unit waits for too.
            let bytes = (len * SLOT_WORDS * 8) as u32;
            let clear = After::clear(self.clear);
            media.charge(OpKind::NvWrite, bytes, Purpose::Gc, clear);

            let to = self.next_slot_word();
            media.move_records(run.start..end, to, Purpose::Gc, |words| {
                clear.and(guards.waits(Guard::EntryAfterPage, page_of(words)))
            });
            self.used += len;
            run.start = end;
        }
    }

    fn append(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &mut Media,
        remapping: &Remapping,
        purpose: Purpose,
    ) {
        let words = LogEntry::of(blocks, tables.geometry, remapping).words();
        self.store(media, words, remapping.ppn, purpose);
        self.index.push(tables, blocks, remapping);
    }

    #[cold]
    fn make_room(&mut self, core: &mut Core, may_reclaim: bool) -> bool {
        let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
        if invalid < self.reclaim_pays_from {
            return false;
        }

        self.fullest = core.blocks.remapped_max() + 1;

        // Exactly the reserve is enough as long as the unit in use has a slot.
        let enough = |log: &Self| {
            let spare = log.free.len() as i64 - log.reserve() as i64;
            spare > 0 || (spare == 0 && log.has_slot())
        };

        // Rewriting needs one free unit: an old one is released only after its entries have moved.
        if !enough(self)
            && may_reclaim
            && invalid * INVALID_SHARE > self.entries()
            && !self.free.is_empty()
        {
            self.reclaim(core);
        }

        if enough(self) {
            return true;
        }
        if may_reclaim {
            let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
            self.reclaim_pays_from = invalid + self.slots as u64;
        }

        false
    }

    /// Reads all, rewrites what is valid unit by unit, zeroes the old units.
    fn reclaim(&mut self, core: &mut Core) {
        core.stats.metadata_gc_runs += 1;
        self.charge_scan(&mut core.media);
        let old: Vec<Range<usize>> = self.ranges().collect();
        // All units are old now. Their ranges stay readable until each is released.
        self.units.clear();
        self.used = 0;
        if self.find_gone(&mut core.tables, &core.blocks, &core.media, &old) {
            self.rewrite_all_but_gone(&mut core.media, &old);
        } else {
            self.rewrite_valid(&mut core.tables, &core.blocks, &mut core.media, &old);
        }

        // No entry that ended before is left, so what is noted from now on is all there is.
        (0..core.geometry.superblocks()).for_each(|sb| core.tables.ended.start_over(SbId(sb)));
    }

    /// Where the entries are that are not in force, into `gone`, in the log's order; `false` if
    /// NVRAM must be read word by word, or if the rest is not one entry for each remapped page.
    /// Looks those up whose remap may have ended.
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

        // One entry for each remapped page, no more: then what is not gone may be moved without
        // being looked at.
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

    /// The same where words cannot be read, or some mapping has several entries: goes by what can
    /// be read.
    #[cold]
    fn rewrite_valid(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        media: &mut Media,
        old: &[Range<usize>],
    ) {
        // Newest first: an LPN once seen is hidden, so that older entries of the same mapping do
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
            // In the place of the first that cannot be read: it goes with its unit, and no unit
            // more is needed.
            let unread = self.take_unread(tables, blocks, &mut kept);
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

    /// The unreadable entries that are in force, taken from the index. What was read of their
    /// mappings is older, and goes.
    fn take_unread(
        &mut self,
        tables: &mut Tables,
        blocks: &Superblocks,
        read: &mut [Vec<LogEntry>],
    ) -> Vec<LogEntry> {
        let known: BTreeSet<(u32, u64)> = read
            .iter()
            .flatten()
            .map(|entry| (entry.lpn(), entry.wsn()))
            .collect();
        // The index may hold stale entries, and they must not come back as unread ones.
        self.index.sort_out(tables);
        let is_unread = |at: &Remapping| !known.contains(&(at.lpn, at.wsn));
        let unread: Vec<Remapping> = self.index.iter(tables.geometry).filter(is_unread).collect();

        let lpns: BTreeSet<u32> = unread.iter().map(|remapping| remapping.lpn).collect();
        read.iter_mut()
            .for_each(|unit| unit.retain(|entry| !lpns.contains(&entry.lpn())));
        unread
            .iter()
            .map(|remapping| LogEntry::of(blocks, tables.geometry, remapping))
            .collect()
    }

    /// The sequence number of a unit with an unreadable head: the gap in the sequence, or before
    /// the first, or after the last.
    fn sequence_of(&self, media: &mut Media, unit: usize, known: &[(u64, usize)]) -> u64 {
        // Numbers are consecutive but for the units that were reclaimed, and those were the oldest:
        // a gap is where the unreadable head was.
        let gap = known
            .windows(2)
            .find(|pair| pair[0].0 + 1 < pair[1].0)
            .map(|pair| pair[0].0 + 1);
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return 1;
        };

        // Without a gap it is at one of the ends. Entries of the newest unit are newer than all
        // others.
        let is_newer = self.newest_entry(media, unit) > self.newest_entry(media, last.1);
        let first = first
            .0
            .checked_sub(1)
            .filter(|first| *first > 0 && !is_newer);
        gap.or(first).unwrap_or(last.0 + 1)
    }

    fn newest_entry(&self, media: &mut Media, unit: usize) -> u64 {
        let slots = (1..=self.slots).map(|slot| self.word(unit) + slot * SLOT_WORDS);
        slots
            .filter_map(|at| load(media, at))
            .map(|entry| entry.wsn())
            .max()
            .unwrap_or(0)
    }

    /// Repairs the records that were unreadable at recovery.
    fn heal(&mut self, media: &mut Media) {
        for (unit, sequence) in std::mem::take(&mut self.heads) {
            let head = UnitHead::new().with_torn(true).with_sequence(sequence);
            media.store(self.word(unit), head.into(), Purpose::Meta, After::NOTHING);
        }
        // Entries after the pages of their doubts; heads before, since they say nothing that is not
        // so.
        for at in std::mem::take(&mut self.damaged) {
            media.store_record(
                at,
                &[0; SLOT_WORDS],
                Purpose::Meta,
                self.guards.after_doubts(),
            );
        }
    }

    /// Is every entry in force that reclaiming would not look up?
    fn check_ended(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), String> {
        let Some(words) = media.words() else {
            return Ok(());
        };

        for range in self.ranges() {
            for words in words[range].as_chunks::<SLOT_WORDS>().0 {
                let entry = LogEntry::from_words(*words);
                let (lpn, ppn) = (entry.lpn(), Ppn(entry.ppn()));
                if entry.is_intact()
                    && entry.is_current(blocks, tables.geometry)
                    && !tables.map.is_remapped_at(lpn, ppn)
                {
                    let sb = tables.geometry.superblock(ppn);
                    if !tables.ended.of(sb).may_have_ended(lpn) {
                        return Err(format!(
                            "the log has an entry for LPN {lpn} in {sb:?} that ended unnoticed"
                        ));
                    }
                }
            }
        }

        Ok(())
    }

    /// Zeroes the unit that has these entries, after what superseded it, and frees it.
    fn release(&mut self, media: &mut Media, entries: &Range<usize>) {
        let at = entries.start - SLOT_WORDS;
        let after = self.guards.waits(Guard::ClearWaits, After::ALL);
        let clear = media.clear(at, (self.slots + 1) * SLOT_WORDS, after);
        self.free
            .push_back(((at - self.base) / ((self.slots + 1) * SLOT_WORDS), clear));
    }

    /// Finds out which units are in use, and queues the others as free.
    fn find_units(&mut self, media: &mut Media) -> Result<FoundUnits, RecoveryError> {
        let (mut used, mut headless) = (Vec::new(), None);
        self.free.clear();
        for unit in 0..self.total_units {
            let at = self.word(unit);
            let len = (self.slots + 1) * SLOT_WORDS;
            match media.load(at).map(UnitHead::from_bits) {
                Ok(head) if head.sequence() >= SEQUENCE_END => {
                    return Err(RecoveryError::Foreign(
                        "a unit of the log has a number that none reaches".into(),
                    ));
                }
                Ok(head) if head.torn() => {
                    used.push((head.sequence(), unit));
                    continue;
                }
                // Entries are stored after the head: a unit without any is free.
                Err(_) if (at + 1..at + len).any(|word| media.load(word) != Ok(0)) => {
                    // The order of two such units is unknown, and of two entries the later one
                    // counts.
                    if headless.replace(unit).is_some() {
                        return Err(RecoveryError::NvramDamaged { word: at });
                    }
                    continue;
                }
                _ => {}
            }

            // A cut inside a clearing leaves some of the words. They must go before the unit is
            // used: its new head would vouch for them.
            let zero = (at..at + len).all(|word| media.load(word) == Ok(0));
            let clear = if zero {
                ClearId::default()
            } else {
                media.clear(at, len, After::NOTHING)
            };
            self.free.push_back((unit, clear));
        }
        Ok(FoundUnits { used, headless })
    }

    /// Reports the entries of one unit as witnesses. `used` is left at the value for this unit.
    fn replay_unit(
        &mut self,
        core: &mut Core,
        witnesses: &mut Witnesses,
        unit: usize,
    ) -> Result<(), RecoveryError> {
        self.used = 0;
        for slot in 0..self.slots {
            let at = self.word(unit) + (slot + 1) * SLOT_WORDS;
            let words = [core.media.load(at), core.media.load(at + 1)];
            if words == [Ok(0), Ok(0)] {
                continue;
            }

            // Also behind a torn or damaged entry: its slot is not used again before the unit is
            // zeroed.
            self.used = slot + 1;
            let [Ok(first), Ok(second)] = words else {
                self.damaged.push(at);
                LogEntry::doubt(&core.blocks, &core.config, witnesses, words)
                    .map_err(|_| RecoveryError::NvramDamaged { word: at + 1 })?;
                continue;
            };

            let entry = LogEntry::from_words([first, second]);
            let intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
            if intact && entry.is_current(&core.blocks, core.geometry) {
                let ppn = Ppn(entry.ppn());
                if !witnesses.remap(core, entry.lpn(), ppn, entry.wsn(), None) {
                    witnesses.zero(at..at + SLOT_WORDS);
                    continue;
                }
                let remapping = Remapping {
                    lpn: entry.lpn(),
                    ppn,
                    wsn: entry.wsn(),
                    source: None,
                    atomic: None,
                };
                self.index.push_unchecked(core.geometry, &remapping);
            }
        }
        Ok(())
    }
}

/// Appends the places of the entries that may not be in force; `false` if NVRAM must be read word
/// by word.
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

    // No entry has the incarnation of a superblock about which nothing is known.
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
        // What names no page of the device is no entry.
        let is_current = incarnations.get(sb.0 as usize) == Some(&entry.incarnation());
        !is_current || !entry.is_intact() || tables.ended.is_noted(sb, entry.lpn())
    };

    for range in old {
        let entries = words[range.clone()].as_chunks::<SLOT_WORDS>().0;
        // No branches, as in `in_force`.
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

fn load(media: &mut Media, at: usize) -> Option<LogEntry> {
    let words = [media.load(at).ok()?, media.load(at + 1).ok()?];
    let entry = LogEntry::from_words(words);
    entry.is_intact().then_some(entry)
}

impl Persist for NLog {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        let capacity = (self.total_units * self.slots) as f64;
        if core.blocks.remapped_total() as f64 >= core.config.watermark * capacity {
            return Err(Demotion::Watermark);
        }
        self.fullest = self
            .fullest
            .max(core.blocks.owners(core.geometry.superblock(ppn)).remapped + 1);

        // Signed: recovery may find a log whose reserve is not whole.
        let spare = self.free.len() as i64 - self.reserve() as i64;
        if spare > 0 || (spare == 0 && self.has_slot()) || self.make_room(core, may_reclaim) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(
            &mut core.tables,
            &core.blocks,
            &mut core.media,
            remapping,
            purpose,
        );
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        // One unit is kept for reclaiming, which could not begin without.
        if !self.has_slot() && self.free.len() < 2 {
            return false;
        }
        self.append(
            &mut core.tables,
            &core.blocks,
            &mut core.media,
            remapping,
            Purpose::Gc,
        );
        true
    }
}

impl Ownership for NLog {
    fn owners(
        &mut self,
        _: &Tables,
        media: &mut Media,
        _: &mut WsnClock,
        sb: SbId,
        out: &mut Vec<OwnerRef>,
    ) {
        self.charge_scan(media);
        self.index.owners(sb, out);
    }

    fn forget(&mut self, _: &mut Media, ended: &mut Ended, _: &mut SchemeCounters, sb: SbId) {
        self.index.forget(sb);
        // Entries of the incarnation that is over stay in the log; none of the next one is there
        // yet.
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Recover for NLog {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let bytes = self.total_units * (self.slots + 1) * SLOT_WORDS * 8;
        witnesses.report.nvram_bytes += bytes as u64;
        core.media
            .charge(OpKind::NvRead, bytes as u32, Purpose::Meta, After::NOTHING);

        let FoundUnits { mut used, headless } = self.find_units(&mut core.media)?;
        used.sort_unstable();
        if let Some(unit) = headless {
            let sequence = self.sequence_of(&mut core.media, unit, &used);
            self.heads.push((unit, sequence));
            used.push((sequence, unit));
            used.sort_unstable();
        }

        // In order of the numbers: of two entries with one LPN and page the later one is the newer.
        self.sequence = used.last().map_or(1, |(sequence, _)| sequence + 1);
        for (_, unit) in used {
            self.replay_unit(core, witnesses, unit)?;
            self.units.push_back(unit);
        }
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.heal(&mut core.media);
        self.fullest = core.blocks.remapped_max();
        // A cut in the midst of reclaiming has left old and new units side by side.
        if self.free.len() < self.reserve() && !self.free.is_empty() {
            self.reclaim(core);
        }
        true
    }
}

impl Inspect for NLog {
    fn usage(&self, blocks: &Superblocks) -> Usage {
        let entry = (SLOT_WORDS * 8) as u64;
        Usage {
            capacity_bytes: (self.total_units * self.slots) as u64 * entry,
            used_bytes: self.entries() * entry,
            valid_bytes: blocks.remapped_total() * entry,
            entry_room_bytes: (self.total_units * self.slots) as u64 * entry,
            gc_reserve_bytes: (self.reserve() * self.slots) as u64 * entry,
            ..Usage::default()
        }
    }

    fn check(&self, tables: &Tables, blocks: &Superblocks, media: &Media) -> Result<(), String> {
        if self.units.len() + self.free.len() != self.total_units {
            return Err("a unit of the log is lost".into());
        }
        self.check_ended(tables, blocks, media)?;
        self.index.check(tables)
    }
}

impl LookAhead for NLog {}
