//! Sequence numbers at their limit: when they are used up the device is read-only, and loses
//! nothing.

use crate::kit::script::Contents;
use crate::kit::{Random, content, device, durable, read_all, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Refusal, Remap, SchemeKind, SchemeValues, Stats};
use remap_ssd_media::{After, Media, Oob, Outcome, Page, Ppn, Purpose, StoredPage};

/// From this number on changes are refused.
const READ_ONLY: u64 = (1 << 42) - (1 << 36);

fn atomic_config(scheme: SchemeKind) -> Config {
    let small = small_config(scheme);
    Config {
        entry: EntrySize::Bytes24,
        dealloc_slots: 64,
        log_bytes: small.log_bytes + (16 << 10),
        ..small
    }
}

/// A device in use whose time jumps to `wsn`: through the life record of a superblock that has
/// never been opened.
fn aged(config: &Config, wsn: u64) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    (0..config.lpns).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    for lpn in 0..20 {
        ftl.remap(&Remap {
            target: Lpn(100 + lpn),
            source: Lpn(lpn),
            len: 1,
            relocate: lpn % 2 == 0,
            atomic: false,
        })
        .unwrap();
    }

    let unused = ftl
        .superblocks()
        .filter(|(_, sb)| sb.opened == 0)
        .last()
        .expect("some are unused")
        .0;

    ftl.media_mut()
        .store(unused.0 as usize * 3, wsn, Purpose::Meta, After::NOTHING);
    let (ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
    assert!(ftl.wsn() >= wsn, "time has leapt");
    ftl
}

/// Executes one command of any kind, and applies it to the contents.
fn step(
    ftl: &mut Ftl,
    random: &mut Random,
    identity: u64,
    contents: &mut Contents,
) -> Result<(), Refusal> {
    let lpns = u64::from(ftl.config().lpns);
    let (lpn, len) = (
        random.below(lpns / 2 - 8) as u32,
        1 + random.below(8) as u32,
    );
    let other = lpn + lpns as u32 / 2;
    let range = |lpn: u32| lpn as usize..(lpn + len) as usize;

    match random.below(5) {
        0 => {
            ftl.deallocate(Lpn(lpn), len)?;
            contents[range(lpn)].fill(None);
        }
        1 | 2 => {
            let relocate = random.below(2) == 0;
            let atomic = random.below(2) == 0;
            ftl.remap(&Remap {
                target: Lpn(lpn),
                source: Lpn(other),
                len,
                relocate,
                atomic,
            })?;
            contents.copy_within(range(other), lpn as usize);
            if relocate {
                contents[range(other)].fill(None);
            }
        }
        _ => {
            ftl.write(Lpn(other), &content(identity))?;
            contents[other as usize] = Some(identity);
        }
    }
    Ok(())
}

/// Every change is refused, and all acknowledged data is there; a power-on changes nothing.
fn is_read_only_for_ever(mut ftl: Ftl, contents: &Contents, name: &str) {
    let config = ftl.config().clone();
    let mut wsn = ftl.wsn();
    for power_on in 0..12 {
        let at = format!("{name}, power-on {power_on}");
        let refused = Err(Refusal::NumbersUsedUp);
        assert!(ftl.is_read_only() && ftl.numbers_used() == 1.0, "{at}");
        assert_eq!(ftl.write(Lpn(1), &content(1)), refused, "{at}");
        assert_eq!(ftl.write_for(Lpn(1), &content(1), Lpn(2)), refused, "{at}");
        assert_eq!(ftl.deallocate(Lpn(1), 1), refused, "{at}");

        for atomic in [false, true] {
            assert_eq!(
                ftl.remap(&Remap {
                    target: Lpn(1),
                    source: Lpn(2),
                    len: 1,
                    relocate: false,
                    atomic
                }),
                refused,
                "{at}"
            );
        }

        assert_eq!(
            ftl.write(Lpn(config.lpns), &content(1)),
            Err(Refusal::OutOfRange),
            "{at}"
        );
        assert!(!ftl.background(), "{at}");
        assert_eq!(ftl.flush(), Ok(()), "{at}");
        assert!(read_all(&mut ftl) == *contents, "{at}");

        ftl.check().unwrap_or_else(|what| panic!("{at}: {what}"));
        (ftl, _) = Ftl::recover(ftl.into_media(), config.clone())
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(
            power_on == 0 || ftl.wsn() == wsn,
            "{at}: a power-on takes no number"
        );
        wsn = ftl.wsn();
    }
}

