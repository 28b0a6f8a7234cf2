//! Limits: the last value that works, and the first that does not.

use crate::kit::{
    self, Random, content, device, durable, put, recovered, small_config, small_geometry,
};
use remap_ssd_ftl::policy::{VictimCandidate, least_worn};
use remap_ssd_ftl::{
    Config, EntrySize, Ftl, GcPolicy, Lpn, Refusal, Remap, SchemeKind, SuperblockState,
};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, Media, OpKind, Outcome, Page, Purpose, SbId};

fn copy(target: u32, source: u32, len: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    }
}

#[test]
fn a_page_has_as_many_owners_as_its_counter_may_say_and_no_more() {
    for count_max in [2, 3, 14, 15, 16, 31, 300] {
        let config = Config {
            count_max,
            log_bytes: 16 << 10,
            ..small_config(SchemeKind::RemapSsd)
        };
        let mut ftl = device(small_geometry(), &config);

        put(&mut ftl, 0, 7);
        let owners = u32::from(count_max);
        (1..owners).for_each(|lpn| ftl.remap(&copy(lpn, 0, 1)).unwrap());
        assert_eq!(
            (ftl.stats().remaps, ftl.stats().host_programs),
            (u64::from(owners) - 1, 1)
        );

        ftl.remap(&copy(owners, 0, 1)).unwrap();
        let stats = ftl.stats();
        assert_eq!(
            (stats.demoted_counter_full, stats.host_programs),
            (1, 2),
            "owner {} is a copy",
            owners + 1
        );

        // One owner is removed: another may be added.
        ftl.deallocate(Lpn(1), 1).unwrap();
        ftl.remap(&copy(owners + 1, 0, 1)).unwrap();
        assert_eq!(
            (ftl.stats().demoted_counter_full, ftl.stats().remaps),
            (1, u64::from(owners))
        );

        ftl.check().unwrap();
        let (mut ftl, _) = recovered(ftl);
        let others = (2..owners + 2).chain([0]);
        assert!(
            others
                .into_iter()
                .all(|lpn| ftl.read(Lpn(lpn)) == Ok(Page::Identity(7)))
        );
        assert_eq!(ftl.read(Lpn(1)), Ok(Page::Zeroes));
    }
}

/// Overwrites that were not acknowledged are lost in a cut, and the remaps that followed are kept:
/// recovery finds more owners than the counter's limit. They move together, and are removed one by
/// one.
#[test]
fn more_owners_than_the_counter_may_say_are_found_moved_and_dropped() {
    let config = Config {
        dedup: false,
        count_max: 15,
        ..small_config(SchemeKind::RemapSsd)
    };
    for more in 1..=4 {
        let mut ftl = device(small_geometry(), &config);
        put(&mut ftl, 0, 7);
        (1..15).for_each(|lpn| ftl.remap(&copy(lpn, 0, 1)).unwrap());
        ftl.media_mut().attach_rail();
        for lpn in 1..=more {
            put(&mut ftl, lpn, 50 + u64::from(lpn));
            ftl.remap(&copy(20 + lpn, 0, 1)).unwrap();
        }
        assert_eq!(ftl.stats().demoted_counter_full, 0);

        let image = ftl.media().cut_by(|kind| match kind {
            OpKind::Program => Outcome::Absent,
            _ => Outcome::Whole,
        });
        let (mut ftl, _) = Ftl::recover(Media::from_image(&image), config.clone()).unwrap();
        ftl.check().unwrap();

        let mut owners: Vec<u32> = (0..15).chain(21..=20 + more).collect();
        let is_shared = |ftl: &mut Ftl, lpns: &[u32]| {
            lpns.iter()
                .all(|lpn| ftl.read(Lpn(*lpn)) == Ok(Page::Identity(7)))
        };
        assert!(is_shared(&mut ftl, &owners));
        let programs = ftl.stats().host_programs;
        ftl.remap(&copy(30, 0, 1)).unwrap();
        assert_eq!(
            ftl.stats().host_programs,
            programs + 1,
            "one more is a copy"
        );

        // The page moves with all of them.
        let page_of = |ftl: &mut Ftl| {
            ftl.media_mut().ops.clear();
            ftl.read(Lpn(0)).unwrap();
            ftl.media().ops[0].page
        };
        let before = page_of(&mut ftl);
        let mut random = Random(3);
        for step in 0.. {
            assert!(step < 60_000, "the page never moves");
            let lpn = 40 + random.below(560) as u32;
            put(&mut ftl, lpn, 1000 + step);
            ftl.media_mut().ops.clear();
            if step % 64 == 0 && page_of(&mut ftl) != before {
                break;
            }
        }

        ftl.check().unwrap();
        assert!(is_shared(&mut ftl, &owners));

        let (mut ftl, _) = recovered(ftl);
        while let Some(lpn) = owners.pop() {
            ftl.deallocate(Lpn(lpn), 1).unwrap();
            ftl.check().unwrap();
            assert!(
                is_shared(&mut ftl, &owners),
                "{} owners are left",
                owners.len()
            );
        }
    }
}

