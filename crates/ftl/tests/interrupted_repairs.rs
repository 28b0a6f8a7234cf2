//! Recovery from damage that a second cut interrupts: what was in doubt is in doubt again, or has been settled for good.

mod kit;

use kit::{Random, device, put, small_config, small_geometry};
use remap_ssd_ftl::scheme::RmmEntry;
use remap_ssd_ftl::{Config, EntrySize, Ftl, Refusal, Remap, SchemeKind};
use remap_ssd_media::{After, Media, OpKind, Outcome, Page, Ppn, Purpose};

/// Recovers what is damaged and cuts the power: `outcome` says what becomes of recovery's operations, by number and, if they
/// are programs, by page. What was not stored anew is still damaged. How many operations there were.
fn interrupted(media: &mut Media, config: &Config, outcome: impl Fn(usize, Option<Ppn>) -> Outcome) -> usize {
    let mut faults = media.faults().clone();
    let mut found = Media::from_image(&media.to_image());
    found.plant(|planted| *planted = faults.clone());
    found.attach_rail();
    let (ftl, _) = Ftl::recover(found, config.clone()).expect("recovers");
    let mut programs = ftl.media().ops.iter().filter(|op| op.kind == OpKind::Program).map(|op| op.page);
    let mut asked = 0;
    let image = ftl.media().cut_by(|kind| {
        asked += 1;
        outcome(asked - 1, if kind == OpKind::Program { programs.next() } else { None })
    });
    let mut left = Media::from_image(&image);
    faults.flips.retain(|word, _| left.peek(*word) == media.peek(*word));
    left.plant(|planted| *planted = faults);
    *media = left;
    asked
}

/// The number of an aborted command moves nowhere else in the list while the word that it was in is damaged.
#[test]
fn a_damaged_word_of_the_aborted_list_keeps_its_number_through_a_cut() {
    let slot = 3 * small_geometry().superblocks() as usize;
    let config = Config { entry: EntrySize::Bytes24, dedup: false, ..small_config(SchemeKind::None) };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    ftl.remap(&Remap { target: 0, source: 50, len: 2, relocate: false, atomic: true }).unwrap();
    // All but the commit.
    let mut pending = ftl.media().pending();
    let image = ftl.media().cut(|| {
        pending -= 1;
        if pending == 0 { Outcome::Absent } else { Outcome::Whole }
    });
    let (mut ftl, _) = Ftl::recover(Media::from_image(&image), config.clone()).expect("recovers");
    assert_eq!(ftl.aborted().len(), 1);

    // As it is when the number before it in the list has gone.
    let number = ftl.media().peek(slot + 1);
    ftl.media_mut().store(slot + 1, 0, Purpose::Meta, After::NOTHING);
    ftl.media_mut().store(slot + 2, number, Purpose::Meta, After::NOTHING);
    let image = ftl.media().to_image();
    let (mut at, mut pending) = (0, 1);
    while at < pending {
        let mut left = Media::from_image(&image);
        left.plant(|faults| {
            faults.flips.insert(slot + 2, 0b11);
        });
        pending = interrupted(&mut left, &config, |op, _| if op == at { Outcome::Whole } else { Outcome::Absent });
        at += 1;
        let (mut ftl, _) = Ftl::recover(left, config.clone()).expect("recovers");
        let found: Vec<_> = (0..100).map(|lpn| ftl.read(lpn)).collect();
        assert!((1..).zip(&found).all(|(identity, read)| *read == Ok(Page::Identity(identity))), "operation {at}");
    }
}

/// Again and again the cut tears the page that says that the LPN is in doubt. As long as there is one that needs no
/// collection, to the last page of the superblock being filled, the damaged word goes after it.
#[test]
fn an_lpn_in_doubt_stays_in_doubt_while_there_is_a_page_for_it() {
    let config = Config { dedup: false, ..small_config(SchemeKind::RemapSsd) };
    let mut ftl = device(small_geometry(), &config);
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.remap(&Remap { target: 2, source: 1, len: 1, relocate: false, atomic: false }).unwrap();
    let mut random = Random(3);
    while ftl.stats().gc_runs < 50 {
        put(&mut ftl, 10 + random.below(590) as u32, 1000);
    }
    let mut media = Media::from_image(&ftl.media().to_image());
    media.plant(|faults| faults.flips.extend(entries_of(&ftl, 2).into_iter().map(|at| (at, 0b11 << 30))));
    let is_head = |page: Ppn| page.0 % 64 == small_geometry().superblock(page).0 % 4;
    for round in 0..122 {
        interrupted(&mut media, &config, |_, page| match page {
            Some(page) if !is_head(page) => Outcome::Torn(0),
            _ => Outcome::Whole,
        });
        assert!(!media.faults().is_empty(), "round {round}: the word was zeroed first");
    }
    let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
    assert_eq!(ftl.read(2), Err(Refusal::MediaError), "not 3, which was overwritten");
    assert_eq!(ftl.read(1), Ok(Page::Identity(2)));
}

/// Without its number nobody knows whether a deallocation is that of a command that a cut interrupted.
#[test]
fn a_damaged_deallocation_of_an_interrupted_command_takes_nothing_away() {
    let config = Config { entry: EntrySize::Bytes24, dedup: false, ..small_config(SchemeKind::None) };
    let mut ftl = device(small_geometry(), &config);
    (0..100).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    // From pages that are not mapped.
    ftl.remap(&Remap { target: 0, source: 200, len: 2, relocate: false, atomic: true }).unwrap();
    let mut pending = ftl.media().pending();
    let mut media = Media::from_image(&ftl.media().cut(|| {
        pending -= 1;
        if pending == 0 { Outcome::Absent } else { Outcome::Whole }
    }));
    let record = 3 * small_geometry().superblocks() as usize + 1 + 64;
    assert!(media.peek(record) & 1 == 1 && media.peek(record + 1) & 1 == 1);
    media.plant(|faults| {
        faults.flips.insert(record, 0b11 << 30);
    });
    let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
    for lpn in 0..2 {
        assert_eq!(ftl.read(lpn), Err(Refusal::MediaError), "not zeroes");
    }
}

/// First word of every intact entry of an LPN in the scheme's NVRAM.
fn entries_of(ftl: &Ftl, lpn: u32) -> Vec<usize> {
    let words = ftl.media().nvram_words();
    let (segment, base) = (128 / 8, words - (8 << 10) / 8);
    let places = (base..words).step_by(2).filter(|at| !(at - base).is_multiple_of(segment));
    let entry = |at: usize| RmmEntry::from_words(ftl.media().peek(at), ftl.media().peek(at + 1));
    places.filter(|at| entry(*at).is_intact() && entry(*at).target() == lpn).collect()
}
