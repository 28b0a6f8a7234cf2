//! What cannot be read is a media error or comes from another witness; it is never old data.

mod kit;

use kit::{Random, content, device, put, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{
    Config, EntrySize, Ftl, RecoveryError, Refusal, Remap, SchemeKind, SchemeValues,
    SuperblockState,
};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, Media, Oob, OpKind, Page, Ppn, Purpose, SbId};

/// The flash page that serves an LPN.
fn page_of(ftl: &mut Ftl, lpn: u32) -> Ppn {
    ftl.media_mut().ops.clear();
    ftl.read(lpn).unwrap();
    ftl.media()
        .ops
        .iter()
        .find(|op| op.kind == OpKind::Read)
        .expect("a flash read")
        .page
}

/// Overwrites everything but the given LPNs until garbage collection has been everywhere.
fn churn(ftl: &mut Ftl, spared: &[u32], from: u64) {
    let mut random = kit::Random(7);
    for step in 0..8000u64 {
        let lpn = random.below(600) as u32;
        if !spared.contains(&lpn) {
            ftl.write(lpn, &content(from + step)).unwrap();
            ftl.media_mut().ops.clear();
        }
    }
}

#[test]
fn an_unreadable_page_is_a_media_error_wherever_gc_takes_it() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        let mut ftl = small(scheme);
        ftl.write(5, &content(1)).unwrap();
        ftl.write(5, &content(2)).unwrap();
        for lpn in 10..300 {
            ftl.write(lpn, &content(u64::from(lpn) + 1000)).unwrap();
        }
        let page = page_of(&mut ftl, 5);
        ftl.media_mut().plant(|faults| {
            faults.read.insert(page);
        });
        assert_eq!(ftl.read(5), Err(Refusal::MediaError), "{scheme}");
        churn(&mut ftl, &[5], 10_000);
        assert!(ftl.stats().gc_runs > 20);
        assert_eq!(
            ftl.read(5),
            Err(Refusal::MediaError),
            "{scheme}: after garbage collection"
        );
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(
            ftl.read(5),
            Err(Refusal::MediaError),
            "{scheme}: after recovery"
        );
        ftl.write(5, &content(3)).unwrap();
        assert_eq!(
            ftl.read(5),
            Ok(Page::Identity(3)),
            "{scheme}: a write heals it"
        );
    }
}

/// First word of every intact entry of an LPN in the scheme's NVRAM.
fn entries_of(ftl: &mut Ftl, lpn: u32) -> Vec<usize> {
    let words = ftl.media().nvram_words();
    let segment = 128 / 8;
    let base = words - (8 << 10) / 8;
    let mut found = Vec::new();
    for at in (base..words)
        .step_by(2)
        .filter(|at| !(at - base).is_multiple_of(segment))
    {
        let pair = [
            ftl.media_mut().load(at).unwrap(),
            ftl.media_mut().load(at + 1).unwrap(),
        ];
        let entry = remap_ssd_ftl::scheme::RmmEntry::from_words(pair[0], pair[1]);
        if entry.is_intact() && entry.target() == lpn {
            found.push(at);
        }
    }
    found
}

fn with_a_remap() -> (Ftl, usize) {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(1, &content(11)).unwrap();
    ftl.write(2, &content(22)).unwrap();
    ftl.remap(&Remap {
        target: 2,
        source: 1,
        len: 1,
        relocate: false,
        atomic: false,
    })
    .unwrap();
    let at = *entries_of(&mut ftl, 2)
        .last()
        .expect("the remap has an entry");
    (ftl, at)
}

#[test]
fn one_flipped_bit_of_an_entry_is_corrected() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 1 << 40);
    });
    let (mut ftl, report) = recovered(ftl);
    assert_eq!((ftl.read(2), report.lost), (Ok(Page::Identity(11)), 0));
}

#[test]
fn an_entry_whose_lpn_is_readable_makes_that_lpn_a_media_error() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
    });
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 1);
    assert_eq!(
        ftl.read(2),
        Err(Refusal::MediaError),
        "not 22, which was overwritten"
    );
    assert_eq!(ftl.read(1), Ok(Page::Identity(11)));
}

#[test]
fn an_entry_that_does_not_tell_its_lpn_refuses_recovery() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at + 1, 0b11 << 30);
    });
    let config = ftl.config().clone();
    let refused = Ftl::recover(ftl.into_media(), config).map(|_| ());
    assert_eq!(refused, Err(RecoveryError::NvramDamaged { word: at + 1 }));
}

/// While the power is on, the L2P table still knows what a damaged entry said.
#[test]
fn garbage_collection_survives_a_damaged_entry() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
        faults.flips.insert(at + 1, 0b11 << 30);
    });
    for lpn in 10..600 {
        ftl.write(lpn, &content(u64::from(lpn) + 1000)).unwrap();
    }
    churn(&mut ftl, &[1, 2], 10_000);
    assert_eq!(
        (ftl.read(1), ftl.read(2)),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);
    assert_eq!(
        (ftl.read(1), ftl.read(2)),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );
}

