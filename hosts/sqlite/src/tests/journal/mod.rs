//! The rollback journal against the bytes that SQLite wrote: after any script, a newly opened
//! journal reads the same bytes, and the device gets only the necessary commands.

mod pager;

use crate::journal::Journal;
use pager::{Bench, Pager, image, invalidate};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_testkit::{Op, PAGE};

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const DATABASE_PAGES: usize = 700;

fn transactions(seed: u64, page: usize, sector: usize, safe: bool) {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let bench = Bench::new(page, DATABASE_PAGES.min((8 << 20) / page));
    let mut kept = bench.journal();
    for _ in 0..5 {
        // Reuse a connection, or open a new one.
        if random.random_bool(0.3) {
            kept = bench.journal();
        }
        let journal = &mut kept;
        let mut pager = Pager::new(page, sector, safe);
        pager.header(journal, random);
        let most = [3, 70, 600][random.random_range(0..3)].min((12 << 20) / page);
        let segments = if safe { 1 } else { random.random_range(1..5) };
        for segment in 0..segments {
            if segment > 0 {
                pager.header(journal, random);
            }
            for _ in 0..random.random_range(0..=most / segments) {
                let number = random.random_range(0..DATABASE_PAGES as u32 + 20);
                let mut bytes = image(number, page);
                if random.random_bool(0.1) {
                    bytes[random.random_range(0..page)] ^= 1;
                }
                pager.record(journal, number, &bytes);
                if random.random_bool(0.02) {
                    pager.check(journal, random);
                }
            }
            let zero_byte = random.random_bool(0.5);
            pager.sync(journal, zero_byte);
            pager.check(&mut bench.journal(), random);
        }
        if random.random_bool(0.5) {
            let name = [20, 500, 1_200, 1_900][random.random_range(0..4)];
            let aligned = random.random_bool(0.5);
            pager.super_journal(journal, name, aligned);
            pager.sync(journal, false);
        }
        pager.check(journal, random);
        pager.check(&mut bench.journal(), random);
        let mut child = Journal::open(bench.store.clone(), bench.file, bench.mark, None);
        pager.check(&mut child, random);

        // Ended by its owner, or by a connection that found it.
        let way = random.random_range(0..3);
        let found = random.random_bool(0.3);
        invalidate(if found { &mut child } else { journal }, way);
        if found {
            kept = bench.journal();
        }
        for mut journal in [bench.journal(), child] {
            assert!(!journal.exists().expect("readable"));
            assert_eq!(journal.size().expect("readable"), 0);
            assert_eq!(journal.read(0, &mut [0; 8]).expect("readable"), 0);
        }
    }
}

#[test]
fn what_sqlite_writes_is_read_by_whoever_opens_the_journal() {
    for (seed, page) in [(0, 512), (1, 1_024), (2, 4_096), (3, 8_192), (4, 65_536)] {
        for (sector, safe) in [(512, true), (512, false), (4_096, false), (65_536, false)] {
            transactions(seed, page, sector, safe);
        }
    }
}

#[test]
fn a_transaction_of_five_pages_writes_one_page_and_syncs_twice() {
    let bench = Bench::new(PAGE, 100);
    let mut journal = bench.journal();
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..3 {
        let before = (bench.store.statistics(), journal.counters());
        let mut pager = Pager::new(PAGE, 512, true);
        pager.header(&mut journal, random);
        for number in [1, 20, 21, 6, 70] {
            pager.record(&mut journal, number, &image(number, PAGE));
        }
        pager.sync(&mut journal, false);
        let synced = bench.store.statistics();
        journal.flush().expect("nothing is left");
        journal.truncate(0).expect("possible");
        journal.sync().expect("nothing is left");
        let (after, counters) = (bench.store.statistics(), journal.counters());

        // The first one also creates the file.
        if round > 0 {
            assert_eq!(synced.pages_shared - before.0.pages_shared, 5);
            assert_eq!(synced.pages_written - before.0.pages_written, 1);
            assert_eq!(synced.pages_copied, 0);
            assert_eq!(synced.syncs - before.0.syncs, 1);
            assert_eq!(after.pages_written, synced.pages_written);
            assert_eq!(after.pages_discarded - synced.pages_discarded, 1);
            assert_eq!(after.syncs - synced.syncs, 1);
            assert_eq!(after.pages_metadata, before.0.pages_metadata);
        }
        assert_eq!(counters.images_copied - before.1.images_copied, 5);
        assert_eq!(counters.metadata_pages - before.1.metadata_pages, 1);
        assert_eq!(counters.invalidations - before.1.invalidations, 1);
        assert_eq!(
            (counters.images_not_equal, counters.images_not_shareable),
            (0, 0)
        );
    }
}

