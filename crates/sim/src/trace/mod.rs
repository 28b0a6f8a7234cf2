//! Traces recorded elsewhere, as sources of page operations.
//!
//! ```text
//! file -> input (decompress, lines or records) -> one parser a format -> Request
//!      -> address (cut at page boundaries, fold) and identity (contents) -> HostPage
//! ```
//!
//! Everything streams: memory grows with the distinct contents and, when compacting, distinct pages,
//! never with the length of a trace.
//! Invariants: whatever stands before a malformed record is delivered before its error; a trace
//! without a single usable request is an error; times count from the first request and never
//! decrease (a record that claims to be earlier than the one before it happens at the same time).
//! Contents: a page written whole has the identity of its digest if the trace has one for exactly
//! these 4 KiB, and a fresh one otherwise, so that a trace without digests has no duplicates; a page
//! written in part always has a fresh one.
//! Absent: formats' fields (each parser's), and how fast the requests are replayed (the run's).

pub mod address;
mod blkparse;
mod fiu;
mod format;
mod identity;
mod input;
mod mqsim;
mod msr;
mod profile;
mod record;
pub mod session;
mod stat;
mod vscsi;
mod write;

use std::path::Path;

pub use address::{Cut, DevicePage, Fold, Folder, PAGE_BYTES, cut};
pub use blkparse::Action;
pub use format::{Format, UnknownName};
pub use profile::{Duplicates, Pages, Profile, Profiler, Requests, Skew, profile};
pub use stat::{TraceStat, stat};
pub use write::TraceWriter;

use crate::source::{HostPage, PageKind, Source, SourceError};
use identity::Identities;
use input::{Input, Line};
use record::{Digests, Moved, Parsed, Reason, Request, Verb};

/// What a reader may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Logical pages of the device to replay on; every page is folded below this.
    pub addressable: u32,
    /// How pages fold.
    pub fold: Fold,
    /// Count malformed records and go on, instead of stopping at the first.
    pub skip_bad: bool,
    /// Which action's lines of a `blkparse` text are the requests.
    pub action: Action,
    /// Identities given to contents are larger than this, so that those up to it stay free for what
    /// was written before the trace begins.
    pub content_base: u64,
    /// Replay flushes, where the format has them: each waits for all requests before it, and all after it wait for it.
    pub flushes: bool,
}

impl TraceOptions {
    /// The defaults, for a device of `addressable` pages.
    pub fn new(addressable: u32) -> Self {
        Self {
            addressable,
            fold: Fold::default(),
            skip_bad: false,
            action: Action::default(),
            content_base: 0,
            flushes: false,
        }
    }
}

/// A trace file being replayed.
pub struct TraceReader {
    input: Input,
    parser: Parser,
    options: TraceOptions,
    digests: Digests,
    folder: Folder,
    identities: Identities,
    clock: Clock,
    counts: Counts,
    /// The end was reached; no more is read.
    ended: bool,
    /// Why it was the end, until somebody is told.
    failure: Option<SourceError>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    skipped: u64,
    ignored: u64,
}

enum Parser {
    Fiu,
    Mqsim,
    Msr,
    Blkparse(Action),
    Vscsi(vscsi::Version),
    Session,
}

impl TraceReader {
    /// Opens a trace; without a `format` it is told from the content.
    ///
    /// # Errors
    /// The file cannot be read, its format cannot be told, or it is too damaged to begin with.
    pub fn open(
        path: impl AsRef<Path>,
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        Self::begin(Input::open(path.as_ref())?, format, options)
    }

