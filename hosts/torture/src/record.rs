//! What a disk was asked to do, in one order: writes with their contents, flushes, completions and
//! marks.
//!
//! Invariants: a request's completion comes after its submission; requests that overlap in time
//! have the order of their submissions. Absent: what a power cut leaves of it (`cut`), and time.

use crate::array::{Array, DiskGeometry};
use crate::contents::{ContentId, Contents, ZEROES};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One entry of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write was submitted; it may be lost until it is durable.
    Write {
        /// First block of the range.
        block: u64,
        /// Its contents' numbers, as a range of `Recording::words`.
        words: Range<usize>,
        /// Durable once it is completed (FUA).
        through: bool,
    },
    /// Blocks are to read as zeroes: Write Zeroes, or Deallocate.
    Zero {
        /// First block of the range.
        block: u64,
        /// How many blocks it is about.
        count: u64,
    },
    /// A flush was submitted; it promises nothing until it is done.
    Flush,
    /// The request of that index is completed.
    Done(u32),
    /// The workload has acknowledged something; an index of `Recording::marks`.
    Mark(u32),
    /// The workload began: what is before prepared the disk.
    Start,
    /// The workload has ended, however it did.
    End,
}

/// What was recorded, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct About {
    /// The file system; none: the workload used the disk itself.
    pub fs: Option<String>,
    /// Options that the file system is mounted with.
    pub mount_options: Option<String>,
    /// Shell command of the workload.
    pub workload: String,
    /// Shell command of the check.
    pub check: String,
    /// The disk was behind NVMe/TCP, and not behind a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvme_tcp: bool,
    /// What the disk did to the workload besides, as on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// A finished recording of a workload.
#[derive(Clone)]
pub struct Recording {
    /// Block size and number of blocks of the disk.
    pub shape: DiskGeometry,
    /// What was recorded, to run it again.
    pub about: About,
    /// Requests, completions and marks in order.
    pub events: Vec<Event>,
    /// Numbers of the contents that writes have, in their order.
    pub words: Vec<ContentId>,
    /// Texts of the marks, by number.
    pub marks: Vec<String>,
    /// What the numbers stand for.
    pub contents: Contents,
}

impl Recording {
    /// Instants at which the workload ran: a cut at `i` comes before the entry `i`.
    pub fn instants(&self) -> Range<usize> {
        let find = |event| self.events.iter().position(|other| *other == event);
        let start = find(Event::Start).map_or(0, |at| at + 1);
        start..find(Event::End).unwrap_or(self.events.len()) + 1
    }

    /// The marks that came before an instant.
    pub fn marks_before(&self, instant: usize) -> impl Iterator<Item = &str> {
        self.events[..instant]
            .iter()
            .filter_map(|event| match event {
                Event::Mark(index) => Some(self.marks[*index as usize].as_str()),
                _ => None,
            })
    }

    /// How many entries of the workload are of a kind.
    pub fn count(&self, kind: impl Fn(&Event) -> bool) -> u64 {
        let Range { start, end } = self.instants();
        self.events[start..end.min(self.events.len())]
            .iter()
            .filter(|event| kind(event))
            .count() as u64
    }
}

/// A disk that records what it is asked.
pub struct Recorder {
    shape: DiskGeometry,
    state: Mutex<DiskState>,
}

struct DiskState {
    now: Vec<ContentId>,
    contents: Contents,
    events: Vec<Event>,
    words: Vec<ContentId>,
    marks: Vec<String>,
}

impl DiskState {
    fn submit(&mut self, event: Event) -> io::Result<u32> {
        let index =
            u32::try_from(self.events.len()).map_err(|_| io::Error::other("the record is full"))?;
        self.events.push(event);
        Ok(index)
    }

    fn read_block(&self, block: u64, into: &mut [u8]) -> io::Result<()> {
        self.contents.get(self.now[block as usize], into)
    }

    fn write(
        &mut self,
        block: u64,
        data: &[u8],
        block_bytes: usize,
        through: bool,
    ) -> io::Result<u32> {
        let start = self.words.len();
        // What the disk has now is kept too, for reads.
        for (at, bytes) in (block as usize..).zip(data.chunks(block_bytes)) {
            let id = self.contents.put(bytes)?;
            self.words.push(id);
            self.now[at] = id;
        }

        self.submit(Event::Write {
            block,
            words: start..self.words.len(),
            through,
        })
    }

