//! The rules of the fingerprint store, on a few lines and with contents of chosen lines and tags.

use super::*;
use remap_ssd_media::geometry::{Geometry, Shape};
use std::collections::BTreeMap;

const LINES: usize = 4;
const PAGES: u32 = 9 * LINES as u32;

/// A content with this line and tag; contents with different numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub line: usize,
    pub tag: u32,
    pub number: u32,
}

impl Content {
    fn fingerprint(self) -> Fingerprint {
        let line = ((self.line as u64) << 32).div_ceil(LINES as u64) as u32;
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&self.tag.to_le_bytes());
        digest[4..8].copy_from_slice(&line.to_le_bytes());
        digest[8..12].copy_from_slice(&(self.number + 1).to_le_bytes());
        Fingerprint::Digest(digest)
    }
}

/// A content of line 0 with its own tag and spill bit.
fn content(tag: u32) -> Content {
    Content {
        line: 0,
        tag,
        number: 0,
    }
}

/// A store, and the contents of its pages.
pub(super) struct Store {
    pub dedup: Dedup,
    pub media: Media,
    pub counts: Counts,
    pub held: BTreeMap<Ppn, Content>,
    pub pages: u32,
}

impl Store {
    fn new(exact: bool, count_max: u32) -> Self {
        let store = Self::sized(PAGES, exact, count_max, usize::MAX);
        assert_eq!(store.dedup.lines.len(), LINES);
        store
    }

    /// A store for `pages` pages, in which chains of at least `long_from` buckets are long.
    pub(super) fn sized(pages: u32, exact: bool, count_max: u32, long_from: usize) -> Self {
        let shape = Shape {
            channels: 2,
            dies: 4,
            superblocks: pages.div_ceil(64).max(24),
            pages_per_block: 16,
        };
        let media = Media::blank(Geometry::new(shape).expect("valid"), ContentMode::Bytes, 64);
        let mut dedup = Dedup::new(pages, ContentMode::Bytes, exact, count_max)
            .expect("bytes have fingerprints");
        dedup.spilled = SpilledTable::with_long_from(dedup.lines.len(), long_from);
        Self {
            dedup,
            media,
            counts: Counts::new(pages),
            held: BTreeMap::new(),
            pages,
        }
    }

    pub(super) fn find(&mut self, content: Content) -> Option<Ppn> {
        self.dedup.find(
            &content.fingerprint(),
            PageLookup {
                media: &self.media,
                counts: &self.counts,
            },
        )
    }

    pub(super) fn program(&mut self, content: Content, ppn: Ppn) {
        assert!(self.counts.is_zero(ppn));
        self.dedup.erased(ppn.0 as usize..ppn.0 as usize + 1);
        self.counts.set(ppn, 1);
        self.held.insert(ppn, content);
        self.dedup.insert(
            &content.fingerprint(),
            ppn,
            PageLookup {
                media: &self.media,
                counts: &self.counts,
            },
        );
    }

    pub(super) fn kill(&mut self, ppn: Ppn) {
        self.counts.set(ppn, 0);
        self.held.remove(&ppn);
    }

    pub(super) fn move_to(&mut self, from: Ppn, to: Ppn) {
        self.dedup.erased(to.0 as usize..to.0 as usize + 1);
        self.dedup.moved(&self.media, from, to);
        self.counts.hand_over(from, to);
        let content = self.held.remove(&from).expect("it is live");
        self.held.insert(to, content);
    }

    /// Programs contents with tags 1 to 8 in pages 1 to 8: line 0 is then full.
    fn with_a_full_line(exact: bool) -> Self {
        let mut store = Self::new(exact, 15);
        (1..=8).for_each(|tag| store.program(content(tag), Ppn(tag)));
        store
    }

    /// The tags of line 0 whose contents are found.
    fn found(&mut self, tags: std::ops::RangeInclusive<u32>) -> Vec<u32> {
        tags.filter(|tag| self.find(content(*tag)).is_some())
            .collect()
    }
}

