//! Unreadable heads of NLog's units: the position of one is derived from the others, that of two is
//! not.

use crate::kit::{put, small};
use remap_ssd_ftl::{Ftl, Lpn, RecoveryError, Remap, SchemeKind};
use remap_ssd_media::{Media, Page};

/// LPNs from this one on share the pages of the first ones.
const SHARED: u32 = 300;
const REMAPS: u32 = 150;
/// Words of a unit and units of the log, on a device with 8 KiB for it.
const UNIT_WORDS: usize = 128;
const UNITS: usize = 8;

/// A device with entries in three units, and the addresses of their heads.
fn three_units() -> (Ftl, Vec<usize>) {
    let mut ftl = small(SchemeKind::NLog);
    for lpn in 0..REMAPS {
        put(&mut ftl, lpn, u64::from(lpn) + 1);
        put(&mut ftl, SHARED + lpn, u64::from(lpn) + 5000);
        ftl.remap(&Remap {
            target: Lpn(SHARED + lpn),
            source: Lpn(lpn),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }

    let words = ftl.media().nvram_words();
    let all = (words - UNITS * UNIT_WORDS..words).step_by(UNIT_WORDS);
    let used: Vec<usize> = all.filter(|word| ftl.media().peek(*word) != 0).collect();
    assert_eq!(used.len(), 3, "{REMAPS} entries take three units");
    (ftl, used)
}

fn recovered(ftl: &Ftl, damaged: &[usize]) -> Result<Ftl, RecoveryError> {
    let mut media = Media::from_image(&ftl.media().to_image());
    media.plant(|faults| {
        faults
            .flips
            .extend(damaged.iter().map(|word| (*word, 0b11 << 20)))
    });
    Ftl::recover(media, ftl.config().clone()).map(|(ftl, _)| ftl)
}

#[test]
fn one_head_that_cannot_be_read_loses_nothing() {
    let (ftl, heads) = three_units();
    for head in heads {
        let mut found = recovered(&ftl, &[head]).expect("the others tell its place");
        found.check().unwrap();
        for lpn in 0..REMAPS {
            assert_eq!(
                found.read(Lpn(SHARED + lpn)),
                Ok(Page::Identity(u64::from(lpn) + 1)),
                "LPN {}",
                SHARED + lpn
            );
        }
    }
}

/// Neither position is known, and entries of one unit may be older than those of the other.
#[test]
fn two_heads_that_cannot_be_read_are_refused() {
    let (ftl, heads) = three_units();
    for damaged in [
        [heads[0], heads[1]],
        [heads[0], heads[2]],
        [heads[1], heads[2]],
    ] {
        let refused = match recovered(&ftl, &damaged) {
            Err(error) => error,
            Ok(mut found) => {
                let wrong = |lpn: &u32| {
                    found.read(Lpn(SHARED + lpn)) != Ok(Page::Identity(u64::from(*lpn) + 1))
                };
                panic!(
                    "it goes on without {damaged:?}; {} LPNs are not right",
                    (0..REMAPS).filter(wrong).count()
                );
            }
        };
        assert!(
            matches!(refused, RecoveryError::NvramDamaged { word } if damaged.contains(&word)),
            "{refused}"
        );
    }
}
