//! The CloudPhysics traces as comma-separated values, one SCSI command a line.
//!
//! ```text
//! version,time,op,size,lbn                                     the first line
//! 1|2,us,hexadecimal operation code,bytes,sector(512 B)
//! ```
//!
//! Reads and writes are requests; every other command is ignored. The size of a request is whole
//! sectors. Absent: contents; every whole page written is new. Binary records: `vscsi.rs`.

use super::record::{
    ByteExtent, Parsed, Reason, RequestKind, SECTOR_BYTES, clip, exactly, number, values,
};

const TICK_NS: u64 = 1000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [version, time, op, size, sector] = exactly(values(line))?;

    if !matches!(version, b"1" | b"2") {
        return Err(format!("version `{}` is neither 1 nor 2", clip(version)));
    }
    let at_ns = number(time, "time")?
        .checked_mul(TICK_NS)
        .ok_or_else(|| format!("time `{}` is too large", clip(time)))?;
    let len = number(size, "size")?;
    if !len.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("a size of {len} bytes is no number of sectors"));
    }
    let sector = number(sector, "sector")?;

    let Some(verb) = verb(op)? else {
        return Ok(Parsed::Ignored);
    };
    // No evidence of this format: a line of Tencent's traces may look the same.
    if len == 0 {
        return Ok(Parsed::Ignored);
    }
    let extent = ByteExtent {
        len,
        ..ByteExtent::of_sectors(sector, 0)?
    };
    extent.request(at_ns, 0, verb)
}

/// The kind of a command, if it reads or writes.
fn verb(op: &[u8]) -> Result<Option<RequestKind>, Reason> {
    let digits = std::str::from_utf8(op).ok();
    let code = digits
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u8::from_str_radix(digits, 16).ok());
    match code {
        Some(code) => Ok(super::vscsi::verb(code)),
        None => Err(format!(
            "`{}` is not a SCSI operation code of one byte",
            clip(op)
        )),
    }
}
