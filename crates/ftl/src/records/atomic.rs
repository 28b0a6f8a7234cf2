//! Command atomicity: an interrupted command has no effect.
//!
//! All witnesses of an atomic remap (entries, copied pages, deallocations) carry one sequence
//! number. While the command is in progress an NVRAM slot holds that number; emptying the slot is
//! the commit record. Counting entries instead, as in FAST'21 §4.3, fails once an overwrite, GC or
//! a demotion has removed one.
//!
//! Invariants: recovery ignores every witness whose number is in the slot or in the aborted list; a
//! number stays in the list as long as a witness with it exists anywhere, and reclaiming drops
//! entries with it (`Tables::is_in_force`).
//!
//! Writes of several pages are the same with words of their own (`open_writes`), whose numbers recovery moves into the list.
//!
//! The list has 64 places, or 192 where writes are atomic, and repeated cuts leave no time for garbage collection to drop the
//! witnesses. So recovery removes them. NVRAM words (entries, slots, deallocation records) are
//! always zeroed. Pages (copies, log pages) are collected when more than half of the list is in use
//! (`recovery`). Only witnesses for which there is no flash space stay. In the worst case the list
//! is full, the slot is not released, and atomic commands are refused until a power-on finds space.
//! Absent: which pages the command touches.

use crate::config::Config;
use crate::config::guard::{Guard, Guards};
use crate::config::layout::NvramLayout;
use bitfield_struct::bitfield;
use remap_ssd_media::{After, Media, Purpose};
use std::ops::Range;

#[bitfield(u64)]
struct SlotWord {
    /// Number of the command in progress; 0 if there is none. In an idle slot: the XOR of the
    /// numbers in the list.
    #[bits(42)]
    number: u64,
    #[bits(21)]
    __: u32,
    /// No command is in progress, and `number` is the XOR.
    is_idle: bool,
}

/// The slot with the number of the command in progress, and the list of aborted numbers.
pub(crate) struct AtomicSlot {
    guards: Guards,
    /// True if commands can be atomic on this device.
    has_commands: bool,
    slot: usize,
    list: Range<usize>,
    /// The words of writes in progress.
    open: Range<usize>,
}

impl AtomicSlot {
    /// The slot of a device; reads and stores nothing.
    pub(crate) fn new(config: &Config, layout: &NvramLayout) -> Self {
        Self {
            guards: config.guards,
            has_commands: config.has_atomic_commands(),
            slot: layout.atomic,
            list: layout.aborted..layout.aborted + layout.aborted_slots,
            open: layout.open..layout.open + layout.open_words,
        }
    }

    /// Begins the command with this number.
    pub(crate) fn begin(&self, media: &mut Media, wsn: u64) {
        if !self.guards.has(Guard::Commit) {
            return;
        }

        // Fences on both sides: no witness of the previous command lands late, and none of this one
        // early.
        media.fence();
        media.store(self.slot, wsn, Purpose::Host, After::FENCE);
        media.fence();
    }

    /// Commits an atomic command: after this store recovery accepts all of its remaps.
    pub(crate) fn commit(&self, media: &mut Media, aborted: &[u64]) {
        if !self.guards.has(Guard::Commit) {
            return;
        }

        // After everything, including programs: from this store on recovery trusts all witnesses of
        // the command, so none may be missing.
        media.store(self.slot, idle_word(aborted), Purpose::Host, After::ALL);
        media.fence();
    }

    /// Formats a new device: no command is in progress, and none has been aborted.
    pub(crate) fn format(&self, media: &mut Media) {
        if self.has_commands {
            media.store(self.slot, idle_word(&[]), Purpose::Meta, After::NOTHING);
        }
    }

    /// Reads the numbers of aborted commands. The error is the address of a damaged word that
    /// cannot be rebuilt: the slot, since a command may have been in progress and nothing else
    /// identifies its witnesses; or a word of the list, if it is the second damaged one or the slot
    /// does not hold the XOR. If commands cannot be atomic, nothing is stored here.
    pub(crate) fn read_back(&self, media: &mut Media) -> Result<Vec<u64>, usize> {
        if !self.has_commands {
            return Ok(Vec::new());
        }
        let slot = media
            .load(self.slot)
            .map(SlotWord::from_bits)
            .map_err(|_| self.slot)?;

        // A command in progress counts as aborted: its commit did not land.
        let mut numbers = Vec::new();
        if !slot.is_idle() && slot.number() != 0 {
            numbers.push(slot.number());
        }

        for word in self.open.clone() {
            match media.load(word) {
                Ok(0) => {}
                Ok(number) => numbers.push(number),
                Err(_) => return Err(word),
            }
        }

        let open = numbers.len();
        let mut lost = None;
        for word in self.list.clone() {
            match media.load(word) {
                Ok(0) => {}
                Ok(number) => numbers.push(number),
                Err(_) if lost.is_some() => return Err(word),
                Err(_) => lost = Some(word),
            }
        }

        // XORing the slot's value with the known numbers yields the lost one. While a command is in
        // progress the slot holds its number instead.
        if let Some(word) = lost {
            if !slot.is_idle() {
                return Err(word);
            }
            let number = numbers[open..]
                .iter()
                .fold(slot.number(), |sum, number| sum ^ number);
            numbers.extend((number != 0).then_some(number));
        }
        Ok(numbers)
    }

