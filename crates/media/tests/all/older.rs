//! An older copy of one file of a folder, for example from a backup, beside the others: it is
//! refused by its name, or has no effect. And a damaged state is rebuilt from the previous one.

use crate::kit::folder::{
    CONTENTS, FILES, JOURNALS, Operation, STATES, blank, create, files, operate, put_files,
};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{After, Lpn, Media, Oob, Page, Ppn, Purpose, SbId, StoredPage};
use std::path::Path;
use std::sync::Arc;

/// So small that new states are written all the time.
const JOURNAL_BYTES: u64 = 16 << 10;

fn commit(media: &mut Media) {
    let mut commit = media
        .begin_commit()
        .expect("the disk works")
        .expect("it has files");
    commit.write_contents().expect("the disk works");
    media.vouch(&mut commit).expect("the disk works");
    let until = commit.write_journal().expect("the disk works");
    media.finish_commit(until);
}

/// Checks that pages that differ from the twin's read as errors.
fn reads_nothing_else(found: &mut Media, twin: &mut Media) {
    for ppn in (0..twin.geometry().pages()).map(Ppn) {
        if !twin.is_programmed(ppn) || twin.is_meta(ppn) {
            continue;
        }
        let Page::Bytes(expected) = twin.page(ppn) else {
            continue;
        };
        if let Ok(Page::Bytes(bytes)) = found.read(ppn, Purpose::Host) {
            assert!(bytes == expected, "{ppn:?} reads as something else");
        }
    }
}

/// After each flush, each file in turn is replaced by a copy from an earlier moment.
#[test]
fn an_older_copy_of_one_file_is_refused_by_its_name_or_changes_nothing() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (mut folder, mut twin) = (create(live.path(), JOURNAL_BYTES), blank());
    let mut numbers = Numbers(7);
    let mut refused = [0u32; FILES.len()];
    let mut versions = vec![files(live.path())];

    for step in 0..900 {
        operate(&mut numbers, &mut folder, &mut twin);
        if step % 5 > 0 {
            continue;
        }
        match numbers.below(8) {
            0 => folder.tidy().expect("the disk works"),
            1..4 => folder.sync().expect("the disk works"),
            _ => commit(&mut folder),
        }

        let now = files(live.path());
        for file in 0..FILES.len() {
            let mut mixed = now.clone();
            let at = numbers.below(versions.len() as u64) as usize;
            mixed[file].clone_from(&versions[at][file]);
            put_files(copy.path(), &mixed);
            match Media::look_into_folder(copy.path()) {
                Ok((mut found, _)) if file == CONTENTS => reads_nothing_else(&mut found, &mut twin),
                Ok((found, _)) => assert_eq!(
                    found.to_image().digest(),
                    twin.to_image().digest(),
                    "step {step}: with {} of version {at} another device",
                    FILES[file]
                ),
                Err(ImageError::Damaged(text)) => {
                    assert!(text.starts_with(FILES[file]), "{}: {text}", FILES[file]);
                    refused[file] += 1;
                }
                Err(error) => panic!("step {step}, {}: {error}", FILES[file]),
            }
        }

        versions.push(now);
        if versions.len() > 12 {
            versions.remove(0);
        }
    }
    assert!(
        refused.iter().all(|count| *count > 20),
        "{refused:?} of {FILES:?}"
    );
}

/// Only an older journal: everything flushed since would be lost.
#[test]
fn an_older_journal_is_refused_until_the_loss_is_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), 64 << 10);
    let store = |folder: &mut Media, word: u64| {
        folder.store(word as usize, word + 1, Purpose::Host, After::NOTHING);
        commit(folder);
    };

    store(&mut folder, 0);
    let before = files(dir.path());
    (1..30).for_each(|word| store(&mut folder, word));
    drop(folder);

    // The state that the folder was created with is of generation 1.
    let mut mixed = files(dir.path());
    mixed[JOURNALS[1]].clone_from(&before[JOURNALS[1]]);
    put_files(dir.path(), &mixed);
    let refused = Media::open_folder(dir.path()).err().expect("refused");
    let text = refused.to_string();
    assert!(
        text.contains("journal.1, byte ") && text.contains("older copy"),
        "{text}"
    );

    let found = Media::find_folder(dir.path(), true).expect("accepted");
    assert!(found.damage()[0].lost.contains("flushes"));
    let (media, _) = found.begin().expect("the disk works");
    assert_eq!((media.peek(0), media.peek(1)), (1, 0));
    drop(media);
    Media::open_folder(dir.path()).expect("whole from now on");
}

