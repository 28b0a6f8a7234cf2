//! Damage to the files of a device in a folder: found, named, and never taken for the end of the
//! history.

use crate::kit::tiny;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{After, Lpn, Media, Oob, Page, Ppn, Purpose, SbId, StoredPage};
use std::path::Path;
use std::sync::Arc;

const WORDS: usize = 100;
const JOURNAL_BYTES: u64 = 16 << 10;

fn program(media: &mut Media, page: u32, value: u8, is_meta: bool) {
    let stored = if is_meta {
        StoredPage::Meta(vec![value; 100 + usize::from(value)].into())
    } else {
        StoredPage::Bytes(Arc::new([value; PAGE_BYTES]))
    };
    let oob = Oob::new(Lpn(u32::from(value)), u64::from(value) + 7, 1);
    media
        .program(Ppn(page), oob, stored, Purpose::Host, After::NOTHING)
        .expect("no fault is planted");
}

/// A device with a state, followed by a journal of records of each kind, with flushes in between
/// and at the end.
fn folder(dir: &Path) -> Media {
    let mut media =
        Media::create_folder(dir, tiny(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
    for page in 0..8 {
        program(&mut media, page, page as u8 + 1, page % 3 == 0);
    }

    media.tidy().expect("the disk works");
    for page in 8..14 {
        program(&mut media, page, page as u8 + 1, page % 4 == 0);
        media.store(
            page as usize,
            u64::from(page) * 3,
            Purpose::Host,
            After::NOTHING,
        );
        if page % 3 == 0 {
            media.sync().expect("the disk works");
        }
    }

    media.clear(9, 2, After::NOTHING);
    let id = media.name_next();
    media
        .erase(tiny().block(SbId(0), 1), id, After::NOTHING)
        .expect("no fault is planted");
    media.store_record(20, &[1, 2, 3, 4, 5], Purpose::Host, After::NOTHING);
    media.sync().expect("the disk works");
    media
}

struct Flips {
    dir: tempfile::TempDir,
    whole: u64,
    refused: u64,
    harmless: u64,
}

impl Flips {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let whole = folder(dir.path()).to_image().digest();
        Self {
            dir,
            whole,
            refused: 0,
            harmless: 0,
        }
    }

    /// Flips a bit of every byte of a range of a file: each time the device is unchanged, or is
    /// refused with the file's name and a place.
    fn every(&mut self, file: &str, range: std::ops::Range<usize>) -> &mut Self {
        let path = self.dir.path().join(file);
        let good = std::fs::read(&path).expect("the file is there");
        for at in range {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).expect("room for it");
            match Media::look_into_folder(self.dir.path()) {
                Ok((found, _)) => {
                    assert_eq!(
                        found.to_image().digest(),
                        self.whole,
                        "{file}, byte {at}: another device"
                    );
                    self.harmless += 1;
                }
                Err(ImageError::Damaged(text)) => {
                    assert!(
                        text.contains("state.") || text.contains("journal."),
                        "{text} names no file"
                    );
                    assert!(text.contains(", byte "), "{text} names no place");
                    self.refused += 1;
                }
                Err(error) => panic!("{file}, byte {at}: {error}"),
            }
        }

        std::fs::write(&path, &good).expect("room for it");
        self
    }

    /// Numbers of refused and of harmless flips since the last call.
    fn tally(&mut self) -> (u64, u64) {
        (
            std::mem::take(&mut self.refused),
            std::mem::take(&mut self.harmless),
        )
    }
}

/// Used bytes of the journal: up to the last nonzero word.
fn used(dir: &Path, file: &str) -> usize {
    std::fs::read(dir.join(file))
        .expect("the file is there")
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at / 8 * 8 + 8)
}