    /// After recovery: `seen` are the numbers that still have witnesses, `words` the NVRAM
    /// locations of some of these witnesses.
    pub(crate) fn resume(
        &self,
        media: &mut Media,
        aborted: &mut Vec<u64>,
        mut seen: Vec<u64>,
        words: &[Range<usize>],
    ) {
        seen.sort_unstable();
        seen.dedup();
        *aborted = seen;
        self.remember(media, aborted);
        // Safe at any time: a partly zeroed record has lost a torn bit, and is ignored as before.
        for word in words.iter().cloned().flatten() {
            media.store(word, 0, Purpose::Meta, After::NOTHING);
        }
    }

    /// Aborts a failed command, as if power had failed.
    #[cold]
    pub(crate) fn abort(&self, media: &mut Media, aborted: &mut Vec<u64>, wsn: u64) {
        aborted.push(wsn);
        self.remember(media, aborted);
    }

    /// Stores the list of aborted numbers, and empties the slot.
    fn remember(&self, media: &mut Media, aborted: &[u64]) {
        // 1. the list, in which numbers keep their places  2. the slot. Cut between: both hold the
        // number. The XOR in the slot is cleared before the list changes, since it would be wrong
        // in between. More numbers than places exist only if none could be removed for long. Then
        // the slot keeps its number and no other command may use it (`is_free`), so list and slot
        // together always hold all numbers.
        if !self.is_free(aborted) {
            return;
        }
        let at = self.slot;
        let idle = if self.has_commands {
            idle_word(aborted)
        } else {
            0
        };
        let slot = media.load(at);
        if slot != Ok(idle) && slot.is_ok_and(|slot| SlotWord::from_bits(slot).is_idle()) {
            media.store(at, 0, Purpose::Meta, After::NOTHING);
            media.fence();
        }

        if self.guards.has(Guard::AbortedStay) {
            self.store_list(media, aborted);
        }
        media.fence();
        if media.load(at) != Ok(idle) {
            media.store(at, idle, Purpose::Meta, After::NOTHING);
            media.fence();
        }
        // The words of writes in progress when power failed: their numbers are in the list.
        for word in self.open.clone() {
            if media.load(word) != Ok(0) {
                media.store(word, 0, Purpose::Meta, After::NOTHING);
            }
        }
        media.fence();
    }

    /// Returns true if another atomic command can be recorded as aborted should power fail during
    /// it.
    pub(crate) fn is_free(&self, aborted: &[u64]) -> bool {
        aborted.len() <= self.list.len()
    }

    /// Returns true if more than half of the list is in use.
    pub(crate) fn is_crowded(&self, aborted: &[u64]) -> bool {
        aborted.len() > self.list.len() / 2
    }

    fn store_list(&self, media: &mut Media, aborted: &[u64]) {
        // A number keeps its place in the list: moving one takes two stores, and a cut between them
        // could leave it in neither place.
        let (mut missing, mut places) = (aborted.to_vec(), Vec::new());
        for word in self.list.clone() {
            let number = media.load(word);
            match missing.iter().position(|wanted| Ok(*wanted) == number) {
                Some(at) => {
                    missing.swap_remove(at);
                }
                None => places.push((word, number)),
            }
        }

        // Damaged words are filled first: the number that a damaged word held stays there, or a cut
        // could lose it.
        places.sort_by_key(|(_, number)| number.is_ok());
        for (word, number) in places {
            let value = missing.pop().unwrap_or(0);
            if Ok(value) != number {
                media.store(word, value, Purpose::Meta, After::NOTHING);
            }
        }
    }
}

/// The idle slot holds the XOR of the numbers in the list, so that one damaged word of the list can
/// be rebuilt.
fn idle_word(aborted: &[u64]) -> u64 {
    SlotWord::new()
        .with_is_idle(true)
        .with_number(aborted.iter().fold(0, |sum, number| sum ^ number))
        .into_bits()
}