/// The page of witnesses of an image that has one.
#[test]
fn without_what_tells_older_copies_a_folder_is_refused_until_that_is_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), JOURNAL_BYTES);
    folder.store(3, 4, Purpose::Host, After::NOTHING);
    folder.sync().expect("the disk works");
    drop(folder);

    let whole = files(dir.path());
    let page = whole[CONTENTS].len() - PAGE_BYTES;
    for end in [page, page + 8] {
        let mut cut = whole.clone();
        cut[CONTENTS].truncate(end);
        cut[CONTENTS].resize(if end == page { page } else { page + PAGE_BYTES }, 0);
        put_files(dir.path(), &cut);
        let text = Media::open_folder(dir.path())
            .err()
            .expect("refused")
            .to_string();
        assert!(text.contains(&format!("contents, byte {page}")), "{text}");

        let found = Media::find_folder(dir.path(), true).expect("accepted");
        let (media, _) = found.begin().expect("the disk works");
        assert_eq!(media.peek(3), 4);
        drop(media);
        Media::open_folder(dir.path()).expect("whole from now on");
    }
}

/// Converts a folder to that of an earlier version: without the page, and without its number in the
/// states.
fn without_witness(dir: &Path) {
    let mut all = files(dir);
    let page = all[CONTENTS].len() - PAGE_BYTES;
    all[CONTENTS].truncate(page);
    for state in STATES {
        let bytes = &mut all[state];
        bytes[56..64].fill(0);
        let end = bytes.len() - 32;
        let hash = blake3::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(hash.as_bytes());
    }
    put_files(dir, &all);
}

#[test]
fn a_folder_of_before_opens_and_is_protected_from_then_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut folder, mut twin) = (create(dir.path(), JOURNAL_BYTES), blank());
    let mut numbers = Numbers(11);
    for _ in 0..40 {
        operate(&mut numbers, &mut folder, &mut twin);
    }
    folder.sync().expect("the disk works");
    drop(folder);
    without_witness(dir.path());

    let (look, _) = Media::look_into_folder(dir.path()).expect("it is read");
    assert_eq!(look.to_image().digest(), twin.to_image().digest());
    drop(look);

    let (mut media, _) = Media::open_folder(dir.path()).expect("it opens");
    assert_eq!(media.to_image().digest(), twin.to_image().digest());
    let before = files(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    commit(&mut media);
    drop(media);

    // The newest state has an odd or an even number; only its journal is put back.
    let mut mixed = files(dir.path());
    let journal = JOURNALS
        .into_iter()
        .find(|file| mixed[*file] != before[*file])
        .expect("one has grown");
    mixed[journal].clone_from(&before[journal]);
    put_files(dir.path(), &mixed);
    let text = Media::open_folder(dir.path())
        .err()
        .expect("refused")
        .to_string();
    assert!(text.contains(FILES[journal]), "{text}");
}

/// Index of the newest state file.
fn newest_state(files: &[Vec<u8>]) -> usize {
    let generation =
        |file: usize| u64::from_le_bytes(files[file][48..56].try_into().expect("8 bytes"));
    STATES[usize::from(generation(STATES[1]) > generation(STATES[0]))]
}

#[test]
fn one_flipped_bit_in_the_newest_state_loses_nothing() {
    let (live, copy) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (mut folder, mut twin) = (create(live.path(), JOURNAL_BYTES), blank());
    let mut numbers = Numbers(13);

    for step in 0..1200 {
        operate(&mut numbers, &mut folder, &mut twin);
        match numbers.below(60) {
            0 => folder.tidy().expect("the disk works"),
            1 => {
                drop(folder);
                folder = Media::open_folder(live.path()).expect("it opens").0;
            }
            _ => {}
        }
        if step % 17 > 0 {
            continue;
        }

        let mut damaged = files(live.path());
        let state = newest_state(&damaged);
        let at = numbers.below(damaged[state].len() as u64) as usize;
        // A flipped generation would make it an older copy, which another test covers.
        let at = if (48..56).contains(&at) { 64 } else { at };
        damaged[state][at] ^= 1 << numbers.below(8);
        put_files(copy.path(), &damaged);

        let text = Media::open_folder(copy.path())
            .err()
            .expect("refused")
            .to_string();
        assert!(text.contains(FILES[state]), "{text}");
        let found = Media::find_folder(copy.path(), true).expect("accepted");
        assert!(
            found.damage()[0].lost.starts_with("nothing"),
            "step {step}: {}",
            found.damage()[0].lost
        );
        let (found, _) = found.begin().expect("the disk works");
        assert_eq!(
            found.to_image().digest(),
            twin.to_image().digest(),
            "step {step}"
        );
        drop(found);
        Media::open_folder(copy.path()).expect("whole from now on");
    }
}

