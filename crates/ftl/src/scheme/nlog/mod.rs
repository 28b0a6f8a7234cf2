//! NLog: one device-wide log of remaps in NVRAM.
//!
//! Entries are appended in units. Finding the owners of a victim's pages means reading the whole
//! log, and so does reclaiming it: read all, rewrite the valid entries, zero the rest (FAST'21
//! §3.3, §5.1).
//!
//! Invariants: units are ordered by their sequence numbers; of two entries with the same LPN and
//! page the later is the newer; enough units stay free for the fullest superblock's references and
//! one unit of rewriting. Absent: per-superblock structure on the medium (`index` belongs to the
//! simulator; its cost is the scan's).

mod reclaim;
mod recover;

use super::index::OwnerIndex;
use super::log_entry::LogEntry;
use crate::config::Config;
use crate::contract::{
    Inspect, LookAhead, OwnerLookup, Ownership, Persist, Recover, Remapping, SchemeSpec, Usage,
};
use crate::core::Core;
use crate::ended::EndedFilters;
use crate::error::{ConfigError, RecoveryError};
use crate::guard::{Guard, Guards};
use crate::kind::{Hue, SchemeFacts};
use crate::layout::NvramLayout;
use crate::stats::{Demotion, SchemeCounters};
use crate::superblock::Superblocks;
use crate::tables::Tables;
use crate::witnesses::Witnesses;
use bitfield_struct::bitfield;
use recover::FoundUnits;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Media, Ppn, Purpose, SbId};
use std::collections::VecDeque;
use std::ops::Range;

/// The scheme's declaration for the catalogue.
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

/// Entries per unit, unless the log is small.
const UNIT_ENTRIES_MAX: usize = 256;
/// Units in the smallest log.
const UNITS_MIN: usize = 8;
/// Units that only GC and reclaiming may use, in addition to those for the fullest superblock's
/// references.
const SLACK: usize = 2;
/// Words of an entry and of a unit's head slot.
const SLOT_WORDS: usize = 2;
/// Reclaiming pays only if more than one entry in this many is invalid.
const INVALID_SHARE: u64 = 20;
/// Limit of unit sequence numbers: at one unit per nanosecond it takes more than a hundred years to
/// reach.
const SEQUENCE_END: u64 = 1 << 62;
/// Entries processed at a time.
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
    /// Slots used in the newest unit.
    used: usize,
    clear: ClearId,
    free: VecDeque<(usize, ClearId)>,
    total_units: usize,
    sequence: u64,
    index: OwnerIndex,
    fullest: u32,
    reclaim_pays_from: u64,
    gone: Vec<u32>,
    hidden: Vec<Lpn>,
    /// Units with unreadable heads at recovery, and unreadable entries.
    heads: Vec<(usize, u64)>,
    damaged: Vec<usize>,
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
            base: NvramLayout::new(config, geometry).scheme,
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
        media.charge_loads(self.entries() as usize * SLOT_WORDS, Purpose::Gc);
    }

    fn begin_unit(&mut self, media: &mut Media, purpose: Purpose) {
        let (unit, clear) = self.free.pop_front().expect("a free unit was secured");
        // 1. zeroes  2. the unit's head  3. entries. Zeroes that landed after the head would erase
        // it, and entries that landed before the head would have no order.
        let head = UnitHead::new().with_torn(true).with_sequence(self.sequence);
        media.store(self.word(unit), head.into(), purpose, After::clear(clear));
        media.fence();
        self.sequence += 1;
        self.units.push_back(unit);
        (self.used, self.clear) = (0, clear);
    }

    /// First word of the next slot, which must exist.
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

    /// Checks that every entry that reclaiming would not look up is in force.
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

        // Signed: recovery may find a log without its full reserve.
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
        // One unit is kept for reclaiming, which could not begin without it.
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
    fn owners(&mut self, lookup: OwnerLookup) {
        self.charge_scan(lookup.media);
        self.index.owners(lookup.sb, lookup.out);
    }

    fn forget(
        &mut self,
        _: &mut Media,
        ended: &mut EndedFilters,
        _: &mut SchemeCounters,
        sb: SbId,
    ) {
        self.index.forget(sb);
        // Entries of the ended incarnation stay in the log; it has none of the next one yet.
        ended.start_over(sb);
        self.reclaim_pays_from = 0;
    }
}

impl Recover for NLog {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let words = self.total_units * (self.slots + 1) * SLOT_WORDS;
        witnesses.charge_scan(&mut core.media, words);

        let FoundUnits { mut used, headless } = self.find_units(&mut core.media)?;
        used.sort_unstable();
        if let Some(unit) = headless {
            let sequence = self.sequence_of(&mut core.media, unit, &used)?;
            self.heads.push((unit, sequence));
            used.push((sequence, unit));
            used.sort_unstable();
        }

        // In order of sequence numbers: of two entries with the same LPN and page the later is the
        // newer.
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
        // A cut during reclaiming has left old and new units side by side.
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
