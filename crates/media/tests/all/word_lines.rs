//! Program units on the power rail: they land as a whole, and a torn one damages its word line.

use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{
    After, ClearId, ContentMode, Geometry, Lpn, Media, Oob, OpKind, Outcome, Ppn, Purpose, SbId,
    SlcArea, StoredPage, WordLine,
};

/// Units of two pages, two units in a word line, on two dies.
fn geometry() -> Geometry {
    let shape = Shape {
        channels: 1,
        dies: 2,
        superblocks: 2,
        pages_per_block: 8,
    };
    let word_line = WordLine {
        planes: 2,
        bits: 2,
        one_shot: false,
        ..WordLine::SINGLE
    };
    let geometry = Geometry::new(shape).and_then(|geometry| geometry.with_word_line(word_line));
    geometry.expect("a valid geometry")
}

fn media(whole_lines: bool) -> Media {
    let mut media = Media::blank(geometry(), ContentMode::Identity, 64);
    media.attach_rail();
    media.unprotect(whole_lines);
    media
}

fn program(media: &mut Media, page: u32, after: After) {
    let oob = Oob::new(Lpn(page), 1, 0);
    let stored = StoredPage::Identity(page.into());
    media
        .program(Ppn(page), oob, stored, Purpose::Host, after)
        .expect("sound media");
}

#[test]
fn a_unit_lands_once_its_last_page_is_issued() {
    let mut media = media(false);
    program(&mut media, 0, After::NOTHING);
    media.settle_all();
    assert_eq!(media.pending(), 1);
    let left = Media::from_image(&media.cut(|| Outcome::Whole));
    assert!(!left.is_programmed(Ppn(0)));

    program(&mut media, 1, After::NOTHING);
    media.settle_all();
    assert_eq!(media.pending(), 0);
}

#[test]
fn who_waits_for_a_page_waits_for_pages_issued_later() {
    for whole_lines in [false, true] {
        let mut media = media(whole_lines);
        program(&mut media, 0, After::NOTHING);
        media.store(7, 1, Purpose::Host, After::page(Ppn(0)));
        media.settle_all();
        assert_eq!(media.pending(), 2, "the unit is not full");

        program(&mut media, 1, After::NOTHING);
        media.settle_all();
        assert_eq!(
            media.pending(),
            u32::from(whole_lines) as usize,
            "the line is not full"
        );
        let left = Media::from_image(&media.cut(|| Outcome::Whole));
        assert_eq!(left.peek(7), u64::from(!whole_lines));

        program(&mut media, 2, After::NOTHING);
        program(&mut media, 3, After::NOTHING);
        media.settle_all();
        assert_eq!(media.pending(), 0);
    }
}

/// A torn unit leaves some of its pages, and damages some of its word line that were durable.
#[test]
fn a_torn_unit_damages_its_word_line() {
    let mut media = media(false);
    program(&mut media, 0, After::NOTHING);
    program(&mut media, 1, After::NOTHING);
    media.settle_all();
    program(&mut media, 2, After::NOTHING);
    program(&mut media, 3, After::NOTHING);

    let mut readable = [[0; 2]; 4];
    for seed in 0..64 {
        let left = Media::from_image(&media.cut(|| Outcome::Torn(seed)));
        for page in 0..4 {
            assert!(left.is_programmed(Ppn(page)), "the rows are used up");
            readable[page as usize][usize::from(left.is_readable(Ppn(page)))] += 1;
        }
    }
    assert!(
        readable.iter().flatten().all(|count| *count > 0),
        "{readable:?}"
    );
}

