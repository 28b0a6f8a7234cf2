//! The write buffer: which pages reach flash, what a command waits for, and what a power cut leaves.

use crate::kit::script::{Contents, apply, draw, execute, share, with_log};
use crate::kit::{
    Random, content, device, durable, put, read_all, recovered, small_config, small_geometry,
};
use remap_ssd_ftl::{
    BufferedRemaps, Config, EntrySize, Ftl, Granularity, Lpn, RecoveryError, Refusal, Remap,
    SchemeKind,
};
use remap_ssd_media::{ContentMode, Media, OpKind, Page, Payload, Ppn, Purpose};

/// Room for eight pages.
const EIGHT: u64 = 8 * 4096;

fn buffered(scheme: SchemeKind, bytes: u64) -> Config {
    Config {
        write_buffer_bytes: bytes,
        ..small_config(scheme)
    }
}

fn held(ftl: &mut Ftl, lpn: u32) -> Page {
    let page = ftl.read(Lpn(lpn)).expect("readable");
    ftl.media_mut().ops.clear();
    page
}

fn cycled(ftl: Ftl) -> Ftl {
    recovered(ftl).0
}

fn programs(ftl: &Ftl) -> Vec<Purpose> {
    let ops = ftl.media().ops.iter();
    ops.filter(|op| op.kind == OpKind::Program)
        .map(|op| op.purpose)
        .collect()
}

/// The page after whose program the last command's operations begin, if they wait for one.
fn waits_for(ftl: &Ftl) -> Option<Ppn> {
    let waits = ftl.media().ops.iter().filter(|op| op.kind == OpKind::Wait);
    waits.map(|op| op.after_page).next()
}

/// Each operation, by hand.
#[test]
fn pages_leave_when_too_few_slots_are_free() {
    let mut ftl = device(small_geometry(), &buffered(SchemeKind::None, EIGHT));
    ftl.media_mut().ops.clear();
    for lpn in 0..8 {
        put(&mut ftl, lpn, u64::from(lpn));
    }
    assert_eq!(programs(&ftl), []);
    assert_eq!((ftl.buffered_pages(), ftl.stats().host_programs), (8, 0));

    // The ninth drives out the oldest one, whose slot it takes: it waits for that page. The head of a superblock is programmed too.
    put(&mut ftl, 8, 8);
    assert_eq!(programs(&ftl), [Purpose::Meta, Purpose::WriteBack]);
    let first = ftl.place(Lpn(0)).expect("on flash");
    assert_eq!(waits_for(&ftl), Some(first));
    assert_eq!(ftl.place(Lpn(1)), None);
    assert!(ftl.is_mapped(Lpn(1)) && ftl.is_mapped(Lpn(8)));

    // Reads find each page where it is.
    ftl.media_mut().ops.clear();
    for lpn in 0..9 {
        assert_eq!(held(&mut ftl, lpn), Page::Identity(u64::from(lpn)));
    }
    let stats = ftl.stats();
    assert_eq!((stats.host_reads, stats.buffer_hits), (9, 8));
    assert_eq!((stats.host_writes, stats.buffer_written_back), (9, 1));
    ftl.check().expect("consistent");
}

#[test]
fn what_is_overwritten_or_deallocated_in_the_buffer_never_reaches_flash() {
    let mut ftl = device(small_geometry(), &buffered(SchemeKind::RemapSsd, EIGHT));
    for round in 0..50 {
        put(&mut ftl, 3, round);
        put(&mut ftl, 4, 100 + round);
        ftl.deallocate(Lpn(4), 1).expect("writable");
    }
    let stats = ftl.stats();
    assert_eq!(
        (stats.buffer_overwritten, stats.buffer_deallocated),
        (49, 50)
    );
    assert_eq!((stats.host_programs, stats.buffer_written_back), (0, 0));
    assert_eq!(held(&mut ftl, 3), Page::Identity(49));
    assert_eq!(held(&mut ftl, 4), Page::Zeroes);
    ftl.check().expect("consistent");
}

