//! Devices in folders: what is left when the process dies, when the machine dies, and when a file is damaged.

use remap_ssd_media::geometry::{PAGE_BYTES, Shape};
use remap_ssd_media::image_file::ImageError;
use remap_ssd_media::{After, BlockId, ContentMode, Geometry, Image, Media, Oob, Purpose, SbId, Stored};
use std::path::Path;
use std::sync::Arc;

const WORDS: usize = 600;
const JOURNAL_BYTES: u64 = 16 << 10;
const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
const SECTOR: usize = 512;

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

/// The same operation on each medium; the block, if it was an erase.
fn operate(numbers: &mut Numbers, media: &mut [&mut Media]) -> Option<BlockId> {
    let geometry = geometry();
    let block = BlockId(numbers.below(u64::from(geometry.blocks())) as u32);
    let row = media[0].next_row(block);
    let (sb, die) = geometry.place_of_block(block);
    let (value, kind) = (numbers.below(u64::MAX), numbers.below(10));
    let word = numbers.below(WORDS as u64 - 300) as usize;
    for media in media {
        match kind {
            0..5 if row < geometry.pages_per_block() => {
                let ppn = geometry.page(sb, row * geometry.dies() + die);
                let stored = match value % 5 {
                    0 => Stored::Meta(vec![value as u8; (value % 4097) as usize].into()),
                    _ => Stored::Bytes(Arc::new([value as u8; PAGE_BYTES])),
                };
                let oob = Oob::new(value as u32 / 2, value >> 30, 1);
                media.program(ppn, oob, stored, Purpose::Host, After::NOTHING).expect("no fault is planted");
            }
            0..6 if row == geometry.pages_per_block() => {
                let id = media.name_next();
                media.erase(block, id, After::NOTHING).expect("no fault is planted");
            }
            6 => {
                media.clear(word, (value % 200) as usize, After::NOTHING);
            }
            7 => {
                let values: Vec<u64> = (0..value % 300).map(|index| value ^ index).collect();
                media.store_record(word, &values, Purpose::Host, After::NOTHING);
            }
            8 => media.change_record(word..word + 2, word + 1, value, Purpose::Host, After::NOTHING),
            _ => media.store(word, value, Purpose::Host, After::NOTHING),
        }
    }
    (matches!(kind, 0..6) && row == geometry.pages_per_block()).then_some(block)
}

fn twins(dir: &Path) -> (Media, Media) {
    let folder = Media::create_folder(dir, geometry(), WORDS, Some(JOURNAL_BYTES)).expect("an empty folder");
    (folder, Media::blank(geometry(), ContentMode::Bytes, WORDS))
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| std::fs::read(dir.join(name)).expect("the file is there")).collect()
}

fn put_files(dir: &Path, files: &[Vec<u8>]) {
    FILES.iter().zip(files).for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).expect("there is room"));
}

