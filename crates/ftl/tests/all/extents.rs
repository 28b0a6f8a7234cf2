//! Remap-SSD-X: the cost of runs, counted exactly; splitting them never leaves the device without
//! room.

use crate::kit::{self, content, device, recovered, small_config};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, RecoveryError, Refusal, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Op, OpKind, Page};

/// 16 superblocks of 4 dies x 64 pages; a superblock's head takes one of the first four offsets.
fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 2,
        dies: 4,
        superblocks: 16,
        pages_per_block: 64,
    })
    .expect("valid")
}

fn config() -> Config {
    let firmware = small_config(SchemeKind::RemapSsdX);
    Config {
        lpns: 2000,
        log_bytes: 16 << 10,
        segment_bytes: 256,
        dealloc_slots: 256,
        ..firmware
    }
}

/// LPNs 0 to 99 have distinct contents, in consecutive pages after the head of the first
/// superblock.
fn with_a_file(config: &Config) -> Ftl {
    let mut ftl = device(geometry(), config);
    for lpn in 0..100 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }
    ftl.remap(&copy(1900, 50, 1)).unwrap(); // Takes the group's first segment.
    ftl
}

fn copy(target: u32, source: u32, len: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    }
}

fn ops_of(ftl: &mut Ftl, act: impl FnOnce(&mut Ftl)) -> Vec<Op> {
    ftl.media_mut().ops.clear();
    act(ftl);
    std::mem::take(&mut ftl.media_mut().ops)
}

/// Stores to NVRAM and their bytes; no other operations are allowed.
fn stores(ops: &[Op]) -> (usize, u32) {
    let others: Vec<_> = ops
        .iter()
        .filter(|op| !matches!(op.kind, OpKind::NvWrite | OpKind::Wait))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    let writes = || ops.iter().filter(|op| op.kind == OpKind::NvWrite);
    (writes().count(), writes().map(|op| op.amount).sum())
}

#[test]
fn a_single_page_costs_table_2s_sixteen_bytes_under_either_entry_size() {
    for entry in [EntrySize::Bytes16, EntrySize::Bytes24] {
        let mut ftl = with_a_file(&Config { entry, ..config() });
        assert_eq!(
            stores(&ops_of(&mut ftl, |ftl| ftl
                .remap(&copy(1000, 7, 1))
                .unwrap())),
            (1, 16)
        );
        assert_eq!(
            stores(&ops_of(&mut ftl, |ftl| ftl
                .write(Lpn(1500), &content(8))
                .unwrap())),
            (1, 16),
            "a duplicate"
        );

        // The entry, and the record of the source's deallocation.
        let relocation = Remap {
            relocate: true,
            ..copy(1100, 9, 1)
        };
        assert_eq!(
            stores(&ops_of(&mut ftl, |ftl| ftl.remap(&relocation).unwrap())),
            (2, 16 + 16)
        );
    }
}

#[test]
fn a_copied_run_of_64_pages_costs_one_entry() {
    let mut ftl = with_a_file(&config());
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| ftl
            .remap(&copy(1000, 10, 64))
            .unwrap())),
        (1, 16)
    );
    assert_eq!(ftl.scheme_counter("extents"), 1);

    // In the other direction, overlapping its source.
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| ftl
            .remap(&copy(1010, 1000, 40))
            .unwrap())),
        (1, 16)
    );
    let (mut ftl, _) = recovered(ftl);

    for at in 0..64 {
        let from = if at < 10 {
            at
        } else if at < 50 {
            at - 10
        } else {
            at
        };
        assert_eq!(
            ftl.read(Lpn(1000 + at)),
            Ok(Page::Identity(u64::from(10 + from) + 1))
        );
    }
}

#[test]
fn a_relocated_run_costs_an_entry_of_two_slots_and_a_deallocation() {
    let mut ftl = with_a_file(&config());
    let relocation = Remap {
        relocate: true,
        ..copy(1000, 10, 64)
    };
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| ftl.remap(&relocation).unwrap())),
        (2, 32 + 16)
    );
}

