//! DiskSim's ASCII traces: five numbers a line.
//!
//! ```text
//! time(ms, with a point) device block(512 B) count(512 B) flags(hexadecimal; 1 = read)
//! ```
//!
//! The decimal point of the time distinguishes them from other formats of five numbers. Absent:
//! contents; every whole page written is new. The other flags.

use super::record::{
    ByteExtent, Parsed, Reason, RequestKind, clip, decimal, exactly, number, words,
};

const NS_PER_MS: u64 = 1_000_000;
const IS_READ: u64 = 1;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let [time, device, block, count, flags] = exactly(words(line))?;

    if !time.contains(&b'.') {
        return Err(format!(
            "time `{}` is not milliseconds.fraction",
            clip(time)
        ));
    }
    let at_ns = decimal(time, NS_PER_MS, "time")?;

    let verb = match hexadecimal(flags) {
        Some(flags) if flags & IS_READ != 0 => RequestKind::Read,
        Some(_) => RequestKind::Write,
        None => return Err(format!("flags `{}` are not hexadecimal", clip(flags))),
    };
    ByteExtent::of_sectors(number(block, "block")?, number(count, "count")?)?.request(
        at_ns,
        number(device, "device")?,
        verb,
    )
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    // The number parser would also accept a sign.
    let digits = std::str::from_utf8(field).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_number)
}
