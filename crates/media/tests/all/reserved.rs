//! Space of a folder's files: all of it is there once a device is open, so that no later write can
//! find the disk full.

use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Media};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
const BLOCK: usize = 4096;

/// Copies a file onto itself without its empty blocks; returns its length.
fn make_sparse(path: &Path) -> u64 {
    let bytes = std::fs::read(path).expect("there");
    let copy = File::create(path).expect("there");
    copy.set_len(bytes.len() as u64).expect("a length");
    for (at, block) in bytes.chunks(BLOCK).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            let at = (at * BLOCK) as u64;
            copy.write_all_at(block, at).expect("room for it");
        }
    }
    bytes.len() as u64
}

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).expect("there").blocks() * 512
}

/// Devices of which most of the state is about blocks, about pages, or NVRAM.
#[test]
fn every_file_of_a_sparse_copy_is_reserved_as_a_whole_when_it_is_opened() {
    for (superblocks, pages_per_block, words) in [(1024, 4, 0), (4, 1024, 0), (4, 4, 8192)] {
        let shape = Shape {
            channels: 1,
            dies: 1,
            superblocks,
            pages_per_block,
        };
        let geometry = Geometry::new(shape).expect("valid");
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        drop(Media::create_folder(dir, geometry, words, None).expect("an empty folder"));

        let lengths = FILES.map(|name| make_sparse(&dir.join(name)));
        for (name, bytes) in FILES.into_iter().zip(lengths) {
            let is_sparse = allocated(&dir.join(name)) < bytes;
            assert!(is_sparse || bytes < 2 * BLOCK as u64, "{name} is sparse");
        }

        let opened = Media::open_folder(dir).expect("there is room");
        for (name, bytes) in FILES.into_iter().zip(lengths) {
            let found = allocated(&dir.join(name));
            assert!(
                found >= bytes,
                "{shape:?}, {name}: {found} of {bytes} bytes"
            );
        }
        drop(opened);
    }
}
