//! Commits beside which the device goes on: whatever the machine leaves when it dies, what they covered is there.

use remap_ssd_media::folder::Commit;
use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::{After, BlockId, ContentMode, Geometry, Image, Media, Oob, Purpose, Stored};
use std::path::Path;
use std::sync::Arc;

const WORDS: usize = 64;
/// Never full: a new state would make everything durable by itself.
const JOURNAL_BYTES: u64 = 256 << 10;
const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
const CONTENTS: usize = 0;
const JOURNALS: [usize; 2] = [3, 4];
const SECTOR: usize = 512;

fn geometry() -> Geometry {
    Geometry::new(Shape { channels: 1, dies: 2, superblocks: 4, pages_per_block: 8 }).expect("valid")
}

/// Numbers that are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The same operation on both media; the block, if it was an erase.
fn operate(numbers: &mut Numbers, media: [&mut Media; 2]) -> Option<BlockId> {
    let geometry = geometry();
    let block = BlockId(numbers.below(u64::from(geometry.blocks())) as u32);
    let row = media[0].next_row(block);
    let (sb, die) = geometry.place_of_block(block);
    let (value, kind) = (numbers.below(u64::MAX), numbers.below(4));
    let full = row == geometry.pages_per_block();
    for media in media {
        match kind {
            0 if full => {
                let id = media.name_next();
                media.erase(block, id, After::NOTHING).expect("no fault is planted");
            }
            0..3 if !full => {
                let ppn = geometry.page(sb, row * geometry.dies() + die);
                let stored = Stored::Bytes(Arc::new([value as u8; PAGE_BYTES]));
                let oob = Oob::new(value as u32 / 2, value >> 30, 1);
                media.program(ppn, oob, stored, Purpose::Host, After::NOTHING).expect("no fault is planted");
            }
            _ => media.store(value as usize % WORDS, value, Purpose::Host, After::NOTHING),
        }
    }
    (kind == 0 && full).then_some(block)
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| std::fs::read(dir.join(name)).expect("the file is there")).collect()
}

fn put_files(dir: &Path, files: &[Vec<u8>]) {
    FILES.iter().zip(files).for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).expect("there is room"));
}

/// An image without the blocks that were erased later on: their contents may be anything.
fn without(image: &Image, blocks: &[BlockId]) -> u64 {
    let mut media = Media::from_image(image);
    for block in blocks {
        let id = media.name_next();
        media.erase(*block, id, After::NOTHING).expect("no fault is planted");
    }
    media.to_image().digest()
}

/// How far a commit is.
enum Stage {
    None,
    Begun(Commit),
    Written(Commit),
    Vouched(Commit),
}

#[test]
fn a_commit_keeps_what_was_before_it_whatever_comes_while_it_is_made() {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut folder = Media::create_folder(live.path(), geometry(), WORDS, Some(JOURNAL_BYTES)).expect("empty");
    let mut twin = Media::blank(geometry(), ContentMode::Bytes, WORDS);
    let mut numbers = Numbers(5);

    // Since the last whole sync: the files, the image, and the block erased by each step.
    let mut versions = vec![(files(live.path()), twin.to_image(), None)];
    // The oldest version that each file's sectors can be of, what the commit under way covers, and what the last one did.
    let (mut oldest, mut begun, mut kept) = ([0; FILES.len()], 0, 0);
    let mut stage = Stage::None;
    let (mut commits, mut needed) = (0, 0);
    for step in 0..250 {
        let syncs = folder.syncs();
        let erased = operate(&mut numbers, [&mut folder, &mut twin]);
        if folder.syncs() != syncs {
            versions.clear();
            (oldest, begun, kept) = ([0; FILES.len()], 0, 0);
        }
        versions.push((files(live.path()), twin.to_image(), erased));

        let last = versions.len() - 1;
        stage = match (stage, numbers.below(3)) {
            (stage, 0) => stage,
            (Stage::None, _) => {
                begun = last;
                Stage::Begun(folder.begin_commit().expect("the disk works").expect("it has files"))
            }
            (Stage::Begun(commit), _) => {
                commit.write_contents().expect("the disk works");
                oldest[CONTENTS] = last;
                Stage::Written(commit)
            }
            (Stage::Written(mut commit), _) => {
                folder.vouch(&mut commit).expect("the disk works");
                versions.push((files(live.path()), twin.to_image(), None));
                Stage::Vouched(commit)
            }
            (Stage::Vouched(commit), _) => {
                commit.write_journal().expect("the disk works");
                JOURNALS.iter().for_each(|file| oldest[*file] = last);
                kept = begun;
                commits += 1;
                Stage::None
            }
        };

        let mixed: Vec<Vec<u8>> = (0..FILES.len())
            .map(|file| {
                let range = (versions.len() - oldest[file]) as u64;
                let pick = |(sector, bytes): (usize, &[u8])| {
                    let version = &versions[oldest[file] + numbers.below(range) as usize].0[file];
                    version[sector * SECTOR..][..bytes.len()].to_vec()
                };
                versions[versions.len() - 1].0[file].chunks(SECTOR).enumerate().flat_map(pick).collect()
            })
            .collect();
        put_files(copy.path(), &mixed);
        let (found, _) = Media::open_folder(copy.path()).expect("a prefix is whole");

        let found = found.to_image();
        let later = |index: usize| versions[index + 1..].iter().filter_map(|(_, _, erased)| *erased);
        let is_prefix = |index: &usize| {
            let gone: Vec<BlockId> = later(*index).collect();
            without(&found, &gone) == without(&versions[*index].1, &gone)
        };
        let prefix = (0..versions.len()).rev().find(is_prefix);
        let prefix = prefix.unwrap_or_else(|| panic!("step {step}: not a prefix of the operations"));
        assert!(prefix >= kept, "step {step}: {prefix} of the {kept} versions that a commit covered");
        needed += u64::from(prefix < versions.len() - 1 && kept > 0);
    }
    assert!(commits > 25 && needed > 30, "{commits} commits, {needed} times something else was lost");
}

#[test]
fn a_commit_behind_which_nothing_was_done_reaches_the_end_of_the_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = Media::create_folder(dir.path(), geometry(), WORDS, None).expect("empty");
    let commit = |folder: &mut Media, meanwhile: &dyn Fn(&mut Media)| {
        let mut commit = folder.begin_commit().expect("the disk works").expect("it has files");
        commit.write_contents().expect("the disk works");
        meanwhile(folder);
        folder.vouch(&mut commit).expect("the disk works");
        commit.write_journal().expect("the disk works")
    };
    let store = |folder: &mut Media| folder.store(3, 4, Purpose::Host, After::NOTHING);
    let program = |folder: &mut Media| {
        let stored = Stored::Bytes(Arc::new([7; PAGE_BYTES]));
        let ppn = geometry().page(remap_ssd_media::SbId(0), 0);
        folder.program(ppn, Oob::new(1, 1, 1), stored, Purpose::Host, After::NOTHING).expect("no fault is planted");
    };
    store(&mut folder);
    let until = commit(&mut folder, &|_| {});
    assert_eq!(folder.position(), Some(until));
    assert_eq!(Some(commit(&mut folder, &store)), folder.position(), "words are in the journal alone");
    assert!(Some(commit(&mut folder, &program)) < folder.position(), "a page's contents came too late");
}
