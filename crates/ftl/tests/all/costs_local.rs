//! The cost of local logs, counted exactly: under a capacitor, in NVRAM with flash for the
//! overflow, and on flash.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, GroupInfo, Lpn, Remap, SchemeKind, SchemeValues, Stream};
use remap_ssd_media::{Op, OpKind, Purpose, SbId};

/// Entries per page on these devices: an eighth of an 8 KiB log.
const SLOTS: usize = 64;

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

/// 40 LPNs written to one superblock.
fn filled(config: &Config) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    for lpn in 0..40 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }
    ftl
}

fn remap_onto(ftl: &mut Ftl, target: u32) -> Vec<Op> {
    let remap = Remap {
        target: Lpn(target),
        source: Lpn(target % 40),
        len: 1,
        relocate: false,
        atomic: false,
    };
    ops_of(ftl, |ftl| ftl.remap(&remap).unwrap())
}

#[test]
fn under_a_capacitor_a_remap_is_nothing_and_a_page_of_them_one_program() {
    let config = Config {
        scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 4),
        ..small_config(SchemeKind::LocalFlash)
    };
    let mut ftl = filled(&config);
    let mut programs = Vec::new();

    for index in 0..3 * SLOTS {
        let ops = remap_onto(&mut ftl, 40 + index as u32);
        assert_eq!(
            count(&ops, OpKind::NvWrite) + count(&ops, OpKind::Read) + count(&ops, OpKind::NvRead),
            0
        );
        programs.extend(std::iter::repeat_n(index, count(&ops, OpKind::Program)));
    }

    // The first page comes with the head of the log's superblock.
    assert_eq!(
        programs,
        [SLOTS, SLOTS, 2 * SLOTS],
        "one program for {SLOTS} remaps"
    );
}

/// With a small cache the fullest superblock's entries are flushed, however few they are: a program
/// for each flush.
#[test]
fn a_small_cache_programs_pages_that_are_mostly_empty() {
    let config = Config {
        scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
        dedup: false,
        ..small_config(SchemeKind::LocalFlash)
    };

    let mut ftl = device(small_geometry(), &config);
    for lpn in 0..300 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }

    // A second implementation of the rule: with two slots left, the superblock with the most cached
    // entries is flushed.
    let (mut cached, mut flushed, mut flushes, mut programs) = ([0; 5], 0, 0, 0);
    let mut random = Random(5);

    for target in 300..430 {
        // 62 pages fill a superblock.
        let source = random.below(300) as u32;
        if cached.iter().sum::<usize>() >= SLOTS - 2 {
            let fullest = (0..5)
                .max_by_key(|sb| (cached[*sb], std::cmp::Reverse(*sb)))
                .unwrap();
            flushed += std::mem::take(&mut cached[fullest]);
            flushes += 1;
        }
        cached[source as usize / 62] += 1;
        let remap = Remap {
            target: Lpn(target),
            source: Lpn(source),
            len: 1,
            relocate: false,
            atomic: false,
        };
        programs += count(
            &ops_of(&mut ftl, |ftl| ftl.remap(&remap).unwrap()),
            OpKind::Program,
        );
    }

    assert_eq!(
        programs,
        flushes + 1,
        "and the head of the log's superblock"
    );
    assert!(
        flushes <= 7,
        "as many pages as the log has: none is rewritten"
    );

    assert!(
        flushed / flushes < SLOTS / 3,
        "{flushes} pages of {SLOTS} entries for {flushed} entries"
    );
}

#[test]
fn a_group_leaves_nvram_in_as_many_programs_as_its_valid_entries_fill_pages() {
    let mut ftl = filled(&small_config(SchemeKind::RemapSsdLh));

    // 64 segments of 7 entries; the largest group is destaged when two are free: after the first
    // entry of the 62nd segment.
    let before = 61 * 7 + 1;

    for index in 0..before {
        let ops = remap_onto(&mut ftl, 40 + index);
        assert_eq!(
            bytes(&ops, OpKind::NvWrite),
            16 + if index % 7 == 0 {
                16 + if index > 0 { 8 } else { 0 }
            } else {
                0
            }
        );
        assert_eq!(
            count(&ops, OpKind::Program) + count(&ops, OpKind::NvRead),
            0
        );
    }

    let ops = remap_onto(&mut ftl, 40 + before);
    assert_eq!(
        count(&ops, OpKind::Program),
        1 + (before as usize).div_ceil(SLOTS),
        "the log's head, and the group"
    );
    assert_eq!(bytes(&ops, OpKind::NvRead), 16 * before);
    assert_eq!(bytes(&ops, OpKind::NvClear), 62 * 128);
    assert_eq!(
        bytes(&ops, OpKind::NvWrite),
        16 + 16,
        "a head and the entry"
    );
}