#[test]
fn a_flipped_bit_in_a_state_or_a_journal_is_refused_or_changes_nothing() {
    let mut flips = Flips::new();
    let state = std::fs::metadata(flips.dir.path().join("state.0"))
        .expect("there")
        .len() as usize;

    // The third state is the newest: generation 2, in file 0.
    let journal = used(flips.dir.path(), "journal.0");
    assert!(journal > 500, "{journal} bytes of records");
    assert_eq!(
        flips.every("state.0", 0..state).tally(),
        (state as u64, 0),
        "all of the newest state counts"
    );
    assert_eq!(
        flips.every("state.1", 0..state).tally(),
        (0, state as u64),
        "none of the older one does"
    );

    assert_eq!(
        flips.every("journal.0", 0..16).tally(),
        (16, 0),
        "the header"
    );

    // The last record confirms the flush before it. Nothing is lost without it.
    assert_eq!(
        flips.every("journal.0", 16..journal - 8).tally(),
        (journal as u64 - 24, 0),
        "flushed records"
    );

    assert_eq!(
        flips.every("journal.0", journal - 8..journal + 200).tally(),
        (0, 208),
        "after them"
    );
    assert_eq!(
        flips.every("journal.1", 0..2000).tally().0,
        0,
        "the older journal"
    );
}

#[test]
fn a_destroyed_sector_of_a_flushed_journal_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(folder(dir.path()));
    let path = dir.path().join("journal.0");
    let good = std::fs::read(&path).expect("the file is there");

    for sector in 0..used(dir.path(), "journal.0") / 512 {
        for with in [0, 0xa5] {
            let mut bytes = good.clone();
            bytes[sector * 512..][..512].fill(with);
            std::fs::write(&path, &bytes).expect("room for it");
            let refused = Media::open_folder(dir.path())
                .err()
                .expect("refused")
                .to_string();
            assert!(refused.contains("journal.0, byte "), "{refused}");
            assert!(
                bytes == std::fs::read(&path).expect("still there"),
                "nothing is changed"
            );
        }
    }

    std::fs::write(&path, &good).expect("room for it");
    Media::open_folder(dir.path()).expect("whole again");
}

/// No sync has ended after these records, but a commit has, which is equivalent. Its record in the
/// journal and that in the page of witnesses each suffice: the disk may have lost either.
#[test]
fn a_flipped_bit_in_what_a_commit_covered_is_refused() {
    for is_witness_lost in [false, true] {
        let (mut flips, covered) = committed(is_witness_lost);
        assert_eq!(
            flips.every("journal.0", 16..covered).tally(),
            (covered as u64 - 16, 0),
            "the witness is lost: {is_witness_lost}"
        );
    }
}

/// A folder whose history ends with a commit, and the end of the records that it covers.
fn committed(is_witness_lost: bool) -> (Flips, usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = Media::create_folder(dir.path(), tiny(), WORDS, Some(JOURNAL_BYTES))
        .expect("an empty folder");
    media.tidy().expect("the disk works");
    (0..20).for_each(|word| media.store(word, word as u64 + 1, Purpose::Host, After::NOTHING));
    program(&mut media, 0, 1, false);
    let covered = used(dir.path(), "journal.0");
    let witness = witness_page(dir.path());

    let mut commit = media
        .begin_commit()
        .expect("the disk works")
        .expect("it has files");
    commit.write_contents().expect("the disk works");
    media.vouch(&mut commit).expect("the disk works");
    let until = commit.write_journal().expect("the disk works");
    media.finish_commit(until);
    let whole = media.to_image().digest();
    drop(media);

    assert_ne!(witness, witness_page(dir.path()), "the commit is witnessed");
    if is_witness_lost {
        let path = dir.path().join("contents");
        let mut contents = std::fs::read(&path).expect("it is there");
        let start = contents.len() - witness.len();
        contents[start..].copy_from_slice(&witness);
        std::fs::write(path, contents).expect("there is room");
    }
    let flips = Flips {
        dir,
        whole,
        refused: 0,
        harmless: 0,
    };
    (flips, covered)
}