#[test]
fn an_atomic_run_costs_an_entry_the_slot_and_the_commit() {
    let mut ftl = with_a_file(&Config {
        entry: EntrySize::Bytes24,
        ..config()
    });
    let atomic = Remap {
        atomic: true,
        ..copy(1000, 10, 64)
    };
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| ftl.remap(&atomic).unwrap())).1,
        8 + 16 + 8
    );
}

/// A stream of duplicates in the order of their contents: one entry, extended by one word a page.
#[test]
fn a_sequential_stream_of_duplicates_costs_one_entry_and_eight_bytes_a_page() {
    let mut ftl = with_a_file(&config());
    let used = entries(&ftl);
    let ops = ops_of(&mut ftl, |ftl| {
        for at in 0..64 {
            ftl.write(Lpn(1000 + at), &content(u64::from(at) + 11))
                .unwrap();
        }
    });

    assert_eq!(stores(&ops), (64, 16 + 63 * 8));
    assert_eq!(
        (entries(&ftl) - used, ftl.scheme_counter("extensions")),
        (1, 63)
    );

    // Any other command in between ends it: its number is no longer the next one.
    ftl.write(Lpn(1064), &content(75)).unwrap();
    ftl.write(Lpn(1999), &content(500_000)).unwrap();
    ftl.write(Lpn(1065), &content(76)).unwrap();
    assert_eq!(entries(&ftl) - used, 2);

    let (mut ftl, _) = recovered(ftl);
    for at in 0..66 {
        assert_eq!(
            ftl.read(Lpn(1000 + at)),
            Ok(Page::Identity(u64::from(at) + 11))
        );
    }
}

/// A write command of duplicates in the order of their contents costs the same as a copied run. A
/// page with new content ends the run: its program may reclaim, so the run is stored first.
#[test]
fn a_written_run_of_64_duplicates_costs_one_entry() {
    let mut ftl = with_a_file(&config());
    let write = |ftl: &mut Ftl, lpns: std::ops::Range<u32>, content_of: &dyn Fn(u32) -> u64| {
        for lpn in lpns.clone() {
            let content = content(content_of(lpn));
            if lpn + 1 < lpns.end {
                ftl.write_more(Lpn(lpn), &content).unwrap()
            } else {
                ftl.write(Lpn(lpn), &content).unwrap()
            }
        }
    };

    let run = |lpn: u32| u64::from(lpn) - 1000 + 11;
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| write(ftl, 1000..1064, &run))),
        (1, 16)
    );

    // The next command continues this one: the entry is extended.
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| write(ftl, 1064..1080, &run))),
        (1, 8)
    );
    let ops = ops_of(&mut ftl, |ftl| {
        write(ftl, 1200..1220, &|lpn| {
            if lpn == 1210 { 7777 } else { run(lpn - 200) }
        })
    });

    let kinds: Vec<_> = ops
        .iter()
        .map(|op| (op.kind, op.amount))
        .filter(|op| op.0 != OpKind::Wait)
        .collect();
    assert!(
        matches!(
            kinds[..],
            [
                (OpKind::NvWrite, 16),
                (OpKind::Program, _),
                (OpKind::NvWrite, 16)
            ]
        ),
        "{kinds:?}"
    );

    // Any other command ends a multi-page write.
    ftl.write_more(Lpn(1300), &content(11)).unwrap();
    assert_eq!(
        stores(&ops_of(&mut ftl, |ftl| ftl.flush().unwrap())),
        (1, 16)
    );

    let (mut ftl, _) = recovered(ftl);
    for lpn in 1000..1080 {
        assert_eq!(ftl.read(Lpn(lpn)), Ok(Page::Identity(run(lpn))));
    }

    assert_eq!(
        (ftl.read(Lpn(1210)), ftl.read(Lpn(1219))),
        (Ok(Page::Identity(7777)), Ok(Page::Identity(30)))
    );
    assert_eq!(ftl.read(Lpn(1300)), Ok(Page::Identity(11)));
}

