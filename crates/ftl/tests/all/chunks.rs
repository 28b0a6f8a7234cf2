//! Devices with more logical pages than one bitmap of deallocations covers.

use crate::kit::{Random, device, put, recovered, small_config};
use remap_ssd_ftl::{Config, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{Geometry, Media, Outcome, Page};

/// LPNs covered by one bitmap: one bit each in a page.
const CHUNK: u32 = PAGE_BYTES as u32 * 8;
/// Three chunks, the last one short and with an odd number of LPNs.
const LPNS: u32 = 2 * CHUNK + 4099;

fn large(scheme: SchemeKind, dealloc_slots: u32) -> Ftl {
    let geometry = Geometry::new(Shape {
        channels: 2,
        dies: 8,
        superblocks: 48,
        pages_per_block: 256,
    })
    .unwrap();

    let config = Config {
        lpns: LPNS,
        dedup: false,
        dealloc_slots,
        gc_free: 0.0,
        ..small_config(scheme)
    };

    let config = Config {
        log_bytes: config.log_bytes.max(config.tables_bytes(&geometry)),
        ..config
    };
    let mut ftl = device(geometry, &config);

    (0..LPNS).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().ops.clear();
    ftl
}

fn numbered() -> Vec<u64> {
    (1..=u64::from(LPNS)).collect()
}

#[track_caller]
fn reads(ftl: &mut Ftl, model: &[u64]) {
    for (lpn, content) in model.iter().enumerate() {
        let wanted = if *content == 0 {
            Page::Zeroes
        } else {
            Page::Identity(*content)
        };
        let read = ftl.read(Lpn(lpn as u32)).unwrap();
        assert!(
            read == wanted,
            "LPN {lpn} reads {read:?} and not {wanted:?}"
        );
    }
    ftl.media_mut().ops.clear();
}

fn deallocate(ftl: &mut Ftl, model: &mut [u64], lpn: u32, len: u32) {
    ftl.deallocate(Lpn(lpn), len).unwrap();
    model[lpn as usize..(lpn + len) as usize].fill(0);
}

/// One extent over all three chunks, and then enough others that the log is flushed to bitmaps.
#[test]
fn what_is_deallocated_in_any_chunk_stays_so() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::WalSsd] {
        let mut ftl = large(scheme, 6);
        let mut model = numbered();
        deallocate(&mut ftl, &mut model, CHUNK - 3, CHUNK + 6);

        // A power cycle before the record is in a bitmap: recovery must determine the bitmaps it
        // concerns.
        ftl = recovered(ftl).0;
        for at in 0..13 {
            deallocate(&mut ftl, &mut model, 5 + 2 * at, 1);
        }

        assert!(ftl.stats().dealloc_flushes > 0);
        let (mut ftl, report) = recovered(ftl);
        assert_eq!(report.bitmap_pages, 3, "{scheme}");

        reads(&mut ftl, &model);

        // Rewritten pages are readable, even after their chunk's bitmap has been rewritten.
        for lpn in [
            CHUNK - 3,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            2 * CHUNK - 1,
            2 * CHUNK,
            2 * CHUNK + 2,
        ] {
            model[lpn as usize] = 1 << 20 | u64::from(lpn);
            put(&mut ftl, lpn, 1 << 20 | u64::from(lpn));
        }

        for at in 0..13 {
            deallocate(&mut ftl, &mut model, LPNS - 1 - 2 * at, 1);
            deallocate(&mut ftl, &mut model, CHUNK + 100 + 2 * at, 1);
        }
        reads(&mut recovered(ftl).0, &model);
    }
}

#[test]
fn a_flush_of_several_bitmaps_survives_every_cut() {
    let mut ftl = large(SchemeKind::RemapSsd, 4);
    let mut model = numbered();
    let mut random = Random(5);
    ftl.media_mut().attach_rail();
    let (mut cuts, mut flushed) = (0, 0);

    for step in 0..160 {
        let before = model.clone();
        let edge = CHUNK * (1 + random.below(2) as u32);
        match random.below(3) {
            0 => deallocate(&mut ftl, &mut model, edge - 2, 4),
            1 => deallocate(&mut ftl, &mut model, edge + random.below(9) as u32, 1),
            _ => {
                // To both sides of the edge, from a range that is partly mapped.
                let (target, source) = (edge - 4, CHUNK / 2 + random.below(3) as u32);
                ftl.remap(&Remap {
                    target: Lpn(target),
                    source: Lpn(source),
                    len: 8,
                    relocate: false,
                    atomic: false,
                })
                .unwrap();
                model.copy_within(source as usize..source as usize + 8, target as usize);
            }
        }

        ftl.media_mut().ops.clear();
        let flushes = ftl.stats().dealloc_flushes;
        let pending = ftl.media().pending();

        // Every cut of a flush costs a recovery of the whole device, so only a few flushes are
        // tried.
        if flushes > flushed && cuts < 120 {
            for landed in 0..pending {
                cuts += 1;
                let mut ops = 0..;
                let but_one = landed % 2 == 0;
                let image = ftl.media().cut(|| {
                    let op: usize = ops.next().expect("without end");
                    let absent = if but_one { op == landed } else { op >= landed };
                    if absent {
                        Outcome::Absent
                    } else {
                        Outcome::Whole
                    }
                });

                let (mut found, _) =
                    Ftl::recover(Media::from_image(&image), ftl.config().clone()).unwrap();
                for (lpn, (before, after)) in before.iter().zip(&model).enumerate() {
                    let read = match found.read(Lpn(lpn as u32)).unwrap() {
                        Page::Identity(content) => content,
                        _ => 0,
                    };
                    assert!(
                        read == *before || read == *after,
                        "step {step}: LPN {lpn} reads {read}"
                    );
                }
            }
        }

        flushed = flushes;
        ftl.media_mut().settle_all();
    }
    assert!(
        cuts >= 100 && flushed > 20,
        "{cuts} cuts, {flushed} flushes"
    );
    reads(&mut ftl, &model);

    let config = ftl.config().clone();
    let image = ftl.media().to_image();
    let mut ftl = Ftl::recover(Media::from_image(&image), config).unwrap().0;
    reads(&mut ftl, &model);
}
