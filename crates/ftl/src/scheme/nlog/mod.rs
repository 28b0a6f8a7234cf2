//! NLog: the device-wide log in NVRAM.
//!
//! Entries are appended in units.
//!
//! Invariants: units are ordered by their sequence numbers; of two entries with the same LPN and
//! page the later is the newer; enough units stay free for the fullest superblock's references and
//! one unit of rewriting. Absent: when the log is reclaimed (`device_log`).

mod reclaim;
mod recover;

use super::device_log::{self, DeviceLog, LogMedium};
use super::index::OwnerIndex;
use super::log_entry::LogEntry;
use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::kind::{Hue, SchemeFacts};
use crate::config::layout::NvramLayout;
use crate::contract::{Remapping, SchemeSpec};
use crate::core::Core;
use crate::error::Contradiction;
use crate::mapping::tables::Tables;
use crate::superblock::Superblocks;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, ClearId, Geometry, Lpn, Media, Ppn, Purpose};
use std::collections::VecDeque;
use std::ops::Range;

/// The scheme's declaration for the catalogue.
pub(super) const SPEC: SchemeSpec = SchemeSpec::new(
    SchemeFacts {
        name: "nlog",
        hue: Some(Hue::Purple),
        ..SchemeFacts::DURABLE
    },
    |config, geometry| {
        Box::new(DeviceLog::new(
            NLog::new(config, geometry),
            config,
            geometry,
        ))
    },
)
.with_nvram_log()
.with_check(|config, _| device_log::check(config, (UNITS_MIN * 3 * SLOT_WORDS * 8) as u64));

/// Entries per unit, unless the log is small.
const UNIT_ENTRIES_MAX: usize = 256;
/// Units in the smallest log.
const UNITS_MIN: usize = 8;
/// Units that only GC and reclaiming may use, in addition to those for the fullest superblock's
/// references.
const SLACK: usize = 2;
/// Words of an entry and of a unit's head slot.
const SLOT_WORDS: usize = 2;
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
    gone: Vec<u32>,
    hidden: Vec<Lpn>,
    /// Units with unreadable heads at recovery, and unreadable entries.
    heads: Vec<(usize, u64)>,
    damaged: Vec<usize>,
}

impl NLog {
    pub(super) fn new(config: &Config, geometry: &Geometry) -> Self {
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
            gone: Vec::new(),
            hidden: Vec::new(),
            heads: Vec::new(),
            damaged: Vec::new(),
        }
    }

    fn word(&self, unit: usize) -> usize {
        self.base + unit * (self.slots + 1) * SLOT_WORDS
    }
    /// Returns true if the newest unit has a free slot.
    fn is_open(&self) -> bool {
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
    /// Units that hosts leave free.
    fn reserved_units(&self, fullest: u32) -> usize {
        (fullest as usize).div_ceil(self.slots) + SLACK
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
        if !self.is_open() {
            self.begin_unit(media, purpose);
        }
        let at = self.next_slot_word();
        self.used += 1;
        let after = After::clear(self.clear)
            .and(self.guards.waits(Guard::EntryAfterPage, After::page(page)));
        media.store_record(at, &words, purpose, after);
    }

    /// Checks that every entry that reclaiming would not look up is in force.
    fn check_ended(
        &self,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
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
                        return Err(Contradiction(format!(
                            "the log has an entry for LPN {lpn} in {sb:?} that ended unnoticed"
                        )));
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

impl LogMedium for NLog {
    fn capacity(&self) -> u64 {
        (self.total_units * self.slots) as u64
    }

    fn entries(&self) -> u64 {
        match self.units.len() {
            0 => 0,
            full => ((full - 1) * self.slots + self.used) as u64,
        }
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn reserve(&self, fullest: u32) -> u64 {
        (self.reserved_units(fullest) * self.slots) as u64
    }

    fn charge_scan(&self, media: &mut Media) {
        media.charge_loads(self.entries() as usize * SLOT_WORDS, Purpose::Gc);
    }

    fn has_room(&self, _: &Core, fullest: u32) -> bool {
        // Exactly the reserve is enough if the current unit has a slot. Signed: recovery may find a
        // log without its full reserve.
        let spare = self.free.len() as i64 - self.reserved_units(fullest) as i64;
        spare > 0 || (spare == 0 && self.is_open())
    }

    fn has_room_to_move(&self, _: &Core) -> bool {
        // One unit is kept for reclaiming, which could not begin without it.
        self.is_open() || self.free.len() >= 2
    }

    fn room_to_move(&self, _: &Superblocks) -> u64 {
        let open = if self.is_open() {
            self.slots - self.used
        } else {
            0
        };
        (open + self.free.len().saturating_sub(1) * self.slots) as u64
    }

    fn can_reclaim(&self, _: &Core) -> bool {
        // Rewriting needs one free unit: an old one is released only after its entries have moved.
        !self.free.is_empty()
    }

    fn append(&mut self, core: &mut Core, _: &OwnerIndex, next: &Remapping, purpose: Purpose) {
        let words = LogEntry::of(&core.blocks, core.geometry, next).words();
        self.store(&mut core.media, words, next.ppn, purpose);
    }

    fn reclaim(&mut self, core: &mut Core, index: &mut OwnerIndex) {
        self.rewrite(core, index);
    }

    fn check(
        &self,
        _: &OwnerIndex,
        tables: &Tables,
        blocks: &Superblocks,
        media: &Media,
    ) -> Result<(), Contradiction> {
        if self.units.len() + self.free.len() != self.total_units {
            return Err(Contradiction("a unit of the log is lost".into()));
        }
        self.check_ended(tables, blocks, media)
    }
}
