//! Devices in folders on a machine that dies: at any time, in opening, and again after it has gone on working.
//!
//! The disk is a model (`kit/disk.rs`), so that a file that should have been synced and was not is noticed.

#![cfg(target_os = "linux")]

#[path = "kit/disk.rs"]
mod disk;

use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{After, BlockId, ContentMode, Geometry, Image, Media, Oob, Purpose, SbId, Stored};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const WORDS: usize = 600;
const JOURNAL_BYTES: u64 = 16 << 10;

fn geometry() -> Geometry {
    Geometry::new(Shape { channels: 1, dies: 2, superblocks: 4, pages_per_block: 4 }).expect("valid")
}

/// Numbers that are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// What a medium may be found to be: its states since the last sync, each with the block that the step to it erased.
struct Twin {
    media: Media,
    states: Vec<(Image, Option<BlockId>)>,
}

impl Twin {
    fn of(image: &Image) -> Self {
        Self { media: Media::from_image(image), states: vec![(image.clone(), None)] }
    }

    fn synced(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.states[0].1 = None;
    }

    fn went_on(&mut self, erased: Option<BlockId>) {
        self.states.push((self.media.to_image(), erased));
    }

    /// Which state is it? What lies in a block that was erased later may have been overwritten.
    fn position(&self, found: &Image) -> Option<usize> {
        (0..self.states.len()).rev().find(|index| {
            let gone: Vec<BlockId> = self.states[index + 1..].iter().filter_map(|(_, erased)| *erased).collect();
            without(found, &gone) == without(&self.states[*index].0, &gone)
        })
    }
}

/// Digest of an image with these blocks erased.
fn without(image: &Image, blocks: &[BlockId]) -> u64 {
    let mut media = Media::from_image(image);
    for block in blocks {
        let id = media.name_next();
        media.erase(*block, id, After::NOTHING).expect("no fault is planted");
    }
    media.to_image().digest()
}

/// One operation on the device and on its twin.
fn operate(numbers: &mut Numbers, folder: &mut Media, twin: &mut Twin) {
    let geometry = geometry();
    let block = BlockId(numbers.below(geometry.blocks().into()) as u32);
    let (row, (sb, die)) = (folder.next_row(block), geometry.place_of_block(block));
    let (value, kind) = (numbers.below(u64::MAX), numbers.below(10));
    let word = numbers.below(WORDS as u64 - 300) as usize;
    let erases = kind < 6 && row == geometry.pages_per_block();
    if erases && twin.states[1..].iter().any(|(_, erased)| erased.is_none()) {
        // What its contents give way to is durable first. Other erases give way to nothing.
        twin.synced();
    }
    for media in [folder, &mut twin.media] {
        match kind {
            0..6 if erases => {
                // Some blocks cannot be erased any more.
                let fails = value % 5 == 0;
                media.plant(|faults| faults.erase.extend(fails.then_some(block)));
                let id = media.name_next();
                assert_eq!(media.erase(block, id, After::NOTHING).is_err(), fails);
                media.plant(|faults| faults.erase.clear());
            }
            0..6 => {
                let ppn = geometry.page(sb, row * geometry.dies() + die);
                let stored = match value % 5 {
                    0 => Stored::Meta(vec![value as u8; (value % 4097) as usize].into()),
                    _ => Stored::Bytes(Arc::new([value as u8; PAGE_BYTES])),
                };
                let oob = Oob::new(value as u32 / 2, value >> 30, 1);
                media.program(ppn, oob, stored, Purpose::Host, After::NOTHING).expect("no fault is planted");
            }
            6 => drop(media.clear(word, (value % 200) as usize, After::NOTHING)),
            7 => {
                let values: Vec<u64> = (0..1 + value % 299).map(|index| value ^ index).collect();
                media.store_record(word, &values, Purpose::Host, After::NOTHING);
            }
            8 => media.change_record(word..word + 2, word + 1, value, Purpose::Host, After::NOTHING),
            _ => media.store(word, value, Purpose::Host, After::NOTHING),
        }
    }
    twin.went_on(erases.then_some(block));
}

/// The machine dies, and the device is opened elsewhere: another machine with the same disk.
fn crash(numbers: &mut Numbers) -> TempDir {
    let elsewhere = tempfile::tempdir().expect("a folder");
    disk::crash(elsewhere.path(), |end| numbers.below(end));
    disk::attach(elsewhere.path());
    elsewhere
}

fn open(dir: &Path) -> Media {
    Media::open_folder(dir).expect("whatever was under way, it opens").0
}

