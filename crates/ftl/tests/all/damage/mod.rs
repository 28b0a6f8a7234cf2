//! Unreadable data is a media error or comes from another witness; it is never old data.

mod entries;
mod lists;
mod logs;

use crate::kit::{self, Random, content, device, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, RecoveryError, Refusal, Remap, SchemeKind, SuperblockState};
use remap_ssd_media::{OpKind, Page, Ppn, SbId};

/// A remap of one page.
fn copy(target: u32, source: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len: 1,
        relocate: false,
        atomic: false,
    }
}

/// The flash page that serves an LPN.
fn page_of(ftl: &mut Ftl, lpn: u32) -> Ppn {
    ftl.media_mut().ops.clear();
    ftl.read(Lpn(lpn)).unwrap();
    ftl.media()
        .ops
        .iter()
        .find(|op| op.kind == OpKind::Read)
        .expect("a flash read")
        .page
}

/// Overwrites everything except the given LPNs until garbage collection has been everywhere.
fn churn(ftl: &mut Ftl, spared: &[u32], from: u64) {
    let mut random = kit::Random(7);
    for step in 0..8000u64 {
        let lpn = random.below(600) as u32;
        if !spared.contains(&lpn) {
            ftl.write(Lpn(lpn), &content(from + step)).unwrap();
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
        ftl.write(Lpn(5), &content(1)).unwrap();
        ftl.write(Lpn(5), &content(2)).unwrap();
        for lpn in 10..300 {
            ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
                .unwrap();
        }
        let page = page_of(&mut ftl, 5);
        ftl.media_mut().plant(|faults| {
            faults.read.insert(page);
        });
        assert_eq!(ftl.read(Lpn(5)), Err(Refusal::MediaError), "{scheme}");
        churn(&mut ftl, &[5], 10_000);
        assert!(ftl.stats().gc_runs > 20);
        assert_eq!(
            ftl.read(Lpn(5)),
            Err(Refusal::MediaError),
            "{scheme}: after garbage collection"
        );
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(
            ftl.read(Lpn(5)),
            Err(Refusal::MediaError),
            "{scheme}: after recovery"
        );
        ftl.write(Lpn(5), &content(3)).unwrap();
        assert_eq!(
            ftl.read(Lpn(5)),
            Ok(Page::Identity(3)),
            "{scheme}: a write heals it"
        );
    }
}

/// The negative control loses data even without a power cut: a page that moves keeps only the owner
/// in its OOB.
#[test]
fn without_reverse_mappings_garbage_collection_loses_every_owner_but_the_first() {
    let mut ftl = small(SchemeKind::Unsafe);
    for lpn in [1, 2] {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) * 11)).unwrap();
    }

    for (target, source) in [(3, 1), (4, 1), (5, 2)] {
        ftl.remap(&copy(target, source)).unwrap();
    }

    ftl.deallocate(Lpn(2), 1).unwrap(); // No owner known to the device is left.
    churn(&mut ftl, &[1, 2, 3, 4, 5], 10_000);
    ftl.check().unwrap();
    let reads = [1, 2, 3, 4, 5].map(|lpn| ftl.read(Lpn(lpn)).unwrap());
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
    ftl.write(Lpn(1), &content(11)).unwrap();
    ftl.write(Lpn(2), &content(22)).unwrap();
    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();
    ftl.remap(&copy(2, 1)).unwrap();
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
                assert_eq!(ftl.read(Lpn(2)), Ok(Page::Identity(11)));
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
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
            .unwrap();
    }

    churn(&mut ftl, &[1, 2], 10_000);
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);
    assert_eq!(
        (ftl.read(Lpn(1)), ftl.read(Lpn(2))),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );
}

/// A block excluded long ago keeps its contents, including a dead head.
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
            sb.bad.has(0) && sb.state == SuperblockState::Closed && ftl.owners(SbId(0)).live > 20
        };
        let mut step = 0;
        while step < 3000 || !is_as_wanted(&ftl) {
            step += 1;
            let lpn = random.below(600) as u32;
            ftl.write(Lpn(lpn), &content(step)).unwrap();
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
                assert_eq!(ftl.read(Lpn(lpn)), Ok(expected), "word {word}");
            }
        }
    }
}
