//! The Alibaba Cloud block traces (2020): comma-separated values, one request a line.
//!
//! ```text
//! device_id,opcode(R|W),offset(B),length(B),timestamp(us)
//! ```
//!
//! A file may hold the requests of many devices, which `Fold::Compact` keeps apart.
//! Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, exactly, number, values};

const TICK_NS: u64 = 1000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    // Some of the files begin with a heading.
    if line == b"device_id,opcode,offset,length,timestamp" {
        return Ok(Parsed::Blank);
    }

    let [device, verb, offset, length, time] = exactly(values(line))?;

    let verb = match verb {
        b"R" => RequestKind::Read,
        b"W" => RequestKind::Write,
        other => return Err(format!("opcode `{}` is neither R nor W", clip(other))),
    };

    let at_ns = number(time, "timestamp")?
        .checked_mul(TICK_NS)
        .ok_or_else(|| format!("timestamp `{}` is too large", clip(time)))?;

    let extent = ByteExtent {
        offset: number(offset, "offset")?,
        len: number(length, "length")?,
    };

    extent.request(at_ns, number(device, "device")?, verb)
}
