//! The fingerprint store learns all live, readable data at power-on.

use crate::kit::{Random, page_of, recovered, small_config, small_geometry};
use remap_ssd_ftl::{FingerprintKind, Ftl, Lpn, SchemeKind};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Media, Page, PageView, Payload, Ppn};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A device with real bytes.
fn device() -> Ftl {
    let (geometry, config) = (small_geometry(), small_config(SchemeKind::RemapSsd));
    let media = Media::blank(geometry, ContentMode::Bytes, config.nvram_words(&geometry));
    Ftl::format(media, config).expect("the configuration works")
}

fn bytes(content: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [1; PAGE_BYTES];
    bytes[..8].copy_from_slice(&content.to_le_bytes());
    bytes
}

fn write(ftl: &mut Ftl, lpn: u32, content: u64) {
    let written = ftl.write(Lpn(lpn), &Payload::Bytes(&bytes(content)));
    written.expect("there is room");
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    FingerprintKind::Blake3.digest(bytes)
}

/// The caller read the page before it became unreadable, or has its digest from a file.
#[test]
fn a_page_that_cannot_be_read_any_more_is_found_by_no_digest() {
    for recalls in [false, true] {
        let mut ftl = device();
        (0..40).for_each(|lpn| write(&mut ftl, lpn, u64::from(lpn) + 1));
        let (mut ftl, _) = recovered(ftl);
        let (pages, _) = ftl.unknown_pages(Ppn(0), usize::MAX);
        let gone = page_of(&mut ftl, 5);
        ftl.media_mut().plant(|faults| {
            faults.read.insert(gone);
        });

        let mut learnt = 0;
        for page in pages {
            let found = match ftl.media().view(page.ppn) {
                PageView::Bytes(bytes) => digest(bytes),
                _ => digest(&bytes(6)),
            };
            let enters = if recalls {
                ftl.recall(page.ppn, found)
            } else {
                ftl.learn_page(page, found)
            };
            assert_eq!(enters, page.ppn != gone, "{recalls}");
            learnt += u32::from(enters);
        }
        assert_eq!(learnt, 39);
        assert!(ftl.known_digests().all(|(ppn, _)| ppn != gone));

        // Data written now must not depend on that page.
        write(&mut ftl, 50, 6);
        assert_eq!(ftl.read(Lpn(50)), Ok(Page::Bytes(Arc::new(bytes(6)))));
    }
}

/// A page of metadata, or one without an owner, may hold the same bytes, and is moved or erased
/// without notice to the store.
#[test]
fn only_live_data_is_learnt_and_listed_and_saved() {
    let (mut ftl, mut random) = (device(), Random(41));
    for step in 0..2000 {
        write(&mut ftl, random.below(600) as u32, step % 900);
    }
    // Bitmaps of deallocations are metadata pages with owners.
    (0..40).for_each(|lpn| ftl.deallocate(Lpn(lpn), 1).unwrap());
    assert!(ftl.stats().dealloc_flushes > 0);
    let is_live =
        |ftl: &Ftl| -> BTreeSet<Ppn> { (0..600).filter_map(|lpn| ftl.place(Lpn(lpn))).collect() };
    let (mut ftl, _) = recovered(ftl);
    let live = is_live(&ftl);

    let mut from = Some(Ppn(0));
    let mut listed = BTreeSet::new();
    while let Some(first) = from {
        let (pages, next) = ftl.unknown_pages(first, 7);
        assert!(pages.len() <= 7);
        listed.extend(pages.iter().map(|page| page.ppn));
        from = next;
    }
    assert_eq!(listed, live, "each is listed, whatever the slices");

    for ppn in (0..small_geometry().pages()).map(Ppn) {
        let other = digest(&bytes(1_000_000 + u64::from(ppn.0)));
        assert_eq!(ftl.recall(ppn, other), live.contains(&ppn), "{ppn:?}");
    }

    // Digests of pages that lost their owners are not saved.
    (0..300).for_each(|lpn| ftl.deallocate(Lpn(lpn), 1).unwrap());
    let live = is_live(&ftl);
    let saved: BTreeSet<Ppn> = ftl.known_digests().map(|(ppn, _)| ppn).collect();
    assert!(saved.is_subset(&live) && !saved.is_empty());
}
