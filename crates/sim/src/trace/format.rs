//! The names of the trace formats, and telling a format by its content.
//!
//! Invariants: `guess` answers only when a record really parses as that format; the formats
//! exclude each other record by record, so the answer does not depend on an order of trying.
//! Absent: file names. An extension is a hint that is wrong too often.

use std::fmt;
use std::str::FromStr;

use super::record::{Digests, Parsed};
use super::{alibaba, blkparse, blktrace, fio, fiu, mqsim, msr, oracle_general, session, systor};
use super::{tencent, vscsi};

/// A name that is none of the ones offered; the message lists them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`: one of {offered}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    offered: &'static str,
}

impl UnknownName {
    pub(super) fn new(what: &'static str, name: &str, offered: &'static str) -> Self {
        let name = name.to_owned();
        Self {
            what,
            name,
            offered,
        }
    }
}

/// How the records of a trace are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text of the FIU I/O deduplication traces, with MD5 digests of the contents.
    Fiu,
    /// Binary records of the CloudPhysics traces, version 1 (32 bytes) or 2 (40 bytes).
    Vscsi,
    /// Text of five numbers, as MQSim reads it.
    Mqsim,
    /// Comma-separated values of the MSR Cambridge traces.
    Msr,
    /// What `blkparse` prints by default for a `blktrace` recording.
    Blkparse,
    /// What a served device was asked, with contents and remaps.
    Session,
    /// Comma-separated values of the Alibaba Cloud traces.
    Alibaba,
    /// Comma-separated values of the Tencent Cloud traces.
    Tencent,
    /// Comma-separated values of the SYSTOR'17 traces of virtual desktops.
    Systor,
    /// fio's `write_iolog`, version 2 or 3.
    Fio,
    /// Binary events of a `blktrace` recording.
    Blktrace,
    /// Binary records of libCacheSim, 24 bytes each.
    OracleGeneral,
}

impl Format {
    /// Every format, in the order in which help texts name them.
    pub const ALL: [Format; 12] = [
        Format::Fiu,
        Format::Vscsi,
        Format::Mqsim,
        Format::Msr,
        Format::Blkparse,
        Format::Session,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Fio,
        Format::Blktrace,
        Format::OracleGeneral,
    ];

    /// Formats that `TraceWriter` can write.
    pub const WRITTEN: [Format; 6] = [
        Format::Fiu,
        Format::Vscsi,
        Format::Mqsim,
        Format::Msr,
        Format::Blkparse,
        Format::Session,
    ];

    pub(super) const NAMES: &'static str = "fiu, vscsi, mqsim, msr, blkparse, session, alibaba, \
        tencent, systor, fio, blktrace, oracleGeneral";

    /// The format of a trace that begins with `sample` (decompressed), when that is plain.
    ///
    /// A few tens of KiB are enough; a last line that the sample cuts is not judged.
    ///
    /// ```
    /// use remap_ssd_sim::trace::Format;
    /// assert_eq!(Format::guess(b"938513000 4 264719034 16 0\n"), Some(Format::Mqsim));
    /// assert_eq!(Format::guess(b"to whom it may concern\n"), None);
    /// ```
    pub fn guess(sample: &[u8]) -> Option<Format> {
        // Binary formats first: their bytes may look like lines by chance.
        if vscsi::VscsiVersion::of(sample).is_some() {
            return Some(Format::Vscsi);
        }
        if blktrace::is_event(sample) {
            return Some(Format::Blktrace);
        }

        // A line that the sample cuts would be judged by its beginning.
        let whole_lines = match sample.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => &sample[..end],
            None => sample,
        };

        let mut lines = whole_lines
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii);

        // A header is said once, so only the first line can be it.
        if lines.clone().next().is_some_and(fio::is_header) {
            return Some(Format::Fio);
        }

        // The first record that is one decides: formats exclude each other.
        lines
            .by_ref()
            .take(LINES_JUDGED)
            .find_map(format_of_line)
            .or_else(|| oracle_general::is_trace(sample).then_some(Format::OracleGeneral))
    }
}

/// Lines among which the first record is looked for: comments may come before it.
const LINES_JUDGED: usize = 64;

fn format_of_line(line: &[u8]) -> Option<Format> {
    // An ignored line is no evidence: many formats would ignore it.
    let is_request = |parsed| matches!(parsed, Ok(Parsed::Request(_) | Parsed::Moved(_)));
    let mut digests = Digests::default();
    let is = |format: Format, digests: &mut Digests| match format {
        Format::Fiu => is_request(fiu::parse(line, digests)),
        Format::Mqsim => is_request(mqsim::parse(line)),
        Format::Msr => is_request(msr::parse(line)),
        Format::Session => is_request(session::parse(line, digests)),
        Format::Alibaba => is_request(alibaba::parse(line)),
        Format::Tencent => is_request(tencent::parse(line)),
        Format::Systor => is_request(systor::parse(line)),
        Format::Blkparse => blkparse::is_event(line),
        // Told by how a file begins.
        Format::Vscsi | Format::Fio | Format::Blktrace | Format::OracleGeneral => false,
    };

    // No two answer, so the order does not matter.
    Format::ALL
        .into_iter()
        .find(|format| is(*format, &mut digests))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Fiu => "fiu",
            Format::Vscsi => "vscsi",
            Format::Mqsim => "mqsim",
            Format::Msr => "msr",
            Format::Blkparse => "blkparse",
            Format::Session => "session",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Fio => "fio",
            Format::Blktrace => "blktrace",
            Format::OracleGeneral => "oracleGeneral",
        })
    }
}

impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Format::ALL
            .into_iter()
            .find(|format| format.to_string() == name)
            .ok_or_else(|| UnknownName::new("trace format", name, Format::NAMES))
    }
}