/// The last page of the contents.
fn witness_page(dir: &Path) -> Vec<u8> {
    let contents = std::fs::read(dir.join("contents")).expect("it is there");
    contents[contents.len() - PAGE_BYTES..].to_vec()
}

/// Counts pages that read correctly, and pages that cannot be read.
fn compare(found: &mut Media, expected: &mut Media) -> (u32, u32) {
    let (mut right, mut errors) = (0, 0);
    let all: Vec<Ppn> = (0..tiny().pages())
        .map(Ppn)
        .filter(|ppn| expected.is_programmed(*ppn))
        .collect();

    for ppn in all {
        let wanted = if expected.is_meta(ppn) {
            expected
                .read_meta(ppn, Purpose::Host)
                .expect("readable")
                .map(|(_, bytes)| bytes.to_vec())
        } else {
            match expected.page(ppn) {
                Page::Bytes(bytes) => Some(bytes.to_vec()),
                other => panic!("{other:?}"),
            }
        };
        let read = if expected.is_meta(ppn) {
            found
                .read_meta(ppn, Purpose::Host)
                .map(|page| page.map(|(_, bytes)| bytes.to_vec()))
        } else {
            found.read(ppn, Purpose::Host).map(|page| match page {
                Page::Bytes(bytes) => Some(bytes.to_vec()),
                other => panic!("{other:?}"),
            })
        };
        match read {
            Ok(bytes) => {
                assert!(bytes == wanted, "{ppn:?} reads something else");
                right += 1;
            }
            Err(_) => errors += 1,
        }
    }
    (right, errors)
}

#[test]
fn a_flipped_bit_in_a_page_is_a_media_error_and_moving_the_page_does_not_hide_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut expected = folder(dir.path());
    let image = expected.to_image();
    let programmed: Vec<u32> = (0..tiny().pages())
        .filter(|ppn| expected.is_programmed(Ppn(*ppn)))
        .collect();

    drop(expected);
    let path = dir.path().join("contents");
    let good = std::fs::read(&path).expect("the file is there");
    expected = Media::from_image(&image);

    for ppn in &programmed {
        // Metadata are shorter than a page, and only their bytes count.
        let len = if expected.is_meta(Ppn(*ppn)) {
            100
        } else {
            PAGE_BYTES
        };
        for at in [0, len / 2, len - 1] {
            let mut bytes = good.clone();
            bytes[*ppn as usize * PAGE_BYTES + at] ^= 4;
            std::fs::write(&path, &bytes).expect("room for it");
            let (mut found, _) = Media::look_into_folder(dir.path()).expect("the rest is whole");
            assert_eq!(
                compare(&mut found, &mut expected),
                (programmed.len() as u32 - 1, 1),
                "page {ppn}"
            );
        }
    }

    // A damaged page moved by garbage collection is lost, and does not get a valid checksum.
    let from = *programmed
        .iter()
        .find(|ppn| !expected.is_meta(Ppn(**ppn)))
        .expect("a page of data");
    let mut bytes = good;

    bytes[from as usize * PAGE_BYTES] ^= 1;
    std::fs::write(&path, &bytes).expect("room for it");

    // An inspected device is plain memory, and an opened one writes everything out.
    for open in [Media::look_into_folder, Media::open_folder] {
        let (mut found, _) = open(dir.path()).expect("the rest is whole");
        let to = tiny().page(SbId(3), 0);
        assert!(!found.is_programmed(to));
        let slot = tiny().slot(to);
        found
            .copy(
                Ppn(from),
                slot,
                Oob::new(Lpn(3), 3, 1),
                b"lost",
                Purpose::Gc,
                After::NOTHING,
            )
            .expect("no fault is planted");
        assert!(
            found.is_meta(to),
            "what took its place says that it is lost"
        );
    }
}

