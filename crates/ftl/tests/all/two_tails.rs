//! Superblocks whose tail metadata takes two pages.

use crate::kit::{Random, content, device, durable, put, small_config};
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind, SuperblockState};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{BlockId, Geometry, Media, Outcome, Page};

/// 416 pages a superblock; a tail page has 409 records, or 292 with extensions.
fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        dies: 4,
        superblocks: 24,
        pages_per_block: 104,
    })
    .expect("valid")
}

fn config(scheme: SchemeKind) -> Config {
    let config = Config {
        lpns: 1200,
        dedup: false,
        gc_free: 0.0,
        ..small_config(scheme)
    };
    let config = Config {
        log_bytes: config.log_bytes.max(config.tables_bytes(&geometry())),
        ..config
    };
    assert_eq!(config.tail_pages(&geometry()), 2, "{scheme}");
    config
}

fn closed(ftl: &Ftl) -> usize {
    ftl.superblocks()
        .filter(|(_, sb)| sb.state == SuperblockState::Closed)
        .count()
}

fn recover(
    ftl: &Ftl,
    absent: impl Fn(usize) -> bool,
) -> Result<(Ftl, remap_ssd_ftl::RecoveryReport), String> {
    let mut ops = 0..;
    let image = ftl.media().cut(|| {
        let op = ops.next().expect("without end");
        if absent(op) {
            Outcome::Absent
        } else {
            Outcome::Whole
        }
    });
    let found = Ftl::recover(Media::from_image(&image), ftl.config().clone())
        .map_err(|error| error.to_string())?;
    found.0.check().map_err(|wrong| wrong.to_string())?;
    Ok(found)
}

/// The records of a superblock's last pages are in the second tail page. A tail is used only if
/// both pages are there.
#[test]
fn both_pages_of_a_tail_tell_what_they_should_or_the_pages_do_themselves() {
    for scheme in durable() {
        let config = config(scheme);
        let mut ftl = device(geometry(), &config);
        ftl.media_mut().attach_rail();
        let mut random = Random(3);
        let mut model = vec![0u64; config.lpns as usize];
        let (mut closings, mut number) = (0, 1000);
        let right = |ftl: &mut Ftl, model: &[u64], but: u32| {
            let wanted = |content: u64| {
                if content == 0 {
                    Page::Zeroes
                } else {
                    Page::Identity(content)
                }
            };
            (0..)
                .zip(model)
                .filter(|(lpn, _)| *lpn != but)
                .all(|(lpn, is)| ftl.read(Lpn(lpn)) == Ok(wanted(*is)))
        };

        while closings < 5 {
            number += 1;
            let lpn = random.below(config.lpns.into()) as u32;
            let before = closed(&ftl);
            let erased = ftl.stats().gc_runs;
            put(&mut ftl, lpn, number);
            ftl.media_mut().ops.clear();
            let has_closed = closed(&ftl) > before || ftl.stats().gc_runs > erased;
            if has_closed {
                closings += 1;
                // Both tail pages are pending now, and the new superblock's head.
                let pending = ftl.media().pending();
                for missing in pending.saturating_sub(12)..=pending {
                    for absent in [missing..missing + 1, missing..pending] {
                        let (mut found, _) = recover(&ftl, |op| absent.contains(&op))
                            .unwrap_or_else(|what| {
                                panic!("{scheme} without {absent:?} of {pending}: {what}")
                            });
                        assert!(
                            right(&mut found, &model, lpn),
                            "{scheme} without {absent:?} of {pending}"
                        );
                    }
                }
            }
            model[lpn as usize] = number;
            ftl.media_mut().settle_all();
            if has_closed {
                let (mut found, report) = recover(&ftl, |_| false).expect("recovers");
                let full = closed(&ftl) as u64;
                assert!(
                    report.tail_pages >= 2 * full,
                    "{scheme}: {} tail pages of {full}",
                    report.tail_pages
                );
                assert!(
                    report.oob_pages < 3 * 416,
                    "{scheme}: open superblocks only, {} pages",
                    report.oob_pages
                );
                assert!(right(&mut found, &model, u32::MAX), "{scheme}");
            }
        }
    }
}

/// Homes are in the records' extensions: remaps to homes must be recovered from a tail.
#[test]
fn extended_tails_of_two_pages_tell_homes() {
    let config = config(SchemeKind::WalSsd);
    for watched in [false, true] {
        let mut ftl = device(geometry(), &config);
        if watched {
            ftl.media_mut().attach_rail();
        }

        for lpn in 0..420 {
            ftl.write_for(Lpn(lpn), &content(u64::from(lpn) + 1), Lpn(600 + lpn))
                .unwrap();
            ftl.media_mut().settle_all();
        }

        ftl.remap(&Remap {
            target: Lpn(600),
            source: Lpn(0),
            len: 410,
            relocate: false,
            atomic: false,
        })
        .unwrap();
        ftl.media_mut().settle_all();

        assert_eq!((closed(&ftl), ftl.stats().remaps), (1, 410));
        let (mut found, report) = recover(&ftl, |_| false).expect("recovers");
        assert!(report.tail_pages >= 2);
        assert!(
            (0..410)
                .all(|lpn| found.read(Lpn(600 + lpn)) == Ok(Page::Identity(u64::from(lpn) + 1)))
        );
    }
}

/// If the last blocks are bad, both pages are on one die, or on others.
#[test]
fn tails_lie_where_the_blocks_are_good() {
    for bad in 1u32..15 {
        let config = Config {
            lpns: 700,
            ..config(SchemeKind::None)
        };
        let mut ftl = device(geometry(), &config);

        for sb in 0..geometry().superblocks() {
            for die in (0..4).filter(|die| bad >> die & 1 == 1) {
                let block: BlockId = geometry().block(remap_ssd_media::SbId(sb), die);
                ftl.media_mut().plant(|faults| {
                    // Half of them fail at once, the others late.
                    faults
                        .program
                        .insert(block, if sb % 2 == 0 { 0 } else { 60 });
                });
            }
        }

        let mut random = Random(u64::from(bad));
        let mut model = vec![0u64; 700];
        let most = if bad.count_ones() > 2 { 1600 } else { 4000 };

        for number in 1..=most {
            let lpn = random.below(700) as u32;
            put(&mut ftl, lpn, number);
            ftl.media_mut().ops.clear();
            model[lpn as usize] = number;
        }

        assert!(closed(&ftl) > 1);
        let faults = ftl.media().faults().clone();
        let mut media = ftl.into_media();
        media.plant(|planted| *planted = faults);

        let (mut found, _) = Ftl::recover(media, config).unwrap();
        found.check().unwrap();
        let wanted = |content: u64| {
            if content == 0 {
                Page::Zeroes
            } else {
                Page::Identity(content)
            }
        };

        assert!(
            (0..)
                .zip(&model)
                .all(|(lpn, is)| found.read(Lpn(lpn)) == Ok(wanted(*is))),
            "bad dies {bad:b}"
        );
    }
}
