//! MQSim's text traces: five numbers a line.
//!
//! ```text
//! time_ns device lba(512 B) size(sectors) type(0 = write, 1 = read)
//! ```
//!
//! Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, exactly, number, verb_of, words};

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, device, lba, sectors, verb] = exactly(words(line))?;
    let verb = verb_of(verb, "type", "1", "0")?;
    let (at_ns, device) = (number(time, "time")?, number(device, "device")?);
    ByteExtent::of_sectors(number(lba, "lba")?, number(sectors, "size")?)?
        .request(at_ns, device, verb)
}
