//! Image files opened and closed by hand: the unpacked bytes, without their hash, are what is
//! mutated.
//!
//! ```text
//! unpacked: header (40 bytes) | body
//! file:     header (40 bytes) | zstd(body | BLAKE3 hash)
//! ```
//! Absent: what the bytes mean. If the format changes, the test that opens and seals the corpus
//! fails.

use std::io::{Read, Write};

/// Bytes of the header, which is not compressed.
pub const HEADER_BYTES: usize = 40;
const HASH_BYTES: usize = 32;

/// Unpacks a file for a mutator, without the hash at its end. `None`: the file is not whole.
pub fn open(file: &[u8]) -> Option<Vec<u8>> {
    let (header, packed) = file.split_at_checked(HEADER_BYTES)?;
    let mut unpacked = header.to_vec();
    zstd::Decoder::new(packed)
        .ok()?
        .read_to_end(&mut unpacked)
        .ok()?;
    let len = unpacked.len().checked_sub(HASH_BYTES)?;
    (len >= HEADER_BYTES).then(|| unpacked.truncate(len))?;
    Some(unpacked)
}

/// Packs it again, with the hash of what it is now; `None` if it is too short.
pub fn seal(unpacked: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = unpacked.split_at_checked(HEADER_BYTES)?;
    // The hash covers the header or not, by format; whichever the reader accepts is right.
    let with_header = blake3::hash(unpacked);
    let without = blake3::hash(body);
    let pack = |hash: &blake3::Hash| {
        let mut encoder = zstd::Encoder::new(header.to_vec(), 1).ok()?;
        encoder.write_all(body).ok()?;
        encoder.write_all(hash.as_bytes()).ok()?;
        encoder.finish().ok()
    };
    let covers_header = *COVERS_HEADER;
    pack(if covers_header {
        &with_header
    } else {
        &without
    })
}

/// Does the reader's hash cover the header?
static COVERS_HEADER: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
    use remap_ssd_media::geometry::Shape;
    use remap_ssd_media::{ContentMode, Geometry, Image, image_file};
    let shape = Shape {
        channels: 1,
        dies: 1,
        superblocks: 1,
        pages_per_block: 4,
    };
    let image = Image::blank(Geometry::new(shape).expect("valid"), ContentMode::None, 0);
    let mut file = Vec::new();
    image_file::write(&mut file, &image, b"").expect("a vector takes everything");
    let unpacked = {
        let mut body = Vec::new();
        zstd::Decoder::new(&file[HEADER_BYTES..])
            .expect("a stream")
            .read_to_end(&mut body)
            .expect("whole");
        body
    };
    let (body, hash) = unpacked.split_at(unpacked.len() - HASH_BYTES);
    *blake3::hash(body).as_bytes() != *hash
});