#[test]
fn remaps_that_became_copies_are_those_of_all_causes_together() {
    let stats = Stats {
        demoted_counter_full: 1,
        demoted_nvram_full: 10,
        demoted_watermark: 100,
        demoted_degree_full: 1_000,
        demoted_unhinted: 10_000,
        ..Stats::default()
    };
    assert_eq!(stats.demoted(), 11_111);
}

// The tests of power cuts use this list: if it were empty they would test nothing and pass.
#[test]
fn all_schemes_but_two_bounds_keep_what_they_acknowledge() {
    let known: Vec<SchemeKind> = durable().collect();
    let forgetful = [SchemeKind::Opt, SchemeKind::Unsafe];
    for scheme in SchemeKind::ALL {
        assert_ne!(
            known.contains(&scheme),
            forgetful.contains(&scheme),
            "{scheme}"
        );
    }
}

#[test]
fn a_device_whose_numbers_are_used_up_is_read_only_and_keeps_everything() {
    for scheme in durable() {
        let config = atomic_config(scheme);
        let mut ftl = aged(&config, READ_ONLY - 3000);
        let mut contents = read_all(&mut ftl);
        let (mut random, mut done) = (Random(11), 0);
        let refusal = loop {
            done += 1;
            ftl.media_mut().ops.clear();
            if let Err(refusal) = step(&mut ftl, &mut random, 10_000 + done, &mut contents) {
                break refusal;
            }
        };

        assert_eq!(refusal, Refusal::NumbersUsedUp, "{scheme}");
        assert!(
            done > 500 && ftl.stats().gc_runs > 0,
            "{scheme}: {done} commands"
        );
        assert_eq!(
            refusal.to_string(),
            "the device is read-only: its 2^42 sequence numbers are used up"
        );
        is_read_only_for_ever(ftl, &contents, &format!("{scheme}"));
    }
}

/// A long command stops where the numbers end, and its completed part stays.
#[test]
fn a_long_remap_is_served_as_far_as_numbers_go() {
    let config = Config {
        dedup: false,
        ..atomic_config(SchemeKind::None)
    };
    let mut ftl = aged(&config, READ_ONLY - 80);
    let remap = Remap {
        target: Lpn(0),
        source: Lpn(300),
        len: 290,
        relocate: false,
        atomic: false,
    };

    assert_eq!(ftl.remap(&remap), Err(Refusal::NumbersUsedUp));
    let contents = read_all(&mut ftl);
    let moved = (0..290)
        .filter(|lpn| contents[*lpn] == Some(*lpn as u64 + 301))
        .count();
    assert!((64..200).contains(&moved), "{moved} pages");
    is_read_only_for_ever(ftl, &contents, "none");
}