#[test]
fn the_last_page_is_served_and_the_one_behind_it_is_not() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::None, SchemeKind::WalSsd] {
        let mut ftl = device(small_geometry(), &small_config(scheme));
        let lpns = ftl.config().lpns;
        let refused = Err(Refusal::OutOfRange);
        put(&mut ftl, lpns - 1, 3);
        assert_eq!(ftl.read(Lpn(lpns - 1)), Ok(Page::Identity(3)));
        assert_eq!(
            (ftl.write(Lpn(lpns), &content(3)), ftl.read(Lpn(lpns))),
            (refused, Err(Refusal::OutOfRange))
        );

        assert_eq!(ftl.write(Lpn(u32::MAX), &content(3)), refused);
        assert_eq!(
            (
                ftl.write_for(Lpn(0), &content(3), Lpn(lpns)),
                ftl.write_for(Lpn(lpns), &content(3), Lpn(0))
            ),
            (refused, refused)
        );
        assert_eq!(
            (
                ftl.deallocate(Lpn(lpns - 1), 2),
                ftl.deallocate(Lpn(1), u32::MAX)
            ),
            (refused, refused)
        );

        assert_eq!(
            (
                ftl.deallocate(Lpn(lpns), 0),
                ftl.deallocate(Lpn(lpns + 1), 0)
            ),
            (Ok(()), refused)
        );
        assert_eq!(
            (
                ftl.remap(&copy(lpns - 1, 0, 2)),
                ftl.remap(&copy(0, lpns - 1, 2))
            ),
            (refused, refused)
        );

        assert_eq!(ftl.remap(&copy(lpns - 2, lpns - 1, 1)), Ok(()));
        assert_eq!(ftl.read(Lpn(lpns - 2)), Ok(Page::Identity(3)));
        ftl.check().unwrap();
    }
}