/// Converts a folder with an empty journal to version 1.
fn as_version_1(dir: &Path) {
    let pages = tiny().pages() as usize;
    let blocks = tiny().blocks() as usize;
    for (index, name) in ["state.0", "state.1"].into_iter().enumerate() {
        let new = std::fs::read(dir.join(name)).expect("the file is there");
        let sums = 64 + blocks * 12 + pages * 12;
        let mut old = [&new[..sums], &new[sums + pages * 4..new.len() - 32]].concat();
        old[8..12].copy_from_slice(&1u32.to_le_bytes());
        let hash = blake3::hash(&old);
        old.extend(hash.as_bytes());
        std::fs::write(dir.join(name), &old).expect("room for it");
        let generation: [u8; 8] = old[48..56].try_into().expect("8 bytes");
        let journal = dir.join(format!("journal.{index}"));
        let mut bytes = std::fs::read(&journal).expect("the file is there");
        bytes[..8].copy_from_slice(b"RMPJRNL1");
        bytes[8..16].copy_from_slice(&generation);
        std::fs::write(&journal, &bytes).expect("room for it");
    }
}

#[test]
fn a_folder_of_version_1_opens_and_is_protected_from_then_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = folder(dir.path());
    media.tidy().expect("the disk works");

    // Records that exist in both versions.
    media.store(5, 55, Purpose::Host, After::NOTHING);
    program(&mut media, 16, 9, false);
    let whole = media.to_image().digest();

    drop(media);
    as_version_1(dir.path());
    let (look, report) = Media::look_into_folder(dir.path()).expect("version 1 is read");
    assert_eq!((look.to_image().digest(), report.records), (whole, 2));
    assert!(
        matches!(Media::open_folder(dir.path()), Err(ImageError::InUse)),
        "who looks sees no changes"
    );

    drop(look);
    let (mut media, _) = Media::open_folder(dir.path()).expect("version 1 is read");
    assert_eq!(media.to_image().digest(), whole);

    program(&mut media, 17, 77, false);
    media.sync().expect("the disk works");
    let whole = media.to_image().digest();
    drop(media);

    for name in ["state.0", "state.1"] {
        let version = std::fs::read(dir.path().join(name)).expect("the file is there")[8];
        assert_eq!(
            version, 2,
            "an older program finds no state that it would go on from"
        );
    }

    let path = dir.path().join("contents");
    let mut bytes = std::fs::read(&path).expect("the file is there");
    let (mut media, _) = Media::open_folder(dir.path()).expect("version 2 is read");
    assert_eq!(media.to_image().digest(), whole);
    assert!(media.read(Ppn(17), Purpose::Host).is_ok());

    drop(media);
    bytes[17 * PAGE_BYTES + 5] ^= 1;
    std::fs::write(&path, bytes).expect("room for it");
    let (mut media, _) = Media::open_folder(dir.path()).expect("version 2 is read");
    assert!(media.read(Ppn(17), Purpose::Host).is_err());
}

