//! Until the end of life: blocks wear out at their limit, the device shrinks, and at its end all
//! data can still be read.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, GcPolicy, Lpn, Refusal, Remap, SchemeKind};
use remap_ssd_media::{OpKind, Page};

const LPNS: u32 = 400;
const LIMIT: u32 = 12;

fn config(scheme: SchemeKind, policy: GcPolicy) -> Config {
    Config {
        lpns: LPNS,
        gc_policy: policy,
        gc_free: 0.3,
        pe_limit: LIMIT,
        ..small_config(scheme)
    }
}

/// Writes until the device refuses; returns the expected contents of each LPN.
fn wear_out(ftl: &mut Ftl, contents: u64) -> Vec<Page> {
    let mut model = vec![Page::Zeroes; LPNS as usize];
    let mut random = Random(7);
    let mut usable = ftl.usable_pages();

    for _ in 0..1_000_000 {
        let (lpn, identity) = (random.below(LPNS.into()) as u32, 1 + random.below(contents));
        let result = ftl.write(Lpn(lpn), &content(identity));
        ftl.media_mut().ops.clear();
        assert!(ftl.usable_pages() <= usable, "capacity never grows");
        usable = ftl.usable_pages();
        match result {
            Ok(()) => model[lpn as usize] = Page::Identity(identity),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::ReadOnly);
                return model;
            }
        }
    }
    panic!("the device does not wear out");
}

fn reads(ftl: &mut Ftl) -> Vec<Page> {
    (0..LPNS)
        .map(|lpn| ftl.read(Lpn(lpn)).expect("worn blocks can be read"))
        .collect()
}

#[test]
fn a_worn_out_device_refuses_changes_keeps_its_data_and_outlives_power() {
    for scheme in [
        SchemeKind::None,
        SchemeKind::RemapSsd,
        SchemeKind::FLog,
        SchemeKind::NLog,
    ] {
        for policy in GcPolicy::ALL {
            let name = format!("{scheme} with {policy}");
            let mut ftl = device(small_geometry(), &config(scheme, policy));
            let whole = ftl.usable_pages();
            let model = wear_out(&mut ftl, 900);
            ftl.check().expect("consistent");
            assert!(ftl.is_read_only() && ftl.usable_pages() < whole, "{name}");
            assert!(
                ftl.stats().blocks_worn > 0 && ftl.first_retired().is_some(),
                "{name}"
            );
            let geometry = small_geometry();
            let most = (0..geometry.blocks())
                .map(|block| ftl.media().erase_count(remap_ssd_media::BlockId(block)))
                .max();
            assert!(
                most.is_some_and(|most| (LIMIT - 1..=LIMIT).contains(&most)),
                "{name}: {most:?} erases"
            );
            assert!(ftl.free_superblocks() > 0, "{name}: recovery has room");
            let remap = Remap {
                target: Lpn(0),
                source: Lpn(1),
                len: 1,
                relocate: false,
                atomic: false,
            };
            assert_eq!(ftl.remap(&remap), Err(Refusal::ReadOnly), "{name}");
            assert_eq!(ftl.deallocate(Lpn(0), 1), Err(Refusal::ReadOnly), "{name}");
            assert_eq!(
                ftl.write(Lpn(LPNS), &content(1)),
                Err(Refusal::OutOfRange),
                "{name}"
            );
            assert_eq!(reads(&mut ftl), model, "{name}");
            for _ in 0..3 {
                (ftl, _) = recovered(ftl);
                assert_eq!(reads(&mut ftl), model, "{name}, after recovery");
            }
        }
    }
}

/// Collecting a superblock in its last cycle would move its pages and gain nothing, so it never
/// happens. The end comes when every other one is as full as possible, with the reserve untouched.
#[test]
fn a_device_lives_about_as_long_as_its_blocks_endure() {
    let mut ftl = device(
        small_geometry(),
        &config(SchemeKind::None, GcPolicy::Greedy),
    );
    wear_out(&mut ftl, 900);
    let geometry = small_geometry();
    let erases: u64 = ftl
        .media()
        .erase_counts()
        .iter()
        .map(|count| u64::from(*count))
        .sum();
    let endured = u64::from(LIMIT * geometry.blocks());
    assert!(
        erases * 10 > endured * 8,
        "{erases} of {endured} erases were used"
    );
}

#[test]
fn without_a_limit_nothing_is_retired() {
    let mut ftl = device(
        small_geometry(),
        &Config {
            pe_limit: 0,
            ..config(SchemeKind::RemapSsd, GcPolicy::Coldmap)
        },
    );
    let mut random = Random(7);
    for _ in 0..30_000 {
        ftl.write(
            Lpn(random.below(LPNS.into()) as u32),
            &content(1 + random.below(900)),
        )
        .expect("it never wears out");
    }
    ftl.media_mut().ops.retain(|op| op.kind == OpKind::Erase);
    assert!(ftl.media().ops.len() > 2 * LIMIT as usize && ftl.stats().blocks_worn == 0);
}

/// The figure is the number of pages the host had written when the first block wore out. It is
/// absent before that, and does not change when more blocks follow.
#[test]
fn the_first_worn_block_is_the_one_whose_time_is_kept() {
    let config = config(SchemeKind::None, GcPolicy::Greedy);
    let mut ftl = device(small_geometry(), &config);
    let (mut random, mut first) = (Random(7), None);

    let worn = loop {
        let lpn = Lpn(random.below(LPNS.into()) as u32);
        let is_written = ftl.write(lpn, &content(1 + random.below(900))).is_ok();
        ftl.media_mut().ops.clear();
        let worn = ftl.stats().blocks_worn;
        if worn > 0 && first.is_none() {
            // While the last write was made, which may not have been counted yet.
            first = ftl.first_retired();
            let written = ftl.stats().host_writes;
            assert!(
                first.is_some_and(|pages| (written - 1..=written).contains(&pages)),
                "{first:?} of {written} pages"
            );
        }
        assert_eq!(ftl.first_retired(), first, "{worn} blocks are worn");
        if !is_written {
            break worn;
        }
    };
    assert!(
        worn > u64::from(small_geometry().dies_total()),
        "more blocks followed"
    );
}
