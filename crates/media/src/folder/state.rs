//! The state of a device except its pages' contents, written as a whole: replay of the journal
//! begins from it.
//!
//! ```text
//! header   64 bytes
//! blocks   12 bytes each: rows programmed, erases, 1 if spoiled
//! pages    16 bytes each: kind (2), then of all OOB (10), then of all checksum (4; from version 2 on)
//! NVRAM    8 bytes a word
//! hash     32 bytes: BLAKE3 of all before
//! ```
//! Invariant: an incompletely written file does not match its hash. Absent: when to write it (the
//! folder's).

use super::journal::PageContentKind;
use crate::array::{NandArray, PageContents};
use crate::content::ContentMode;
use crate::geometry::{Geometry, Ppn, Shape};
use crate::image_file::{HashingStream, ImageError};
use crate::oob::OOB_BYTES;
use crate::pages::MappedPages;
use crate::slab::Slab;
use crate::word_line::WordLine;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"RMPSTATE";
/// Version of the folder's files.
pub(super) const VERSION: u32 = 2;
/// The code of the word line is above the dies.
const WORD_LINE_SHIFT: u32 = 16;
/// First version: pages have no checksums.
pub(super) const VERSION_1: u32 = 1;

/// First bytes of a state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct StateHeader {
    magic: [u8; 8],
    version: u32,
    channels: u32,
    dies: u32,
    superblocks: u32,
    pages_per_block: u32,
    /// Groups of dies less one.
    more_groups: u32,
    pub(super) nvram_words: u64,
    pub(super) journal_bytes: u64,
    pub(super) generation: u64,
    /// Number of a record in the page of witnesses that was durable before this state; 0 in images
    /// without such a page.
    pub(super) witness: u64,
}

const _: () = assert!(size_of::<StateHeader>() == 64);

impl StateHeader {
    pub(super) fn new(
        geometry: Geometry,
        nvram_words: usize,
        journal_bytes: u64,
        generation: u64,
    ) -> Self {
        let Shape {
            channels,
            dies,
            superblocks,
            pages_per_block,
        } = geometry.shape();
        let nvram_words = nvram_words as u64;
        let magic = MAGIC;

        Self {
            magic,
            version: VERSION,
            channels,
            dies: dies | geometry.word_line().to_code() << WORD_LINE_SHIFT,
            superblocks,
            pages_per_block,
            more_groups: geometry.groups() - 1,
            nvram_words,
            journal_bytes,
            generation,
            witness: 0,
        }
    }

    pub(super) fn geometry(&self) -> Result<Geometry, ImageError> {
        let Self {
            channels,
            dies,
            superblocks,
            pages_per_block,
            more_groups,
            ..
        } = *self;

        let shape = Shape {
            channels,
            dies: dies & ((1 << WORD_LINE_SHIFT) - 1),
            superblocks,
            pages_per_block,
        };
        let word_line = WordLine::from_code(dies >> WORD_LINE_SHIFT)
            .ok_or_else(|| ImageError::Damaged("unknown word lines".into()))?;

        Geometry::grouped(shape, more_groups.saturating_add(1))
            .and_then(|geometry| geometry.with_word_line(word_line))
            .map_err(|error| ImageError::Damaged(error.to_string()))
    }

    /// The same header with another generation, in this version's format.
    pub(super) fn next(self, generation: u64) -> Self {
        Self {
            version: VERSION,
            generation,
            ..self
        }
    }

    /// Returns true if the state holds page checksums.
    pub(super) fn has_sums(&self) -> bool {
        self.version != VERSION_1
    }

    /// Size of the whole file.
    pub(super) fn state_bytes(&self) -> Result<u64, ImageError> {
        let geometry = self.geometry()?;
        let page = 2 + OOB_BYTES as u64 + if self.has_sums() { 4 } else { 0 };
        let fixed =
            64 + 32 + u64::from(geometry.blocks()) * 12 + u64::from(geometry.pages()) * page;
        let words = self
            .nvram_words
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_add(fixed));
        words.ok_or_else(|| ImageError::Damaged("NVRAM size".into()))
    }
}

/// Reads a header, if valid.
pub(super) fn read_header(mut file: &File) -> Result<StateHeader, ImageError> {
    let mut bytes = [0; 64];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut bytes)
        .map_err(|_| ImageError::NotAnImage)?;
    let header = StateHeader::read_from_bytes(&bytes).map_err(|_| ImageError::NotAnImage)?;
    match header {
        StateHeader { magic, .. } if magic != MAGIC => Err(ImageError::NotAnImage),
        StateHeader { version, .. } if !(VERSION_1..=VERSION).contains(&version) => {
            Err(ImageError::FolderVersion(version))
        }
        _ => Ok(header),
    }
}

/// Reads the hash at the end of a state, without comparing it.
pub(super) fn read_hash(file: &File, header: &StateHeader) -> Result<[u8; 32], ImageError> {
    let mut hash = [0; 32];
    let at = header.state_bytes()? - hash.len() as u64;
    file.read_exact_at(&mut hash, at)?;
    Ok(hash)
}