#[test]
fn a_content_that_comes_back_takes_its_slot_again_in_place() {
    let mut store = Store::with_a_full_line(false);
    let tags = store.dedup.lines[0].tags;
    store.kill(Ppn(2));
    store.program(content(2), Ppn(20));
    assert_eq!(store.dedup.lines[0].tags, tags);
    assert_eq!(store.find(content(2)), Some(Ppn(20)));
    assert_eq!(store.found(1..=8).len(), 8);

    // It is still the second oldest content, although its page is the newest.
    store.program(content(9), Ppn(9));
    store.program(content(10), Ppn(10));
    assert_eq!(store.found(1..=10), [3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(store.dedup.missed(), 2);
}

#[test]
fn slots_of_dead_pages_are_given_up_before_those_of_live_ones() {
    for dead in 1..=8 {
        let mut store = Store::with_a_full_line(false);
        store.kill(Ppn(dead));
        store.program(content(9), Ppn(9));
        assert_eq!(
            store.found(1..=9),
            (1..=9).filter(|tag| *tag != dead).collect::<Vec<_>>()
        );
        assert_eq!(store.dedup.missed(), 0);
    }
}

#[test]
fn of_dead_pages_the_oldest_gives_up_its_slot() {
    let mut store = Store::with_a_full_line(false);
    [3, 4, 6, 7]
        .into_iter()
        .for_each(|tag| store.kill(Ppn(tag)));
    store.program(content(9), Ppn(9));
    let line = store.dedup.lines[0];
    assert_eq!(
        (0..WAYS).map(|slot| line.tag(slot)).collect::<Vec<_>>(),
        [9, 8, 7, 6, 5, 4, 2, 1]
    );
}

#[test]
fn a_live_page_that_is_given_up_is_missed_or_found_by_an_exact_store() {
    for exact in [false, true] {
        let mut store = Store::with_a_full_line(exact);
        store.program(content(9), Ppn(9));
        assert_eq!(store.find(content(1)), exact.then_some(Ppn(1)));
        assert_eq!(store.dedup.missed(), u64::from(!exact));

        store.move_to(Ppn(1), Ppn(30));
        assert_eq!(store.find(content(1)), exact.then_some(Ppn(30)));
        assert_eq!(store.dedup.missed(), 2 * u64::from(!exact));

        store.kill(Ppn(30));
        assert_eq!(store.find(content(1)), None);
        assert_eq!(store.dedup.missed(), 2 * u64::from(!exact));
    }
}

// Spill bits stay in place when the tags in the same words move, and are cleared when no page with
// such a tag is left.
#[test]
fn a_line_says_which_tags_may_have_spilled() {
    let mut store = Store::with_a_full_line(false);
    store.program(content(9), Ppn(9));
    store.program(content(10), Ppn(10));
    store.kill(Ppn(7));
    store.program(content(11), Ppn(11));
    let may_have_spilled = |store: &Store| -> Vec<u32> {
        (0..128)
            .filter(|tag| store.dedup.lines[0].may_have_spilled(*tag))
            .collect()
    };
    assert_eq!(may_have_spilled(&store), [1, 2, 65, 66]);

    store.kill(Ppn(2));
    assert_eq!(store.find(content(2)), None);
    assert_eq!(may_have_spilled(&store), [1, 65]);
}

#[test]
fn a_tag_that_two_contents_share_only_nominates() {
    let [first, second, third] = [0, 1, 2].map(|number| Content {
        line: 2,
        tag: 0xab_cdef,
        number,
    });
    for exact in [false, true] {
        let mut store = Store::new(exact, 15);
        store.program(first, Ppn(1));
        assert_eq!(store.find(second), None);

        // The slot is taken, and the first page spills, and stays found after lookups of others
        // with its tag.
        store.program(second, Ppn(2));
        assert_eq!(store.find(second), Some(Ppn(2)));
        assert_eq!(store.find(third), None);
        assert_eq!(store.dedup.missed(), 0);
        assert_eq!(store.find(first), exact.then_some(Ppn(1)));
        assert_eq!(store.dedup.missed(), u64::from(!exact));
    }
}

#[test]
fn empty_slots_hide_no_content_with_their_tag() {
    let mut store = Store::new(false, 15);
    store.program(content(0), Ppn(1));
    store.program(content(5), Ppn(2));
    store.dedup.forget(&store.media, Ppn(2));
    assert_eq!(
        (store.find(content(5)), store.find(content(0))),
        (None, Some(Ppn(1)))
    );
}

pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T>(&mut self, from: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let len = from.len() as u64;
        if len == 0 {
            None
        } else {
            from.into_iter().nth(self.below(len) as usize)
        }
    }
}

/// Writes a content; returns whether it could have been found, and whether it was.
fn write(
    store: &mut Store,
    random: &mut Random,
    content: Content,
    count_max: u32,
    adds_owners: bool,
) -> (bool, bool) {
    let has_room =
        |(ppn, held): (&Ppn, &Content)| *held == content && store.counts.get(*ppn) < count_max;
    let is_there = store.held.iter().any(has_room);

    let found = store.find(content);
    if let Some(ppn) = found {
        assert_eq!(store.held.get(&ppn), Some(&content));
        if store.counts.get(ppn) < count_max {
            if adds_owners {
                store.counts.add(ppn);
            }
            return (is_there, true);
        }
    }

    let garbage: Vec<Ppn> = (0..PAGES)
        .map(Ppn)
        .filter(|ppn| store.counts.is_zero(*ppn))
        .collect();
    if let Some(ppn) = random.pick(garbage.into_iter()) {
        store.program(content, ppn);
    }
    (is_there, false)
}

/// Random writes, deaths, moves and failed reads: each duplicate is found or counted as missed.
/// Lines have up to sixteen contents, two of each tag, and one tag is that of empty slots.
#[test]
fn each_duplicate_is_found_or_counted() {
    for (exact, count_max, adds_owners) in [(true, 15, true), (true, 2, true), (false, 15, false)] {
        let (mut store, mut random) = (Store::new(exact, count_max), Random(3));
        let (mut hits, mut missed) = (0, 0);
        for step in 0..200_000 {
            let crowded = if step / 1000 % 2 == 0 { 33 } else { 12 };
            while store.held.len() > crowded {
                let ppn = random
                    .pick(store.held.keys().copied())
                    .expect("some are live");
                store.kill(ppn);
            }

            let some_page = random.pick(store.held.keys().copied());
            match (random.below(20), some_page) {
                (0 | 1, Some(ppn)) => store.kill(ppn),
                (2 | 3, Some(from)) => {
                    let garbage: Vec<Ppn> = (0..PAGES)
                        .map(Ppn)
                        .filter(|ppn| store.counts.is_zero(*ppn))
                        .collect();
                    if let Some(to) = random.pick(garbage.into_iter()) {
                        store.move_to(from, to);
                    }
                }
                (4, Some(ppn)) if random.below(10) == 0 => {
                    store.dedup.forget(&store.media, ppn);
                    store.held.remove(&ppn);
                    store.counts.set(ppn, 0);
                }
                _ => {
                    let tag = [0, 1, 2, 3, 65, 66, 7, 8][random.below(8) as usize];
                    let (line, number) =
                        (random.below(LINES as u64) as usize, random.below(2) as u32);
                    let content = Content { line, tag, number };
                    let before = store.dedup.missed();
                    let (is_there, is_hit) =
                        write(&mut store, &mut random, content, count_max, adds_owners);
                    let is_missed = store.dedup.missed() > before;
                    assert_eq!(
                        is_there,
                        is_hit || is_missed,
                        "step {step}: {content:?} {is_hit} {is_missed}"
                    );
                    hits += u64::from(is_hit);
                    missed += u64::from(is_missed);
                }
            }
        }
        assert!(
            hits > 10_000 && (missed > 1_000) != exact,
            "{hits} {missed}"
        );
    }
}
