//! NLog: one device-wide log of remaps in NVRAM.
//!
//! Entries are appended in units; finding the owners of a victim's pages means reading the whole log, and so
//! does reclaiming it: read all, rewrite what is valid, zero the rest (FAST'21 §3.3, §5.1).
//!
//! Invariants: units are in order of their sequence numbers; of two entries with one LPN and page the later is the
//! newer; enough units stay free for the fullest superblock's references and one unit of rewriting.
//! Absent: per-superblock structure on the medium (`index` is the simulator's, its cost is the scan's).

use super::index::OwnerIndex;
use super::log_entry::LogEntry;
use super::{OwnerRef, RemapScheme, Remapping, Usage};
use crate::config::{Config, ConfigError};
use crate::core::Core;
use crate::guard::Guard;
use crate::layout::Layout;
use crate::recovery::{RecoveryError, Witnesses};
use crate::stats::Demotion;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Geometry, OpKind, Ppn, Purpose, SbId};
use std::collections::VecDeque;

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

/// First word of a unit.
#[bitfield(u64)]
struct UnitHead {
    torn: bool,
    #[bits(63)]
    sequence: u64,
}

pub(super) struct NLog {
    base: usize,
    /// Entries of a unit.
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
    hopeless_below: u64,
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
            base: Layout::new(config, geometry).scheme,
            slots,
            units: VecDeque::new(),
            used: 0,
            clear: ClearId::default(),
            free: (0..total_units).map(|unit| (unit, ClearId::default())).collect(),
            total_units,
            sequence: 1,
            index: OwnerIndex::new(geometry),
            fullest: 0,
            hopeless_below: 0,
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
    fn reserve(&self) -> usize {
        (self.fullest as usize).div_ceil(self.slots) + SLACK
    }
    fn charge_scan(&self, core: &mut Core) {
        let bytes = self.entries() * (SLOT_WORDS * 8) as u64;
        core.media.charge(OpKind::NvRead, bytes as u32, Purpose::Gc, After::NOTHING);
    }

    fn store(&mut self, core: &mut Core, words: [u64; 2], page: Ppn, purpose: Purpose) {
        if !self.has_slot() {
            let (unit, clear) = self.free.pop_front().expect("a free unit was secured");
            // 1. zeroes  2. the unit's head  3. entries.
            let head = UnitHead::new().with_torn(true).with_sequence(self.sequence);
            core.media.store(self.word(unit), head.into(), purpose, After::clear(clear));
            core.media.fence();
            self.sequence += 1;
            self.units.push_back(unit);
            (self.used, self.clear) = (0, clear);
        }
        let unit = *self.units.back().expect("a log with a slot has a unit");
        let at = self.word(unit) + (self.used + 1) * SLOT_WORDS;
        self.used += 1;
        let mut after = After::clear(self.clear);
        if core.config.guards.has(Guard::EntryAfterPage) {
            after = after.and(After::page(page));
        }
        core.media.store_record(at, &words, purpose, after);
    }

    fn append(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        let words = LogEntry::of(core, remapping).words();
        self.store(core, words, remapping.ppn, purpose);
        self.index.push(core, remapping);
    }

    #[cold]
    fn make_room(&mut self, core: &mut Core, may_reclaim: bool) -> bool {
        let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
        if invalid < self.hopeless_below {
            return false;
        }
        self.fullest = core.blocks.iter().map(|(_, sb)| sb.remapped).max().unwrap_or(0) + 1;
        let enough = |log: &Self| {
            let spare = log.free.len() as i64 - log.reserve() as i64;
            spare > 0 || (spare == 0 && log.has_slot())
        };
        if !enough(self) && may_reclaim && invalid * INVALID_SHARE > self.entries() && !self.free.is_empty() {
            self.reclaim(core);
        }
        if enough(self) {
            return true;
        }
        if may_reclaim {
            let invalid = self.entries().saturating_sub(core.blocks.remapped_total());
            self.hopeless_below = invalid + self.slots as u64;
        }
        false
    }

    /// Reads all, rewrites what is valid unit by unit, zeroes the old units.
    fn reclaim(&mut self, core: &mut Core) {
        core.stats.metadata_gc_runs += 1;
        self.charge_scan(core);
        let old: Vec<usize> = self.units.drain(..).collect();
        let last_used = std::mem::replace(&mut self.used, 0);
        let slots_of = |index: usize, log: &Self| if index + 1 == old.len() { last_used } else { log.slots };
        // Newest first: an LPN once seen is hidden, so that older entries of the same mapping do not count.
        let mut kept: Vec<Vec<LogEntry>> = vec![Vec::new(); old.len()];
        for index in (0..old.len()).rev() {
            for slot in (0..slots_of(index, self)).rev() {
                let Some(entry) = self.load(core, old[index], slot) else { continue };
                if core.map.is_remapped_at(entry.lpn(), Ppn(entry.ppn())) && entry.is_current(core) {
                    core.map.hide_remapped(entry.lpn());
                    kept[index].push(entry);
                }
            }
        }
        kept.iter().flatten().for_each(|entry| core.map.mark_remapped(entry.lpn()));
        let found: u64 = kept.iter().map(|unit| unit.len() as u64).sum();
        // Per unit: 1. valid entries at their new place  2. zeroes at the old one.
        for (unit, entries) in old.into_iter().zip(kept) {
            for entry in entries.into_iter().rev() {
                self.store(core, entry.words(), Ppn(entry.ppn()), Purpose::Gc);
            }
            let after = if core.config.guards.has(Guard::ClearWaits) { After::ALL } else { After::NOTHING };
            let clear = core.media.clear(self.word(unit), (self.slots + 1) * SLOT_WORDS, after);
            self.free.push_back((unit, clear));
        }
        if found < core.blocks.remapped_total() {
            // Words that could not be read: write everything the index knows once more.
            for remapping in self.index.valid(core) {
                let words = LogEntry::of(core, &remapping).words();
                if self.has_slot() || !self.free.is_empty() {
                    self.store(core, words, remapping.ppn, Purpose::Gc);
                }
            }
        }
    }

