//! The fingerprint store: hits, evictions, its restoration after power-on, and unreadable pages.

use crate::kit::{Random, fullest, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, FingerprintKind, Ftl, Lpn, Refusal, Remap, SchemeKind, Stats};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Media, OpKind, Page, Payload, Ppn};
use std::sync::Arc;

const MODES: [ContentMode; 2] = [ContentMode::Identity, ContentMode::Bytes];

fn device(mode: ContentMode, config: &Config) -> Ftl {
    let geometry = small_geometry();
    let media = Media::blank(geometry, mode, config.nvram_words(&geometry));
    Ftl::format(media, config.clone()).expect("the configuration works")
}

fn bytes(content: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [1; PAGE_BYTES];
    bytes[..8].copy_from_slice(&content.to_le_bytes());
    bytes
}

fn write(ftl: &mut Ftl, lpn: u32, content: u64) {
    let written = match ftl.media().mode() {
        ContentMode::Bytes => ftl.write(Lpn(lpn), &Payload::Bytes(&bytes(content))),
        _ => ftl.write(Lpn(lpn), &Payload::Identity(content)),
    };
    written.expect("there is room");
    ftl.media_mut().ops.clear();
}

/// The expected page of this content.
fn page(ftl: &Ftl, content: u64) -> Page {
    match ftl.media().mode() {
        ContentMode::Bytes => Page::Bytes(Arc::new(bytes(content))),
        _ => Page::Identity(content),
    }
}

fn holds(ftl: &mut Ftl, lpn: u32, content: u64) -> bool {
    ftl.read(Lpn(lpn)) == Ok(page(ftl, content))
}

fn ppn_of(ftl: &mut Ftl, lpn: u32) -> Ppn {
    ftl.media_mut().ops.clear();
    ftl.read(Lpn(lpn)).expect("readable");
    ftl.media()
        .ops
        .iter()
        .find(|op| op.kind == OpKind::Read)
        .expect("it is mapped")
        .page
}

fn damage(ftl: &mut Ftl, ppn: Ppn) {
    ftl.media_mut()
        .plant(|faults| assert!(faults.read.insert(ppn)));
}

/// Powers off and on; faults stay, and real bytes are read and hashed again.
fn restarted(ftl: Ftl) -> Ftl {
    let faults = ftl.media().faults().clone();
    let (mut ftl, _) = recovered(ftl);
    ftl.media_mut().plant(|planted| *planted = faults);
    ftl.relearn_bytes();
    ftl
}

/// Overwrites pages from 10 on at random until `done`, or panics.
fn overwrite_until(ftl: &mut Ftl, mut done: impl FnMut(&Ftl) -> bool) {
    let mut random = Random(31);
    for step in 0..60_000 {
        if done(ftl) {
            return;
        }
        let lpn = 10 + random.below(u64::from(ftl.config().lpns) - 10) as u32;
        write(ftl, lpn, 10_000 + step);
    }
    panic!("60,000 writes did not do it");
}

/// Rewrites each page's current content; returns the number of pages programmed, and the counters.
fn rewrite_all(ftl: &mut Ftl, contents: &[u64]) -> (u64, Stats) {
    let before = ftl.stats();
    for (lpn, content) in (0..).zip(contents) {
        write(ftl, lpn, *content);
    }
    let stats = ftl.stats() - before;
    (stats.host_programs, stats)
}

/// Overwrites at random with distinct contents.
fn aged(mode: ContentMode, config: &Config, writes: u64) -> (Ftl, Vec<u64>) {
    let mut ftl = device(mode, config);
    let mut contents: Vec<u64> = (1..=u64::from(config.lpns)).collect();
    (0..config.lpns).for_each(|lpn| write(&mut ftl, lpn, contents[lpn as usize]));
    let mut random = Random(5);
    for step in 0..writes {
        let lpn = random.below(config.lpns.into()) as u32;
        contents[lpn as usize] = 1_000_000 + step;
        write(&mut ftl, lpn, 1_000_000 + step);
    }
    (ftl, contents)
}

