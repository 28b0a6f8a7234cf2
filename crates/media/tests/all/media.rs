//! Guarantees of the media to the firmware: order, tearing, correction, faults, snapshots.

use crate::kit::{WORDS, after_cut, blocks, page, program, railed, read, slot, tiny};
use remap_ssd_media::Outcome::{Absent, Torn, Whole};
use remap_ssd_media::{
    After, BlockId, ContentMode, Lpn, Media, MediaError, Oob, OpKind, Payload, Ppn, Purpose, SbId,
    StoredPage,
};
use std::sync::Arc;

fn plain() -> Media {
    Media::blank(tiny(), ContentMode::Identity, WORDS)
}

// ---- order and tearing ----

#[test]
#[should_panic(expected = "programs within a block are in order")]
fn a_block_is_programmed_in_order() {
    let _ = program(&mut plain(), page(0, 1), 1, After::NOTHING);
}

#[test]
#[should_panic(expected = "programs within a block are in order")]
fn a_page_is_programmed_once_per_erase() {
    let mut media = plain();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    let _ = program(&mut media, page(0, 0), 2, After::NOTHING);
}

#[test]
fn a_torn_program_is_consumed_and_unreadable() {
    let mut media = railed();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    let mut left = after_cut(&media, &[Torn(0)]);
    assert!(left.is_programmed(page(0, 0)) && !left.is_readable(page(0, 0)));
    assert_eq!(
        left.read(page(0, 0), Purpose::Host).err(),
        Some(MediaError::Uncorrectable)
    );
    assert_eq!(
        left.read_oob(page(0, 0), Purpose::Host),
        Err(MediaError::Uncorrectable)
    );
    program(&mut left, page(0, 1), 2, After::NOTHING).expect("the block goes on after a torn page");
    assert_eq!(read(&mut left, page(0, 1)), Ok(2));
}

#[test]
fn a_torn_erase_leaves_a_block_that_must_be_erased_again() {
    let mut media = railed();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    media.settle_all();
    let id = media.name_next();
    media.erase(BlockId(0), id, After::NOTHING).unwrap();
    let mut left = after_cut(&media, &[Torn(0)]);
    assert_eq!(
        left.next_row(BlockId(0)),
        tiny().pages_per_block(),
        "nothing more fits into it"
    );
    assert!((0..4).all(|row| !left.is_readable(page(0, row))));
    let id = left.name_next();
    left.erase(BlockId(0), id, After::NOTHING).unwrap();
    program(&mut left, page(0, 0), 2, After::NOTHING).unwrap();
    assert_eq!(read(&mut left, page(0, 0)), Ok(2));
}

#[test]
fn a_store_is_never_torn() {
    let mut media = railed();
    media.store(3, u64::MAX, Purpose::Host, After::NOTHING);
    assert_eq!(after_cut(&media, &[Torn(77)]).load(3), Ok(0));
    assert_eq!(after_cut(&media, &[Whole]).load(3), Ok(u64::MAX));
}

#[test]
fn a_torn_clearing_zeroes_some_of_its_words_and_nothing_else() {
    let mut media = railed();
    for word in 0..WORDS {
        media.store(word, 5, Purpose::Host, After::NOTHING);
    }

    media.settle_all();
    media.clear(8, 48, After::NOTHING);
    let mut cleared = 0;

    for seed in 0..8 {
        let mut left = after_cut(&media, &[Torn(seed)]);
        let words: Vec<u64> = (0..WORDS).map(|word| left.load(word).unwrap()).collect();
        assert!(words[..8].iter().chain(&words[56..]).all(|word| *word == 5));
        assert!(words.iter().all(|word| *word == 5 || *word == 0));
        cleared += words.iter().filter(|word| **word == 0).count();
    }

    assert!(
        (1..8 * 48).contains(&cleared),
        "a torn clearing is neither whole nor absent: {cleared} of 384 words"
    );
}

// ---- acknowledgements ----

