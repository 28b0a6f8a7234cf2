//! The fingerprint store: which flash page already holds a content.
//!
//! Lines of one cache line: eight 32-bit tags, then their eight 31-bit page numbers, the youngest first. A tag only
//! nominates a page: a hit counts after the whole fingerprint is compared. The eight bits left over say which tags may
//! have spilled, an eighth of all tags each: so one cache line tells that a content is new.
//!
//! A full line gives up a slot whose page is dead, the oldest slots first: a page dies by being overwritten, so that the
//! oldest is the likeliest. Only a line of eight live pages gives up one of them; what it would have found later is
//! counted as missed. An exact store (the upper bound's) finds it all the same, in `spilled`.
//!
//! Pages that cannot be read: as soon as a read of a page fails (a host's, collection's, a comparison's) the store
//! forgets it, and a page that stands for lost data is never in it. So writing the same content again programs a new
//! page, which cures the LPN. That a page cannot be read may be unknown, since nobody has read it since: a hit on it is
//! as good as the page, like any other data at rest. Reading at every hit would find that out at the price of what
//! deduplication saves.
//!
//! Invariants: bounded (eight slots for nine flash pages), but for `spilled`; a slot may be stale (its page garbage or
//! reused), which the comparison and the reference count find out; the digest of a page is that of the bytes it holds, or
//! 0 where it is not known. Lost at power-off: `relearn` says how it comes back.

mod fingerprint;
mod relearn;
mod spilled;

use crate::counts::Counts;
pub use fingerprint::{Fingerprint, FingerprintKind};
pub use relearn::UnknownPage;
use remap_ssd_media::slab::{Slab, prefetch};
use remap_ssd_media::{ContentMode, Media, Ppn};
use spilled::{Spilled, SpilledPage};

const WAYS: usize = 8;
/// The digest of a page of which nothing is known.
const UNKNOWN: [u8; 32] = [0; 32];

/// The bits of a page number plus one: the map has 31 for page numbers, and one of them is no page.
const PAGE: u32 = u32::MAX >> 1;

/// Apart, so that all tags are compared at once.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(64))]
struct Line {
    tags: [u32; WAYS],
    /// Page numbers plus one; 0 is an empty slot. The first bit of the n-th says that a page whose tag is n modulo 8 may
    /// have spilled; it stays when pages move.
    pages: [u32; WAYS],
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// The slots with this tag, empty ones among them: a bit each, and no branches.
    #[inline(always)]
    fn nominated(&self, tag: u32) -> u32 {
        let bits: [u32; WAYS] = std::array::from_fn(|slot| if self.tags[slot] == tag { 1 << slot } else { 0 });
        bits.iter().fold(0, |all, bit| all | bit)
    }

    /// The page of a slot.
    #[inline(always)]
    fn page(&self, slot: usize) -> Option<Ppn> {
        (self.pages[slot % WAYS] & PAGE).checked_sub(1).map(Ppn)
    }

    #[inline(always)]
    fn set_page(&mut self, slot: usize, ppn: Option<Ppn>) {
        let page = &mut self.pages[slot % WAYS];
        *page = *page & !PAGE | ppn.map_or(0, |ppn| ppn.0 + 1);
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
        let moved = shifted(ppn.0 + 1, pages);
        self.tags = shifted(tag, tags);
        self.pages = std::array::from_fn(|at| moved[at] & PAGE | pages[at] & !PAGE);
    }

    /// May a page with this tag have spilled?
    #[inline(always)]
    fn may_have_spilled(&self, tag: u32) -> bool {
        self.pages[tag as usize % WAYS] & !PAGE != 0
    }

    /// Notes the tags of all pages that have spilled.
    fn note_spilled(&mut self, spilled: &[SpilledPage]) {
        self.pages.iter_mut().for_each(|page| *page &= PAGE);
        spilled.iter().for_each(|page| self.pages[page.tag as usize % WAYS] |= !PAGE);
    }
}

/// The slots of a set of bits.
#[inline(always)]
fn slots(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bits != 0).then_some(bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        slot
    })
}

/// What the store must ask to know whether a page still holds what it was entered for.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    /// Contents.
    pub media: &'a Media,
    /// Reference counts.
    pub counts: &'a Counts,
}

