//! A trace that was read once, for any number of replays: on devices of other sizes, and again and
//! again.
//!
//! Requests are kept as they were recorded, before cutting and folding, in words of 64 bits: four
//! for one of a single content, and one more for each further content that does not follow the one
//! before. Up to `MEMORY_WORDS` they stay in memory; a longer trace goes to a temporary file
//! without a name, so that memory does not grow with its length. Invariants: a replay delivers what
//! a `TraceReader` delivers from the same file; each time round the contents are new ones and times
//! go on where the last round ended. Absent: formats.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remap_ssd_device::{DeviceConfig, Lpn};
use remap_ssd_media::slab::prefetch;
use rustc_hash::FxHashMap;

use super::expand::{Expander, Item, Op};
use super::input::Input;
use super::record::{Moved, Verb};
use super::{Counts, Decoder, Format, NextRecord, TraceOptions, TraceStat};
use crate::source::{HostPage, PageKind, Source, SourceError};

/// Words kept in memory: 512 MiB.
const MEMORY_WORDS: usize = 64 << 20;

/// Words written or read at a time.
const PIECE_WORDS: usize = 64 << 10;

/// A trace in memory, or in a temporary file if it is large.
///
/// ```
/// use remap_ssd_sim::source::Source;
/// use remap_ssd_sim::trace::{Decoded, Format, TraceOptions};
/// # let file = tempfile::NamedTempFile::new()?;
/// # let path = file.path();
/// std::fs::write(path, "0,W,8192,4096,1000\n0,R,8192,4096,2000\n")?; // device, verb, byte, bytes, us
/// let trace = Decoded::read(path, None, TraceOptions::new(100))?;
/// assert_eq!((trace.format(), trace.path()), (Format::Alibaba, path));
/// assert_eq!((trace.stat().writes, trace.stat().reads), (1, 1));
/// assert!(trace.device().is_none() && trace.torn().is_none()); // of recorded sessions
///
/// // As often as it is wanted, on any device; a trace that is too long for memory goes to a file.
/// let mut pages = Vec::new();
/// let mut replay = trace.replay(TraceOptions::new(1000), 2);
/// assert_eq!((replay.len_hint(), replay.skipped()), (Some(4), 0));
/// while replay.fill(&mut pages, 100)? {}
/// assert_eq!((pages.len(), pages[0].lpn), (4, 2));
/// let same = Decoded::read_within(path, None, TraceOptions::new(100), 1)?;
/// assert_eq!(same.stat(), trace.stat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoded {
    path: PathBuf,
    format: Format,
    words: Words,
    /// Devices by the numbers that words hold.
    devices: Arc<Vec<u64>>,
    /// Contents have numbers below this one, and from 1.
    content_end: u64,
    stat: TraceStat,
    device: Option<Box<DeviceConfig>>,
    torn: Option<u64>,
}

#[derive(Clone, Debug)]
enum Words {
    Memory(Arc<Vec<u64>>),
    File(Arc<File>, u64),
}

/// What a request's second word says, besides the index of its device and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Read = 0,
    Trim,
    /// Contents that follow one another, the first of them in the words.
    Write,
    /// A write with a list of contents.
    WriteListed,
    Copy,
    Move,
    CopyAtomic,
    MoveAtomic,
    Flush,
}

const TAGS: [Tag; 9] = [
    Tag::Read,
    Tag::Trim,
    Tag::Write,
    Tag::WriteListed,
    Tag::Copy,
    Tag::Move,
    Tag::CopyAtomic,
    Tag::MoveAtomic,
    Tag::Flush,
];

/// Bits of a request's bytes: the longest deallocation is 2^32.
const LEN_BITS: u32 = 36;
const DEVICE_BITS: u32 = 22;
const TAG_SHIFT: u32 = LEN_BITS + DEVICE_BITS;

impl Decoded {
    /// Reads a trace through, and counts what is in it.
    ///
    /// # Errors
    /// As `TraceReader::open` and reading on; there is no room for what does not fit into memory.
    pub fn read(
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        Self::read_within(path, format, options, MEMORY_WORDS)
    }