#[test]
fn without_syncs_an_invalidation_needs_none() {
    let bench = Bench::new(PAGE, 10);
    let mut journal = bench.journal();
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..3 {
        let syncs = bench.store.statistics().syncs;
        let mut pager = Pager::new(PAGE, 512, true);
        pager.header(&mut journal, random);
        pager.record(&mut journal, 3, &image(3, PAGE));
        journal.flush().expect("possible");
        pager.check(&mut bench.journal(), random);
        journal.invalidate().expect("possible");
        assert!(!bench.journal().exists().expect("readable"));
        assert!(round == 0 || bench.store.statistics().syncs == syncs);
    }

    // For a journal that was found this is unknown.
    Pager::new(PAGE, 512, true).header(&mut journal, random);
    journal.flush().expect("possible");
    let syncs = bench.store.statistics().syncs;
    bench.journal().invalidate().expect("possible");
    assert_eq!(bench.store.statistics().syncs, syncs + 1);
}

#[test]
fn a_transaction_that_is_taken_back_before_anything_was_flushed_costs_nothing() {
    let bench = Bench::new(PAGE, 10);
    let mut journal = bench.journal();
    let operations = bench.disk.medium().log.len();
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pager = Pager::new(PAGE, 512, true);
    pager.header(&mut journal, random);
    pager.record(&mut journal, 3, &image(3, PAGE));
    pager.check(&mut journal, random);
    journal.invalidate().expect("possible");
    assert_eq!(bench.disk.medium().log.len(), operations);
}

#[test]
fn images_are_found_where_the_store_has_them_and_the_reasons_for_writing_them_are_counted() {
    let bench = Bench::new(PAGE, 10);
    let mut journal = bench.journal();
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pager = Pager::new(PAGE, 512, true);
    pager.header(&mut journal, random);
    let changed = vec![3; PAGE];
    pager.record(&mut journal, 1, &image(1, PAGE)); // The database's page has a stamp.
    pager.record(&mut journal, 2, &changed);
    pager.record(&mut journal, 30, &image(30, PAGE)); // The database is not as long.
    let first = 512 + 4;
    journal.read(first, &mut [0; PAGE]).expect("readable");
    assert_eq!(journal.origin(), None, "it is nowhere yet");
    journal.sync().expect("possible");
    let counters = journal.counters();
    assert_eq!(
        (
            counters.images_copied,
            counters.images_not_equal,
            counters.images_not_shareable
        ),
        (1, 1, 1)
    );

    for mut journal in [bench.journal(), journal] {
        let mut page = [0; PAGE];
        journal
            .read(first + PAGE as u64 + 8, &mut page)
            .expect("readable");
        let origin = journal.origin().expect("a whole image");
        let mut there = [0; PAGE];
        bench
            .store
            .read(bench.file, origin, &mut there)
            .expect("readable");
        assert_eq!(
            (page.as_slice(), there.as_slice()),
            (changed.as_slice(), changed.as_slice())
        );
        journal.read(first, &mut page).expect("readable");
        assert_eq!(page.as_slice(), image(1, PAGE));
        assert!(journal.origin().is_some());
        journal.read(first - 4, &mut page).expect("readable");
        assert_eq!(journal.origin(), None, "no image begins there");
        journal.read(first, &mut [0; 100]).expect("readable");
        assert_eq!(journal.origin(), None, "a part of one");
    }

    // Where stamps are not allowed, a page that looks stamped is plain data.
    let mut plain = bench.journal();
    plain.set_stamps(false);
    assert_eq!(
        plain.size().expect("readable"),
        512,
        "the first image was shared with its stamp"
    );
    assert_eq!(plain.counters().images_bad, 1);
}

