//! A write buffer without power-loss protection: what a cut loses, and what a flush and other commands wait for.

use crate::kit::script::share;
use crate::kit::{Random, content, device, durable, put, recovered, small_config, small_geometry};
use remap_ssd_ftl::{Config, FilePage, Ftl, Guard, Guards, Lpn, Refusal, SchemeKind};
use remap_ssd_media::{Media, OpKind, Outcome, Page, Purpose};

/// Room for eight pages.
const EIGHT: u64 = 8 * 4096;

fn volatile(scheme: SchemeKind) -> Config {
    Config {
        write_buffer_bytes: EIGHT,
        power_loss_protection: false,
        ..small_config(scheme)
    }
}

fn held(ftl: &mut Ftl, lpn: u32) -> Page {
    let page = ftl.read(Lpn(lpn)).expect("readable");
    ftl.media_mut().ops.clear();
    page
}

fn flush(ftl: &mut Ftl) {
    ftl.flush().expect("there is room");
    ftl.media_mut().ops.clear();
}

fn cycled(ftl: Ftl) -> Ftl {
    recovered(ftl).0
}

/// The device after a command that was acknowledged, and a cut that undoes all other operations in flight.
fn cut_after(mut ftl: Ftl, command: impl FnOnce(&mut Ftl)) -> Ftl {
    ftl.media_mut().settle_all();
    ftl.media_mut().begin_command();
    command(&mut ftl);
    let ack = ftl.media_mut().take_ack();
    ftl.media_mut().settle(&ack);
    let image = ftl.media().cut(|| Outcome::Absent);
    let config = ftl.config().clone();
    Ftl::recover(Media::from_image(&image), config)
        .expect("it opens")
        .0
}

/// Nothing of it is in NVRAM, so that a device without a buffer has the same layout.
#[test]
fn a_power_cycle_loses_what_was_not_flushed() {
    for scheme in durable() {
        let config = volatile(scheme);
        let words = config.nvram_words(&small_geometry());
        assert_eq!(words, small_config(scheme).nvram_words(&small_geometry()));

        let mut ftl = device(small_geometry(), &config);
        for lpn in 0..4 {
            put(&mut ftl, lpn, u64::from(lpn));
        }
        flush(&mut ftl);
        assert_eq!(
            (ftl.buffered_pages(), ftl.stats().buffer_written_back),
            (0, 4)
        );
        put(&mut ftl, 1, 100);
        put(&mut ftl, 5, 105);
        assert_eq!(held(&mut ftl, 1), Page::Identity(100));
        assert_eq!((ftl.buffered_pages(), ftl.stats().host_programs), (2, 4));
        ftl.check().expect("consistent");

        let mut ftl = cycled(ftl);
        assert_eq!(ftl.buffered_pages(), 0, "{scheme}");
        let left = [0, 1, 2, 3].map(Page::Identity);
        for (lpn, page) in (0..).zip(left) {
            assert_eq!(held(&mut ftl, lpn), page, "{scheme}");
        }
        assert_eq!(held(&mut ftl, 5), Page::Zeroes, "{scheme}");
        ftl.check().expect("consistent");
    }
}

/// A flush waits for the pages that it writes, and for those that left before it.
#[test]
fn a_flush_waits_for_the_pages() {
    let flushed = |guards: Guards| {
        let config = Config {
            guards,
            ..volatile(SchemeKind::RemapSsd)
        };
        let mut ftl = device(small_geometry(), &config);
        ftl.media_mut().attach_rail();
        for lpn in 0..12 {
            put(&mut ftl, lpn, u64::from(lpn % 7));
        }
        let mut ftl = cut_after(ftl, flush);
        (0..12)
            .filter(|lpn| held(&mut ftl, *lpn) == Page::Identity(u64::from(lpn % 7)))
            .count()
    };
    assert_eq!(flushed(Guards::ALL), 12);
    // The four that left before were durable.
    assert!(flushed(Guards::without(Guard::FlushWaits)) < 12);
}