/// Pieces of a long remap have 64 pages, or half of the slots for deallocations. Every other page
/// of these commands loses a mapping, so each piece needs the maximum number of records.
#[test]
fn remaps_of_any_length_around_a_piece_do_the_same_as_single_ones() {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 4,
        superblocks: 40,
        pages_per_block: 16,
    })
    .unwrap();

    for scheme in durable() {
        for dealloc_slots in [4, 5, 128, 129, 256] {
            let config = Config {
                dealloc_slots,
                dedup: false,
                ..small_config(scheme)
            };
            let tables = config.tables_bytes(&geometry);
            let config = Config {
                log_bytes: config.log_bytes.max(tables),
                ..config
            };
            for len in [1, 2, 63, 64, 65, 127, 128, 129] {
                for (target, source, relocate) in [
                    (300, 0, true),
                    (300, 0, false),
                    (40, 0, true),
                    (0, 40, true),
                ] {
                    let mut ftl = device(geometry, &config);
                    let mut model = vec![0u64; config.lpns as usize];
                    // Some of the sources, and of the targets with a different step, have never
                    // been written.
                    for lpn in
                        (0..config.lpns).filter(|lpn| lpn % 2 == 0 || lpn % 3 == 0 && *lpn >= 300)
                    {
                        model[lpn as usize] = u64::from(lpn) + 1;
                        put(&mut ftl, lpn, u64::from(lpn) + 1);
                    }
                    ftl.remap(&Remap {
                        relocate,
                        ..copy(target, source, len)
                    })
                    .unwrap();
                    let (to, from, len) = (target as usize, source as usize, len as usize);
                    let moved = model[from..from + len].to_vec();
                    if relocate {
                        model[from..from + len].fill(0);
                    }
                    model[to..to + len].copy_from_slice(&moved);
                    ftl.check().unwrap();
                    let reads = |ftl: &mut Ftl| {
                        (0..model.len() as u32)
                            .map(|lpn| ftl.read(Lpn(lpn)).unwrap())
                            .collect()
                    };
                    let wanted: Vec<Page> = model
                        .iter()
                        .map(|content| {
                            if *content == 0 {
                                Page::Zeroes
                            } else {
                                Page::Identity(*content)
                            }
                        })
                        .collect();
                    let read: Vec<Page> = reads(&mut ftl);
                    assert!(
                        read == wanted,
                        "{scheme}, {dealloc_slots} slots, {len} pages from {source} to {target}"
                    );
                    let (mut ftl, _) = recovered(ftl);
                    let read: Vec<Page> = reads(&mut ftl);
                    assert!(
                        read == wanted,
                        "{scheme}, {dealloc_slots} slots, {len} pages, after a power cycle"
                    );
                }
            }
        }
    }
}

