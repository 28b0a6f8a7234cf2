//! Devices in folders on a machine that crashes: at any time, during opening, and again after later
//! work.
//!
//! The disk is a model (`kit/disk.rs`), so that a missing sync is detected.

use crate::disk;
use crate::kit::folder::{JOURNAL_BYTES, Operation, blank, create, files, latest_of};
use crate::kit::numbers::Numbers;
use crate::kit::tiny;
use remap_ssd_media::{After, BlockId, Image, Media, Purpose, SbId};
use std::path::Path;
use tempfile::TempDir;

/// The possible states of a medium: those since the last sync, each with the block erased by the
/// step to it.
struct Twin {
    media: Media,
    states: Vec<(Image, Option<BlockId>)>,
}

impl Twin {
    fn of(image: &Image) -> Self {
        Self {
            media: Media::from_image(image),
            states: vec![(image.clone(), None)],
        }
    }

    fn synced(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.states[0].1 = None;
    }

    fn went_on(&mut self, erased: Option<BlockId>) {
        self.states.push((self.media.to_image(), erased));
    }

    /// Index of the latest matching state of the twin, if any.
    fn position(&self, found: &Image) -> Option<usize> {
        latest_of(
            found,
            self.states.iter().map(|(image, erased)| (image, *erased)),
        )
    }
}

/// One operation on the device and on its twin.
fn operate(numbers: &mut Numbers, folder: &mut Media, twin: &mut Twin) {
    let operation = Operation::draw(numbers, folder);

    // Before an erase, the replacement of its contents is made durable. An erase that follows
    // another one needs no sync.
    let is_between_erases = twin.states[1..].iter().all(|(_, erased)| erased.is_some());
    if operation.erased().is_some() && !is_between_erases {
        twin.synced();
    }

    operation.apply(folder);
    operation.apply(&mut twin.media);
    twin.went_on(operation.erased());
}

/// Crashes the machine, and opens the device elsewhere: another machine with the same disk.
fn crash(numbers: &mut Numbers) -> TempDir {
    let elsewhere = tempfile::tempdir().expect("a folder");
    disk::crash(elsewhere.path(), |end| numbers.below(end));
    disk::attach(elsewhere.path());
    elsewhere
}

fn open(dir: &Path) -> Media {
    Media::open_folder(dir)
        .expect("whatever was under way, it opens")
        .0
}

#[test]
fn a_new_device_is_there_once_it_is_made() {
    for seed in 0..20 {
        let mut numbers = Numbers(seed);
        let dir = tempfile::tempdir().expect("a folder");
        disk::attach(dir.path());
        let media = create(dir.path(), JOURNAL_BYTES);
        let dir = crash(&mut numbers);
        assert_eq!(
            open(dir.path()).to_image().digest(),
            blank().to_image().digest()
        );
        drop(media);
    }
}

/// Synced data survives everything in between; and data found after a crash survives the next one.
#[test]
fn a_machine_may_die_again_and_again() {
    let (mut older, mut newest) = (0, 0);
    for seed in 0..60 {
        let mut numbers = Numbers(1000 + seed);
        let mut dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        for crashes in 0..4 {
            let busy = numbers.below(4) > 0;
            for _ in 0..numbers.below(if busy { 60 } else { 4 }) {
                operate(&mut numbers, &mut media, &mut twin);
                disk::look();
                match numbers.below(40) {
                    0..4 => media.sync().expect("the disk works"),
                    4 => media.tidy().expect("the disk works"),
                    _ => continue,
                }
                twin.synced();
            }

            // The old medium is dead, and must not sync any more.
            let before = std::mem::replace(&mut dir, crash(&mut numbers));
            media = open(dir.path());
            drop(before);

            let found = media.to_image();
            let at = twin.position(&found);
            let at = at.unwrap_or_else(|| {
                panic!("seed {seed}, crash {crashes}: not a state since the last sync")
            });
            older += u32::from(at + 1 < twin.states.len());
            newest += u32::from(at + 1 == twin.states.len());
            twin = Twin::of(&found);
        }
    }
    assert!(
        older > 40 && newest > 20,
        "{older} times an older state, {newest} times the newest one"
    );
}

fn resume(dir: &Path) -> Media {
    Media::resume_folder(dir)
        .expect("whatever was under way, it opens")
        .0
}

