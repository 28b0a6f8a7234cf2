//! Commits of a folder that fail, or with a new state begun concurrently: nothing undurable counts
//! as durable, and nothing durable is refused as an older copy.
//!
//! The disk is a model (`kit/disk.rs`).

use crate::disk;
use crate::kit::folder::{JOURNAL_BYTES, blank, create, operate};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::{After, Media, Purpose, SbId};
use tempfile::TempDir;

fn store(media: &mut Media, word: usize, value: u64) {
    media.store(word, value, Purpose::Host, After::NOTHING);
    disk::look();
}

fn erase(media: &mut Media) {
    let id = media.name_next();
    media
        .erase(tiny().block(SbId(0), 0), id, After::NOTHING)
        .expect("no fault is planted");
}

/// A device in a folder, on the model of a disk.
fn made() -> (TempDir, Media) {
    let dir = tempfile::tempdir().expect("a folder");
    let media = create(dir.path(), JOURNAL_BYTES);
    disk::attach(dir.path());
    (dir, media)
}

/// The folder after a crash of the machine now.
fn crashed(numbers: &mut Numbers) -> TempDir {
    let elsewhere = tempfile::tempdir().expect("a folder");
    disk::crash(elsewhere.path(), |end| numbers.below(end));
    elsewhere
}

/// The pages given up by an erase may be the only ones with data not covered by the commit.
#[test]
fn an_erase_after_a_commit_has_vouched_waits_for_the_disk() {
    let (_dir, mut media) = made();
    store(&mut media, 3, 4);
    let mut commit = media.begin_commit().expect("works").expect("files");
    store(&mut media, 3, 5);
    commit.write_contents().expect("the disk works");
    media.vouch(&mut commit).expect("the disk works");

    let syncs = disk::syncs();
    erase(&mut media);
    assert!(disk::syncs() > syncs);
}

/// At any failed step, and even though the disk later works again.
#[test]
fn nothing_is_acknowledged_after_a_commit_that_failed() {
    for steps in 0..3 {
        let (_dir, mut media) = made();
        store(&mut media, 3, 4);
        let mut commit = media.begin_commit().expect("works").expect("files");
        let error = if steps == 0 {
            disk::fail(true);
            commit.write_contents().expect_err("the disk fails")
        } else {
            commit.write_contents().expect("the disk works");
            media.vouch(&mut commit).expect("the disk works");
            disk::fail(true);
            commit.write_journal().expect_err("the disk fails")
        };
        let mut other = media.begin_commit().expect("not known yet").expect("files");

        media.commit_failed(&error);
        disk::fail(false);
        assert!(media.broken().is_some());
        assert!(media.begin_commit().is_err(), "step {steps}");
        // A concurrent commit in progress.
        assert!(media.vouch(&mut other).is_err(), "step {steps}");
        assert!(media.sync().is_err(), "step {steps}");
    }
}

/// The position where a commit ends is one of the journal that was written out.
#[test]
fn a_commit_beside_which_a_state_is_begun_says_nothing_of_the_new_journal() {
    // The state is begun before the commit vouches, or before it ends.
    for (early, seed) in [true, false]
        .into_iter()
        .flat_map(|e| (0..20).map(move |s| (e, s)))
    {
        let mut numbers = Numbers(900 + seed);
        let (_dir, mut media) = made();
        store(&mut media, 3, 4);
        for word in 10..60 {
            store(&mut media, word, 1);
        }
        let mut commit = media.begin_commit().expect("works").expect("files");
        let begun = media.position().expect("it has files");
        commit.write_contents().expect("the disk works");

        let begin_state = |media: &mut Media| {
            media.tidy().expect("the disk works");
            // Records that have not been made durable.
            (100..150).for_each(|word| store(media, word, 2));
        };
        if early {
            begin_state(&mut media);
        }
        media.vouch(&mut commit).expect("the disk works");
        let until = commit.write_journal().expect("the disk works");
        if !early {
            begin_state(&mut media);
        }
        media.finish_commit(until);
        assert!(until >= begun && until < media.position().expect("files"));

        // The files agree, with or without the records.
        let left = crashed(&mut numbers);
        let (found, _) = Media::open_folder(left.path()).expect("nothing is an older copy");
        assert_eq!((found.peek(3), found.peek(59)), (4, 1));
    }
}

/// The journal may become full at each step of a commit.
#[test]
fn commits_go_on_when_the_journal_is_full() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut media, mut twin) = (create(dir.path(), JOURNAL_BYTES), blank());
    let mut numbers = Numbers(3);
    let begun = media.generation().expect("it has files");
    for _ in 0..600 {
        if numbers.below(3) == 0 {
            operate(&mut numbers, &mut media, &mut twin);
        }
        let mut commit = media.begin_commit().expect("works").expect("files");
        commit.write_contents().expect("the disk works");
        media.vouch(&mut commit).expect("the disk works");
        let until = commit.write_journal().expect("the disk works");
        media.finish_commit(until);
    }
    assert!(media.generation().expect("files") > begun + 1);

    drop(media);
    let (found, _) = Media::open_folder(dir.path()).expect("it is whole");
    assert_eq!(found.to_image().digest(), twin.to_image().digest());
}

/// A state in the other one's file has been copied there, for example by an operator.
#[test]
fn a_state_in_the_other_file_is_refused_by_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(create(dir.path(), JOURNAL_BYTES));
    let [first, second] = ["state.0", "state.1"].map(|name| dir.path().join(name));
    std::fs::copy(&second, &first).expect("there is room");
    std::fs::write(&second, []).expect("there is room");
    let error = Media::look_into_folder(dir.path()).err().expect("refused");
    let error = error.to_string();
    assert!(
        error.contains("state.0") && error.contains("another file"),
        "{error}"
    );
}

/// The newest state is damaged and rebuilt: until the new one is durable, only the previous one
/// exists.
#[test]
fn a_cut_while_a_damaged_state_is_replaced_leaves_what_it_is_made_from() {
    let (dir, mut media) = made();
    store(&mut media, 3, 4);
    // Generation 2, in the first file.
    media.tidy().expect("the disk works");
    drop(media);
    let path = dir.path().join("state.0");
    let mut bytes = std::fs::read(&path).expect("there");
    bytes[100] ^= 4;
    std::fs::write(&path, bytes).expect("there is room");
    let damaged = |from: &std::path::Path| {
        let to = tempfile::tempdir().expect("a folder");
        for entry in std::fs::read_dir(from).expect("there") {
            let entry = entry.expect("readable");
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).expect("there is room");
        }
        to
    };

    let (mut cuts, mut ended) = (0, false);
    while !ended {
        let here = damaged(dir.path());
        let found = Media::find_folder(here.path(), true).expect("accepted");
        disk::attach(here.path());
        disk::fail_after(cuts);
        ended = found.begin().is_ok();
        for seed in 0..10 {
            let left = crashed(&mut Numbers(seed + 100 * cuts));
            let found = Media::find_folder(left.path(), true).expect("a state is whole");
            assert_eq!(found.into_copy().peek(3), 4, "after {cuts} syncs");
        }
        cuts += 1;
    }
    assert!(cuts > 2, "{cuts}");
}
