//! Effects since the last state was written: one record each, in order.
//!
//! ```text
//! header   16 bytes: magic, generation (32 bits), CRC of both
//! records  a head of 8 bytes, then `words` words of 8 bytes
//! ```
//! Invariants: a record is valid only if its CRC, seeded with generation and position, matches:
//! leftovers of an earlier use of the file are invalid, and so is everything after the first gap.
//! The header's word and each record's head are one store of 8 bytes, so that a process that dies
//! leaves the old one or the new one. `Ended` is appended only after a sync has returned: after a
//! gap it proves that the gap was durable once. Absent: the effects of records (the folder's).

use crate::array::StoredPage;
use crate::effect::{MediaEffect, PageSource};
use crate::geometry::{BlockId, Ppn};
use crate::oob::{OOB_BYTES, Oob};
use bitfield_struct::bitfield;
use memmap2::MmapMut;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Bytes before the first record.
pub(super) const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"RMPJRNL2";
/// Magic of version 1, whose headers hold a generation of 64 bits and no CRC.
const MAGIC_1: [u8; 8] = *b"RMPJRNL1";
/// Maximum words of one store record.
pub(super) const STORE_WORDS_MAX: usize = 254;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES_MAX: usize = 8 + (STORE_WORDS_MAX + 1) * 8;

/// `Synced`, `Ended`, `Vouched`, `Durable` and `Continued`.
const COMMIT_BYTES: usize = 8 + 8 + 8 + 16 + 16;

/// Second word of the header.
#[bitfield(u64)]
struct JournalGeneration {
    generation: u32,
    crc: u32,
}

/// First 8 bytes of a record.
#[bitfield(u64)]
struct RecordHead {
    crc: u32,
    kind: u8,
    words: u8,
    /// Kind of page for programs, else 0.
    page_kind: u16,
}

/// Ppn of a program, and CRC of the stored content.
#[bitfield(u64)]
struct ProgramWhere {
    ppn: u32,
    crc: u32,
}

const PROGRAM: u8 = 1;
const TEAR: u8 = 2;
const ERASE: u8 = 3;
const SPOIL: u8 = 4;
const STORE: u8 = 5;
const CLEAR: u8 = 6;
const SYNCED: u8 = 7;
const ENDED: u8 = 8;
const VOUCHED: u8 = 9;
const DURABLE: u8 = 10;
const CONTINUED: u8 = 11;

/// The content of a page, in 16 bits: data, a number of metadata bytes plus one, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageContentKind(pub(super) u16);

impl PageContentKind {
    pub(super) const DATA: Self = Self(0);
    pub(super) const NOTHING: Self = Self(u16::MAX - 1);
    pub(super) const TORN: Self = Self(u16::MAX);

    pub(super) fn meta(bytes: usize) -> Self {
        assert!(
            bytes <= crate::geometry::PAGE_BYTES,
            "a metadata page is at most a page"
        );
        Self(bytes as u16 + 1)
    }

    /// Bytes of metadata, if it is such a page and the number is valid.
    pub(super) fn meta_bytes(self) -> Option<usize> {
        (self.0 != 0 && usize::from(self.0) <= crate::geometry::PAGE_BYTES + 1)
            .then(|| usize::from(self.0) - 1)
    }
}

/// A program record's description of the page's contents, which are in a file of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSum {
    pub(super) kind: PageContentKind,
    /// CRC of the bytes stored in the page.
    pub(super) crc: u32,
}

impl PageSum {
    pub(super) fn of(contents: &PageSource<'_>) -> Self {
        let (kind, crc) = match contents {
            PageSource::Stored(StoredPage::Bytes(bytes)) => {
                (PageContentKind::DATA, crc32c::crc32c(&bytes[..]))
            }
            PageSource::Stored(StoredPage::Meta(bytes)) => {
                (PageContentKind::meta(bytes.len()), crc32c::crc32c(bytes))
            }
            PageSource::Stored(StoredPage::Nothing | StoredPage::Identity(_)) => {
                (PageContentKind::NOTHING, 0)
            }
            PageSource::Bytes(bytes) => (PageContentKind::DATA, crc32c::crc32c(&bytes[..])),
            PageSource::CopyOf { crc, .. } => (PageContentKind::DATA, *crc),
        };
        Self { kind, crc }
    }
}