/// Ends a process: at rest, killed, or killed after the disk had refused a sync.
fn end(numbers: &mut Numbers, mut media: Media, twin: &mut Twin) {
    match numbers.below(4) {
        0 | 1 => {
            media.rest().expect("the disk works");
            twin.synced();
        }
        2 => {
            disk::fail_after(numbers.below(5));
            let ended = if numbers.below(2) == 0 {
                media.rest()
            } else {
                media.tidy()
            };
            if ended.is_ok() {
                twin.synced();
            }
            disk::fail_after(u64::MAX);
        }
        _ => {}
    }
    disk::look();
}

/// Processes continue the journal of the previous one, and the machine crashes in between.
#[test]
fn a_machine_may_die_while_processes_go_on_where_others_rested() {
    let (mut older, mut newest, mut continued) = (0, 0, 0);
    for seed in 0..80 {
        let mut numbers = Numbers(6000 + seed);
        let mut dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        for crashes in 0..4 {
            let processes = 1 + numbers.below(4);
            for process in 0..processes {
                for _ in 0..numbers.below(12) {
                    operate(&mut numbers, &mut media, &mut twin);
                    disk::look();
                    if numbers.below(10) == 0 {
                        media.sync().expect("the disk works");
                        twin.synced();
                    }
                }
                if process + 1 == processes {
                    break;
                }
                let generation = media.generation();
                end(&mut numbers, media, &mut twin);

                media = resume(dir.path());
                continued += u32::from(media.generation() == generation);
                let found = twin.position(&media.to_image());
                assert_eq!(
                    found,
                    Some(twin.states.len() - 1),
                    "seed {seed}, crash {crashes}: a process left something else"
                );
            }

            let before = std::mem::replace(&mut dir, crash(&mut numbers));
            media = resume(dir.path());
            drop(before);
            let found = media.to_image();
            let at = twin.position(&found).unwrap_or_else(|| {
                panic!("seed {seed}, crash {crashes}: not a state since the last sync")
            });
            older += u32::from(at + 1 < twin.states.len());
            newest += u32::from(at + 1 == twin.states.len());
            twin = Twin::of(&found);
        }
    }
    assert!(
        older > 40 && newest > 40 && continued > 100,
        "{older} times an older state, {newest} times the newest one, {continued} journals continued"
    );
}

// A process dies between the header of a journal and its sync, and the next one's records may reach
// the disk before the header.
#[test]
fn a_journal_whose_header_was_never_synced_may_be_continued() {
    let mut continued = 0;
    for seed in 0..40 {
        let dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());
        media.store(3, 4, Purpose::Host, After::NOTHING);
        // The previous journal, the contents and the state are durable; the header is not.
        disk::fail_after(3);
        assert!(media.tidy().is_err());
        disk::fail_after(u64::MAX);
        let generation = media.generation();
        drop(media);

        let mut media = resume(dir.path());
        continued += u32::from(media.generation() == generation);
        for value in 0..60 {
            media.store(5, value, Purpose::Host, After::NOTHING);
            disk::look();
        }
        let dir = crash(&mut Numbers(7000 + seed));
        assert_eq!(resume(dir.path()).peek(3), 4, "seed {seed}");
        drop(media);
    }
    assert_eq!(continued, 40);
}

#[test]
fn a_folder_at_rest_is_opened_and_closed_without_a_sync() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = create(dir.path(), JOURNAL_BYTES);
    disk::attach(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    media.rest().expect("the disk works");
    drop(media);

    let (syncs, left) = (disk::syncs(), files(dir.path()));
    for _ in 0..3 {
        let mut media = resume(dir.path());
        assert_eq!(media.peek(3), 4);
        media.sync().expect("the disk works");
        media.rest().expect("the disk works");
    }
    assert_eq!(disk::syncs(), syncs);
    assert!(files(dir.path()) == left, "nothing was written");

    // One change costs a sync of the contents and one of the journal.
    let mut media = resume(dir.path());
    media.store(3, 5, Purpose::Host, After::NOTHING);
    media.sync().expect("the disk works");
    media.rest().expect("the disk works");
    assert_eq!(disk::syncs(), syncs + 2);
}

