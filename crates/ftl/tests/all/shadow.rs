//! Copyless Copy: the cost of shadows of OOBs in DRAM, counted exactly, and the capacitor's work
//! when power fails.

use crate::kit::{Random, content, device, recovered, small_config, small_geometry};
use remap_ssd_ftl::{
    Config, Ftl, Lpn, RecoveryError, Remap, SchemeKind, SchemeValues, Stream, Superblock,
    SuperblockState,
};
use remap_ssd_media::{After, Media, Oob, OpKind, Outcome, Page, Ppn, Purpose, SbId};

/// Entries per saved page on these devices: an eighth of 512 slots.
const PER_PAGE: usize = 64;

fn config() -> Config {
    small_config(SchemeKind::ShadowOob)
}

/// 40 LPNs written, and `remaps` more remapped onto them.
fn with_remaps(config: &Config, remaps: u32) -> Ftl {
    let mut ftl = device(small_geometry(), config);
    for lpn in 0..40 {
        ftl.write(Lpn(lpn), &content(u64::from(lpn) + 1)).unwrap();
    }
    remap_all(&mut ftl, remaps);
    ftl
}

fn remap_all(ftl: &mut Ftl, remaps: u32) {
    for target in 40..40 + remaps {
        ftl.remap(&Remap {
            target: Lpn(target),
            source: Lpn(target % 40),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }
}

/// The superblock that is reserved for the next power loss.
fn reserved(ftl: &Ftl) -> SbId {
    let is_reserved =
        |sb: &Superblock| sb.stream == Stream::Log && sb.state == SuperblockState::Closed;
    let mut superblocks = ftl.superblocks();
    let found = superblocks.find(|(_, sb)| is_reserved(sb));
    found.expect("reserved flash").0
}

#[test]
fn a_remap_is_a_store_to_dram_and_costs_nothing() {
    let mut ftl = with_remaps(&config(), 1);
    for target in 41..241 {
        ftl.media_mut().ops.clear();
        let before = ftl.media().counts;
        ftl.remap(&Remap {
            target: Lpn(target),
            source: Lpn(target % 40),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();

        assert!(
            ftl.media().ops.iter().all(|op| op.kind == OpKind::Wait),
            "{:?}",
            ftl.media().ops
        );
        assert_eq!(ftl.media().counts, before);
    }
    assert_eq!(ftl.stats().remaps, 201);
}

/// The first remap reserves flash for saving: a superblock of 62 pages has room for 8 pages and
/// three failing blocks of 16.
#[test]
fn reserved_flash_is_programmed_when_power_fails_and_at_no_other_time() {
    let programs = |ftl: &Ftl| ftl.media().counts.programs;
    let before = programs(&with_remaps(&config(), 0));
    let mut ftl = with_remaps(&config(), 200);
    let heads = ftl
        .superblocks()
        .filter(|(_, sb)| sb.stream == Stream::Log)
        .count() as u64;

    assert_eq!(
        (heads, programs(&ftl) - before),
        (1, 1),
        "the head of the reserved flash"
    );

    for lpn in 0..40 {
        assert_eq!(
            ftl.read(Lpn(40 + lpn)),
            Ok(Page::Identity(u64::from(lpn) + 1))
        );
    }

    let already = programs(&ftl);
    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.saved_pages, 200u64.div_ceil(PER_PAGE as u64));
    assert_eq!(
        report.log_pages, report.saved_pages,
        "and recovery reads what was saved, once"
    );
    assert_eq!(
        programs(&ftl) - already,
        report.saved_pages + 1,
        "and the head of new reserved flash"
    );

    for lpn in 0..200 {
        assert_eq!(
            ftl.read(Lpn(40 + lpn)),
            Ok(Page::Identity(u64::from((40 + lpn) % 40) + 1))
        );
    }

    let (_, again) = recovered(ftl);
    assert_eq!(
        again.saved_pages, report.saved_pages,
        "everything is in DRAM again"
    );
}

/// Garbage collection programs no flash either: owners are looked up in DRAM.
#[test]
fn finding_owners_costs_nothing() {
    let mut ftl = device(small_geometry(), &config());
    let mut random = Random(3);
    for _ in 0..20_000 {
        let (lpn, identity) = (random.below(600) as u32, 1 + random.below(450));
        ftl.media_mut().ops.clear();
        ftl.write(Lpn(lpn), &content(identity)).unwrap();
        let ops = &ftl.media().ops;
        let Some(begin) = ops.iter().position(|op| op.kind == OpKind::LookupBegin) else {
            continue;
        };
        assert_eq!(ops[begin + 1].kind, OpKind::LookupEnd);
        assert!(ops.iter().all(|op| op.kind != OpKind::NvRead));
    }

    assert!(
        ftl.stats().gc_runs > 50 && ftl.stats().remaps > 1000,
        "{:?}",
        ftl.stats()
    );

    ftl.check().unwrap();
    let mapped: Vec<_> = (0..600).map(|lpn| ftl.read(Lpn(lpn)).unwrap()).collect();
    let (mut ftl, _) = recovered(ftl);
    assert!((0..600).all(|lpn| ftl.read(Lpn(lpn)).unwrap() == mapped[lpn as usize]));
}

#[test]
fn a_capacitor_that_cannot_save_all_of_dram_is_refused() {
    let geometry = small_geometry();
    let refused = Config {
        scheme_values: SchemeValues::of(SchemeKind::ShadowOob, "energy_pages", 10),
        ..config()
    }
    .check(&geometry)
    .unwrap_err()
    .to_string();
    assert!(refused.contains("use at least 11"), "{refused}");
    Config {
        scheme_values: SchemeValues::of(SchemeKind::ShadowOob, "energy_pages", 11),
        ..config()
    }
    .check(&geometry)
    .unwrap();
}

/// Three of the reserved blocks fail while they are filled; the energy covers that, too.
#[test]
fn blocks_that_fail_when_power_fails_are_left_out() {
    let mut ftl = with_remaps(
        &Config {
            scheme_values: SchemeValues::of(SchemeKind::ShadowOob, "energy_pages", 11),
            ..config()
        },
        250,
    );

    let (sb, _) = ftl
        .superblocks()
        .find(|(_, sb)| sb.stream == Stream::Log)
        .expect("reserved flash");
    let geometry = small_geometry();

    ftl.media_mut().plant(|faults| {
        for die in 0..3 {
            faults.program.insert(geometry.block(sb, die), 1);
        }
    });

    let (mut ftl, report) = recovered(ftl);
    assert_eq!(report.saved_pages, 4);
    for lpn in 0..250 {
        assert_eq!(
            ftl.read(Lpn(40 + lpn)),
            Ok(Page::Identity(u64::from((40 + lpn) % 40) + 1))
        );
    }
}

/// The page left by a failed program stays in its block once that is bad, and does not count as
/// saved.
#[test]
fn blocks_that_failed_when_power_failed_are_left_out_ever_after() {
    let mut ftl = with_remaps(
        &Config {
            scheme_values: SchemeValues::of(SchemeKind::ShadowOob, "energy_pages", 11),
            ..config()
        },
        250,
    );

    let mut reused = 0;
    for round in 0..60 {
        let (sb, found) = ftl
            .superblocks()
            .find(|(_, sb)| sb.stream == Stream::Log)
            .expect("reserved flash");
        reused += u32::from(!found.bad.is_empty());
        if round < 3 {
            let block = small_geometry().block(sb, 0);
            ftl.media_mut().plant(|faults| {
                faults.program.insert(block, 1);
            });
        }
        (ftl, _) = recovered(ftl);
        for lpn in 40..290 {
            assert_eq!(
                ftl.read(Lpn(lpn)),
                Ok(Page::Identity(u64::from(lpn % 40) + 1)),
                "round {round}"
            );
        }
    }

    assert!(
        reused > 1,
        "{reused} times something was saved beside a bad block"
    );
}

/// With and without other pages of the same save.
#[test]
fn a_saved_page_that_cannot_be_read_refuses_recovery() {
    refuses_without_its_page(200, 1);
    refuses_without_its_page(20, 0);
}

fn refuses_without_its_page(remaps: u32, at: usize) {
    let ftl = with_remaps(&config(), remaps);
    let (sb, head) = ftl
        .superblocks()
        .find(|(_, sb)| sb.stream == Stream::Log)
        .map(|(id, sb)| (id, sb.head))
        .unwrap();

    let (geometry, config) = (small_geometry(), ftl.config().clone());
    let pages: Vec<Ppn> = (0..6)
        .map(|offset| geometry.page(sb, offset))
        .filter(|page| geometry.offset(*page) != head)
        .collect();
    let mut media = ftl.into_media();

    media.plant(|faults| {
        faults.read.insert(pages[at]);
    });
    let error = Ftl::recover(media, config)
        .err()
        .expect("it is unknown which LPNs it named");
    assert_eq!(error, RecoveryError::SavedDamaged { page: pages[at].0 });
}

/// A block is lost with the saved page in it.
#[test]
fn a_lost_block_with_a_saved_page_refuses_recovery() {
    for remaps in [200, 20] {
        let ftl = with_remaps(&config(), remaps);
        let (geometry, sb) = (small_geometry(), reserved(&ftl));
        let mut media = ftl.into_media();
        media.attach_rail();
        let (ftl, report) = Ftl::recover(media, config()).expect("recovers");
        assert_eq!(
            report.saved_pages,
            u64::from(remaps).div_ceil(PER_PAGE as u64)
        );

        // The pages are saved, and nothing else has landed.
        let mut media = Media::from_image(&ftl.media().cut(|| Outcome::Absent));
        let is_saved =
            |page: &Ppn| media.is_programmed(*page) && media.oob(*page).lpn() == Oob::LOG;
        let mut pages =
            (0..geometry.pages_per_superblock()).map(|offset| geometry.page(sb, offset));
        let saved = pages.find(is_saved).expect("a saved page");
        let die = geometry.die_of_offset(geometry.offset(saved));

        media.attach_rail();
        let erase = media.name_next();
        let block = geometry.block(sb, die);
        media.erase(block, erase, After::NOTHING).expect("begun");
        let media = Media::from_image(&media.cut(|| Outcome::Torn(0)));
        assert!(media.is_spoiled(sb, die));

        let error = Ftl::recover(media, config())
            .err()
            .expect("entries are missing");
        let page = geometry.page(sb, die).0;
        assert_eq!(
            error,
            RecoveryError::SavedDamaged { page },
            "{remaps} remaps"
        );
    }
}

/// The block of the head fails while pages are saved, after the word line of the head. The next block's first page is a saved one, and not
/// the place of another head.
#[test]
fn a_saved_page_beside_a_block_that_failed_later_refuses_recovery_if_it_cannot_be_read() {
    let (mut ftl, config) = (with_remaps(&config(), 1), config());
    // A power-on reserves another superblock. In one whose head is on die 0 the fourth saved page is in the head's block.
    while !reserved(&ftl).0.is_multiple_of(small_geometry().dies()) {
        (ftl, _) = recovered(ftl);
    }
    remap_all(&mut ftl, 250);
    let sb = reserved(&ftl);
    let geometry = small_geometry();
    let page = geometry.page(sb, geometry.offset_of(0, 1));

    let mut media = ftl.into_media();
    media.plant(|faults| {
        faults.program.insert(geometry.block(sb, 0), 1);
        faults.read.insert(page);
    });
    let error = Ftl::recover(media, config).err();
    assert_eq!(error, Some(RecoveryError::SavedDamaged { page: page.0 }));
}

/// Pages below the heads of logs that are of an earlier incarnation.
fn pages_that_an_erase_left(media: &mut Media) -> usize {
    const LOG: u8 = 2;
    let geometry = small_geometry();
    let mut left = 0;
    for sb in (0..geometry.superblocks()).map(SbId) {
        let pages = (0..geometry.pages_per_superblock()).map(|offset| geometry.page(sb, offset));
        let found: Vec<_> = pages
            .filter_map(|page| media.read_meta(page, Purpose::Meta).ok().flatten())
            .collect();
        let mut heads = found.iter().filter(|(oob, _)| oob.lpn() == Oob::HEAD);
        if let Some((head, _)) = heads.find(|(_, bytes)| bytes[24] == LOG) {
            let is_older = |oob: &Oob| oob.incarnation() != head.incarnation();
            left += found.iter().filter(|(oob, _)| is_older(oob)).count();
        }
    }
    left
}

/// Two power-ons, of which the second one erases the reserved flash of the first and reserves it again, since it is the least worn. A cut then
/// undoes the erases of all blocks but that of the head.
#[test]
fn heads_of_reserved_flash_land_after_their_erases() {
    let (mut ftl, config) = (with_remaps(&config(), 40), config());
    let mut random = Random(3);
    for identity in 1_000..8_000 {
        let lpn = 100 + random.below(500) as u32;
        ftl.write(Lpn(lpn), &content(identity)).unwrap();
    }
    let first = reserved(&ftl);
    let head_die = first.0 % small_geometry().dies();

    let mut media = ftl.into_media();
    // In the second power-on the first four erases are those of this superblock.
    for undone in [0..u32::MAX, 0..4] {
        media.attach_rail();
        let (ftl, _) = Ftl::recover(media, config.clone()).expect("it recovers");
        assert_eq!(reserved(&ftl) == first, undone.end == 4);
        let mut at = 0;
        let image = ftl.media().cut_by(|kind| match kind {
            OpKind::Erase => {
                at += 1;
                let is_kept = undone.end == 4 && at - 1 == head_die;
                match undone.contains(&(at - 1)) && !is_kept {
                    true => Outcome::Absent,
                    false => Outcome::Whole,
                }
            }
            _ => Outcome::Whole,
        });
        media = Media::from_image(&image);
        assert_eq!(pages_that_an_erase_left(&mut media), 0);
    }
}

/// Blocks whose program of the head failed come before it. If a mask of blocks is unreadable,
/// power-on takes them for bad, so nothing is saved there.
#[test]
fn nothing_is_saved_where_power_on_does_not_look_when_a_mask_of_blocks_cannot_be_read() {
    let (geometry, log) = (small_geometry(), |ftl: &Ftl| {
        let mut logs = ftl.superblocks();
        logs.find(|(_, sb)| sb.stream == Stream::Log)
            .map(|(id, _)| id)
    });
    let reserved = log(&with_remaps(&config(), 1)).expect("reserved flash");
    let first = geometry.block(reserved, reserved.0 % geometry.dies());

    // The mask of bad blocks, or that of failing ones; with and without a failing program.
    for (mask, fails) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut ftl = with_remaps(&config(), 0);
        ftl.media_mut().plant(|faults| {
            faults.program.insert(first, 0);
        });
        remap_all(&mut ftl, 500);
        assert_eq!(log(&ftl), Some(reserved));
        assert_eq!(ftl.superblock(reserved).failing.count_ones(), 1);

        // The block accepts programs again, as a block may that failed once.
        ftl.media_mut().plant(|faults| {
            faults.program.clear();
            faults.flips.insert(reserved.0 as usize * 3 + mask, 0b11);
            let last = geometry.block(reserved, (reserved.0 + 3) % geometry.dies());
            faults.program.extend(fails.then_some((last, 1)));
        });
        let (mut ftl, report) = recovered(ftl);
        assert_eq!(report.saved_pages, 4);
        for lpn in 40..540 {
            assert_eq!(
                ftl.read(Lpn(lpn)),
                Ok(Page::Identity(u64::from(lpn % 40) + 1)),
                "word {mask}, {fails}"
            );
        }
    }
}

/// Failed blocks may be unknown in that case, and the energy does not cover them.
#[test]
fn energy_that_ends_while_a_mask_of_blocks_cannot_be_read_refuses_recovery() {
    let ftl = with_remaps(&config(), 500);
    let mut logs = ftl.superblocks();
    let (sb, _) = logs
        .find(|(_, sb)| sb.stream == Stream::Log)
        .expect("reserved flash");
    drop(logs);

    let (word, config) = (sb.0 as usize * 3 + 2, ftl.config().clone());
    let mut media = ftl.into_media();
    media.plant(|faults| {
        faults.flips.insert(word, 0b11);
        (0..4).for_each(|die| {
            faults.program.insert(small_geometry().block(sb, die), 1);
        });
    });
    let error = Ftl::recover(media, config).err();
    assert_eq!(error, Some(RecoveryError::NvramDamaged { word }));
}
