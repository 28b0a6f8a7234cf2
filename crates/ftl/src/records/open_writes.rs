//! Words that name the writes in progress: after a power cut, a write of several pages is whole or had no effect.
//!
//! All witnesses of such a write (pages, entries, slots of the write buffer) carry one sequence number. A word of NVRAM holds
//! it from before the first witness until the last one is durable:
//!
//! ```text
//! 1. the number, in a word that is 0                        cut before 1: nothing has happened
//! 2. the witnesses, each after 1                            cut before 3: recovery ignores all that carry the number
//! 3. zero, after all of 2; then the acknowledgement         cut after 3: they count, and all of them landed
//! ```
//!
//! Each write in flight has a word of its own, so that writes end in any order. Between 1 and 3 nothing is reclaimed, since the
//! overwritten pages must keep their witnesses; room is made before 1.
//!
//! Invariants: recovery reads all words before any witness (`atomic`); a word whose number has a witness is not used again.
//! Absent: which pages a write has (`verbs::untorn`).

use crate::config::guard::{Guard, Guards};
use crate::config::layout::NvramLayout;
use crate::mapping::Mapping;
use remap_ssd_media::{After, ClearId, Lpn, Media, Ppn, Purpose};
use std::ops::Range;

/// The write of the current command.
pub(crate) struct UntornWrite {
    pub open: OpenWrite,
    /// Pages announced.
    pub len: u32,
    /// Its pages leave a volatile write buffer.
    pub leaves: bool,
    /// Earlier mappings of the pages so far.
    pub before: Vec<(Lpn, Option<Mapping>)>,
}

/// Order of a page among the witnesses.
#[derive(Clone, Copy)]
pub(crate) struct PageOrder {
    /// The number that it shares with other pages of its command; `None`: one of its own.
    pub wsn: Option<u64>,
    /// What it waits for, besides its superblock's head.
    pub after: After,
}

impl PageOrder {
    /// A page alone.
    pub(crate) const OWN: Self = Self {
        wsn: None,
        after: After::NOTHING,
    };
}

/// The write in progress.
pub(crate) struct OpenWrite {
    /// Its number, which all of its witnesses carry.
    pub wsn: u64,
    /// The store of its word: every witness waits for it.
    pub opened: ClearId,
    /// The name of its stores to the write buffer, if it goes there.
    pub slots: Option<ClearId>,
    place: usize,
    /// The pages that must be durable before it ends.
    pages: Vec<Ppn>,
    /// True if some of its pages are entries: stores to NVRAM.
    has_entries: bool,
}

impl OpenWrite {
    /// It has programmed a page.
    #[inline]
    pub(crate) fn programmed(&mut self, ppn: Ppn) {
        self.pages.push(ppn);
    }

    /// It relies on an entry, and on the page which that names.
    #[inline]
    pub(crate) fn remapped(&mut self, ppn: Ppn) {
        self.pages.push(ppn);
        self.has_entries = true;
    }

    /// It has stored records.
    pub(crate) fn stores(&mut self) {
        self.has_entries = true;
    }

    /// Returns true if some of its pages are entries.
    pub(crate) fn has_entries(&self) -> bool {
        self.has_entries
    }

    /// What must be durable before the word is zeroed: runs of pages, the last one with the entries.
    fn waits(&mut self) -> Vec<After> {
        self.pages.sort_unstable();
        self.pages.dedup();
        let runs = self.pages.chunk_by(|a, b| a.0 + 1 == b.0);
        let mut waits: Vec<After> = runs
            .map(|run| After::pages(run[0], run.len() as u16))
            .collect();
        let last = waits.pop().unwrap_or(After::NOTHING);
        waits.push(match self.has_entries {
            true => last.and(After::OWN_STORES),
            false => last,
        });
        waits
    }
}

/// The words of a device, which take turns.
pub(crate) struct OpenWrites {
    guards: Guards,
    words: Range<usize>,
    /// Words without a number that has witnesses, each with what its last write waited for.
    free: Vec<(usize, After)>,
    next: usize,
}

impl OpenWrites {
    /// The words of a device; none if each page is durable alone. Reads and stores nothing.
    pub(crate) fn new(guards: Guards, layout: &NvramLayout) -> Self {
        let words = layout.open..layout.open + layout.open_words;
        Self {
            guards,
            free: words.clone().map(|word| (word, After::NOTHING)).collect(),
            words,
            next: 0,
        }
    }

    /// Returns true if a write can be named.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// After recovery: words that still hold a number are not used.
    pub(crate) fn resume(&mut self, media: &mut Media) {
        let words = self.words.clone();
        let free = words.filter(|word| media.load(*word) == Ok(0));
        self.free = free.map(|word| (word, After::NOTHING)).collect();
        self.next = 0;
    }

    /// Begins a write with this number. `is_buffered`: all of its pages go to a write buffer that a capacitor saves, and so
    /// does its word.
    pub(crate) fn begin(&mut self, media: &mut Media, wsn: u64, is_buffered: bool) -> OpenWrite {
        let place = self.next % self.free.len();
        self.next = place + 1;
        // The word's last write has ended before, as a rule long ago.
        let (word, ended) = self.free[place];
        let mut opened = ClearId::default();
        if self.guards.has(Guard::UntornWrites) {
            opened = match is_buffered {
                true => media.store_capacitor_named(word, wsn, After::NOTHING),
                false => media.store_named(word, wsn, Purpose::Host, ended),
            };
        }
        if !self.guards.has(Guard::OpenBeforePages) {
            opened = ClearId::default();
        } else if !is_buffered {
            media.order_stores(Some(opened));
        }
        OpenWrite {
            wsn,
            opened,
            slots: is_buffered.then(|| media.name_next()),
            place,
            pages: Vec::new(),
            has_entries: false,
        }
    }

    /// Ends a write: from the last store on recovery accepts all of its witnesses. Returns the name of that store if the write
    /// is in the write buffer.
    pub(crate) fn commit(&mut self, media: &mut Media, mut write: OpenWrite) -> Option<ClearId> {
        media.order_stores(None);
        if !self.guards.has(Guard::UntornWrites) {
            return None;
        }
        let (word, ended) = &mut self.free[write.place];
        if let Some(slots) = write.slots {
            let after = self
                .guards
                .waits(Guard::CommitAfterPages, After::clear(slots));
            *ended = After::NOTHING;
            return Some(media.store_capacitor_named(*word, 0, after));
        }

        let mut waits = write.waits();
        let last = waits.pop().unwrap_or(After::NOTHING);
        let mut store = |value: u64, after: After| {
            let after = self.guards.waits(Guard::CommitAfterPages, after);
            media.change_record(*word..*word + 1, *word, value, Purpose::Host, after);
        };
        // An operation names one run of pages: the word is stored again for each of the others. Stores to one word are in order.
        waits.into_iter().for_each(|after| store(write.wsn, after));
        store(0, last);
        *ended = last;
        None
    }

    /// The write has failed. Its number is in the list of aborted ones, unless that is full: then the word keeps it, and is not used
    /// before a power-on.
    #[cold]
    pub(crate) fn abort(&mut self, media: &mut Media, write: &OpenWrite, is_listed: bool) {
        media.order_stores(None);
        if !is_listed {
            self.free.remove(write.place);
            return;
        }
        media.fence();
        let (word, _) = self.free[write.place];
        media.store(word, 0, Purpose::Meta, After::NOTHING);
        media.fence();
    }
}