#[test]
fn the_largest_atomic_remap_is_what_a_superblock_and_the_slots_allow() {
    let geometry = |pages_per_block| {
        Geometry::new(Shape {
            channels: 1,
            dies: 4,
            superblocks: 40,
            pages_per_block,
        })
        .expect("valid")
    };

    // 4096/10 = 409 records a tail page: 4 x 16 pages have 62 for data, 4 x 256 have 1020.
    for (pages_per_block, dealloc_slots, most) in [
        (16, 4096, 31),
        (16, 63, 31),
        (16, 62, 31),
        (16, 61, 30),
        (256, 4096, 256),
    ] {
        let geometry = geometry(pages_per_block);
        let config = Config {
            entry: EntrySize::Bytes24,
            dealloc_slots,
            log_bytes: 64 << 10,
            ..small_config(SchemeKind::RemapSsd)
        };
        let mut ftl = device(geometry, &config);
        assert_eq!(
            ftl.atomic_pages_max(),
            most,
            "{pages_per_block} rows, {dealloc_slots} slots"
        );
        (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        let atomic = |len| Remap {
            atomic: true,
            relocate: true,
            ..copy(300, 0, len)
        };
        assert_eq!(ftl.remap(&atomic(most + 1)), Err(Refusal::AtomicTooLarge));
        assert_eq!(ftl.remap(&atomic(most)), Ok(()));
        let (mut ftl, _) = recovered(ftl);
        let moved = (0..most).all(|at| {
            (ftl.read(Lpn(at)), ftl.read(Lpn(300 + at)))
                == (Ok(Page::Zeroes), Ok(Page::Identity(u64::from(at) + 1)))
        });
        assert!(moved && ftl.read(Lpn(most)) == Ok(Page::Identity(u64::from(most) + 1)));
    }

    let mut ftl = device(geometry(16), &small_config(SchemeKind::RemapSsd));
    assert_eq!(
        ftl.remap(&Remap {
            atomic: true,
            ..copy(1, 0, 1)
        }),
        Err(Refusal::AtomicUnsupported)
    );
}

#[test]
fn a_block_is_erased_as_often_as_it_endures() {
    for pe_limit in [1, 2, 3] {
        let config = Config {
            pe_limit,
            lpns: 300,
            ..small_config(SchemeKind::None)
        };

        let mut ftl = device(small_geometry(), &config);
        let (mut random, mut written) = (Random(5), 0u64);
        while ftl
            .write(Lpn(random.below(300) as u32), &content(written + 1))
            .is_ok()
        {
            ftl.media_mut().ops.clear();
            written += 1;
            assert!(written < 100_000, "it wears out");
        }
        assert!(ftl.is_read_only());

        let most = *ftl
            .media()
            .erase_counts()
            .iter()
            .max()
            .expect("there are blocks");

        // Contents that the last erase would destroy stay as they are.
        assert_eq!(most, pe_limit - 1, "limit {pe_limit}");
        let used_up = ftl
            .superblocks()
            .filter(|(_, sb)| sb.state == SuperblockState::Closed)
            .count();

        assert!(
            used_up > 12,
            "{used_up} superblocks hold what was written last"
        );
    }
}

#[test]
fn wear_is_levelled_from_the_gap_on() {
    let candidate = |erases| VictimCandidate {
        sb: SbId(1),
        capacity: 9,
        live: 3,
        erases,
        opened: 1,
    };
    let chosen =
        |erases, mean, gap| least_worn([candidate(erases)].into_iter(), mean, gap).is_some();
    assert!(chosen(10, 14.0, 4) && !chosen(10, 13.9, 4) && !chosen(11, 14.0, 4));
    assert!(!chosen(0, 100.0, 0), "0 is off");
}

#[test]
fn zones_begin_where_policies_say() {
    let zones = |policy: GcPolicy| [1, 2, 3, 4, 15].map(|references| policy.zone(references));
    assert_eq!(zones(GcPolicy::Greedy), [0; 5]);
    assert_eq!(zones(GcPolicy::Coldmap), [0, 1, 1, 1, 1]);
    assert_eq!(zones(GcPolicy::Cagc), [0, 1, 2, 2, 2]);
}

/// The reserve is free when a command has ended, whatever the command takes.
#[test]
fn the_reserve_of_free_superblocks_is_never_touched_by_hosts() {
    for scheme in SchemeKind::ALL {
        let geometry = Geometry::new(Shape {
            channels: 1,
            dies: 2,
            superblocks: 48,
            pages_per_block: 8,
        })
        .unwrap();

        let config = Config {
            gc_free: 0.0,
            count_max: 4,
            lpns: 60,
            ..small_config(scheme)
        };

        let tables = config.tables_bytes(&geometry) * 8;
        let config = kit::fullest(
            &geometry,
            &Config {
                log_bytes: tables.max(2 << 10),
                ..config
            },
        );

        let mut ftl = device(geometry, &config);

        // The core's reserve: two for operations in progress and one for each zone of collection.
        let reserve = 2 + config.gc_policy.zones() as u32;
        let mut random = Random(9);

        for step in 0..4000 {
            let lpn = random.below(config.lpns.into()) as u32;
            match random.below(8) {
                0 => ftl
                    .remap(&copy(lpn, random.below(config.lpns.into()) as u32, 1))
                    .unwrap(),
                _ => put(&mut ftl, lpn, 1000 + step),
            }
            ftl.media_mut().ops.clear();
            assert!(
                ftl.free_superblocks() >= reserve,
                "{scheme}, step {step}: {} are free",
                ftl.free_superblocks()
            );
        }
        assert!(ftl.stats().gc_runs > 50);
    }
}

/// An age has 32 bits: that of the current remap, and of one more.
#[test]
fn the_oldest_age_that_can_be_told_is_told() {
    for short in 0..6u64 {
        let mut ftl = kit::small(SchemeKind::Pebble);
        put(&mut ftl, 0, 1);
        ftl.remap(&copy(1, 0, 1)).unwrap();
        let base = ftl.wsn();

        // The life record of the last superblock, which is free, sets the time.
        let now = base + (1 << 32) - short;
        ftl.media_mut()
            .store(23 * 3, now, Purpose::Meta, After::NOTHING);

        let (mut ftl, _) = recovered(ftl);
        assert!(ftl.wsn() >= now);
        ftl.remap(&copy(2, 0, 1)).unwrap();
        assert_eq!(
            ftl.stats().remaps + ftl.stats().demoted_nvram_full,
            1,
            "{short} before the last"
        );

        let (mut ftl, _) = recovered(ftl);
        assert!((0..3).all(|lpn| ftl.read(Lpn(lpn)) == Ok(Page::Identity(1))));
        assert!(short < 5 || ftl.wsn() < base + (1 << 32));
    }
}

/// An entry of Remap-SSD-X covers at most 256 pages, in whichever way the run arose.
#[test]
fn runs_longer_than_an_entry_can_tell_are_divided() {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 4,
        superblocks: 24,
        pages_per_block: 256,
    })
    .unwrap();

    for len in [255, 256, 257, 300, 513] {
        for atomic in [false, true] {
            let len = if atomic { len.min(256) } else { len };
            let entry = if atomic {
                EntrySize::Bytes24
            } else {
                EntrySize::Bytes16
            };
            let config = Config {
                lpns: 4000,
                entry,
                dealloc_slots: 4096,
                log_bytes: 64 << 10,
                ..small_config(SchemeKind::RemapSsdX)
            };
            let mut ftl = device(geometry, &config);
            (0..800).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
            // One command, a command of several pages, and a stream of single ones.
            ftl.remap(&Remap {
                atomic,
                ..copy(1000, 20, len)
            })
            .unwrap();
            (0..len).for_each(|at| {
                ftl.write_more(Lpn(2000 + at), &content(u64::from(at) + 21))
                    .unwrap()
            });
            ftl.end_write();
            (0..len).for_each(|at| put(&mut ftl, 3000 + at, u64::from(at) + 21));
            assert_eq!(
                (ftl.stats().demoted(), ftl.stats().remaps),
                (0, 3 * u64::from(len))
            );
            ftl.check().unwrap();
            let (mut ftl, _) = recovered(ftl);
            for first in [1000, 2000, 3000] {
                let right = (0..len)
                    .all(|at| ftl.read(Lpn(first + at)) == Ok(Page::Identity(u64::from(at) + 21)));
                assert!(
                    right && ftl.read(Lpn(first + len)) == Ok(Page::Zeroes),
                    "{len} pages at {first}, atomic {atomic}"
                );
            }
        }
    }
}

