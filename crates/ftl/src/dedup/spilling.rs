//! The store's use of its list of spilled pages: finding a content, adding a page, and dropping
//! stale pages.
//!
//! Invariant: a line's spill bits cover the tag of each page that it has spilled. Absent: the data
//! structure (`spilled`, `long_chains`).

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
            // Pages with this tag are dead by now or hold another content: the spill bit must not
            // lead further lookups here. One may be live, with another content that has the same
            // tag.
            self.drop_stale(pages, at, Some(tag));
            self.lines[at].note_all_spilled(self.spilled.tags(at));
            return None;
        };

        if self.exact {
            return Some(found);
        }

        // Counted only if the page could have taken the reference: a complete store would have
        // found it.
        self.missed += u64::from(count < self.count_max);
        None
    }

    /// Of the spilled pages with this content, the one with the fewest owners, and its count.
    fn least_owned(
        &mut self,
        (at, tag): (usize, u32),
        fingerprint: &Fingerprint,
        pages: PageLookup<'_>,
    ) -> Option<(u32, Ppn)> {
        if self.spilled.is_long(at) {
            // Taken out, since the predicate reads the contents through `self`.
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

    /// Adds a page that has lost its slot in its line.
    #[cold]
    pub(super) fn spill(&mut self, (at, tag): (usize, u32), ppn: Ppn, pages: PageLookup<'_>) {
        if self.spilled.is_full(at) {
            // Checking a page is a cache miss: prefetching lets them overlap.
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
    /// tag, or all in the line's chain.
    fn drop_stale(&mut self, pages: PageLookup<'_>, at: usize, tag: Option<u32>) {
        // Taken out, since the predicate uses `self` to check whether a page still belongs.
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
