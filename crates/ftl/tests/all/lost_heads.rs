//! Superblocks with an unreadable head: any page proves that they were in use, and without one they
//! are free.

use crate::kit::{Random, device, put, recovered, small_config, small_geometry};
use remap_ssd_ftl::{
    Config, Ftl, Lpn, RecoveryError, SchemeKind, Stream, Superblock, SuperblockState,
};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{
    After, Geometry, Image, Media, Oob, OpKind, Outcome, Page, Ppn, Purpose, SbId, StoredPage,
};

/// Logical pages of the host.
const LPNS: u32 = 600;

fn config(scheme: SchemeKind) -> Config {
    Config {
        dedup: false,
        ..small_config(scheme)
    }
}

/// The head of a superblock whose blocks are all good.
fn head_of(sb: SbId) -> Ppn {
    small_geometry().page(sb, sb.0 % small_geometry().dies())
}

/// The superblock that the host is filling.
fn filled(ftl: &Ftl) -> Option<SbId> {
    ftl.superblocks()
        .find(|(_, sb)| sb.state == SuperblockState::Open && sb.stream == Stream::Host)
        .map(|(id, _)| id)
}

/// A device with every page written, and the power rail attached while a superblock was opened,
/// none of which is durable yet. Returns that superblock, and the number of programs before its
/// head. It was opened for a write of LPN 599.
fn opening(scheme: SchemeKind) -> (Ftl, SbId, usize) {
    let mut ftl = device(small_geometry(), &config(scheme));
    (0..LPNS).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    let before = filled(&ftl);

    loop {
        ftl.media_mut().settle_all();
        ftl.media_mut().ops.clear();
        put(&mut ftl, LPNS - 1, 1000);
        let Some(sb) = filled(&ftl).filter(|sb| before != Some(*sb)) else {
            continue;
        };
        let mut programs = ftl
            .media()
            .ops
            .iter()
            .filter(|op| op.kind == OpKind::Program);
        let head = programs
            .position(|op| op.page == head_of(sb))
            .expect("it was programmed");
        return (ftl, sb, head);
    }
}

/// Cuts the power: the first `whole` programs land, and all others have the outcome `rest`.
fn cut_after(ftl: &Ftl, whole: usize, rest: Outcome) -> Media {
    let mut programs = 0;
    let image = ftl.media().cut_by(|kind| {
        programs += usize::from(kind == OpKind::Program);
        if kind == OpKind::Program && programs > whole {
            rest
        } else {
            Outcome::Whole
        }
    });
    Media::from_image(&image)
}

/// A cut tears its first pages, filling continues after them, and when it is full its head becomes
/// unreadable. If it were taken for free, the data it supersedes would come back.
#[test]
fn a_superblock_with_torn_first_pages_outlives_its_head() {
    for scheme in SchemeKind::ALL
        .into_iter()
        .filter(|scheme| scheme.is_durable())
    {
        let (mut ftl, sb, head) = opening(scheme);
        let under_head = Ppn(head_of(sb).0 + small_geometry().dies());
        while !ftl.media().is_programmed(under_head) {
            put(&mut ftl, LPNS - 1, 1000);
        }
        let (mut ftl, _) =
            Ftl::recover(cut_after(&ftl, head + 1, Outcome::Torn(0)), config(scheme))
                .expect("recovers");
        assert_eq!(filled(&ftl), Some(sb), "{scheme}");

        let mut rewritten = 0;
        while filled(&ftl) == Some(sb) {
            put(&mut ftl, rewritten, u64::from(rewritten) + 2001);
            rewritten += 1;
        }
        put(&mut ftl, LPNS - 1, 2000);
        let first_row = (0..small_geometry().dies()).map(|die| small_geometry().page(sb, die));
        let mut readable = first_row
            .chain([under_head])
            .filter(|page| ftl.media().is_readable(*page));
        assert!(
            rewritten > 20 && readable.all(|page| page == head_of(sb)),
            "{scheme}"
        );
        ftl.media_mut().plant(|faults| {
            faults.read.insert(head_of(sb));
        });

        let (mut ftl, report) = recovered(ftl);
        assert_eq!(report.lost, 0, "{scheme}");
        for lpn in 0..LPNS - 1 {
            let since = if lpn < rewritten { 2001 } else { 1 };
            assert_eq!(
                ftl.read(Lpn(lpn)),
                Ok(Page::Identity(u64::from(lpn) + since)),
                "{scheme}"
            );
        }
        assert_eq!(
            ftl.read(Lpn(LPNS - 1)),
            Ok(Page::Identity(2000)),
            "{scheme}"
        );
    }
}

