//! The fingerprint store: finds the flash page that already holds a content.
//!
//! A line is one cache line: eight 24-bit tags, then their eight page numbers, the newest content
//! first. A tag only nominates a page: a hit requires that the whole fingerprint is equal. The
//! remaining 64 bits show which tags may have spilled, one bit for each 64th of all tags. So a
//! single cache line shows that a content is new.
//!
//! A content whose tag is in the line takes that slot again, in place. If contents recur, most
//! insertions are of this kind, and they touch only memory that `find` has already touched. Any
//! other content takes a slot whose page is dead, the oldest first. Only a line of eight live pages
//! evicts one of them, the content it has known longest. Later duplicates of an evicted content are
//! counted as missed. An exact store (an upper bound) still finds them, in `spilled`.
//!
//! Unreadable pages: when a read of a page fails (a host's, collection's, a comparison's), the
//! store forgets the page; a page that stands for lost data is never in it. So writing the same
//! content again programs a new page, which repairs the LPN. A page may have become unreadable
//! since its last read: a hit on it is as good as the page, like any other data at rest. Reading at
//! every hit would detect this, but cost what deduplication saves.
//!
//! Invariants: bounded (eight slots for nine flash pages), except `spilled`; a slot may be stale
//! (its page garbage or reused), which the comparison and the reference count detect; a tag other
//! than 0 is in at most one slot of a line (0 is also the tag of empty slots); the digest of a page
//! is that of the bytes it holds, or 0 if unknown. Lost at power-off: `verbs::relearn` restores it.

mod fingerprint;
mod long_chains;
#[cfg(test)]
mod long_tests;
mod murmur3;
mod spilled;
mod spilled_cell;
mod spilling;
#[cfg(test)]
mod tests;

use crate::mapping::counts::Counts;
pub(crate) use fingerprint::Fingerprint;
pub use fingerprint::FingerprintKind;
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{ContentMode, Media, Ppn};
use spilled::SpilledTable;
use spilled_cell::SpilledPage;

const WAYS: usize = 8;
/// The digest of a page with unknown content.
pub(crate) const UNKNOWN: [u8; 32] = [0; 32];

/// Bits of a tag. The rest of the word holds spill bits.
const TAG_BITS: u32 = 24;
const TAG: u32 = (1 << TAG_BITS) - 1;

/// Tags and pages are separate arrays, so that all tags are compared at once.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct FingerprintLine {
    /// Each word is a tag below eight spill bits. Of these 64 bits, the n-th is set if a page whose
    /// tag is n modulo 64 may have spilled. They stay in place when tags move.
    tags: [u32; WAYS],
    /// Page numbers plus one; 0 is an empty slot.
    pages: [u32; WAYS],
}

const _: () = assert!(size_of::<FingerprintLine>() == 64);

impl FingerprintLine {
    /// The slots with this tag, including empty ones if it is 0. Branch-free.
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

    /// The last slot that is empty or has a dead page. Checks four slots at a time, without
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

    /// Frees a slot, and inserts a new one in front of all others.
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

        // Only the tags move: a spill bit has the same meaning in every slot.
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

    /// Returns true if a page with this tag may have spilled.
    #[inline(always)]
    fn may_have_spilled(&self, tag: u32) -> bool {
        let (slot, bit) = Self::spilled_bit(tag);
        self.tags[slot] & bit != 0
    }

    /// Sets the spill bit of this tag.
    fn note_spilled(&mut self, tag: u32) {
        let (slot, bit) = Self::spilled_bit(tag);
        self.tags[slot] |= bit;
    }

    /// Sets the spill bits of these tags, and clears all others.
    fn note_all_spilled(&mut self, spilled: impl Iterator<Item = u32>) {
        self.tags.iter_mut().for_each(|tag| *tag &= TAG);
        spilled.for_each(|tag| self.note_spilled(tag));
    }
}

/// A set of slots: bit n + 1 is slot n. If slot 0 were bit 0, whose value 0 or 1 equals a boolean,
/// the compiler would compare four of the eight tags one by one.
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

/// The data with which the store checks whether a page still holds the content it was entered for.
#[derive(Clone, Copy)]
pub(crate) struct PageLookup<'a> {
    /// Media whose pages hold the contents.
    pub media: &'a Media,
    /// Reference counts of flash pages.
    pub counts: &'a Counts,
}

