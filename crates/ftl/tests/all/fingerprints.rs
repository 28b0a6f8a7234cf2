//! An untrusted fingerprint: colliding contents stay separate, and a hit costs a read.

use crate::kit::{content, device, small_config, small_geometry};
use remap_ssd_ftl::{Config, FingerprintKind, Ftl, Lpn, SchemeKind};
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{ContentMode, Media, OpKind, Page, Payload};
use std::sync::Arc;

fn config(fingerprint: FingerprintKind) -> Config {
    Config {
        fingerprint,
        ..small_config(SchemeKind::RemapSsd)
    }
}

fn with_bytes(fingerprint: FingerprintKind) -> Ftl {
    let (geometry, config) = (small_geometry(), config(fingerprint));
    let media = Media::blank(geometry, ContentMode::Bytes, config.nvram_words(&geometry));
    Ftl::format(media, config).expect("the configuration works")
}

/// MurmurHash3's multipliers for the first and the second half of a block. Their inverses are
/// modulo 2^64.
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)))
    })
}

/// The half block with this mixed form.
fn unmixed1(mixed: u64) -> u64 {
    mixed
        .wrapping_mul(inverse(C2))
        .rotate_right(31)
        .wrapping_mul(inverse(C1))
}

fn unmixed2(mixed: u64) -> u64 {
    mixed
        .wrapping_mul(inverse(C1))
        .rotate_right(33)
        .wrapping_mul(inverse(C2))
}

/// Two pages with the same MurmurHash3, for any seed. A difference in bit 36 of the first mixed
/// half becomes one in the top bit of h1, which survives addition and multiplication. It reaches h2
/// through the addition, where bit 32 of the second half cancels it; the next block's top bit ends
/// it.
fn colliding() -> [[u8; PAGE_BYTES]; 2] {
    let page = |differences: [u64; 4]| {
        let mut bytes = [0x5a; PAGE_BYTES];
        let (halves, _) = bytes.as_chunks_mut::<8>();
        for (index, difference) in differences.into_iter().enumerate() {
            let mixed = 0x0123_4567_89ab_cdef ^ difference;
            let half = if index % 2 == 0 {
                unmixed1(mixed)
            } else {
                unmixed2(mixed)
            };
            halves[index] = half.to_le_bytes();
        }
        bytes
    };
    [page([0; 4]), page([1 << 36, 1 << 32, 1 << 63, 0])]
}

#[test]
fn contents_that_collide_are_told_apart_by_reading_them() {
    let pages = colliding();
    let [first, second] = pages.each_ref().map(|page| Payload::Bytes(page));
    assert_ne!(first, second);

    let mut ftl = with_bytes(FingerprintKind::Murmur3);
    for (lpn, payload) in [(0, &first), (1, &second), (2, &second), (3, &first)] {
        ftl.write(Lpn(lpn), payload).expect("there is room");
    }

    let stats = ftl.stats();
    assert_eq!(
        (stats.dedup_hits, stats.collisions, stats.verified),
        (1, 2, 3),
        "they do collide"
    );

    let bytes = |payload: &Payload<'_>| match payload {
        Payload::Bytes(bytes) => Page::Bytes(Arc::from(*bytes)),
        Payload::Identity(identity) => Page::Identity(*identity),
    };
    let read: Vec<Page> = (0..4)
        .map(|lpn| ftl.read(Lpn(lpn)).expect("readable"))
        .collect();

    assert_eq!(
        read,
        [bytes(&first), bytes(&second), bytes(&second), bytes(&first)]
    );

    ftl.check().expect("consistent");
    let mut trusted = with_bytes(FingerprintKind::Blake3);
    for (lpn, payload) in [(0, &first), (1, &second), (2, &second), (3, &first)] {
        trusted.write(Lpn(lpn), payload).expect("there is room");
    }

    assert_eq!(
        (trusted.stats().dedup_hits, trusted.stats().verified),
        (2, 0)
    );
}

#[test]
fn a_hit_by_murmur3_is_one_read_more_than_a_hit_by_blake3() {
    for (fingerprint, reads) in [(FingerprintKind::Blake3, 0), (FingerprintKind::Murmur3, 1)] {
        let mut ftl = device(small_geometry(), &config(fingerprint));
        ftl.write(Lpn(0), &content(7)).expect("there is room");
        ftl.write(Lpn(1), &content(7)).expect("there is room");
        ftl.media_mut().ops.clear();
        ftl.write(Lpn(2), &content(7)).expect("there is room");
        let count = |kind| ftl.media().ops.iter().filter(|op| op.kind == kind).count();
        assert_eq!(
            (
                count(OpKind::Read),
                count(OpKind::Program),
                count(OpKind::NvWrite)
            ),
            (reads, 0, 1)
        );
    }
}