/// After any cut there may be a torn head with nothing after it: the first page of each block shows
/// that.
#[test]
fn a_torn_head_costs_a_page_of_each_block() {
    let (ftl, sb, head) = opening(SchemeKind::None);
    let (ftl, _) = Ftl::recover(
        cut_after(&ftl, head, Outcome::Torn(0)),
        config(SchemeKind::None),
    )
    .expect("recovers");
    assert_ne!(filled(&ftl), Some(sb));
    let pages = small_geometry().page(sb, 0)..small_geometry().page(SbId(sb.0 + 1), 0);
    let reads = ftl
        .media()
        .ops
        .iter()
        .filter(|op| op.kind == OpKind::Read && pages.contains(&op.page));
    // The head and the page after it are read as heads first; after the head, its block has one
    // more page.
    assert_eq!(reads.count() as u32, 2 + small_geometry().dies() + 1);
}

/// Damages the word that determines which heads count.
fn without_its_life(media: &mut Media, sb: SbId) {
    media.plant(|faults| {
        faults.flips.insert(sb.0 as usize * 3, 0b11);
    });
}

/// Cuts the power during the erase of every superblock that is collected; `outcome` determines the
/// result for each of its blocks, by die. Then the first word of its life becomes unreadable. The
/// two recoveries after that must read the written data.
fn erases_cut(outcome: impl Fn(SbId, u32) -> Outcome) {
    let config = config(SchemeKind::None);
    let mut ftl = device(small_geometry(), &config);
    ftl.media_mut().attach_rail();
    let (mut contents, mut random, mut tried) = (vec![0; LPNS as usize], Random(5), 0);

    for step in 1..6000 {
        let before: Vec<u32> = ftl
            .superblocks()
            .map(|(_, sb)| sb.life.incarnation())
            .collect();
        // Mostly the same few LPNs: superblocks are collected soon, and their remaining pages go to
        // older ones.
        let among = if random.below(16) == 0 {
            LPNS.into()
        } else {
            30
        };
        let lpn = random.below(among) as u32;
        put(&mut ftl, lpn, step);
        let is_erased =
            |(id, sb): &(SbId, &Superblock)| sb.life.incarnation() != before[id.0 as usize];
        let erased: Vec<SbId> = ftl
            .superblocks()
            .filter(is_erased)
            .map(|(id, _)| id)
            .collect();
        if let [sb] = erased[..] {
            let mut die = 0;
            let image = ftl.media().cut_by(|kind| {
                let block = die;
                die += u32::from(kind == OpKind::Erase);
                if kind == OpKind::Erase {
                    outcome(sb, block)
                } else {
                    Outcome::Whole
                }
            });
            assert_eq!(die, small_geometry().dies());
            let mut media = Media::from_image(&image);
            without_its_life(&mut media, sb);
            let (mut fork, _) = Ftl::recover(media, config.clone()).expect("recovers");
            for _ in 0..2 {
                fork.check().unwrap();
                for (lpn, content) in (0..).zip(&contents).filter(|(other, _)| *other != lpn) {
                    let expected = if *content == 0 {
                        Page::Zeroes
                    } else {
                        Page::Identity(*content)
                    };
                    assert_eq!(fork.read(Lpn(lpn)), Ok(expected), "step {step}");
                }
                fork = recovered(fork).0;
            }
            tried += 1;
        }
        ftl.media_mut().settle_all();
        contents[lpn as usize] = step;
    }
    assert!(tried > 40, "{tried} cuts");
}

/// It is free, and its next incarnation differs from the one that the erase left behind.
#[test]
fn half_an_erase_without_head_and_life_brings_nothing_back() {
    erases_cut(|sb, die| {
        if die == sb.0 % small_geometry().dies() {
            Outcome::Torn(0)
        } else {
            Outcome::Absent
        }
    });
}

