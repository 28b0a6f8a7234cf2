//! Damaged words and pages of a log, in NVRAM, in DRAM and on flash.

use crate::damage::copy;
use crate::kit::{self, Random, content, device, put, recovered, small_config, small_geometry};
use remap_ssd_ftl::{
    Config, EntrySize, Ftl, Lpn, Remap, SchemeKind, SchemeValues, SuperblockState,
};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media, Oob, Page, Ppn, SbId};

/// Any page of a closed log superblock can be rebuilt from the others and their parity.
#[test]
fn a_log_page_that_cannot_be_read_loses_no_remap() {
    for scheme in [
        SchemeKind::FLog,
        SchemeKind::LocalFlash,
        SchemeKind::RemapSsdLh,
    ] {
        let (superblocks, pages_per_block) = if scheme == SchemeKind::FLog {
            (120, 5)
        } else {
            (60, 8)
        };
        let geometry = Geometry::new(Shape {
            channels: 1,
            dies: 1,
            superblocks,
            pages_per_block,
        })
        .expect("valid");
        let log_bytes = if scheme == SchemeKind::RemapSsdLh {
            1 << 10
        } else {
            4 << 10
        };
        let config = Config {
            lpns: 100,
            dedup: false,
            scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
            log_bytes,
            ..small_config(scheme)
        };
        let mut ftl = device(geometry, &config);
        let mut contents: Vec<u64> = (1..=100).collect();
        (0..100).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let (mut random, mut tried) = (Random(3), 0);
        for round in 0..400 {
            let (target, source) = (random.below(100) as u32, random.below(100) as u32);
            ftl.remap(&copy(target, source)).unwrap();
            contents[target as usize] = contents[source as usize];
            if round % 20 != 19 {
                continue;
            }
            let closed: Vec<SbId> = ftl
                .superblocks()
                .filter(|(_, sb)| sb.state == SuperblockState::Closed)
                .map(|(id, _)| id)
                .collect();
            let is_of_log = |page: &Ppn| {
                ftl.media().is_programmed(*page)
                    && ftl.media().oob(*page).lpn() == Oob::LOG
                    && closed.contains(&geometry.superblock(*page))
            };
            let image = ftl.media().to_image();
            for page in (0..geometry.pages()).map(Ppn).filter(is_of_log) {
                let mut media = Media::from_image(&image);
                media.plant(|faults| {
                    faults.read.insert(page);
                });
                let (mut fork, report) =
                    Ftl::recover(media, config.clone()).expect("one page is made up for");
                let read = |lpn| fork.read(lpn);
                let found: Vec<_> = Lpn::range(Lpn::ZERO, 100).map(read).collect();
                assert!(
                    found
                        .iter()
                        .zip(&contents)
                        .all(|(read, is)| *read == Ok(Page::Identity(*is))),
                    "{scheme}"
                );
                assert_eq!(report.lost, 0);
                tried += 1;
            }
        }
        assert!(tried > 20, "{scheme}: {tried} pages");
    }
}