/// The line by which an operator decides about accepting the loss.
#[test]
fn a_loss_counts_flushes_and_writes_with_fua() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), 64 << 10);
    let start = Operation::Store { word: 1, value: 1 };
    start.apply(&mut folder);
    for n in 0..14 {
        Operation::Store { word: 2, value: n }.apply(&mut folder);
        if n % 4 == 0 {
            folder.sync().expect("the disk works");
        } else {
            commit(&mut folder);
        }
    }
    drop(folder);

    let mut damaged = files(dir.path());
    damaged[JOURNALS[1]][16 + 9] ^= 1;
    put_files(dir.path(), &damaged);
    let found = Media::weigh_folder(dir.path()).expect("something is left");
    let lost = &found.damage()[0].lost;
    assert!(
        lost.contains("14 operations or more; 14 times or more"),
        "{lost}"
    );
}

/// A state and its journal match each other; the page of witnesses records newer ones.
#[test]
fn an_older_state_with_its_journal_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), JOURNAL_BYTES);
    let before = files(dir.path());
    folder.store(3, 4, Purpose::Host, After::NOTHING);
    folder.tidy().expect("the disk works");
    drop(folder);

    let mut mixed = files(dir.path());
    for file in [STATES[0], JOURNALS[0]] {
        assert!(mixed[file] != before[file], "generation 2 is there");
        mixed[file].clone_from(&before[file]);
    }
    put_files(dir.path(), &mixed);
    let refused = Media::open_folder(dir.path()).err().expect("refused");
    assert!(refused.to_string().contains("state.0, byte 0"), "{refused}");
}

/// Power-on ends the journal in place of a record torn by a crash; records after it do not reappear
/// if power-on is cut.
#[test]
fn what_lies_behind_the_end_of_a_journal_stays_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), JOURNAL_BYTES);
    // The record of an erase is as long as the one of the end.
    let id = folder.name_next();
    folder
        .erase(tiny().block(SbId(0), 0), id, After::NOTHING)
        .expect("no fault is planted");
    folder.store(3, 4, Purpose::Host, After::NOTHING);
    drop(folder);

    let mut torn = files(dir.path());
    torn[JOURNALS[1]][16] ^= 1;
    put_files(dir.path(), &torn);
    let (media, report) = Media::open_folder(dir.path()).expect("a torn end");
    assert_eq!((report.records, media.peek(3)), (0, 0));
    drop(media);

    // Cut before the new state: the journal has its end, and the rest is unchanged.
    torn[JOURNALS[1]] = files(dir.path())[JOURNALS[1]].clone();
    put_files(dir.path(), &torn);
    let (media, _) = Media::open_folder(dir.path()).expect("a torn end");
    assert_eq!(media.peek(3), 0);
}

/// Commits under load vouch for no contents, but cover them: a page that has decayed, or is of an
/// older copy, is a media error and not the end of the history.
#[test]
fn contents_that_a_commit_covered_do_not_end_the_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = create(dir.path(), 64 << 10);
    let older = files(dir.path());
    let program = |folder: &mut Media, ppn: u32| {
        let stored = StoredPage::Bytes(Arc::new([ppn as u8 + 1; PAGE_BYTES]));
        let oob = Oob::new(Lpn(ppn), 1, 1);
        folder
            .program(Ppn(ppn), oob, stored, Purpose::Host, After::NOTHING)
            .expect("no fault is planted");
    };

    program(&mut folder, 0);
    for ppn in [2, 4] {
        folder.store(3, u64::from(ppn), Purpose::Host, After::NOTHING);
        let mut commit = folder
            .begin_commit()
            .expect("the disk works")
            .expect("it has files");
        commit.write_contents().expect("the disk works");
        program(&mut folder, ppn);
        folder.vouch(&mut commit).expect("the disk works");
        let until = commit.write_journal().expect("the disk works");
        folder.finish_commit(until);
    }
    drop(folder);

    let mut mixed = files(dir.path());
    mixed[CONTENTS].clone_from(&older[CONTENTS]);
    put_files(dir.path(), &mixed);
    let (mut media, _) = Media::look_into_folder(dir.path()).expect("it opens");
    assert_eq!(media.peek(3), 4);
    assert!(media.read(Ppn(0), Purpose::Host).is_err());
}