/// Each command near the end, cut after each of its operations.
#[test]
fn a_cut_at_the_end_of_the_numbers_loses_nothing() {
    for scheme in durable() {
        let config = atomic_config(scheme);
        for before_the_end in [1, 2, 5, 12, 30] {
            let mut ftl = aged(&config, READ_ONLY - before_the_end);
            let mut contents = read_all(&mut ftl);
            ftl.media_mut().attach_rail();
            let mut random = Random(before_the_end * 3 + 1);

            for number in 0..4 {
                let before = contents.clone();
                let refused = step(&mut ftl, &mut random, 20_000 + number, &mut contents).is_err();
                let pending = ftl.media().pending();
                for landed in 0..pending {
                    let mut at = 0;
                    let image = ftl.media().cut(|| {
                        at += 1;
                        if at <= landed {
                            Outcome::Whole
                        } else {
                            Outcome::Absent
                        }
                    });
                    let at = format!(
                        "{scheme}, {before_the_end} before the end, {landed} of {pending} landed"
                    );
                    let mut media = Media::from_image(&image);
                    for _ in 0..2 {
                        let (mut ftl, _) = Ftl::recover(media, config.clone())
                            .unwrap_or_else(|error| panic!("{at}: {error}"));
                        ftl.check().unwrap_or_else(|what| panic!("{at}: {what}"));
                        for (lpn, read) in read_all(&mut ftl).into_iter().enumerate() {
                            assert!(
                                read == before[lpn] || read == contents[lpn],
                                "{at}: LPN {lpn} reads {read:?}"
                            );
                        }
                        media = ftl.into_media();
                    }
                }
                ftl.media_mut().settle_all();
                if refused {
                    break;
                }
            }
        }
    }
}

/// A damaged or forged number in an image must not cause a write.
#[test]
fn a_forged_number_is_refused_or_makes_the_device_read_only() {
    for scheme in durable() {
        let config = atomic_config(scheme);
        let mut contents = read_all(&mut aged(&config, 1 << 41));
        is_read_only_for_ever(
            aged(&config, (1 << 42) - 1),
            &contents,
            &format!("{scheme}"),
        );

        // In the list of interrupted commands, whose words could hold larger numbers.
        let mut ftl = aged(&config, 1 << 41);
        contents = read_all(&mut ftl);
        let list = small_geometry().superblocks() as usize * 3 + 1;

        for (number, opens) in [((1 << 42) - 1, true), (1 << 42, false), (u64::MAX, false)] {
            ftl.media_mut()
                .store(list + 5, number, Purpose::Meta, After::NOTHING);
            let media = Media::from_image(&ftl.media().to_image());
            match Ftl::recover(media, config.clone()) {
                Ok((mut ftl, _)) => {
                    assert!(opens && ftl.is_read_only(), "{scheme}, {number:#x}");
                    // No witness carries it, so it is dropped, and the next power-on finds the
                    // device as it was.
                    (ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
                    assert!(
                        !ftl.is_read_only() && read_all(&mut ftl) == contents,
                        "{scheme}, {number:#x}"
                    );
                }
                Err(error) => assert!(!opens, "{scheme}, {number:#x}: {error}"),
            }
        }
    }
}

/// An unreadable entry is a media error there too, although no page can be programmed to mark it.
#[test]
fn a_damaged_entry_of_a_device_without_numbers_is_a_media_error() {
    // A target that had a page before, and one that had none.
    [2, 3].into_iter().for_each(damaged_entry_of);
}

fn damaged_entry_of(target: u32) {
    let config = small_config(SchemeKind::RemapSsd);
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(Lpn(1), &content(11)).unwrap();
    ftl.write(Lpn(2), &content(22)).unwrap();

    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();
    ftl.remap(&Remap {
        target: Lpn(target),
        source: Lpn(1),
        len: 1,
        relocate: false,
        atomic: false,
    })
    .unwrap();

    let changed = (0..before.len()).filter(|at| ftl.media().peek(*at) != before[*at]);
    let first = changed.clone().nth_back(1).expect("an entry has two words");
    ftl.media_mut()
        .store(23 * 3, (1 << 42) - 7, Purpose::Meta, After::NOTHING);
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(first, 0b11 << 30);
    });

    let faults = ftl.media().faults().clone();
    let mut media = ftl.into_media();
    for _ in 0..3 {
        media.plant(|planted| *planted = faults.clone());
        let (mut ftl, report) = Ftl::recover(media, config.clone()).expect("recovers");
        assert_eq!((report.lost, ftl.wsn()), (1, (1 << 42) - 7));
        assert_eq!(
            (ftl.read(Lpn(1)), ftl.read(Lpn(target))),
            (Ok(Page::Identity(11)), Err(Refusal::MediaError))
        );
        media = ftl.into_media();
    }
}

