//! The output of `biosnoop` of BCC and of libbpf-tools: text in columns, detected by its first
//! line.
//!
//! ```text
//! TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
//! seconds     process        number  name      R|W sector(512 B) bytes milliseconds
//! ```
//!
//! A line is a completed request, at its completion time. The first line gives the positions of
//! columns, including those added by options (QUE(ms)). The process name may contain blanks, so the
//! columns after it are counted from the end. Absent: contents; every whole page written is new.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::action::Action;
use super::blkparse::verb;
use super::record::{ByteExtent, Parsed, Reason, clip, decimal, number, words};

const NS_PER_S: u64 = 1_000_000_000;

/// Positions of the columns, once the first line has been read: counted from the last, which is 0.
#[derive(Debug, Default)]
pub(super) struct Biosnoop {
    columns: Option<ColumnsFromEnd>,
}

#[derive(Clone, Copy, Debug)]
struct ColumnsFromEnd {
    count: usize,
    disk: usize,
    verb: usize,
    sector: usize,
    bytes: usize,
}

/// Returns true for a first line.
pub(super) fn is_heading(line: &[u8]) -> bool {
    columns(line).is_some()
}

fn columns(line: &[u8]) -> Option<ColumnsFromEnd> {
    let names: Vec<&[u8]> = words(line).collect();
    if names.first() != Some(&&b"TIME(s)"[..]) {
        return None;
    }
    let from_end = |name: &[u8]| names.iter().rev().position(|column| *column == name);
    Some(ColumnsFromEnd {
        count: names.len(),
        disk: from_end(b"DISK")?,
        verb: from_end(b"T")?,
        sector: from_end(b"SECTOR")?,
        bytes: from_end(b"BYTES")?,
    })
}

impl Biosnoop {
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        // Output appended to a file has its own heading.
        if let Some(columns) = columns(line) {
            self.columns = Some(columns);
            return Ok(Parsed::Blank);
        }
        let Some(columns) = self.columns else {
            return Err(format!(
                "the first line is `{}` and not biosnoop's `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)`",
                clip(line)
            ));
        };

        let fields: Vec<&[u8]> = words(line).collect();
        if fields.len() < columns.count {
            return Err(format!(
                "{} columns instead of {}",
                fields.len(),
                columns.count
            ));
        }
        let field = |from_end: usize| fields[fields.len() - 1 - from_end];

        let at_ns = decimal(fields[0], NS_PER_S, "time")?;
        let bytes = number(field(columns.bytes), "number of bytes")?;
        // Letters of the kernel's tracepoints: a completed request knows its location.
        let Some(verb) = verb(field(columns.verb), Action::Completed)? else {
            return Ok(Parsed::Ignored);
        };
        let extent = ByteExtent {
            len: bytes,
            ..ByteExtent::of_sectors(number(field(columns.sector), "sector")?, 0)?
        };
        extent.request(at_ns, device(field(columns.disk)), verb)
    }
}

/// Hashes a disk name: disks are only distinguished.
fn device(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}
