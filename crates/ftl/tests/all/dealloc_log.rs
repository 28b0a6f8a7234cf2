//! Records of the deallocation log that are damaged, of another kind, or of an interrupted flush:
//! what each of them may and may not deallocate.

use crate::kit::{device, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, RecoveryError, Refusal, SchemeKind};
use remap_ssd_media::{After, Media, Oob, Page, Ppn, Purpose, StoredPage};

/// A sequence number above all that the device issues here.
const LATE: u64 = 1 << 20;
/// One below that of the write of LPN 20, the 21st.
const EARLY: u64 = 10;

/// A record: its half of the log, its slot, first LPN, pages, number.
#[derive(Clone, Copy)]
struct Record {
    half: u32,
    slot: u32,
    lpn: u32,
    len: u32,
    wsn: u64,
}

fn record(half: u32, slot: u32, lpn: u32, wsn: u64) -> Record {
    Record {
        half,
        slot,
        lpn,
        len: 1,
        wsn,
    }
}

fn config() -> Config {
    Config {
        dedup: false,
        ..small_config(SchemeKind::None)
    }
}

impl Record {
    /// Address of its first word in NVRAM.
    fn at(self) -> usize {
        let log = 3 * small_geometry().superblocks() as usize + 1 + 64;
        log + 2 * (self.half * config().dealloc_slots + self.slot) as usize
    }

    fn store(self, media: &mut Media, is_doubt: bool) {
        let (when, what) = (u64::from(is_doubt) << 1, u64::from(is_doubt) << 63);
        let place = u64::from(self.len) << 32 | u64::from(self.lpn) << 1;
        let words = [self.wsn << 22 | when | 1, what | place | 1];
        media.store_record(self.at(), &words, Purpose::Meta, After::NOTHING);
    }
}

/// 100 LPNs written once, LPN `l` with a number of about `l` + 2 and content `l` + 1; and these
/// records.
fn with(records: &[Record], doubts: &[Record]) -> Media {
    let mut ftl = device(small_geometry(), &config());
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let mut media = ftl.into_media();
    records.iter().for_each(|one| one.store(&mut media, false));
    doubts.iter().for_each(|one| one.store(&mut media, true));
    media
}

/// Damages words, powers on, and reads LPN 20. The result is the same after another power-on, when
/// only the words stored by the first one are left.
fn reads(mut media: Media, damaged: &[usize]) -> Result<Result<Page, Refusal>, RecoveryError> {
    media.plant(|faults| {
        faults
            .flips
            .extend(damaged.iter().map(|at| (*at, 0b11 << 30)));
    });
    let (mut ftl, _) = Ftl::recover(media, config())?;
    ftl.check().expect("whole");
    let found = ftl.read(Lpn(20));
    let again = Media::from_image(&ftl.media().to_image());
    let (mut again, _) = Ftl::recover(again, config())?;
    assert_eq!(again.read(Lpn(20)), found);
    Ok(found)
}

const WRITTEN: Result<Result<Page, Refusal>, RecoveryError> = Ok(Ok(Page::Identity(21)));
const ZEROES: Result<Result<Page, Refusal>, RecoveryError> = Ok(Ok(Page::Zeroes));
const DOUBT: Result<Result<Page, Refusal>, RecoveryError> = Ok(Err(Refusal::MediaError));

#[test]
fn a_deallocation_whose_number_is_damaged_lies_between_those_of_its_neighbours() {
    let lost = record(0, 1, 20, LATE);
    let neighbours = |before: u64, after: &[u64]| {
        let mut records = vec![record(0, 0, 60, before), lost];
        let after = after.iter().zip(2..);
        records.extend(after.map(|(wsn, slot)| record(0, slot, 60 + slot, *wsn)));
        records
    };

    // Older than the write, whatever follows its first neighbour.
    let older = with(&neighbours(1, &[EARLY, LATE]), &[]);
    assert_eq!(reads(older, &[lost.at()]), WRITTEN);
    // Newer than it.
    let newer = with(&neighbours(LATE, &[LATE + 2]), &[]);
    assert_eq!(reads(newer, &[lost.at()]), ZEROES);
    // Undecidable.
    let either = with(&neighbours(EARLY, &[LATE]), &[]);
    assert_eq!(reads(either, &[lost.at()]), DOUBT);
}

