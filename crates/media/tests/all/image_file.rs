//! Images in files: a saved one reads back, and any other content of a file is refused with a
//! reason.

use crate::kit::lived_in;
use proptest::prelude::*;
use remap_ssd_media::image_file::{ImageError, load, lock, read, save, write};
use remap_ssd_media::{ContentMode, Image};

const LIMIT: u64 = 64 << 20;
const CONFIG: &[u8] = b"name = \"a test\"\n";
const MODES: [ContentMode; 3] = [ContentMode::None, ContentMode::Identity, ContentMode::Bytes];
const HEADER_BYTES: usize = 40;

fn bytes_of(image: &Image) -> Vec<u8> {
    let mut file = Vec::new();
    write(&mut file, image, CONFIG).expect("a vector takes everything");
    file
}

#[test]
fn an_image_reads_back_as_it_was() {
    for mode in MODES {
        let image = lived_in(mode);
        let (found, config) = read(&bytes_of(&image)[..], LIMIT).expect("just written");
        assert_eq!(
            (found.digest(), found.mode(), &config[..]),
            (image.digest(), mode, CONFIG)
        );
        assert_eq!(
            (found.geometry(), found.nvram_words()),
            (image.geometry(), image.nvram_words())
        );
        assert_eq!(
            bytes_of(&found),
            bytes_of(&image),
            "and writes the same bytes again"
        );
    }
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.img");
    save(&path, &lived_in(ContentMode::Identity), b"first").unwrap();
    save(&path, &lived_in(ContentMode::Bytes), b"second").unwrap();
    let (image, config) = load(&path).unwrap();
    assert_eq!(
        (image.mode(), &config[..]),
        (ContentMode::Bytes, b"second".as_slice())
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left aside"
    );
}

#[test]
fn a_save_that_fails_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.img");
    save(&path, &lived_in(ContentMode::Identity), b"first").unwrap();
    // The temporary file cannot be created: a folder has its name.
    std::fs::create_dir(folder.path().join("device.img.part")).unwrap();
    assert!(matches!(
        save(&path, &lived_in(ContentMode::Bytes), b"second"),
        Err(ImageError::Io(_))
    ));
    assert_eq!(load(&path).unwrap().1, b"first");
}

#[test]
fn an_image_in_use_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.img");
    save(&path, &lived_in(ContentMode::Identity), b"first").unwrap();
    let held = lock(&path).unwrap();
    assert!(matches!(lock(&path), Err(ImageError::InUse)));
    assert!(matches!(
        save(&path, &lived_in(ContentMode::Bytes), b"second"),
        Err(ImageError::InUse)
    ));
    drop(held);
    save(&path, &lived_in(ContentMode::Bytes), b"second").unwrap();
}

#[test]
fn something_else_is_not_an_image() {
    for bytes in [
        b"".as_slice(),
        b"RMPSSD",
        b"to whom it may concern, and so on for more than forty bytes",
    ] {
        assert!(
            matches!(read(bytes, LIMIT), Err(ImageError::NotAnImage)),
            "{bytes:?}"
        );
    }
}

#[test]
fn another_version_is_named() {
    let mut file = bytes_of(&lived_in(ContentMode::Identity));
    file[8] = 99;
    assert!(matches!(
        read(&file[..], LIMIT),
        Err(ImageError::Version(99))
    ));
}

#[test]
fn an_image_larger_than_the_caller_wants_is_refused_before_it_is_unpacked() {
    let file = bytes_of(&lived_in(ContentMode::Bytes));
    assert!(matches!(
        read(&file[..], 100),
        Err(ImageError::TooLarge(100))
    ));
    assert!(matches!(
        read(&file[..], 8_000),
        Err(ImageError::TooLarge(8_000))
    ));
    assert!(read(&file[..], LIMIT).is_ok());
}

#[test]
fn a_cut_file_is_damaged_wherever_it_ends() {
    for mode in MODES {
        let file = bytes_of(&lived_in(mode));
        for len in 0..file.len() {
            // The last bytes close the compressed stream; the hash before them has already
            // confirmed that the image is complete.
            if let Ok((image, config)) = read(&file[..len], LIMIT) {
                assert!(
                    len + 4 > file.len(),
                    "{len} of {} bytes read as an image",
                    file.len()
                );
                assert_eq!(
                    (image.digest(), &config[..]),
                    (lived_in(mode).digest(), CONFIG)
                );
            }
        }
    }
}

// Every byte of the file, with one bit or all bits flipped: refused, or the same image.
#[test]
fn every_damaged_byte_is_noticed() {
    for mode in MODES {
        let image = lived_in(mode);
        let file = bytes_of(&image);
        for at in 0..file.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = file.clone();
                damaged[at] ^= flip;
                if let Ok((found, config)) = read(&damaged[..], LIMIT) {
                    let place = if at < HEADER_BYTES { "header" } else { "body" };
                    assert_eq!(
                        found.geometry(),
                        image.geometry(),
                        "{place} byte {at} ^ {flip:#x}"
                    );
                    assert_eq!(
                        found.nvram_words(),
                        image.nvram_words(),
                        "{place} byte {at} ^ {flip:#x}"
                    );
                    assert_eq!(
                        found.digest(),
                        image.digest(),
                        "{place} byte {at} ^ {flip:#x}"
                    );
                    assert_eq!(&config[..], CONFIG, "{place} byte {at} ^ {flip:#x}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_after_a_header_end_in_an_image_or_a_reason(
        mode in 0..3usize,
        header in prop::collection::vec((8..HEADER_BYTES, any::<u8>()), 0..4),
        body in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut file = bytes_of(&lived_in(MODES[mode]));
        header.into_iter().for_each(|(at, byte)| file[at] = byte);
        for (at, byte) in body {
            let at = HEADER_BYTES + at.index(file.len() - HEADER_BYTES);
            file[at] = byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = read(&file[..], LIMIT);
    }
}