/// A remaining tail vouches for pages that are gone.
#[test]
fn half_an_erase_without_life_brings_nothing_back() {
    let is_kept = |sb: SbId, die: u32| {
        die == sb.0 % small_geometry().dies() || die + 1 == small_geometry().dies()
    };
    erases_cut(|sb, die| {
        if is_kept(sb, die) {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
}

/// The word with the failed blocks becomes unreadable, and is rewritten; then the life does. Pages
/// missing in a failed block are not a sign of an erase.
#[test]
fn a_failed_block_is_no_half_an_erase() {
    let config = config(SchemeKind::None);
    let mut ftl = device(small_geometry(), &config);
    put(&mut ftl, 0, 1);
    let sb = filled(&ftl).expect("it is open");
    let die = (sb.0 + 1) % small_geometry().dies();

    ftl.media_mut().plant(|faults| {
        faults.program.insert(small_geometry().block(sb, die), 8);
    });
    let mut lpn = 0;
    while filled(&ftl).is_none_or(|other| other == sb) || lpn < 100 {
        put(&mut ftl, lpn, u64::from(lpn) + 1);
        lpn += 1;
    }

    ftl.media_mut().plant(|faults| faults.program.clear());
    for word in [2, 0] {
        ftl.media_mut().plant(|faults| {
            faults.flips.insert(sb.0 as usize * 3 + word, 0b11);
        });
        ftl = recovered(ftl).0;
        assert!(
            (0..lpn).all(|lpn| ftl.read(Lpn(lpn)) == Ok(Page::Identity(u64::from(lpn) + 1))),
            "word {word}"
        );
    }
}

/// Only the first of two tail pages was programmed: nothing has been erased.
#[test]
fn half_a_tail_is_no_half_an_erase() {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 4,
        superblocks: 24,
        pages_per_block: 104,
    })
    .expect("valid");

    let config = Config {
        lpns: 1200,
        ..config(SchemeKind::None)
    };
    assert_eq!(config.tail_pages(&geometry), 2);

    let mut ftl = device(geometry, &config);
    ftl.media_mut().attach_rail();
    let sb = filled(&ftl).unwrap_or(SbId(0));
    let mut lpn = 0;

    loop {
        ftl.media_mut().settle_all();
        put(&mut ftl, lpn, u64::from(lpn) + 1);
        if filled(&ftl).is_some_and(|other| other != sb) {
            break;
        }
        lpn += 1;
    }

    let mut media = cut_after(&ftl, 1, Outcome::Absent);
    without_its_life(&mut media, sb);
    let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
    assert!((0..lpn).all(|lpn| ftl.read(Lpn(lpn)) == Ok(Page::Identity(u64::from(lpn) + 1))));
}

/// The media after a cut that tears the erases of one superblock, but undoes those of the blocks of its head and its tail, and lands all else; and that
/// superblock.
fn torn_under_its_head(ftl: &mut Ftl) -> (Image, SbId) {
    let (geometry, mut random) = (small_geometry(), Random(5));
    let dies = u64::from(geometry.dies());
    let is_torn = |media: &Media, sb: SbId| {
        let spoiled = (0..geometry.dies()).filter(|die| media.is_spoiled(sb, *die));
        let last = geometry.page(sb, geometry.pages_per_superblock() - 1);
        spoiled.count() == 2 && media.is_readable(head_of(sb)) && media.is_readable(last)
    };
    (0..)
        .find_map(|number| {
            put(ftl, random.below(LPNS.into()) as u32, 1_000 + number);
            let mut erases = 0..;
            let mut die = || erases.next().expect("a number") % dies;
            let image = ftl.media().cut_by(|kind| match kind {
                OpKind::Erase if [number % dies, dies - 1].contains(&die()) => Outcome::Absent,
                OpKind::Erase => Outcome::Torn(0),
                _ => Outcome::Whole,
            });
            let media = Media::from_image(&image);
            let mut superblocks = (0..geometry.superblocks()).map(SbId);
            let sb = superblocks.find(|sb| is_torn(&media, *sb))?;
            Some((image, sb))
        })
        .expect("some write erases")
}

/// A cut tears the erases of all blocks but those of the head and the tail, and the word that says that the superblock is dead is unreadable. Its
/// pages may have been superseded by records that went with it, so recovery must not read them.
#[test]
fn a_torn_erase_under_a_head_whose_life_cannot_be_read_refuses_recovery() {
    let config = config(SchemeKind::RemapSsd);
    let mut ftl = device(small_geometry(), &config);
    ftl.media_mut().attach_rail();
    (0..LPNS).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let (image, sb) = torn_under_its_head(&mut ftl);

    let word = sb.0 as usize * 3;
    let recover = |flips: bool| {
        let mut media = Media::from_image(&image);
        media.plant(|faults| faults.flips.extend(flips.then_some((word, 0b11))));
        Ftl::recover(media, config.clone()).err()
    };
    assert_eq!(recover(false), None);
    assert_eq!(recover(true), Some(RecoveryError::NvramDamaged { word }));
}

/// A superblock that is being filled, beside a block whose erase a cut had torn before. It has no tail that lists pages of that block.
#[test]
fn an_erase_torn_before_a_superblock_is_filled_is_no_damage() {
    let config = config(SchemeKind::RemapSsd);
    let mut ftl = device(small_geometry(), &config);
    (0..LPNS).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let sb = filled(&ftl).expect("a superblock is open");
    let (geometry, word) = (small_geometry(), sb.0 as usize * 3);
    let die = (sb.0 + 1) % geometry.dies();
    assert!(!ftl.media().is_spoiled(sb, die));
    let mut media = ftl.into_media();
    media.plant(|faults| {
        let rows = 0..geometry.pages_per_block();
        let pages = rows.map(|row| geometry.page(sb, geometry.offset_of(row, die)));
        faults.read.extend(pages);
        faults.flips.insert(word, 0b11);
    });
    assert_eq!(Ftl::recover(media, config).err(), None);
}

/// A superblock was opened while its erases were under way. The cut has undone the one under its former tail, which lists pages of a block
/// whose erase the cut has torn. Then its life cannot be read.
#[test]
fn a_tail_of_the_former_incarnation_shows_no_lost_block() {
    const LATE: u64 = 1 << 20;
    let (config, geometry) = (config(SchemeKind::None), small_geometry());
    let mut ftl = device(geometry, &config);
    (0..LPNS).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    let is_full = |(id, sb): &(SbId, &Superblock)| {
        sb.state == SuperblockState::Closed && id.0 % geometry.dies() == 1
    };
    let (sb, entry) = ftl.superblocks().find(is_full).expect("some are full");
    let incarnation = entry.life.incarnation();
    for lpn in 0..LPNS {
        if ftl.place(Lpn(lpn)).map(|page| geometry.superblock(page)) == Some(sb) {
            put(&mut ftl, lpn, u64::from(lpn) + 1);
        }
    }
    assert!(ftl.owners(sb).live == 0 && ftl.superblock(sb).state == SuperblockState::Closed);

    // The block of the head is erased and has the next head; the last one has the former tail.
    let mut media = ftl.into_media();
    let (_, former) = media
        .read_meta(head_of(sb), Purpose::Meta)
        .expect("readable")
        .expect("a head");
    let mut head = former.to_vec();
    head[8..16].copy_from_slice(&LATE.to_le_bytes());
    head[16..20].copy_from_slice(&(incarnation + 1).to_le_bytes());
    let erase = media.name_next();
    media
        .erase(geometry.block(sb, 1), erase, After::NOTHING)
        .expect("erased");
    let oob = Oob::new(Oob::HEAD, LATE, incarnation + 1);
    let stored = StoredPage::Meta(head.into());
    media
        .program(head_of(sb), oob, stored, Purpose::Meta, After::NOTHING)
        .expect("programmed");
    let rows = 0..geometry.pages_per_block();
    let torn = rows.map(|row| geometry.page(sb, geometry.offset_of(row, 2)));
    media.plant(|faults| faults.read.extend(torn));
    assert!(media.is_spoiled(sb, 2));
    without_its_life(&mut media, sb);

    let (mut ftl, _) = Ftl::recover(media, config).expect("recovers");
    assert_eq!(ftl.superblock(sb).life.incarnation(), incarnation + 1);
    for lpn in 0..LPNS {
        assert_eq!(
            ftl.read(Lpn(lpn)),
            Ok(Page::Identity(u64::from(lpn) + 1)),
            "LPN {lpn}"
        );
    }
}
