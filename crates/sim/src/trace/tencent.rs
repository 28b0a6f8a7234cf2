//! The Tencent Cloud block storage traces (ATC'20): comma-separated values, one request a line.
//!
//! ```text
//! timestamp(s),offset(512 B),size(512 B),type(0 = read, 1 = write),volume
//! ```
//!
//! Times are whole seconds. Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, exactly, number, values};

const TICK_NS: u64 = 1_000_000_000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, offset, size, verb, volume] = exactly(values(line))?;
    let verb = match verb {
        b"0" => RequestKind::Read,
        b"1" => RequestKind::Write,
        other => return Err(format!("type `{}` is neither 0 nor 1", clip(other))),
    };
    let at_ns = number(time, "timestamp")?
        .checked_mul(TICK_NS)
        .ok_or_else(|| format!("timestamp `{}` is too large", clip(time)))?;
    let extent = ByteExtent::of_sectors(number(offset, "offset")?, number(size, "size")?)?;
    extent.request(at_ns, number(volume, "volume")?, verb)
}