    /// The same with at most about so many words of 8 bytes in memory.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_within(
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
        memory_words: usize,
    ) -> Result<Self, SourceError> {
        let options = TraceOptions {
            content_base: 0,
            ..options
        };
        let mut decoder = Decoder::begin(Input::open(path)?, format, &options)?;
        let no_room = |source| SourceError::Io {
            file: format!("{}: a temporary file for its requests", path.display()),
            source,
        };
        let (mut keeper, mut census) = (Keeper::within(memory_words), Census::new(&options));
        let (mut counts, mut item) = (Counts::default(), Item::default());
        loop {
            match decoder.next(&mut item)? {
                NextRecord::Item => {
                    if census.count(&item) {
                        counts.requests += 1;
                        keeper.keep(&item).map_err(no_room)?;
                    } else {
                        counts.ignored += 1
                    }
                }
                NextRecord::Ignored => counts.ignored += 1,
                NextRecord::Malformed(_) if options.skip_bad => counts.skipped += 1,
                NextRecord::Malformed(error) => return Err(error),
                NextRecord::End => break,
            }
        }
        if counts.requests == 0 {
            return Err(decoder.nothing(counts));
        }

        let mut stat = census.total();
        (stat.requests, stat.skipped, stat.ignored) =
            (counts.requests, counts.skipped, counts.ignored);
        let (words, devices) = keeper.finish().map_err(no_room)?;
        Ok(Self {
            path: path.into(),
            format: decoder.parser.format(),
            words,
            devices: Arc::new(devices),
            content_end: decoder.identities.end(),
            stat,
            device: decoder.device,
            torn: decoder.torn,
        })
    }

    /// Path of the trace file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Format that the trace was read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What is in it, folded as the options said.
    pub fn stat(&self) -> &TraceStat {
        &self.stat
    }

    /// The device that was recorded, if the trace names it (sessions do).
    pub fn device(&self) -> Option<&DeviceConfig> {
        self.device.as_deref()
    }

    /// The line of half a record that a session ended in, which was left out.
    pub fn torn(&self) -> Option<u64> {
        self.torn
    }

    /// Its requests, so many times. `options` must be those of reading but for the pages and the
    /// base of the contents.
    pub fn replay(&self, options: TraceOptions, rounds: u32) -> Replay {
        Replay {
            cursor: self.cursor(),
            expander: Expander::new(&options, options.content_base),
            trace: self.clone(),
            options,
            item: Item::default(),
            rounds_left: rounds.saturating_sub(1),
            rounds: u64::from(rounds.max(1)),
            round: 0,
            offset_ns: 0,
            at_ns: 0,
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor {
            words: self.words.clone(),
            at: 0,
            piece: Vec::new(),
            piece_at: 0,
        }
    }
}

#[derive(Default)]
struct Keeper {
    memory_words: usize,
    words: Vec<u64>,
    /// What did not fit into memory.
    file: Option<File>,
    written: u64,
    devices: Vec<u64>,
    numbers: FxHashMap<u64, u64>,
    last: Option<(u64, u64)>,
}

impl Keeper {
    fn within(memory_words: usize) -> Self {
        Self {
            memory_words,
            ..Self::default()
        }
    }

    #[inline]
    fn keep(&mut self, item: &Item) -> io::Result<()> {
        let limit = if self.file.is_some() {
            PIECE_WORDS
        } else {
            self.memory_words
        };

        if self.words.len() >= limit {
            self.write_out()?;
        }

        let head =
            |tag: Tag, device: u64, len: u64| (tag as u64) << TAG_SHIFT | device << LEN_BITS | len;

        match item.op {
            Op::Extent {
                device,
                verb,
                offset,
                len,
            } => {
                let device = self.number(device)?;
                let follow = item.contents.windows(2).all(|pair| pair[0] + 1 == pair[1]);

                let tag = match verb {
                    Verb::Read => Tag::Read,
                    Verb::Trim => Tag::Trim,
                    Verb::Write if follow => Tag::Write,
                    Verb::Write => Tag::WriteListed,
                };

                self.words
                    .extend_from_slice(&[item.at_ns, head(tag, device, len), offset]);

                match tag {
                    Tag::Write => self.words.push(item.contents[0]),
                    Tag::WriteListed => self.words.extend_from_slice(&item.contents),
                    _ => {}
                }
            }
            Op::Moved(Moved {
                target,
                source,
                count,
                relocate,
                atomic,
                ..
            }) => {
                let tag = match (relocate, atomic) {
                    (false, false) => Tag::Copy,
                    (true, false) => Tag::Move,
                    (false, true) => Tag::CopyAtomic,
                    (true, true) => Tag::MoveAtomic,
                };

                self.words
                    .extend_from_slice(&[item.at_ns, head(tag, 0, 0), target, source, count]);
            }
            Op::Flush => self
                .words
                .extend_from_slice(&[item.at_ns, head(Tag::Flush, 0, 0)]),
        }

        Ok(())
    }