/// DRAM under a capacitor: while power is on, the tables can replace an unreadable word.
#[test]
fn a_word_of_flogs_buffer_that_cannot_be_read_is_made_up_for_by_the_tables() {
    for word in [0, 1] {
        let mut ftl = device(
            small_geometry(),
            &Config {
                dedup: false,
                ..small_config(SchemeKind::FLog)
            },
        );

        (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let before: Vec<u64> = (0..ftl.media().nvram_words())
            .map(|at| ftl.media().peek(at))
            .collect();

        ftl.remap(&copy(2, 1)).unwrap();
        let at = (0..before.len())
            .find(|at| ftl.media().peek(*at) != before[*at])
            .expect("an entry");

        ftl.media_mut().plant(|faults| {
            faults.flips.insert(at + word, 0b11 << 20);
        });
        (0..200).for_each(|lpn| ftl.remap(&copy(300 + lpn, 100 + lpn)).unwrap());
        assert!(ftl.media().faults().is_empty(), "the buffer was zeroed");

        let (mut ftl, report) = recovered(ftl);
        assert_eq!((ftl.read(Lpn(2)), report.lost), (Ok(Page::Identity(2)), 0));
    }
}

/// The entries of an atomic command share a number, and a page of the log may end between them.
#[test]
fn an_atomic_commands_entry_in_flogs_buffer_is_told_from_the_others_of_its_number() {
    let config = Config {
        dedup: false,
        entry: EntrySize::Bytes24,
        ..small_config(SchemeKind::FLog)
    };
    let prepared = |earlier: u32| {
        let mut ftl = device(small_geometry(), &config);
        (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        (0..earlier).for_each(|lpn| ftl.remap(&copy(400 + lpn, 100 + lpn)).unwrap());
        ftl
    };
    let words_of = |ftl: &Ftl| -> Vec<u64> {
        (0..ftl.media().nvram_words())
            .map(|at| ftl.media().peek(at))
            .collect()
    };

    for earlier in 0..40 {
        let atomic = Remap {
            target: Lpn(2),
            source: Lpn(20),
            len: 6,
            relocate: false,
            atomic: true,
        };
        let mut ftl = prepared(earlier);
        let before = words_of(&ftl);
        ftl.remap(&atomic).unwrap();
        let after = words_of(&ftl);
        let changed = (0..after.len()).filter(|at| after[*at] != before[*at] && after[*at] != 0);

        for word in changed {
            let mut ftl = prepared(earlier);
            ftl.remap(&atomic).unwrap();
            ftl.media_mut().plant(|faults| {
                faults.flips.insert(word, 0b11 << 20);
            });
            (0..100).for_each(|lpn| ftl.remap(&copy(300 + lpn, 200 + lpn)).unwrap());
            let (mut ftl, _) = recovered(ftl);
            for (target, source) in (2..8).zip(20u64..) {
                assert_eq!(
                    ftl.read(Lpn(target)),
                    Ok(Page::Identity(source + 1)),
                    "{earlier} entries before, word {word}"
                );
            }
        }
    }
}

/// A log full of entries in force has one free unit to begin with, and needs no other one for the
/// entry of a damaged word.
#[test]
fn a_log_in_nvram_is_rewritten_whichever_word_of_it_is_damaged() {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 2,
        superblocks: 24,
        pages_per_block: 8,
    })
    .expect("valid");
    let small = Config {
        dedup: false,
        log_bytes: 384,
        segment_bytes: 48,
        dealloc_slots: 6,
        ..Config::default()
    };
    let config = kit::fullest(
        &geometry,
        &Config {
            scheme: SchemeKind::NLog,
            ..small
        },
    );
    let lpns = u64::from(config.lpns);
    let mut rewritten = 0;

    for seed in 1..200 {
        let mut ftl = device(geometry, &config);
        (0..config.lpns).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        let mut model: Vec<u64> = (1..=lpns).collect();
        let mut random = Random(seed);
        let log = ftl.media().nvram_words() - 48;

        for step in 0..400 {
            let (target, source) = (random.below(lpns) as usize, random.below(lpns) as usize);
            if step % 2 == 0 {
                put(&mut ftl, target as u32, 1000 + step);
                model[target] = 1000 + step;
            } else {
                ftl.remap(&copy(target as u32, source as u32)).unwrap();
                model[target] = model[source];
            }
            let word = log + random.below(48) as usize;
            if step % 8 == 0 && ftl.media().faults().is_empty() && ftl.media().peek(word) != 0 {
                ftl.media_mut().plant(|faults| {
                    faults.flips.insert(word, 0b11 << 20);
                });
            }
            ftl.media_mut().ops.clear();
        }
        rewritten += ftl.stats().metadata_gc_runs;
        let read: Vec<_> = (0..config.lpns).map(|lpn| ftl.read(Lpn(lpn))).collect();
        assert!(
            read.iter()
                .zip(&model)
                .all(|(read, is)| *read == Ok(Page::Identity(*is))),
            "seed {seed}"
        );
    }
    assert!(rewritten > 1000, "{rewritten}");
}
