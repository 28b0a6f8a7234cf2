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

use super::record::{ByteExtent, Parsed, Reason, exactly, number, seconds, values, verb_of};

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, response, verb, lun, offset, size] = exactly(values(line))?;

    if time == b"Timestamp" {
        return Ok(Parsed::Blank);
    }

    let at_ns = seconds(time)?;
    // Not used, but a line with anything else there is not of this format.
    if !response.is_empty() {
        seconds(response)?;
    }

    if verb.is_empty() {
        return Ok(Parsed::Ignored);
    }
    let verb = verb_of(verb, "type", "R", "W")?;

    let extent = ByteExtent {
        offset: number(offset, "offset")?,
        len: number(size, "size")?,
    };
    extent.request(at_ns, number(lun, "LUN")?, verb)
}