#[test]
fn a_new_device_is_there_once_it_is_made() {
    for seed in 0..20 {
        let mut numbers = Numbers(seed);
        let dir = tempfile::tempdir().expect("a folder");
        disk::attach(dir.path());
        let media = Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
        let dir = crash(&mut numbers);
        let blank = Media::blank(geometry(), ContentMode::Bytes, WORDS).to_image();
        assert_eq!(open(dir.path()).to_image().digest(), blank.digest());
        drop(media);
    }
}

/// What was synced stays, whatever happened in between; and what was found after a crash stays after the next one.
#[test]
fn a_machine_may_die_again_and_again() {
    let (mut older, mut newest) = (0, 0);
    for seed in 0..60 {
        let mut numbers = Numbers(1000 + seed);
        let mut dir = tempfile::tempdir().expect("a folder");
        let mut media =
            Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
        disk::attach(dir.path());
        let mut twin = Twin::of(&Media::blank(geometry(), ContentMode::Bytes, WORDS).to_image());
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
            // The one of before is dead, and says no more.
            let before = std::mem::replace(&mut dir, crash(&mut numbers));
            media = open(dir.path());
            drop(before);
            let found = media.to_image();
            let at = twin.position(&found);
            let at = at.unwrap_or_else(|| panic!("seed {seed}, crash {crashes}: not a state since the last sync"));
            older += u32::from(at + 1 < twin.states.len());
            newest += u32::from(at + 1 == twin.states.len());
            twin = Twin::of(&found);
        }
    }
    assert!(older > 40 && newest > 20, "{older} times an older state, {newest} times the newest one");
}

#[test]
fn a_device_that_was_tidied_is_found_as_it_was() {
    for seed in 0..10 {
        let mut numbers = Numbers(2000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut media =
            Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
        disk::attach(dir.path());
        let mut twin = Twin::of(&Media::blank(geometry(), ContentMode::Bytes, WORDS).to_image());
        (0..80).for_each(|_| operate(&mut numbers, &mut media, &mut twin));
        media.tidy().expect("the disk works");
        twin.synced();
        let found = open(crash(&mut numbers).path()).to_image();
        assert_eq!(twin.position(&found), Some(0), "seed {seed}");
    }
}

/// A commit asks the disk for all that it says is durable: contents of pages, and the journal.
#[test]
fn what_a_commit_covers_survives_the_machine() {
    for seed in 0..40 {
        let mut numbers = Numbers(3000 + seed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut media =
            Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
        disk::attach(dir.path());
        let mut twin = Twin::of(&Media::blank(geometry(), ContentMode::Bytes, WORDS).to_image());
        let mut work = |media: &mut Media, twin: &mut Twin, most| {
            for _ in 0..numbers.below(most) {
                operate(&mut numbers, media, twin);
                disk::look();
            }
        };
        work(&mut media, &mut twin, 20);
        let mut commit = media.begin_commit().expect("the disk works").expect("it has files");
        commit.write_contents().expect("the disk works");
        media.vouch(&mut commit).expect("the disk works");
        let until = commit.write_journal().expect("the disk works");
        twin.synced();
        media.finish_commit(until);
        work(&mut media, &mut twin, 5);
        let found = open(crash(&mut numbers).path()).to_image();
        assert!(twin.position(&found).is_some(), "seed {seed}: not a state since the commit");
    }
}

/// A disk that did not write is not believed when it says next time that it did.
#[test]
fn nothing_is_durable_after_a_sync_that_failed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
    disk::attach(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    media.sync().expect("the disk works");
    media.store(3, 5, Purpose::Host, After::NOTHING);
    disk::fail(true);
    assert!(media.sync().is_err() && media.broken().is_some());
    disk::fail(false);
    assert!(media.sync().is_err() && media.tidy().is_err() && media.broken().is_some());
    // What was durable before is.
    drop(media);
    let word = open(crash(&mut Numbers(1)).path()).peek(3);
    assert!([4, 5].contains(&word), "{word}");
}

/// Pages are given up by an erase only when what took their place is durable, with a sync of its own if need be.
#[test]
fn an_erase_waits_for_the_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut media = Media::create_folder(dir.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
    disk::attach(dir.path());
    media.store(3, 4, Purpose::Host, After::NOTHING);
    let before = disk::syncs();
    let id = media.name_next();
    media.erase(geometry().block(SbId(0), 0), id, After::NOTHING).expect("no fault is planted");
    assert!(disk::syncs() > before);
}