/// Duplicates of a page that left earlier are remapped when they leave.
#[test]
fn a_duplicate_in_the_buffer_is_remapped_when_it_leaves() {
    let mut ftl = device(small_geometry(), &buffered(SchemeKind::RemapSsdX, EIGHT));
    for lpn in 0..40 {
        put(&mut ftl, lpn, 7);
    }
    let stats = ftl.stats();
    assert_eq!(stats.buffer_written_back, 32);
    assert_eq!(stats.host_programs + stats.dedup_hits, 32);
    assert!(stats.host_programs <= 3, "{}", stats.host_programs);
    ftl.check().expect("consistent");
}

/// The buffer has room for the working set, and a slot that is kept free: what is written again drives nothing out.
#[test]
fn a_page_that_is_written_again_needs_no_room() {
    let mut ftl = device(small_geometry(), &buffered(SchemeKind::None, EIGHT));
    for number in 0..4000 {
        put(&mut ftl, number % 7, number.into());
    }
    assert_eq!(ftl.stats().buffer_written_back, 0);
    assert_eq!(ftl.buffered_pages(), 7);
    ftl.check().expect("consistent");
}

/// Pages that leave for a remap's sake are not the remap's: its source is demoted on the way.
#[test]
fn a_remap_counts_its_own_pages() {
    let config = Config {
        count_max: 2,
        ..buffered(SchemeKind::RemapSsd, 2 * EIGHT)
    };
    let mut ftl = device(small_geometry(), &config);
    for lpn in 0..3 {
        put(&mut ftl, lpn, 7);
    }
    let before = ftl.remap_counts();
    ftl.remap(&share(9, 2)).expect("there is room");
    let after = ftl.remap_counts();
    assert_eq!(after.remapped - before.remapped, 1);
    assert_eq!(after.counter_full, before.counter_full);
}

#[test]
fn a_remap_waits_for_the_pages_that_it_names() {
    let mut ftl = device(small_geometry(), &buffered(SchemeKind::RemapSsd, EIGHT));
    put(&mut ftl, 0, 1);
    put(&mut ftl, 1, 2);
    put(&mut ftl, 2, 3);
    ftl.remap(&share(1, 0)).expect("there is room");
    assert_eq!(ftl.place(Lpn(1)), ftl.place(Lpn(0)));
    assert_eq!(ftl.buffered_pages(), 1);
    for (lpn, content) in [(0, 1), (1, 1), (2, 3)] {
        assert_eq!(held(&mut ftl, lpn), Page::Identity(content));
    }
    ftl.check().expect("consistent");
}

fn naming(scheme: SchemeKind, bytes: u64) -> Config {
    Config {
        buffered_remaps: BufferedRemaps::Name,
        ..buffered(scheme, bytes)
    }
}

/// A device with LPN 0 in the buffer, to which LPNs 1 and 2 have been remapped there.
fn three_twins(config: &Config) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    put(&mut ftl, 0, 7);
    ftl.media_mut().ops.clear();
    for target in [1, 2] {
        ftl.remap(&share(target, 0)).expect("there is room");
    }
    assert_eq!(programs(&ftl), []);
    assert_eq!((ftl.buffered_pages(), ftl.stats().remaps), (3, 0));
    assert_eq!(ftl.stats().buffer_remapped, 2);
    ftl.check().expect("consistent");
    ftl
}

/// Writes pages of their own content until those of `lpns` have left.
fn drive_out(ftl: &mut Ftl, lpns: &[u32]) {
    for lpn in 100.. {
        put(ftl, lpn, 1000 + u64::from(lpn));
        if lpns.iter().all(|lpn| ftl.place(Lpn(*lpn)).is_some()) {
            break;
        }
    }
    ftl.media_mut().ops.clear();
    ftl.check().expect("consistent");
}

#[test]
fn a_remap_of_a_page_in_the_buffer_programs_nothing_until_one_of_them_leaves() {
    // Without deduplication, so that only the remap says that they are equal.
    let config = Config {
        dedup: false,
        ..naming(SchemeKind::RemapSsd, EIGHT)
    };
    let mut ftl = three_twins(&config);
    assert_eq!((ftl.remap_counts().remapped, ftl.stats().remaps), (2, 0));
    drive_out(&mut ftl, &[0]);
    assert_eq!(ftl.remap_counts().remapped, 2, "counted once");
    let place = ftl.place(Lpn(0));
    assert!(place.is_some());
    assert_eq!([1, 2].map(|lpn| ftl.place(Lpn(lpn))), [place; 2]);
    assert_eq!(ftl.stats().remaps, 2);
    for lpn in 0..3 {
        assert_eq!(held(&mut ftl, lpn), Page::Identity(7));
    }

    // A cut forgets that they are equal, and nothing else.
    let mut ftl = cycled(three_twins(&config));
    assert_eq!(ftl.buffered_pages(), 3);
    for lpn in 0..3 {
        assert_eq!(held(&mut ftl, lpn), Page::Identity(7));
    }
    drive_out(&mut ftl, &[0, 1, 2]);
    assert_eq!(ftl.stats().remaps, 0);
}