/// The lookup before collecting a superblock reads only that superblock's pages of entries and
/// entries in NVRAM.
#[test]
fn finding_owners_reads_the_pages_and_segments_of_one_superblock() {
    for (scheme, cache_pages) in [(SchemeKind::LocalFlash, 1), (SchemeKind::RemapSsdLh, 64)] {
        let config = Config {
            scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", cache_pages),
            log_bytes: 4 << 10,
            // A lookup and the first move of its collection belong to one write.
            gc_at_once: true,
            ..small_config(scheme)
        };

        let mut ftl = device(small_geometry(), &config);
        let geometry = small_geometry();
        let (mut random, mut lookups, mut pages) = (Random(3), 0, 0);

        for _ in 0..20_000 {
            let (lpn, identity) = (random.below(600) as u32, 1 + random.below(450));
            let groups: Vec<GroupInfo> = (0..geometry.superblocks())
                .map(|sb| ftl.group(SbId(sb)).unwrap_or_default())
                .collect();
            let metadata = (ftl.scheme_counter("destages"), ftl.stats().metadata_gc_runs);
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
            let moved = ops[end..]
                .iter()
                .find(|op| op.kind == OpKind::Read && op.purpose == Purpose::Gc);
            // The superblock is unknown if no page is moved or groups change in between.
            let Some(read) = moved.filter(|_| {
                metadata == (ftl.scheme_counter("destages"), ftl.stats().metadata_gc_runs)
            }) else {
                continue;
            };
            let group = &groups[geometry.superblock(read.page).0 as usize];
            let nvram = if scheme == SchemeKind::LocalFlash {
                0
            } else {
                16 * group.entries
            };
            assert_eq!(
                bytes(&ops[begin..end], OpKind::ScanFlash),
                group.flash_pages,
                "{scheme}"
            );
            assert_eq!(bytes(&ops[begin..end], OpKind::NvRead), nvram, "{scheme}");
            lookups += 1;
            pages += group.flash_pages;
        }

        assert!(
            lookups > 8 && pages > 10,
            "{scheme}: {lookups} lookups, {pages} pages of entries"
        );
        ftl.check().unwrap();
    }
}

#[test]
fn recovery_reads_every_page_of_entries_once() {
    for scheme in [SchemeKind::LocalFlash, SchemeKind::RemapSsdLh] {
        let geometry = small_geometry();
        let mut ftl = device(
            geometry,
            &Config {
                scheme_values: SchemeValues::of(SchemeKind::LocalFlash, "cache_pages", 1),
                log_bytes: 4 << 10,
                ..small_config(scheme)
            },
        );

        let mut random = Random(8);
        for _ in 0..5000 {
            ftl.write(
                Lpn(random.below(600) as u32),
                &content(1 + random.below(450)),
            )
            .unwrap();
        }

        let logs: Vec<SbId> = ftl
            .superblocks()
            .filter(|(_, sb)| {
                sb.stream == Stream::Log
                    && matches!(
                        sb.state,
                        remap_ssd_ftl::SuperblockState::Open
                            | remap_ssd_ftl::SuperblockState::Closed
                    )
            })
            .map(|(id, _)| id)
            .collect();

        let rows = |sb: &SbId| {
            (0..geometry.dies())
                .map(|die| ftl.media().next_row(geometry.block(*sb, die)))
                .sum::<u32>()
        };

        let pages = u64::from(logs.iter().map(rows).sum::<u32>());
        let mapped: Vec<bool> = (0..600).map(|lpn| ftl.is_mapped(Lpn(lpn))).collect();
        let before = ftl.media().counts.reads;
        let (ftl, report) = recovered(ftl);
        assert!(pages > 8, "{scheme}");
        assert_eq!(
            report.log_pages, pages,
            "heads of the log's superblocks among them"
        );

        let told = report.head_pages
            + report.tail_pages
            + report.oob_pages
            + report.bitmap_pages
            + report.log_pages;
        assert_eq!(ftl.media().counts.reads - before, told);
        assert!((0..600).all(|lpn| ftl.is_mapped(Lpn(lpn)) == mapped[lpn as usize]));
    }
}
