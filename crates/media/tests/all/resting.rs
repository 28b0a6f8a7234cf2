//! Folders that a process closes and reopens with its tables in memory: only if those match the
//! files.

use crate::kit::folder::{
    CONTENTS, FILES, JOURNAL_BYTES, JOURNALS, Operation, STATES, blank, create, files, operate,
    put_files,
};
use crate::kit::numbers::Numbers;
use remap_ssd_media::folder::RestingFolder;
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{After, Media, Purpose};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A process that has closed the folder and kept its tables.
struct Resting {
    media: Media,
    folder: RestingFolder,
}

impl Resting {
    fn of(mut media: Media) -> Self {
        let folder = media.rest_keeping_tables().expect("the disk works");
        let folder = folder.expect("a folder at rest");
        Self { media, folder }
    }

    /// The device, if the tables can be used.
    fn resume(self, dir: &Path) -> Option<Media> {
        let Self { mut media, folder } = self;
        let resumed = media.resume_with_tables(dir, folder).expect("it is closed");
        resumed.then_some(media)
    }
}

fn store(media: &mut Media, word: usize, value: u64) {
    media.store(word, value, Purpose::Host, After::NOTHING);
}

/// A few operations on a new device.
fn filled(dir: &Path, seed: u64) -> Media {
    let mut media = create(dir, JOURNAL_BYTES);
    let mut numbers = Numbers(seed);
    (0..30).for_each(|_| Operation::draw(&mut numbers, &media).apply(&mut media));
    media
}

/// One process keeps its tables. Others open the folder between its openings: some change it, some
/// exit cleanly, some are killed.
#[test]
fn tables_are_used_if_and_only_if_nothing_has_happened_to_the_folder() {
    let (mut used, mut dropped) = (0, 0);
    for seed in 0..30 {
        let mut numbers = Numbers(8000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let (mut media, mut twin) = (create(dir.path(), JOURNAL_BYTES), blank());

        for _ in 0..12 {
            for _ in 0..numbers.below(8) {
                operate(&mut numbers, &mut media, &mut twin);
            }
            let resting = Resting::of(media);
            let is_changed = numbers.below(2) == 0 && other(&mut numbers, dir.path(), &mut twin);

            let resumed = resting.resume(dir.path());
            assert_eq!(resumed.is_some(), !is_changed, "seed {seed}");
            used += u32::from(!is_changed);
            dropped += u32::from(is_changed);
            media = resumed.unwrap_or_else(|| open(dir.path()));
            assert_eq!(
                media.to_image().digest(),
                twin.to_image().digest(),
                "seed {seed}"
            );
        }

        // Changes made with tables from memory are visible to other processes.
        drop(media);
        assert_eq!(
            open(dir.path()).to_image().digest(),
            twin.to_image().digest()
        );
    }
    assert!(used > 100 && dropped > 40, "{used} used, {dropped} dropped");
}

fn open(dir: &Path) -> Media {
    Media::resume_folder(dir).expect("no damage").0
}

/// Another process; returns true if it has changed anything.
fn other(numbers: &mut Numbers, dir: &Path, twin: &mut Media) -> bool {
    let before = files(dir);
    let mut media = if numbers.below(4) == 0 {
        Media::open_folder(dir).expect("no damage").0
    } else {
        open(dir)
    };
    for _ in 0..numbers.below(3) {
        operate(numbers, &mut media, twin);
    }
    match numbers.below(4) {
        0 => media.tidy().expect("the disk works"),
        1 | 2 => media.rest().expect("the disk works"),
        _ => {}
    }
    drop(media);
    files(dir) != before
}

// The process stores a record's words before its head. Killed in between, it has no effect.
#[test]
fn a_record_whose_head_was_never_stored_does_not_count() {
    let dir = tempfile::tempdir().expect("a folder");
    let resting = Resting::of(filled(dir.path(), 1));
    let before = files(dir.path());
    let mut media = open(dir.path());
    store(&mut media, 7, 70);
    let journal = JOURNALS[(media.generation().expect("a folder") % 2) as usize];
    drop(media);

    let mut left = files(dir.path());
    let end = before[journal].iter().zip(&left[journal]);
    let head = end.clone().position(|(old, new)| old != new);
    let head = head.expect("the other process has recorded something") / 8 * 8;
    left[journal][head..head + 8].copy_from_slice(&before[journal][head..head + 8]);
    put_files(dir.path(), &left);

    let mut media = resting.resume(dir.path()).expect("nothing has happened");
    assert_ne!(media.peek(7), 70);
    store(&mut media, 8, 80);
    drop(media);
    let media = open(dir.path());
    assert_eq!(media.peek(8), 80);
    assert_ne!(media.peek(7), 70);
}

#[test]
fn older_and_newer_copies_of_each_file_are_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = filled(dir.path(), 2);
    let stage = |media: &mut Media, value| {
        let mut numbers = Numbers(value);
        (0..20).for_each(|_| Operation::draw(&mut numbers, media).apply(media));
        // Both states and both journals.
        for value in [value, value + 10] {
            media.tidy().expect("the disk works");
            store(media, 5, value);
        }
        media.rest().expect("the disk works");
    };
    stage(&mut media, 1);
    let older = files(dir.path());
    stage(&mut media, 2);
    let now = files(dir.path());
    stage(&mut media, 3);
    let newer = files(dir.path());
    drop(media);

    let mut compared = 0;
    for others in [older, newer] {
        for index in 0..FILES.len() {
            put_files(dir.path(), &now);
            // Tables of the present folder.
            let resting = Resting::of(open(dir.path()));
            let mut files = now.clone();
            files[index].clone_from(&others[index]);
            put_files(dir.path(), &files);
            assert!(resting.resume(dir.path()).is_none(), "{}", FILES[index]);
            compared += 1;
        }
    }
    assert_eq!(compared, 10);
}

