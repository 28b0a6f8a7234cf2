//! The cost of each operation, counted exactly: no noise, and a worse algorithm fails at once.

use crate::kit::{self, content, device, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, Op, OpKind, Purpose};

fn ops_of(ftl: &mut Ftl, act: impl FnOnce(&mut Ftl)) -> Vec<Op> {
    ftl.media_mut().ops.clear();
    act(ftl);
    std::mem::take(&mut ftl.media_mut().ops)
}

fn count(ops: &[Op], kind: OpKind) -> usize {
    ops.iter().filter(|op| op.kind == kind).count()
}

fn bytes(ops: &[Op], kind: OpKind) -> u32 {
    ops.iter()
        .filter(|op| op.kind == kind)
        .map(|op| op.amount)
        .sum()
}

fn remap(target: u32, source: u32, len: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len,
        relocate: false,
        atomic: false,
    }
}

#[test]
fn a_remap_is_two_nvram_stores_and_no_program() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(Lpn(0), &content(1)).unwrap();
    ftl.remap(&remap(1, 0, 1)).unwrap(); // Takes the group's first segment.
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(2, 0, 1)).unwrap());
    assert_eq!(bytes(&ops, OpKind::NvWrite), 16);
    assert_eq!(count(&ops, OpKind::NvWrite), 1);
    assert_eq!(
        count(&ops, OpKind::Program) + count(&ops, OpKind::Read) + count(&ops, OpKind::NvRead),
        0
    );
}

#[test]
fn a_new_segment_costs_its_head_and_the_link_to_it() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(Lpn(0), &content(1)).unwrap();
    // 128-byte segments have seven slots for entries.
    for target in 1..8 {
        ftl.remap(&remap(target, 0, 1)).unwrap();
    }
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(8, 0, 1)).unwrap());
    assert_eq!(
        bytes(&ops, OpKind::NvWrite),
        8 + 16 + 16,
        "late next-link, head, entry"
    );
}

#[test]
fn a_duplicate_write_costs_what_a_remap_costs() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(Lpn(0), &content(7)).unwrap();
    ftl.write(Lpn(1), &content(7)).unwrap();
    let ops = ops_of(&mut ftl, |ftl| ftl.write(Lpn(2), &content(7)).unwrap());
    assert_eq!(
        (bytes(&ops, OpKind::NvWrite), count(&ops, OpKind::Program)),
        (16, 0)
    );
}

#[test]
fn without_remapping_every_duplicate_is_a_program() {
    let mut ftl = small(SchemeKind::None);
    ftl.write(Lpn(0), &content(7)).unwrap();
    let ops = ops_of(&mut ftl, |ftl| ftl.write(Lpn(1), &content(7)).unwrap());
    assert_eq!(count(&ops, OpKind::Program), 1);
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(2, 0, 1)).unwrap());
    assert_eq!(
        (count(&ops, OpKind::Read), count(&ops, OpKind::Program)),
        (1, 1)
    );
}

#[test]
fn opt_remaps_for_nothing() {
    let mut ftl = small(SchemeKind::Opt);
    ftl.write(Lpn(0), &content(7)).unwrap();
    assert!(
        ops_of(&mut ftl, |ftl| ftl.remap(&remap(1, 0, 1)).unwrap())
            .iter()
            .all(|op| op.kind == OpKind::Wait)
    );
}

