//! Deduplication during garbage collection: contents are found at their new places, and nowhere
//! else.

use crate::kit::{Random, fullest, page_of, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, EntrySize, Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{ContentMode, Geometry, Media, Page, Payload, Ppn};

fn formatted(geometry: Geometry, config: &Config, mode: ContentMode) -> Ftl {
    let words = config.nvram_words(&geometry);
    Ftl::format(Media::blank(geometry, mode, words), config.clone())
        .expect("the configuration works")
}

#[inline(never)]
fn write(ftl: &mut Ftl, lpn: u32, content: u64) {
    if ftl.media().mode() == ContentMode::Identity {
        return put(ftl, lpn, content);
    }
    let mut page = [0; PAGE_BYTES];
    page.as_chunks_mut::<8>()
        .0
        .iter_mut()
        .for_each(|word| *word = content.to_le_bytes());
    ftl.write(Lpn(lpn), &Payload::Bytes(&page))
        .expect("there is room");
}

fn content_of(page: &Page) -> u64 {
    match page {
        Page::Zeroes => 0,
        Page::Identity(content) => *content,
        Page::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("long enough")),
        Page::Unknown => panic!("that was never written"),
    }
}

/// Contents 1 to 40 are on LPNs 0 to 39, every third of them also on another LPN. After collection
/// has moved them, each is written again: a remap, and no program.
#[test]
fn a_page_that_moved_is_still_a_duplicate() {
    for mode in [ContentMode::Identity, ContentMode::Bytes] {
        // With 16-byte entries pages move in rows, with 24-byte entries one by one.
        for entry in [EntrySize::Bytes16, EntrySize::Bytes24] {
            for watched in [false, true] {
                moved_duplicates_are_found(mode, entry, watched);
            }
        }
    }
}

fn moved_duplicates_are_found(mode: ContentMode, entry: EntrySize, watched: bool) {
    let config = Config {
        log_bytes: 32 << 10,
        wear_gap: 1,
        entry,
        ..small_config(SchemeKind::RemapSsd)
    };
    let mut ftl = formatted(small_geometry(), &config, mode);
    if watched {
        ftl.media_mut().attach_rail();
    }

    (0..40).for_each(|lpn| write(&mut ftl, lpn, u64::from(lpn) + 1));
    for lpn in (0..40).step_by(3) {
        ftl.remap(&Remap {
            target: Lpn(50 + lpn),
            source: Lpn(lpn),
            len: 1,
            relocate: false,
            atomic: false,
        })
        .unwrap();
    }

    let first: Vec<Ppn> = (0..40).map(|lpn| page_of(&mut ftl, lpn)).collect();
    let mut random = Random(3);
    for step in 0..8000 {
        // Few contents, so that none evicts another from the store.
        let lpn = 100 + random.below(250) as u32;
        write(&mut ftl, lpn, 1000 + 2 * u64::from(lpn) + step / 500 % 2);
        ftl.media_mut().ops.clear();
        ftl.media_mut().settle_all();
    }
    let moved = (0..40)
        .filter(|lpn| page_of(&mut ftl, *lpn) != first[*lpn as usize])
        .count();
    assert!(moved > 35, "{moved} of 40 pages moved");

    let before = ftl.stats();
    (0..40).for_each(|lpn| write(&mut ftl, 100 + lpn, u64::from(lpn) + 1));
    let done = ftl.stats() - before;
    // One may have been evicted by contents of the same line.
    assert!(
        done.dedup_hits >= 39,
        "{mode:?}, {entry:?}, watched {watched}: {} of 40 are found",
        done.dedup_hits
    );
    assert!(
        (0..40).all(|lpn| content_of(&ftl.read(Lpn(100 + lpn)).unwrap()) == u64::from(lpn) + 1)
    );
    ftl.check().unwrap();
}

/// Erased pages get bitmaps, lost data or other contents; these must not match the earlier content.
#[test]
fn what_a_page_held_before_its_erase_is_forgotten() {
    let geometry = Geometry::new(Shape {
        channels: 1,
        dies: 1,
        superblocks: 40,
        pages_per_block: 8,
    })
    .unwrap();

    for mode in [ContentMode::Identity, ContentMode::Bytes] {
        for scheme in [
            SchemeKind::RemapSsd,
            SchemeKind::NLog,
            SchemeKind::RemapSsdX,
        ] {
            let config = Config {
                lpns: 40,
                dealloc_slots: 4,
                gc_free: 0.0,
                ..small_config(scheme)
            };
            let config = fullest(&geometry, &config);
            let mut ftl = formatted(geometry, &config, mode);
            let mut random = Random(7);
            let mut model = vec![0; config.lpns as usize];
            let lpns = u64::from(config.lpns);
            for step in 0..6000 {
                let lpn = random.below(lpns) as u32;
                if random.below(4) == 0 {
                    // Bitmaps are programmed where data was.
                    ftl.deallocate(Lpn(lpn), 1).unwrap();
                    model[lpn as usize] = 0;
                } else {
                    // Many contents, which recur after a while.
                    let content = 1 + random.below(400);
                    write(&mut ftl, lpn, content);
                    model[lpn as usize] = content;
                    let read = ftl
                        .read(Lpn(lpn))
                        .unwrap_or_else(|error| panic!("{scheme}, {mode:?}, step {step}: {error}"));
                    assert_eq!(
                        content_of(&read),
                        content,
                        "{scheme}, {mode:?}, step {step}"
                    );
                }
                ftl.media_mut().ops.clear();
            }
            let right = (0..)
                .zip(&model)
                .all(|(lpn, content)| content_of(&ftl.read(Lpn(lpn)).unwrap()) == *content);
            assert!(right && ftl.stats().dedup_hits > 100 && ftl.stats().dealloc_flushes > 100);
            ftl.check().unwrap();
        }
    }
}