#[test]
fn a_bad_image_ends_the_journal_and_fails_nothing() {
    for (page, sector) in [(PAGE, 512), (8_192, 4_096), (1_024, 512)] {
        let bench = Bench::new(page, 100);
        let mut journal = bench.journal();
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
        let mut pager = Pager::new(page, sector, false);
        pager.header(&mut journal, random);
        (1..=60).for_each(|number| pager.record(&mut journal, number, &image(number, page)));
        pager.sync(&mut journal, false);
        pager.header(&mut journal, random);
        (61..=80).for_each(|number| pager.record(&mut journal, number, &image(number, page)));
        pager.super_journal(&mut journal, 30, true);
        pager.sync(&mut journal, false);
        let whole = pager.flat.len() as u64;

        // Bytes not covered by SQLite's checksum.
        let slot = page.max(PAGE) as u64;
        let hit = PAGE as u64 + 5 * slot + 77;
        let mut byte = [0];
        bench
            .store
            .read(bench.file, hit, &mut byte)
            .expect("readable");
        bench
            .store
            .write(bench.file, hit, &[!byte[0]])
            .expect("possible");

        let mut reader = bench.journal();
        let records = if page < PAGE {
            5 * PAGE
        } else {
            5 * (page + 8)
        };
        pager.flat.truncate(sector + records);
        pager.check(&mut reader, random);
        assert!(pager.flat.len() < whole as usize);
        assert_eq!(reader.counters().images_bad, 1);
        reader.invalidate().expect("possible");
        assert!(!bench.journal().exists().expect("readable"));
    }
}

#[test]
fn metadata_that_is_not_whole_is_no_journal() {
    let bench = Bench::new(PAGE, 10);
    let mut journal = bench.journal();
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pager = Pager::new(PAGE, 512, true);
    pager.header(&mut journal, random);
    pager.record(&mut journal, 3, &image(3, PAGE));
    pager.sync(&mut journal, false);
    for at in (0..PAGE as u64).step_by(7) {
        let mut byte = [0];
        bench
            .store
            .read(bench.file, at, &mut byte)
            .expect("readable");
        bench
            .store
            .write(bench.file, at, &[byte[0] ^ 4])
            .expect("possible");
        assert!(!bench.journal().exists().expect("readable"), "byte {at}");
        assert_eq!(bench.journal().size().expect("readable"), 0, "byte {at}");
        bench.store.write(bench.file, at, &byte).expect("possible");
    }
    pager.check(&mut bench.journal(), random);
}

#[test]
fn a_new_journal_uses_no_slot_before_the_old_one_is_durably_gone() {
    let bench = Bench::new(PAGE, 10);
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut old = Pager::new(PAGE, 512, true);
    let mut journal = bench.journal();
    old.header(&mut journal, random);
    old.record(&mut journal, 3, &image(3, PAGE));
    old.sync(&mut journal, false);

    for mut journal in [bench.journal(), journal] {
        let operations = bench.disk.medium().log.len();
        let mut new = Pager::new(PAGE, 512, true);
        new.header(&mut journal, random);
        let log = bench.disk.medium().log[operations..].to_vec();
        assert!(
            matches!(log[..], [Op::Set(_, None), Op::Flush]),
            "a discard and a flush"
        );
        new.record(&mut journal, 4, &image(4, PAGE));
        new.sync(&mut journal, false);
        new.check(&mut bench.journal(), random);
    }
}

