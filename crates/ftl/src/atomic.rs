//! Command atomicity: a command that a cut interrupts leaves nothing behind.
//!
//! All witnesses of an atomic remap (entries, copied pages, deallocations) carry one sequence
//! number. While the command is under way that number stands in an NVRAM slot; emptying the slot is
//! the commit record. Counting entries instead, as in FAST'21 §4.3, fails once an overwrite, GC or
//! a demotion has removed one.
//!
//! Invariants: recovery ignores every witness whose number is in the slot or in the aborted list; a
//! number stays in the list while a witness with it exists anywhere, and whoever reclaims drops
//! entries with it (`Tables::is_in_force`).
//!
//! The list has 64 places, and repeated cuts leave no time for garbage collection to drop the
//! witnesses. So recovery itself removes them. Words of NVRAM (entries, slots, deallocation
//! records) are always zeroed. Pages (copies, log pages) are collected when more than half of the
//! list is in use (`recovery`). Only witnesses for which there is no flash space stay: at worst the
//! list is full and the slot is not released, and atomic commands are refused until a power-on
//! finds space. Absent: which pages the command touches.

use crate::config::{Config, EntrySize};
use crate::guard::{Guard, Guards};
use crate::layout::{ABORTED_SLOTS, NvramLayout};
use bitfield_struct::bitfield;
use remap_ssd_media::{After, Media, Purpose};
use std::ops::Range;

#[bitfield(u64)]
struct SlotWord {
    /// Number of the command under way; 0 if there is none. Of an idle slot: the sum of the numbers
    /// in the list.
    #[bits(42)]
    number: u64,
    #[bits(21)]
    __: u32,
    /// No command is under way, and the sum is there.
    is_idle: bool,
}

/// Where the number of the command under way stands, and the list of the aborted ones.
pub struct AtomicSlot {
    guards: Guards,
    /// Can commands be atomic on this device?
    has_commands: bool,
    slot: usize,
    list: Range<usize>,
}

impl AtomicSlot {
    /// The slot of a device; nothing is read or stored.
    pub fn new(config: &Config, layout: &NvramLayout) -> Self {
        Self {
            guards: config.guards,
            has_commands: config.entry == EntrySize::Bytes24,
            slot: layout.atomic,
            list: layout.aborted..layout.aborted + ABORTED_SLOTS,
        }
    }

    /// Starts the command with this number.
    pub fn begin(&self, media: &mut Media, wsn: u64) {
        if !self.guards.has(Guard::Commit) {
            return;
        }

        // Fences on both sides: no witness of the command before it lands late, and none of this
        // one early.
        media.fence();
        media.store(self.slot, wsn, Purpose::Host, After::FENCE);
        media.fence();
    }

    /// Commits an atomic command: stores the word after which recovery finds all of its remaps.
    pub fn commit(&self, media: &mut Media, aborted: &[u64]) {
        if !self.guards.has(Guard::Commit) {
            return;
        }

        // After everything, programs among it: from this store on recovery believes all witnesses
        // of the command, so none may be missing.
        media.store(self.slot, idle_word(aborted), Purpose::Host, After::ALL);
        media.fence();
    }

    /// A new device: no command is under way, and none has been aborted.
    pub fn format(&self, media: &mut Media) {
        if self.has_commands {
            media.store(self.slot, idle_word(&[]), Purpose::Meta, After::NOTHING);
        }
    }

    /// The numbers of aborted commands; or the address of a damaged word that cannot be rebuilt.
    /// That is the slot, since a command may have been under way and nothing else identifies its
    /// witnesses; or a word of the list, if it is the second one or the slot does not hold the sum.
    /// Nothing is stored here where commands cannot be atomic.
    pub fn read_back(&self, media: &mut Media) -> Result<Vec<u64>, usize> {
        if !self.has_commands {
            return Ok(Vec::new());
        }
        let slot = media
            .load(self.slot)
            .map(SlotWord::from_bits)
            .map_err(|_| self.slot)?;

        // A command under way is as good as aborted: its commit did not land.
        let mut numbers = Vec::new();
        if !slot.is_idle() && slot.number() != 0 {
            numbers.push(slot.number());
        }

        let mut lost = None;
        for word in self.list.clone() {
            match media.load(word) {
                Ok(0) => {}
                Ok(number) => numbers.push(number),
                Err(_) if lost.is_some() => return Err(word),
                Err(_) => lost = Some(word),
            }
        }

        // The sum of all but one gives that one. While a command is under way the slot holds its
        // number instead, so the sum is not there.
        if let Some(word) = lost {
            if !slot.is_idle() {
                return Err(word);
            }
            let number = numbers
                .iter()
                .fold(slot.number(), |sum, number| sum ^ number);
            numbers.extend((number != 0).then_some(number));
        }
        Ok(numbers)
    }

    /// After recovery: `seen` are the numbers that still have witnesses, `words` the places in
    /// NVRAM of some of these.
    pub fn resume(
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
        // This may happen at any time: a partly zeroed record has lost a torn bit, and counts as
        // little as before.
        for word in words.iter().cloned().flatten() {
            media.store(word, 0, Purpose::Meta, After::NOTHING);
        }
    }

    /// Aborts a failed command: it counts as little as if power had failed.
    #[cold]
    pub fn abort(&self, media: &mut Media, aborted: &mut Vec<u64>, wsn: u64) {
        aborted.push(wsn);
        self.remember(media, aborted);
    }

    /// Writes the list of aborted numbers, and empties the slot.
    fn remember(&self, media: &mut Media, aborted: &[u64]) {
        // 1. the list, in which numbers keep their places  2. the slot. Cut between: both hold the
        // number. The sum in the slot is cleared before the list changes, since it would be wrong
        // in between. There are more numbers than places only if none could be removed for long.
        // Then the slot keeps its number and no other command may use it (`is_free`), so there is
        // never one too many.
        if !Self::is_free(aborted) {
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
    }

    /// Could another atomic command be recorded as aborted if power failed during it?
    pub fn is_free(aborted: &[u64]) -> bool {
        aborted.len() <= ABORTED_SLOTS
    }

    fn store_list(&self, media: &mut Media, aborted: &[u64]) {
        // A number that has a place keeps it: moving one would be two stores, and a cut between
        // them could leave it in neither.
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

        // The number that a damaged word had stays in that word, or a cut could leave it nowhere.
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
