//! What cannot be read is a media error or comes from another witness; it is never old data.

mod kit;

use kit::{content, recovered, small};
use remap_ssd_ftl::{Ftl, RecoveryError, Refusal, Remap, SchemeKind};
use remap_ssd_media::{OpKind, Page, Ppn};

/// The flash page that serves an LPN.
fn page_of(ftl: &mut Ftl, lpn: u32) -> Ppn {
    ftl.media_mut().ops.clear();
    ftl.read(lpn).unwrap();
    ftl.media().ops.iter().find(|op| op.kind == OpKind::Read).expect("a flash read").page
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
    for scheme in SchemeKind::ALL.into_iter().filter(|scheme| scheme.is_durable()) {
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
        assert_eq!(ftl.read(5), Err(Refusal::MediaError), "{scheme}: after garbage collection");
        let (mut ftl, _) = recovered(ftl);
        assert_eq!(ftl.read(5), Err(Refusal::MediaError), "{scheme}: after recovery");
        ftl.write(5, &content(3)).unwrap();
        assert_eq!(ftl.read(5), Ok(Page::Identity(3)), "{scheme}: a write heals it");
    }
}

/// First word of every intact entry of an LPN in the scheme's NVRAM.
fn entries_of(ftl: &mut Ftl, lpn: u32) -> Vec<usize> {
    let words = ftl.media().nvram_words();
    let segment = 128 / 8;
    let base = words - (8 << 10) / 8;
    let mut found = Vec::new();
    for at in (base..words).step_by(2).filter(|at| !(at - base).is_multiple_of(segment)) {
        let pair = [ftl.media_mut().load(at).unwrap(), ftl.media_mut().load(at + 1).unwrap()];
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
    ftl.remap(&Remap { target: 2, source: 1, len: 1, relocate: false, atomic: false }).unwrap();
    let at = *entries_of(&mut ftl, 2).last().expect("the remap has an entry");
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
    assert_eq!(ftl.read(2), Err(Refusal::MediaError), "not 22, which was overwritten");
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
    assert_eq!((ftl.read(1), ftl.read(2)), (Ok(Page::Identity(11)), Ok(Page::Identity(11))));
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);
    assert_eq!((ftl.read(1), ftl.read(2)), (Ok(Page::Identity(11)), Ok(Page::Identity(11))));
}

/// The negative control needs no power cut to lose data: a page that moves keeps the owner in its OOB and no other.
#[test]
fn without_reverse_mappings_garbage_collection_loses_every_owner_but_the_first() {
    let mut ftl = small(SchemeKind::Unsafe);
    for lpn in [1, 2] {
        ftl.write(lpn, &content(u64::from(lpn) * 11)).unwrap();
    }
    for (target, source) in [(3, 1), (4, 1), (5, 2)] {
        ftl.remap(&Remap { target, source, len: 1, relocate: false, atomic: false }).unwrap();
    }
    ftl.deallocate(2, 1).unwrap(); // Nobody the device knows owns that page any more.
    churn(&mut ftl, &[1, 2, 3, 4, 5], 10_000);
    ftl.check().unwrap();
    let reads = [1, 2, 3, 4, 5].map(|lpn| ftl.read(lpn).unwrap());
    assert_eq!(reads, [Page::Identity(11), Page::Zeroes, Page::Zeroes, Page::Zeroes, Page::Zeroes]);
    assert_eq!(ftl.stats().lost_references, 3);
}

/// The word of the slot that names LPN 2, after `with_a_remap` on slots.
fn with_a_slot() -> (Ftl, usize) {
    let mut ftl = small(SchemeKind::Pebble);
    ftl.write(1, &content(11)).unwrap();
    ftl.write(2, &content(22)).unwrap();
    let before: Vec<u64> = (0..ftl.media().nvram_words()).map(|at| ftl.media().peek(at)).collect();
    ftl.remap(&Remap { target: 2, source: 1, len: 1, relocate: false, atomic: false }).unwrap();
    let at = (0..before.len()).rev().find(|at| ftl.media().peek(*at) != before[*at]).expect("a slot was filled");
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
            Err(error) => assert!(!outcome && error == RecoveryError::NvramDamaged { word: at }, "{error}"),
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
    assert_eq!((ftl.read(1), ftl.read(2)), (Ok(Page::Identity(11)), Ok(Page::Identity(11))));
}
