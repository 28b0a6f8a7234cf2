//! A trace read once, for any number of replays: on devices of other sizes, and repeatedly.
//!
//! Requests are stored as recorded, before cutting and folding, in words of 64 bits: four for one
//! of a single content, and one more for each further content that does not follow the previous
//! one. Up to `MEMORY_WORDS` they stay in memory; a longer trace goes to an unnamed temporary file,
//! so that memory does not grow with its length. Invariants: a replay delivers the same pages as a
//! `TraceReader` of the same file; each round has new contents, and its times continue from the end
//! of the last round. Absent: formats.

mod census;
mod words;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use census::Census;
use remap_ssd_device::DeviceConfig;
use words::{Cursor, Keeper, Words};

use super::expand::{Expander, Item};
use super::input::Input;
use super::{Counts, Decoder, Format, NextRecord, TraceOptions, TraceStat};
use crate::source::{HostPage, Source, SourceError, TIME_MAX_NS};

/// Maximum words in memory: 512 MiB.
const MEMORY_WORDS: usize = 64 << 20;

/// A trace in memory, or in a temporary file if it is large.
///
/// ```
/// use remap_ssd_sim::source::{HostLpn, Source};
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
/// assert_eq!((pages.len(), pages[0].lpn), (4, HostLpn::new(2)));
/// let same = Decoded::read_within(path, None, TraceOptions::new(100), 1)?;
/// assert_eq!(same.stat(), trace.stat());
///
/// // Of bytes from anywhere; the path is a name in messages.
/// let bytes = std::fs::File::open(path)?;
/// let same = Decoded::read_from(bytes, "a trace".as_ref(), None, TraceOptions::new(100))?;
/// assert_eq!(same.stat(), trace.stat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoded {
    path: PathBuf,
    format: Format,
    words: Words,
    /// Devices by their number in the words.
    devices: Arc<Vec<u64>>,
    /// Contents have numbers from 1, and below this one.
    content_end: u64,
    has_digests: bool,
    stat: TraceStat,
    device: Option<Box<DeviceConfig>>,
    torn: Option<u64>,
    notes: Vec<String>,
}

impl Decoded {
    /// Reads a whole trace, and counts its requests.
    ///
    /// # Errors
    /// As `TraceReader::open` and reading; or the temporary file cannot be written.
    pub fn read(
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        Self::read_within(path, format, options, MEMORY_WORDS)
    }

    /// Like `read`, with at most about `memory_words` words of 8 bytes in memory.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_within(
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
        memory_words: usize,
    ) -> Result<Self, SourceError> {
        Self::decode(Input::open(path)?, path, format, options, memory_words)
    }

    /// Like `read`, for bytes that the caller reads, compressed or not; `path` is the file name in
    /// messages. An error of `bytes` with an OS code is returned with that code.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_from(
        bytes: impl Read + Send + 'static,
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        let opened = Input::of(path.display().to_string(), bytes)?;
        Self::decode(opened, path, format, options, MEMORY_WORDS)
    }

    fn decode(
        opened: (Input, Vec<u8>),
        path: &Path,
        format: Option<Format>,
        options: TraceOptions,
        memory_words: usize,
    ) -> Result<Self, SourceError> {
        // Contents are counted from 1 here; a replay adds its base.
        let options = TraceOptions {
            content_base: 0,
            ..options
        };

        let mut decoder = Decoder::begin(opened, format, &options)?;
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

        // Malformed records alone are no trace.
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
            has_digests: decoder.identities.has_digests(),
            stat,
            notes: decoder.notes(),
            device: decoder.device,
            torn: decoder.torn,
        })
    }

    /// Path of the trace file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Format of the trace.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its counts, folded by the options.
    pub fn stat(&self) -> &TraceStat {
        &self.stat
    }

    /// Returns true if a page written has a recorded digest: its content is known.
    pub fn has_digests(&self) -> bool {
        self.has_digests
    }

    /// The recorded device, if the trace names it (sessions do).
    pub fn device(&self) -> Option<&DeviceConfig> {
        self.device.as_deref()
    }

    /// Line number of the partial record at the end of a session, which was left out.
    pub fn torn(&self) -> Option<u64> {
        self.torn
    }

    /// Remarks for the user, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Replays its requests `rounds` times. `options` must be those of reading except the
    /// addressable pages and the base of the contents.
    pub fn replay(&self, options: TraceOptions, rounds: u32) -> Replay {
        Replay {
            cursor: self.cursor(),
            expander: Expander::new(&options, options.content_base),
            trace: self.clone(),
            options,
            item: Item::default(),
            // The first round has begun already.
            rounds_left: rounds.saturating_sub(1),
            rounds: u64::from(rounds.max(1)),
            round: 0,
            offset_ns: 0,
            at_ns: 0,
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor::over(self.words.clone())
    }
}

/// A decoded trace, as a source.
pub struct Replay {
    trace: Decoded,
    cursor: Cursor,
    expander: Expander,
    options: TraceOptions,
    item: Item,
    rounds_left: u32,
    rounds: u64,
    round: u64,
    /// Offset of the times of this round, and the last time returned.
    offset_ns: u64,
    at_ns: u64,
}

impl Replay {
    fn begin_round(&mut self) {
        self.rounds_left -= 1;
        self.round += 1;
        self.offset_ns = self.at_ns;
        self.cursor = self.trace.cursor();

        // Contents of this round are above those of all earlier rounds.
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

            // Times of a later round continue from the end of the previous round.
            if more {
                self.item.at_ns = (self.item.at_ns + self.offset_ns).min(TIME_MAX_NS);
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
