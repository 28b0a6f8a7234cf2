//! Traces recorded elsewhere, as sources of page operations.
//!
//! ```text
//! file -> input (decompress, lines or records) -> one parser a format -> Request -> order (of times)
//!      -> address (cut at page boundaries, fold) and identity (contents) -> HostPage
//! ```
//!
//! Everything streams: memory grows with the distinct contents and, when compacting, distinct
//! pages, never with the length of a trace. Invariants: all records before a malformed one are
//! delivered before its error; a trace without a single usable request is an error; times count
//! from the first request and never decrease (`order` sorts requests that are out of order, and
//! counts them). Contents: a page written whole has the identity of its digest if the trace has one
//! for exactly these 4 KiB, and a fresh one otherwise, so that a trace without digests has no
//! duplicates; a page written in part always has a fresh one. Absent: the fields of each format
//! (its parser's), and the rate of replay (the run's).

mod action;
mod address;
mod alibaba;
mod biosnoop;
mod blkparse;
mod blktrace;
mod cloudphysics;
mod columns;
mod container;
mod decoded;
mod disksim;
mod expand;
mod fast21;
mod file;
mod fio;
mod fiu;
mod format;
mod guess;
mod gzip;
mod heading;
mod identity;
mod input;
mod keys;
mod mqsim;
mod msr;
mod names;
mod oracle_general;
mod order;
mod parser;
mod profile;
mod record;
pub mod session;
mod spc;
mod stat;
mod systor;
mod tencent;
mod vscsi;
mod write;

use std::path::Path;

pub use action::Action;
pub use address::{Cut, DevicePage, Fold, Folder, cut};
pub use columns::Columns;
pub use decoded::{Decoded, Replay};
pub use file::{WriteTraceError, WrittenTrace, write_file};
pub use format::Format;
pub use names::{FormatError, UnknownName};
pub use profile::{Duplicates, PageClasses, Profile, Profiler, Requests, Skew, profile};
pub use stat::{TraceStat, stat};
pub use write::TraceWriter;

use crate::source::{HostPage, Source, SourceError};
use expand::{Expander, Item, Op};
use identity::{Identities, Key};
use input::Input;
use keys::Keys;
use order::{Order, TimedOp};
use parser::{ParsedRecord, Parser};
use record::{Digests, Parsed};
use remap_ssd_device::DeviceConfig;

/// Options of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Logical pages of the device to replay on; every page is folded below this.
    pub addressable: u64,
    /// Mapping of disk pages to device pages.
    pub fold: Fold,
    /// Count malformed records and continue, instead of stopping at the first.
    pub skip_bad: bool,
    /// The action whose `blkparse` or `blktrace` events are the requests. `None`: the first of
    /// queued, issued and completed that occurs at the beginning of the file.
    pub action: Option<Action>,
    /// Contents get identities larger than this. Those up to it stay free for data written before
    /// the trace begins.
    pub content_base: u64,
    /// Replay flushes, where the format has them: each waits for all requests before it, and all
    /// after it wait for it.
    pub flushes: bool,
}

impl TraceOptions {
    /// The defaults, for a device of `addressable` pages.
    pub fn new(addressable: u64) -> Self {
        Self {
            addressable,
            fold: Fold::default(),
            skip_bad: false,
            action: None,
            content_base: 0,
            flushes: false,
        }
    }
}

/// A trace file being replayed, without keeping it.
///
/// ```
/// use remap_ssd_sim::source::Source;
/// use remap_ssd_sim::trace::{Format, TraceOptions, TraceReader};
/// let text = b"0,W,0,8192,1000\n0,W,0,4096,1500\nnonsense\n";
/// let options = TraceOptions { skip_bad: true, ..TraceOptions::new(100) };
/// let mut reader = TraceReader::of_bytes("disk.csv", text, Some(Format::Alibaba), options)?;
///
/// let mut pages = Vec::new();
/// while reader.fill(&mut pages, 10)? {}
/// assert_eq!((pages.len(), reader.requests()), (3, 2));
/// assert_eq!((reader.skipped(), reader.ignored(), reader.torn()), (1, 0, None));
/// assert_eq!(reader.content_end(), 4); // three new contents, from 1
/// assert!(reader.device().is_none() && reader.format() == Format::Alibaba);
/// assert!(reader.notes().is_empty() && !reader.has_digests()); // in order, contents unknown
///
/// let error = TraceReader::open("nowhere.csv", None, options).err().ok_or("it is not there")?;
/// assert!(error.to_string().starts_with("nowhere.csv: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceReader {
    decoder: Decoder,
    expander: Expander,
    skip_bad: bool,
    item: Item,
    counts: Counts,
    /// The end has been reached; nothing more is read.
    ended: bool,
    /// The error at the end, until it is returned.
    failure: Option<SourceError>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    skipped: u64,
    ignored: u64,
}

