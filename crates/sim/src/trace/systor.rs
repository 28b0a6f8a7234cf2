//! The SYSTOR'17 traces of virtual desktops (Lee and others): comma-separated values, one request a
//! line.
//!
//! ```text
//! Timestamp,Response,IOType,LUN,Offset,Size            the first line
//! seconds.fraction,seconds.fraction,R|W|,lun,bytes,bytes
//! ```
//!
//! The response time may be missing; a request without a type is ignored.
//! Absent: contents; every whole page written is new.

use super::record::{
    ByteExtent, Parsed, Reason, RequestKind, clip, exactly, number, seconds, values,
};

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, response, verb, lun, offset, size] = exactly(values(line))?;

    if time == b"Timestamp" {
        return Ok(Parsed::Blank);
    }

    let at_ns = seconds(time)?;
    if !response.is_empty() {
        seconds(response)?;
    }

    let verb = match verb {
        b"R" => RequestKind::Read,
        b"W" => RequestKind::Write,
        b"" => return Ok(Parsed::Ignored),
        other => return Err(format!("type `{}` is neither R nor W", clip(other))),
    };

    let extent = ByteExtent {
        offset: number(offset, "offset")?,
        len: number(size, "size")?,
    };
    extent.request(at_ns, number(lun, "LUN")?, verb)
}