/// The store.
pub struct Dedup {
    lines: Slab<Line>,
    /// Whole digests by page, with real bytes only: identities are in the media already.
    digests: Vec<[u8; 32]>,
    /// One bit a page, with real bytes only: its digest was read from a file, and has not been compared with the bytes.
    recalled: Vec<u64>,
    spilled: Spilled,
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
        let lines = (pages / 9).max(1);
        let spilled = Spilled::new(lines);
        Some(Self { lines: Slab::zeroed(lines), digests, recalled, spilled, exact, count_max, missed: 0 })
    }

    /// Writes so far whose content was on flash in a page that the store had no room for.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    #[inline(always)]
    fn place(&self, fingerprint: &Fingerprint) -> (usize, u32) {
        let spread = fingerprint.spread();
        let line = ((spread >> 32) * self.lines.len() as u64) >> 32;
        (line as usize, spread as u32)
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
            None => Some(self.digests[ppn.0 as usize]).filter(|digest| *digest != UNKNOWN).map(Fingerprint::Digest),
        }
    }

    /// Has a page owners, and a content that belongs to this line?
    fn belongs(&self, at: usize, pages: Pages<'_>, ppn: Ppn) -> bool {
        let place = || self.of_page(pages.media, ppn).map(|fingerprint| self.place(&fingerprint).0);
        !pages.counts.is_zero(ppn) && place() == Some(at)
    }

    /// The live page that holds this content: one that can have another owner, if there is any.
    #[inline(always)]
    pub fn find(&mut self, fingerprint: &Fingerprint, pages: Pages<'_>) -> Option<Ppn> {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let mut full = None;
        let mut nominated = line.nominated(tag);
        while nominated != 0 {
            if let Some(ppn) = line.page(nominated.trailing_zeros() as usize)
                && self.same(fingerprint, pages.media, ppn)
            {
                match pages.counts.get(ppn) {
                    0 => {}
                    count if count < self.count_max => return Some(ppn),
                    _ => full = Some(ppn),
                }
            }
            nominated &= nominated - 1;
        }
        match line.may_have_spilled(tag) {
            true => self.find_spilled((at, tag), fingerprint, pages).or(full),
            false => full,
        }
    }

    #[cold]
    fn find_spilled(&mut self, (at, tag): (usize, u32), fingerprint: &Fingerprint, pages: Pages<'_>) -> Option<Ppn> {
        // What has died since need not be looked at again.
        self.retain_spilled(at, |ppn| !pages.counts.is_zero(ppn));
        let spilled = self.spilled.pages(at).iter().filter(|page| page.tag == tag);
        let owned = spilled.map(|page| (pages.counts.get(page.ppn), page.ppn)).filter(|(count, _)| *count > 0);
        let holders = owned.filter(|(_, ppn)| self.same(fingerprint, pages.media, *ppn));
        let (count, found) = holders.min_by_key(|(count, _)| *count)?;
        if self.exact {
            return Some(found);
        }
        self.missed += u64::from(count < self.count_max);
        None
    }

    /// Remembers where a content was written. A slot with the same tag goes first (its page is stale, or full of
    /// references), then an empty one or one of a dead page, then the oldest.
    #[inline(always)]
    pub fn insert(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: Pages<'_>) {
        self.note_digest(fingerprint, ppn, false);
        let (at, tag) = self.place(fingerprint);
        let line = &mut self.lines[at];
        let nominated = line.nominated(tag);
        let is_free = |slot| line.page(slot).is_none_or(|ppn| pages.counts.is_zero(ppn));
        if nominated == 0 && is_free(WAYS - 1) {
            // The shift is by a constant then.
            return line.replace(WAYS - 1, tag, ppn);
        }
        let slot = match nominated {
            0 => (0..WAYS - 1).rev().find(|slot| is_free(*slot)).unwrap_or_else(|| self.slot_in_use(at, pages)),
            same => self.slot_of_tag(at, same.trailing_zeros() as usize, fingerprint, pages),
        };
        self.lines[at].replace(slot, tag, ppn);
    }

    /// Remembers a page that was found with its content, unless a page that is as good is known.
    fn learn(&mut self, fingerprint: &Fingerprint, ppn: Ppn, pages: Pages<'_>) {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let known = slots(line.nominated(tag)).filter_map(|slot| line.page(slot)).any(|known| {
            known != ppn
                && self.same(fingerprint, pages.media, known)
                && (1..self.count_max).contains(&pages.counts.get(known))
        });
        match known {
            true if self.exact => self.add_spilled(at, SpilledPage { tag, ppn }),
            true => {}
            false => self.insert(fingerprint, ppn, pages),
        }
    }

    #[inline]
    fn note_digest(&mut self, fingerprint: &Fingerprint, ppn: Ppn, is_recalled: bool) {
        if let Fingerprint::Digest(digest) = fingerprint {
            let at = ppn.0 as usize;
            self.digests[at] = *digest;
            self.recalled[at / 64] &= !(1 << (at % 64));
            self.recalled[at / 64] |= u64::from(is_recalled) << (at % 64);
        }
    }

    /// Of a line whose pages all have owners: a slot whose page holds something else by now, or the oldest.
    #[cold]
    fn slot_in_use(&mut self, at: usize, pages: Pages<'_>) -> usize {
        let line = self.lines[at];
        let is_reused = |slot: &usize| line.page(*slot).is_none_or(|ppn| !self.belongs(at, pages, ppn));
        if let Some(slot) = (0..WAYS).rev().find(is_reused) {
            return slot;
        }
        if let Some(oldest) = line.page(WAYS - 1) {
            self.spill(at, oldest, pages);
        }
        WAYS - 1
    }

    /// The slot of another page with the same tag. If that page has another content it spills; if it has the same, only
    /// an exact store goes on looking at it.
    #[inline(always)]
    fn slot_of_tag(&mut self, at: usize, slot: usize, fingerprint: &Fingerprint, pages: Pages<'_>) -> usize {
        if let Some(ppn) = self.lines[at].page(slot)
            && !pages.counts.is_zero(ppn)
        {
            self.spill_of_tag(at, ppn, fingerprint, pages);
        }
        slot
    }

    #[cold]
    fn spill_of_tag(&mut self, at: usize, ppn: Ppn, fingerprint: &Fingerprint, pages: Pages<'_>) {
        if (self.exact || !self.same(fingerprint, pages.media, ppn)) && self.belongs(at, pages, ppn) {
            self.spill(at, ppn, pages);
        }
    }

    #[cold]
    fn spill(&mut self, at: usize, ppn: Ppn, pages: Pages<'_>) {
        let Some(fingerprint) = self.of_page(pages.media, ppn) else { return };
        let (_, tag) = self.place(&fingerprint);
        self.spilled.retain(at, |page| !pages.counts.is_zero(page));

        // Pages that hold something else by now are found by what they hold, which is seldom worth looking at.
        if self.spilled.pages(at).len() >= WAYS {
            let mut spilled = std::mem::replace(&mut self.spilled, Spilled::new(0));
            spilled.retain(at, |page| self.belongs(at, pages, page));
            self.spilled = spilled;
        }
        self.add_spilled(at, SpilledPage { tag, ppn });
    }

    fn add_spilled(&mut self, at: usize, page: SpilledPage) {
        self.spilled.add(at, page);
        self.lines[at].note_spilled(self.spilled.pages(at));
    }

    fn retain_spilled(&mut self, at: usize, keep: impl FnMut(Ppn) -> bool) {
        self.spilled.retain(at, keep);
        self.lines[at].note_spilled(self.spilled.pages(at));
    }

    /// These pages have been erased: what they will hold is not known by its digest.
    pub fn erased(&mut self, pages: std::ops::Range<usize>) {
        if !self.digests.is_empty() {
            self.digests[pages].fill(UNKNOWN);
        }
    }

    /// A page has moved. One that could not be read is replaced by a page that says so, and has no content any more.
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
        let (at, tag) = self.place(&fingerprint);
        let line = &mut self.lines[at];
        let mut nominated = line.nominated(tag);
        while nominated != 0 {
            let slot = nominated.trailing_zeros() as usize;
            if line.page(slot) == Some(from) {
                return line.set_page(slot, Some(to));
            }
            nominated &= nominated - 1;
        }
        if line.may_have_spilled(tag) {
            self.spilled.moved(at, from, to);
        }
    }

    /// A page has been copied, and both stay.
    #[cold]
    pub fn copied(&mut self, from: Ppn, to: Ppn, pages: Pages<'_>) {
        if pages.media.is_meta(to) {
            return self.forget(pages.media, from); // It could not be read.
        }
        if !self.exact {
            return;
        }
        let Some(fingerprint) = self.of_page(pages.media, from) else { return };
        self.note_digest(&fingerprint, to, self.is_recalled(from));
        self.learn(&fingerprint, to, pages);
    }

    /// A page cannot be read: nothing is to be found there any more.
    #[cold]
    pub fn forget(&mut self, media: &Media, ppn: Ppn) {
        let Some(fingerprint) = self.of_page(media, ppn) else { return };
        let (at, tag) = self.place(&fingerprint);
        let line = &mut self.lines[at];
        for slot in slots(line.nominated(tag)) {
            if line.page(slot) == Some(ppn) {
                line.tags[slot] = 0;
                line.set_page(slot, None);
            }
        }
        self.retain_spilled(at, |page| page != ppn);
        if let Some(digest) = self.digests.get_mut(ppn.0 as usize) {
            *digest = UNKNOWN;
        }
    }

    /// Was a page's digest read from a file, and not compared with what the page holds?
    #[inline]
    pub fn is_recalled(&self, ppn: Ppn) -> bool {
        self.recalled.get(ppn.0 as usize / 64).is_some_and(|bits| bits >> (ppn.0 % 64) & 1 == 1)
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

    /// Asks for what comparing the nominated page will touch, or entering a new one; where it is, if a page is nominated.
    #[inline]
    pub fn prefetch_page(&self, fingerprint: &Fingerprint, pages: Pages<'_>) -> Option<Ppn> {
        let (at, tag) = self.place(fingerprint);
        let line = &self.lines[at];
        let ppn = match line.nominated(tag) {
            0 => {
                // The slot that is likely to be given up.
                line.page(WAYS - 1).inspect(|oldest| pages.counts.prefetch(*oldest));
                return None;
            }
            nominated => line.page(nominated.trailing_zeros() as usize)?,
        };
        pages.media.prefetch_identity(ppn);
        pages.counts.prefetch(ppn);
        Some(ppn)
    }
}
