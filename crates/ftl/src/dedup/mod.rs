//! The fingerprint store: which flash page already holds a content.
//!
//! Lines of one cache line: eight 24-bit tags, then their eight page numbers, the newest content
//! first. A tag only nominates a page: a hit counts after the whole fingerprint is compared. The
//! other 64 bits say which tags may have spilled, one bit for each 64th of all tags: so one cache
//! line tells that a content is new.
//!
//! A content whose tag is in the line takes that slot again, in place: where contents come back,
//! most entries are of this kind, and they touch nothing that `find` has not touched. Any other
//! content takes a slot whose page is dead, the oldest first. Only a line of eight live pages gives
//! up one of them, the content that it has known longest. Duplicates of that one are counted as
//! missed later. An exact store (the upper bound's) still finds them, in `spilled`.
//!
//! Pages that cannot be read: as soon as a read of a page fails (a host's, collection's, a
//! comparison's) the store forgets it, and a page that stands for lost data is never in it. So
//! writing the same content again programs a new page, which cures the LPN. That a page cannot be
//! read may be unknown, since nobody has read it since: a hit on it is as good as the page, like
//! any other data at rest. Reading at every hit would find that out at the price of what
//! deduplication saves.
//!
//! Invariants: bounded (eight slots for nine flash pages), but for `spilled`; a slot may be stale
//! (its page garbage or reused), which the comparison and the reference count find out; a tag other
//! than 0 is in one slot of a line at most (0 is also the tag of empty slots); the digest of a page
//! is that of the bytes it holds, or 0 where it is not known. Lost at power-off: `relearn` says how
//! it comes back.

mod fingerprint;
mod long_chains;
#[cfg(test)]
mod long_tests;
mod relearn;
mod spilled;
mod spilled_cell;
mod spilling;
#[cfg(test)]
mod tests;

use crate::counts::Counts;
pub use fingerprint::{Fingerprint, FingerprintKind};
pub use relearn::UnknownPage;
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{ContentMode, Media, Ppn};
use spilled::SpilledTable;
use spilled_cell::SpilledPage;

const WAYS: usize = 8;
/// The digest of a page of which nothing is known.
const UNKNOWN: [u8; 32] = [0; 32];

/// The bits of a tag. The rest of the word is for what has spilled.
const TAG_BITS: u32 = 24;
const TAG: u32 = (1 << TAG_BITS) - 1;

/// Apart, so that all tags are compared at once.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct FingerprintLine {
    /// Each word is a tag below eight spill bits. Of these 64 bits, the n-th says that a page whose
    /// tag is n modulo 64 may have spilled. They stay in place when tags move.
    tags: [u32; WAYS],
    /// Page numbers plus one; 0 is an empty slot.
    pages: [u32; WAYS],
}

const _: () = assert!(size_of::<FingerprintLine>() == 64);

impl FingerprintLine {
    /// The slots with this tag, empty ones among them. No branches.
    #[inline(always)]
    fn nominated(&self, tag: u32) -> SlotSet {
        let is_same = |slot: usize| (self.tags[slot] ^ tag) & TAG == 0;
        let bits: [u32; WAYS] =
            std::array::from_fn(|slot| if is_same(slot) { 2 << slot } else { 0 });
        SlotSet(bits.iter().fold(0, |all, bit| all | bit))
    }

    /// The page of a slot.
    #[inline(always)]
    fn page(&self, slot: usize) -> Option<Ppn> {
        self.pages[slot % WAYS].checked_sub(1).map(Ppn)
    }

    #[inline(always)]
    fn set_page(&mut self, slot: usize, ppn: Ppn) {
        self.pages[slot % WAYS] = ppn.0 + 1;
    }

    /// The tag of a slot.
    #[inline(always)]
    fn tag(&self, slot: usize) -> u32 {
        self.tags[slot % WAYS] & TAG
    }