fn entries(ftl: &Ftl) -> u32 {
    ftl.superblocks()
        .filter_map(|(id, _)| ftl.group(id))
        .map(|group| group.entries)
        .sum()
}

/// A snapshot: 15 runs of 256 KiB are copied. Includes the segments' heads.
#[test]
fn a_snapshot_takes_a_tenth_of_remap_ssds_nvram_at_most() {
    let cost = |scheme| {
        let mut ftl = device(
            geometry(),
            &Config {
                scheme,
                log_bytes: 128 << 10,
                ..config()
            },
        );
        for lpn in 0..15 * 64 {
            ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
        }
        let ops = ops_of(&mut ftl, |ftl| {
            (0..15).for_each(|run| ftl.remap(&copy(1000 + 64 * run, 64 * run, 64)).unwrap());
        });
        assert_eq!((ftl.stats().remaps, ftl.stats().demoted()), (15 * 64, 0));
        (stores(&ops).1, u64::from(entries(&ftl)))
    };

    let ((paper, paper_entries), (ours, our_entries)) =
        (cost(SchemeKind::RemapSsd), cost(SchemeKind::RemapSsdX));

    // A superblock's end divides a run, and its head divides the first run in it.
    assert!(
        our_entries <= 15 + 2 * 4 && paper_entries == 15 * 64,
        "{our_entries} and {paper_entries} entries"
    );
    assert!(
        10 * ours <= paper && 10 * our_entries <= paper_entries,
        "{ours} and {paper} bytes written"
    );
}

/// Collecting a superblock moves its shared pages as runs: the lookup reads only its entries, the
/// other references of 60 pages become one entry at the new place, and its group's segments are
/// released.
#[test]
fn collecting_a_superblock_moves_a_run_as_one_entry() {
    let mut ftl = device(
        geometry(),
        &Config {
            dedup: false,
            ..config()
        },
    );
    for lpn in 0..1900 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }

    ftl.remap(&copy(1900, 20, 60)).unwrap();

    // Overwritten until a superblock has been collected: the rest of the first one, and a part of
    // the others.
    let rest = (0..20).chain(80..250);
    let mut overwritten = rest
        .chain((250..1900).step_by(3))
        .chain((251..1900).step_by(3));
    let ops = ops_of(&mut ftl, |ftl| {
        while ftl.stats().gc_runs == 0 {
            ftl.write(
                Lpn(overwritten.next().expect("it begins sooner")),
                &content(9000),
            )
            .unwrap();
        }
    });

    let from = ops
        .iter()
        .position(|op| op.kind == OpKind::LookupBegin)
        .expect("a lookup");
    let of = |kind| {
        ops[from..]
            .iter()
            .filter(move |op| op.kind == kind)
            .map(|op| op.amount)
            .collect::<Vec<_>>()
    };

    assert!(
        ftl.stats().gc_programs < 66,
        "the first superblock was collected"
    );
    assert_eq!(of(OpKind::NvRead), [16], "one entry is read");

    let entry: Vec<&Op> = ops[from..]
        .iter()
        .filter(|op| op.kind == OpKind::NvWrite && op.after_pages == 60)
        .collect();
    assert_eq!(
        (entry.len(), entry[0].amount),
        (1, 16),
        "one is written, after 60 pages"
    );

    assert_eq!(of(OpKind::NvClear), [256], "one segment is released");
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(
        report.nvram_bytes,
        8 * ftl.config().nvram_words(&geometry()) as u64,
        "recovery reads NVRAM once"
    );

    for at in 0..60 {
        assert_eq!(
            ftl.read(Lpn(1900 + at)),
            Ok(Page::Identity(u64::from(at) + 21))
        );
    }
}