    fn zero(&mut self, block: u64, count: u64, through: bool) -> io::Result<u32> {
        self.now[block as usize..(block + count) as usize].fill(ZEROES);

        // Zeroes are lost like writes. Those with FUA are a write of zeroes with FUA.
        if !through {
            return self.submit(Event::Zero { block, count });
        }
        let start = self.words.len();
        self.words.resize(start + count as usize, ZEROES);
        self.submit(Event::Write {
            block,
            words: start..self.words.len(),
            through,
        })
    }
}

impl Recorder {
    /// A disk of zeroes.
    ///
    /// # Errors
    /// There is no room for what it will hold.
    pub fn new(shape: DiskGeometry) -> io::Result<Self> {
        let contents = Contents::new(shape.block_bytes as usize)?;
        let now = vec![ZEROES; shape.blocks as usize];
        let state = DiskState {
            now,
            contents,
            events: Vec::new(),
            words: Vec::new(),
            marks: Vec::new(),
        };
        Ok(Self {
            shape,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submission and completion take turns of their own: other requests may come between them, as
    /// on any disk.
    fn request(&self, submit: impl FnOnce(&mut DiskState) -> io::Result<u32>) -> io::Result<()> {
        let index = submit(&mut self.state())?;
        self.state().submit(Event::Done(index)).map(drop)
    }

    /// Adds the start or the end of the workload, or any other entry that is no request.
    ///
    /// # Errors
    /// The record is full.
    pub fn note(&self, event: Event) -> io::Result<()> {
        self.state().submit(event).map(drop)
    }

    /// A write of whole blocks was submitted, from this byte on: its entry, for `done`.
    ///
    /// # Errors
    /// There is no room for the contents, or the record is full.
    pub fn submit_write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<u32> {
        let (block, _, _) = self.shape.cover(offset, data.len() as u64);
        let block_bytes = self.shape.block_bytes as usize;
        self.state().write(block, data, block_bytes, through)
    }

    /// Whole blocks become zeroes: its entry, for `done`.
    ///
    /// # Errors
    /// The record is full.
    pub fn submit_zero(&self, offset: u64, len: u64, through: bool) -> io::Result<u32> {
        let (block, count, _) = self.shape.cover(offset, len);
        self.state().zero(block, count, through)
    }

    /// A flush was submitted: its entry, for `done`.
    ///
    /// # Errors
    /// The record is full.
    pub fn submit_flush(&self) -> io::Result<u32> {
        self.state().submit(Event::Flush)
    }

    /// The request of that entry is completed.
    ///
    /// # Errors
    /// The record is full.
    pub fn done(&self, request: u32) -> io::Result<()> {
        self.note(Event::Done(request))
    }

    /// Adds a mark for each line.
    pub fn mark(&self, lines: &[u8]) {
        let mut state = self.state();
        for line in String::from_utf8_lossy(lines)
            .lines()
            .filter(|line| !line.is_empty())
        {
            let index = state.marks.len() as u32;
            // A record that is full refuses the next write, which ends the workload.
            if state.submit(Event::Mark(index)).is_ok() {
                state.marks.push(line.to_owned());
            }
        }
    }

    /// Takes the record out. The disk is of no use any more.
    pub fn finish(&self, about: About) -> Recording {
        let mut state = self.state();
        Recording {
            shape: self.shape,
            about,
            events: std::mem::take(&mut state.events),
            words: std::mem::take(&mut state.words),
            marks: std::mem::take(&mut state.marks),
            contents: state.contents.clone(),
        }
    }
}

impl Array for Recorder {
    fn shape(&self) -> DiskGeometry {
        self.shape
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (first, count, before) = self.shape.cover(offset, into.len() as u64);
        let mut blocks = vec![0; count as usize * self.shape.block_bytes as usize];
        let state = self.state();
        for (block, bytes) in (first..).zip(blocks.chunks_mut(self.shape.block_bytes as usize)) {
            state.read_block(block, bytes)?;
        }
        into.copy_from_slice(&blocks[before..before + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<()> {
        self.request(|state| {
            let (block, whole) = self
                .shape
                .whole(offset, data, |block, into| state.read_block(block, into))?;
            state.write(block, &whole, self.shape.block_bytes as usize, through)
        })
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let (parts, blocks) = self.shape.split(offset, len);

        // Blocks are zeroed whole or not at all: parts of them are written.
        for part in parts {
            self.write(
                part.start,
                &vec![0; (part.end - part.start) as usize],
                false,
            )?;
        }

        if blocks.is_empty() {
            return Ok(());
        }

        self.request(|state| state.zero(blocks.start, blocks.end - blocks.start, false))
    }

    fn flush(&self) -> io::Result<()> {
        self.request(|state| state.submit(Event::Flush))
    }
}
