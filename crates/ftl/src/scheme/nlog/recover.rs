//! Recovery of the log: the units in use, their order, and their entries.
//!
//! Invariant: a unit counts if its head has its torn bit. At most one head may be unreadable; its
//! number is derived from the others. Absent: which witness wins (`witnesses`).

use super::{NLog, SEQUENCE_END, SLOT_WORDS, UnitHead};
use crate::contract::Recover;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::recovery::witnesses::Witnesses;
use crate::scheme::device_log::{DeviceLog, LogMedium, add_witness};
use crate::scheme::index::OwnerIndex;
use crate::scheme::log_entry::LogEntry;
use remap_ssd_media::{After, ClearId, Media, Purpose};

/// Units found by recovery.
struct FoundUnits {
    /// Units in use, each after its sequence number.
    pub used: Vec<(u64, usize)>,
    /// A unit with entries but an unreadable head: at most one.
    pub headless: Option<usize>,
}

impl Recover for DeviceLog<NLog> {
    fn replay(&mut self, core: &mut Core, witnesses: &mut Witnesses) -> Result<(), RecoveryError> {
        let Self {
            medium: log, index, ..
        } = self;
        let words = log.total_units * (log.slots + 1) * SLOT_WORDS;
        witnesses.charge_scan(&mut core.media, words);

        let FoundUnits { mut used, headless } = log.find_units(&mut core.media)?;
        used.sort_unstable();
        if let Some(unit) = headless {
            let sequence = log.sequence_of(&mut core.media, unit, &used)?;
            log.heads.push((unit, sequence));
            used.push((sequence, unit));
            used.sort_unstable();
        }

        // In order of sequence numbers: of two entries with the same LPN and page the later is the
        // newer.
        log.sequence = used.last().map_or(1, |(sequence, _)| sequence + 1);
        for (_, unit) in used {
            log.replay_unit(core, index, witnesses, unit)?;
            log.units.push_back(unit);
        }
        Ok(())
    }

    fn resume(&mut self, core: &mut Core) -> bool {
        let log = &mut self.medium;
        log.heal(&mut core.media);
        self.fullest = core.blocks.remapped_max();
        // A cut during reclaiming has left old and new units side by side.
        if log.free.len() < log.reserved_units(self.fullest) && !log.free.is_empty() {
            log.reclaim(core, &mut self.index);
        }
        true
    }
}

impl NLog {
    /// The sequence number of a unit with an unreadable head: the gap in the sequence, or before
    /// the first, or after the last.
    ///
    /// # Errors
    /// It is at one of the ends, and an unreadable entry hides which.
    fn sequence_of(
        &self,
        media: &mut Media,
        unit: usize,
        known: &[(u64, usize)],
    ) -> Result<u64, RecoveryError> {
        // Numbers are consecutive: reclaimed units were the oldest. So a gap belongs to the
        // unreadable head.
        let gap = known
            .windows(2)
            .find(|pair| pair[0].0 + 1 < pair[1].0)
            .map(|pair| pair[0].0 + 1);
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return Ok(1);
        };
        if let Some(gap) = gap {
            return Ok(gap);
        }

        // Without a gap it is at one of the ends. Entries of the newest unit are newer than all
        // others.
        let is_newer = self.newest_entry(media, unit)? > self.newest_entry(media, last.1)?;
        let first = first
            .0
            .checked_sub(1)
            .filter(|first| *first > 0 && !is_newer);
        Ok(first.unwrap_or(last.0 + 1))
    }

    /// The largest number of an entry in a unit.
    fn newest_entry(&self, media: &mut Media, unit: usize) -> Result<u64, RecoveryError> {
        let mut newest = 0;
        for slot in 1..=self.slots {
            let word = self.word(unit) + slot * SLOT_WORDS;
            let [first, second] = [media.load(word), media.load(word + 1)];
            let first = first.map_err(|_| RecoveryError::NvramDamaged { word })?;
            let entry = LogEntry::from_words([first, 0]);
            let is_torn = !entry.torn_first() || second.is_ok_and(|second| second & 1 == 0);
            if !is_torn {
                newest = newest.max(entry.wsn());
            }
        }
        Ok(newest)
    }

    /// Repairs the records that were unreadable at recovery.
    fn heal(&mut self, media: &mut Media) {
        for (unit, sequence) in std::mem::take(&mut self.heads) {
            let head = UnitHead::new().with_torn(true).with_sequence(sequence);
            media.store(self.word(unit), head.into(), Purpose::Meta, After::NOTHING);
        }
        // Entries after the pages of their doubts; heads before, since they are correct in any
        // case.
        for at in std::mem::take(&mut self.damaged) {
            media.store_record(
                at,
                &[0; SLOT_WORDS],
                Purpose::Meta,
                self.guards.after_doubts(),
            );
        }
    }

    /// Finds the units in use, and queues the others as free.
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
                // Entries are stored after the head: a unit without entries is free.
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

            // A cut during a clearing leaves some words. They must be zeroed before the unit is
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

    /// Reports the entries of one unit as witnesses. Sets `used` for this unit.
    fn replay_unit(
        &mut self,
        core: &mut Core,
        index: &mut OwnerIndex,
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

            // Even after a torn or damaged entry: its slot is not reused before the unit is zeroed.
            self.used = slot + 1;
            let [Ok(first), Ok(second)] = words else {
                self.damaged.push(at);
                LogEntry::doubt(&core.blocks, &core.config, witnesses, words)
                    .map_err(|_| RecoveryError::NvramDamaged { word: at + 1 })?;
                continue;
            };

            if !add_witness(core, index, witnesses, [first, second]) {
                witnesses.zero(at..at + SLOT_WORDS);
            }
        }
        Ok(())
    }
}
