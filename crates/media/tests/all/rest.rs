//! Folders whose journal is continued: only where no old record can reappear, and no later record
//! can prove something false.

use crate::kit::folder::{JOURNAL_BYTES, JOURNALS, create, files, put_files};
use remap_ssd_media::{After, Media, Purpose};
use std::path::Path;

/// Bytes of a store of one word in the journal, and of a durability record.
const STORE_BYTES: usize = 24;
const SYNCED_BYTES: usize = 8;
const HEADER_BYTES: usize = 16;

fn store(media: &mut Media, word: usize, value: u64) {
    media.store(word, value, Purpose::Host, After::NOTHING);
}

fn resume(dir: &Path) -> Media {
    Media::resume_folder(dir).expect("no damage").0
}

/// A folder at rest with one store, and the index of the file of its journal.
fn at_rest(dir: &Path) -> usize {
    let mut media = create(dir, JOURNAL_BYTES);
    store(&mut media, 1, 10);
    media.rest().expect("the disk works");
    JOURNALS[(media.generation().expect("a folder") % 2) as usize]
}

/// End of the records of a folder at rest: a store, and both records of a sync.
const END: usize = HEADER_BYTES + STORE_BYTES + 2 * SYNCED_BYTES;

#[test]
fn a_journal_at_rest_is_continued() {
    let dir = tempfile::tempdir().expect("a folder");
    let journal = at_rest(dir.path());
    let mut media = resume(dir.path());
    store(&mut media, 1, 11);
    drop(media);
    let left = &files(dir.path())[journal];
    assert_ne!(left[END..END + STORE_BYTES], [0; STORE_BYTES]);
    assert_eq!(resume(dir.path()).peek(1), 11);
}

// The machine crashed, and of two records the disk has the second one. It must not become valid
// when another record takes the place of the first.
#[test]
fn a_record_after_a_gap_does_not_come_back_when_the_gap_is_filled() {
    let dir = tempfile::tempdir().expect("a folder");
    let journal = at_rest(dir.path());
    let mut media = resume(dir.path());
    store(&mut media, 1, 11);
    store(&mut media, 2, 20);
    drop(media);
    let mut left = files(dir.path());
    left[journal][END..END + STORE_BYTES].fill(0);
    put_files(dir.path(), &left);

    let mut media = resume(dir.path());
    assert_eq!((media.peek(1), media.peek(2)), (10, 0));
    store(&mut media, 1, 12);
    drop(media);
    let media = resume(dir.path());
    assert_eq!((media.peek(1), media.peek(2)), (12, 0));
}

// The process died within a sync, before the disk had any of it. The next process's records must
// not make this sync look complete.
#[test]
fn a_sync_that_never_returned_is_not_proven_by_what_follows() {
    let dir = tempfile::tempdir().expect("a folder");
    let journal = at_rest(dir.path());
    let mut left = files(dir.path());
    left[journal][END - SYNCED_BYTES..END].fill(0);
    put_files(dir.path(), &left);

    let mut media = resume(dir.path());
    assert_eq!(media.peek(1), 10);
    store(&mut media, 2, 20);
    drop(media);
    // The machine crashes, and the disk has no sector of the store before the sync.
    let mut left = files(dir.path());
    left[journal][HEADER_BYTES..HEADER_BYTES + STORE_BYTES].fill(0);
    put_files(dir.path(), &left);
    let opened = Media::resume_folder(dir.path());
    assert!(opened.is_ok(), "{:?}", opened.err());
}

#[test]
fn a_long_journal_is_not_left_for_the_next_opening_to_replay() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = create(dir.path(), 1 << 20);
    let generation = media.generation();
    (0..20_000).for_each(|value| store(&mut media, 1, value));
    media.rest().expect("the disk works");
    assert_ne!(media.generation(), generation);
    drop(media);
    let (media, report) = Media::resume_folder(dir.path()).expect("no damage");
    assert_eq!((media.peek(1), report.records), (19_999, 0));
}

// Programs without `resume` begin a new state, and those with it continue from that.
#[test]
fn an_opening_that_begins_anew_and_one_that_goes_on_may_follow_each_other() {
    let dir = tempfile::tempdir().expect("a folder");
    at_rest(dir.path());
    for value in 0..6 {
        let mut media = if value % 2 == 0 {
            Media::open_folder(dir.path()).expect("no damage").0
        } else {
            resume(dir.path())
        };
        store(&mut media, 2, value + 1);
        match value % 3 {
            0 => media.rest().expect("the disk works"),
            1 => media.tidy().expect("the disk works"),
            _ => {}
        }
        drop(media);
        assert_eq!(resume(dir.path()).peek(2), value + 1);
    }
}
