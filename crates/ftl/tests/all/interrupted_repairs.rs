//! Recovery from damage, interrupted by a second cut: an LPN in doubt stays in doubt, or the doubt
//! has been resolved permanently.

use crate::kit::{Random, content, device, put, small_config, small_geometry};
use remap_ssd_ftl::scheme::RmmEntry;
use remap_ssd_ftl::{
    Config, EntrySize, Ftl, Lpn, Refusal, Remap, SchemeKind, Stream, SuperblockState,
};
use remap_ssd_media::{After, Media, Oob, OpKind, Outcome, Page, Ppn, Purpose, StoredPage};
use std::ops::Range;

/// Recovers damaged media and cuts the power; `outcome` determines the result of recovery's
/// operations, by number and, for programs, by page. Words that were not rewritten stay damaged.
/// Returns the number of operations.
fn interrupted(
    media: &mut Media,
    config: &Config,
    outcome: impl Fn(usize, Option<Ppn>) -> Outcome,
) -> usize {
    let mut faults = media.faults().clone();
    let mut found = Media::from_image(&media.to_image());
    found.plant(|planted| *planted = faults.clone());
    found.attach_rail();

    let (ftl, _) = Ftl::recover(found, config.clone()).expect("recovers");
    let mut programs = ftl
        .media()
        .ops
        .iter()
        .filter(|op| op.kind == OpKind::Program)
        .map(|op| op.page);

    let mut asked = 0;
    let image = ftl.media().cut_by(|kind| {
        asked += 1;
        outcome(
            asked - 1,
            if kind == OpKind::Program {
                programs.next()
            } else {
                None
            },
        )
    });

    let mut left = Media::from_image(&image);
    faults
        .flips
        .retain(|word, _| left.peek(*word) == media.peek(*word));
    left.plant(|planted| *planted = faults);
    *media = left;
    asked
}

/// A copy of the media with its damage.
fn copied(media: &Media) -> Media {
    let mut copy = Media::from_image(&media.to_image());
    copy.plant(|faults| *faults = media.faults().clone());
    copy
}