#[test]
fn equal_pages_that_are_overwritten_or_deallocated_in_the_buffer_never_reach_flash() {
    let mut ftl = three_twins(&naming(SchemeKind::RemapSsd, EIGHT));
    put(&mut ftl, 0, 8);
    ftl.deallocate(Lpn(1), 1).expect("writable");
    drive_out(&mut ftl, &[2, 0]);
    let places = [0, 1, 2].map(|lpn| ftl.place(Lpn(lpn)));
    assert!(places[0] != places[2] && places[1].is_none());
    for (lpn, page) in [
        (0, Page::Identity(8)),
        (1, Page::Zeroes),
        (2, Page::Identity(7)),
    ] {
        assert_eq!(held(&mut ftl, lpn), page);
    }
    assert_eq!(ftl.stats().remaps, 0);
}

#[test]
fn an_equal_page_is_programmed_where_the_scheme_cannot_remap_it() {
    let full = Config {
        count_max: 2,
        ..naming(SchemeKind::RemapSsd, EIGHT)
    };
    let mut ftl = three_twins(&full);
    drive_out(&mut ftl, &[0, 1, 2]);
    let stats = ftl.stats();
    assert_eq!((stats.remaps, stats.demoted_counter_full), (1, 1));

    let mut ftl = three_twins(&naming(SchemeKind::None, EIGHT));
    drive_out(&mut ftl, &[0, 1, 2]);
    assert_eq!((ftl.stats().remaps, ftl.stats().copies), (0, 2));

    // Some LPNs are kept apart only after they were remapped.
    let mut ftl = three_twins(&naming(SchemeKind::RemapSsd, EIGHT));
    ftl.keep_apart(Lpn(1)..Lpn(2));
    drive_out(&mut ftl, &[0, 1, 2]);
    assert_ne!(ftl.place(Lpn(0)), ftl.place(Lpn(1)));
    assert_eq!(ftl.place(Lpn(0)), ftl.place(Lpn(2)));
}

/// A range of which a part is in the buffer, and whose targets overlap its sources, in both directions.
#[test]
fn a_remap_takes_each_page_from_where_it_is() {
    for (target, source) in [(22, 20), (20, 22)] {
        let mut ftl = device(small_geometry(), &naming(SchemeKind::RemapSsd, EIGHT));
        for lpn in 20..28 {
            put(&mut ftl, lpn, lpn.into());
        }
        drive_out(&mut ftl, &[20, 21, 22, 23, 24, 25, 26, 27]);
        for lpn in [21, 24, 25] {
            put(&mut ftl, lpn, 50 + u64::from(lpn));
        }
        let mut expected = (20..28)
            .map(|lpn| held(&mut ftl, lpn))
            .collect::<Vec<Page>>();
        let (to, from) = (target as usize - 20, source as usize - 20);
        let moved = expected[from..from + 6].to_vec();
        expected[to..to + 6].clone_from_slice(&moved);
        let command = Remap {
            len: 6,
            ..share(target, source)
        };
        ftl.remap(&command).expect("there is room");
        let stats = ftl.stats();
        assert!(stats.buffer_remapped > 0 && stats.remaps > 0);
        for (lpn, page) in (20..28).zip(expected) {
            assert_eq!(held(&mut ftl, lpn), page, "LPN {lpn}");
        }
        ftl.check().expect("consistent");
    }
}

