//! Devices in folders for tests: their files, and random operations to compare a device with its
//! twin in memory.

use super::numbers::Numbers;
use super::tiny;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{
    After, BlockId, ContentMode, Image, Lpn, Media, Oob, Ppn, Purpose, StoredPage,
};
use std::path::Path;
use std::sync::Arc;

pub const WORDS: usize = 600;
pub const JOURNAL_BYTES: u64 = 16 << 10;

pub const FILES: [&str; 5] = ["contents", "state.0", "state.1", "journal.0", "journal.1"];
pub const CONTENTS: usize = 0;
pub const STATES: [usize; 2] = [1, 2];
pub const JOURNALS: [usize; 2] = [3, 4];
pub const SECTOR: usize = 512;

/// A new device in an empty folder.
pub fn create(dir: &Path, journal_bytes: u64) -> Media {
    Media::create_folder(dir, tiny(), WORDS, Some(journal_bytes)).expect("an empty folder")
}

/// The equivalent of a new device, in memory.
pub fn blank() -> Media {
    Media::blank(tiny(), ContentMode::Bytes, WORDS)
}

pub fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES
        .iter()
        .map(|name| std::fs::read(dir.join(name)).expect("the file is there"))
        .collect()
}

pub fn put_files(dir: &Path, files: &[Vec<u8>]) {
    FILES
        .iter()
        .zip(files)
        .for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes).expect("there is room"));
}

/// Digest of an image with these blocks erased.
fn digest_without(image: &Image, blocks: &[BlockId]) -> u64 {
    let mut media = Media::from_image(image);
    for block in blocks {
        let id = media.name_next();
        media
            .erase(*block, id, After::NOTHING)
            .expect("no fault is planted");
    }
    media.to_image().digest()
}

/// The latest of some states that matches `found`. Each state comes with the block erased by the
/// step to it: the contents of a block erased later are arbitrary.
pub fn latest_of<'a, S>(found: &Image, states: S) -> Option<usize>
where
    S: DoubleEndedIterator<Item = (&'a Image, Option<BlockId>)> + ExactSizeIterator,
{
    let mut gone = Vec::new();
    for (index, (state, erased)) in states.enumerate().rev() {
        if digest_without(found, &gone) == digest_without(state, &gone) {
            return Some(index);
        }
        gone.extend(erased);
    }
    None
}

/// One step of a random history. `next_row` decides between a program and an erase, so a step is
/// specific to one device.
#[derive(Clone, Debug)]
pub enum Operation {
    Program { ppn: Ppn, value: u64 },
    Erase { block: BlockId, fails: bool },
    Clear { word: usize, len: usize },
    StoreRecord { word: usize, values: Vec<u64> },
    ChangeRecord { word: usize, value: u64 },
    Store { word: usize, value: u64 },
}

impl Operation {
    /// Maximum words of a record in NVRAM: more than 254 would be two records of the journal, with
    /// a cut between them.
    const LONGEST: u64 = 255;

    pub fn draw(numbers: &mut Numbers, media: &Media) -> Self {
        let geometry = media.geometry();
        let block = BlockId(numbers.below(geometry.blocks().into()) as u32);
        let (row, (sb, die)) = (media.next_row(block), geometry.place_of_block(block));
        let (value, kind) = (numbers.below(u64::MAX), numbers.below(10));
        let word = numbers.below(WORDS as u64 - 300) as usize;

        match kind {
            0..6 if row < geometry.pages_per_block() => Self::Program {
                ppn: geometry.page(sb, row * geometry.dies() + die),
                value,
            },
            0..6 => Self::Erase {
                block,
                fails: value.is_multiple_of(5),
            },
            6 => Self::Clear {
                word,
                len: (value % 200) as usize,
            },
            7 => Self::StoreRecord {
                word,
                values: (0..value % Self::LONGEST)
                    .map(|index| value ^ index)
                    .collect(),
            },
            8 => Self::ChangeRecord { word, value },
            _ => Self::Store { word, value },
        }
    }

    pub fn apply(&self, media: &mut Media) {
        match *self {
            Self::Program { ppn, value } => {
                let stored = match value % 5 {
                    0 => StoredPage::Meta(vec![value as u8; (value % 4097) as usize].into()),
                    _ => StoredPage::Bytes(Arc::new([value as u8; PAGE_BYTES])),
                };
                let oob = Oob::new(Lpn(value as u32 / 2), value >> 30, 1);
                media
                    .program(ppn, oob, stored, Purpose::Host, After::NOTHING)
                    .expect("no fault is planted");
            }
            Self::Erase { block, fails } => {
                media.plant(|faults| faults.erase.extend(fails.then_some(block)));
                let id = media.name_next();
                assert_eq!(media.erase(block, id, After::NOTHING).is_err(), fails);
                media.plant(|faults| faults.erase.clear());
            }
            Self::Clear { word, len } => drop(media.clear(word, len, After::NOTHING)),
            Self::StoreRecord { word, ref values } => {
                media.store_record(word, values, Purpose::Host, After::NOTHING)
            }
            Self::ChangeRecord { word, value } => {
                media.change_record(
                    word..word + 2,
                    word + 1,
                    value,
                    Purpose::Host,
                    After::NOTHING,
                );
            }
            Self::Store { word, value } => media.store(word, value, Purpose::Host, After::NOTHING),
        }
    }

    /// The block, if this is an erase.
    pub fn erased(&self) -> Option<BlockId> {
        match self {
            Self::Erase { block, .. } => Some(*block),
            _ => None,
        }
    }
}

/// Does the same operation on a device and on its twin; returns the block if it was an erase.
pub fn operate(numbers: &mut Numbers, folder: &mut Media, twin: &mut Media) -> Option<BlockId> {
    let operation = Operation::draw(numbers, folder);
    operation.apply(folder);
    operation.apply(twin);
    operation.erased()
}
