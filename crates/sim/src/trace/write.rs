//! Writes traces, in formats that the readers support.
//!
//! | format | contents | deallocations |
//! | --- | --- | --- |
//! | `fiu` | one MD5-like digest per 4 KiB, made of the content's identity | none |
//! | `mqsim`, `msr` | none | none |
//! | `blkparse` | none | action `Q`, rwbs `D` |
//! | `vscsi` | none | none |
//! | `session` | as `fiu` | yes; remaps too |
//!
//! A page is eight sectors; a page written in part is its first four. Requests are a microsecond
//! apart. Requests that a format cannot express are left out and counted. Invariants: the output
//! reads back as the same requests, with the same page numbers; the sink receives whole records.
//! Absent: files (the caller's), and the homes of journaled pages, which no format has.

use std::io::{self, Write};

use super::Format;
use super::session::SessionEntry;
use crate::source::{HostPage, PageKind};

/// Writes requests as records of a format.
///
/// ```
/// use remap_ssd_sim::source::{HostLpn, HostPage, PageKind};
/// use remap_ssd_sim::trace::{Format, TraceWriter};
/// let (lpn, kind) = (HostLpn::new(8), PageKind::Write);
/// let page = HostPage { at_ns: 0, content: 1, lpn, kind, last: true };
/// let mut writer = TraceWriter::new(Format::Mqsim, Vec::new());
/// assert!(writer.request(&[page])?);
/// // No words for it in this format.
/// assert!(!writer.request(&[HostPage { kind: PageKind::Flush, ..page }])?);
/// assert_eq!((writer.written(), writer.left_out()), (1, 1));
/// assert_eq!(writer.sink().iter().filter(|byte| **byte == b'\n').count(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TraceWriter<W: Write> {
    format: Format,
    sink: W,
    record: Vec<u8>,
    written: u64,
    left_out: u64,
    sequence: u64,
}

const SECTORS_PER_PAGE: u64 = 8;
/// A partial write is half a page.
const SECTORS_OF_PART: u64 = 4;
/// Interval between requests: a microsecond.
const REQUEST_NS: u64 = 1000;
/// Times begin here, since some readers treat 0 as missing.
const START_NS: u64 = 1_000_000_000;
/// 2026-01-01 in the 100 ns units of Windows, in which MSR traces count.
const START_TICKS: u64 = 134_117_856_000_000_000;

impl<W: Write> TraceWriter<W> {
    /// A writer of a new trace.
    ///
    /// # Panics
    /// The format is not in `Format::WRITTEN`.
    pub fn new(format: Format, sink: W) -> Self {
        assert!(Format::WRITTEN.contains(&format), "{format} is written");
        Self {
            format,
            sink,
            record: Vec::new(),
            written: 0,
            left_out: 0,
            sequence: 0,
        }
    }

    /// Writes one request with all its pages; `false` if the format cannot express it.
    ///
    /// # Errors
    /// The sink fails.
    ///
    /// # Panics
    /// If there is no page.
    pub fn request(&mut self, pages: &[HostPage]) -> io::Result<bool> {
        // A request has a page.
        let first = pages[0];
        let partial = first.kind == PageKind::ReadModifyWrite;

        let verb = match first.kind {
            PageKind::Read => RequestKind::Read,
            PageKind::Write | PageKind::WriteFor { .. } | PageKind::ReadModifyWrite => {
                RequestKind::Write
            }
            PageKind::Trim if matches!(self.format, Format::Blkparse | Format::Session) => {
                RequestKind::Trim
            }
            // Its line is built from the pages alone.
            PageKind::Remap { .. } | PageKind::Flush if self.format == Format::Session => {
                RequestKind::Write
            }
            PageKind::Trim | PageKind::Remap { .. } | PageKind::Flush => {
                self.left_out += 1;
                return Ok(false);
            }
        };

        // A partial page is a separate request; in longer ones, only the models' single pages are
        // partial.
        let sectors = if partial {
            SECTORS_OF_PART
        } else {
            SECTORS_PER_PAGE * pages.len() as u64
        };

        let request = Request {
            sequence: self.sequence,
            verb,
            sector: u64::from(first.lpn) * SECTORS_PER_PAGE,
            sectors,
        };

        // Assembled here first: the sink receives whole records.
        self.record.clear();
        match self.format {
            Format::Session => request.session(pages, &mut self.record)?,
            Format::Fiu => request.fiu(pages, &mut self.record)?,
            Format::Mqsim => request.mqsim(&mut self.record)?,
            Format::Msr => request.msr(&mut self.record)?,
            Format::Blkparse => request.blkparse(&mut self.record)?,
            Format::Vscsi => request.vscsi(&mut self.record),
            // `new` has refused them.
            _ => unreachable!("{} is not written", self.format),
        }

        self.sink.write_all(&self.record)?;
        // Only after a successful write: a failed record has no place in the sequence.
        self.sequence += 1;
        self.written += 1;

        Ok(true)
    }

    /// Requests written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Requests left out so far.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The sink of the trace.
    pub fn sink(&mut self) -> &mut W {
        &mut self.sink
    }
}

