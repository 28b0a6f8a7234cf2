//! A frozen copy of all persistent state, shared copy-on-write.
//!
//! The NAND is divided into superblocks and the NVRAM into lines of 512 bytes; a snapshot clones
//! their reference-counted handles, and a later change copies only the affected piece. Absent:
//! pending operations (the rail's) and files (`image_file`).

use crate::array::{NandArray, StoredPage};
use crate::content::ContentMode;
use crate::geometry::{BlockId, Geometry, Ppn, SbId, Shape};
use crate::oob::{Oob, SecondOwner};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// NVRAM words shared as one piece.
pub(crate) const LINE_WORDS: usize = 64;

/// All persistent state: flash and NVRAM at one moment.
#[derive(Clone)]
pub struct Image {
    geometry: Geometry,
    pub(crate) superblocks: Vec<Arc<NandArray>>,
    pub(crate) nvram: Vec<Arc<[u64; LINE_WORDS]>>,
    pub(crate) nvram_words: usize,
}

impl Image {
    /// A new device: all erased, all zero.
    pub fn blank(geometry: Geometry, mode: ContentMode, nvram_words: usize) -> Self {
        let one = Arc::new(NandArray::new(single(geometry), mode));
        let line = Arc::new([0; LINE_WORDS]);
        Self {
            geometry,
            superblocks: vec![one; geometry.superblocks() as usize],
            nvram: vec![line; nvram_words.div_ceil(LINE_WORDS)],
            nvram_words,
        }
    }

    /// Shape of the flash array.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
    /// Content mode of data pages.
    pub fn mode(&self) -> ContentMode {
        self.superblocks[0].mode()
    }
    /// Number of NVRAM words, 64 bits each.
    pub fn nvram_words(&self) -> usize {
        self.nvram_words
    }
    /// Value of one NVRAM word.
    pub fn word(&self, index: usize) -> u64 {
        self.nvram[index / LINE_WORDS][index % LINE_WORDS]
    }

    /// A fingerprint of all readable state: different images have different ones, but for one pair in 2^64. Campaigns make one of every
    /// cut, so the hash is a quick one, without resistance to forgery.
    pub fn digest(&self) -> u64 {
        let mut hash = Xxh3Default::new();

        for sb in &self.superblocks {
            let pages = sb.geometry.pages();
            // The programmed rows are also readable: an erased page and a torn one differ.
            for block in 0..sb.geometry.blocks() {
                hash.update(&sb.next_row[block as usize].to_le_bytes());
                hash.update(&[u8::from(sb.spoiled.contains(&block))]);
            }

            for page in 0..pages {
                let ppn = Ppn(page);
                if !sb.is_programmed(ppn) {
                    continue;
                }

                if sb.is_damaged(ppn) {
                    hash.update(b"torn");
                    continue;
                }

                hash.update(&sb.oob[page as usize]);
                if let Some(second) = sb.seconds.get(page as usize) {
                    hash.update(&second.to_le_bytes());
                }

                match sb.stored(ppn) {
                    StoredPage::Nothing => {}
                    StoredPage::Identity(identity) => {
                        hash.update(&identity.to_le_bytes());
                    }
                    StoredPage::Bytes(bytes) => {
                        hash.update(&bytes[..]);
                    }
                    StoredPage::Meta(bytes) => {
                        hash.update(&bytes);
                    }
                }
            }
        }

        for line in &self.nvram {
            hash.update(zerocopy::IntoBytes::as_bytes(&line[..]));
        }

        hash.digest()
    }

    fn at(&self, ppn: Ppn) -> (usize, Ppn) {
        (
            self.geometry.superblock(ppn).0 as usize,
            Ppn(self.geometry.offset(ppn)),
        )
    }
    fn sb_mut(&mut self, index: usize) -> &mut NandArray {
        Arc::make_mut(&mut self.superblocks[index])
    }
    pub(crate) fn put(&mut self, ppn: Ppn, oob: Oob, stored: StoredPage) {
        let (sb, ppn) = self.at(ppn);
        self.sb_mut(sb).put(ppn, oob, stored);
    }
    pub(crate) fn tear(&mut self, ppn: Ppn) {
        let (sb, ppn) = self.at(ppn);
        self.sb_mut(sb).tear(ppn);
    }
    pub(crate) fn lose(&mut self, ppn: Ppn) {
        let (sb, ppn) = self.at(ppn);
        self.sb_mut(sb).lose(ppn);
    }
    pub(crate) fn erase(&mut self, block: BlockId) {
        let (sb, die) = self.geometry.place_of_block(block);
        self.sb_mut(sb.0 as usize).erase(BlockId(die));
    }
    pub(crate) fn spoil(&mut self, block: BlockId) {
        let (sb, die) = self.geometry.place_of_block(block);
        self.sb_mut(sb.0 as usize).spoil(BlockId(die));
    }
    pub(crate) fn set_word(&mut self, index: usize, value: u64) {
        let line = &mut self.nvram[index / LINE_WORDS];
        // Storing an unchanged value must not copy the line: snapshots would share less.
        if line[index % LINE_WORDS] != value {
            Arc::make_mut(line)[index % LINE_WORDS] = value;
        }
    }