/// Files and their copies, stored densely; then every other page of both is overwritten until
/// everything has been collected. One entry then becomes one entry per page, more than there is
/// room for: garbage collection copies references without room.
#[test]
fn extents_that_fall_apart_never_leave_the_device_without_room() {
    const HALF: u32 = 1200;
    let config = Config {
        lpns: 2 * HALF,
        log_bytes: 8 << 10,
        segment_bytes: 128,
        dedup: false,
        ..config()
    };

    let mut ftl = device(geometry(), &config);
    let mut random = kit::Random(5);
    let mut expected = vec![0; 2 * HALF as usize];
    let mut next = 1;

    for _ in 0..12 {
        for lpn in 0..HALF {
            ftl.write(Lpn(lpn), &content(next)).unwrap();
            expected[lpn as usize] = next;
            next += 1;
        }
        for at in (0..HALF).step_by(64) {
            ftl.remap(&copy(HALF + at, at, 64.min(HALF - at))).unwrap();
        }
        expected.copy_within(0..HALF as usize, HALF as usize);
        for _ in 0..5 * HALF {
            let lpn = 2 * random.below(u64::from(HALF)) as u32;
            ftl.write(Lpn(lpn), &content(next)).unwrap();
            expected[lpn as usize] = next;
            next += 1;
        }
        ftl.media_mut().ops.clear();
        ftl.check().unwrap();
    }

    let stats = ftl.stats();
    assert!(
        stats.gc_copies > 10,
        "{} references found no room and were copied",
        stats.gc_copies
    );

    let (mut ftl, _) = recovered(ftl);
    for (lpn, content) in expected.into_iter().enumerate() {
        assert_eq!(
            ftl.read(Lpn(lpn as u32)),
            Ok(Page::Identity(content)),
            "LPN {lpn}"
        );
    }
}

/// First word of the newest entry whose first LPN is this one.
fn entry_of(ftl: &mut Ftl, lpn: u32) -> usize {
    let words = ftl.media().nvram_words();
    let base = words - ftl.config().log_bytes as usize / 8;
    let mut names = |at: &usize| {
        let second = ftl.media_mut().load(at + 1).unwrap();
        second & 1 == 1 && (second >> 1) as u32 & 0x7fff_ffff == lpn
    };
    (base..words)
        .step_by(2)
        .rfind(|at| names(at))
        .expect("an entry")
}

#[test]
fn a_damaged_entry_concerns_all_its_pages_and_garbage_collection_repairs_it() {
    let damaged = |word: usize| {
        let mut ftl = with_a_file(&config());
        ftl.remap(&copy(1000, 10, 64)).unwrap();
        let at = entry_of(&mut ftl, 1000) + word;
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(at, 0b11 << 30);
        });
        (ftl, at)
    };

    let (mut ftl, report) = recovered(damaged(0).0);
    assert_eq!((report.lost, ftl.read(Lpn(999))), (64, Ok(Page::Zeroes)));
    assert_eq!(
        (ftl.read(Lpn(1000)), ftl.read(Lpn(1063))),
        (Err(Refusal::MediaError), Err(Refusal::MediaError))
    );

    let (ftl, at) = damaged(1);
    let config = ftl.config().clone();
    let refused = Ftl::recover(ftl.into_media(), config).map(drop);
    assert_eq!(
        refused,
        Err(RecoveryError::NvramDamaged { word: at }),
        "any page might be stale"
    );

    // While power is on, the mapping is known from L2P.
    let (mut ftl, _) = damaged(1);
    let mut random = kit::Random(3);

    for step in 0..20_000 {
        // Everything except the run: its shared pages then have no other owner.
        let lpn = random.below(1800) as u32;
        let lpn = if lpn < 1000 { lpn } else { lpn + 100 };
        ftl.write(Lpn(lpn), &content(10_000 + step)).unwrap();
    }

    ftl.media_mut().ops.clear();
    assert!(ftl.stats().gc_runs > 20);
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);

    for at in 0..64 {
        assert_eq!(
            ftl.read(Lpn(1000 + at)),
            Ok(Page::Identity(u64::from(at) + 11))
        );
    }
}
