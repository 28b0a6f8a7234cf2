//! Damaged words of the lists and bitmaps in addition to the entries.

use crate::kit::{Random, content, device, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, RecoveryError, Remap, SchemeKind};
use remap_ssd_media::{After, Media, OpKind, Outcome, Page, Ppn, Purpose};

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
                Outcome::Absent
            } else {
                Outcome::Whole
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

/// A device with an unreadable bitmap of deallocations, located where hosts overwrite. LPN 15 is
/// deallocated, and its old page is on flash.
fn with_an_unreadable_bitmap() -> Ftl {
    let mut ftl = small(SchemeKind::RemapSsd);
    (0..600).for_each(|lpn| ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap());
    (1..20).for_each(|lpn| ftl.deallocate(Lpn(15 * lpn), 1).unwrap());
    let bitmap = newest_bitmap(&ftl);
    ftl.media_mut().plant(|faults| {
        faults.read.insert(bitmap);
    });
    ftl
}

fn newest_bitmap(ftl: &Ftl) -> Ppn {
    let pages = (0..small_geometry().pages()).map(Ppn);
    let oob = |page: &Ppn| ftl.media().oob(*page);
    pages
        .filter(|page| ftl.media().is_programmed(*page) && oob(page).lpn() == Lpn(600))
        .max_by_key(|page| oob(page).wsn())
        .expect("a half of the log was full")
}

/// It does not list a page that was written since as deallocated. If a cut left it without that
/// page, the page's old content would come back.
#[test]
fn a_bitmap_that_is_written_anew_waits_for_the_writes_that_it_knows_of() {
    let overwrite = |ftl: &mut Ftl, random: &mut Random| {
        let lpn = Lpn(300 + random.below(300) as u32);
        ftl.write_more(lpn, &content(50_000 + random.below(1 << 30)))
            .unwrap();
    };
    let (mut ftl, mut random) = (with_an_unreadable_bitmap(), Random(9));
    let (old, mut steps) = (newest_bitmap(&ftl), 0);
    while newest_bitmap(&ftl) == old {
        overwrite(&mut ftl, &mut random);
        steps += 1;
    }

    for early in 1..4 {
        let (mut ftl, mut random) = (with_an_unreadable_bitmap(), Random(9));
        (early..steps).for_each(|_| overwrite(&mut ftl, &mut random));
        ftl.media_mut().ops.clear();
        ftl.media_mut().attach_rail();

        // None of it is acknowledged before the request ends.
        ftl.write_more(Lpn(15), &content(49_999)).unwrap();
        while newest_bitmap(&ftl) == old {
            overwrite(&mut ftl, &mut random);
        }

        // A cut may undo any program, including that of LPN 15.
        let (mut at, mut programs, mut left_out) = (0, 1, 0);
        while at < programs {
            programs = 0;
            let image = ftl.media().cut_by(|kind| {
                let is_program = kind == OpKind::Program;
                programs += u32::from(is_program);
                if is_program && programs == at + 1 {
                    Outcome::Absent
                } else {
                    Outcome::Whole
                }
            });
            at += 1;

            let found = Ftl::recover(Media::from_image(&image), ftl.config().clone());
            let (mut found, _) = found.expect("recovers");
            match found.read(Lpn(15)) {
                Ok(Page::Identity(49_999)) => {}
                read => {
                    assert_eq!(read, Ok(Page::Zeroes), "{at} of {programs}, {early} before");
                    left_out += 1;
                }
            }
            assert_eq!(found.read(Lpn(16)), Ok(Page::Identity(17)));
        }
        assert!(left_out > 0, "{programs} programs");
    }
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
            Outcome::Absent
        } else {
            Outcome::Whole
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
