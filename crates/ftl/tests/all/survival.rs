//! Lifetimes of pages, compared with those that a host can compute.

use crate::kit::{Random, content, device, small_config, small_geometry};
use remap_ssd_ftl::{Config, Lpn, SchemeKind};
use std::collections::BTreeMap;

/// Every page programmed for the host has died or is alive, and a page without duplicates lives
/// from one write of its LPN to the next. Garbage collection moves pages in between and does not
/// change that.
#[test]
fn every_page_dies_once_and_single_pages_live_between_two_writes_of_their_lpn() {
    let mut ftl = device(small_geometry(), &small_config(SchemeKind::RemapSsd));
    ftl.watch_survival();
    let mut random = Random(3);
    let (mut written, mut lives): (BTreeMap<u32, u64>, u64) = (BTreeMap::new(), 0);

    for step in 0..20_000u64 {
        let lpn = random.below(600) as u32;
        ftl.write(Lpn(lpn), &content(1000 + step))
            .expect("there is room");
        // Garbage collection takes numbers too. The page's number is in its OOB, so the host's
        // clock is the device's.
        let now = ftl.wsn();
        if let Some(before) = written.insert(lpn, now) {
            lives += now - before;
        }
        ftl.media_mut().ops.clear();
    }

    let classes = ftl.survival().expect("watched");
    let single = classes[0];
    assert!(
        ftl.stats().gc_programs > 100
            && classes[1..]
                .iter()
                .all(|class| class.died + class.alive == 0)
    );
    assert_eq!(single.died + single.alive, ftl.stats().host_programs);

    assert_eq!(
        (single.alive, single.died),
        (written.len() as u64, 20_000 - written.len() as u64)
    );
    assert_eq!(single.lived, lives);
}

#[test]
fn shared_pages_are_counted_by_the_most_references_they_had() {
    let mut ftl = device(
        small_geometry(),
        &Config {
            count_max: 8,
            ..small_config(SchemeKind::RemapSsd)
        },
    );

    ftl.watch_survival();
    for lpn in 0..3 {
        ftl.write(Lpn(lpn), &content(1)).expect("there is room");
    }

    let born = ftl.wsn() - 2;
    for lpn in 0..3 {
        ftl.write(Lpn(lpn), &content(10 + u64::from(lpn)))
            .expect("there is room");
    }

    let died = ftl.wsn();
    let classes = ftl.survival().expect("watched");
    assert_eq!(
        (classes[2].references, classes[2].died, classes[2].lived),
        (3, 1, died - born)
    );
    assert_eq!(classes[2].lived_shared, died - born - 1);
    assert_eq!((classes[0].alive, classes[0].died), (3, 0));

    let mut random = Random(5);
    for _ in 0..20_000 {
        ftl.write(
            Lpn(random.below(600) as u32),
            &content(1 + random.below(150)),
        )
        .expect("there is room");
        ftl.media_mut().ops.clear();
    }

    let classes = ftl.survival().expect("watched");
    let sum = |of: fn(&remap_ssd_ftl::SurvivalClass) -> u64| classes.iter().map(of).sum::<u64>();
    assert_eq!(
        sum(|class| class.died) + sum(|class| class.alive),
        ftl.stats().host_programs + ftl.stats().gc_copies
    );
    assert!(
        classes[7].died > 0
            && classes[8..]
                .iter()
                .all(|class| class.died + class.alive == 0)
    );
}