/// A write with FUA waits for its pages in the buffer, and for those that made room for later ones of the same command.
#[test]
fn a_forced_write_waits_for_its_pages_and_for_no_others() {
    let forced = |guards: Guards| {
        let config = Config {
            guards,
            ..volatile(SchemeKind::RemapSsd)
        };
        let mut ftl = device(small_geometry(), &config);
        put(&mut ftl, 15, 15);
        flush(&mut ftl);
        put(&mut ftl, 15, 115);
        ftl.media_mut().attach_rail();
        let mut ftl = cut_after(ftl, |ftl| {
            for lpn in 0..12 {
                put(ftl, lpn, u64::from(lpn));
            }
            ftl.make_durable(Lpn::ZERO, 12).expect("there is room");
            put(ftl, 14, 14);
        });
        assert_eq!(held(&mut ftl, 14), Page::Zeroes);
        (0..12)
            .filter(|lpn| held(&mut ftl, *lpn) == Page::Identity(u64::from(*lpn)))
            .count()
    };
    assert_eq!(forced(Guards::ALL), 12);
    assert!(forced(Guards::without(Guard::FlushWaits)) < 12);

    // A page that has just left, to make room, and whose slot is not filled again yet.
    let mut ftl = device(small_geometry(), &volatile(SchemeKind::RemapSsd));
    ftl.media_mut().attach_rail();
    let mut ftl = cut_after(ftl, |ftl| {
        let mut lpn = 0;
        while ftl.stats().buffer_written_back == 0 {
            put(ftl, lpn, 20 + u64::from(lpn));
            lpn += 1;
        }
        ftl.make_durable(Lpn::ZERO, 1).expect("there is room");
        assert!(ftl.buffered_pages() > 4, "the others stay");
    });
    assert_eq!(held(&mut ftl, 0), Page::Identity(20));
    assert_eq!(held(&mut ftl, 1), Page::Zeroes);
    assert_eq!(ftl.make_durable(Lpn(1), u32::MAX), Err(Refusal::OutOfRange));
}

/// A flush in steps leaves pages in the buffer that were written after it had begun.
#[test]
fn a_flush_in_steps_writes_back_what_was_there_before_it() {
    let mut ftl = device(small_geometry(), &volatile(SchemeKind::RemapSsd));
    for lpn in 0..4 {
        put(&mut ftl, lpn, u64::from(lpn));
    }
    let mut listed = ftl.volatile_pages();
    // A page that is written again takes the older version, which is acknowledged, from the buffer: the newer one must leave instead.
    put(&mut ftl, 1, 101);
    put(&mut ftl, 5, 5);
    ftl.deallocate(Lpn(0), 1).expect("writable");
    let mut step = |pages| {
        ftl.write_back_listed(&mut listed, pages)
            .expect("there is room")
    };
    assert_eq!([step(2), step(2), step(2)], [2, 1, 0]);
    ftl.flush_written();
    assert_eq!(ftl.buffered_pages(), 1);

    let mut ftl = cycled(ftl);
    let left = [0, 1, 2, 3, 5].map(|lpn| held(&mut ftl, lpn));
    let [one, two, three] = [101, 2, 3].map(Page::Identity);
    assert_eq!(left, [Page::Zeroes, one, two, three, Page::Zeroes]);
}

/// Commands whose acknowledgement promises durability.
#[test]
fn other_commands_wait_for_the_pages_that_they_name() {
    let config = Config {
        fs_files: 2,
        fs_blocks: 8,
        ..volatile(SchemeKind::RemapSsd)
    };
    let new = || {
        let mut ftl = device(small_geometry(), &config);
        ftl.media_mut().attach_rail();
        for lpn in 0..3 {
            put(&mut ftl, lpn, 10 + u64::from(lpn));
        }
        ftl
    };

    let mut ftl = cut_after(new(), |ftl| {
        ftl.remap(&share(9, 1)).expect("there is room");
    });
    let read = [0, 1, 2, 9].map(|lpn| held(&mut ftl, lpn));
    let page = Page::Identity(11);
    assert_eq!(read, [Page::Zeroes, page.clone(), Page::Zeroes, page]);

    let mut ftl = cut_after(new(), |ftl| {
        let page = FilePage {
            inode: 1,
            offset: 0,
        };
        ftl.fs_write(Lpn(0), &content(77), page).expect("listed");
    });
    assert_eq!(held(&mut ftl, 0), Page::Identity(77));
    assert_eq!(ftl.fs_map(1).expect("readable").len(), 1);

    let mut ftl = cut_after(new(), |ftl| {
        ftl.deallocate(Lpn(0), 3).expect("writable");
    });
    assert_eq!(held(&mut ftl, 2), Page::Zeroes);

    // A page that left for it, and has the content already.
    let mut ftl = cut_after(new(), |ftl| ftl.remap(&share(1, 1)).expect("nothing to do"));
    assert_eq!(held(&mut ftl, 1), Page::Identity(11));
}