/// An effect in its recorded form.
pub(super) type RecordedEffect<'a> = MediaEffect<PageSum, &'a [u64]>;

/// A statement about durability; no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Appended by a sync: when this record is durable, everything before it is, contents too.
    Synced,
    /// Appended after a sync: everything before this record was durable.
    Ended,
    /// Contents of every program before this record are durable. The records may not be.
    Vouched,
    /// Every record before this offset of the file was durable.
    Durable { until: u64 },
    /// The last record: everything before it is in the state of this generation.
    Continued { generation: u64 },
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JournalRecord<'a> {
    Effect(RecordedEffect<'a>),
    Durability(Durability),
}

/// Counts of the records after an invalid one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordsBehind {
    pub(super) operations: u64,
    /// Number of times that all records before were made durable: for a flush, a write with FUA, or
    /// an erase.
    pub(super) durable: u64,
}

impl std::fmt::Display for RecordsBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            operations,
            durable,
        } = self;
        write!(
            f,
            "{operations} operations or more; {durable} times or more all before was made durable, for flushes, writes \
             with FUA, or erases"
        )
    }
}

/// The decoded header of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFound {
    /// Begun with this generation.
    Begun(u64),
    /// Begun by version 1, with this generation.
    BegunBy1(u64),
    /// Only zeroes: never begun.
    Blank,
    Garbage,
}

/// A journal in a mapped file.
pub(super) struct Journal {
    map: MmapMut,
    generation: u64,
    at: usize,
}

impl Journal {
    pub(super) fn new(map: MmapMut) -> Self {
        Self {
            map,
            generation: 0,
            at: 0,
        }
    }

    /// Begins a new generation; durable only after `sync`.
    pub(super) fn begin(&mut self, generation: u64) {
        // 1. the word  2. the magic, which changes only if version 1 wrote the file. Killed in
        // between, the header is still of version 1, so of an older generation.
        self.map[8..16].copy_from_slice(&begun(generation).into_bits().to_le_bytes());
        compiler_fence(Ordering::SeqCst);
        self.map[..8].copy_from_slice(&MAGIC);
        (self.generation, self.at) = (generation, HEADER_BYTES);
    }

    /// Decodes the header.
    pub(super) fn header(&self) -> HeaderFound {
        let word = self.map[8..]
            .first_chunk::<8>()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let generation = u64::from(JournalGeneration::from_bits(word).generation());
        match *self
            .map
            .first_chunk::<8>()
            .expect("a journal is longer than its header")
        {
            // The word is one store, so a mismatch of its CRC is damage.
            MAGIC if begun(generation).into_bits() == word => HeaderFound::Begun(generation),
            MAGIC_1 => HeaderFound::BegunBy1(word),
            [0, 0, 0, 0, 0, 0, 0, 0] if word == 0 => HeaderFound::Blank,
            _ => HeaderFound::Garbage,
        }
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        // Only the appended part; no record of this generation follows.
        self.map.flush_range(0, self.at)
    }