#[test]
fn going_on_without_what_is_damaged_is_the_newest_moment_of_which_all_is_known() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(folder(dir.path()));
    let keep: Vec<(String, Vec<u8>)> = ["contents", "state.0", "state.1", "journal.0", "journal.1"]
        .map(|name| {
            (
                name.to_owned(),
                std::fs::read(dir.path().join(name)).expect("there"),
            )
        })
        .into();

    let restore = || {
        keep.iter()
            .for_each(|(name, bytes)| std::fs::write(dir.path().join(name), bytes).expect("room"))
    };
    let flip = |name: &str, at: usize| {
        let path = dir.path().join(name);
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[at] ^= 1;
        std::fs::write(path, bytes).expect("room");
    };

    // A record in the middle: the ones before it stay.
    flip("journal.0", 16 + 32 + 24 + 32 + 9);
    let found = Media::weigh_folder(dir.path()).expect("something is left");
    assert_eq!(found.damage().len(), 1);
    assert!(
        found.damage()[0].lost.contains("flushes"),
        "{}",
        found.damage()[0].lost
    );

    drop(found);
    let (media, report) = Media::find_folder(dir.path(), true)
        .expect("accepted")
        .begin()
        .expect("the disk works");
    assert_eq!(
        (report.records, media.peek(8), media.peek(9), media.peek(20)),
        (3, 24, 0, 0)
    );

    drop(media);
    Media::open_folder(dir.path()).expect("whole from now on");

    // The newest state and the journal before it: the older state with the rest of its journal.
    restore();
    flip("state.0", 300);
    flip("journal.1", used(dir.path(), "journal.1") - 16);
    assert!(Media::open_folder(dir.path()).is_err());

    let found = Media::find_folder(dir.path(), true).expect("accepted");
    let damage = &found.damage()[0];
    assert!(
        damage.to_string().starts_with("state.0, byte 0") && damage.lost.contains("flushes"),
        "{damage}: {}",
        damage.lost
    );

    let (media, _) = found.begin().expect("the disk works");
    assert!(media.is_programmed(Ppn(7)) && !media.is_programmed(Ppn(8)) && media.peek(8) == 0);
    drop(media);
    Media::open_folder(dir.path()).expect("whole from now on");

    // A header: the records identify their generation.
    restore();
    flip("journal.0", 9);
    let (media, report) = Media::find_folder(dir.path(), true)
        .expect("accepted")
        .begin()
        .expect("the disk works");

    assert!(
        report.records > 12 && media.peek(20) == 1,
        "nothing is lost"
    );

    drop(media);
    Media::open_folder(dir.path()).expect("whole from now on");

    // Both states: recovery is impossible.
    restore();
    flip("state.0", 300);
    flip("state.1", 300);
    assert!(Media::find_folder(dir.path(), true).is_err());
}

#[test]
fn a_folder_without_its_lock_file_is_still_locked_and_errors_name_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let media = folder(dir.path());
    let refusal = |dir: &Path| Media::open_folder(dir).err().expect("refused");
    assert!(matches!(refusal(dir.path()), ImageError::InUse));

    std::fs::remove_file(dir.path().join("lock")).expect("it was there");
    assert!(
        matches!(refusal(dir.path()), ImageError::InUse),
        "the contents are locked too"
    );

    drop(media);
    for name in ["contents", "state.0", "state.1", "journal.0", "journal.1"] {
        let (path, aside) = (dir.path().join(name), dir.path().join("aside"));
        std::fs::rename(&path, &aside).expect("there");
        let text = refusal(dir.path()).to_string();
        assert!(
            text.contains(name) && text.contains("No such file"),
            "{text}"
        );
        std::fs::rename(&aside, &path).expect("there");
    }
}

#[test]
fn what_a_sparse_copy_left_out_is_reserved_when_it_is_opened() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let dir = tempfile::tempdir().expect("a folder");
    drop(folder(dir.path()));

    for name in ["contents", "state.0", "state.1", "journal.0", "journal.1"] {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).expect("there");
        let copy = std::fs::File::create(&path).expect("there");
        copy.set_len(bytes.len() as u64).expect("a length");
        for (at, block) in bytes
            .chunks(4096)
            .enumerate()
            .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        {
            copy.write_all_at(block, at as u64 * 4096)
                .expect("room for it");
        }
    }

    let allocated = |name: &str| {
        std::fs::metadata(dir.path().join(name))
            .expect("there")
            .blocks()
            * 512
    };

    let contents = u64::from(tiny().pages()) * PAGE_BYTES as u64;
    assert!(
        allocated("contents") < contents && allocated("journal.1") < JOURNAL_BYTES,
        "the copy is sparse"
    );

    let (mut media, _) = Media::open_folder(dir.path()).expect("there is room");
    assert!(allocated("contents") >= contents && allocated("journal.1") >= JOURNAL_BYTES);
    program(&mut media, 16, 3, false);
}