    fn empty(&mut self, slot: usize) {
        self.tags[slot % WAYS] &= !TAG;
        self.pages[slot % WAYS] = 0;
    }

    /// The last slot that is empty or whose page is dead. Looks at four slots at a time, without
    /// branches, so that their cache misses overlap.
    #[inline(always)]
    fn free(&self, counts: &Counts) -> Option<usize> {
        let is_free = |page: u32| (page == 0) | counts.is_zero(Ppn(page.saturating_sub(1)));
        let free = |slots: std::ops::Range<usize>| {
            let all = slots
                .map(|slot| u32::from(is_free(self.pages[slot])) << slot)
                .fold(0, |all, bit| all | bit);
            all.checked_ilog2().map(|slot| slot as usize)
        };
        free(WAYS / 2..WAYS).or_else(|| free(0..WAYS / 2))
    }

    /// Gives up a slot, and has a new one in front of all others.
    #[inline(always)]
    fn replace(&mut self, slot: usize, tag: u32, ppn: Ppn) {
        let Self { tags, pages } = *self;
        let shifted = |first: u32, old: [u32; WAYS]| -> [u32; WAYS] {
            std::array::from_fn(|at| match at {
                0 => first,
                _ if at <= slot => old[at - 1],
                _ => old[at],
            })
        };

        // Only the tags move: a spill bit means the same whatever slot it is in.
        let moved = shifted(tag, tags);
        self.tags = std::array::from_fn(|at| moved[at] & TAG | tags[at] & !TAG);
        self.pages = shifted(ppn.0 + 1, pages);
    }

    /// The word and the mask of a tag's spill bit.
    #[inline(always)]
    fn spilled_bit(tag: u32) -> (usize, u32) {
        (
            tag as usize / WAYS % WAYS,
            1 << (TAG_BITS + tag % WAYS as u32),
        )
    }

    /// May a page with this tag have spilled?
    #[inline(always)]
    fn may_have_spilled(&self, tag: u32) -> bool {
        let (slot, bit) = Self::spilled_bit(tag);
        self.tags[slot] & bit != 0
    }

    /// Notes that a page with this tag has spilled.
    fn note_spilled(&mut self, tag: u32) {
        let (slot, bit) = Self::spilled_bit(tag);
        self.tags[slot] |= bit;
    }

    /// Notes these tags, and forgets all others.
    fn note_all_spilled(&mut self, spilled: impl Iterator<Item = u32>) {
        self.tags.iter_mut().for_each(|tag| *tag &= TAG);
        spilled.for_each(|tag| self.note_spilled(tag));
    }
}

/// A set of slots: bit n + 1 is slot n. With a bit 0, which is 0 or 1 as a truth value is, the
/// compiler would compare four of eight tags one by one.
#[derive(Clone, Copy)]
struct SlotSet(u32);

impl SlotSet {
    #[inline(always)]
    fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize - 1)
    }

    #[inline(always)]
    fn are_several(self) -> bool {
        self.0 & self.0.wrapping_sub(1) != 0
    }
}

impl Iterator for SlotSet {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = self.first();
        self.0 &= self.0.wrapping_sub(1);
        first
    }
}

/// What the store must ask to know whether a page still holds what it was entered for.
#[derive(Clone, Copy)]
pub struct PageLookup<'a> {
    /// Media whose pages hold the contents.
    pub media: &'a Media,
    /// Reference counts of flash pages.
    pub counts: &'a Counts,
}

/// The fingerprint store: from contents to flash pages.
pub struct Dedup {
    lines: Slab<FingerprintLine>,
    /// Whole digests by page, with real bytes only: identities are in the media already.
    digests: Vec<[u8; 32]>,
    /// One bit a page, with real bytes only: its digest was read from a file, and has not been
    /// compared with the bytes.
    recalled: Vec<u64>,
    spilled: SpilledTable,
    /// Is what has spilled found as well?
    exact: bool,
    /// References that a page can have.
    count_max: u32,
    /// Writes whose content was on flash, in a page that had spilled.
    missed: u64,
}