#[test]
fn an_acknowledgement_waits_for_the_host_s_operations_only() {
    let mut media = railed();
    media.begin_command();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    let oob = Oob::new(Lpn(2), 2, 1);

    media
        .program(
            page(1, 0),
            oob,
            StoredPage::Identity(2),
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();

    let ack = media.take_ack();
    media.settle(&ack);
    assert_eq!(media.pending(), 1);

    let mut left = after_cut(&media, &[Absent]);
    assert_eq!(read(&mut left, page(0, 0)), Ok(1));
    assert!(!left.is_programmed(page(1, 0)));
}

#[test]
fn an_acknowledgement_takes_along_what_its_operations_come_after() {
    let mut media = railed();
    let oob = Oob::new(Lpn(1), 1, 1);
    media
        .program(
            page(0, 0),
            oob,
            StoredPage::Identity(1),
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();
    media.begin_command();
    media.store(0, 9, Purpose::Host, After::page(page(0, 0)));
    let ack = media.take_ack();
    media.settle(&ack);
    assert_eq!(media.pending(), 0);
    assert_eq!(read(&mut after_cut(&media, &[Absent]), page(0, 0)), Ok(1));
}

#[test]
fn a_command_can_wait_for_what_others_issued() {
    let mut media = railed();
    media.store(0, 1, Purpose::Meta, After::NOTHING);
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    media.begin_command();
    media.ack_after(After::FENCE);
    let stores = media.take_ack();
    media.begin_command();
    media.ack_after(After::ALL);
    let all = media.take_ack();
    media.settle(&stores);
    assert_eq!(media.pending(), 1, "a fence names stores, not programs");
    media.settle(&all);
    assert_eq!(media.pending(), 0);
}

#[test]
fn a_copy_lands_only_after_the_page_it_was_read_from() {
    let mut media = railed();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    media
        .copy(
            page(0, 0),
            slot(1, 0),
            Oob::new(Lpn(1), 1, 1),
            b"lost",
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();
    let left = after_cut(&media, &[Absent, Whole]);
    assert!(!left.is_programmed(page(0, 0)) && !left.is_programmed(page(1, 0)));
    assert_eq!(read(&mut after_cut(&media, &[Whole]), page(1, 0)), Ok(1));
}

// Two commands store to one word; the second is acknowledged first. The first must not land over it
// later.
#[test]
fn a_settled_store_is_never_undone_by_an_older_one() {
    let mut media = railed();
    media.store(0, 1, Purpose::Host, After::NOTHING);
    media.begin_command();
    media.store(0, 2, Purpose::Host, After::NOTHING);
    let ack = media.take_ack();
    media.settle(&ack);
    assert_eq!(after_cut(&media, &[Whole]).load(0), Ok(2));
    assert_eq!(after_cut(&media, &[Absent]).load(0), Ok(2));
}

#[test]
fn without_a_rail_everything_has_landed() {
    let mut media = plain();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    assert_eq!(media.pending(), 0);
    assert_eq!(read(&mut after_cut(&media, &[Absent]), page(0, 0)), Ok(1));
}

// ---- NVRAM errors ----

#[test]
fn one_flipped_bit_is_corrected_and_two_are_reported() {
    let mut media = plain();
    media.store(5, 0xabcd, Purpose::Host, After::NOTHING);
    media.plant(|faults| {
        faults.flips.insert(5, 1 << 40);
    });
    assert_eq!(media.load(5), Ok(0xabcd));
    assert_eq!(media.counts.nv_corrected, 1);
    media.plant(|faults| {
        faults.flips.insert(5, 1 << 40 | 1);
    });
    assert_eq!(media.load(5), Err(MediaError::Uncorrectable));
    assert_eq!(media.load(6), Ok(0), "the next word is whole");
}

#[test]
fn storing_or_clearing_a_word_heals_it() {
    let mut media = plain();
    media.plant(|faults| {
        faults.flips.insert(5, 3);
        faults.flips.insert(6, 3);
        faults.flips.insert(7, 3);
    });
    media.store(5, 1, Purpose::Host, After::NOTHING);
    media.clear(6, 1, After::NOTHING);
    assert_eq!((media.load(5), media.load(6)), (Ok(1), Ok(0)));
    assert_eq!(media.load(7), Err(MediaError::Uncorrectable));
}

// ---- planted faults of the flash ----

#[test]
fn a_failed_program_is_reported_at_once_and_consumes_its_page() {
    let mut media = plain();
    media.plant(|faults| {
        faults.program.insert(BlockId(1), 1);
    });
    program(&mut media, page(1, 0), 1, After::NOTHING).expect("row 0 is still good");
    assert_eq!(
        program(&mut media, page(1, 1), 2, After::NOTHING),
        Err(MediaError::ProgramFailed)
    );
    assert_eq!(
        read(&mut media, page(1, 0)),
        Ok(1),
        "earlier pages of the block stay readable"
    );
    assert!(media.is_programmed(page(1, 1)) && !media.is_readable(page(1, 1)));
    program(&mut media, page(0, 0), 3, After::NOTHING).expect("other blocks are not concerned");
}

#[test]
fn a_failed_erase_leaves_nothing_readable() {
    let mut media = plain();
    for block in blocks(0) {
        program(&mut media, page(block.0, 0), 1, After::NOTHING).unwrap();
    }

    media.plant(|faults| {
        faults.erase.insert(BlockId(1));
    });
    let id = media.name_next();

    media.erase(BlockId(0), id, After::NOTHING).unwrap();
    assert_eq!(
        media.erase(BlockId(1), id, After::NOTHING),
        Err(MediaError::EraseFailed)
    );
    assert!(!media.is_programmed(page(0, 0)));
    assert!(!media.is_readable(page(1, 0)));
    assert_eq!(
        (media.erase_count(BlockId(0)), media.erase_count(BlockId(1))),
        (1, 1),
        "wear counts both"
    );
}

#[test]
fn an_uncorrectable_page_stays_so_until_its_block_is_erased() {
    let mut media = plain();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    program(&mut media, page(1, 0), 2, After::NOTHING).unwrap();
    media.plant(|faults| {
        faults.read.insert(page(0, 0));
    });
    assert_eq!(read(&mut media, page(0, 0)), Err(MediaError::Uncorrectable));
    assert_eq!(read(&mut media, page(1, 0)), Ok(2));
    let id = media.name_next();
    media.erase(BlockId(0), id, After::NOTHING).unwrap();
    program(&mut media, page(0, 0), 3, After::NOTHING).unwrap();
    assert_eq!(read(&mut media, page(0, 0)), Ok(3));
}

#[test]
fn a_copy_of_an_unreadable_page_is_a_page_that_says_so() {
    let mut media = plain();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    media.plant(|faults| {
        faults.read.insert(page(0, 0));
    });

    let oob = Oob::new(Lpn(1), 1, 1);
    media
        .copy(
            page(0, 0),
            slot(1, 0),
            oob,
            b"lost",
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();

    assert!(media.is_meta(page(1, 0)));
    let (found, bytes) = media
        .read_meta(page(1, 0), Purpose::Host)
        .unwrap()
        .expect("programmed");
    assert_eq!((found, &bytes[..]), (oob, b"lost".as_slice()));
}

// ---- contents ----

#[test]
fn a_device_keeps_contents_in_its_own_mode() {
    let bytes = Payload::Bytes(&[7; 4096]);
    let mut media = Media::blank(tiny(), ContentMode::Bytes, WORDS);
    media
        .program_payload(
            slot(0, 0),
            Oob::new(Lpn(1), 1, 1),
            &bytes,
            Purpose::Host,
            After::NOTHING,
        )
        .unwrap();
    media
        .copy(
            page(0, 0),
            slot(1, 0),
            Oob::new(Lpn(1), 2, 1),
            b"",
            Purpose::Gc,
            After::NOTHING,
        )
        .unwrap();
    let read = media.read(page(1, 0), Purpose::Host).unwrap();
    assert_eq!(read, remap_ssd_media::Page::Bytes([7; 4096].into()));

    let mut media = Media::blank(tiny(), ContentMode::None, WORDS);
    media
        .program_payload(
            slot(0, 0),
            Oob::new(Lpn(1), 1, 1),
            &bytes,
            Purpose::Host,
            After::NOTHING,
        )
        .unwrap();
    assert_eq!(
        media.read(page(0, 0), Purpose::Host),
        Ok(remap_ssd_media::Page::Unknown)
    );
}

#[test]
fn the_tail_is_a_view_of_the_oob_areas() {
    let mut media = plain();
    for row in 0..3 {
        for block in 0..2 {
            program(
                &mut media,
                page(block, row),
                u64::from(10 * row + block),
                After::NOTHING,
            )
            .unwrap();
        }
    }

    let tail = page(0, 3);
    assert_eq!(
        media.read_tail(tail, Ppn(0), 6),
        Err(MediaError::Uncorrectable),
        "it is not programmed yet"
    );

    media
        .program(
            tail,
            Oob::new(Oob::TAIL, 1, 1),
            StoredPage::Nothing,
            Purpose::Meta,
            After::NOTHING,
        )
        .unwrap();

    let records = media.read_tail(tail, Ppn(0), 6).unwrap().to_vec();
    let areas: Vec<Oob> = (0..6).map(|offset| media.oob(Ppn(offset))).collect();
    assert_eq!(records, areas);
    assert_eq!(
        media.read_tail(page(0, 0), Ppn(0), 6),
        Err(MediaError::Uncorrectable),
        "a data page is no tail"
    );
}

#[test]
fn an_oob_record_keeps_every_bit_it_has_room_for() {
    for lpn in [Lpn(0), Lpn(1), Lpn(0x7fff_ffff), Oob::LOG, Oob::HEAD] {
        for wsn in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 42) - 1] {
            for incarnation in [0, 1, 63, 64, 1000] {
                let oob = Oob::from_bytes(Oob::new(lpn, wsn, incarnation).to_bytes());
                assert_eq!(
                    (oob.lpn(), oob.wsn(), oob.incarnation()),
                    (lpn, wsn, incarnation % 64)
                );
            }
        }
    }
}

// ---- the record of operations ----

#[test]
fn adjacent_stores_of_one_command_are_one_access_of_at_most_64_bytes() {
    let mut media = plain();
    for word in 0..9 {
        media.store(word, 1, Purpose::Host, After::NOTHING);
    }
    let amounts: Vec<u32> = media.ops.iter().map(|op| op.amount).collect();
    assert_eq!(amounts, [64, 8]);
    media.ops.clear();
    media.store(0, 1, Purpose::Host, After::NOTHING);
    media.store(1, 1, Purpose::Host, After::FENCE);
    media.store(2, 1, Purpose::Gc, After::NOTHING);
    assert_eq!(
        media.ops.len(),
        3,
        "what waits, and what is done for another purpose, is an access of its own"
    );
}

#[test]
fn what_an_operation_waits_for_is_recorded_with_it() {
    let mut media = plain();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    let id = media.clear(0, 8, After::ALL);
    media.store(
        0,
        1,
        Purpose::Host,
        After::page(page(0, 0)).and(After::clear(id)),
    );
    let [_, clear, store] = &media.ops[..] else {
        panic!("three operations: {:?}", media.ops)
    };
    assert!(clear.kind == OpKind::NvClear && clear.after_all && clear.clear_id == id);
    assert!(store.after_page == page(0, 0) && store.clear_id == id && !store.after_all);
}

// ---- snapshots ----

#[test]
fn an_image_is_what_was_frozen_and_nothing_later() {
    let mut media = railed();
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    media.store(64, 1, Purpose::Host, After::NOTHING);
    media.settle_all();
    let before = media.cut(|| Absent);
    let digest = before.digest();
    program(&mut media, page(0, 1), 2, After::NOTHING).unwrap();
    media.store(64, 2, Purpose::Host, After::NOTHING);
    media.settle_all();
    assert_eq!(before.digest(), digest);
    assert_ne!(media.cut(|| Absent).digest(), digest);
    assert_eq!(before.word(64), 1);
    let mut old = Media::from_image(&before);
    assert_eq!(read(&mut old, page(0, 0)), Ok(1));
    assert!(!old.is_programmed(page(0, 1)));
}

#[test]
fn live_and_settled_views_meet_when_everything_has_landed() {
    let mut media = railed();
    for row in 0..4 {
        program(&mut media, page(0, row), u64::from(row), After::NOTHING).unwrap();
    }
    let id = media.name_next();
    media
        .erase(tiny().block(SbId(1), 0), id, After::ALL)
        .unwrap();
    media.store(1, 1, Purpose::Meta, After::clear(id));
    assert_eq!(media.to_image().digest(), media.cut(|| Whole).digest());
    media.settle_all();
    assert_eq!(media.to_image().digest(), media.cut(|| Absent).digest());
}

#[test]
fn digests_tell_images_apart() {
    let mut media = railed();
    let mut seen = vec![media.to_image().digest()];
    program(&mut media, page(0, 0), 1, After::NOTHING).unwrap();
    seen.push(media.to_image().digest());
    seen.push(media.cut(|| Torn(0)).digest());
    media.store(69, 1, Purpose::Host, After::NOTHING);
    seen.push(media.to_image().digest());

    let meta = StoredPage::Meta(Arc::from(b"meta".as_slice()));
    media
        .program(
            page(1, 0),
            Oob::new(Oob::LOG, 1, 1),
            meta,
            Purpose::Meta,
            After::NOTHING,
        )
        .unwrap();

    seen.push(media.to_image().digest());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}
