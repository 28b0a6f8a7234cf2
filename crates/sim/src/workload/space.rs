//! Allocation of files: extents of a space of pages, allocated and released.
//!
//! Allocation continues from the end of the last one and takes the first hole that is long enough,
//! among the next few; failing that it takes the next holes one after the other. So files are
//! mostly contiguous, and freed space is reused in the order of addresses. Invariants: free extents
//! neither overlap nor touch; `free_pages` is their sum. Absent: the owner of an extent.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageExtent {
    pub first: u32,
    pub len: u32,
}

/// A space of pages, some of them free.
pub(super) struct Space {
    free: BTreeMap<u32, u32>,
    free_pages: u32,
    cursor: u32,
}

/// Holes searched for one that is long enough.
const HOLES_TRIED: usize = 32;

impl Space {
    /// A space of these pages, all of them free.
    pub(super) fn new(extent: PageExtent) -> Self {
        let free = BTreeMap::from([(extent.first, extent.len)]);
        Self {
            free,
            free_pages: extent.len,
            cursor: extent.first,
        }
    }

    /// Number of free pages.
    pub(super) fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Appends extents of `pages` pages in total; none if fewer are free.
    pub(super) fn allocate(&mut self, pages: u32, into: &mut Vec<PageExtent>) -> bool {
        // All or nothing: a truncated file would be another load.
        if pages > self.free_pages {
            return false;
        }

        let mut left = pages;
        while left > 0 {
            // The cursor moves with every part, so the search does not restart.
            let (first, len) = self.hole(left);
            let part = len.min(left);

            self.take(first, len, part);
            self.cursor = first + part;

            // An extent that continues the last one is merged with it.
            match into
                .last_mut()
                .filter(|last| last.first + last.len == first)
            {
                Some(last) => last.len += part,
                None => into.push(PageExtent { first, len: part }),
            }

            left -= part;
        }

        true
    }

    /// Takes up to `pages` pages directly after `end`; returns their number.
    pub(super) fn extend(&mut self, end: u32, pages: u32) -> u32 {
        let Some(&len) = self.free.get(&end) else {
            return 0;
        };
        let part = len.min(pages);
        if part > 0 {
            self.take(end, len, part);
        }
        part
    }

    /// Returns the next hole to use; there is one.
    fn hole(&self, wanted: u32) -> (u32, u32) {
        // Wraps around at the end, each hole once.
        let from_cursor = self
            .free
            .range(self.cursor..)
            .chain(self.free.range(..self.cursor));
        let mut tried = from_cursor
            .take(HOLES_TRIED)
            .map(|(&first, &len)| (first, len));
        let next = tried.next().expect("there are free pages");

        // The next hole is the usual answer, and keeps addresses in order.
        if next.1 >= wanted {
            next
        } else {
            tried.find(|hole| hole.1 >= wanted).unwrap_or(next)
        }
    }

    /// Takes the beginning of a hole.
    fn take(&mut self, first: u32, len: u32, part: u32) {
        self.free.remove(&first);
        if part < len {
            self.free.insert(first + part, len - part);
        }
        self.free_pages -= part;
    }

    /// Frees the pages of an extent.
    pub(super) fn release(&mut self, extent: PageExtent) {
        let PageExtent { mut first, mut len } = extent;
        self.free_pages += len;

        // Neighbours are merged at once: two holes that touch would look like two short ones.
        if let Some((&before, &length)) = self.free.range(..first).next_back() {
            assert!(before + length <= first, "an extent is released once");
            if before + length == first {
                self.free.remove(&before);
                (first, len) = (before, len + length);
            }
        }
        if let Some((&after, &length)) = self.free.range(first..).next() {
            assert!(first + len <= after, "an extent is released once");
            if first + len == after {
                self.free.remove(&after);
                len += length;
            }
        }
        self.free.insert(first, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Random allocations, extensions and releases against a map of single pages.
    #[test]
    fn pages_have_one_owner_and_come_back_whole() {
        const PAGES: u32 = 500;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut space = Space::new(PageExtent {
            first: 100,
            len: PAGES,
        });

        let (mut taken, mut files) = (vec![false; 700], Vec::<Vec<PageExtent>>::new());
        let mark = |taken: &mut Vec<bool>, PageExtent { first, len }: PageExtent, to: bool| {
            for page in first..first + len {
                assert!((100..100 + PAGES).contains(&page));
                assert_eq!(
                    std::mem::replace(&mut taken[page as usize], to),
                    !to,
                    "page {page}"
                );
            }
        };

        for _ in 0..20_000 {
            let draw = |bound, rng: &mut _| super::super::draw::below(bound, rng);
            let wanted = 1 + draw(40, &mut rng);

            match draw(3, &mut rng) {
                0 => {
                    let mut file = Vec::new();
                    let fits = wanted <= space.free_pages();
                    assert_eq!(space.allocate(wanted, &mut file), fits);

                    assert_eq!(
                        file.iter().map(|extent| extent.len).sum::<u32>(),
                        if fits { wanted } else { 0 }
                    );
                    file.iter()
                        .for_each(|extent| mark(&mut taken, *extent, true));

                    if fits {
                        files.push(file);
                    }
                }
                1 if !files.is_empty() => {
                    let at = draw(files.len() as u32, &mut rng) as usize;
                    let last = files[at].last_mut().unwrap();
                    let end = last.first + last.len;

                    let more = space.extend(end, wanted);
                    mark(
                        &mut taken,
                        PageExtent {
                            first: end,
                            len: more,
                        },
                        true,
                    );

                    last.len += more;
                }
                _ if !files.is_empty() => {
                    let at = draw(files.len() as u32, &mut rng) as usize;
                    for extent in files.swap_remove(at) {
                        mark(&mut taken, extent, false);
                        space.release(extent);
                    }
                }
                _ => {}
            }

            let used = taken.iter().filter(|taken| **taken).count() as u32;
            assert_eq!(space.free_pages(), PAGES - used);
        }

        files
            .into_iter()
            .flatten()
            .for_each(|extent| space.release(extent));

        assert_eq!(space.free, BTreeMap::from([(100, PAGES)]));
    }
}