#[test]
fn a_process_that_dies_leaves_every_operation_behind() {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(1);
    for step in 0..3000 {
        operate(&mut numbers, &mut [&mut folder, &mut twin]);
        if step % 37 == 0 {
            // What other processes see of the files now is what is there after SIGKILL.
            put_files(copy.path(), &files(live.path()));
            let (found, report) = Media::open_folder(copy.path()).expect("the files are whole");
            assert_eq!(report.dropped, 0);
            assert_eq!(found.to_image().digest(), twin.to_image().digest(), "after {step} operations");
            assert_eq!(found.erase_counts(), twin.erase_counts());
        }
    }
    drop(folder);
    let (mut again, _) = Media::open_folder(live.path()).expect("the files are whole");
    for _ in 0..100 {
        operate(&mut numbers, &mut [&mut again, &mut twin]);
    }
    again.tidy().expect("the disk works");
    drop(again);
    let (again, report) = Media::open_folder(live.path()).expect("the files are whole");
    assert_eq!((report.records, report.dropped), (0, 0));
    assert_eq!(again.to_image().digest(), twin.to_image().digest());
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

#[test]
fn a_machine_that_dies_leaves_what_was_synced_and_a_prefix_of_the_rest() {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(2);
    // Since the last sync: the files, the image, and the block erased by each operation.
    let mut versions = vec![(files(live.path()), twin.to_image(), None)];
    let (mut shorter, mut dropped) = (0, 0);
    for step in 0..2500 {
        let syncs = folder.syncs();
        let erased = operate(&mut numbers, &mut [&mut folder, &mut twin]);
        if numbers.below(25) == 0 {
            folder.sync().expect("the disk works");
        }
        if folder.syncs() != syncs {
            versions.clear();
        }
        versions.push((files(live.path()), twin.to_image(), erased));
        if versions.len() < 2 || step % 3 != 0 {
            continue;
        }
        let mixed: Vec<Vec<u8>> = (0..FILES.len())
            .map(|file| {
                let last = &versions[versions.len() - 1].0[file];
                let sectors = last.chunks(SECTOR).enumerate();
                let pick = |(sector, bytes): (usize, &[u8])| {
                    let version = &versions[numbers.below(versions.len() as u64) as usize].0[file];
                    version[sector * SECTOR..][..bytes.len()].to_vec()
                };
                sectors.flat_map(pick).collect()
            })
            .collect();
        put_files(copy.path(), &mixed);
        let (found, report) = Media::open_folder(copy.path()).expect("a prefix is whole");
        dropped += u64::from(report.dropped > 0);
        let found = found.to_image();
        let later = |index: usize| versions[index + 1..].iter().filter_map(|(_, _, erased)| *erased);
        let is_prefix = |index: &usize| {
            let gone: Vec<BlockId> = later(*index).collect();
            without(&found, &gone) == without(&versions[*index].1, &gone)
        };
        let prefix = (0..versions.len()).rev().find(is_prefix);
        let prefix = prefix.unwrap_or_else(|| panic!("step {step}: not a prefix of the operations"));
        shorter += u64::from(prefix + 1 < versions.len());
    }
    assert!(shorter > 200 && dropped > 50, "{shorter} shorter prefixes, {dropped} for their contents");
}

#[test]
fn an_erase_waits_for_what_came_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut folder, _) = twins(dir.path());
    folder.store(3, 4, Purpose::Host, After::NOTHING);
    let erase = |folder: &mut Media, die| {
        let id = folder.name_next();
        folder.erase(geometry().block(SbId(0), die), id, After::NOTHING).expect("no fault is planted");
        folder.syncs()
    };
    assert_eq!(erase(&mut folder, 0), 1);
    assert_eq!(erase(&mut folder, 1), 1, "nothing but erases happened since");
    folder.store(3, 5, Purpose::Host, After::NOTHING);
    assert_eq!(erase(&mut folder, 0), 2);
}

#[test]
fn a_state_that_was_not_written_to_its_end_is_as_if_it_had_not_begun() {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (mut folder, mut twin) = twins(live.path());
    let mut numbers = Numbers(3);
    for _ in 0..200 {
        operate(&mut numbers, &mut [&mut folder, &mut twin]);
    }
    let before = files(live.path());
    folder.tidy().expect("the disk works");
    let after = files(live.path());
    let changed = |file: &usize| before[*file] != after[*file];
    let (state, journal) = ([1, 2].into_iter().find(changed), [3, 4].into_iter().find(changed));
    let (state, journal) = (state.expect("one state is new"), journal.expect("its journal is new"));
    for part in (0..after[state].len()).step_by(64) {
        let mut files = before.clone();
        files[state][..part].copy_from_slice(&after[state][..part]);
        put_files(copy.path(), &files);
        let (found, _) = Media::open_folder(copy.path()).expect("the older state is whole");
        assert_eq!(found.to_image().digest(), twin.to_image().digest(), "{part} bytes of the state");
    }
    let mut files = before;
    files[state] = after[state].clone();
    assert_ne!(files[journal], after[journal]);
    put_files(copy.path(), &files);
    let (found, report) = Media::open_folder(copy.path()).expect("the newer state is whole");
    assert_eq!(found.to_image().digest(), twin.to_image().digest());
    assert_eq!(report.records, 0, "the journal belongs to another generation");
}

#[test]
fn a_folder_in_use_or_damaged_is_refused_with_the_reason() {
    let (live, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (folder, _) = twins(live.path());
    let refusal = |dir: &Path| Media::open_folder(dir).err().expect("refused");
    assert!(matches!(refusal(live.path()), ImageError::InUse));
    drop(folder);
    let whole = files(live.path());
    for (file, name) in FILES.iter().enumerate() {
        for len in [0, 63, whole[file].len() / 2] {
            let mut files = whole.clone();
            files[file].truncate(len);
            put_files(copy.path(), &files);
            let opened = Media::open_folder(copy.path());
            // The state that is not needed may be anything.
            assert!(opened.is_err() || file == 2, "{name} of {len} bytes");
        }
    }
    // Whatever the bytes: a device or a reason.
    let mut numbers = Numbers(4);
    for _ in 0..500 {
        let mut files = whole.clone();
        let file = 1 + numbers.below(4) as usize;
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(files[file].len().min(4096) as u64) as usize;
            files[file][at] ^= 1 << numbers.below(8);
        }
        put_files(copy.path(), &files);
        let _ = Media::open_folder(copy.path());
    }
}