    /// Gathers the pieces into one flat array and one flat NVRAM.
    pub(crate) fn flatten(&self) -> (NandArray, Vec<u64>) {
        use crate::array::PageContents;

        let mut flat = NandArray::new(self.geometry, self.mode());
        let dies = self.geometry.dies() as usize;
        let pages = self.geometry.pages_per_superblock() as usize;

        for (index, sb) in self.superblocks.iter().enumerate() {
            let (page, block) = (index * pages, index * dies);

            flat.oob[page..page + pages].copy_from_slice(&sb.oob);

            // Only the existing ones: an array without second owners has no space for them.
            let seconds = sb
                .seconds
                .iter()
                .enumerate()
                .filter(|(_, second)| **second != 0);
            seconds.for_each(|(at, second)| {
                flat.put_second(page + at, SecondOwner::from_bits(*second))
            });

            match (&mut flat.contents, &sb.contents) {
                (PageContents::Identity(to), PageContents::Identity(from)) => {
                    to.copy_from(page, from, 0..pages)
                }
                (PageContents::Bytes(to), PageContents::Bytes(from)) => {
                    to[page..page + pages].clone_from_slice(from)
                }
                _ => {}
            }

            flat.next_row[block..block + dies].copy_from_slice(&sb.next_row);
            flat.erase_counts[block..block + dies].copy_from_slice(&sb.erase_counts);

            sb.meta
                .iter()
                .for_each(|(at, bytes)| flat.adopt_meta(page as u32 + at, bytes.clone()));
            flat.torn.extend(sb.torn.iter().map(|at| page as u32 + at));
            flat.spoiled
                .extend(sb.spoiled.iter().map(|at| block as u32 + at));
        }

        let mut words: Vec<u64> = self
            .nvram
            .iter()
            .flat_map(|line| line.iter().copied())
            .collect();
        // The last line is padded with zeroes.
        words.truncate(self.nvram_words);

        (flat, words)
    }

    /// Divides a flat device into pieces.
    pub(crate) fn from_flat(flat: &NandArray, nvram: &[u64]) -> Self {
        let mut image = Self::blank(flat.geometry, flat.mode(), nvram.len());
        for index in 0..flat.geometry.superblocks() {
            image.superblocks[index as usize] = Arc::new(piece(flat, SbId(index)));
        }
        for (line, words) in image.nvram.iter_mut().zip(nvram.chunks(LINE_WORDS)) {
            Arc::make_mut(line)[..words.len()].copy_from_slice(words);
        }
        image
    }
}

pub(crate) fn single(geometry: Geometry) -> Geometry {
    Geometry::new(Shape {
        channels: 1,
        superblocks: 1,
        ..geometry.shape()
    })
    .and_then(|single| single.with_word_line(geometry.word_line()))
    .expect("one superblock of a valid geometry is valid")
}

fn piece(flat: &NandArray, sb: SbId) -> NandArray {
    use crate::array::PageContents;

    let geometry = flat.geometry;
    let mut one = NandArray::new(single(geometry), flat.mode());

    let (page, pages) = (geometry.page(sb, 0).0, geometry.pages_per_superblock());
    let (block, dies) = (geometry.block(sb, 0).0, geometry.dies());

    let page_range = page as usize..(page + pages) as usize;
    let block_range = block as usize..(block + dies) as usize;

    one.oob.copy_from_slice(&flat.oob[page_range.clone()]);

    let seconds = flat
        .seconds
        .get(page_range.clone())
        .unwrap_or_default()
        .iter()
        .enumerate();
    seconds
        .filter(|(_, second)| **second != 0)
        .for_each(|(at, second)| one.put_second(at, SecondOwner::from_bits(*second)));

    match (&mut one.contents, &flat.contents) {
        (PageContents::Identity(to), PageContents::Identity(from)) => {
            to.copy_from(0, from, page_range)
        }
        (PageContents::Bytes(to), PageContents::Bytes(from)) => {
            to.clone_from_slice(&from[page_range])
        }
        (PageContents::Bytes(to), PageContents::Mapped(from)) => {
            for (at, to) in page_range.zip(to) {
                // A mapped page always has bytes. Only programmed data belong to the image:
                // remains after an erase could differ between devices in the same state.
                let ppn = Ppn(at as u32);
                let holds_data = flat.is_programmed(ppn)
                    && !flat.is_meta(ppn)
                    && flat.oob(ppn).lpn() != Oob::TAIL;
                *to = holds_data.then(|| from.bytes(at));
            }
        }
        _ => {}
    }

    one.next_row
        .copy_from_slice(&flat.next_row[block_range.clone()]);
    one.erase_counts
        .copy_from_slice(&flat.erase_counts[block_range]);

    flat.meta
        .range(page..page + pages)
        .for_each(|(at, bytes)| one.adopt_meta(at - page, bytes.clone()));
    one.torn
        .extend(flat.torn.range(page..page + pages).map(|at| at - page));
    one.spoiled
        .extend(flat.spoiled.range(block..block + dies).map(|at| at - block));

    one
}