/// A wait for everything is one for what was issued before the word line: else an entry between two pages of a line
/// and the second page would wait for each other.
#[test]
fn a_wait_for_everything_begins_at_the_word_line() {
    let mut media = media(true);
    media.store(3, 1, Purpose::Meta, After::NOTHING);
    program(&mut media, 0, After::NOTHING);
    media.store(7, 1, Purpose::Host, After::page(Ppn(0)));
    program(&mut media, 1, After::ALL);
    program(&mut media, 2, After::NOTHING);
    program(&mut media, 3, After::FENCE);

    let mut first = true;
    let left = media.cut(|| {
        if std::mem::take(&mut first) {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
    let left = Media::from_image(&left);
    assert!(!left.is_programmed(Ppn(0)), "the first store is missing");

    media.settle_all();
    assert_eq!(media.pending(), 0);
}

/// A tail waits for all pages of its superblock, and shares the range with its own word line.
#[test]
fn a_page_does_not_wait_for_later_pages_of_its_word_line() {
    let mut media = media(true);
    program(&mut media, 0, After::pages(Ppn(0), 8));
    for page in 1..4 {
        program(&mut media, page, After::NOTHING);
    }
    media.settle_all();
    assert_eq!(media.pending(), 0);
}

/// A page that waits for a later word line would wait for all that comes between, and that may wait for its own line.
#[test]
#[should_panic(expected = "page 1 comes into a word line that was begun before page 4")]
fn a_page_may_not_wait_for_a_word_line_that_was_begun_after_its_own() {
    let mut media = media(true);
    program(&mut media, 0, After::NOTHING);
    program(&mut media, 4, After::NOTHING);
    program(&mut media, 1, After::page(Ppn(4)));
}

#[test]
fn a_page_may_wait_for_a_late_page_of_an_earlier_word_line() {
    let mut media = media(true);
    program(&mut media, 4, After::NOTHING);
    program(&mut media, 0, After::NOTHING);
    media.store(7, 1, Purpose::Host, After::page(Ppn(0)));
    program(&mut media, 5, After::FENCE);
    program(&mut media, 1, After::page(Ppn(5)));
    for page in [2, 3, 6, 7] {
        program(&mut media, page, After::NOTHING);
    }
    media.settle_all();
    assert_eq!(media.pending(), 0);
}

/// A program waits for a store, which waits for a page of a unit whose other page waits for the program. Pages of that
/// word line have not been issued.
#[test]
#[should_panic(expected = "wait for each other")]
fn operations_that_wait_for_each_other_are_reported_while_a_word_line_is_open() {
    let mut media = media(false);
    program(&mut media, 0, After::NOTHING);
    media.store(7, 1, Purpose::Host, After::page(Ppn(0)));
    program(&mut media, 4, After::FENCE);
    program(&mut media, 5, After::NOTHING);
    program(&mut media, 1, After::page(Ppn(4)));
    media.settle_all();
}

#[test]
fn operations_that_wait_for_no_open_word_line_are_settled() {
    let mut media = media(true);
    program(&mut media, 0, After::NOTHING);
    media.store(7, 1, Purpose::Host, After::page(Ppn(0)));
    media.store(8, 1, Purpose::Host, After::NOTHING);
    (4..8).for_each(|page| program(&mut media, page, After::NOTHING));
    media.settle_all();
    assert_eq!(
        media.pending(),
        2,
        "page 0, and the store that waits for it"
    );
}

#[test]
#[should_panic(expected = "before the word line")]
fn a_block_is_not_erased_before_its_word_line_is_full() {
    let mut media = media(true);
    program(&mut media, 0, After::NOTHING);
    let id = media.name_next();
    let _ = media.erase(media.geometry().slot(Ppn(0)).block, id, After::NOTHING);
}

/// The place of a page is found without divisions.
#[test]
fn places_of_pages_are_those_of_plain_division() {
    for (dies, pages_per_block, superblocks, planes, bits) in [
        (1, 48, 1_000_003, 4, 3),
        (3, 36, 999_983, 3, 4),
        (16, 3072, 4001, 4, 3),
        (7, 1000, 30_011, 1, 1),
    ] {
        let shape = Shape {
            channels: 1,
            dies,
            superblocks,
            pages_per_block,
        };
        let word_line = WordLine {
            planes,
            bits,
            ..WordLine::SINGLE
        };
        let geometry = Geometry::new(shape).unwrap();
        let geometry = geometry.with_word_line(word_line).unwrap();
        let (all, stripe) = (dies * pages_per_block, geometry.stripe());
        let last = geometry.pages() - 1;
        let some = (0..last).step_by(last as usize / 50_000 + 1);
        for page in some.chain(0..all).chain(last - all..=last) {
            let (superblock, offset) = (page / all, page % all);
            let line = offset / stripe;
            let slot = geometry.slot(Ppn(page));
            assert_eq!(geometry.superblock(Ppn(page)).0, superblock);
            assert_eq!(geometry.offset(Ppn(page)), offset);
            assert_eq!(slot.die, line % dies);
            assert_eq!(slot.row, line / dies * stripe + offset % stripe);
            assert_eq!(geometry.line_start(offset), offset - offset % stripe);
        }
    }
}

/// Pending programs land, and are torn, by the mode in which they were issued.
#[test]
fn pending_programs_keep_their_mode() {
    let word_line = WordLine {
        planes: 2,
        bits: 2,
        one_shot: true,
        ..WordLine::SINGLE
    };
    let geometry = geometry().with_word_line(word_line).expect("valid");
    let mut media = Media::blank(geometry, ContentMode::Identity, 64);
    media.use_slc(SlcArea::dynamic(&geometry));
    media.attach_rail();
    media.unprotect(true);
    media.set_slc(SbId(0), true);
    (0..4).for_each(|page| program(&mut media, page, After::NOTHING));
    media
        .erase(geometry.block(SbId(0), 0), ClearId(1), After::ALL)
        .expect("sound media");
    media.set_slc(SbId(0), false);
    (0..4).for_each(|page| program(&mut media, page, After::NOTHING));

    // Two units of two pages, the erase, and a unit of four.
    let mut kinds = Vec::new();
    let _ = media.cut_by(|kind| {
        kinds.push(kind);
        Outcome::Whole
    });
    let (program, erase) = (OpKind::Program, OpKind::Erase);
    assert_eq!(kinds, [program, program, erase, program]);

    // A torn unit of one bit damages no page before it.
    for seed in 0..32 {
        let mut units = 0;
        let left = media.cut_by(|_| {
            units += 1;
            match units {
                1 => Outcome::Whole,
                2 => Outcome::Torn(seed),
                _ => Outcome::Absent,
            }
        });
        let left = Media::from_image(&left);
        assert!(left.is_readable(Ppn(0)) && left.is_readable(Ppn(1)));
    }
    media.settle_all();
    assert_eq!(media.pending(), 0);
}