// The files have been through a crash of the disk that this process has not seen: of another
// process's records the first one is missing.
#[test]
fn a_record_after_a_gap_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let resting = Resting::of(filled(dir.path(), 7));
    let before = files(dir.path());
    let mut media = open(dir.path());
    (0..200).for_each(|value| store(&mut media, 7, value));
    let journal = JOURNALS[(media.generation().expect("a folder") % 2) as usize];
    drop(media);

    let mut left = files(dir.path());
    let differs = |index: &usize| before[journal][*index] != left[journal][*index];
    let end = (0..left[journal].len()).find(differs).expect("records") / 8 * 8;
    left[journal][end..end + 24].copy_from_slice(&before[journal][end..end + 24]);
    put_files(dir.path(), &left);
    assert!(resting.resume(dir.path()).is_none());
}

// A child of `fork` has copies of all descriptors, and with them of their locks.
#[test]
fn a_copy_of_the_descriptors_does_not_keep_the_folder_locked() {
    let dir = tempfile::tempdir().expect("a folder");
    let media = filled(dir.path(), 8);
    let copies = descriptors(dir.path());
    assert!(copies.len() > 4, "{} files are open", copies.len());
    let resting = Resting::of(media);
    drop(open(dir.path()));
    assert!(resting.resume(dir.path()).is_some());
}

/// Copies of all descriptors of this process on files in a folder.
fn descriptors(dir: &Path) -> Vec<OwnedFd> {
    let dir = dir.canonicalize().expect("it is there");
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let all = all
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.parent() == Some(&dir)));
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    // SAFETY: the device owns these descriptors, and is open until the caller closes it.
    let copy = |number| unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
    all.filter_map(number)
        .map(|number| copy(number).expect("possible"))
        .collect()
}

// The newest copies of the other files do not tell: the state is the same.
#[test]
fn an_older_copy_of_the_journal_of_the_same_state_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = filled(dir.path(), 5);
    media.tidy().expect("the disk works");
    store(&mut media, 5, 1);
    media.rest().expect("the disk works");
    let older = files(dir.path());
    store(&mut media, 5, 2);

    let resting = Resting::of(media);
    let mut files = files(dir.path());
    for index in JOURNALS {
        files[index].clone_from(&older[index]);
    }
    put_files(dir.path(), &files);
    assert!(resting.resume(dir.path()).is_none());
}

// Two copies of a folder have diverged, and both have a new state of the same number.
#[test]
fn a_copy_with_another_history_is_noticed() {
    let (here, there) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    drop(filled(here.path(), 3));
    for file in std::fs::read_dir(here.path()).expect("it is there") {
        let file = file.expect("it is there");
        std::fs::copy(file.path(), there.path().join(file.file_name())).expect("there is room");
    }
    let go_on = |dir: &Path, value| {
        let mut media = open(dir);
        store(&mut media, 5, value);
        media.tidy().expect("the disk works");
        media
    };
    let (media, other) = (go_on(here.path(), 50), go_on(there.path(), 51));
    assert_eq!(media.generation(), other.generation());
    drop(other);

    let resting = Resting::of(media);
    let mut swapped = files(there.path());
    // Contents make no difference here: all writes were to NVRAM.
    swapped[CONTENTS].clone_from(&files(here.path())[CONTENTS]);
    put_files(here.path(), &swapped);
    assert!(resting.resume(here.path()).is_none());
    assert_eq!(open(here.path()).peek(5), 51);
}

#[test]
fn a_resting_folder_is_free_for_others_and_may_be_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let Resting { mut media, folder } = Resting::of(filled(dir.path(), 4));
    let other = open(dir.path());
    let refused = media.resume_with_tables(dir.path(), folder);
    assert!(matches!(refused, Err(ImageError::InUse)), "{refused:?}");

    let resting = Resting::of(other);
    dir.close().expect("it is closed");
    let parent = tempfile::tempdir().expect("a folder");
    assert!(resting.resume(&parent.path().join("gone")).is_none());
}

// Only an opening that reads the folder reports it, and begins the page anew.
#[test]
fn tables_are_not_kept_beside_a_damaged_page_of_witnesses() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = filled(dir.path(), 6);
    let path = dir.path().join(FILES[CONTENTS]);
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("it is there");
    let end = file.metadata().expect("it is there").len();
    media.rest().expect("the disk works");
    file.write_all_at(&[0xff; 4096], end - 4096)
        .expect("there is room");
    assert!(
        media
            .rest_keeping_tables()
            .expect("the disk works")
            .is_none()
    );
}

#[test]
fn a_device_in_memory_cannot_rest() {
    assert!(blank().rest_keeping_tables().expect("no disk").is_none());
}

// Headers and journals are those of the tables: only the hash of the state differs.
#[test]
fn another_state_of_the_same_number_is_noticed() {
    let written = |value| {
        let dir = tempfile::tempdir().expect("a folder");
        let mut media = filled(dir.path(), 6);
        store(&mut media, 5, value);
        media.tidy().expect("the disk works");
        (dir, media)
    };
    let ((here, media), (there, other)) = (written(50), written(51));
    let own = STATES[(media.generation().expect("a folder") % 2) as usize];
    assert_eq!(media.generation(), other.generation());
    drop(other);

    let resting = Resting::of(media);
    let mut swapped = files(here.path());
    swapped[own].clone_from(&files(there.path())[own]);
    put_files(here.path(), &swapped);
    assert!(resting.resume(here.path()).is_none());
}