/// A cut interrupted a flush, and both halves have records. A damaged record does not show which
/// half is older.
#[test]
fn records_of_the_other_half_say_nothing_of_a_damaged_number() {
    let first = record(1, 0, 20, LATE);
    let newer_before = with(&[record(0, 0, 60, LATE + 5), first], &[]);
    assert_eq!(reads(newer_before, &[first.at()]), DOUBT);

    let last = record(0, 0, 20, LATE);
    let older_behind = with(&[last, record(1, 0, 60, EARLY)], &[]);
    assert_eq!(reads(older_behind, &[last.at()]), DOUBT);
}

#[test]
fn a_damaged_deallocation_of_unknown_pages_is_refused_unless_it_is_older_than_all_of_them() {
    let late = record(0, 0, 20, LATE);
    let damaged = Err(RecoveryError::NvramDamaged {
        word: late.at() + 1,
    });
    assert_eq!(reads(with(&[late], &[]), &[late.at() + 1]), damaged);

    let first = record(0, 0, 20, 1);
    assert_eq!(reads(with(&[first], &[]), &[first.at() + 1]), WRITTEN);
    // Without its number it may be newer than all other witnesses.
    let both = [first.at(), first.at() + 1];
    assert_eq!(reads(with(&[first], &[]), &both), damaged);
}

/// An earlier recovery could not mark the LPN before power failed.
#[test]
fn a_recorded_doubt_is_over_when_the_page_was_written_later() {
    let late = record(1, 0, 20, LATE);
    assert_eq!(reads(with(&[], &[late]), &[]), DOUBT);
    let early = record(1, 0, 20, EARLY);
    assert_eq!(reads(with(&[], &[early]), &[]), WRITTEN);
    // Without its number it may be newer than all other witnesses.
    assert_eq!(reads(with(&[], &[early]), &[early.at()]), DOUBT);
}

/// A device with two lists of LPNs in doubt, and a record that names the second one. The lists have the LPNs 20 and 30. Also returns the
/// lists' pages and the record.
fn with_lists(wsn: u64) -> (Media, [Ppn; 2], Record) {
    let mut media = with(&[], &[]);
    let geometry = small_geometry();
    let next = |media: &Media| {
        let erased = (0..geometry.pages()).map(Ppn);
        let mut in_use = erased.filter(|page| {
            let block_begins = geometry.offset(*page) >= geometry.dies();
            block_begins && media.is_programmed(Ppn(page.0 - geometry.dies()))
        });
        in_use
            .find(|page| !media.is_programmed(*page))
            .expect("a superblock is open")
    };
    let mut list = |previous: u32, lpn: u32| {
        let page = next(&media);
        let bytes: Vec<u8> = [previous, 1, lpn, 1]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        let stored = StoredPage::Meta(bytes.into());
        let oob = Oob::new(Oob::DOUBTS, wsn, 0);
        media
            .program(page, oob, stored, Purpose::Meta, After::NOTHING)
            .expect("programmed");
        page
    };
    let first = list(0, 20);
    let second = list(first.0 + 1, 30);
    let named = Record {
        len: 0,
        ..record(1, 0, second.0, wsn)
    };
    named.store(&mut media, true);
    (media, [first, second], named)
}

#[test]
fn an_lpn_in_a_list_of_doubts_is_in_doubt_unless_it_was_written_later() {
    let (late, ..) = with_lists(LATE);
    assert_eq!(reads(late, &[]), DOUBT);
    let (early, _, named) = with_lists(EARLY);
    assert_eq!(reads(Media::from_image(&early.to_image()), &[]), WRITTEN);
    // The list has the number, too.
    assert_eq!(reads(early, &[named.at()]), WRITTEN);
}

