//! How the store uses its list of spilled pages: looking for a content there, adding a page, and
//! dropping those that are stale.
//!
//! Invariant: a line's spill bits name the tag of each page that it has spilled. Absent: how the
//! list is kept (`spilled`, `long_chains`).

use super::spilled::SpilledTable;
use super::spilled_cell::SpilledPage;
use super::{Dedup, Fingerprint, PageLookup};
use remap_ssd_media::Ppn;

impl Dedup {
    pub(super) fn find_spilled(
        &mut self,
        (at, tag): (usize, u32),
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<Ppn> {
        let Some((count, found)) = self.least_owned((at, tag), fingerprint, pages) else {
            // Pages with this tag are dead by now, or hold something else: the spill bit must not
            // send others here. One may be live, and hold another content with the same tag.
            self.drop_stale(pages, at, Some(tag));
            self.lines[at].note_all_spilled(self.spilled.tags(at));
            return None;
        };

        if self.exact {
            return Some(found);
        }

        // Counted only if the page could have taken the reference: what a full store would have
        // found.
        self.missed += u64::from(count < self.count_max);
        None
    }

    /// Of the spilled pages that hold this content, the one with the fewest owners, and how many
    /// these are.
    fn least_owned(
        &mut self,
        (at, tag): (usize, u32),
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<(u32, Ppn)> {
        if self.spilled.is_long(at) {
            // Taken out, since the predicate asks `self` what a page holds.
            let mut spilled = std::mem::replace(&mut self.spilled, SpilledTable::new(0));
            let found = spilled.find_in_long(
                (at, tag),
                pages.counts,
                |ppn| self.same(fingerprint, pages.media, ppn),
                |ppn| self.belongs((at, tag), pages, ppn),
            );
            self.spilled = spilled;
            return found;
        }

        let spilled = self.spilled.pages(at).filter(|page| page.tag == tag);
        let owned = spilled
            .map(|page| (pages.counts.get(page.ppn), page.ppn))
            .filter(|(count, _)| *count > 0);
        let holders = owned.filter(|(_, ppn)| self.same(fingerprint, pages.media, *ppn));
        holders.min_by_key(|(count, _)| *count)
    }

    /// A page has no slot in its line any more.
    #[cold]
    pub(super) fn spill(&mut self, (at, tag): (usize, u32), ppn: Ppn, pages: PageLookup<'_>) {
        if self.spilled.is_full(at) {
            // Each page looked at is a cache miss: let them come together.
            for ppn in self.spilled.pages_of_chain(at) {
                self.prefetch_content(ppn, pages);
            }
            self.drop_stale(pages, at, None);
            self.lines[at].note_all_spilled(self.spilled.tags(at));
            self.spilled.make_room(at);
        }
        self.add_spilled(at, SpilledPage { tag, ppn });
    }

    /// Drops spilled pages that are dead or hold another content by now: those of a line with a
    /// tag, or all in the bucket of the line.
    fn drop_stale(&mut self, pages: PageLookup<'_>, at: usize, tag: Option<u32>) {
        // Taken out, since the predicate asks `self` whether a page still belongs.
        let mut spilled = std::mem::replace(&mut self.spilled, SpilledTable::new(0));
        spilled.drop_stale(at, tag, pages.counts, |line, page| {
            !pages.counts.is_zero(page.ppn) && self.belongs((line, page.tag), pages, page.ppn)
        });
        self.spilled = spilled;
    }

    pub(super) fn add_spilled(&mut self, at: usize, page: SpilledPage) {
        self.spilled.add(at, page);
        self.lines[at].note_spilled(page.tag);
    }
}
