//! The MSR Cambridge traces: comma-separated values, one request a line.
//!
//! ```text
//! Timestamp(100 ns, Windows file time),Hostname,DiskNumber,Type(Read|Write),Offset(B),Size(B),ResponseTime
//! ```
//!
//! Offsets and sizes are bytes and need not be multiples of a sector.
//! Absent: contents; every whole page written is new. The host name: one file is of one host.

use super::record::{
    ByteExtent, Parsed, Reason, RequestKind, clip, exactly, number, ticks, values,
};

const TICK_NS: u64 = 100;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, _host, disk, verb, offset, size, response] = exactly(values(line))?;
    let at_ns = ticks(time, TICK_NS)?;
    let verb = if verb.eq_ignore_ascii_case(b"read") {
        RequestKind::Read
    } else if verb.eq_ignore_ascii_case(b"write") {
        RequestKind::Write
    } else {
        return Err(format!("type `{}` is neither Read nor Write", clip(verb)));
    };

    // Not used, but a line without it is of another format.
    number(response, "response time")?;
    let extent = ByteExtent {
        offset: number(offset, "offset")?,
        len: number(size, "size")?,
    };
    extent.request(at_ns, number(disk, "disk number")?, verb)
}