#[test]
fn a_list_of_doubts_that_cannot_be_read_or_found_refuses_recovery() {
    let (late, pages, named) = with_lists(LATE);
    for page in pages {
        let mut damaged = Media::from_image(&late.to_image());
        damaged.plant(|faults| {
            faults.read.insert(page);
        });
        let refused = Err(RecoveryError::DoubtsDamaged { page: page.0 });
        assert_eq!(reads(damaged, &[]), refused);
    }
    let word = named.at() + 1;
    assert_eq!(
        reads(late, &[word]),
        Err(RecoveryError::NvramDamaged { word })
    );
}

#[test]
fn a_record_that_reaches_beyond_the_device_is_none() {
    let reaches = |lpn, len| Record {
        len,
        ..record(0, 0, lpn, LATE)
    };
    let lpns = config().lpns;
    assert_eq!(reads(with(&[reaches(20, lpns - 20)], &[]), &[]), ZEROES);
    assert_eq!(reads(with(&[reaches(20, lpns - 19)], &[]), &[]), WRITTEN);
    assert_eq!(
        reads(with(&[reaches(20, (1 << 31) - 1)], &[]), &[]),
        WRITTEN
    );
}

#[test]
fn a_doubt_or_a_damaged_deallocation_is_of_all_its_pages() {
    let three = |half, first| Record {
        len: 3,
        ..record(half, 0, first, LATE)
    };
    for first in 18..=20 {
        assert_eq!(reads(with(&[], &[three(1, first)]), &[]), DOUBT);
        let damaged = three(0, first);
        assert_eq!(reads(with(&[damaged], &[]), &[damaged.at()]), DOUBT);
    }
    for first in [17, 21] {
        assert_eq!(reads(with(&[], &[three(1, first)]), &[]), WRITTEN);
    }
}

/// A device whose log was flushed after LPNs 0 to 99 were written; its bitmap page, and the
/// bitmap's number.
fn flushed() -> (Ftl, Ppn, u64) {
    let mut ftl = device(small_geometry(), &config());
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    (60..79).for_each(|lpn| ftl.deallocate(Lpn(lpn), 1).unwrap());
    assert_eq!(ftl.stats().dealloc_flushes, 1);

    let bitmap = (0..small_geometry().pages()).map(Ppn).find(|page| {
        ftl.media().is_programmed(*page) && ftl.media().oob(*page).lpn() == Lpn(config().lpns)
    });
    let bitmap = bitmap.expect("it was flushed");
    let number = ftl.media().oob(bitmap).wsn();
    (ftl, bitmap, number)
}

/// A younger bitmap shows that the LPNs had pages.
#[test]
fn a_damaged_deallocation_that_is_older_than_the_bitmap_concerns_nothing() {
    for is_younger in [false, true] {
        let (ftl, _, number) = flushed();
        let mut media = ftl.into_media();
        let free = (0..2)
            .flat_map(|half| (0..config().dealloc_slots).map(move |slot| (half, slot)))
            .find(|(half, slot)| media.peek(record(*half, *slot, 20, 1).at()) == 0);
        let (half, slot) = free.expect("there is room");
        let wsn = if is_younger { LATE } else { number - 1 };
        let lost = record(half, slot, 20, wsn);
        lost.store(&mut media, false);
        let word = lost.at() + 1;
        let expected = if is_younger {
            Err(RecoveryError::NvramDamaged { word })
        } else {
            WRITTEN
        };
        assert_eq!(reads(media, &[word]), expected);
    }
}

#[test]
fn a_bitmap_that_cannot_be_read_matters_only_to_pages_that_are_older() {
    for rewritten in [60, 99, 100] {
        let (mut ftl, bitmap, _) = flushed();
        for lpn in 0..rewritten {
            put(&mut ftl, lpn, u64::from(lpn) + 1);
        }
        let mut media = ftl.into_media();
        media.plant(|faults| {
            faults.read.insert(bitmap);
        });
        let found = Ftl::recover(media, config());
        if rewritten < 100 {
            assert!(found.is_err(), "another one may have been deallocated");
            continue;
        }
        let (mut ftl, _) = found.expect("every page is younger");
        for lpn in 0..100 {
            assert_eq!(ftl.read(Lpn(lpn)), Ok(Page::Identity(u64::from(lpn) + 1)));
        }
    }
}