#[test]
fn a_connection_does_not_remember_what_another_one_has_ended() {
    let bench = Bench::new(PAGE, 300);
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut writer, mut reader) = (bench.journal(), bench.journal());
    for records in [5, 5, 2, 200, 1] {
        let mut pager = Pager::new(PAGE, 512, true);
        pager.header(&mut writer, random);
        (1..=records).for_each(|number| pager.record(&mut writer, number, &image(number, PAGE)));
        pager.sync(&mut writer, false);
        pager.check(&mut reader, random);
        writer.invalidate().expect("possible");
        assert!(!reader.exists().expect("readable"));
        assert_eq!(reader.read(0, &mut [0]).expect("readable"), 0);
    }
}

#[test]
fn a_record_can_be_written_again_and_a_journal_be_cut_off() {
    let bench = Bench::new(PAGE, 100);
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut journal = bench.journal();
    let mut pager = Pager::new(PAGE, 512, false);
    for _ in 0..3 {
        pager.header(&mut journal, random);
        (1..=20).for_each(|number| pager.record(&mut journal, number, &image(number, PAGE)));
        pager.sync(&mut journal, false);
    }
    let at = pager.offset - 7 * (PAGE + 8);
    pager.write(&mut journal, at, &vec![5; 2 * PAGE]);
    pager.check(&mut journal, random);
    journal.flush().expect("possible");
    pager.check(&mut bench.journal(), random);

    // The middle of a record, its end, and the end of a segment.
    let segment = (512 + 20 * (PAGE + 8)).next_multiple_of(512);
    for size in [
        pager.offset - 3 * PAGE,
        segment + segment - 440,
        segment + 512 + PAGE + 8,
    ] {
        journal.truncate(size as u64).expect("possible");
        pager.flat.truncate(size);
        pager.check(&mut journal, random);
        journal.flush().expect("possible");
        pager.check(&mut bench.journal(), random);
    }
    journal.truncate(segment as u64).expect("possible");
    journal.flush().expect("possible");
    assert!(
        bench.journal().size().expect("readable") <= segment as u64,
        "nothing of the second segment"
    );
    assert!(
        journal.write(100_000_000, &[1]).is_ok(),
        "after the end anything may follow"
    );
    assert!(
        bench.journal().write(0, &[1; 8]).is_ok(),
        "a journal that is there can be written by any connection that finds it"
    );
    journal.invalidate().expect("possible");
    assert!(
        bench.journal().write(512, &[1; 8]).is_err(),
        "there is none to write to"
    );
}

#[test]
fn segments_of_an_earlier_transaction_do_not_count() {
    let bench = Bench::new(PAGE, 300);
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut journal = bench.journal();
    for segments in [3, 1, 2, 1] {
        let mut pager = Pager::new(PAGE, 512, false);
        for _ in 0..segments {
            pager.header(&mut journal, random);
            (1..=5).for_each(|number| pager.record(&mut journal, number, &image(number, PAGE)));
            pager.sync(&mut journal, false);
        }
        pager.check(&mut bench.journal(), random);
        journal.invalidate().expect("possible");
    }
}

#[test]
fn metadata_is_written_before_a_page_that_it_does_not_count_and_before_no_other() {
    let bench = Bench::new(PAGE, 100);
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let mut journal = bench.journal();
    let mut pager = Pager::new(PAGE, 512, true);
    let written = |journal: &mut Journal, page: u64| {
        let before = journal.counters().metadata_pages;
        journal
            .flush_before((page - 1) * PAGE as u64, PAGE as u64)
            .expect("possible");
        journal.counters().metadata_pages - before
    };
    pager.header(&mut journal, random);
    pager.record(&mut journal, 7, &image(7, PAGE));
    assert_eq!(
        written(&mut journal, 90),
        1,
        "a page without an image: the header says how long the database was"
    );
    assert_eq!(written(&mut journal, 7), 0, "it is counted");

    for number in 8..12 {
        pager.record(&mut journal, number, &image(number, PAGE));
    }
    for counted in [7, 12, 90] {
        assert_eq!(written(&mut journal, counted), 0, "page {counted}");
    }
    assert_eq!(written(&mut journal, 9), 1, "page 9 is not counted");
    assert_eq!(written(&mut journal, 11), 0, "with page 9 all were");
    pager.check(&mut bench.journal(), random);
}