    /// Returns true if there is room for the longest record, and for the records that a sync or a
    /// commit appends after it.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.at + RECORD_BYTES_MAX + COMMIT_BYTES <= self.map.len()
    }

    /// Appends the record of an effect.
    pub(super) fn append(&mut self, effect: &RecordedEffect<'_>) {
        match *effect {
            MediaEffect::Program { ppn, oob, contents } => {
                let place = ProgramWhere::new()
                    .with_ppn(ppn.0)
                    .with_crc(contents.crc)
                    .into();

                // Ten bytes of OOB take two words, the second of which is partly used.
                let bytes = oob.to_bytes();
                let (low, high) = bytes
                    .split_first_chunk::<8>()
                    .expect("an OOB record has more than 8 bytes");
                let low = u64::from_le_bytes(*low);
                let high = u64::from(u16::from_le_bytes([high[0], high[1]]));

                self.put(PROGRAM, contents.kind.0, [place, low, high].into_iter(), 3);
            }
            MediaEffect::TornProgram { ppn } => self.put_short(TEAR, [ppn.0.into()]),
            MediaEffect::Erase { block } => self.put_short(ERASE, [block.0.into()]),
            MediaEffect::SpoiledErase { block } => self.put_short(SPOIL, [block.0.into()]),
            MediaEffect::Store { word, values } => {
                // Straight from the caller's slice: a store may have hundreds of words.
                let words = std::iter::once(word as u64).chain(values.iter().copied());
                self.put(STORE, 0, words, values.len() + 1);
            }
            MediaEffect::Clear { start, len } => self.put_short(CLEAR, [start as u64, len as u64]),
        }
    }

    /// Appends a record about durability.
    pub(super) fn note(&mut self, durability: Durability) {
        match durability {
            Durability::Synced => self.put_short(SYNCED, []),
            Durability::Ended => self.put_short(ENDED, []),
            Durability::Vouched => self.put_short(VOUCHED, []),
            Durability::Durable { until } => self.put_short(DURABLE, [until]),
            Durability::Continued { generation } => self.put_short(CONTINUED, [generation]),
        }
    }

    fn put_short<const W: usize>(&mut self, kind: u8, words: [u64; W]) {
        self.put(kind, 0, words.into_iter(), W);
    }

    fn put(&mut self, kind: u8, page_kind: u16, payload: impl Iterator<Item = u64>, words: usize) {
        let end = self.at + 8 + words * 8;
        for (bytes, word) in self.map[self.at + 8..end]
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(payload)
        {
            *bytes = word.to_le_bytes();
        }

        let head = RecordHead::new()
            .with_kind(kind)
            .with_words(words as u8)
            .with_page_kind(page_kind);
        let crc = crc(self.generation, self.at, head, &self.map[self.at + 8..end]);

        // 1. the payload  2. the head with its CRC. Killed in between, the record is not there.
        compiler_fence(Ordering::SeqCst);
        self.map[self.at..self.at + 8]
            .copy_from_slice(&head.with_crc(crc).into_bits().to_le_bytes());
        compiler_fence(Ordering::SeqCst);
        self.at = end;
    }

    /// Reads the records of a generation, regardless of the header. Returns the offsets of its
    /// records up to the first invalid one.
    pub(super) fn read(&mut self, generation: u64) -> Vec<usize> {
        let mut found = Vec::new();
        self.generation = generation;
        self.at = HEADER_BYTES;
        // The first invalid record is the end, or damage: `proof_in` tells which.
        while let Some(end) = self.end_of(self.at) {
            let is_last = self.continued_at(self.at).is_some();
            found.push(self.at);
            self.at = end;
            // Records after it may date from before the folder was opened.
            if is_last {
                break;
            }
        }
        found
    }

    /// The generation in which the history continues, if the record at this offset is `Continued`.
    fn continued_at(&self, at: usize) -> Option<u64> {
        let is_one = self.head_at(at)?.kind() == CONTINUED;
        self.word_at(at + 8).filter(|_| is_one)
    }

    /// The generation of the state that contains all of this journal, if its last record is
    /// `Continued`.
    pub(super) fn continued_in(&mut self, generation: u64) -> Option<u64> {
        let last = *self.read(generation).last()?;
        self.continued_at(last)
    }

    /// Returns true if `Continued` fits after the other records.
    pub(super) fn has_room_to_end(&self) -> bool {
        self.at + 16 <= self.map.len()
    }

    /// The end of the records found by `read`.
    pub(super) fn end(&self) -> usize {
        self.at
    }

    /// After `read`: offsets of the records of this generation that lie after the end.
    pub(super) fn records_after_end(&self) -> Vec<usize> {
        self.heads_behind()
            .filter(|at| self.end_of(*at).is_some())
            .collect()
    }

    /// The first of the records after the end that proves that the invalid record was once durable.
    /// That is `Ended`, or a `Synced` followed by another record, both stored after the sync
    /// returned; or `Durable` with an offset after the end.
    pub(super) fn proof_in(&self, after_end: &[usize]) -> Option<usize> {
        let has_next = |at: usize| {
            let next = self.end_of(at).and_then(|end| self.end_of(end));
            next.is_some()
        };
        let proves = |at: &usize| match self.head_at(*at).map(|head| head.kind()) {
            Some(ENDED) => true,
            Some(SYNCED) => has_next(*at),
            Some(DURABLE) => self
                .word_at(*at + 8)
                .is_some_and(|until| until > self.at as u64),
            _ => false,
        };
        after_end.iter().copied().find(proves)
    }

    /// Returns true if everything was durable when the last of these records was stored, or if there
    /// are no records.
    pub(super) fn has_ended(&self, records: &[usize]) -> bool {
        let ended = |at: &usize| self.head_at(*at).is_some_and(|head| head.kind() == ENDED);
        records.last().is_none_or(ended)
    }

    /// Continues at the known end of a generation's records.
    pub(super) fn go_to(&mut self, generation: u64, end: usize) {
        (self.generation, self.at) = (generation, end);
    }

    /// CRC-32C of the header and of all records.
    pub(super) fn sum(&self) -> u32 {
        crc32c::crc32c(&self.map[..self.at])
    }

    /// Returns true if a record of this generation begins at the end or anywhere after it.
    pub(super) fn has_records_from_end(&self) -> bool {
        self.end_of(self.at).is_some() || !self.records_after_end().is_empty()
    }

    /// The header's bytes in the file.
    pub(super) fn header_bytes(&self) -> [u8; HEADER_BYTES] {
        *self
            .map
            .first_chunk()
            .expect("a journal is longer than its header")
    }

    /// Counts the records of a generation.
    pub(super) fn count(&mut self, generation: u64) -> RecordsBehind {
        self.generation = generation;
        // The range begins one word later, at the first record.
        self.at = HEADER_BYTES - 8;
        self.count_behind()
    }

    /// After `read`: counts the records after the end.
    pub(super) fn count_behind(&self) -> RecordsBehind {
        let mut found = RecordsBehind::default();
        let mut behind = self.behind();
        while let Some(word) = behind.next() {
            // Records may begin at any word, since the length of the invalid one is unknown.
            let Some(end) = self.end_of(word * 8) else {
                continue;
            };
            let kind = self.head_at(word * 8).map_or(0, |head| head.kind());
            // A sync leaves `Synced`, and a commit `Durable`: data before it was acknowledged. A
            // commit that ended before these records does not cover them.
            let reaches_behind = || {
                let until = self.word_at(word * 8 + 8);
                until.is_some_and(|until| until > self.at as u64)
            };
            found.operations += u64::from(kind < SYNCED);
            found.durable += u64::from(kind == SYNCED || kind == DURABLE && reaches_behind());
            behind.start = end / 8;
        }
        found
    }

    /// Offsets after the end at which records may begin, in words of 8 bytes.
    fn behind(&self) -> Range<usize> {
        self.at / 8 + 1..self.map.len() / 8
    }

    /// Those of them where a word has the kind of a record: few, in a long journal.
    fn heads_behind(&self) -> impl Iterator<Item = usize> {
        const KIND_AT: usize = 4;
        const BLOCK: usize = 512;
        let is_head = |head: &[u8; 8]| (PROGRAM..=CONTINUED).contains(&head[KIND_AT]);
        let first = self.at + 8;
        let bytes = self.map.get(first..).unwrap_or_default();
        // Most of a journal was never written.
        let blocks = bytes.chunks(BLOCK).enumerate();
        let written = blocks.filter(|(_, block)| !is_zero(block));
        written.flat_map(move |(index, block)| {
            let first = first + index * BLOCK;
            let words = block.as_chunks::<8>().0.iter().enumerate();
            let heads = words.filter(move |(_, head)| is_head(head));
            heads.map(move |(index, _)| first + index * 8)
        })
    }

    fn word_at(&self, at: usize) -> Option<u64> {
        self.map
            .get(at..)?
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn head_at(&self, at: usize) -> Option<RecordHead> {
        self.word_at(at).map(RecordHead::from_bits)
    }

    fn end_of(&self, at: usize) -> Option<usize> {
        let head = self.head_at(at)?;
        let end = at + 8 + usize::from(head.words()) * 8;
        let payload = self.map.get(at + 8..end)?;
        let fits = (PROGRAM..=CONTINUED).contains(&head.kind())
            && crc(self.generation, at, head, payload) == head.crc();
        fits.then_some(end)
    }

    /// Decodes the record at an offset found by `read`; `None` if it is invalid. A store's values
    /// go into `values`.
    pub(super) fn record<'a>(
        &self,
        at: usize,
        values: &'a mut Vec<u64>,
    ) -> Option<JournalRecord<'a>> {
        let head = self.head_at(at)?;
        let payload = self
            .map
            .get(at + 8..at + 8 + usize::from(head.words()) * 8)?;
        values.clear();
        values.extend(
            payload
                .as_chunks::<8>()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes)),
        );

        let small = |word: u64| u32::try_from(word).ok();
        let large = |word: u64| usize::try_from(word).ok();
        let effect = match (head.kind(), values.as_slice()) {
            (PROGRAM, [place, low, high]) => {
                let place = ProgramWhere::from_bits(*place);
                let mut oob = [0; OOB_BYTES];
                oob[..8].copy_from_slice(&low.to_le_bytes());
                oob[8..].copy_from_slice(&high.to_le_bytes()[..2]);
                MediaEffect::Program {
                    ppn: Ppn(place.ppn()),
                    oob: Oob::from_bytes(oob),
                    contents: PageSum {
                        kind: PageContentKind(head.page_kind()),
                        crc: place.crc(),
                    },
                }
            }
            (TEAR, [ppn]) => MediaEffect::TornProgram {
                ppn: Ppn(small(*ppn)?),
            },
            (ERASE, [block]) => MediaEffect::Erase {
                block: BlockId(small(*block)?),
            },
            (SPOIL, [block]) => MediaEffect::SpoiledErase {
                block: BlockId(small(*block)?),
            },
            (STORE, [word, values @ ..]) if !values.is_empty() => MediaEffect::Store {
                word: large(*word)?,
                values,
            },
            (CLEAR, [start, len]) => MediaEffect::Clear {
                start: large(*start)?,
                len: large(*len)?,
            },
            // Statements about durability, which change no cells.
            (SYNCED, []) => return Some(JournalRecord::Durability(Durability::Synced)),
            (ENDED, []) => return Some(JournalRecord::Durability(Durability::Ended)),
            (VOUCHED, []) => return Some(JournalRecord::Durability(Durability::Vouched)),
            (DURABLE, [until]) => {
                let until = *until;
                return Some(JournalRecord::Durability(Durability::Durable { until }));
            }
            (CONTINUED, [generation]) => {
                let generation = *generation;
                return Some(JournalRecord::Durability(Durability::Continued {
                    generation,
                }));
            }
            _ => return None,
        };
        Some(JournalRecord::Effect(effect))
    }
}