impl Dedup {
    /// An empty store for so many flash pages; `None` without contents to compare.
    pub fn new(pages: u32, mode: ContentMode, exact: bool, count_max: u32) -> Option<Self> {
        let pages = pages as usize;
        let (digests, recalled) = match mode {
            ContentMode::None => return None,
            ContentMode::Identity => (Vec::new(), Vec::new()),
            ContentMode::Bytes => (vec![UNKNOWN; pages], vec![0; pages.div_ceil(64)]),
        };

        // Eight slots for nine pages: with over-provisioning, about as many as can be live.
        let lines = (pages / 9).max(1);
        let spilled = SpilledTable::new(lines);

        Some(Self {
            lines: Slab::zeroed(lines),
            digests,
            recalled,
            spilled,
            exact,
            count_max,
            missed: 0,
        })
    }

    /// Writes so far whose content was on flash in a page that the store had no room for.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    #[inline(always)]
    fn place(&self, fingerprint: &Fingerprint) -> (usize, u32) {
        let spread = fingerprint.spread();
        // The line from the upper half, by a multiplication instead of a division; the tag from the
        // lower one.
        let line = ((spread >> 32) * self.lines.len() as u64) >> 32;
        (line as usize, spread as u32 & TAG)
    }

    #[inline(always)]
    fn same(&self, fingerprint: &Fingerprint, media: &Media, ppn: Ppn) -> bool {
        match fingerprint {
            // Pages of metadata have identity 0, which a host's page can have too.
            Fingerprint::Identity(identity) => {
                media.identity(ppn) == Some(*identity) && (*identity != 0 || !media.is_meta(ppn))
            }
            Fingerprint::Digest(digest) => self.digests[ppn.0 as usize] == *digest,
        }
    }

    /// The fingerprint of what a page holds, if it is known.
    fn of_page(&self, media: &Media, ppn: Ppn) -> Option<Fingerprint> {
        match media.identity(ppn) {
            Some(0) if media.is_meta(ppn) => None,
            Some(identity) => Some(Fingerprint::Identity(identity)),
            None => Some(self.digests[ppn.0 as usize])
                .filter(|digest| *digest != UNKNOWN)
                .map(Fingerprint::Digest),
        }
    }

    /// Does a page have owners, and still a content of this line and tag?
    #[inline]
    fn belongs(&self, place: (usize, u32), pages: PageLookup<'_>, ppn: Ppn) -> bool {
        // The content first: `find` has read it, and mostly it is another one by now.
        let found = self
            .of_page(pages.media, ppn)
            .map(|fingerprint| self.place(&fingerprint));
        found == Some(place) && !pages.counts.is_zero(ppn)
    }

    /// The live page that holds this content: one that can have another owner, if there is any.
    #[inline(always)]
    pub fn find(&mut self, fingerprint: &Fingerprint, pages: PageLookup<'_>) -> Option<Ppn> {
        let place = self.place(fingerprint);
        let line = &self.lines[place.0];
        let nominated = line.nominated(place.1);

        // Nearly always one page is nominated at most, and it decides.
        let mut is_full = false;
        if let Some(ppn) = nominated.first().and_then(|slot| line.page(slot))
            && self.same(fingerprint, pages.media, ppn)
        {
            if pages.counts.has_room(ppn, self.count_max) {
                return Some(ppn);
            }
            // Live, but full of references: another page with the same content may have room.
            is_full = !pages.counts.is_zero(ppn);
        }
        if is_full || nominated.are_several() || line.may_have_spilled(place.1) {
            self.find_further(place, fingerprint, pages)
        } else {
            // The new content will want a slot here: where pages spill to comes meanwhile.
            self.spilled.prefetch(place.0);
            None
        }
    }