/// With two slots a page: an entry in place, plus L2P; a page write changes both tables as well.
#[test]
fn a_remap_in_place_is_one_store_and_one_to_l2p() {
    let mut ftl = small(SchemeKind::Pebble);
    let write = ops_of(&mut ftl, |ftl| ftl.write(Lpn(0), &content(1)).unwrap());
    let host = write
        .iter()
        .filter(|op| op.kind == OpKind::NvWrite && op.purpose == Purpose::Host);
    assert_eq!(
        host.map(|op| op.amount).sum::<u32>(),
        16,
        "a word of L2P and one of P2L"
    );

    ftl.remap(&remap(1, 0, 1)).unwrap(); // Writes the head of the superblock's room.
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(2, 0, 1)).unwrap());
    assert_eq!(
        (bytes(&ops, OpKind::NvWrite), count(&ops, OpKind::NvWrite)),
        (16, 2)
    );
    assert_eq!(
        count(&ops, OpKind::Program) + count(&ops, OpKind::Read) + count(&ops, OpKind::NvRead),
        0
    );

    // Both slots are taken: the third remap is a copy.
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(3, 0, 1)).unwrap());
    assert_eq!(
        (
            count(&ops, OpKind::Read),
            count(&ops, OpKind::Program),
            ftl.stats().demoted_degree_full
        ),
        (1, 1, 1)
    );

    // One of the owners is gone: its slot is reused.
    ftl.write(Lpn(1), &content(9)).unwrap();
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(4, 0, 1)).unwrap());
    assert_eq!(
        (
            bytes(&ops, OpKind::NvWrite),
            count(&ops, OpKind::Program),
            ftl.scheme_counter("slots_reused")
        ),
        (16, 0, 1)
    );
}

/// A page that is moved repeatedly needs two slots: the new entry must not overwrite the one it
/// supersedes.
#[test]
fn a_chain_of_moves_programs_nothing() {
    let mut ftl = small(SchemeKind::Pebble);
    ftl.write(Lpn(0), &content(1)).unwrap();
    ftl.remap(&Remap {
        relocate: true,
        ..remap(1, 0, 1)
    })
    .unwrap();

    for lpn in 1..100 {
        let ops = ops_of(&mut ftl, |ftl| {
            ftl.remap(&Remap {
                relocate: true,
                ..remap(lpn + 1, lpn, 1)
            })
            .unwrap()
        });
        // An entry, L2P of both LPNs, and the record of the source's deallocation; occasionally
        // bitmaps of such records.
        let host = ops
            .iter()
            .filter(|op| op.kind == OpKind::NvWrite && op.purpose == Purpose::Host);
        assert_eq!(host.map(|op| op.amount).sum::<u32>(), 8 + 16 + 16);
    }

    assert_eq!(
        (
            ftl.stats().remaps,
            ftl.stats().demoted(),
            ftl.stats().host_programs
        ),
        (100, 0, 1)
    );

    let (mut ftl, _) = recovered(ftl);
    assert_eq!(ftl.read(Lpn(100)), Ok(remap_ssd_media::Page::Identity(1)));
    assert!((0..100).all(|lpn| !ftl.is_mapped(Lpn(lpn))));
}

#[test]
fn collecting_a_superblock_reads_its_live_pages_slots_and_zeroes_all() {
    let mut ftl = small(SchemeKind::Pebble);
    let mut random = kit::Random(3);
    let (mut lookups, mut cleared) = (0, 0);

    for _ in 0..6000 {
        let identity = 1 + random.below(500);
        let lpn = random.below(600) as u32;
        let live: Vec<u32> = ftl
            .superblocks()
            .map(|(id, _)| ftl.owners(id).live)
            .collect();
        let ops = ops_of(&mut ftl, |ftl| {
            ftl.write(Lpn(lpn), &content(identity)).unwrap()
        });
        for clear in ops
            .iter()
            .filter(|op| op.kind == OpKind::NvClear && op.amount != 16 * 16)
        {
            assert_eq!(clear.amount, 64 * 16, "two slots for each of 64 pages");
            cleared += 1;
        }
        if let Some(begin) = ops.iter().position(|op| op.kind == OpKind::LookupBegin) {
            let end = ops
                .iter()
                .position(|op| op.kind == OpKind::LookupEnd)
                .expect("ends");
            let read = bytes(&ops[begin..end], OpKind::NvRead);
            assert!(
                read == 0 || live.contains(&(read / 16)),
                "{read} bytes for one of {live:?} live pages"
            );
            lookups += 1;
        }
    }

    assert!(
        lookups > 20 && cleared > 20,
        "{lookups} lookups, {cleared} rooms zeroed"
    );

    let words = ftl.media().nvram_words() as u64;
    let (_, report) = recovered(ftl);
    assert_eq!(report.nvram_bytes, words * 8);
}

