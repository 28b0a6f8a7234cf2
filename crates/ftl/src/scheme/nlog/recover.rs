//! Recovery of the log: the units in use, their order, and their entries.
//!
//! Invariant: a unit counts if its head has its torn bit. At most one head may be unreadable; its
//! number is derived from the others. Absent: which witness wins (`witnesses`).

use super::{NLog, SEQUENCE_END, SLOT_WORDS, UnitHead};
use crate::contract::Remapping;
use crate::core::Core;
use crate::error::RecoveryError;
use crate::guard::Guard;
use crate::scheme::log_entry::LogEntry;
use crate::witnesses::Witnesses;
use remap_ssd_media::{After, ClearId, Media, Ppn, Purpose};

/// Units found by recovery.
pub(super) struct FoundUnits {
    /// Units in use, each after its sequence number.
    pub used: Vec<(u64, usize)>,
    /// A unit with entries but an unreadable head: at most one.
    pub headless: Option<usize>,
}

impl NLog {
    /// The sequence number of a unit with an unreadable head: the gap in the sequence, or before
    /// the first, or after the last.
    ///
    /// # Errors
    /// It is at one of the ends, and an unreadable entry hides which.
    pub(super) fn sequence_of(
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
    pub(super) fn heal(&mut self, media: &mut Media) {
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
    pub(super) fn find_units(&mut self, media: &mut Media) -> Result<FoundUnits, RecoveryError> {
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
    pub(super) fn replay_unit(
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

            // Even after a torn or damaged entry: its slot is not reused before the unit is zeroed.
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
