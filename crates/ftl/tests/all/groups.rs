//! Superblocks that span only some of the dies (FAST'21, note 2): the differences, counted exactly.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind, SuperblockState};
use remap_ssd_media::{OpKind, Purpose, SbId};
use std::collections::BTreeSet;

/// 24 blocks on each of 4 dies, superblocks of `dies` dies.
fn grouped(dies: u32) -> Ftl {
    let geometry = small_geometry().with_superblock_dies(dies).unwrap();
    device(geometry, &small_config(SchemeKind::RemapSsd))
}

#[test]
fn a_scheme_without_entries_shows_no_groups() {
    for scheme in [SchemeKind::None, SchemeKind::Opt, SchemeKind::Unsafe] {
        let mut ftl = device(small_geometry(), &small_config(scheme));
        ftl.write(Lpn(0), &content(1)).unwrap();
        let all = 0..small_geometry().superblocks();
        assert!(all.map(SbId).all(|sb| ftl.group(sb).is_none()), "{scheme}");
    }
}

#[test]
fn writes_are_striped_over_all_dies_whatever_a_superblock_spans() {
    for dies in [1, 2, 4] {
        let mut ftl = grouped(dies);
        let programs = |ftl: &mut Ftl| -> Vec<u16> {
            let own = |op: &&remap_ssd_media::Op| {
                op.kind == OpKind::Program && op.purpose == Purpose::Host
            };
            ftl.media()
                .ops
                .iter()
                .filter(own)
                .map(|op| op.die)
                .collect()
        };

        for lpn in 0..16 {
            ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
        }

        let first = programs(&mut ftl);
        assert_eq!(
            first.iter().collect::<BTreeSet<_>>().len(),
            4,
            "{dies}: {first:?}"
        );

        ftl.media_mut().ops.clear();
        (16..32).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        let dies_of_rows = programs(&mut ftl);
        assert!(
            dies_of_rows
                .chunks(4)
                .all(|row| row.iter().collect::<BTreeSet<_>>().len() == 4),
            "{dies_of_rows:?}"
        );

        let open = ftl
            .superblocks()
            .filter(|(_, sb)| sb.state == SuperblockState::Open)
            .count();
        assert_eq!(open as u32, 4 / dies, "one in each group of dies");
    }
}

/// A superblock of w dies has a head, and a tail page for each 409 pages; a segment group belongs
/// to one superblock, so entries for pages of four blocks take one segment or four.
#[test]
fn narrow_superblocks_cost_heads_and_tails_and_segments() {
    for (dies, metadata, segments) in [(4, 1, 1), (2, 2, 2), (1, 4, 4)] {
        let mut ftl = grouped(dies);
        (0..56).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
        assert_eq!(ftl.stats().meta_programs, metadata, "{dies}: heads");

        ftl.media_mut().ops.clear();
        for lpn in 0..4 {
            ftl.remap(&Remap {
                target: Lpn(100 + lpn),
                source: Lpn(lpn),
                len: 1,
                relocate: false,
                atomic: false,
            })
            .unwrap();
        }

        // Four entries of 16 bytes; a segment's head takes 16.
        let written: u32 = ftl
            .media()
            .ops
            .iter()
            .filter(|op| op.kind == OpKind::NvWrite)
            .map(|op| op.amount)
            .sum();

        assert_eq!(written, 4 * 16 + segments * 16, "{dies}");
        assert_eq!(ftl.usage().used_bytes, u64::from(segments) * 128, "{dies}");
    }
}

/// Collecting a superblock of one block reads only the entries of that block, and frees one block.
#[test]
fn collecting_a_narrow_superblock_reads_its_own_group_and_erases_its_own_blocks() {
    for dies in [1, 2, 4] {
        let mut ftl = grouped(dies);
        let (mut random, mut collected) = (Random(3), 0);
        for _ in 0..12_000 {
            let (lpn, identity) = (random.below(600) as u32, 1 + random.below(450));
            let (runs, erases) = (ftl.stats().gc_runs, ftl.media().counts.erases);
            ftl.write(Lpn(lpn), &content(identity)).unwrap();
            ftl.media_mut().ops.clear();
            let runs = ftl.stats().gc_runs - runs;
            assert_eq!(ftl.media().counts.erases - erases, runs * u64::from(dies));
            collected += runs;
        }

        assert!(collected > 20, "{dies}: {collected}");
        ftl.check().unwrap();
        let mapped: Vec<_> = (0..600).map(|lpn| ftl.read(Lpn(lpn)).unwrap()).collect();
        let (mut ftl, _) = recovered(ftl);
        assert!((0..600).all(|lpn| ftl.read(Lpn(lpn)).unwrap() == mapped[lpn as usize]));
    }
}

/// A page that is written again or moved goes to the dies of its LPN, and recovery changes nothing.
#[test]
fn lpns_name_the_dies_of_their_pages_if_they_shall() {
    const LPNS: u32 = 600;
    for dies in [1, 2] {
        let geometry = small_geometry().with_superblock_dies(dies).unwrap();
        let groups = 4 / dies;
        let strays = |die_by_lpn| {
            let config = Config {
                die_by_lpn,
                dedup: false,
                ..small_config(SchemeKind::RemapSsd)
            };
            let mut ftl = device(geometry, &config);
            let mut random = Random(5);
            for identity in 0..12_000 {
                let lpn = match identity {
                    0..600 => identity as u32,
                    _ => random.below(LPNS.into()) as u32,
                };
                ftl.write(Lpn(lpn), &content(identity + 1)).unwrap();
            }
            assert!(ftl.stats().gc_programs > 1000, "{:?}", ftl.stats());
            ftl.check().unwrap();
            let (mut ftl, _) = recovered(ftl);
            let is_stray = |lpn: &u32| {
                ftl.media_mut().ops.clear();
                ftl.read(Lpn(*lpn)).unwrap();
                let die = u32::from(ftl.media().ops[0].die);
                die / dies != lpn % groups
            };
            (0..LPNS).filter(is_stray).count() as u32
        };
        assert!(strays(false) > LPNS / 4, "{dies}");
        // A few find no free superblock on their own dies.
        assert!(strays(true) < LPNS / 20, "{dies}: {}", strays(true));
    }
}

#[test]
fn what_cannot_be_is_said() {
    let geometry = small_geometry();
    let error = geometry.with_superblock_dies(3).unwrap_err().to_string();
    assert!(
        error.contains("superblock_dies = 3 must divide the 4 dies"),
        "{error}"
    );
    let narrow = geometry.with_superblock_dies(2).unwrap();
    let error = small_config(SchemeKind::FLog)
        .check(&narrow)
        .unwrap_err()
        .to_string();
    assert!(error.contains("keeps entries on flash"), "{error}");
    assert_eq!(narrow.with_superblock_dies(4).unwrap(), geometry);
}