/// An age has 32 bits. Time jumps here, as it may with a damaged life record.
#[test]
fn a_remap_whose_age_cannot_be_told_is_a_copy() {
    let mut ftl = small(SchemeKind::Pebble);
    ftl.write(Lpn(0), &content(1)).unwrap();
    ftl.remap(&remap(1, 0, 1)).unwrap();
    let far = 1u64 << 33;

    ftl.media_mut()
        .store(23 * 3, far, Purpose::Meta, After::NOTHING); // The last superblock, which is free.
    let (mut ftl, _) = recovered(ftl);
    assert!(ftl.wsn() >= far);

    ftl.remap(&remap(2, 0, 1)).unwrap();
    assert_eq!((ftl.stats().demoted_nvram_full, ftl.stats().remaps), (1, 0));
    ftl.remap(&remap(3, 2, 1)).unwrap();
    assert_eq!(ftl.stats().remaps, 0, "the copy is in the same superblock");

    for lpn in 10..200 {
        ftl.write(Lpn(lpn), &content(1000 + u64::from(lpn)))
            .unwrap();
    }

    ftl.remap(&remap(4, 199, 1)).unwrap();
    assert_eq!(ftl.stats().remaps, 1, "a younger superblock can tell");
    let (mut ftl, _) = recovered(ftl);
    let read = [0, 1, 2, 3, 4].map(|lpn| ftl.read(Lpn(lpn)).unwrap());
    assert_eq!(
        read,
        [1, 1, 1, 1, 1199].map(remap_ssd_media::Page::Identity)
    );
}

#[test]
fn a_trim_of_any_length_is_one_record() {
    let mut ftl = small(SchemeKind::RemapSsd);
    for lpn in 0..100 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }
    for len in [1, 100, 600] {
        let ops = ops_of(&mut ftl, |ftl| ftl.deallocate(Lpn(0), len).unwrap());
        assert_eq!(
            (bytes(&ops, OpKind::NvWrite), count(&ops, OpKind::Program)),
            (16, 0),
            "{len} pages"
        );
    }
}

/// The lookup before a victim is emptied: one group for Remap-SSD, the whole log for the others.
#[test]
fn finding_owners_reads_one_group_or_the_whole_log() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::NLog, SchemeKind::FLog] {
        let mut ftl = small(scheme);
        let mut random = kit::Random(3);
        let (mut lookups, mut most) = (0, 0);

        for _ in 0..6000 {
            let identity = 1 + random.below(500);
            let lpn = random.below(600) as u32;
            let used = ftl.usage().used_bytes;
            let ops = ops_of(&mut ftl, |ftl| {
                ftl.write(Lpn(lpn), &content(identity)).unwrap()
            });
            let Some(begin) = ops.iter().position(|op| op.kind == OpKind::LookupBegin) else {
                continue;
            };
            let end = ops
                .iter()
                .position(|op| op.kind == OpKind::LookupEnd)
                .expect("ends");
            let scans = &ops[begin..end];
            lookups += 1;
            match scheme {
                SchemeKind::FLog => {
                    let pages = bytes(scans, OpKind::ScanFlash);
                    most = most.max(pages);
                    // The entries that were read are also scanned.
                    assert_eq!(bytes(scans, OpKind::NvRead) == 0, pages == 0);
                }
                SchemeKind::NLog => {
                    assert!(u64::from(bytes(scans, OpKind::NvRead)) >= used.saturating_sub(16))
                }
                _ => assert!(
                    u64::from(bytes(scans, OpKind::NvRead)) <= ftl.usage().largest_group_seen_bytes
                ),
            }
        }

        assert!(lookups > 20, "{scheme}: {lookups} lookups");
        assert!(
            scheme != SchemeKind::FLog || most >= 6,
            "FLog read at most {most} pages of its log"
        );
    }
}