#[test]
fn writing_a_content_again_cures_a_page_whose_read_failed() {
    for (mode, fingerprint) in [
        (ContentMode::Identity, FingerprintKind::Blake3),
        (ContentMode::Bytes, FingerprintKind::Blake3),
        (ContentMode::Bytes, FingerprintKind::Murmur3),
    ] {
        let config = Config {
            fingerprint,
            ..small_config(SchemeKind::RemapSsd)
        };
        for cycles in [false, true] {
            let mut ftl = device(mode, &config);
            write(&mut ftl, 5, 2);
            let ppn = ppn_of(&mut ftl, 5);
            damage(&mut ftl, ppn);
            assert_eq!(ftl.read(Lpn(5)), Err(Refusal::MediaError));
            if cycles {
                ftl = restarted(ftl);
            }
            write(&mut ftl, 9, 2);
            assert!(
                holds(&mut ftl, 9, 2),
                "another LPN gets a page that can be read"
            );
            write(&mut ftl, 5, 2);
            assert!(holds(&mut ftl, 5, 2), "and so does this one");
            assert_eq!(
                (
                    ftl.stats().host_programs - u64::from(!cycles),
                    ftl.stats().dedup_hits
                ),
                (1, 1)
            );
            ftl.check().expect("consistent");
        }
    }
}

