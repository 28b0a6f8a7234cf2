//! Entries as read by recovery: any of their words may be unreadable.
//!
//! Invariants: an unreadable word has no value, so nothing can be concluded from it; an entry
//! counts only if all of its words are readable. Absent: the location of entries, and whether their
//! pages still exist.

use super::entry::{CommandWord, EntryOwners, EntryPlace, RmmEntry};
use crate::config::ATOMIC_PAGES_MAX;
use crate::recovery::witnesses::Witnesses;
use remap_ssd_media::{Lpn, Media, MediaError};
use std::ops::Range;

/// Content of an entry's slot.
pub(super) enum LoadedEntry {
    /// No entry: nothing was stored, or a readable word lacks its torn bit.
    Nothing {
        is_damaged: bool,
    },
    Whole(RmmEntry),
    /// Some words are unreadable, and no readable one lacks its torn bit.
    Damaged(DamagedEntry),
}

/// The readable part of a damaged entry.
pub(super) struct DamagedEntry {
    /// Its page and its number.
    pub place: Option<EntryPlace>,
    /// The LPNs that it may remap. `None`: it may be any LPN.
    pub targets: Option<Range<Lpn>>,
}

impl LoadedEntry {
    /// Reads an entry of two words, or three with that of its command.
    pub(super) fn load(media: &mut Media, at: usize, words: usize, torn_bits: bool) -> Self {
        let words: Vec<_> = (at..at + words).map(|word| media.load(word)).collect();
        let is_torn = words.iter().flatten().any(|word| word & 1 == 0);

        if let [Ok(first), Ok(second), ..] = words[..]
            && words.iter().all(Result::is_ok)
        {
            let is_empty = words.iter().flatten().all(|word| *word == 0);
            return if is_empty || is_torn && torn_bits {
                Self::Nothing { is_damaged: false }
            } else {
                Self::Whole(RmmEntry::from_words(first, second))
            };
        }

        // A readable word has no torn bit, so the entry was never complete, whatever the others
        // hold.
        if is_torn && torn_bits {
            return Self::Nothing { is_damaged: true };
        }
        Self::Damaged(DamagedEntry::of(&words))
    }
}

impl DamagedEntry {
    fn of(words: &[Result<u64, MediaError>]) -> Self {
        let readable = |index: usize| words.get(index).and_then(|word| word.ok());

        // The second word names the LPN. The third one names all LPNs of the command.
        let target = readable(1).map(|word| EntryOwners::from_bits(word).target());
        let command = readable(2).map(CommandWord::from_bits);
        let of_command = |command: CommandWord| {
            let pages = command.pages().min(ATOMIC_PAGES_MAX);
            command.start()..command.start().offset(pages)
        };
        Self {
            place: readable(0).map(EntryPlace::from_bits),
            targets: target
                .map(|target| target..target.offset(1))
                .or(command.map(of_command)),
        }
    }

    /// Reports its LPNs as in doubt. Its number is at most `newest`. Returns false if it may be any
    /// LPN's.
    #[must_use]
    pub(super) fn doubt(&self, witnesses: &mut Witnesses, newest: u64) -> bool {
        let newest = self.place.map_or(newest, |place| place.wsn());
        let Some(targets) = self.targets.clone() else {
            return false;
        };
        Lpn::between(targets).for_each(|lpn| witnesses.doubt(lpn, newest));
        true
    }
}