/// The fingerprint store: maps contents to flash pages.
pub(crate) struct Dedup {
    lines: Slab<FingerprintLine>,
    /// Full digests by page, with real bytes only: identities are in the media.
    pub(crate) digests: Vec<[u8; 32]>,
    /// One bit per page, with real bytes only: its digest was loaded from a file and has not been
    /// verified against the bytes.
    recalled: Vec<u64>,
    spilled: SpilledTable,
    /// True if spilled pages are found as well.
    exact: bool,
    /// Maximum reference count of a page.
    count_max: u32,
    /// Writes whose content was on flash, in a page that had spilled.
    missed: u64,
}

impl Dedup {
    /// An empty store for `pages` flash pages; `None` if there are no contents to compare.
    pub(crate) fn new(pages: u32, mode: ContentMode, exact: bool, count_max: u32) -> Option<Self> {
        let pages = pages as usize;
        let (digests, recalled) = match mode {
            ContentMode::None => return None,
            ContentMode::Identity => (Vec::new(), Vec::new()),
            ContentMode::Bytes => (vec![UNKNOWN; pages], vec![0; pages.div_ceil(64)]),
        };

        // Eight slots for nine pages: with over-provisioning, about the maximum number of live
        // pages.
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

    /// Writes so far whose content was on flash in a page for which the store had no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    #[inline(always)]
    fn place(&self, fingerprint: &Fingerprint) -> (usize, u32) {
        let spread = fingerprint.spread();
        // The line comes from the upper half, by a multiplication instead of a division; the tag
        // from the lower half.
        let line = ((spread >> 32) * self.lines.len() as u64) >> 32;
        (line as usize, spread as u32 & TAG)
    }

    #[inline(always)]
    fn same(&self, fingerprint: &Fingerprint, media: &Media, ppn: Ppn) -> bool {
        match fingerprint {
            // Pages of metadata have identity 0, which a host's page may have too.
            Fingerprint::Identity(identity) => {
                media.identity(ppn) == Some(*identity) && (*identity != 0 || !media.is_meta(ppn))
            }
            Fingerprint::Digest(digest) => self.digests[ppn.0 as usize] == *digest,
        }
    }

    /// The fingerprint of a page's content, if known.
    fn of_page(&self, media: &Media, ppn: Ppn) -> Option<Fingerprint> {
        match media.identity(ppn) {
            Some(0) if media.is_meta(ppn) => None,
            Some(identity) => Some(Fingerprint::Identity(identity)),
            None => Some(self.digests[ppn.0 as usize])
                .filter(|digest| *digest != UNKNOWN)
                .map(Fingerprint::Digest),
        }
    }

    /// Returns true if a page has owners, and still a content of this line and tag.
    #[inline]
    fn belongs(&self, place: (usize, u32), pages: PageLookup<'_>, ppn: Ppn) -> bool {
        // The content first: `find` has read it, and usually it is a different one by now.
        let found = self
            .of_page(pages.media, ppn)
            .map(|fingerprint| self.place(&fingerprint));
        found == Some(place) && !pages.counts.is_zero(ppn)
    }

    /// Finds the live page with this content: preferably one that can take another owner.
    #[inline(always)]
    pub(crate) fn find(&mut self, fingerprint: &Fingerprint, pages: PageLookup<'_>) -> Option<Ppn> {
        let place = self.place(fingerprint);
        let line = &self.lines[place.0];
        let nominated = line.nominated(place.1);

        // Nearly always at most one page is nominated, and it decides.
        let mut is_full = false;
        if let Some(ppn) = nominated.first().and_then(|slot| line.page(slot))
            && self.same(fingerprint, pages.media, ppn)
        {
            if pages.counts.has_room(ppn, self.count_max) {
                return Some(ppn);
            }
            // Live, but at its maximum count: another page with the same content may have room.
            is_full = !pages.counts.is_zero(ppn);
        }
        if is_full || nominated.are_several() || line.may_have_spilled(place.1) {
            self.find_further(place, fingerprint, pages)
        } else {
            // The new content will want a slot here: prefetches the bucket that a page may spill
            // to.
            self.spilled.prefetch(place.0);
            None
        }
    }

    /// Checks all nominated pages, and those that have spilled.
    #[cold]
    fn find_further(
        &mut self,
        place: (usize, u32),
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<Ppn> {
        let line = &self.lines[place.0];

        // Found but full: the caller's remap is then demoted because of the counter, as in a store
        // with one page per content.
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

    /// Records the page of a content. A slot with the same tag is taken first (its page is stale or
    /// full of references), then an empty one or one with a dead page, then the oldest.
    #[inline(always)]
    pub(crate) fn insert(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: PageLookup<'_>) {
        self.note_digest(fingerprint, ppn, false);
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let Some(slot) = line.nominated(tag).first() else {
            // Insertion is at the front, so a line that is not full has an empty last slot: while a
            // store is being filled, no page has to be checked.
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

        // In place, without moving to the front: same tag, same cache line.
        self.lines[at].set_page(slot, ppn);
    }

    /// Inserts a content whose tag is not in its line.
    #[inline(never)]
    fn insert_new(&mut self, (at, tag): (usize, u32), ppn: Ppn, pages: PageLookup<'_>) {
        let line = self.lines[at];
        let free = line.free(pages.counts);
        if free.is_none()
            && let Some(oldest) = line.page(WAYS - 1)
        {
            // It may be stale by now, which is detected when this tag is looked up.
            self.spill((at, line.tag(WAYS - 1)), oldest, pages);
        }
        self.lines[at].replace(free.unwrap_or(WAYS - 1), tag, ppn);
    }

    /// Records a page found with its content, unless an equally good page is known.
    pub(crate) fn learn(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: PageLookup<'_>) {
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
    pub(crate) fn note_digest(&mut self, fingerprint: &Fingerprint, ppn: Ppn, is_recalled: bool) {
        if let Fingerprint::Digest(digest) = fingerprint {
            let at = ppn.0 as usize;
            self.digests[at] = *digest;
            self.recalled[at / 64] &= !(1 << (at % 64));
            self.recalled[at / 64] |= u64::from(is_recalled) << (at % 64);
            self.spilled.long.note_content(ppn);
        }
    }

    /// Pages have been erased: their digests become unknown.
    pub(crate) fn erased(&mut self, pages: std::ops::Range<usize>) {
        if !self.digests.is_empty() {
            self.digests[pages].fill(UNKNOWN);
        }
    }

    /// A page has moved. If it could not be read, the new page marks lost data and has no content.
    #[inline]
    pub(crate) fn moved(&mut self, media: &Media, from: Ppn, to: Ppn) {
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

        // The page is in its fingerprint's line, or has spilled from it.
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

    /// A page has been copied, and both copies stay.
    #[cold]
    pub(crate) fn copied(&mut self, from: Ppn, to: Ppn, pages: PageLookup<'_>) {
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

    /// A page cannot be read: removes it from the store.
    #[cold]
    pub(crate) fn forget(&mut self, media: &Media, ppn: Ppn) {
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
        // All tags: the page may also have spilled under an earlier content.
        self.spilled.drop_page(at, ppn);
        self.lines[at].note_all_spilled(self.spilled.tags(at));

        if let Some(digest) = self.digests.get_mut(ppn.0 as usize) {
            *digest = UNKNOWN;
        }
    }

    /// Returns true if a page's digest was loaded from a file and has not been verified.
    #[inline]
    pub(crate) fn is_recalled(&self, ppn: Ppn) -> bool {
        self.recalled
            .get(ppn.0 as usize / 64)
            .is_some_and(|bits| bits >> (ppn.0 % 64) & 1 == 1)
    }

    /// Marks a page's digest as verified.
    pub(crate) fn confirm(&mut self, ppn: Ppn) {
        if let Some(bits) = self.recalled.get_mut(ppn.0 as usize / 64) {
            *bits &= !(1 << (ppn.0 % 64));
        }
    }

    /// Prefetches the line of a content.
    #[inline]
    pub(crate) fn prefetch_line(&self, fingerprint: &Fingerprint) {
        prefetch(&self.lines, self.place(fingerprint).0);
    }

    /// Prefetches the data for comparing the nominated page, or for inserting a new one; returns
    /// the nominated page, if any.
    #[inline]
    pub(crate) fn prefetch_page(
        &self,
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<Ppn> {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let Some(slot) = line.nominated(tag).first() else {
            // An insertion needs a slot: it looks for a dead page here, or spills one.
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

    /// Prefetches the data that shows whether a page still holds a content.
    #[inline]
    fn prefetch_content(&self, ppn: Ppn, pages: PageLookup<'_>) {
        pages.media.prefetch_identity(ppn);
        pages.counts.prefetch(ppn);
        prefetch(&self.digests, ppn.0 as usize);
    }
}