/// LPN 2 got the page of LPN 1, was written, and got that page again: two entries say the same, and
/// the write is between them.
fn remapped_there_and_back(scheme: SchemeKind) -> (Ftl, Vec<usize>) {
    let mut ftl = small(scheme);
    (0..600).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1000)).unwrap());
    ftl.write(1, &content(11)).unwrap();
    ftl.remap(&copy(2, 1)).unwrap();
    ftl.write(2, &content(22)).unwrap();

    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();
    ftl.remap(&copy(2, 1)).unwrap();
    let changed = (0..before.len())
        .filter(|at| ftl.media().peek(*at) != before[*at])
        .collect();
    (ftl, changed)
}

/// The older entry is not to be taken for the damaged one: the write between them would be the
/// newest.
#[test]
fn a_damaged_entry_is_made_up_for_where_an_older_one_says_the_same() {
    for scheme in kit::durable() {
        let (_, words) = remapped_there_and_back(scheme);
        for (word, by_writes) in words
            .into_iter()
            .flat_map(|word| [(word, true), (word, false)])
        {
            let (mut ftl, _) = remapped_there_and_back(scheme);
            ftl.media_mut().plant(|faults| {
                faults.flips.insert(word, 0b11 << 30);
            });

            // Garbage collection of flash and of NVRAM, or of NVRAM alone.
            if by_writes {
                churn(&mut ftl, &[1, 2], 10_000);
            }
            let mut random = Random(5);
            for _ in 0..3000 {
                let [target, source] =
                    [3 + random.below(300) as u32, 303 + random.below(290) as u32];
                ftl.remap(&copy(target, source)).unwrap();
                ftl.media_mut().ops.clear();
            }

            let config = ftl.config().clone();
            let Ok((mut ftl, _)) = Ftl::recover(ftl.into_media(), config) else {
                continue;
            };
            let read = ftl.read(2);
            let is_right = matches!(read, Ok(Page::Identity(11)) | Err(Refusal::MediaError));
            assert!(
                is_right,
                "{scheme}, word {word}, writes {by_writes}: {read:?}"
            );
        }
    }
}

/// The negative control needs no power cut to lose data: a page that moves keeps the owner in its
/// OOB and no other.
#[test]
fn without_reverse_mappings_garbage_collection_loses_every_owner_but_the_first() {
    let mut ftl = small(SchemeKind::Unsafe);
    for lpn in [1, 2] {
        ftl.write(lpn, &content(u64::from(lpn) * 11)).unwrap();
    }
    for (target, source) in [(3, 1), (4, 1), (5, 2)] {
        ftl.remap(&Remap {
            target,
            source,
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }
    ftl.deallocate(2, 1).unwrap(); // Nobody the device knows owns that page any more.
    churn(&mut ftl, &[1, 2, 3, 4, 5], 10_000);
    ftl.check().unwrap();
    let reads = [1, 2, 3, 4, 5].map(|lpn| ftl.read(lpn).unwrap());
    assert_eq!(
        reads,
        [
            Page::Identity(11),
            Page::Zeroes,
            Page::Zeroes,
            Page::Zeroes,
            Page::Zeroes
        ]
    );
    assert_eq!(ftl.stats().lost_references, 3);
}

/// The word of the slot that names LPN 2, after `with_a_remap` on slots.
fn with_a_slot() -> (Ftl, usize) {
    let mut ftl = small(SchemeKind::Pebble);
    ftl.write(1, &content(11)).unwrap();
    ftl.write(2, &content(22)).unwrap();
    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();
    ftl.remap(&Remap {
        target: 2,
        source: 1,
        len: 1,
        relocate: false,
        atomic: false,
    })
    .unwrap();
    let at = (0..before.len())
        .rev()
        .find(|at| ftl.media().peek(*at) != before[*at])
        .expect("a slot was filled");
    (ftl, at)
}

#[test]
fn a_slot_is_corrected_or_refuses_recovery_and_collection_survives_it() {
    for (flips, outcome) in [(1u64 << 20, true), (0b11 << 20, false)] {
        let (mut ftl, at) = with_a_slot();
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(at, flips);
        });
        let config = ftl.config().clone();
        match Ftl::recover(ftl.into_media(), config) {
            Ok((mut ftl, _)) => {
                assert!(outcome);
                assert_eq!(ftl.read(2), Ok(Page::Identity(11)));
            }
            Err(error) => assert!(
                !outcome && error == RecoveryError::NvramDamaged { word: at },
                "{error}"
            ),
        }
    }
    let (mut ftl, at) = with_a_slot();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 20);
    });
    for lpn in 10..600 {
        ftl.write(lpn, &content(u64::from(lpn) + 1000)).unwrap();
    }
    churn(&mut ftl, &[1, 2], 10_000);
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);
    assert_eq!(
        (ftl.read(1), ftl.read(2)),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );
}

