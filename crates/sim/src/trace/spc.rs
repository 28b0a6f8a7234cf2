//! The traces of the UMass Trace Repository, in the format of the Storage Performance Council:
//! comma-separated values, one request a line.
//!
//! ```text
//! ASU,LBA(512 B),Size(B),Opcode(R|W, also r|w),Timestamp(s)[,more]
//! ```
//!
//! Each application storage unit (ASU) is a separate device. Fields after the time are optional in
//! the format, and not used. Absent: contents; every whole page written is new.

use super::record::{ByteExtent, Parsed, Reason, RequestKind, clip, decimal, number, values};

const NS_PER_S: u64 = 1_000_000_000;

pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    let mut fields = values(line);
    let mut next = |count: usize| {
        fields
            .next()
            .ok_or_else(|| format!("{count} fields instead of at least 5"))
    };
    let (asu, lba, size, verb, time) = (next(0)?, next(1)?, next(2)?, next(3)?, next(4)?);

    let verb = match verb {
        b"R" | b"r" => RequestKind::Read,
        b"W" | b"w" => RequestKind::Write,
        other => return Err(format!("opcode `{}` is neither R nor W", clip(other))),
    };

    let at_ns = decimal(time, NS_PER_S, "timestamp")?;
    // The place is in sectors, the size in bytes.
    let extent = ByteExtent {
        len: number(size, "size")?,
        ..ByteExtent::of_sectors(number(lba, "LBA")?, 0)?
    };

    extent.request(at_ns, number(asu, "ASU")?, verb)
}