/// A trace file being read: requests as they were recorded, with times and contents made into
/// numbers.
struct Decoder {
    input: Input,
    parser: Parser,
    flushes: bool,
    digests: Digests,
    identities: Identities,
    order: Order,
    /// The record that ends the requests waiting in `order`, once it has been read.
    after: Option<AheadRecord>,
    skip_bad: bool,
    ahead: Ahead,
    /// The device named by a session.
    device: Option<Box<DeviceConfig>>,
    /// Line number of the partial record at the end of a session.
    torn: Option<u64>,
}

/// Records parsed ahead, with the lookups of their contents pending, so that many lookups overlap.
#[derive(Default)]
struct Ahead {
    records: Vec<AheadRecord>,
    /// Number of records returned.
    taken: usize,
    /// Keys of the pages of all these records, in order.
    keys: Vec<Key>,
    keys_taken: usize,
}

/// Records parsed ahead, fewer if they have many pages.
const RECORDS_AHEAD: usize = 32;
const KEYS_AHEAD: usize = 512;

impl TraceReader {
    /// Opens a trace. Without a `format`, the content determines it.
    ///
    /// # Errors
    /// The file cannot be read, its format is unknown, or it is damaged at the beginning.
    pub fn open(
        path: impl AsRef<Path>,
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        Self::begin(Input::open(path.as_ref())?, format, options)
    }

    /// Like `open`, for bytes in memory; `name` replaces the file name in messages.
    ///
    /// # Errors
    /// As `open`.
    pub fn of_bytes(
        name: &str,
        bytes: &'static [u8],
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        Self::begin(Input::of(name.to_owned(), bytes)?, format, options)
    }

    fn begin(
        opened: (Input, Vec<u8>),
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        // Pages are taken modulo this number: it must not be zero.
        if options.addressable == 0 {
            return Err(opened
                .0
                .unusable("there is no page to replay on: addressable is 0"));
        }

        Ok(Self {
            decoder: Decoder::begin(opened, format, &options)?,
            expander: Expander::new(&options, 0),
            skip_bad: options.skip_bad,
            item: Item::default(),
            counts: Counts::default(),
            ended: false,
            failure: None,
        })
    }

    /// The format being read, given or guessed.
    pub fn format(&self) -> Format {
        self.decoder.parser.format()
    }

    /// The recorded device, if the trace names it (sessions do).
    pub fn device(&self) -> Option<&DeviceConfig> {
        self.decoder.device.as_deref()
    }

    /// Number of requests delivered so far.
    pub fn requests(&self) -> u64 {
        self.counts.requests
    }

    /// Malformed records skipped so far (`skip_bad`).
    pub fn skipped(&self) -> u64 {
        self.counts.skipped
    }

    /// Well-formed records so far that are not requests: other actions, flushes, other SCSI
    /// commands, deallocations of no whole page; blank lines do not count.
    pub fn ignored(&self) -> u64 {
        self.counts.ignored
    }

    /// Line number of the partial record at the end of a session, which is left out. A server
    /// killed while recording leaves one. Known once the end has been reached.
    pub fn torn(&self) -> Option<u64> {
        self.decoder.torn
    }

    /// Remarks for the user, one sentence each: requests were reordered, which action was taken.
    /// Complete once the end has been reached.
    pub fn notes(&self) -> Vec<String> {
        self.decoder.notes()
    }

    /// All content identities given so far are below this one and above the base.
    pub fn content_end(&self) -> u64 {
        self.decoder.identities.end()
    }

    /// Returns true if a page written so far has a recorded digest: its content is known.
    pub fn has_digests(&self) -> bool {
        self.decoder.identities.has_digests()
    }

    /// Reads on until one request is delivered; `false` at the end of the file.
    fn deliver(&mut self, out: &mut Vec<HostPage>) -> Result<bool, SourceError> {
        loop {
            match self.decoder.next(&mut self.item)? {
                NextRecord::Item if self.expander.expand(&self.item, out) => {
                    self.counts.requests += 1;
                    return Ok(true);
                }
                NextRecord::Item | NextRecord::Ignored => self.counts.ignored += 1,
                NextRecord::Malformed(_) if self.skip_bad => self.counts.skipped += 1,
                NextRecord::Malformed(error) => return Err(error),
                NextRecord::End if self.counts.requests == 0 => {
                    return Err(self.decoder.nothing(self.counts));
                }
                NextRecord::End => return Ok(false),
            }
        }
    }
}