fn copy(target: u32, source: u32) -> Remap {
    Remap {
        target,
        source,
        len: 1,
        relocate: false,
        atomic: false,
    }
}

/// Whatever was written after it: only once does a damaged entry leave its LPN in doubt.
#[test]
fn an_lpn_that_was_rewritten_is_not_taken_by_the_damaged_entry_again() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
    });
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(ftl.read(2), Err(Refusal::MediaError));
    for round in 0..3 {
        ftl.write(2, &content(33 + round)).unwrap();
        let (found, report) = recovered(ftl);
        ftl = found;
        assert_eq!(
            (ftl.read(2), report.lost),
            (Ok(Page::Identity(33 + round)), 0)
        );
    }
}

/// The head of the next segment bounds the number of the entry.
#[test]
fn a_damaged_entry_that_was_superseded_long_ago_leaves_nothing_in_doubt() {
    let (mut ftl, at) = with_a_remap();
    for target in 10..40 {
        ftl.remap(&copy(target, 1)).unwrap();
        ftl.write(target, &content(u64::from(target))).unwrap();
    }
    ftl.write(2, &content(44)).unwrap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
    });
    let (mut ftl, report) = recovered(ftl);
    assert_eq!((ftl.read(2), report.lost), (Ok(Page::Identity(44)), 0));
}

/// Nothing was stored there: neither is LPN 0 in doubt, nor anything else.
#[test]
fn damage_where_nothing_is_stored_is_of_no_consequence() {
    let (mut ftl, at) = with_a_remap();
    ftl.write(0, &content(7)).unwrap();
    for word in [at + 2, at + 3] {
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(word, 0b11 << 30);
        });
        let (found, report) = recovered(ftl);
        ftl = found;
        assert_eq!(
            (ftl.read(0), ftl.read(2), report.lost),
            (Ok(Page::Identity(7)), Ok(Page::Identity(11)), 0)
        );
        assert!(ftl.media().faults().is_empty(), "and it is zeroed");
    }
}

/// A block that has been left out for long keeps what it held, a dead head among it.
#[test]
fn a_superblock_is_found_without_the_word_that_says_which_of_its_blocks_are_bad() {
    let (config, geometry) = (
        Config {
            dedup: false,
            ..small_config(SchemeKind::None)
        },
        small_geometry(),
    );
    for word in [0, 1, 2] {
        let mut ftl = device(geometry, &config);
        ftl.media_mut().plant(|faults| {
            faults.program.insert(geometry.block(SbId(0), 0), 5);
        });
        let (mut contents, mut random) = (vec![0; 600], Random(7));
        let is_as_wanted = |ftl: &Ftl| {
            let sb = ftl.superblocks().next().expect("there are some").1;
            sb.bad & 1 == 1 && sb.state == SuperblockState::Closed && ftl.owners(SbId(0)).live > 20
        };
        let mut step = 0;
        while step < 3000 || !is_as_wanted(&ftl) {
            step += 1;
            let lpn = random.below(600) as u32;
            ftl.write(lpn, &content(step)).unwrap();
            ftl.media_mut().ops.clear();
            contents[lpn as usize] = step;
        }
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(word, 0b11);
        });
        for _ in 0..2 {
            ftl = recovered(ftl).0;
            for (lpn, identity) in (0..).zip(&contents) {
                let expected = if *identity == 0 {
                    Page::Zeroes
                } else {
                    Page::Identity(*identity)
                };
                assert_eq!(ftl.read(lpn), Ok(expected), "word {word}");
            }
        }
    }
}

/// What any page of a closed superblock of a log held the others and their parity tell.
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
        (0..100).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
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
                let found: Vec<_> = (0..100).map(read).collect();
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

/// Copies on flash keep their numbers in the list.
#[test]
fn any_word_of_a_list_of_several_is_told_by_the_sum() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
    for number in 0..5 {
        ftl.media_mut().attach_rail();
        ftl.remap(&Remap {
            target: 2 * number,
            source: 50,
            len: 2,
            relocate: false,
            atomic: true,
        })
        .unwrap();
        let mut pending = ftl.media().pending();
        let image = ftl.media().cut(|| {
            pending -= 1;
            if pending == 0 {
                remap_ssd_media::Outcome::Absent
            } else {
                remap_ssd_media::Outcome::Whole
            }
        });
        ftl = Ftl::recover(Media::from_image(&image), config.clone())
            .expect("recovers")
            .0;
        assert_eq!(ftl.aborted().len(), number as usize + 1);
    }
    let image = ftl.media().to_image();
    for word in 1..=5 {
        let mut media = Media::from_image(&image);
        media.plant(|faults| {
            faults.flips.insert(slot + word, 0b11);
        });
        let (mut found, _) = Ftl::recover(media, config.clone()).expect("the sum tells the word");
        assert_eq!(found.aborted().len(), 5);
        assert!(
            (0..100).all(|lpn| found.read(lpn) == Ok(Page::Identity(u64::from(lpn) + 1))),
            "without word {word}"
        );
    }
}