/// The number of an aborted command keeps its place in the list while the word that held it is
/// damaged.
#[test]
fn a_damaged_word_of_the_aborted_list_keeps_its_number_through_a_cut() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config {
        entry: EntrySize::Bytes24,
        dedup: false,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    ftl.remap(&Remap {
        target: Lpn(0),
        source: Lpn(50),
        len: 2,
        relocate: false,
        atomic: true,
    })
    .unwrap();
    // All but the commit.
    let mut pending = ftl.media().pending();
    let image = ftl.media().cut(|| {
        pending -= 1;
        if pending == 0 {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
    let (mut ftl, _) = Ftl::recover(Media::from_image(&image), config.clone()).expect("recovers");
    assert_eq!(ftl.aborted().len(), 1);

    // The state after the previous number in the list has been removed.
    let number = ftl.media().peek(slot + 1);
    ftl.media_mut()
        .store(slot + 1, 0, Purpose::Meta, After::NOTHING);
    ftl.media_mut()
        .store(slot + 2, number, Purpose::Meta, After::NOTHING);
    let image = ftl.media().to_image();
    let (mut at, mut pending) = (0, 1);
    while at < pending {
        let mut left = Media::from_image(&image);
        left.plant(|faults| {
            faults.flips.insert(slot + 2, 0b11);
        });
        pending = interrupted(&mut left, &config, |op, _| {
            if op == at {
                Outcome::Whole
            } else {
                Outcome::Absent
            }
        });
        at += 1;
        let (mut ftl, _) = Ftl::recover(left, config.clone()).expect("recovers");
        let found: Vec<_> = (0..100).map(|lpn| ftl.read(Lpn(lpn))).collect();
        assert!(
            (1..)
                .zip(&found)
                .all(|(identity, read)| *read == Ok(Page::Identity(identity))),
            "operation {at}"
        );
    }
}

/// A sequence number above all that are issued here before a cut.
const NUMBER: u64 = 1 << 20;

/// The words of the deallocation log.
fn log() -> Range<usize> {
    let first = 3 * small_geometry().superblocks() as usize + 1 + 64;
    first..first + 2 * 2 * small_config(SchemeKind::RemapSsd).dealloc_slots as usize
}

fn config() -> Config {
    Config {
        dedup: false,
        ..small_config(SchemeKind::RemapSsd)
    }
}

/// The LPNs that are remapped: each is as it was before, or has what the one before it has.
const REMAPPED: [u32; 40] = {
    let mut lpns = [0; 40];
    let mut index = 0;
    while index < lpns.len() {
        lpns[index] = 2 + 4 * index as u32;
        index += 1;
    }
    lpns
};

/// A nearly full device on which the first `remapped` of these LPNs are in doubt.
fn in_doubt(remapped: usize) -> (Ftl, Media) {
    let mut ftl = device(small_geometry(), &config());
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    for target in &REMAPPED[..remapped] {
        ftl.remap(&Remap {
            target: Lpn(*target),
            source: Lpn(target - 1),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }

    let mut random = Random(3);
    while ftl.stats().gc_runs < 50 {
        put(&mut ftl, 200 + random.below(400) as u32, 1000);
    }

    let mut media = Media::from_image(&ftl.media().to_image());
    media.plant(|faults| {
        let entries = REMAPPED[..remapped]
            .iter()
            .flat_map(|lpn| entries_of(&ftl, *lpn));
        faults.flips.extend(entries.map(|at| (at, 0b11 << 30)));
    });
    (ftl, media)
}

fn is_head(page: Ppn) -> bool {
    page.0 % 64 == small_geometry().superblock(page).0 % 4
}

/// Cuts recoveries, so that no store lands and each page but heads is torn, until the next one would have to collect before it can mark the
/// LPNs in doubt. `records`: number of records in each half of the deallocation log, which deallocate LPNs from 402
/// on. If both halves have records, recovery flushes the log.
fn without_room_for_doubts(remapped: usize, records: [u32; 2]) -> Media {
    let (_, mut media) = in_doubt(remapped);
    loop {
        let mut before = copied(&media);
        let mut probe = copied(&media);
        probe.attach_rail();
        let (ftl, _) = Ftl::recover(probe, config()).expect("recovers");
        if ftl.media().ops.iter().any(|op| op.kind == OpKind::Erase) {
            for (half, records) in (0..).zip(records) {
                for slot in 0..records {
                    let at = log().start + (half * config().dealloc_slots + slot) as usize * 2;
                    let words = [NUMBER << 22 | 1, 1 << 32 | u64::from(402 + slot) << 1 | 1];
                    before.store_record(at, &words, Purpose::Meta, After::NOTHING);
                }
            }
            return before;
        }
        interrupted(&mut media, &config(), |_, page| match page {
            Some(page) if is_head(page) => Outcome::Whole,
            Some(_) => Outcome::Torn(0),
            None => Outcome::Absent,
        });
    }
}

/// As long as the superblock that is being filled has a page, the damaged word is zeroed after it.
#[test]
fn an_lpn_in_doubt_stays_in_doubt_while_there_is_a_page_for_it() {
    let (ftl, mut media) = in_doubt(1);
    let geometry = small_geometry();
    let mut superblocks = ftl.superblocks();
    let (sb, _) = superblocks
        .find(|(_, sb)| sb.state == SuperblockState::Open && sb.stream == Stream::Host)
        .expect("the host's superblock");
    let is_left = |offset: &u32| !media.is_programmed(geometry.page(sb, *offset));
    let left = (0..geometry.pages_per_superblock()).filter(is_left).count();
    let left = left - config().tail_pages(&geometry) as usize;
    assert!(left > 1);

    let mut rounds = 0;
    while !media.faults().is_empty() {
        rounds += 1;
        interrupted(&mut media, &config(), |_, page| match page {
            Some(page) if !is_head(page) => Outcome::Torn(0),
            _ => Outcome::Whole,
        });
    }
    assert_eq!(rounds, left + 1, "the word is zeroed after a record");
}

/// Recovers twice, and once more after LPN 2 was written: until then all that were remapped are in doubt.
fn is_in_doubt(mut left: Media, remapped: usize, records: [u32; 2], what: &str) {
    for written in [511, 2] {
        let (mut ftl, _) = Ftl::recover(left, config()).expect("recovers");
        ftl.check().unwrap();
        for lpn in &REMAPPED[..remapped] {
            assert_eq!(
                ftl.read(Lpn(*lpn)),
                Err(Refusal::MediaError),
                "{what}: LPN {lpn} is not what it was before"
            );
            let source = Page::Identity(u64::from(*lpn));
            assert_eq!(ftl.read(Lpn(lpn - 1)), Ok(source), "{what}");
        }
        assert!(
            (0..records[0]).all(|slot| ftl.read(Lpn(402 + slot)) == Ok(Page::Zeroes)),
            "{what}: they were deallocated"
        );
        let is_of_doubt =
            |at| ftl.media().peek(at) & 0b10 != 0 || ftl.media().peek(at + 1) >> 63 != 0;
        assert!(
            !log().step_by(2).any(is_of_doubt),
            "{what}: a record that is not needed"
        );
        let is_flushed = records[1] > 0;
        assert!(
            ftl.stats().dealloc_flushes <= u64::from(is_flushed),
            "{what}: there is no flash to spare"
        );
        put(&mut ftl, written, 2000);
        left = Media::from_image(&ftl.media().to_image());
    }

    let (mut ftl, _) = Ftl::recover(left, config()).expect("recovers");
    assert_eq!(ftl.read(Lpn(2)), Ok(Page::Identity(2000)), "{what}");
}

/// One LPN in doubt, for which there is a record; and more of them than the deallocation log has free slots, which a page lists. With records
/// in the log, and with an interrupted flush.
const CASES: [(usize, [u32; 2]); 6] = [
    (1, [0, 0]),
    (1, [2, 0]),
    (1, [1, 1]),
    (40, [0, 0]),
    (40, [2, 0]),
    (40, [1, 1]),
];

/// Cuts the next recovery after each of its operations: the LPNs stay in doubt.
fn stays_in_doubt(media: &Media, remapped: usize, records: [u32; 2]) {
    let (mut at, mut pending, mut healed) = (0, 1, 0);
    while at < pending {
        let mut left = copied(media);
        pending = interrupted(&mut left, &config(), |op, _| {
            if op <= at {
                Outcome::Whole
            } else {
                Outcome::Absent
            }
        });
        healed += usize::from(left.faults().is_empty());
        at += 1;
        let what = format!("{remapped} in doubt, after {at} of {pending} operations");
        is_in_doubt(left, remapped, records, &what);
    }

    assert!(
        healed > 10,
        "the word was zeroed before {healed} of {pending} cuts"
    );
}

/// Collection must come before the page that marks the LPN in doubt, and the damaged word is zeroed
/// before that page exists: until then a record holds the doubt, whichever operation is the last
/// one before the cut.
#[test]
fn an_lpn_in_doubt_stays_in_doubt_while_its_page_waits_for_collection() {
    for (remapped, records) in CASES {
        let media = without_room_for_doubts(remapped, records);
        stays_in_doubt(&media, remapped, records);
    }
}

/// Earlier cuts have left a part of a record of a doubt in each slot for them.
#[test]
fn slots_with_parts_of_records_take_doubts() {
    let mut media = without_room_for_doubts(1, [0, 0]);
    for slot in config().dealloc_slots..2 * config().dealloc_slots {
        let first = log().start + slot as usize * 2;
        media.store(first, NUMBER << 22 | 0b11, Purpose::Meta, After::NOTHING);
    }
    stays_in_doubt(&media, 1, [0, 0]);
}

/// The next recovery finds the record, and so does the one after it, whichever operations each of
/// them lost.
#[test]
fn an_lpn_in_doubt_stays_in_doubt_through_several_cuts() {
    let mut random = Random(7);
    for (remapped, records) in CASES {
        let media = without_room_for_doubts(remapped, records);
        for script in 0..200 {
            let mut left = copied(&media);
            for _ in 0..1 + random.below(3) {
                let outcomes: Vec<u64> = (0..400).map(|_| random.below(16)).collect();
                let (whole, end) = (random.below(17), random.below(60) as usize);
                interrupted(&mut left, &config(), |op, _| match outcomes[op.min(399)] {
                    draw if op < end || draw < whole => Outcome::Whole,
                    15 => Outcome::Torn(op as u64),
                    _ => Outcome::Absent,
                });
            }
            is_in_doubt(
                left,
                remapped,
                records,
                &format!("{remapped} in doubt, script {script}"),
            );
        }
    }
}

/// A slot is reused while the zeroes over its doubt are pending, and the cut comes between two
/// words.
#[test]
fn a_deallocation_over_a_doubt_counts_as_a_whole() {
    let config = Config {
        dedup: false,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    for (when, what) in [(0, 1 << 63), (1 << 1, 0)] {
        let mut media = Media::from_image(&ftl.media().to_image());
        let words = [NUMBER << 22 | when | 1, what | 1 << 32 | 20 << 1 | 1];
        media.store_record(log().start, &words, Purpose::Meta, After::NOTHING);
        let (mut ftl, _) = Ftl::recover(media, config.clone()).expect("recovers");
        assert_eq!(ftl.read(Lpn(20)), Ok(Page::Identity(21)));
    }
}

/// Without its number, a deallocation may belong to an interrupted command. Even if it is newer
/// than all other witnesses of its LPNs, as the record before it shows, it must not take effect.
#[test]
fn a_damaged_deallocation_of_an_interrupted_command_takes_nothing_away() {
    for records_before in 0..2 {
        let config = Config {
            entry: EntrySize::Bytes24,
            dedup: false,
            ..small_config(SchemeKind::None)
        };
        let mut ftl = device(small_geometry(), &config);
        (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        (0..records_before).for_each(|record| ftl.deallocate(Lpn(99 - record), 1).unwrap());

        ftl.media_mut().attach_rail();
        // From unmapped pages.
        ftl.remap(&Remap {
            target: Lpn(0),
            source: Lpn(200),
            len: 2,
            relocate: false,
            atomic: true,
        })
        .unwrap();
        let mut pending = ftl.media().pending();
        let mut media = Media::from_image(&ftl.media().cut(|| {
            pending -= 1;
            if pending == 0 {
                Outcome::Absent
            } else {
                Outcome::Whole
            }
        }));

        let record = log().start + 2 * records_before as usize;
        assert!(media.peek(record) & 1 == 1 && media.peek(record + 1) & 1 == 1);
        media.plant(|faults| {
            faults.flips.insert(record, 0b11 << 30);
        });
        let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
        for lpn in 0..2 {
            assert_eq!(
                ftl.read(Lpn(lpn)),
                Err(Refusal::MediaError),
                "not zeroes, {records_before} records before"
            );
        }
    }
}

/// Relocations whose entries are durable and whose deallocation records were lost in a cut:
/// recovery records their sources. There is exactly enough room, or one slot too few, and then
/// bitmaps record them.
#[test]
fn sources_of_relocations_are_recorded_in_the_last_slots_or_in_bitmaps() {
    const RUNS: u32 = 5;
    let config = Config {
        dedup: false,
        ..small_config(SchemeKind::RemapSsd)
    };
    let sources: Vec<u32> = (0..RUNS).map(|run| 50 + 2 * run).collect();
    let mut flushed = Vec::new();
    for trims in 0..config.dealloc_slots - RUNS {
        let mut ftl = device(small_geometry(), &config);
        (0..400).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        for (target, source) in (0..).zip(&sources) {
            ftl.remap(&Remap {
                target: Lpn(target),
                source: Lpn(*source),
                len: 1,
                relocate: true,
                atomic: false,
            })
            .unwrap();
        }
        let trimmed: Vec<u32> = (0..trims).map(|trim| 100 + 2 * trim).collect();
        trimmed
            .iter()
            .for_each(|lpn| ftl.deallocate(Lpn(*lpn), 1).unwrap());

        let mut media = Media::from_image(&ftl.media().to_image());
        let lost = log().start..log().start + 2 * RUNS as usize;
        assert!(lost.clone().all(|word| media.peek(word) != 0));
        lost.for_each(|word| media.store(word, 0, Purpose::Meta, After::NOTHING));

        // And once more: now only the records of the first recovery are left.
        for _ in 0..2 {
            let (mut ftl, _) = Ftl::recover(media, config.clone()).expect("recovers");
            ftl.check().unwrap();
            for (target, source) in (0..).zip(&sources) {
                assert_eq!(
                    ftl.read(Lpn(target)),
                    Ok(Page::Identity(u64::from(*source) + 1))
                );
            }
            assert!(
                sources
                    .iter()
                    .chain(&trimmed)
                    .all(|lpn| ftl.read(Lpn(*lpn)) == Ok(Page::Zeroes)),
                "{trims} trims"
            );
            flushed.push(ftl.stats().dealloc_flushes > 0);
            media = Media::from_image(&ftl.media().to_image());
        }
    }
    let first: Vec<bool> = flushed.into_iter().step_by(2).collect();
    let with_room = (config.dealloc_slots - 2 * RUNS) as usize;
    assert!(
        first.iter().position(|flushed| *flushed) == Some(with_room + 1),
        "{first:?}"
    );
}

/// First word of every intact entry of an LPN in the scheme's NVRAM.
fn entries_of(ftl: &Ftl, lpn: u32) -> Vec<usize> {
    let words = ftl.media().nvram_words();
    let (segment, base) = (128 / 8, words - (8 << 10) / 8);
    let places = (base..words)
        .step_by(2)
        .filter(|at| !(at - base).is_multiple_of(segment));
    let entry = |at: usize| RmmEntry::from_words(ftl.media().peek(at), ftl.media().peek(at + 1));
    places
        .filter(|at| entry(*at).is_intact() && entry(*at).target() == Lpn(lpn))
        .collect()
}

/// A worn-out device with 600 pages.
fn worn_out() -> (Media, Config) {
    let config = Config {
        dedup: false,
        pe_limit: 6,
        ..small_config(SchemeKind::None)
    };
    let mut ftl = device(small_geometry(), &config);
    let mut random = Random(9);
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    loop {
        let lpn = Lpn(random.below(600) as u32);
        if ftl.write(lpn, &content(1)).is_err() {
            break;
        }
        ftl.media_mut().ops.clear();
    }
    assert!(ftl.is_read_only());
    (ftl.into_media(), config)
}

/// A worn-out device of which every page is in doubt, by a deallocation without its number.
fn worn_out_in_doubt() -> (Media, Config) {
    let (mut media, config) = worn_out();
    let words = [NUMBER << 22 | 1, 600 << 32 | 1];
    media.store_record(log().start, &words, Purpose::Meta, After::NOTHING);
    let mut media = Media::from_image(&media.to_image());
    media.plant(|faults| {
        faults.flips.insert(log().start, 0b11 << 30);
    });
    (media, config)
}

fn all_are_in_doubt(ftl: &mut Ftl, what: &str) {
    ftl.check().expect(what);
    for lpn in 0..600 {
        assert_eq!(
            ftl.read(Lpn(lpn)),
            Err(Refusal::MediaError),
            "{what}: LPN {lpn}"
        );
    }
}

/// There is no space for the pages that mark LPNs in doubt, and none can be gained. The device is read-only, and remains as it is however
/// often it is powered on: records keep the doubts.
#[test]
fn a_worn_out_device_without_space_for_its_doubts_is_read_only() {
    let (media, config) = worn_out_in_doubt();
    let mut left = copied(&media);
    let mut free = None;
    for round in 0..40 {
        let (mut ftl, report) = Ftl::recover(left, config.clone()).expect("recovers");
        let what = format!("round {round}");
        all_are_in_doubt(&mut ftl, &what);
        assert_eq!(report.lost, 600, "{what}");
        assert!(ftl.is_read_only(), "{what}");
        assert_eq!(ftl.write(Lpn(0), &content(1)), Err(Refusal::ReadOnly));
        let before = free.replace(ftl.free_superblocks());
        assert!(before.is_none_or(|before| Some(before) == free), "{what}");
        left = Media::from_image(&ftl.media().to_image());
    }

    let (mut at, mut pending) = (0, 1);
    while at < pending {
        let mut left = copied(&media);
        pending = interrupted(&mut left, &config, |op, _| match op < at {
            true => Outcome::Whole,
            false => Outcome::Absent,
        });
        at += 1;
        let (mut ftl, _) = Ftl::recover(left, config.clone()).expect("recovers");
        all_are_in_doubt(&mut ftl, &format!("after {at} of {pending} operations"));
    }
}

/// The record that names the list of all LPNs has lost its number. It is the only sign of the doubts, and stays.
#[test]
fn a_worn_out_device_keeps_a_list_whose_record_has_lost_its_number() {
    let (mut media, config) = worn_out();
    let geometry = small_geometry();
    let dies = geometry.dies();
    let is_next = |page: &Ppn| {
        let block_begins = geometry.offset(*page) >= dies;
        block_begins && media.is_programmed(Ppn(page.0 - dies)) && !media.is_programmed(*page)
    };
    let page = (0..geometry.pages()).map(Ppn).find(is_next);
    let page = page.expect("a superblock is open");
    let list = [0, 1, 0, 600].into_iter().flat_map(u32::to_le_bytes);
    let stored = StoredPage::Meta(list.collect::<Vec<u8>>().into());
    let oob = Oob::new(Oob::DOUBTS, NUMBER, 0);
    media
        .program(page, oob, stored, Purpose::Meta, After::NOTHING)
        .expect("programmed");

    let doubt = (1 << 1, 1 << 63);
    let words = [
        NUMBER << 22 | doubt.0 | 1,
        doubt.1 | u64::from(page.0) << 1 | 1,
    ];
    media.store_record(log().start, &words, Purpose::Meta, After::NOTHING);
    media.plant(|faults| {
        faults.flips.insert(log().start, 0b11 << 30);
    });

    for round in 0..3 {
        let (mut ftl, _) = Ftl::recover(media, config.clone()).expect("recovers");
        all_are_in_doubt(&mut ftl, &format!("round {round}"));
        assert!(ftl.is_read_only(), "round {round}");
        media = Media::from_image(&ftl.media().to_image());
    }
}
