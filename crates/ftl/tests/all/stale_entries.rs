//! Entries in NVRAM of an earlier incarnation of their superblock: a clearing torn by a cut may
//! leave some. They refer to no page of the current one.

use crate::kit::{device, put, small_config, small_geometry};
use remap_ssd_ftl::scheme::RmmEntry;
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::{After, Media, Page, Purpose};

fn config() -> Config {
    Config {
        dedup: false,
        ..small_config(SchemeKind::RemapSsd)
    }
}

/// LPNs 0 to 49 written, and LPN 200 remapped to the page of LPN 0. Returns the first word of the
/// slot after the entry.
fn with_an_entry() -> (Ftl, usize) {
    let mut ftl = device(small_geometry(), &config());
    (0..50).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.remap(&Remap {
        target: Lpn(200),
        source: Lpn(0),
        len: 1,
        relocate: false,
        atomic: false,
    })
    .unwrap();

    let words = ftl.media().nvram_words();
    let base = words - (config().log_bytes / 8) as usize;
    let entry = |at: usize| RmmEntry::from_words(ftl.media().peek(at), ftl.media().peek(at + 1));
    let is_it = |at: &usize| entry(*at).is_intact() && entry(*at).target() == Lpn(200);
    let at = (base..words).step_by(2).find(is_it).expect("an entry");
    assert_eq!([at + 2, at + 3].map(|at| ftl.media().peek(at)), [0, 0]);
    (ftl, at + 2)
}

/// An entry for LPN 300, at this offset of the superblock and with this number. `is_damaged`: its
/// LPN is unreadable.
fn recovered_with(offset: u32, wsn: u64, is_damaged: bool) -> Ftl {
    let (ftl, at) = with_an_entry();
    let words = [
        wsn << 22 | u64::from(offset) << 1 | 1,
        RmmEntry::second_of(Lpn(300), None),
    ];
    let mut media: Media = ftl.into_media();
    media.store_record(at, &words, Purpose::Meta, After::NOTHING);
    media.plant(|faults| {
        faults.flips.extend(is_damaged.then_some((at + 1, 0b11)));
    });

    let found = Ftl::recover(media, config());
    let (ftl, _) = found.expect("the entry concerns nothing that is there");
    ftl.check().expect("whole");
    ftl
}

#[test]
fn an_entry_counts_only_for_a_page_that_is_there_and_is_older() {
    let (ftl, _) = with_an_entry();
    let offset = |lpn| small_geometry().offset(ftl.place(Lpn(lpn)).expect("a page"));
    assert_eq!(
        small_geometry().superblock(ftl.place(Lpn(40)).expect("a page")),
        small_geometry().superblock(ftl.place(Lpn(0)).expect("a page"))
    );
    let erased = offset(49) + 1;
    let number = ftl.media().oob(ftl.place(Lpn(40)).expect("a page")).wsn();

    let mut counts = recovered_with(offset(40), number + 1000, false);
    assert_eq!(counts.read(Lpn(300)), Ok(Page::Identity(41)));

    for is_damaged in [false, true] {
        for (offset, wsn) in [(offset(40), number - 1), (erased, number + 1000)] {
            let mut ftl = recovered_with(offset, wsn, is_damaged);
            assert_eq!(ftl.read(Lpn(300)), Ok(Page::Zeroes), "{offset} {wsn}");
            assert_eq!(ftl.read(Lpn(200)), Ok(Page::Identity(1)));
            let all =
                (0..50).all(|lpn| ftl.read(Lpn(lpn)) == Ok(Page::Identity(u64::from(lpn) + 1)));
            assert!(all, "{offset} {wsn}");
        }
    }
}