    fn load(&self, core: &mut Core, unit: usize, slot: usize) -> Option<LogEntry> {
        let at = self.word(unit) + (slot + 1) * SLOT_WORDS;
        let words = [core.media.load(at).ok()?, core.media.load(at + 1).ok()?];
        let entry = LogEntry::from_words(words);
        entry.is_intact().then_some(entry)
    }
}

impl RemapScheme for NLog {
    fn admit(&mut self, core: &mut Core, ppn: Ppn, may_reclaim: bool) -> Result<(), Demotion> {
        let capacity = (self.total_units * self.slots) as f64;
        if core.blocks.remapped_total() as f64 >= core.config.watermark * capacity {
            return Err(Demotion::Watermark);
        }
        self.fullest = self.fullest.max(core.blocks.get(core.geometry.superblock(ppn)).remapped + 1);
        let spare = self.free.len() as i64 - self.reserve() as i64;
        if spare > 0 || (spare == 0 && self.has_slot()) || self.make_room(core, may_reclaim) {
            Ok(())
        } else {
            Err(Demotion::NvramFull)
        }
    }

    fn persist(&mut self, core: &mut Core, remapping: &Remapping, purpose: Purpose) {
        self.append(core, remapping, purpose);
    }

    fn persist_moved(&mut self, core: &mut Core, remapping: &Remapping) -> bool {
        if !self.has_slot() && self.free.len() < 2 {
            return false;
        }
        self.append(core, remapping, Purpose::Gc);
        true
    }

    fn owners(&mut self, core: &mut Core, sb: SbId, out: &mut Vec<OwnerRef>) {
        self.charge_scan(core);
        self.index.owners(sb, out);
    }

    fn forget(&mut self, _: &mut Core, sb: SbId) {
        self.index.forget(sb);
        self.hopeless_below = 0;
    }

    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let bytes = self.total_units * (self.slots + 1) * SLOT_WORDS * 8;
        witnesses.report.nvram_bytes += bytes as u64;
        core.media.charge(OpKind::NvRead, bytes as u32, Purpose::Meta, After::NOTHING);
        let mut found = Vec::new();
        self.free.clear();
        for unit in 0..self.total_units {
            let at = self.word(unit);
            let word = core.media.load(at).map_err(|_| RecoveryError::NvramDamaged { word: at })?;
            let head = UnitHead::from_bits(word);
            if head.torn() {
                found.push((head.sequence(), unit));
                continue;
            }
            let len = (self.slots + 1) * SLOT_WORDS;
            let zero = (at..at + len).all(|word| core.media.load(word) == Ok(0));
            let clear = if zero { ClearId::default() } else { core.media.clear(at, len, After::NOTHING) };
            self.free.push_back((unit, clear));
        }
        found.sort_unstable();
        self.sequence = found.last().map_or(1, |(sequence, _)| sequence + 1);
        for (_, unit) in found {
            self.used = 0;
            for slot in 0..self.slots {
                let at = self.word(unit) + (slot + 1) * SLOT_WORDS;
                let words = [core.media.load(at), core.media.load(at + 1)];
                if words == [Ok(0), Ok(0)] {
                    continue;
                }
                self.used = slot + 1;
                let [Ok(first), Ok(second)] = words else {
                    let second = words[1].map_err(|_| RecoveryError::NvramDamaged { word: at + 1 })?;
                    witnesses.lost(LogEntry::from_words([0, second]).lpn());
                    continue;
                };
                let entry = LogEntry::from_words([first, second]);
                let intact = entry.is_intact() || !core.config.guards.has(Guard::TornBits);
                if intact && entry.is_current(core) {
                    let ppn = Ppn(entry.ppn());
                    witnesses.remap(core, entry.lpn(), ppn, entry.wsn(), None);
                    let remapping = Remapping { lpn: entry.lpn(), ppn, wsn: entry.wsn(), source: None, atomic: None };
                    self.index.push_unchecked(core, &remapping);
                }
            }
            self.units.push_back(unit);
        }
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        self.fullest = core.blocks.iter().map(|(_, sb)| sb.remapped).max().unwrap_or(0);
        if self.free.len() < self.reserve() && !self.free.is_empty() {
            self.reclaim(core);
        }
        true
    }

    fn usage(&self, core: &Core) -> Usage {
        let entry = (SLOT_WORDS * 8) as u64;
        Usage {
            capacity_bytes: (self.total_units * self.slots) as u64 * entry,
            used_bytes: self.entries() * entry,
            valid_bytes: core.blocks.remapped_total() * entry,
            ..Usage::default()
        }
    }

    fn check(&self, core: &Core) -> Result<(), String> {
        if self.units.len() + self.free.len() != self.total_units {
            return Err("a unit of the log is lost".into());
        }
        self.index.check(core)
    }
}