/// Recovery reads head pages, tail pages, OOB areas of open superblocks and NVRAM: counted on the
/// papers' setup A with 120 MB of remapping metadata.
#[test]
fn recovery_of_setup_a_reads_heads_tails_open_oobs_and_nvram() {
    let geometry = Geometry::new(Shape {
        channels: 8,
        dies: 16,
        superblocks: 576,
        pages_per_block: 1024,
    })
    .unwrap();

    let config = Config {
        lpns: 8 << 20,
        log_bytes: 120 << 20,
        ..Config::default()
    };

    let mut ftl = device(geometry, &config);
    let mut random = kit::Random(9);
    let contents = u64::from(config.lpns) * 7 / 10;

    for _ in 0..6_000_000 {
        let lpn = random.below(u64::from(config.lpns) * 9 / 10) as u32;
        ftl.write(Lpn(lpn), &content(1 + random.below(contents)))
            .unwrap();
        ftl.media_mut().ops.clear();
    }

    let closed = ftl
        .superblocks()
        .filter(|(_, sb)| sb.state == remap_ssd_ftl::SuperblockState::Closed)
        .count() as u64;
    let open: Vec<_> = ftl
        .superblocks()
        .filter(|(_, sb)| sb.state == remap_ssd_ftl::SuperblockState::Open)
        .map(|(id, _)| id)
        .collect();

    let media = ftl.media();
    let mut oobs = 0;
    for sb in &open {
        for die in 0..geometry.dies() {
            let rows = u64::from(media.next_row(geometry.block(*sb, die)));
            oobs += (rows + 1).min(u64::from(geometry.pages_per_block())); // And the first erased page.
        }
    }

    let reads_before = media.counts.reads;
    assert!(closed > 100 && !open.is_empty());
    let (ftl, report) = recovered(ftl);
    assert_eq!(report.head_pages, 576);
    assert_eq!(
        report.tail_pages,
        closed * 41 + open.len() as u64,
        "41 tail pages each; an open one has none"
    );

    assert_eq!(report.oob_pages, oobs);
    assert_eq!(
        report.nvram_bytes,
        (config.nvram_words(&geometry) * 8) as u64
    );
    assert_eq!((report.bitmap_pages, report.log_pages), (0, 0));

    let flash = report.head_pages + report.tail_pages + report.oob_pages;
    let reads = ftl.media().counts.reads - reads_before;
    assert_eq!(reads, flash, "and no flash page besides");
}

#[test]
fn recovery_of_a_small_device_reads_no_data_page() {
    let geometry = small_geometry();
    let mut ftl = device(geometry, &small_config(SchemeKind::RemapSsd));
    for lpn in 0..300 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn % 50) + 1))
            .unwrap();
    }
    let before = ftl.media().counts.reads;
    let (ftl, report) = recovered(ftl);
    let told = report.head_pages + report.tail_pages + report.oob_pages;
    assert_eq!(ftl.media().counts.reads - before, told);
}

