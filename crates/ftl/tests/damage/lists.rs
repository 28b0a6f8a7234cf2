//! Damaged words of the lists and bitmaps that stand beside the entries.

use crate::kit::{Random, content, device, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, RecoveryError, Remap, SchemeKind};
use remap_ssd_media::{After, Media, Page, Ppn, Purpose};

/// Copies on flash keep their numbers in the list.
#[test]
fn any_word_of_a_list_of_several_is_told_by_the_sum() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        ..small_config(SchemeKind::None)
    };

    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    for number in 0..5 {
        ftl.media_mut().attach_rail();
        ftl.remap(&Remap {
            target: Lpn(2 * number),
            source: Lpn(50),
            len: 2,
            relocate: false,
            atomic: true,
        })
        .unwrap();
        let mut pending = ftl.media().pending();
        let image = ftl.media().cut(|| {
            pending -= 1;
            if pending == 0 {
                remap_ssd_media::Outcome::Absent
            } else {
                remap_ssd_media::Outcome::Whole
            }
        });
        ftl = Ftl::recover(Media::from_image(&image), config.clone())
            .expect("recovers")
            .0;
        assert_eq!(ftl.aborted().len(), number as usize + 1);
    }

    let image = ftl.media().to_image();
    for word in 1..=5 {
        let mut media = Media::from_image(&image);
        media.plant(|faults| {
            faults.flips.insert(slot + word, 0b11);
        });
        let (mut found, _) = Ftl::recover(media, config.clone()).expect("the sum tells the word");
        assert_eq!(found.aborted().len(), 5);
        assert!(
            (0..100).all(|lpn| found.read(Lpn(lpn)) == Ok(Page::Identity(u64::from(lpn) + 1))),
            "without word {word}"
        );
    }
}

#[test]
fn a_bitmap_that_cannot_be_read_is_written_anew_when_it_moves() {
    let (geometry, mut ftl) = (small_geometry(), small(SchemeKind::RemapSsd));
    (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    (0..40).for_each(|lpn| ftl.deallocate(Lpn(lpn), 1).unwrap());
    let oob = |page: &Ppn| ftl.media().oob(*page);
    let bitmaps = (0..geometry.pages())
        .map(Ppn)
        .filter(|page| ftl.media().is_programmed(*page) && oob(page).lpn() == Lpn(600));
    let bitmap = bitmaps
        .max_by_key(|page| oob(page).wsn())
        .expect("a half of the log was full");

    ftl.media_mut().plant(|faults| {
        faults.read.insert(bitmap);
    });
    let mut random = Random(9);

    while !ftl.media().faults().is_empty() {
        ftl.write(Lpn(100 + random.below(500) as u32), &content(50_000))
            .unwrap();
        ftl.media_mut().ops.clear();
    }

    let (mut ftl, _) = recovered(ftl);
    (0..40).for_each(|lpn| assert_eq!(ftl.read(Lpn(lpn)), Ok(Page::Zeroes)));
    assert_eq!(ftl.read(Lpn(41)), Ok(Page::Identity(42)));
}

/// The slot of an older device is 0: it opens, and has a sum of the aborted commands from then on.
#[test]
fn a_word_of_the_aborted_list_is_told_by_the_sum_once_there_is_one() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config {
        entry: EntrySize::Bytes24,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    ftl.media_mut()
        .store(slot, 0, Purpose::Meta, After::NOTHING);
    let mut older = Media::from_image(&ftl.media().to_image());
    let damage = |media: &mut Media| {
        media.plant(|faults| {
            faults.flips.insert(slot + 1, 0b11);
        });
    };
    damage(&mut older);
    let refused = Ftl::recover(older, config).map(|_| ());
    assert_eq!(refused, Err(RecoveryError::NvramDamaged { word: slot + 1 }));

    // A cut in an atomic command: its number is in the list after recovery.
    let (mut ftl, _) = recovered(ftl);
    ftl.media_mut().attach_rail();
    ftl.remap(&Remap {
        target: Lpn(0),
        source: Lpn(50),
        len: 2,
        relocate: false,
        atomic: true,
    })
    .unwrap();
    let mut pending = ftl.media().pending();
    let image = ftl.media().cut(|| {
        pending -= 1;
        if pending == 0 {
            remap_ssd_media::Outcome::Absent
        } else {
            remap_ssd_media::Outcome::Whole
        }
    });
    let config = ftl.config().clone();
    let mut ftl = Ftl::recover(Media::from_image(&image), config)
        .expect("recovers")
        .0;
    assert_eq!(ftl.aborted().len(), 1);
    for _ in 0..2 {
        damage(ftl.media_mut());
        ftl = recovered(ftl).0;
        assert_eq!(
            [ftl.read(Lpn(0)), ftl.read(Lpn(1))],
            [Ok(Page::Identity(1)), Ok(Page::Identity(2))]
        );
    }
}