/// Moves and atomic commands wait, and so does every remap if a cut empties the buffer.
#[test]
fn remaps_that_cannot_name_a_buffered_page_wait_for_it() {
    let waits = |config: &Config, command: &Remap| {
        let mut ftl = device(small_geometry(), config);
        put(&mut ftl, 0, 7);
        ftl.remap(command).expect("there is room");
        assert_eq!(ftl.stats().buffer_remapped, 0);
        assert_eq!(ftl.buffered_pages(), 0);
        assert_eq!(held(&mut ftl, 1), Page::Identity(7));
    };
    let saved = Config {
        entry: EntrySize::Bytes24,
        ..naming(SchemeKind::RemapSsd, EIGHT)
    };
    let relocate = Remap {
        relocate: true,
        ..share(1, 0)
    };
    let atomic = Remap {
        atomic: true,
        ..share(1, 0)
    };
    waits(&saved, &relocate);
    waits(&saved, &atomic);
    let volatile = Config {
        power_loss_protection: false,
        ..saved
    };
    waits(&volatile, &share(1, 0));
}

/// What is acknowledged is back after each power-on, without a program.
#[test]
fn the_buffer_survives_power_cycles() {
    for (scheme, name) in durable().flat_map(|scheme| [(scheme, false), (scheme, true)]) {
        let config = match name {
            true => naming(scheme, EIGHT),
            false => buffered(scheme, EIGHT),
        };
        let mut ftl = device(small_geometry(), &config);
        let mut contents: Contents = vec![None; config.lpns as usize];
        let mut random = Random(3);
        let (mut written_back, mut overwritten) = (0, 0);
        for number in 0..400 {
            let command = draw(&mut random, &ftl, 1000 + number, 12);
            execute(&mut ftl, command).expect("there is room");
            apply(command, &mut contents);
            ftl.media_mut().ops.clear();
            if number % 20 == 0 {
                let pages = ftl.buffered_pages();
                written_back += ftl.stats().buffer_written_back;
                overwritten += ftl.stats().buffer_overwritten;
                ftl = cycled(ftl);
                assert_eq!(ftl.buffered_pages(), pages, "{scheme}");
                ftl.check()
                    .unwrap_or_else(|wrong| panic!("{scheme}: {wrong}"));
            }
            assert_eq!(read_all(&mut ftl), contents, "{scheme}, command {number}");
        }
        assert!(
            written_back > 50 && overwritten > 0,
            "{scheme}: {written_back}, {overwritten}"
        );
    }
}

/// Devices of real bytes: a slot is 514 words.
#[test]
fn bytes_survive_a_power_cycle() {
    let config = buffered(SchemeKind::RemapSsd, EIGHT);
    let geometry = small_geometry();
    let words = config.nvram_words(&geometry);
    let media = Media::blank(geometry, ContentMode::Bytes, words);
    let mut ftl = Ftl::format(media, config.clone()).expect("it works");
    let page =
        |lpn: u32| -> [u8; 4096] { std::array::from_fn(|at| (lpn as usize * 31 + at * 7) as u8) };
    for lpn in 0..30 {
        ftl.write(Lpn(lpn), &Payload::Bytes(&page(lpn)))
            .expect("room");
    }
    let mut ftl = cycled(ftl);
    assert_eq!(ftl.buffered_pages(), 8);
    for lpn in 0..30 {
        match ftl.read(Lpn(lpn)) {
            Ok(Page::Bytes(bytes)) => assert_eq!(*bytes, page(lpn), "LPN {lpn}"),
            other => panic!("LPN {lpn}: {other:?}"),
        }
    }
    ftl.check().expect("consistent");
}

/// An LPN without a page on flash, whose deallocation leaves the log while its page is in the buffer.
#[test]
fn a_bitmap_does_not_deallocate_what_is_in_the_buffer() {
    let config = Config {
        dealloc_slots: 4,
        ..buffered(SchemeKind::RemapSsd, EIGHT)
    };
    let mut ftl = device(small_geometry(), &config);
    ftl.deallocate(Lpn(5), 1).expect("writable");
    put(&mut ftl, 5, 77);
    for round in 0..20 {
        ftl.deallocate(Lpn(100 + 2 * round), 1).expect("writable");
    }
    assert!(ftl.stats().dealloc_flushes > 0);
    assert_eq!(ftl.buffered_pages(), 1);
    let mut ftl = cycled(ftl);
    assert_eq!(held(&mut ftl, 5), Page::Identity(77));
}

fn with_flips(ftl: Ftl, words: &[usize]) -> Media {
    let mut media = ftl.into_media();
    media.plant(|faults| {
        for word in words {
            faults.flips.insert(*word, 0b11);
        }
    });
    media
}