#[test]
fn a_device_that_was_tidied_is_found_as_it_was() {
    for seed in 0..10 {
        let mut numbers = Numbers(2000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        (0..80).for_each(|_| operate(&mut numbers, &mut media, &mut twin));
        media.tidy().expect("the disk works");
        twin.synced();
        let found = open(crash(&mut numbers).path()).to_image();
        assert_eq!(twin.position(&found), Some(0), "seed {seed}");
    }
}

/// A commit syncs everything that it reports as durable: contents of pages, and the journal.
#[test]
fn what_a_commit_covers_survives_the_machine() {
    for seed in 0..40 {
        let mut numbers = Numbers(3000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        let mut work = |media: &mut Media, twin: &mut Twin, most| {
            for _ in 0..numbers.below(most) {
                operate(&mut numbers, media, twin);
                disk::look();
            }
        };
        work(&mut media, &mut twin, 20);

        let mut commit = media
            .begin_commit()
            .expect("the disk works")
            .expect("it has files");
        commit.write_contents().expect("the disk works");
        media.vouch(&mut commit).expect("the disk works");
        let until = commit.write_journal().expect("the disk works");
        twin.synced();
        media.finish_commit(until);

        work(&mut media, &mut twin, 5);
        let found = open(crash(&mut numbers).path()).to_image();
        assert!(
            twin.position(&found).is_some(),
            "seed {seed}: not a state since the commit"
        );
    }
}

/// The disk stops before any of the syncs of a sync, a commit, a new state or an opening: the files
/// agree with each other, with any part of the rest written out.
#[test]
fn a_cut_before_any_sync_leaves_files_that_agree() {
    let mut cuts = 0;
    for seed in 0..240u64 {
        let mut numbers = Numbers(4000 + seed);
        let mut dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        for _ in 0..1 + numbers.below(30) {
            operate(&mut numbers, &mut media, &mut twin);
            disk::look();
        }

        disk::fail_after(seed % 6);
        let done = match seed / 6 % 4 {
            0 => media.sync().is_ok(),
            1 => media.tidy().is_ok(),
            2 => commit(&mut media).is_ok(),
            _ => {
                drop(media);
                media = blank();
                let opened = Media::open_folder(dir.path());
                opened.map(|(opened, _)| media = opened).is_ok()
            }
        };
        cuts += u32::from(!done);
        if done {
            twin.synced();
        }

        let before = std::mem::replace(&mut dir, crash(&mut numbers));
        let found = open(dir.path()).to_image();
        assert!(
            twin.position(&found).is_some(),
            "seed {seed}: not a state since the last sync"
        );
        drop((before, media));
    }
    assert!(cuts > 60, "{cuts} cuts");
}

fn commit(media: &mut Media) -> std::io::Result<()> {
    let mut commit = media.begin_commit()?.expect("it has files");
    commit.write_contents()?;
    media.vouch(&mut commit)?;
    let until = commit.write_journal()?;
    media.finish_commit(until);
    Ok(())
}

/// A state that decays later is rebuilt from the previous one, whose journal was made durable
/// before the state was written.
#[test]
fn a_state_that_decays_after_the_machine_died_is_made_again() {
    for seed in 0..40 {
        let mut numbers = Numbers(5000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut media = create(dir.path(), JOURNAL_BYTES);
        disk::attach(dir.path());

        let mut twin = Twin::of(&blank().to_image());
        for _ in 0..10 {
            operate(&mut numbers, &mut media, &mut twin);
            disk::look();
        }
        media.tidy().expect("the disk works");
        twin.synced();

        // The state that the folder was created with is of generation 1.
        let dir = crash(&mut numbers);
        let path = dir.path().join("state.0");
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[100] ^= 4;
        std::fs::write(&path, bytes).expect("there is room");
        let found = Media::find_folder(dir.path(), true).expect("accepted");
        assert!(found.damage()[0].lost.starts_with("nothing"));
        let found = found.into_copy().to_image();
        assert_eq!(twin.position(&found), Some(0), "seed {seed}");
    }
}

/// A disk that has failed a write is not trusted when later ones succeed.
#[test]
fn nothing_is_durable_after_a_sync_that_failed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = create(dir.path(), JOURNAL_BYTES);
    disk::attach(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    media.sync().expect("the disk works");
    media.store(3, 5, Purpose::Host, After::NOTHING);
    disk::fail(true);
    assert!(media.sync().is_err() && media.broken().is_some());
    disk::fail(false);
    assert!(media.sync().is_err() && media.tidy().is_err() && media.broken().is_some());
    // Data durable before still is.
    drop(media);
    let word = open(crash(&mut Numbers(1)).path()).peek(3);
    assert!([4, 5].contains(&word), "{word}");
}

/// Pages are given up by an erase only when their replacement is durable, with a sync of its own if
/// necessary.
#[test]
fn an_erase_waits_for_the_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = create(dir.path(), JOURNAL_BYTES);
    disk::attach(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    let before = disk::syncs();
    let id = media.name_next();
    media
        .erase(tiny().block(SbId(0), 0), id, After::NOTHING)
        .expect("no fault is planted");
    assert!(disk::syncs() > before);
}
