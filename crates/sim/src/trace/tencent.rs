//! The Tencent Cloud block storage traces (ATC'20): comma-separated values, one request a line.
//!
//! ```text
//! timestamp(s),offset(512 B),size(512 B),type(0 = read, 1 = write),volume
//! ```
//!
//! Times are whole seconds. Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, exactly, number, ticks, values, verb_of};

const TICK_NS: u64 = 1_000_000_000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, offset, size, verb, volume] = exactly(values(line))?;
    let verb = verb_of(verb, "type", "0", "1")?;
    let at_ns = ticks(time, TICK_NS)?;
    let extent = ByteExtent::of_sectors(number(offset, "offset")?, number(size, "size")?)?;
    extent.request(at_ns, number(volume, "volume")?, verb)
}