    /// A small number for a device.
    #[inline]
    fn number(&mut self, device: u64) -> io::Result<u64> {
        if let Some((last, number)) = self.last
            && last == device
        {
            return Ok(number);
        }
        let next = self.devices.len() as u64;
        let number = *self.numbers.entry(device).or_insert(next);
        if number == next {
            if next >= 1 << DEVICE_BITS {
                return Err(io::Error::other("more than four million devices"));
            }
            self.devices.push(device);
        }
        self.last = Some((device, number));
        Ok(number)
    }

    fn write_out(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let mut bytes = Vec::with_capacity(8 * PIECE_WORDS);
        for piece in self.words.chunks(PIECE_WORDS) {
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|word| word.to_le_bytes()));
            file.write_all(&bytes)?;
        }
        self.written += self.words.len() as u64;
        self.words.clear();
        self.words.shrink_to(2 * PIECE_WORDS);
        Ok(())
    }

    fn finish(mut self) -> io::Result<(Words, Vec<u64>)> {
        if self.file.is_some() {
            self.write_out()?;
        }
        let words = match self.file {
            Some(file) => Words::File(Arc::new(file), self.written),
            None => Words::Memory(Arc::new(self.words)),
        };
        Ok((words, self.devices))
    }
}

/// Reads words, one request after the other.
struct Cursor {
    words: Words,
    at: u64,
    /// Of a file, the words from `piece_at` on.
    piece: Vec<u64>,
    piece_at: u64,
}

impl Cursor {
    fn len(&self) -> u64 {
        match &self.words {
            Words::Memory(words) => words.len() as u64,
            Words::File(_, len) => *len,
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> io::Result<&[u64]> {
        let at = self.at;
        self.at += count as u64;

        match &self.words {
            Words::Memory(words) => Ok(&words[at as usize..at as usize + count]),
            Words::File(file, len) => {
                let end = self.piece_at + self.piece.len() as u64;

                if at < self.piece_at || at + count as u64 > end {
                    // A piece from here on; it is read again only when reading has left it.
                    let wanted = (count.max(PIECE_WORDS) as u64).min(len - at) as usize;
                    let mut bytes = vec![0; 8 * wanted];
                    file.read_exact_at(&mut bytes, 8 * at)?;

                    self.piece.clear();
                    let (words, _) = bytes.as_chunks::<8>();
                    self.piece
                        .extend(words.iter().map(|word| u64::from_le_bytes(*word)));
                    self.piece_at = at;
                }

                let from = (at - self.piece_at) as usize;
                Ok(&self.piece[from..from + count])
            }
        }
    }

    /// The next request; `false` at the end.
    fn next(&mut self, devices: &[u64], item: &mut Item) -> io::Result<bool> {
        if self.at >= self.len() {
            return Ok(false);
        }

        let &[at_ns, head] = self.take(2)? else {
            unreachable!("two words were asked for")
        };

        item.at_ns = at_ns;
        item.contents.clear();

        let tag = TAGS[(head >> TAG_SHIFT) as usize];
        match tag {
            Tag::Read | Tag::Trim | Tag::Write | Tag::WriteListed => {
                let len = head & ((1 << LEN_BITS) - 1);
                let device = devices[(head >> LEN_BITS & ((1 << DEVICE_BITS) - 1)) as usize];
                let offset = self.take(1)?[0];
                let pages = super::cut(offset, len).size_hint().0;

                let verb = match tag {
                    Tag::Read => Verb::Read,
                    Tag::Trim => Verb::Trim,
                    _ => Verb::Write,
                };

                match tag {
                    Tag::Write => {
                        let first = self.take(1)?[0];
                        item.contents.extend(first..first + pages as u64);
                    }
                    Tag::WriteListed => item.contents.extend_from_slice(self.take(pages)?),
                    _ => {}
                }

                item.op = Op::Extent {
                    device,
                    verb,
                    offset,
                    len,
                };
            }
            Tag::Copy | Tag::Move | Tag::CopyAtomic | Tag::MoveAtomic => {
                let &[target, source, count] = self.take(3)? else {
                    unreachable!("three words were asked for")
                };

                item.op = Op::Moved(Moved {
                    at_ns,
                    target,
                    source,
                    count,
                    relocate: matches!(tag, Tag::Move | Tag::MoveAtomic),
                    atomic: matches!(tag, Tag::CopyAtomic | Tag::MoveAtomic),
                });
            }
            Tag::Flush => item.op = Op::Flush,
        }

        Ok(true)
    }
}

/// A trace that was read, as a source.
pub struct Replay {
    trace: Decoded,
    cursor: Cursor,
    expander: Expander,
    options: TraceOptions,
    item: Item,
    rounds_left: u32,
    rounds: u64,
    round: u64,
    /// Added to the times of this round, and the last time handed out.
    offset_ns: u64,
    at_ns: u64,
}

impl Replay {
    fn begin_round(&mut self) {
        self.rounds_left -= 1;
        self.round += 1;
        self.offset_ns = self.at_ns;
        self.cursor = self.trace.cursor();
        let shift = self.options.content_base + self.round * (self.trace.content_end - 1);
        self.expander.again(self.options.fold, shift);
    }
}

impl Source for Replay {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let start = out.len();
        while out.len() - start < want.max(1) {
            let read = self.cursor.next(&self.trace.devices, &mut self.item);
            let more = read.map_err(|source| SourceError::Io {
                file: self.trace.path.display().to_string(),
                source,
            })?;

            if more {
                self.item.at_ns += self.offset_ns;
                self.at_ns = self.item.at_ns;
                self.expander.expand(&self.item, out);
                continue;
            }

            if self.rounds_left == 0 {
                break;
            }
            self.begin_round();
        }

        Ok(out.len() > start)
    }

    fn skipped(&self) -> u64 {
        self.trace.stat.skipped * (self.round + 1)
    }

    fn len_hint(&self) -> Option<u64> {
        let TraceStat {
            reads,
            writes,
            read_modify_writes,
            trims,
            remaps,
            ..
        } = self.trace.stat;
        Some((reads + writes + read_modify_writes + trims + remaps) * self.rounds)
    }
}

/// Counts what is in a trace while it is read.
struct Census {
    expander: Expander,
    pages: Vec<HostPage>,
    seen: PageSet,
    /// Contents have numbers in the order in which they came: a larger one is new.
    content_max: u64,
    total: TraceStat,
}

impl Census {
    fn new(options: &TraceOptions) -> Self {
        Self {
            expander: Expander::new(options, 0),
            pages: Vec::new(),
            seen: PageSet::default(),
            content_max: 0,
            total: TraceStat::default(),
        }
    }

