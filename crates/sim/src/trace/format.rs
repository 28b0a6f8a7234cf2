//! The names of the trace formats, and detection of a format by its content.
//!
//! Invariants: `guess` answers only if a record parses as that format; the formats exclude each
//! other record by record, so the answer does not depend on the order of the checks. Absent: file
//! names. An extension is a hint that is wrong too often.

use std::fmt;
use std::str::FromStr;

use super::columns::Columns;
use super::record::{Digests, Parsed};
use super::{alibaba, biosnoop, blkparse, blktrace, cloudphysics, disksim, fast21, fio, fiu};
use super::{heading, mqsim, msr, oracle_general, session, spc, systor, tencent, vscsi};

/// An unknown name; the message lists the valid ones.
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

/// Why a text names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no such format, or no such column.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A request needs one of these columns.
    #[error("csv: no column says {0}")]
    NoColumn(&'static str),
    /// These columns have the same meaning.
    #[error("csv: only one column can be {0}")]
    TwoColumns(&'static str),
    /// The list is too long.
    #[error("csv: more than 24 columns")]
    TooManyColumns,
}

/// The format of a trace's records.
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
    /// The default output of `blkparse` for a `blktrace` recording.
    Blkparse,
    /// Requests to a served device, with contents and remaps.
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
    /// Text of five numbers, as read by the simulator published with FAST'21's paper.
    Fast21,
    /// Comma-separated values of the UMass Trace Repository, by the Storage Performance Council.
    Spc,
    /// DiskSim's ASCII traces.
    DiskSim,
    /// The output of `biosnoop` of BCC.
    Biosnoop,
    /// The CloudPhysics traces as comma-separated values.
    CloudPhysics,
    /// Text in columns named by the user; never detected from its content.
    Csv(Columns),
}

impl Format {
    /// Every format with a fixed name, in the order of the help texts.
    pub const ALL: [Format; 17] = [
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
        Format::Fast21,
        Format::Spc,
        Format::DiskSim,
        Format::Biosnoop,
        Format::CloudPhysics,
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
        tencent, systor, fio, blktrace, oracleGeneral, fast21, spc, disksim, biosnoop, \
        cloudphysics, csv:COLUMNS";

    /// Returns the format of a trace that begins with `sample` (decompressed), if it is
    /// unambiguous.
    ///
    /// A few tens of KiB are enough; a last line cut by the sample is not considered.
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

        // A line cut by the sample would be misjudged.
        let whole_lines = match sample.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => &sample[..end],
            None => sample,
        };

        let mut lines = whole_lines
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii);

        // Headers stand in the first line only.
        let first = lines.clone().next().unwrap_or_default();
        if fio::is_header(first) {
            return Some(Format::Fio);
        }
        if biosnoop::is_heading(first) {
            return Some(Format::Biosnoop);
        }
        if let Some(format) = heading::published(first) {
            return Some(format);
        }

        // The first valid record decides: formats exclude each other, except for lines that two
        // formats of five numbers share.
        let mut ambiguous = None;
        for line in lines.by_ref().take(LINES_JUDGED) {
            match format_of_line(line) {
                Some(Format::Mqsim) if fast21::is_ambiguous(line) => {
                    ambiguous = Some(Format::Mqsim);
                }
                Some(format) => return Some(format),
                None => {}
            }
        }
        ambiguous.or_else(|| oracle_general::is_trace(sample).then_some(Format::OracleGeneral))
    }

    /// Returns true if records are binary, not lines.
    pub(super) fn is_binary(self) -> bool {
        matches!(
            self,
            Format::Vscsi | Format::Blktrace | Format::OracleGeneral
        )
    }

    fn name(&self) -> Option<&'static str> {
        Some(match self {
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
            Format::Fast21 => "fast21",
            Format::Spc => "spc",
            Format::DiskSim => "disksim",
            Format::Biosnoop => "biosnoop",
            Format::CloudPhysics => "cloudphysics",
            Format::Csv(_) => return None,
        })
    }
}

/// Lines searched for the first record: comments may come before it.
const LINES_JUDGED: usize = 64;

fn format_of_line(line: &[u8]) -> Option<Format> {
    // An ignored line is no evidence: many formats would ignore it.
    let is_request = |parsed| {
        matches!(
            parsed,
            Ok(Parsed::Request(_) | Parsed::Moved(_) | Parsed::Empty)
        )
    };
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
        Format::Fast21 => !fast21::is_ambiguous(line) && is_request(fast21::parse(line, digests)),
        Format::Spc => is_request(spc::parse(line)),
        Format::DiskSim => is_request(disksim::parse(line)),
        Format::CloudPhysics => is_request(cloudphysics::parse(line)),
        // Detected by the beginning of a file, or named by the user.
        Format::Vscsi | Format::Fio | Format::Blktrace | Format::OracleGeneral => false,
        Format::Biosnoop | Format::Csv(_) => false,
    };

    // At most one answers, so the order does not matter.
    Format::ALL
        .into_iter()
        .find(|format| is(*format, &mut digests))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.pad(name),
            (None, Format::Csv(columns)) => f.pad(&format!("{CSV}{columns}")),
            (None, _) => unreachable!("only columns have no name"),
        }
    }
}

/// Prefix of the list of columns.
const CSV: &str = "csv:";

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Self, FormatError> {
        if let Some(columns) = name.strip_prefix(CSV) {
            return columns.parse().map(Format::Csv);
        }
        let known = Format::ALL.into_iter();
        let found = known.into_iter().find(|format| format.name() == Some(name));
        Ok(found.ok_or_else(|| UnknownName::new("trace format", name, Format::NAMES))?)
    }
}