// MurmurHash3's hits are verified by a read, so a damaged page is detected even if it was not read
// since.
#[test]
fn a_hit_that_cannot_be_verified_programs_the_page() {
    let config = Config {
        fingerprint: FingerprintKind::Murmur3,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(ContentMode::Bytes, &config);
    write(&mut ftl, 5, 2);
    let ppn = ppn_of(&mut ftl, 5);
    damage(&mut ftl, ppn);
    write(&mut ftl, 5, 2);
    assert!(holds(&mut ftl, 5, 2));
    assert_eq!(
        (ftl.stats().verified, ftl.stats().collisions),
        (1, 0),
        "no collision: it could not be compared"
    );
}

#[test]
fn a_page_that_collection_could_not_read_has_no_content_any_more() {
    for mode in MODES {
        for cycles in [false, true] {
            // A wrong store may find digests by chance: many contents are tried.
            for content in 1..20 {
                let mut ftl = device(mode, &small_config(SchemeKind::RemapSsd));
                write(&mut ftl, 5, content);
                let ppn = ppn_of(&mut ftl, 5);
                damage(&mut ftl, ppn);
                overwrite_until(&mut ftl, |ftl| !ftl.media().faults().read.contains(&ppn));
                if cycles {
                    ftl = restarted(ftl);
                }

                write(&mut ftl, 9, content);
                assert!(holds(&mut ftl, 9, content), "{mode:?}");
                assert_eq!(
                    ftl.read(Lpn(5)),
                    Err(Refusal::MediaError),
                    "what is lost stays lost"
                );

                write(&mut ftl, 5, content);
                assert!(holds(&mut ftl, 5, content));
                ftl.check().expect("consistent");
            }
        }
    }
}

#[test]
fn a_remap_that_had_to_copy_an_unreadable_page_makes_the_store_forget_it() {
    for mode in MODES {
        let config = Config {
            count_max: 2,
            ..small_config(SchemeKind::RemapSsd)
        };
        let mut ftl = device(mode, &config);

        write(&mut ftl, 1, 7);
        write(&mut ftl, 2, 7);
        let ppn = ppn_of(&mut ftl, 1);
        damage(&mut ftl, ppn);

        // The counter is full: the page must be copied, and cannot be read.
        ftl.remap(&Remap {
            target: Lpn(3),
            source: Lpn(1),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .expect("there is room");

        ftl.deallocate(Lpn(2), 1).expect("there is room");
        write(&mut ftl, 4, 7);
        assert!(holds(&mut ftl, 4, 7), "{mode:?}");
    }
}

// Identity 0 is also that of a page of metadata: a bitmap is programmed where a page with content 0
// has been.
#[test]
fn no_write_is_deduplicated_onto_a_page_of_metadata() {
    let mut ftl = device(ContentMode::Identity, &small_config(SchemeKind::RemapSsd));
    write(&mut ftl, 5, 0);
    let ppn = ppn_of(&mut ftl, 5);
    ftl.deallocate(Lpn(5), 1).expect("there is room");
    let bitmap = |ftl: &Ftl| ftl.media().is_meta(ppn) && ftl.media().oob(ppn).lpn() == Lpn(600);
    for command in 0..100_000 {
        if bitmap(&ftl) {
            break;
        }
        ftl.deallocate(Lpn(10 + command % 590), 1)
            .expect("there is room");
        ftl.media_mut().ops.clear();
    }
    assert!(bitmap(&ftl), "100,000 deallocations, and none is there");
    write(&mut ftl, 6, 0);
    assert!(holds(&mut ftl, 6, 0));
}

#[test]
fn fingerprints_of_dead_pages_give_way_to_those_of_live_ones() {
    for mode in MODES {
        // 170 lines of eight slots for 600 live pages, after 20,000 dead ones.
        let (mut ftl, contents) = aged(mode, &small_config(SchemeKind::RemapSsd), 20_000);
        let (programmed, stats) = rewrite_all(&mut ftl, &contents);
        assert!(
            programmed <= 15,
            "{mode:?}: {programmed} of 600 contents were not found"
        );
        assert_eq!(stats.dedup_missed, programmed);
    }
}

#[test]
fn duplicates_that_the_store_has_no_room_for_are_counted() {
    for mode in MODES {
        let config = fullest(&small_geometry(), &small_config(SchemeKind::RemapSsd));
        let (mut ftl, contents) = aged(mode, &config, 20_000);
        for lpns in [0..config.lpns / 2, 0..config.lpns] {
            let before = ftl.stats();
            lpns.clone()
                .for_each(|lpn| write(&mut ftl, lpn, contents[lpn as usize]));
            let stats = ftl.stats() - before;
            assert!(
                stats.dedup_missed > 10,
                "{mode:?}: {} live pages on 1536",
                config.lpns
            );
            assert_eq!(stats.dedup_hits + stats.dedup_missed, u64::from(lpns.end));
        }
    }
}

#[test]
fn opt_misses_no_duplicate() {
    for mode in MODES {
        let config = Config {
            count_max: 3,
            ..fullest(&small_geometry(), &small_config(SchemeKind::Opt))
        };
        let mut ftl = device(mode, &config);
        let mut random = Random(8);
        let mut contents = vec![0u64; config.lpns as usize];

        for step in 0..30_000u64 {
            let (lpn, other) = (
                random.below(config.lpns.into()) as usize,
                random.below(config.lpns.into()) as usize,
            );
            if random.below(8) == 0 && contents[other] != 0 {
                // A page at its maximum count is copied: its content is then in two pages.
                let remap = Remap {
                    target: Lpn(lpn as u32),
                    source: Lpn(other as u32),
                    len: 1,
                    relocate: false,
                    atomic: false,
                };
                ftl.remap(&remap).expect("there is room");
                ftl.media_mut().ops.clear();
                contents[lpn] = contents[other];
                continue;
            }
            contents[lpn] = if random.below(4) == 0 {
                contents[other].max(1)
            } else {
                step + 2
            };
            write(&mut ftl, lpn as u32, contents[lpn]);
        }

        let before = ftl.stats();
        for (lpn, content) in (0..).zip(&contents).filter(|(_, content)| **content > 0) {
            // Not found, or found without room for another owner: then every page of this content
            // has three owners.
            let stats = ftl.stats();
            let owners = contents.iter().filter(|other| *other == content).count() as u64;
            write(&mut ftl, lpn, *content);
            let did = ftl.stats() - stats;
            assert!(
                did.dedup_hits == 1 || owners >= 3 && did.demoted_counter_full == 1,
                "{mode:?}, LPN {lpn}: {did:?}"
            );
        }

        assert_eq!((ftl.stats() - before).dedup_missed, 0);
        ftl.check().expect("consistent");
    }
}

#[test]
fn after_power_on_the_store_finds_what_it_found_before() {
    for mode in MODES {
        let config = Config {
            lpns: 600,
            ..small_config(SchemeKind::RemapSsd)
        };
        let (mut before, contents) = aged(mode, &config, 20_000);
        let image = before.media().to_image();
        let mut after = restarted(
            Ftl::recover(Media::from_image(&image), config.clone())
                .expect("recovers")
                .0,
        );

        let (programmed_before, _) = rewrite_all(&mut before, &contents);
        let (programmed_after, _) = rewrite_all(&mut after, &contents);
        assert!(
            programmed_before < 28 && programmed_after < 28,
            "{programmed_before} {programmed_after}"
        );
        assert!(
            programmed_after.abs_diff(programmed_before) <= 12,
            "2 % of {programmed_before} and {programmed_after}"
        );
    }
}

#[test]
fn pages_are_learnt_piece_by_piece_while_hosts_go_on() {
    let config = small_config(SchemeKind::RemapSsd);
    let (ftl, mut contents) = aged(ContentMode::Bytes, &config, 5_000);
    let (mut ftl, _) = recovered(ftl);
    let mut random = Random(77);
    let (mut from, mut late, mut learnt) = (Some(Ppn(0)), 0, 0);

    while let Some(first) = from {
        let (pages, next) = ftl.unknown_pages(first, 16);
        let digests: Vec<_> = pages
            .iter()
            .map(|page| match ftl.media().view(page.ppn) {
                remap_ssd_media::PageView::Bytes(bytes) => FingerprintKind::Blake3.digest(bytes),
                other => panic!("{other:?}"),
            })
            .collect();
        // Hosts write in between, and superblocks are collected and refilled.
        for _ in 0..random.below(200) {
            let lpn = random.below(600) as u32;
            contents[lpn as usize] = 2_000_000 + random.below(1 << 31);
            write(&mut ftl, lpn, contents[lpn as usize]);
        }
        for (page, digest) in pages.into_iter().zip(digests) {
            if ftl.learn_page(page, digest) {
                learnt += 1
            } else {
                late += 1
            }
        }
        from = next;
    }

    assert!(
        late > 10 && learnt > 10,
        "{late} came too late, {learnt} in time"
    );

    let (programmed, _) = rewrite_all(&mut ftl, &contents);
    assert!(
        programmed <= 60,
        "{programmed} of 600 are not known: those that moved to where the pass had been"
    );

    for (lpn, content) in (0..).zip(&contents) {
        assert!(holds(&mut ftl, lpn, *content), "LPN {lpn}");
    }
}

/// Pages that are never overwritten are moved in between: their old place may hold another unknown
/// page.
#[test]
fn a_digest_that_comes_after_its_page_has_moved_is_not_taken_for_that_of_another_page() {
    let config = small_config(SchemeKind::RemapSsd);
    let (ftl, contents) = aged(ContentMode::Bytes, &config, 5_000);
    let (mut ftl, _) = recovered(ftl);
    let (pages, _) = ftl.unknown_pages(Ppn(0), usize::MAX);
    let digest_of = |ftl: &Ftl, ppn| match ftl.media().view(ppn) {
        remap_ssd_media::PageView::Bytes(bytes) => FingerprintKind::Blake3.digest(bytes),
        other => panic!("{other:?}"),
    };
    let digests: Vec<_> = pages.iter().map(|page| digest_of(&ftl, page.ppn)).collect();
    let mut random = Random(79);
    for step in 0..8_000 {
        write(&mut ftl, random.below(300) as u32, 2_000_000 + step);
    }

    let mut moved = 0;
    for (page, digest) in pages.into_iter().zip(digests) {
        let is_another =
            !ftl.media().is_programmed(page.ppn) || digest_of(&ftl, page.ppn) != digest;
        let learnt = ftl.learn_page(page, digest);
        assert!(
            !(learnt && is_another),
            "{:?} holds something else now",
            page.ppn
        );
        moved += u32::from(is_another);
    }
    assert!(moved > 100, "{moved} of 600 pages have moved");
    for content in &contents {
        write(&mut ftl, 0, *content);
        assert!(holds(&mut ftl, 0, *content));
    }
}

#[test]
fn a_digest_from_a_file_is_compared_with_the_page_before_it_is_believed() {
    let config = small_config(SchemeKind::RemapSsd);
    let (ftl, contents) = aged(ContentMode::Bytes, &config, 5_000);
    let saved: Vec<(Ppn, [u8; 32])> = ftl
        .known_digests()
        .map(|(ppn, digest)| (ppn, *digest))
        .collect();

    assert_eq!(saved.len(), 600);
    let (mut ftl, _) = recovered(ftl);

    // Every second page gets its neighbour's digest, as if the file belonged to another device.
    for (index, (ppn, _)) in saved.iter().enumerate() {
        assert!(ftl.recall(*ppn, saved[index & !1].1));
        assert!(!ftl.recall(*ppn, saved[index].1), "known already");
    }
    assert!(
        !ftl.recall(Ppn(small_geometry().pages()), [1; 32]),
        "no page"
    );

    let (programmed, stats) = rewrite_all(&mut ftl, &contents);
    assert!(
        (300..320).contains(&programmed) && stats.verified >= 290,
        "{programmed} {}",
        stats.verified
    );
    assert_eq!(stats.collisions, 0);

    for (lpn, content) in (0..).zip(&contents) {
        assert!(holds(&mut ftl, lpn, *content), "LPN {lpn}");
    }

    let (programmed, stats) = rewrite_all(&mut ftl, &contents);
    assert!(
        programmed < 20 && stats.verified < 20,
        "compared once: {programmed} {}",
        stats.verified
    );
}

/// The owners of every flash page that has several among the first `lpns` LPNs.
fn shared_by(ftl: &mut Ftl, lpns: u32) -> Vec<Vec<u32>> {
    let mut owners = std::collections::BTreeMap::<Ppn, Vec<u32>>::new();
    for lpn in 0..lpns {
        if ftl.read(Lpn(lpn)) != Ok(Page::Zeroes) {
            let ppn = ppn_of(ftl, lpn);
            owners.entry(ppn).or_default().push(lpn);
        }
    }
    owners
        .into_values()
        .filter(|owners| owners.len() > 1)
        .collect()
}

/// Like two namespaces, of which the second is larger.
fn keep_apart(ftl: &mut Ftl) {
    ftl.keep_apart(Lpn(20)..Lpn(24));
    ftl.keep_apart(Lpn(24)..Lpn(40));
}

/// LPNs 20 to 39 are kept apart: whatever commands hosts issue, none of their pages is shared, even
/// after a restart and after collection, and they read their own data.
#[test]
fn lpns_that_are_kept_apart_share_nothing() {
    for mode in MODES {
        let mut ftl = device(
            mode,
            &Config {
                dedup: true,
                ..small_config(SchemeKind::RemapSsd)
            },
        );

        keep_apart(&mut ftl);
        let mut random = Random(77);
        let mut model = [0u64; 40];

        for step in 0..3000 {
            let (lpn, other) = (random.below(40) as usize, random.below(40) as usize);
            match random.below(5) {
                0..=2 => {
                    model[lpn] = 1 + random.below(8);
                    write(&mut ftl, lpn as u32, model[lpn]);
                }
                _ if lpn == other || model[other] == 0 => {}
                kind => {
                    let relocate = kind == 3;
                    let remap = Remap {
                        target: Lpn(lpn as u32),
                        source: Lpn(other as u32),
                        len: 1,
                        relocate,
                        atomic: false,
                    };
                    ftl.remap(&remap).expect("possible");
                    model[lpn] = model[other];
                    if relocate {
                        model[other] = 0;
                    }
                }
            }
            if step % 500 == 250 {
                ftl = restarted(ftl);
                keep_apart(&mut ftl);
            }
            if step % 50 == 0 {
                let shared = shared_by(&mut ftl, 40);
                assert!(
                    shared.iter().flatten().all(|lpn| *lpn < 20),
                    "step {step}: {shared:?}"
                );
            }
        }

        for (lpn, content) in (0..).zip(model) {
            assert!(content == 0 || holds(&mut ftl, lpn, content), "LPN {lpn}");
        }

        assert!(!shared_by(&mut ftl, 40).is_empty(), "the others share");
        assert!(ftl.stats().copies > 10);
        ftl.check().expect("it is whole");
    }
}
