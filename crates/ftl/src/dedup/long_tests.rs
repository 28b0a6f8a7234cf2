//! Long chains of spilled pages: the same results as a scan, at a cost independent of their length.

use super::tests::{Content, Random, Store};
use remap_ssd_media::Ppn;

/// Writes a content; returns the page that was found for it.
fn write(store: &mut Store, random: &mut Random, content: Content, count_max: u32) -> Option<Ppn> {
    let found = store.find(content);
    match found.filter(|ppn| store.counts.get(*ppn) < count_max) {
        Some(ppn) => {
            store.counts.add(ppn);
        }
        None => {
            if let Some(ppn) = garbage(store, random) {
                store.program(content, ppn);
            }
        }
    }
    found
}

fn garbage(store: &Store, random: &mut Random) -> Option<Ppn> {
    let start = random.below(store.pages.into()) as u32;
    let mut pages = (0..store.pages).map(|at| Ppn((start + at) % store.pages));
    pages.find(|ppn| store.counts.is_zero(*ppn))
}

fn live(store: &Store, random: &mut Random) -> Option<Ppn> {
    let start = Ppn(random.below(store.pages.into()) as u32);
    let mut pages = store.held.range(start..).chain(store.held.iter());
    pages.next().map(|(ppn, _)| *ppn)
}

fn lose_owner(store: &mut Store, ppn: Ppn) {
    if store.counts.sub(ppn) == 0 {
        store.held.remove(&ppn);
    }
}

/// The page found at each step of a script; chains of at least `long_from` buckets have indices.
fn script(seed: u64, long_from: usize) -> (Vec<Option<Ppn>>, u64) {
    const PAGES: u32 = 420;
    let count_max = 3;
    let mut store = Store::sized(PAGES, true, count_max, long_from);
    let (mut random, mut log) = (Random(seed), Vec::new());

    for _ in 0..30_000 {
        while store.held.len() as u32 > PAGES * 9 / 10 {
            let ppn = live(&store, &mut random).expect("most are live");
            store.kill(ppn);
        }

        let content = Content {
            line: 0,
            tag: 1 + random.below(2) as u32,
            number: random.below(2) as u32,
        };
        match (random.below(16), live(&store, &mut random)) {
            (0..3, Some(ppn)) => lose_owner(&mut store, ppn),
            (3, Some(ppn)) => store.kill(ppn),
            (4 | 5, Some(from)) => {
                if let Some(to) = garbage(&store, &mut random) {
                    store.move_to(from, to);
                }
            }
            (6, Some(ppn)) if random.below(8) == 0 => {
                store.dedup.forget(&store.media, ppn);
                store.kill(ppn);
            }
            _ => log.push(write(&mut store, &mut random, content, count_max)),
        }
    }
    (log, store.dedup.spilled.long.looks())
}

#[test]
fn indices_find_what_going_through_the_chain_finds() {
    for seed in 1..=6 {
        let (plain, looks) = script(seed, usize::MAX);
        assert_eq!(looks, 0, "no chain is long");
        assert!(plain.iter().flatten().count() > 5_000, "nothing is found");
        for long_from in [2, 3, 9, 20] {
            let (indexed, looks) = script(seed, long_from);
            let differs = (0..plain.len()).find(|at| plain.get(*at) != indexed.get(*at));
            assert_eq!(differs, None, "seed {seed}, long from {long_from} buckets");
            assert!(looks > 10_000, "{looks} looks: no chain was long");
        }
    }
}

// Counts cell accesses: a few per write on a device of any size.
#[test]
fn writing_one_content_looks_at_as_few_pages_on_a_large_device_as_on_a_small_one() {
    const COUNT_MAX: u32 = 4;
    let content = Content {
        line: 0,
        tag: 1,
        number: 0,
    };
    for pages in [600, 6_000] {
        let mut store = Store::sized(pages, true, COUNT_MAX, 32);
        let mut random = Random(9);
        let mut writes = 0;
        while (store.held.len() as u32) < pages * 9 / 10 {
            write(&mut store, &mut random, content, COUNT_MAX);
            writes += 1;
        }
        for _ in 0..4 * pages {
            let ppn = live(&store, &mut random).expect("most are live");
            lose_owner(&mut store, ppn);
            write(&mut store, &mut random, content, COUNT_MAX);
            writes += 1;
        }

        let looks = store.dedup.spilled.long.looks();
        assert!(
            (writes..=6 * writes).contains(&looks),
            "{pages} pages: {looks} looks for {writes} writes"
        );
    }
}