    /// Looks at all nominated pages, and at those that have spilled.
    #[cold]
    fn find_further(
        &mut self,
        place: (usize, u32),
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<Ppn> {
        let line = &self.lines[place.0];

        // Found but full: the caller's remap is then demoted for its counter, as in a store with
        // one page a content.
        let mut full = None;
        for ppn in line.nominated(place.1).filter_map(|slot| line.page(slot)) {
            if self.same(fingerprint, pages.media, ppn) {
                if pages.counts.has_room(ppn, self.count_max) {
                    return Some(ppn);
                }
                full = full.or((!pages.counts.is_zero(ppn)).then_some(ppn));
            }
        }

        if line.may_have_spilled(place.1) {
            self.find_spilled(place, fingerprint, pages).or(full)
        } else {
            full
        }
    }

    /// Remembers where a content was written. A slot with the same tag is taken first (its page is
    /// stale, or full of references), then an empty one or one of a dead page, then the oldest.
    #[inline(always)]
    pub fn insert(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: PageLookup<'_>) {
        self.note_digest(fingerprint, ppn, false);
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let Some(slot) = line.nominated(tag).first() else {
            // New ones come in front, so that a line that is not full yet has an empty last slot;
            // while a store is filled, no page need be looked at.
            if line.page(WAYS - 1).is_none() {
                self.lines[at].replace(WAYS - 1, tag, ppn);
            } else {
                self.insert_new((at, tag), ppn, pages);
            }
            return;
        };
        if let Some(old) = line.page(slot)
            // A live page with another content spills. Of two with the same content, only an exact
            // store keeps the older one.
            && (self.exact || !self.same(fingerprint, pages.media, old))
            && self.belongs((at, tag), pages, old)
        {
            self.spill((at, tag), old, pages);
        }

        // In place, without moving to the front: the tag is the same, and so is the cache line.
        self.lines[at].set_page(slot, ppn);
    }

    /// Enters a content whose tag is not in its line.
    #[inline(never)]
    fn insert_new(&mut self, (at, tag): (usize, u32), ppn: Ppn, pages: PageLookup<'_>) {
        let line = self.lines[at];
        let free = line.free(pages.counts);
        if free.is_none()
            && let Some(oldest) = line.page(WAYS - 1)
        {
            // It may hold something else by now, which is found out when this tag is looked for.
            self.spill((at, line.tag(WAYS - 1)), oldest, pages);
        }
        self.lines[at].replace(free.unwrap_or(WAYS - 1), tag, ppn);
    }

    /// Remembers a page that was found with its content, unless a page that is as good is known.
    fn learn(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: PageLookup<'_>) {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let known = line
            .nominated(tag)
            .filter_map(|slot| line.page(slot))
            .any(|known| {
                known != ppn
                    && self.same(fingerprint, pages.media, known)
                    && pages.counts.has_room(known, self.count_max)
            });
        if !known {
            self.insert(fingerprint, ppn, pages);
        } else if self.exact {
            self.add_spilled(at, SpilledPage { tag, ppn });
        }
    }

    #[inline]
    fn note_digest(&mut self, fingerprint: &Fingerprint, ppn: Ppn, is_recalled: bool) {
        if let Fingerprint::Digest(digest) = fingerprint {
            let at = ppn.0 as usize;
            self.digests[at] = *digest;
            self.recalled[at / 64] &= !(1 << (at % 64));
            self.recalled[at / 64] |= u64::from(is_recalled) << (at % 64);
            self.spilled.long.note_content(ppn);
        }
    }

    /// These pages have been erased: what they will hold is not known by its digest.
    pub fn erased(&mut self, pages: std::ops::Range<usize>) {
        if !self.digests.is_empty() {
            self.digests[pages].fill(UNKNOWN);
        }
    }

    /// A page has moved. One that could not be read is replaced by a page that says so, and has no
    /// content any more.
    #[inline]
    pub fn moved(&mut self, media: &Media, from: Ppn, to: Ppn) {
        let fingerprint = match media.identity(to) {
            Some(0) if media.is_meta(to) => return,
            Some(identity) => Fingerprint::Identity(identity),
            None => {
                let digest = self.digests[from.0 as usize];
                if digest == UNKNOWN || media.is_meta(to) {
                    return;
                }
                let fingerprint = Fingerprint::Digest(digest);
                self.note_digest(&fingerprint, to, self.is_recalled(from));
                fingerprint
            }
        };

        // The page is in its fingerprint's line, or was pushed out of it.
        let (at, tag) = self.place(&fingerprint);
        let line = &mut self.lines[at];
        for slot in line.nominated(tag) {
            if line.page(slot) == Some(from) {
                return line.set_page(slot, to);
            }
        }
        if line.may_have_spilled(tag) {
            self.spilled.moved(at, tag, from, to);
        }
    }

    /// A page has been copied, and both stay.
    #[cold]
    pub fn copied(&mut self, from: Ppn, to: Ppn, pages: PageLookup<'_>) {
        if pages.media.is_meta(to) {
            return self.forget(pages.media, from); // It could not be read.
        }
        if !self.exact {
            return;
        }

        let Some(fingerprint) = self.of_page(pages.media, from) else {
            return;
        };
        self.note_digest(&fingerprint, to, self.is_recalled(from));
        self.learn(&fingerprint, to, pages);
    }

    /// A page cannot be read: nothing is to be found there any more.
    #[cold]
    pub fn forget(&mut self, media: &Media, ppn: Ppn) {
        let Some(fingerprint) = self.of_page(media, ppn) else {
            return;
        };
        let (at, tag) = self.place(&fingerprint);
        let line = &mut self.lines[at];
        for slot in line.nominated(tag) {
            if line.page(slot) == Some(ppn) {
                line.empty(slot);
            }
        }
        // All tags: the page may have spilled under what it held earlier, too.
        self.spilled.drop_page(at, ppn);
        self.lines[at].note_all_spilled(self.spilled.tags(at));

        if let Some(digest) = self.digests.get_mut(ppn.0 as usize) {
            *digest = UNKNOWN;
        }
    }

    /// Was a page's digest read from a file, and not compared with what the page holds?
    #[inline]
    pub fn is_recalled(&self, ppn: Ppn) -> bool {
        self.recalled
            .get(ppn.0 as usize / 64)
            .is_some_and(|bits| bits >> (ppn.0 % 64) & 1 == 1)
    }

    /// A page holds what its digest says: it has been compared.
    pub fn confirm(&mut self, ppn: Ppn) {
        if let Some(bits) = self.recalled.get_mut(ppn.0 as usize / 64) {
            *bits &= !(1 << (ppn.0 % 64));
        }
    }

    /// Asks for the line of a content.
    #[inline]
    pub fn prefetch_line(&self, fingerprint: &Fingerprint) {
        prefetch(&self.lines, self.place(fingerprint).0);
    }

    /// Asks for what comparing the nominated page will touch, or entering a new one; where it is,
    /// if a page is nominated.
    #[inline]
    pub fn prefetch_page(&self, fingerprint: &Fingerprint, pages: PageLookup<'_>) -> Option<Ppn> {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let Some(slot) = line.nominated(tag).first() else {
            // An entry needs a slot: it looks for a dead page here, or else spills one.
            (WAYS / 2..WAYS)
                .filter_map(|slot| line.page(slot))
                .for_each(|ppn| pages.counts.prefetch(ppn));
            self.spilled.prefetch(at);
            return None;
        };
        let ppn = line.page(slot)?;
        self.prefetch_content(ppn, pages);
        Some(ppn)
    }

    /// Asks for what says whether a page still holds a content.
    #[inline]
    fn prefetch_content(&self, ppn: Ppn, pages: PageLookup<'_>) {
        pages.media.prefetch_identity(ppn);
        pages.counts.prefetch(ppn);
        prefetch(&self.digests, ppn.0 as usize);
    }
}
