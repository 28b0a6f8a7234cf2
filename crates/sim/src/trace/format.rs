//! The names of the trace formats.
//!
//! Absent: detection of a format by its content (`guess.rs`), and the fields of each format (its
//! parser's).

use std::fmt;
use std::str::FromStr;

use super::columns::Columns;
use super::names::{FormatError, UnknownName};

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