fn journaled(pages: u32) -> Ftl {
    // Lost mappings are recorded at least every 64 pages, or every half of the slots.
    let config = Config {
        dealloc_slots: 128,
        ..small_config(SchemeKind::WalSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    for at in 0..pages {
        ftl.write_for(Lpn(at), &content(u64::from(at) + 1), Lpn(300 + at))
            .unwrap();
    }
    ftl
}

/// Forwards or backwards, with or without relocation: the deallocation of the sources is a separate
/// record.
#[test]
fn a_checkpoint_of_any_length_is_one_commit_record() {
    for len in [1, 8, 60] {
        for relocate in [false, true] {
            let mut ftl = journaled(60);
            let command = Remap {
                target: Lpn(300),
                source: Lpn(0),
                len,
                relocate,
                atomic: false,
            };

            let ops = ops_of(&mut ftl, |ftl| ftl.remap(&command).unwrap());
            let records = 1 + usize::from(relocate);
            assert_eq!(
                (
                    bytes(&ops, OpKind::NvWrite) as usize,
                    count(&ops, OpKind::NvWrite)
                ),
                (16 * records, records)
            );

            assert_eq!(
                count(&ops, OpKind::Program)
                    + count(&ops, OpKind::Read)
                    + count(&ops, OpKind::NvRead),
                0
            );
            assert_eq!(
                (ftl.stats().remaps, ftl.stats().demoted()),
                (u64::from(len), 0)
            );
        }
    }
}

#[test]
fn a_page_that_has_another_home_is_copied() {
    let mut ftl = journaled(8);
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(301, 0, 1)).unwrap());
    assert_eq!(
        (
            count(&ops, OpKind::Read),
            count(&ops, OpKind::Program),
            count(&ops, OpKind::NvWrite)
        ),
        (1, 1, 0)
    );
    assert_eq!(ftl.stats().demoted_unhinted, 1);
    // The home's own page has no home.
    ftl.remap(&remap(300, 0, 1)).unwrap();
    ftl.deallocate(Lpn(0), 1).unwrap();
    ftl.remap(&remap(0, 300, 1)).unwrap();
    assert_eq!((ftl.stats().demoted_unhinted, ftl.stats().remaps), (2, 1));
    ftl.check().unwrap();
}

/// A victim whose pages have two owners each: no lookup, one read and one program per page, and the
/// clearing of its records.
#[test]
fn collecting_pages_with_homes_costs_no_metadata() {
    let mut ftl = journaled(60);
    ftl.remap(&Remap {
        target: Lpn(300),
        source: Lpn(0),
        len: 60,
        relocate: false,
        atomic: false,
    })
    .unwrap();

    let mut random = kit::Random(5);
    let (mut looked, mut moved) = (0, 0);
    for step in 0..6000u64 {
        let lpn = 100 + random.below(200) as u32;
        let before = ftl.stats();
        let ops = ops_of(&mut ftl, |ftl| {
            ftl.write(Lpn(lpn), &content(1000 + step)).unwrap()
        });
        let stats = ftl.stats() - before;
        let copies = (stats.gc_programs + stats.host_programs + stats.meta_programs) as usize;
        assert_eq!(
            (count(&ops, OpKind::Program), count(&ops, OpKind::Read)),
            (copies, stats.gc_programs as usize)
        );
        assert_eq!(
            count(&ops, OpKind::NvRead) + count(&ops, OpKind::ScanFlash),
            0
        );
        looked += count(&ops, OpKind::LookupBegin);
        moved += stats.gc_programs;
    }

    // Cold pages move only for wear levelling or if nothing else is left; ensure that some did.
    assert!(looked > 20 && moved > 0, "{looked} {moved}");
    ftl.check().unwrap();
    let (mut ftl, report) = recovered(ftl);
    for at in 0..60 {
        assert_eq!(ftl.read(Lpn(at)).unwrap(), ftl.read(Lpn(300 + at)).unwrap());
    }

    assert_eq!(
        report.nvram_bytes,
        (ftl.config().nvram_words(&small_geometry()) * 8) as u64
    );
}

#[test]
fn a_device_with_homes_has_larger_tails() {
    let geometry = Geometry::new(Shape {
        channels: 8,
        dies: 16,
        superblocks: 576,
        pages_per_block: 1024,
    })
    .unwrap();

    let tails = |scheme| {
        Config {
            scheme,
            ..Config::default()
        }
        .tail_pages(&geometry)
    };

    assert_eq!(
        (tails(SchemeKind::RemapSsd), tails(SchemeKind::WalSsd)),
        (41, 57)
    );
}