    /// Counts a request; `false` if it has no page to act upon.
    #[inline]
    fn count(&mut self, item: &Item) -> bool {
        self.pages.clear();
        if !self.expander.expand(item, &mut self.pages) {
            return false;
        }

        for page in &self.pages {
            match page.kind {
                PageKind::Read => self.total.reads += 1,
                PageKind::Write | PageKind::WriteFor { .. } => {
                    self.total.writes += 1;
                    self.total.duplicate_writes += u64::from(page.content <= self.content_max);
                    self.content_max = self.content_max.max(page.content);
                }
                PageKind::ReadModifyWrite => {
                    self.total.read_modify_writes += 1;
                    self.content_max = self.content_max.max(page.content);
                }
                PageKind::Trim => self.total.trims += 1,
                PageKind::Remap { len, .. } => self.total.remaps += u64::from(len),
                PageKind::Flush => continue,
            }

            self.seen.insert(page.lpn);
            self.total.duration_ns = page.at_ns;
        }

        true
    }

    fn total(mut self) -> TraceStat {
        self.total.unique_pages = self.seen.len();
        self.total
    }
}

/// A set of pages, as bits in chunks that are there when needed.
///
/// Pages go in some at a time, so that the processor fetches the bits of all of them at once.
#[derive(Default)]
struct PageSet {
    chunks: Vec<Option<Box<[u64; CHUNK_WORDS]>>>,
    /// To be put in.
    waiting: Vec<Lpn>,
    /// Pages that are in.
    len: u64,
}

const CHUNK_WORDS: usize = 512;
const WAITING_MAX: usize = 64;

impl PageSet {
    #[inline]
    fn insert(&mut self, page: Lpn) {
        if self.waiting.len() == WAITING_MAX {
            self.settle();
        }

        let (chunk, word) = Self::place(page);
        if let Some(Some(chunk)) = self.chunks.get(chunk) {
            prefetch(&chunk[..], word);
        }
        self.waiting.push(page);
    }

    /// Distinct pages that were put in.
    fn len(&mut self) -> u64 {
        self.settle();
        self.len
    }

    fn settle(&mut self) {
        for page in self.waiting.drain(..) {
            let (chunk, word) = Self::place(page);
            if chunk >= self.chunks.len() {
                self.chunks.resize(chunk + 1, None);
            }

            let chunk = self.chunks[chunk].get_or_insert_with(|| Box::new([0; CHUNK_WORDS]));
            let bit = 1 << (page.0 % 64);
            self.len += u64::from(chunk[word] & bit == 0);
            chunk[word] |= bit;
        }
    }

    fn place(page: Lpn) -> (usize, usize) {
        let word = page.index() / 64;
        (word / CHUNK_WORDS, word % CHUNK_WORDS)
    }
}