/// A page's offset in its superblock has 21 bits: here all of them are needed.
#[test]
fn a_superblock_may_have_two_million_pages() {
    let geometry = Geometry::new(Shape {
        channels: 8,
        dies: 64,
        superblocks: 8,
        pages_per_block: 1 << 15,
    })
    .unwrap();

    assert_eq!(geometry.pages_per_superblock(), 1 << 21);
    let config = Config {
        lpns: 1000,
        dedup: false,
        ..small_config(SchemeKind::RemapSsd)
    };

    let mut ftl = device(geometry, &config);
    ftl.media_mut().keep_time(false);
    let data = config.data_pages(&geometry);
    for at in 0..data {
        put(&mut ftl, at % 999, u64::from(at) + 1);
    }

    let last = (data - 1) % 999;
    assert_eq!(ftl.stats().remaps, 0);
    ftl.remap(&copy(999, last, 1)).unwrap();
    put(&mut ftl, last, 1);

    let closed = |ftl: &Ftl| {
        ftl.superblocks()
            .filter(|(_, sb)| sb.state == SuperblockState::Closed)
            .count()
    };
    assert_eq!((closed(&ftl), ftl.stats().remaps), (1, 1));

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(
        (ftl.read(Lpn(999)), ftl.read(Lpn(last))),
        (Ok(Page::Identity(data.into())), Ok(Page::Identity(1)))
    );
}