/// The next record of a decoder.
enum NextRecord {
    /// A request; it is in the item.
    Item,
    Ignored,
    Malformed(SourceError),
    End,
}

/// A record parsed ahead.
enum AheadRecord {
    /// A request, and the number of its pages with contents.
    Item {
        at_ns: u64,
        op: Op,
        pages: usize,
    },
    Ignored,
    Malformed(Box<SourceError>),
    /// The file could not be read; nothing follows.
    Failed(Box<SourceError>),
    End {
        torn: Option<u64>,
    },
}

/// The next record of the file.
enum ReadRecord {
    Request(TimedOp),
    Ignored,
    Malformed(Box<SourceError>),
    End { torn: Option<u64> },
}

impl Decoder {
    fn begin(
        (mut input, sample): (Input, Vec<u8>),
        format: Option<Format>,
        options: &TraceOptions,
    ) -> Result<Self, SourceError> {
        // Distinguishes an empty file from one whose records are all ignored.
        if sample.is_empty() {
            return Err(input.unusable("replays to nothing: the file is empty"));
        }

        // Records of a named binary format may begin with any bytes.
        let is_binary = format.is_some_and(Format::is_binary);
        if let Some(what) = container::named(&sample).filter(|_| !is_binary) {
            return Err(input.unusable(what));
        }

        // A named format is not checked: a sample may begin with unusual lines.
        let Some(format) = format.or_else(|| Format::guess(&sample)) else {
            let names = Format::NAMES;
            return Err(input.unusable(format!("the content is of no known format; name {names}")));
        };

        // Only a session names its device.
        let device = match format {
            Format::Session => session::device(&sample).map(Box::new),
            _ => None,
        };

        // The parser comes first: one parser reads the version from the input.
        Ok(Self {
            parser: Parser::new(format, options.action, &mut input, &sample)?,
            input,
            flushes: options.flushes,
            digests: Digests::default(),
            identities: Identities::above(options.content_base),
            // The lines of a session are in order: never sorted by their times.
            order: Order::within(match format {
                Format::Session => 0,
                _ => order::WINDOW,
            }),
            after: None,
            skip_bad: options.skip_bad,
            ahead: Ahead::default(),
            device,
            torn: None,
        })
    }

    /// Returns the next record; a request is stored in `item`.
    #[inline]
    fn next(&mut self, item: &mut Item) -> Result<NextRecord, SourceError> {
        // Many at a time, so that their digest lookups overlap.
        if self.ahead.taken == self.ahead.records.len() {
            self.look_ahead();
        }

        let record = &mut self.ahead.records[self.ahead.taken];
        match record {
            AheadRecord::Item { at_ns, op, pages } => {
                (item.at_ns, item.op) = (*at_ns, *op);
                // Reuses the buffer: no allocation per record.
                item.contents.clear();

                let end = self.ahead.keys_taken + *pages;
                let keys = &self.ahead.keys[self.ahead.keys_taken..end];
                item.contents
                    .extend(keys.iter().map(|key| self.identities.of(*key)));
                (self.ahead.keys_taken, self.ahead.taken) = (end, self.ahead.taken + 1);
                Ok(NextRecord::Item)
            }
            // The end stays in place.
            AheadRecord::End { torn } => {
                self.torn = *torn;
                Ok(NextRecord::End)
            }
            _ => {
                self.ahead.taken += 1;
                // Moved out, since an error is not `Clone`; its replacement is ignored.
                match std::mem::replace(record, AheadRecord::Ignored) {
                    AheadRecord::Malformed(error) => Ok(NextRecord::Malformed(*error)),
                    AheadRecord::Failed(error) => Err(*error),
                    _ => Ok(NextRecord::Ignored),
                }
            }
        }
    }

    /// Parses the next records, up to a bound of records and of pages.
    fn look_ahead(&mut self) {
        self.ahead.records.clear();
        self.ahead.keys.clear();
        (self.ahead.taken, self.ahead.keys_taken) = (0, 0);

        while self.ahead.records.len() < RECORDS_AHEAD && self.ahead.keys.len() < KEYS_AHEAD {
            let record = self.next_in_order();
            let is_last = matches!(record, AheadRecord::Failed(_) | AheadRecord::End { .. });
            self.ahead.records.push(record);
            if is_last {
                break;
            }
        }
    }

