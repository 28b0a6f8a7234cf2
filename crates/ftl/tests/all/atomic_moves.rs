//! Garbage collection moves pages of an atomic command before the command itself is durable.
//!
//! The host has many commands in progress. A copy whose OOB carries the command's number must not
//! land before the slot marks that number as in progress: otherwise a part of the command would
//! survive a cut.

use crate::kit::{Random, device, page_of, put};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media, OpKind, Outcome, Page};

/// Superblocks have five pages of data, so written pages soon move.
fn tight(scheme: SchemeKind) -> (Geometry, Config) {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 1,
        superblocks: 60,
        pages_per_block: 7,
    })
    .unwrap();

    let config = Config {
        lpns: 40,
        scheme,
        entry: EntrySize::Bytes24,
        dedup: false,
        dealloc_slots: 64,
        segment_bytes: 96,
        log_bytes: 8 << 10,
        // Many superblocks are free, so opening one need not wait for a pending erase.
        gc_free: 0.3,
        ..Config::default()
    };

    let config = Config {
        log_bytes: config.log_bytes.max(config.tables_bytes(&geometry) * 4),
        ..config
    };

    (
        geometry,
        Config {
            lpns: 170,
            ..config
        },
    )
}

/// A cut after which all programs but one have landed, and none of the stores.
fn programs_but(ftl: &Ftl, missing: u64) -> Option<Ftl> {
    let mut nth = 0;
    let image = ftl.media().cut_by(|kind| {
        nth += u64::from(kind == OpKind::Program);
        if kind == OpKind::Program && nth != missing {
            Outcome::Whole
        } else {
            Outcome::Absent
        }
    });
    Ftl::recover(Media::from_image(&image), ftl.config().clone())
        .ok()
        .map(|(ftl, _)| ftl)
}

/// Number of pending programs.
fn programs(ftl: &Ftl) -> u64 {
    let mut programs = 0;
    ftl.media().cut_by(|kind| {
        programs += u64::from(kind == OpKind::Program);
        Outcome::Whole
    });
    programs
}

#[test]
fn a_copy_does_not_land_before_the_command_it_is_part_of() {
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::RemapSsdX,
        SchemeKind::Pebble,
    ] {
        let (geometry, config) = tight(scheme);
        let (mut moved, mut cuts) = (0, 0);
        for seed in 1..=12u64 {
            let mut random = Random(seed * 77);
            let mut ftl = device(geometry, &config);
            let lpns = config.lpns;
            (0..lpns).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
            for step in 0..300 {
                put(
                    &mut ftl,
                    20 + random.below(u64::from(lpns) - 20) as u32,
                    1000 + step,
                );
            }

            // Two pages, each surrounded by pages that are overwritten next, so that their
            // superblocks are soon worth collecting.
            for lpn in [2, 3] {
                put(&mut ftl, lpn, u64::from(lpn) + 1);
                (0..8).for_each(|at| put(&mut ftl, 40 + 10 * lpn + at, 2000));
            }

            ftl.media_mut().ops.clear();
            ftl.media_mut().attach_rail();
            ftl.remap(&Remap {
                target: Lpn(10),
                source: Lpn(2),
                len: 2,
                relocate: false,
                atomic: true,
            })
            .unwrap();

            // Without its first owner the page has only the command's entry as a witness, and its
            // copy carries the command's number.
            put(&mut ftl, 2, 9002);
            put(&mut ftl, 3, 9003);
            for lpn in [2, 3] {
                (0..8).for_each(|at| put(&mut ftl, 40 + 10 * lpn + at, 3000));
            }

            let homes = [page_of(&mut ftl, 10), page_of(&mut ftl, 11)];
            for step in 0..120u64 {
                let lpn = 20 + random.below(u64::from(lpns) - 20) as u32;
                put(&mut ftl, lpn, 10_000 + step);
                let now = [page_of(&mut ftl, 10), page_of(&mut ftl, 11)];
                if now == homes {
                    continue;
                }

                moved += 1;
                let programs = programs(&ftl);
                for missing in programs.saturating_sub(40)..=programs {
                    let Some(mut found) = programs_but(&ftl, missing) else {
                        continue;
                    };
                    cuts += 1;
                    let read = [10, 11].map(|lpn| found.read(Lpn(lpn)).unwrap());
                    let (old, new) = ([11, 12].map(Page::Identity), [3, 4].map(Page::Identity));
                    assert!(
                        read == old || read == new,
                        "{scheme}, seed {seed}, step {step}: {read:?}, a part of it"
                    );
                }
                if moved % 4 == 0 {
                    break;
                }
            }
        }
        assert!(
            moved > 20 && cuts > 200,
            "{scheme}: {moved} moves, {cuts} cuts"
        );
    }
}