/// DRAM under a capacitor: the tables know what a word of it said, as long as the power is on.
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
        (0..600).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
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
        assert_eq!((ftl.read(2), report.lost), (Ok(Page::Identity(2)), 0));
    }
}

/// The entries of an atomic command have one number, and a page of the log may end in the midst of
/// them.
#[test]
fn an_atomic_commands_entry_in_flogs_buffer_is_told_from_the_others_of_its_number() {
    let config = Config {
        dedup: false,
        entry: EntrySize::Bytes24,
        ..small_config(SchemeKind::FLog)
    };
    let prepared = |earlier: u32| {
        let mut ftl = device(small_geometry(), &config);
        (0..600).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
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
            target: 2,
            source: 20,
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
                    ftl.read(target),
                    Ok(Page::Identity(source + 1)),
                    "{earlier} entries before, word {word}"
                );
            }
        }
    }
}

/// A log that is full of entries in force has one free unit to begin with, and needs no other for
/// what a damaged word said.
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
        let read: Vec<_> = (0..config.lpns).map(|lpn| ftl.read(lpn)).collect();
        assert!(
            read.iter()
                .zip(&model)
                .all(|(read, is)| *read == Ok(Page::Identity(*is))),
            "seed {seed}"
        );
    }
    assert!(rewritten > 1000, "{rewritten}");
}

#[test]
fn a_bitmap_that_cannot_be_read_is_written_anew_when_it_moves() {
    let (geometry, mut ftl) = (small_geometry(), small(SchemeKind::RemapSsd));
    (0..600).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
    (0..40).for_each(|lpn| ftl.deallocate(lpn, 1).unwrap());
    let oob = |page: &Ppn| ftl.media().oob(*page);
    let bitmaps = (0..geometry.pages())
        .map(Ppn)
        .filter(|page| ftl.media().is_programmed(*page) && oob(page).lpn() == 600);
    let bitmap = bitmaps
        .max_by_key(|page| oob(page).wsn())
        .expect("a half of the log was full");
    ftl.media_mut().plant(|faults| {
        faults.read.insert(bitmap);
    });
    let mut random = Random(9);
    while !ftl.media().faults().is_empty() {
        ftl.write(100 + random.below(500) as u32, &content(50_000))
            .unwrap();
        ftl.media_mut().ops.clear();
    }
    let (mut ftl, _) = recovered(ftl);
    (0..40).for_each(|lpn| assert_eq!(ftl.read(lpn), Ok(Page::Zeroes)));
    assert_eq!(ftl.read(41), Ok(Page::Identity(42)));
}

/// The slot of an older device is 0: it opens, and has a sum of the aborted commands from then on.
#[test]
fn a_word_of_the_aborted_list_is_told_by_the_sum_once_there_is_one() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config {
        entry: EntrySize::Bytes24,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap());
    ftl.media_mut()
        .store(slot, 0, Purpose::Meta, After::NOTHING);
    let mut older = Media::from_image(&ftl.media().to_image());
    let damage = |media: &mut Media| {
        media.plant(|faults| {
            faults.flips.insert(slot + 1, 0b11);
        });
    };
    damage(&mut older);
    let refused = Ftl::recover(older, config).map(|_| ());
    assert_eq!(refused, Err(RecoveryError::NvramDamaged { word: slot + 1 }));

    // A cut in an atomic command: its number is in the list after recovery.
    let (mut ftl, _) = recovered(ftl);
    ftl.media_mut().attach_rail();
    ftl.remap(&Remap {
        target: 0,
        source: 50,
        len: 2,
        relocate: false,
        atomic: true,
    })
    .unwrap();
    let mut pending = ftl.media().pending();
    let image = ftl.media().cut(|| {
        pending -= 1;
        if pending == 0 {
            remap_ssd_media::Outcome::Absent
        } else {
            remap_ssd_media::Outcome::Whole
        }
    });
    let config = ftl.config().clone();
    let mut ftl = Ftl::recover(Media::from_image(&image), config)
        .expect("recovers")
        .0;
    assert_eq!(ftl.aborted().len(), 1);
    for _ in 0..2 {
        damage(ftl.media_mut());
        ftl = recovered(ftl).0;
        assert_eq!(
            [ftl.read(0), ftl.read(1)],
            [Ok(Page::Identity(1)), Ok(Page::Identity(2))]
        );
    }
}