/// The page on flash is deallocated with the one in the buffer, which never reaches flash.
#[test]
fn what_is_overwritten_or_deallocated_in_the_buffer_never_reaches_flash() {
    let mut ftl = device(small_geometry(), &volatile(SchemeKind::RemapSsd));
    put(&mut ftl, 3, 1000);
    put(&mut ftl, 4, 1001);
    flush(&mut ftl);
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
    assert_eq!((stats.host_programs, stats.buffer_written_back), (2, 2));
    ftl.check().expect("consistent");

    let mut ftl = cycled(ftl);
    assert_eq!(held(&mut ftl, 3), Page::Identity(1000));
    assert_eq!(held(&mut ftl, 4), Page::Zeroes);
}

/// An LPN without a page on flash stays deallocated when its record leaves the log for a bitmap: the newer page in the
/// buffer does not survive a cut, and older pages of the LPN do.
#[test]
fn a_bitmap_deallocates_what_is_only_in_the_buffer() {
    let config = Config {
        dealloc_slots: 4,
        ..volatile(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    put(&mut ftl, 5, 66);
    flush(&mut ftl);
    ftl.deallocate(Lpn(5), 1).expect("writable");
    put(&mut ftl, 5, 77);
    for round in 0..20 {
        ftl.deallocate(Lpn(100 + 2 * round), 1).expect("writable");
    }
    assert!(ftl.stats().dealloc_flushes > 0);
    assert_eq!(ftl.buffered_pages(), 1);
    let image = ftl.media().to_image();
    let (mut cut, _) = Ftl::recover(Media::from_image(&image), config).expect("it opens");
    assert_eq!(held(&mut cut, 5), Page::Zeroes);

    // When it leaves it is newer than the bitmap.
    flush(&mut ftl);
    let mut ftl = cycled(ftl);
    assert_eq!(held(&mut ftl, 5), Page::Identity(77));
}

/// Collection moves the older page, under some schemes with a new number; the page that leaves later is newer.
#[test]
fn a_page_that_leaves_is_newer_than_the_moved_one_on_flash() {
    for scheme in durable() {
        let config = Config {
            write_buffer_bytes: 64 * 4096,
            ..volatile(scheme)
        };
        let mut ftl = device(small_geometry(), &config);
        let mut random = Random(5);
        for lpn in 0..config.lpns {
            put(&mut ftl, lpn, u64::from(lpn));
        }
        flush(&mut ftl);
        // Half of the buffer: these pages are the oldest, and stay while the others are written again and again.
        let collected = ftl.stats().gc_runs;
        for number in 0..2000u64 {
            let lpn = 40 + random.below(u64::from(config.lpns) - 40) as u32;
            put(&mut ftl, lpn, 10_000 + number);
            if number % 20 == 0 {
                for lpn in 0..20 {
                    put(&mut ftl, lpn, 50_000 + number);
                }
            }
        }
        assert!(ftl.stats().gc_runs > collected, "{scheme}");
        assert!((0..20).all(|lpn| ftl.find(Lpn(lpn)).is_ok()));
        for lpn in 0..20 {
            put(&mut ftl, lpn, 90_000 + u64::from(lpn));
        }
        flush(&mut ftl);
        let mut ftl = cycled(ftl);
        for lpn in 0..20 {
            assert_eq!(
                held(&mut ftl, lpn),
                Page::Identity(90_000 + u64::from(lpn)),
                "{scheme}"
            );
        }
        ftl.check().expect("consistent");
    }
}

/// On flash that takes no more pages a flush is refused, and the host can still read what it wrote.
#[test]
fn worn_flash_refuses_a_flush() {
    let config = Config {
        pe_limit: 2,
        ..volatile(SchemeKind::None)
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
    assert_eq!(ftl.flush(), Err(Refusal::ReadOnly));
    for (lpn, newest) in (0..).zip(&newest) {
        let expected = newest.map_or(Page::Zeroes, Page::Identity);
        assert_eq!(held(&mut ftl, lpn), expected, "LPN {lpn}");
    }
}

/// By hand: which operations of a flush are charged to whom.
#[test]
fn a_flush_writes_the_pages_back_and_waits() {
    let mut ftl = device(small_geometry(), &volatile(SchemeKind::None));
    for lpn in 0..3 {
        put(&mut ftl, lpn, u64::from(lpn));
    }
    ftl.media_mut().ops.clear();
    ftl.flush().expect("there is room");
    let ops = ftl.media().ops.iter().map(|op| (op.kind, op.purpose));
    let ops: Vec<_> = ops
        .filter(|(_, purpose)| *purpose != Purpose::Meta)
        .collect();
    let write_back = (OpKind::Program, Purpose::WriteBack);
    let wait = (OpKind::Wait, Purpose::Host);
    assert_eq!(ops, [write_back, write_back, write_back, wait]);
}