#[derive(Clone, Copy, PartialEq)]
enum RequestKind {
    Read,
    Write,
    Trim,
}

struct Request {
    sequence: u64,
    verb: RequestKind,
    sector: u64,
    sectors: u64,
}

impl Request {
    fn at_ns(&self) -> u64 {
        START_NS + self.sequence * REQUEST_NS
    }

    fn letter(&self) -> char {
        match self.verb {
            RequestKind::Read => 'R',
            RequestKind::Write => 'W',
            RequestKind::Trim => 'D',
        }
    }

    fn fiu(&self, pages: &[HostPage], record: &mut Vec<u8>) -> io::Result<()> {
        let (at, letter) = (self.at_ns(), self.letter());
        write!(
            record,
            "{at} 1 remap-ssd {} {} {letter} 8 0 ",
            self.sector, self.sectors
        )?;
        for page in pages {
            let [high, low] = digest(page.content);
            write!(record, "{high:016x}{low:016x}")?;
        }
        writeln!(record)
    }

    fn session(&self, pages: &[HostPage], record: &mut Vec<u8>) -> io::Result<()> {
        // A session is in whole pages.
        let (at, page, count) = (
            self.at_ns(),
            self.sector / SECTORS_PER_PAGE,
            pages.len() as u64,
        );

        let entry = match pages[0].kind {
            PageKind::Read => SessionEntry::Read { page, count },
            PageKind::Trim => SessionEntry::Deallocate { page, count },
            PageKind::ReadModifyWrite => SessionEntry::WritePart { page },
            PageKind::Flush => SessionEntry::Flush,
            PageKind::Write | PageKind::WriteFor { .. } => {
                // Digests are derived from identities: equal for equal contents.
                let digests = pages.iter().map(|page| {
                    let [high, low] = digest(page.content);
                    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
                });
                return SessionEntry::Write {
                    page,
                    digests: &digests.collect::<Vec<_>>(),
                }
                .write(at, record);
            }
            PageKind::Remap { .. } => {
                // A remap is a line, so a request of several remaps is several lines.
                return pages.iter().try_for_each(|page| match page.kind {
                    PageKind::Remap {
                        source,
                        len,
                        relocate,
                        atomic,
                    } => {
                        let (target, source, count) = (page.lpn.into(), source.into(), len.into());
                        SessionEntry::Remap {
                            target,
                            source,
                            count,
                            relocate,
                            atomic,
                        }
                        .write(at, record)
                    }
                    _ => Ok(()),
                });
            }
        };

        entry.write(at, record)
    }

    fn mqsim(&self, record: &mut Vec<u8>) -> io::Result<()> {
        writeln!(
            record,
            "{} 0 {} {} {}",
            self.at_ns(),
            self.sector,
            self.sectors,
            u8::from(self.verb == RequestKind::Read)
        )
    }

    fn msr(&self, record: &mut Vec<u8>) -> io::Result<()> {
        let (at, verb) = (
            START_TICKS + self.at_ns() / 100,
            if self.verb == RequestKind::Read {
                "Read"
            } else {
                "Write"
            },
        );
        writeln!(
            record,
            "{at},remap-ssd,0,{verb},{},{},0",
            self.sector * 512,
            self.sectors * 512
        )
    }

    fn blkparse(&self, record: &mut Vec<u8>) -> io::Result<()> {
        let (seconds, ns) = (self.at_ns() / 1_000_000_000, self.at_ns() % 1_000_000_000);
        let (number, letter) = (self.sequence + 1, self.letter());
        writeln!(
            record,
            "  8,0    0 {number:>8} {seconds:>5}.{ns:09}     1  Q   {letter} {} + {} [remap-ssd]",
            self.sector, self.sectors
        )
    }

    /// A version 1 record: 32 bytes, `READ(16)` or `WRITE(16)`.
    fn vscsi(&self, record: &mut Vec<u8>) {
        const READ_16: u16 = 0x88;
        const WRITE_16: u16 = 0x8a;
        const SCATTER_ENTRIES: u32 = 1;
        const VERSION_1: u16 = 1 << 8;

        // One form for all addresses: the longest fits all of them.
        let opcode = if self.verb == RequestKind::Read {
            READ_16
        } else {
            WRITE_16
        };

        let words = [
            self.sequence as u32 + 1,
            (self.sectors * 512) as u32,
            SCATTER_ENTRIES,
        ];

        words
            .iter()
            .for_each(|word| record.extend(word.to_le_bytes()));

        // The version is the high byte, where the readers look for it.
        [opcode, VERSION_1]
            .iter()
            .for_each(|half| record.extend(half.to_le_bytes()));
        [self.sector, self.at_ns() / 1000]
            .iter()
            .for_each(|long| record.extend(long.to_le_bytes()));
    }
}

/// 128 bits, different for different identities: two permutations of 64-bit numbers (the finalizer
/// of SplitMix64).
fn digest(content: u64) -> [u64; 2] {
    let mix = |mut word: u64| {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    [
        mix(content.wrapping_add(0x9e37_79b9_7f4a_7c15)),
        mix(!content),
    ]
}