    /// Returns the next record: requests in the order of their times, all before the record that
    /// ends them.
    fn next_in_order(&mut self) -> AheadRecord {
        loop {
            if let Some(request) = self.order.take_full() {
                return self.looked_up(request);
            }
            if self.after.is_some() {
                return match self.order.take() {
                    Some(request) => self.looked_up(request),
                    None => self.after.take().expect("it is there"),
                };
            }

            match self.read() {
                Ok(ReadRecord::Request(request)) => self.order.put(request),
                Ok(ReadRecord::Ignored) => return AheadRecord::Ignored,
                // A malformed record that is only counted ends nothing.
                Ok(ReadRecord::Malformed(error)) if self.skip_bad => {
                    return AheadRecord::Malformed(error);
                }
                Ok(ReadRecord::Malformed(error)) => {
                    self.after = Some(AheadRecord::Malformed(error));
                }
                Ok(ReadRecord::End { torn }) => self.after = Some(AheadRecord::End { torn }),
                Err(error) => self.after = Some(AheadRecord::Failed(error.into())),
            }
        }
    }

    /// Starts the lookups of a request's contents.
    #[inline]
    fn looked_up(&mut self, request: TimedOp) -> AheadRecord {
        let TimedOp { at_ns, op, keys } = request;
        let before = self.ahead.keys.len();

        match keys {
            Keys::Fresh(count) => self.ahead.keys.resize(before + count, Key::Fresh),
            Keys::One(key) => self.ahead.keys.push(key),
            Keys::Many(keys) => self.ahead.keys.extend(keys),
        }
        for key in &self.ahead.keys[before..] {
            self.identities.look_ahead(*key);
        }

        let pages = self.ahead.keys.len() - before;
        AheadRecord::Item { at_ns, op, pages }
    }

    /// Reads the next record.
    fn read(&mut self) -> Result<ReadRecord, SourceError> {
        loop {
            // An I/O error ends here; an unreadable line is a record.
            let parsed = match self.parser.next(&mut self.input, &mut self.digests)? {
                ParsedRecord::Parsed(parsed) => parsed,
                ParsedRecord::Blank => continue,
                ParsedRecord::End => return Ok(ReadRecord::End { torn: None }),
            };

            // Every record of a session ends its line. One that does not was cut by a killed server
            // or a power failure; it may parse as a shorter request than was made.
            if matches!(self.parser, Parser::Session) && self.input.unended().is_some() {
                let torn = self.input.unended();
                return Ok(ReadRecord::End { torn });
            }

            // Flushes are replayed only on request, since most formats have none.
            let (at_ns, op, keys) = match parsed {
                Ok(Parsed::Request(request)) => {
                    let op = Op::Extent {
                        device: request.device,
                        verb: request.verb,
                        offset: request.offset,
                        len: request.len,
                    };
                    (request.at_ns, op, Keys::of(&request, &self.digests))
                }
                Ok(Parsed::Moved(moved)) => (moved.at_ns, Op::Moved(moved), Keys::Fresh(0)),
                Ok(Parsed::Flush(at_ns)) if self.flushes => (at_ns, Op::Flush, Keys::Fresh(0)),
                Ok(Parsed::Ignored | Parsed::Empty | Parsed::Better(_) | Parsed::Flush(_)) => {
                    return Ok(ReadRecord::Ignored);
                }
                Ok(Parsed::Blank) => continue,
                Err(reason) => {
                    return Ok(ReadRecord::Malformed(self.input.malformed(reason).into()));
                }
            };

            // The time of a refused record does not affect the check of later times.
            return Ok(match self.order.check(at_ns) {
                Ok(()) => ReadRecord::Request(TimedOp { at_ns, op, keys }),
                Err(reason) => ReadRecord::Malformed(self.input.malformed(reason).into()),
            });
        }
    }

    fn notes(&self) -> Vec<String> {
        let disorder = self.order.disorder();
        let action = self.parser.wanted().and_then(|wanted| wanted.note());
        let order = (disorder.earlier > 0).then(|| disorder.to_string());
        action.into_iter().chain(order).collect()
    }

    /// The error for a trace with nothing to replay, with the counts of other records.
    fn nothing(&self, counts: Counts) -> SourceError {
        let Counts {
            skipped, ignored, ..
        } = counts;
        let hint = match self.parser.wanted() {
            Some(wanted) => format!("; only events with action {} are taken", wanted.action),
            None => String::new(),
        };
        self.input.unusable(format!(
            "replays to nothing: {ignored} records that are no requests, {skipped} malformed{hint}"
        ))
    }
}

impl Source for TraceReader {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        let start = out.len();
        while !self.ended && out.len() - start < want.max(1) {
            match self.deliver(out) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    // Pages read before the error are delivered first.
                    self.ended = true;
                    self.failure = Some(error);
                }
            }
        }
        if out.len() > start {
            return Ok(true);
        }
        self.failure.take().map_or(Ok(false), Err)
    }

    fn skipped(&self) -> u64 {
        self.counts.skipped
    }
}
