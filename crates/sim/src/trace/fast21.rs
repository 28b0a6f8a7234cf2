//! The traces of the simulator that FAST'21's authors published (`ssdsim_dedup`): five numbers a
//! line, one page each.
//!
//! ```text
//! time_ns lsn(512 B) sectors(8) op(0 = write, 1 = read) fingerprint
//! ```
//!
//! The fingerprint is a number that stands for the content of the page; that of a read is not used.
//! MQSim's lines are five numbers too: see [`is_ambiguous`]. Absent: devices.

use super::record::{ByteExtent, Digests, Parsed, Reason, exactly, number, verb_of, words};

/// Every request is of one page.
const SECTORS: u64 = 8;

pub(super) fn parse(line: &[u8], digests: &mut Digests) -> Result<Parsed, Reason> {
    digests.clear();
    let [time, lsn, sectors, op, fingerprint] = exactly(words(line))?;

    let verb = verb_of(op, "op", "1", "0")?;
    let (at_ns, sectors) = (number(time, "time")?, number(sectors, "size")?);
    if sectors != SECTORS {
        return Err(format!("a size of {sectors} sectors instead of {SECTORS}"));
    }

    let fingerprint = number(fingerprint, "fingerprint")?;
    digests.of_request(&fingerprint.to_le_bytes(), SECTORS * 512);
    ByteExtent::of_sectors(number(lsn, "lsn")?, sectors)?.request(at_ns, 0, verb)
}

/// Returns true if MQSim could also have written this line. There it would be a request of one
/// sector, or of none, at sector 8 of a device: later lines decide.
pub(super) fn is_ambiguous(line: &[u8]) -> bool {
    let fields = exactly(words(line));
    fields.is_ok_and(|[_, _, sectors, op, fingerprint]: [&[u8]; 5]| {
        sectors == b"8" && matches!(op, b"0" | b"1") && matches!(fingerprint, b"0" | b"1")
    })
}