/// Writes a state and makes it durable.
pub(super) fn write(
    mut file: &File,
    header: &StateHeader,
    nand: &NandArray,
    nvram: &[u64],
) -> std::io::Result<()> {
    let PageContents::Mapped(pages) = &nand.contents else {
        unreachable!("a folder's contents are mapped")
    };
    file.seek(SeekFrom::Start(0))?;
    // Hashed while it is written, in one pass over memory; NVRAM and OOBs of a large device are
    // gigabytes.
    let mut sink = HashingStream {
        inner: BufWriter::with_capacity(1 << 20, file),
        hash: blake3::Hasher::new(),
    };

    sink.write_all(header.as_bytes())?;
    for block in 0..nand.geometry.blocks() as usize {
        let spoiled = u32::from(nand.spoiled.contains(&(block as u32)));
        sink.write_all([nand.next_row[block], nand.erase_counts[block], spoiled].as_bytes())?;
    }

    let kinds = kinds(nand);
    sink.write_all(kinds.as_bytes())?;
    sink.write_all(nand.oob.as_bytes())?;
    sink.write_all(pages.sums().as_bytes())?;
    sink.write_all(nvram.as_bytes())?;
    let hash = sink.hash.finalize();
    sink.inner.write_all(hash.as_bytes())?;
    sink.inner.flush()?;

    drop(sink);
    file.sync_data()
}

fn kinds(nand: &NandArray) -> Vec<u16> {
    let mut kinds = vec![PageContentKind::DATA.0; nand.geometry.pages() as usize];
    for (page, bytes) in &nand.meta {
        kinds[*page as usize] = PageContentKind::meta(bytes.len()).0;
    }
    // Torn last: an unreadable page has no bytes, regardless of its intended content.
    for page in &nand.torn {
        kinds[*page as usize] = PageContentKind::TORN.0;
    }
    kinds
}

/// Completes a state with its metadata pages, read from the contents. Those with a wrong checksum
/// are torn, and returned.
pub(super) fn with_pages(
    parts: StateParts,
    mut pages: MappedPages,
) -> (NandArray, Slab<u64>, Vec<Ppn>) {
    let StateParts {
        mut nand,
        nvram,
        metas,
        sums,
    } = parts;
    pages.set_sums(sums);

    let mut suspects = Vec::new();
    // Metadata pages are kept in memory: firmware reads them at recovery, and they are few.
    for (page, bytes) in metas {
        if pages.is_intact(page as usize, bytes) {
            nand.adopt_meta(page, pages.page(page as usize)[..bytes].into())
        } else {
            nand.torn.insert(page);
            suspects.push(Ppn(page));
        }
    }

    nand.contents = PageContents::Mapped(pages);
    (nand, nvram, suspects)
}

/// Returns true if a state file is complete.
pub(super) fn is_whole(file: &File, header: &StateHeader) -> bool {
    read_parts(file, header).is_ok()
}

/// A complete state, without the contents of pages.
pub(super) struct StateParts {
    nand: NandArray,
    nvram: Slab<u64>,
    metas: Vec<(u32, usize)>,
    sums: Slab<u32>,
}

/// Reads a state, if it is complete.
pub(super) fn read_parts(mut file: &File, header: &StateHeader) -> Result<StateParts, ImageError> {
    let damaged = |what: &str| ImageError::Damaged(what.to_owned());
    let geometry = header.geometry()?;
    let have = file.metadata()?.len();
    if have < header.state_bytes()? {
        return Err(damaged("a state file is too short"));
    }

    file.seek(SeekFrom::Start(64))?;
    let mut source = HashingStream {
        inner: BufReader::with_capacity(1 << 20, file),
        hash: blake3::Hasher::new(),
    };

    // The header has been read before, and the hash covers it too.
    source.hash.update(header.as_bytes());

    let mut nand = NandArray::new(geometry, ContentMode::None);
    for block in 0..geometry.blocks() {
        let mut row = [0u32; 3];
        source.read_exact(row.as_mut_bytes())?;
        if row[0] > geometry.pages_per_block() {
            return Err(damaged("a block has more rows than fit"));
        }
        (
            nand.next_row[block as usize],
            nand.erase_counts[block as usize],
        ) = (row[0], row[1]);
        if row[2] != 0 {
            nand.spoiled.insert(block);
        }
    }

    let mut kinds = vec![0u16; geometry.pages() as usize];
    source.read_exact(kinds.as_mut_bytes())?;
    source.read_exact(nand.oob.as_mut_bytes())?;
    let mut sums = Slab::zeroed(geometry.pages() as usize);
    if header.has_sums() {
        source.read_exact(sums.as_mut_bytes())?;
    }

    let words = usize::try_from(header.nvram_words).map_err(|_| damaged("NVRAM size"))?;
    let mut nvram = Slab::zeroed(words);
    source.read_exact(nvram.as_mut_bytes())?;

    let hash = source.hash.finalize();
    let mut kept = [0; 32];
    // Past the hasher: the hash does not cover itself.
    source.inner.read_exact(&mut kept)?;
    if hash != kept {
        return Err(damaged("a state file does not have its hash"));
    }

    let mut metas = Vec::new();
    for (page, kind) in kinds.into_iter().enumerate() {
        let page = page as u32;
        match PageContentKind(kind) {
            PageContentKind::DATA => {}
            PageContentKind::TORN => {
                nand.torn.insert(page);
            }
            kind => metas.push((
                page,
                kind.meta_bytes()
                    .ok_or_else(|| damaged("a page of no known kind"))?,
            )),
        }
    }
    Ok(StateParts {
        nand,
        nvram,
        metas,
        sums,
    })
}
