//! The Alibaba Cloud block traces (2020): comma-separated values, one request a line.
//!
//! ```text
//! device_id,opcode(R|W),offset(B),length(B),timestamp(us)
//! ```
//!
//! A file may hold the requests of many devices, which `Fold::Compact` keeps apart.
//! Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, exactly, number, ticks, values, verb_of};

const TICK_NS: u64 = 1000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    // Some of the files begin with a heading.
    if line == b"device_id,opcode,offset,length,timestamp" {
        return Ok(Parsed::Blank);
    }

    let [device, verb, offset, length, time] = exactly(values(line))?;

    let verb = verb_of(verb, "opcode", "R", "W")?;

    let at_ns = ticks(time, TICK_NS)?;

    let extent = ByteExtent {
        offset: number(offset, "offset")?,
        len: number(length, "length")?,
    };

    extent.request(at_ns, number(device, "device")?, verb)
}
