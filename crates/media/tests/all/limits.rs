//! The extent of planted faults, to the word and to the page.

use crate::kit::{WORDS, page, program, read, tiny};
use remap_ssd_media::{After, BlockId, ContentMode, Media, MediaError, Purpose};

fn plain() -> Media {
    Media::blank(tiny(), ContentMode::Identity, WORDS)
}

#[test]
fn a_word_that_is_changed_in_its_record_is_healed() {
    for watched in [false, true] {
        let mut media = plain();
        if watched {
            media.attach_rail();
        }
        media.store_record(10, &[1, 2, 3], Purpose::Host, After::NOTHING);
        media.plant(|faults| (9..14).for_each(|word| _ = faults.flips.insert(word, 0b11)));
        media.change_record(10..13, 11, 7, Purpose::Host, After::NOTHING);
        assert_eq!(media.load(11), Ok(7));
        let damaged = [9, 10, 12, 13].map(|word| media.load(word));
        assert_eq!(
            damaged,
            [Err(MediaError::Uncorrectable); 4],
            "its neighbours are not"
        );
    }
}

#[test]
fn a_clearing_heals_its_words_and_none_besides() {
    let mut media = plain();
    media.plant(|faults| (19..26).for_each(|word| _ = faults.flips.insert(word, 0b11)));
    media.clear(20, 5, After::NOTHING);
    assert!((20..25).all(|word| media.load(word) == Ok(0)));
    assert_eq!(
        [19, 25].map(|word| media.load(word)),
        [Err(MediaError::Uncorrectable); 2]
    );
}

#[test]
fn an_erase_heals_its_block_and_no_other() {
    let mut media = plain();
    for block in [2, 3] {
        (0..4).for_each(|row| {
            program(
                &mut media,
                page(block, row),
                u64::from(10 * block + row),
                After::NOTHING,
            )
            .unwrap()
        });
    }

    media.plant(|faults| {
        for block in [2, 3] {
            (0..4).for_each(|row| _ = faults.read.insert(page(block, row)));
        }
    });

    let id = media.name_next();
    media.erase(BlockId(2), id, After::NOTHING).unwrap();
    (0..4).for_each(|row| program(&mut media, page(2, row), 7, After::NOTHING).unwrap());
    assert!((0..4).all(|row| read(&mut media, page(2, row)) == Ok(7)));
    assert!((0..4).all(|row| read(&mut media, page(3, row)) == Err(MediaError::Uncorrectable)));
}

#[test]
fn programs_fail_from_the_planted_row_on() {
    for from in 0..4 {
        let mut media = plain();
        media.plant(|faults| _ = faults.program.insert(BlockId(5), from));
        for row in 0..4 {
            let programmed = program(&mut media, page(5, row), 3, After::NOTHING);
            assert_eq!(
                programmed.is_ok(),
                row < from,
                "row {row} of a block that fails from {from} on"
            );
            assert_eq!(program(&mut media, page(4, row), 3, After::NOTHING), Ok(()));
        }
    }
}
