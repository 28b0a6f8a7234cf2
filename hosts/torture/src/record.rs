//! The requests on a disk, in one order: writes with their contents, flushes, completions and
//! marks.
//!
//! Invariants: a request's completion comes after its submission; concurrent requests take effect
//! in the order of their submissions. Absent: the effect of a power cut (`cut`), and time.

use crate::array::{Array, DiskGeometry};
use crate::contents::{ContentId, Contents, ZEROES};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An entry of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write was submitted; it may be lost until it is durable.
    Write {
        /// First block of the range.
        block: u64,
        /// Numbers of its contents, as a range of `Recording::words`.
        words: Range<usize>,
        /// Durable on completion (FUA).
        through: bool,
    },
    /// Blocks become zeroes: Write Zeroes, or Deallocate.
    Zero {
        /// First block of the range.
        block: u64,
        /// Number of blocks.
        count: u64,
    },
    /// A flush was submitted; it guarantees nothing until it is completed.
    Flush,
    /// The request with this index is completed.
    Done(u32),
    /// The workload has acknowledged an operation; an index into `Recording::marks`.
    Mark(u32),
    /// The workload began: earlier entries prepared the disk.
    Start,
    /// The workload ended, normally or not.
    End,
}

/// Origin of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct About {
    /// The file system; none: the workload used the raw disk.
    pub fs: Option<String>,
    /// Mount options of the file system.
    pub mount_options: Option<String>,
    /// Shell command of the workload.
    pub workload: String,
    /// Shell command of the check.
    pub check: String,
    /// The disk was served over NVMe/TCP, not as a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvme_tcp: bool,
    /// Faults injected during the workload, as on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// A finished recording of a workload.
#[derive(Clone)]
pub struct Recording {
    /// Block size and number of blocks of the disk.
    pub shape: DiskGeometry,
    /// Its origin, for a rerun.
    pub about: About,
    /// Requests, completions and marks in order.
    pub events: Vec<Event>,
    /// Content numbers of all writes, in order.
    pub words: Vec<ContentId>,
    /// Texts of the marks, by number.
    pub marks: Vec<String>,
    /// The contents by number.
    pub contents: Contents,
}

impl Recording {
    /// Instants of the workload: a cut at `i` comes before entry `i`.
    pub(crate) fn instants(&self) -> Range<usize> {
        let find = |event| self.events.iter().position(|other| *other == event);
        let start = find(Event::Start).map_or(0, |at| at + 1);
        start..find(Event::End).unwrap_or(self.events.len()) + 1
    }

    /// The marks before an instant.
    pub fn marks_before(&self, instant: usize) -> impl Iterator<Item = &str> {
        self.events[..instant]
            .iter()
            .filter_map(|event| match event {
                Event::Mark(index) => Some(self.marks[*index as usize].as_str()),
                _ => None,
            })
    }

    /// Counts the workload's writes that are longer than this.
    pub fn writes_longer_than(&self, bytes: u64) -> u64 {
        let block_bytes = u64::from(self.shape.block_bytes);
        self.count(|event| match event {
            Event::Write { words, .. } => words.len() as u64 * block_bytes > bytes,
            _ => false,
        })
    }

    /// Counts the workload's entries of a kind.
    pub fn count(&self, kind: impl Fn(&Event) -> bool) -> u64 {
        let Range { start, end } = self.instants();
        self.events[start..end.min(self.events.len())]
            .iter()
            .filter(|event| kind(event))
            .count() as u64
    }
}

/// A disk that records its requests.
pub(crate) struct Recorder {
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
        // The current contents are kept too, for reads.
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

        // Zeroes can be lost like writes. With FUA they are recorded as a write of zeroes with FUA.
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
    /// Creates a disk of zeroes.
    ///
    /// # Errors
    /// There is no room for its contents.
    pub(crate) fn new(shape: DiskGeometry) -> io::Result<Self> {
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

    /// Submission and completion are separate steps: other requests may come between them, as on
    /// any disk.
    fn request(&self, submit: impl FnOnce(&mut DiskState) -> io::Result<u32>) -> io::Result<()> {
        let index = submit(&mut self.state())?;
        self.state().submit(Event::Done(index)).map(drop)
    }

    /// Adds the start or the end of the workload, or any other entry that is no request.
    ///
    /// # Errors
    /// The record is full.
    pub(crate) fn note(&self, event: Event) -> io::Result<()> {
        self.state().submit(event).map(drop)
    }

    /// Records the submission of a write of whole blocks; returns its entry, for `done`.
    ///
    /// # Errors
    /// There is no room for the contents, or the record is full.
    pub(crate) fn submit_write(&self, offset: u64, data: &[u8], through: bool) -> io::Result<u32> {
        let (block, _, _) = self.shape.cover(offset, data.len() as u64);
        let block_bytes = self.shape.block_bytes as usize;
        self.state().write(block, data, block_bytes, through)
    }

    /// Records the submission of zeroing whole blocks; returns its entry, for `done`.
    ///
    /// # Errors
    /// The record is full.
    pub(crate) fn submit_zero(&self, offset: u64, len: u64, through: bool) -> io::Result<u32> {
        let (block, count, _) = self.shape.cover(offset, len);
        self.state().zero(block, count, through)
    }

    /// Records the submission of a flush; returns its entry, for `done`.
    ///
    /// # Errors
    /// The record is full.
    pub(crate) fn submit_flush(&self) -> io::Result<u32> {
        self.state().submit(Event::Flush)
    }

    /// Records the completion of a request.
    ///
    /// # Errors
    /// The record is full.
    pub(crate) fn done(&self, request: u32) -> io::Result<()> {
        self.note(Event::Done(request))
    }

    /// Adds a mark for each line.
    pub(crate) fn mark(&self, lines: &[u8]) {
        let mut state = self.state();
        for line in String::from_utf8_lossy(lines)
            .lines()
            .filter(|line| !line.is_empty())
        {
            let index = state.marks.len() as u32;
            // A full recording fails the next write, which ends the workload.
            if state.submit(Event::Mark(index)).is_ok() {
                state.marks.push(line.to_owned());
            }
        }
    }

    /// Takes the recording out. The disk is unusable afterwards.
    pub(crate) fn finish(&self, about: About) -> Recording {
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

        // Only whole blocks are zeroed: partial blocks are written.
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