    /// The same of bytes that are here already; `name` stands for the file's in messages.
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
        (mut input, sample): (Input, Vec<u8>),
        format: Option<Format>,
        options: TraceOptions,
    ) -> Result<Self, SourceError> {
        if options.addressable == 0 {
            return Err(input.unusable("there is no page to replay on: addressable is 0"));
        }
        if sample.is_empty() {
            return Err(input.unusable("replays to nothing: the file is empty"));
        }
        let Some(format) = format.or_else(|| Format::guess(&sample)) else {
            let names = Format::NAMES;
            return Err(input.unusable(format!("the content is of no known format; name {names}")));
        };
        Ok(Self {
            parser: Parser::new(format, options.action, &mut input, &sample)?,
            input,
            options,
            digests: Digests::default(),
            folder: Folder::new(options.fold, options.addressable),
            identities: Identities::above(options.content_base),
            clock: Clock::default(),
            counts: Counts::default(),
            ended: false,
            failure: None,
        })
    }

    /// The format being read.
    pub fn format(&self) -> Format {
        match self.parser {
            Parser::Fiu => Format::Fiu,
            Parser::Mqsim => Format::Mqsim,
            Parser::Msr => Format::Msr,
            Parser::Blkparse(_) => Format::Blkparse,
            Parser::Vscsi(_) => Format::Vscsi,
            Parser::Session => Format::Session,
        }
    }

    /// Requests delivered so far.
    pub fn requests(&self) -> u64 {
        self.counts.requests
    }

    /// Malformed records skipped so far, at the user's wish.
    pub fn skipped(&self) -> u64 {
        self.counts.skipped
    }

    /// Well-formed records so far that are not requests: other actions, flushes, other SCSI commands,
    /// deallocations of no whole page; blank lines do not count.
    pub fn ignored(&self) -> u64 {
        self.counts.ignored
    }

    /// Every content identity given so far is below this one and above the base.
    pub fn content_end(&self) -> u64 {
        self.identities.end()
    }

    /// Reads on until one request is delivered; `false` at the end of the file.
    fn deliver(&mut self, out: &mut Vec<HostPage>) -> Result<bool, SourceError> {
        loop {
            match self.parser.next(&mut self.input, &mut self.digests)? {
                Record::Parsed(Ok(Parsed::Request(request))) => {
                    if self.pages_of(&request, out) {
                        self.counts.requests += 1;
                        return Ok(true);
                    }
                    self.counts.ignored += 1;
                }
                Record::Parsed(Ok(Parsed::Moved(moved))) => {
                    if self.remaps_of(&moved, out) {
                        self.counts.requests += 1;
                        return Ok(true);
                    }
                    self.counts.ignored += 1;
                }
                Record::Parsed(Ok(Parsed::Flush(at_ns))) if self.options.flushes => {
                    let at_ns = self.clock.since_start(at_ns);
                    out.push(HostPage {
                        at_ns,
                        content: 0,
                        lpn: 0,
                        kind: PageKind::Flush,
                        last: true,
                    });
                    self.counts.requests += 1;
                    return Ok(true);
                }
                Record::Parsed(Ok(Parsed::Ignored | Parsed::Flush(_))) => self.counts.ignored += 1,
                Record::Parsed(Err(_)) if self.options.skip_bad => self.counts.skipped += 1,
                Record::Parsed(Err(reason)) => return Err(self.input.malformed(reason)),
                Record::Blank => {}
                Record::End if self.counts.requests == 0 => return Err(self.nothing()),
                Record::End => return Ok(false),
            }
        }
    }

    /// Appends the pages of one request; `false` if it has none to act upon.
    fn pages_of(&mut self, request: &Request, out: &mut Vec<HostPage>) -> bool {
        let at_ns = self.clock.since_start(request.at_ns);
        let start = out.len();
        for Cut { page, whole } in cut(request.offset, request.len) {
            let target = DevicePage {
                device: request.device,
                page,
            };
            let (kind, lpn, content) = match (request.verb, whole) {
                (Verb::Read, _) => (PageKind::Read, self.folder.fold(target), 0),
                (Verb::Write, true) => {
                    let content = match self.digests.of_page(request, page * PAGE_BYTES) {
                        Some(digests) => self.identities.of(digests),
                        None => self.identities.fresh(),
                    };
                    (PageKind::Write, self.folder.fold(target), content)
                }
                (Verb::Write, false) => {
                    let content = self.identities.fresh();
                    (PageKind::ReadModifyWrite, self.folder.fold(target), content)
                }
                (Verb::Trim, true) => match self.folder.folded(target) {
                    Some(lpn) => (PageKind::Trim, lpn, 0),
                    None => continue,
                },
                (Verb::Trim, false) => continue,
            };
            out.push(HostPage {
                at_ns,
                content,
                lpn,
                kind,
                last: false,
            });
            // A disk-wide discard folded into a small device names each page once, not many times.
            if kind == PageKind::Trim && out.len() - start >= self.options.addressable as usize {
                break;
            }
        }
        let last = out[start..].last_mut();
        last.map(|page| page.last = true).is_some()
    }

    /// Appends a remap: as one command, or as several where folding takes its pages apart. `false` if folding leaves
    /// nothing to do.
    fn remaps_of(&mut self, moved: &Moved, out: &mut Vec<HostPage>) -> bool {
        let at_ns = self.clock.since_start(moved.at_ns);
        let Moved {
            relocate, atomic, ..
        } = *moved;
        let start = out.len();
        let mut run: Option<(u32, u32, u16)> = None;
        let put = |(lpn, source, len): (u32, u32, u16), out: &mut Vec<HostPage>| {
            let kind = PageKind::Remap {
                source,
                len,
                relocate,
                atomic,
            };
            out.push(HostPage {
                at_ns,
                content: 0,
                lpn,
                kind,
                last: false,
            });
        };
        // A range longer than the device names each page once.
        for index in 0..moved.count.min(self.options.addressable.into()) {
            let source = self.folder.fold(DevicePage {
                device: 0,
                page: moved.source + index,
            });
            let target = self.folder.fold(DevicePage {
                device: 0,
                page: moved.target + index,
            });
            run = match run {
                Some((to, from, len))
                    if len < u16::MAX
                        && to + u32::from(len) == target
                        && from + u32::from(len) == source =>
                {
                    Some((to, from, len + 1))
                }
                before => {
                    before.into_iter().for_each(|run| put(run, out));
                    (source != target).then_some((target, source, 1))
                }
            };
        }
        run.into_iter().for_each(|run| put(run, out));
        let last = out[start..].last_mut();
        last.map(|page| page.last = true).is_some()
    }

    /// The error of a trace in which nothing can be replayed, with what there was instead.
    fn nothing(&self) -> SourceError {
        let Counts {
            skipped, ignored, ..
        } = self.counts;
        let hint = match self.parser {
            Parser::Blkparse(action) => format!("; only events with action {action} are taken"),
            _ => String::new(),
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

/// What a parser found next.
enum Record {
    Parsed(Result<Parsed, Reason>),
    Blank,
    End,
}

impl Parser {
    fn new(
        format: Format,
        action: Action,
        input: &mut Input,
        sample: &[u8],
    ) -> Result<Self, SourceError> {
        Ok(match format {
            Format::Fiu => Parser::Fiu,
            Format::Mqsim => Parser::Mqsim,
            Format::Msr => Parser::Msr,
            Format::Blkparse => Parser::Blkparse(action),
            Format::Session => Parser::Session,
            Format::Vscsi => match vscsi::Version::of_first(sample) {
                Ok(version) => Parser::Vscsi(version),
                Err(reason) => {
                    input.record(&mut [0; vscsi::RECORD_BYTES_MAX])?;
                    return Err(input.malformed(reason));
                }
            },
        })
    }

    fn next(&self, input: &mut Input, digests: &mut Digests) -> Result<Record, SourceError> {
        if let Parser::Vscsi(version) = self {
            let mut record = [0; vscsi::RECORD_BYTES_MAX];
            return Ok(match input.record(&mut record[..version.record_bytes()])? {
                [] => Record::End,
                bytes => Record::Parsed(version.parse(bytes)),
            });
        }
        let line = match input.line()? {
            Line::Text(line) if line.trim_ascii().is_empty() => return Ok(Record::Blank),
            Line::Text(line) => line,
            Line::Unreadable(reason) => return Ok(Record::Parsed(Err(reason.to_owned()))),
            Line::End => return Ok(Record::End),
        };
        digests.clear();
        Ok(Record::Parsed(match self {
            Parser::Fiu => fiu::parse(line, digests),
            Parser::Mqsim => mqsim::parse(line),
            Parser::Msr => msr::parse(line),
            Parser::Blkparse(action) => blkparse::parse(line, *action),
            Parser::Session => session::parse(line, digests),
            Parser::Vscsi(_) => unreachable!("binary records were read above"),
        }))
    }
}

/// Turns recorded times into times since the first request.
#[derive(Default)]
struct Clock {
    first: Option<u64>,
    now: u64,
}

impl Clock {
    fn since_start(&mut self, recorded_ns: u64) -> u64 {
        let first = *self.first.get_or_insert(recorded_ns);
        self.now = self.now.max(recorded_ns.saturating_sub(first));
        self.now
    }
}