const _: () = assert!(OOB_BYTES == 10);

/// Returns true if all whole words of some bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.as_chunks::<8>().0.iter();
    words.fold(0, |any, word| any | u64::from_ne_bytes(*word)) == 0
}

/// The header's word of a generation.
fn begun(generation: u64) -> JournalGeneration {
    // At one state per millisecond it would take 49 days; a device writes a few per minute.
    let generation = u32::try_from(generation).expect("fewer than 2^32 states are ever written");
    let crc = crc32c::crc32c_append(crc32c::crc32c(&MAGIC), &generation.to_le_bytes());
    JournalGeneration::new()
        .with_generation(generation)
        .with_crc(crc)
}

/// CRC of generation, position, head without its CRC, payload. Most records are short, and take one
/// computation.
fn crc(generation: u64, at: usize, head: RecordHead, payload: &[u8]) -> u32 {
    let words = [generation, at as u64, head.with_crc(0).into_bits()];
    let mut short = [0; 64];
    short[..24]
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(words)
        .for_each(|(bytes, word)| *bytes = word.to_le_bytes());

    // One buffer for head and payload: a second call of the CRC costs more than copying 40 bytes.
    let (first, rest) = payload.split_at(payload.len().min(40));

    short[24..24 + first.len()].copy_from_slice(first);
    let crc = crc32c::crc32c(&short[..24 + first.len()]);
    if rest.is_empty() {
        crc
    } else {
        crc32c::crc32c_append(crc, rest)
    }
}