/// First word of slot `slot` of a device whose contents are identities.
fn slot_of(ftl: &Ftl, lpn: u32) -> usize {
    let owner = |lpn: u32| u64::from(lpn) << 1 | 1;
    let words = ftl.media().nvram_words();
    let is_slot = |word: &usize| {
        ftl.media().peek(*word) == owner(lpn)
            && ftl.media().peek(*word + 2) == 5000 + u64::from(lpn)
    };
    (0..words - 2).find(is_slot).expect("in the buffer")
}

#[test]
fn a_page_in_the_buffer_that_cannot_be_read_is_an_error_until_it_is_written() {
    let config = buffered(SchemeKind::RemapSsd, EIGHT);
    for word in [1, 2] {
        let mut ftl = device(small_geometry(), &config);
        for lpn in [6, 7] {
            put(&mut ftl, lpn, 5000 + u64::from(lpn));
        }
        let at = slot_of(&ftl, 7);
        let media = with_flips(ftl, &[at + word]);
        let (mut ftl, report) = Ftl::recover(media, config.clone()).expect("it opens");
        assert_eq!(report.lost, 1);
        assert_eq!(ftl.read(Lpn(7)), Err(Refusal::MediaError));
        assert_eq!(held(&mut ftl, 6), Page::Identity(5006));
        put(&mut ftl, 7, 9);
        // The damaged slot is empty since: it says nothing against the new page.
        let mut ftl = cycled(ftl);
        assert_eq!(held(&mut ftl, 7), Page::Identity(9));
        ftl.check().expect("consistent");
    }
}

#[test]
fn a_slot_of_an_unknown_page_refuses_recovery() {
    let config = buffered(SchemeKind::RemapSsd, EIGHT);
    let mut ftl = device(small_geometry(), &config);
    put(&mut ftl, 7, 5007);
    let at = slot_of(&ftl, 7);
    let media = with_flips(ftl, &[at]);
    let error = Ftl::recover(media, config).err().expect("refused");
    assert!(matches!(error, RecoveryError::NvramDamaged { word } if word == at));
}

/// The buffer fills up on flash that takes no more pages: the host is refused, and can read everything.
#[test]
fn a_worn_device_keeps_what_is_in_the_buffer() {
    let config = Config {
        pe_limit: 2,
        ..buffered(SchemeKind::None, EIGHT)
    };
    let mut ftl = device(small_geometry(), &config);
    let mut newest = vec![None; config.lpns as usize];
    let mut random = Random(1);
    let refusal = (0..1_000_000).find_map(|number| {
        let lpn = random.below(u64::from(config.lpns)) as u32;
        let written = ftl.write(Lpn(lpn), &content(number));
        ftl.media_mut().ops.clear();
        if written.is_ok() {
            newest[lpn as usize] = Some(number);
        }
        written.err()
    });
    assert_eq!(refusal, Some(Refusal::ReadOnly));
    assert!(ftl.buffered_pages() > 0);
    for _ in 0..2 {
        for (lpn, newest) in (0..).zip(&newest) {
            let expected = newest.map_or(Page::Zeroes, Page::Identity);
            assert_eq!(held(&mut ftl, lpn), expected, "LPN {lpn}");
        }
        ftl = cycled(ftl);
    }
}

#[test]
fn buffers_that_cannot_work_are_refused() {
    let geometry = small_geometry();
    let refused = |config: Config| config.check(&geometry).expect_err("refused").to_string();
    let text = refused(buffered(SchemeKind::None, 8191));
    assert!(
        text.contains("write_buffer_bytes = 8191 must be 0 or 8192"),
        "{text}"
    );
    let text = refused(Config {
        power_loss_protection: false,
        ..buffered(SchemeKind::None, 1 << 30)
    });
    assert!(
        text.contains("must be at most the") && text.contains("bytes of the flash"),
        "{text}"
    );
    let text = refused(Config {
        mapping: Granularity::Hybrid,
        block_pages: 8,
        ..with_log(&geometry, &buffered(SchemeKind::None, EIGHT), 8 << 10)
    });
    assert!(text.contains("mapping = \"page\" only"), "{text}");
    let text = refused(buffered(SchemeKind::None, 1 << 30));
    assert!(text.contains("write_buffer_bytes = 1073741824"), "{text}");
}