/// The counter of a superblock's erases does not start over: the superblock is not used any more.
#[test]
fn a_superblock_whose_erases_cannot_be_counted_any_more_keeps_what_it_has() {
    const LAST: u32 = (1 << 21) - 1;
    for scheme in durable() {
        let config = Config {
            dedup: false,
            lpns: 400,
            ..atomic_config(scheme)
        };

        let mut ftl = device(small_geometry(), &config);
        for sb in 0..small_geometry().superblocks() as usize {
            let clean_and_old = 1 << 42 | u64::from(LAST - 6) << 43;
            ftl.media_mut()
                .store(sb * 3, clean_and_old, Purpose::Meta, After::NOTHING);
        }

        (ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
        let (mut random, mut contents) = (Random(5), vec![None; config.lpns as usize]);
        let mut written = 0;
        let refusal = loop {
            written += 1;
            ftl.media_mut().ops.clear();
            let before = contents.clone();
            if let Err(refusal) = step(&mut ftl, &mut random, written, &mut contents) {
                contents = before;
                break refusal;
            }
            if written % 1500 == 0 {
                (ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
            }
            assert!(written < 100_000, "{scheme}: the counters start over");
        };

        assert_eq!(refusal, Refusal::ReadOnly, "{scheme}");
        for _ in 0..3 {
            let counts: Vec<u32> = ftl
                .superblocks()
                .map(|(_, sb)| sb.life.incarnation())
                .collect();
            assert!(
                counts.iter().all(|count| (LAST - 6..=LAST).contains(count)),
                "{scheme}: {counts:?}"
            );
            // A long remap may have been executed partly when it was refused.
            let read = read_all(&mut ftl);
            let differ = (0..contents.len())
                .filter(|lpn| read[*lpn] != contents[*lpn])
                .count();
            assert!(differ <= 16, "{scheme}: {differ} differ");
            contents = read;
            ftl.check()
                .unwrap_or_else(|what| panic!("{scheme}: {what}"));
            (ftl, _) = Ftl::recover(ftl.into_media(), config.clone()).expect("recovers");
        }
    }
}

/// Remaps LPNs alternately to the pages of LPNs 0 and 1: an endless sequence of entries of one
/// superblock.
fn remap_on_and_on(ftl: &mut Ftl, times: u32) {
    for number in 0..times {
        let remap = Remap {
            target: Lpn(590 + number % 8),
            source: Lpn(number / 8 % 2),
            len: 1,
            relocate: false,
            atomic: false,
        };
        ftl.remap(&remap).unwrap();
        ftl.media_mut().ops.clear();
    }
}

/// The numbers of a group are nearly used up; every remap is executed, and power-on finds it.
fn goes_on(ftl: Ftl, name: &str) {
    let config = ftl.config().clone();
    let recovered = |ftl: Ftl| {
        Ftl::recover(ftl.into_media(), config.clone())
            .expect("recovers")
            .0
    };

    let mut ftl = recovered(ftl);
    let copied = ftl.stats().host_programs;
    remap_on_and_on(&mut ftl, 2000);
    assert!(
        ftl.stats().host_programs > copied,
        "{name}: remaps have become copies"
    );

    for round in 0..4 {
        let contents = read_all(&mut ftl);
        ftl = recovered(ftl);
        assert!(read_all(&mut ftl) == contents, "{name}, power-on {round}");
        ftl.check().unwrap_or_else(|what| panic!("{name}: {what}"));
        remap_on_and_on(&mut ftl, 101);
    }

    // Collecting the superblock restarts the numbers.
    for step in 0..6000 {
        ftl.write(Lpn((step * 7) % 600), &content(50_000 + u64::from(step)))
            .unwrap();
        ftl.media_mut().ops.clear();
    }
    let (copied, remapped) = (ftl.stats().host_programs, ftl.stats().remaps);

    remap_on_and_on(&mut ftl, 500);
    assert_eq!(
        (ftl.stats().host_programs, ftl.stats().remaps),
        (copied, remapped + 500),
        "{name}"
    );
}

#[test]
fn the_numbers_of_segments_are_not_used_up() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::RemapSsdX,
        SchemeKind::RemapSsdLh,
    ] {
        let mut ftl = device(
            small_geometry(),
            &Config {
                dedup: false,
                ..small_config(scheme)
            },
        );
        (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let before: Vec<u64> = (0..ftl.media().nvram_words())
            .map(|at| ftl.media().peek(at))
            .collect();
        remap_on_and_on(&mut ftl, 1);
        // The head of the segment, the word with its number, and the entry.
        let mut changed = (0..before.len()).filter(|at| ftl.media().peek(*at) != before[*at]);
        let link = changed.nth(1).expect("a segment has been taken");
        assert_eq!(ftl.media().peek(link), 1, "{scheme}: its number is 0");
        let number = (1 << 30) - (1 << 26) - 20;
        ftl.media_mut()
            .store(link, 1 | number << 1, Purpose::Meta, After::NOTHING);
        goes_on(ftl, scheme.name());
    }
}

#[test]
fn the_numbers_of_pages_of_entries_are_not_used_up() {
    for scheme in [SchemeKind::LocalFlash, SchemeKind::RemapSsdLh] {
        let config = Config {
            dedup: false,
            scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
            log_bytes: 4 << 10,
            ..small_config(scheme)
        };

        let mut ftl = device(small_geometry(), &config);
        (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        remap_on_and_on(&mut ftl, 1000);

        // The log's last page again, with a number that is nearly the last.
        let log = (0..small_geometry().pages()).map(Ppn).filter(|page| {
            ftl.media().is_programmed(*page) && ftl.media().oob(*page).lpn() == Oob::LOG
        });
        let newest = log
            .max_by_key(|page| ftl.media().oob(*page).wsn())
            .expect("a page of entries");
        let mut bytes = ftl
            .media()
            .meta_uncharged(newest)
            .expect("readable")
            .to_vec();

        let number = u32::MAX - (1 << 26) - 3;
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        let oob = Oob::new(
            Oob::LOG,
            u64::from(number) + 1,
            ftl.media().oob(newest).incarnation(),
        );

        let free = (newest.0 + 1..)
            .map(Ppn)
            .find(|page| !ftl.media().is_programmed(*page))
            .expect("room");
        let stored = StoredPage::Meta(bytes.into());

        ftl.media_mut()
            .program(free, oob, stored, Purpose::Meta, After::NOTHING)
            .unwrap();
        goes_on(ftl, scheme.name());
    }
}

/// A unit's number has 63 bits, which no device exhausts; a number near the limit is not a log's.
#[test]
fn a_forged_number_of_a_unit_is_refused() {
    let config = small_config(SchemeKind::NLog);
    let mut ftl = small(SchemeKind::NLog);
    (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();

    remap_on_and_on(&mut ftl, 1);
    let head = (0..before.len())
        .find(|at| ftl.media().peek(*at) != before[*at])
        .expect("a unit has been begun");

    for number in [1 << 62, (1 << 63) - 1] {
        let mut media = Media::from_image(&ftl.media().to_image());
        media.store(head, 1 | number << 1, Purpose::Meta, After::NOTHING);
        let error = Ftl::recover(media, config.clone())
            .err()
            .expect("refused")
            .to_string();
        assert_eq!(
            error,
            "not a device of this configuration: a unit of the log has a number that none reaches"
        );
    }
}
