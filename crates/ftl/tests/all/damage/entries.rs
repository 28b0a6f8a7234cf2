//! A damaged entry of a remap is corrected or replaced, or its LPN is a media error.

use crate::damage::{churn, copy};
use crate::kit::{self, Random, content, recovered, small};
use remap_ssd_ftl::{Ftl, Lpn, RecoveryError, Refusal, SchemeKind};
use remap_ssd_media::Page;

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
        if entry.is_intact() && entry.target() == Lpn(lpn) {
            found.push(at);
        }
    }
    found
}

fn with_a_remap() -> (Ftl, usize) {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(Lpn(1), &content(11)).unwrap();
    ftl.write(Lpn(2), &content(22)).unwrap();
    ftl.remap(&copy(2, 1)).unwrap();
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
    assert_eq!((ftl.read(Lpn(2)), report.lost), (Ok(Page::Identity(11)), 0));
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
        ftl.read(Lpn(2)),
        Err(Refusal::MediaError),
        "not 22, which was overwritten"
    );
    assert_eq!(ftl.read(Lpn(1)), Ok(Page::Identity(11)));
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

/// While power is on, L2P still has the mapping of a damaged entry.
#[test]
fn garbage_collection_survives_a_damaged_entry() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
        faults.flips.insert(at + 1, 0b11 << 30);
    });
    for lpn in 10..600 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
            .unwrap();
    }

    churn(&mut ftl, &[1, 2], 10_000);
    assert_eq!(
        (ftl.read(Lpn(1)), ftl.read(Lpn(2))),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );

    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.lost, 0);
    assert_eq!(
        (ftl.read(Lpn(1)), ftl.read(Lpn(2))),
        (Ok(Page::Identity(11)), Ok(Page::Identity(11)))
    );
}

/// LPN 2 got the page of LPN 1, was written, and got that page again: two equal entries, with a
/// write in between.
fn remapped_there_and_back(scheme: SchemeKind) -> (Ftl, Vec<usize>) {
    let mut ftl = small(scheme);
    (0..600).for_each(|lpn| {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1000))
            .unwrap()
    });
    ftl.write(Lpn(1), &content(11)).unwrap();
    ftl.remap(&copy(2, 1)).unwrap();
    ftl.write(Lpn(2), &content(22)).unwrap();

    let before: Vec<u64> = (0..ftl.media().nvram_words())
        .map(|at| ftl.media().peek(at))
        .collect();
    ftl.remap(&copy(2, 1)).unwrap();
    let changed = (0..before.len())
        .filter(|at| ftl.media().peek(*at) != before[*at])
        .collect();
    (ftl, changed)
}

/// The older entry must not be used in place of the damaged one: then the write in between would be
/// the newest.
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

            // Garbage collection of flash and of NVRAM, or of NVRAM only.
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
            let read = ftl.read(Lpn(2));
            let is_right = matches!(read, Ok(Page::Identity(11)) | Err(Refusal::MediaError));
            assert!(
                is_right,
                "{scheme}, word {word}, writes {by_writes}: {read:?}"
            );
        }
    }
}

/// A damaged entry leaves its LPN in doubt only once, regardless of later writes.
#[test]
fn an_lpn_that_was_rewritten_is_not_taken_by_the_damaged_entry_again() {
    let (mut ftl, at) = with_a_remap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
    });
    let (mut ftl, _) = recovered(ftl);
    assert_eq!(ftl.read(Lpn(2)), Err(Refusal::MediaError));
    for round in 0..3 {
        ftl.write(Lpn(2), &content(33 + round)).unwrap();
        let (found, report) = recovered(ftl);
        ftl = found;
        assert_eq!(
            (ftl.read(Lpn(2)), report.lost),
            (Ok(Page::Identity(33 + round)), 0)
        );
    }
}

/// The head of the next segment bounds the entry's number.
#[test]
fn a_damaged_entry_that_was_superseded_long_ago_leaves_nothing_in_doubt() {
    let (mut ftl, at) = with_a_remap();
    for target in 10..40 {
        ftl.remap(&copy(target, 1)).unwrap();
        ftl.write(Lpn(target), &content(u64::from(target))).unwrap();
    }
    ftl.write(Lpn(2), &content(44)).unwrap();
    ftl.media_mut().plant(|faults| {
        faults.flips.insert(at, 0b11 << 30);
    });
    let (mut ftl, report) = recovered(ftl);
    assert_eq!((ftl.read(Lpn(2)), report.lost), (Ok(Page::Identity(44)), 0));
}

/// Nothing was stored there: no LPN is in doubt, not even LPN 0.
#[test]
fn damage_where_nothing_is_stored_is_of_no_consequence() {
    let (mut ftl, at) = with_a_remap();
    ftl.write(Lpn(0), &content(7)).unwrap();
    for word in [at + 2, at + 3] {
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(word, 0b11 << 30);
        });
        let (found, report) = recovered(ftl);
        ftl = found;
        assert_eq!(
            (ftl.read(Lpn(0)), ftl.read(Lpn(2)), report.lost),
            (Ok(Page::Identity(7)), Ok(Page::Identity(11)), 0)
        );
        assert!(ftl.media().faults().is_empty(), "and it is zeroed");
    }
}
