//! The FIU I/O deduplication traces: text with MD5 digests of the data read and written.
//!
//! ```text
//! ts_ns pid process lba(512 B) size(sectors) R|W major minor md5
//! ```
//!
//! The last field carries either one MD5 per 4 KiB of the request (mail, web-vm) or one per sector,
//! padded to eight per 4 KiB (homes); the digests of a longer request follow each other, with or
//! without blanks. The process name may itself contain blanks, so fields are taken from both ends.
//! Invariant: a record is accepted only if the number of digests fits its size exactly.

use super::record::{ByteExtent, Digests, Grain, Parsed, Reason, RequestKind, clip, number, words};

const DIGEST_HEX: usize = 32;
const SECTORS_PER_PAGE: u64 = 8;

pub(super) fn parse(line: &[u8], digests: &mut Digests) -> Result<Parsed, Reason> {
    digests.clear();
    let mut fields = words(line);

    // From the front as far as the fields are certain: a process name may contain blanks.
    let ts = fields.next().ok_or("an empty line")?;
    let pid = fields.next().ok_or("1 field instead of at least 9")?;

    // The digests are after all other fields: searches backwards for the first of them.
    let hex = fields.next_back().ok_or("2 fields instead of at least 9")?;
    let mut hex_begins = hex.as_ptr();
    let mut field = fields.next_back();
    while let Some(more) = field.filter(|field| field.len() >= DIGEST_HEX && is_hex(field)) {
        hex_begins = more.as_ptr();
        field = fields.next_back();
    }

    let mut last = |name: &str| {
        // The field that stopped the search for digests is the next from the end.
        let found = field.take().or_else(|| fields.next_back());
        found.ok_or_else(|| format!("the {name} is missing: at least 9 fields are needed"))
    };
    let (minor, major) = (last("minor number")?, last("major number")?);
    let (verb, sectors, lba) = (last("R or W")?, last("size")?, last("lba")?);

    // Must be present, but is not used.
    last("process")?;

    // Not used, but a line without a number here has another format.
    number(pid, "pid")?;
    let at_ns = number(ts, "timestamp")?;
    let device = Device {
        major: device_number(major, "major number")?,
        minor: device_number(minor, "minor number")?,
    };
    let verb = match verb {
        b"R" | b"r" => RequestKind::Read,
        b"W" | b"w" => RequestKind::Write,
        other => return Err(format!("`{}` is neither R nor W", clip(other))),
    };
    let sectors = number(sectors, "size")?;
    let parsed =
        ByteExtent::of_sectors(number(lba, "lba")?, sectors)?.request(at_ns, device.key(), verb)?;

    // The usual case is one field; it needs no second pass over the line.
    if hex_begins == hex.as_ptr() {
        unhex(hex, &mut digests.bytes)?;
    } else {
        let hex_begins = hex_begins as usize - line.as_ptr() as usize;
        for piece in words(&line[hex_begins..]) {
            unhex(piece, &mut digests.bytes)?;
        }
    }

    // Digests that do not fit the size mean a damaged line.
    digests.grain = grain(digests.bytes.len() * 2, sectors)?;
    Ok(parsed)
}

/// A block device, numbered as in Linux.
struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    fn key(&self) -> u64 {
        u64::from(self.major) * (1 << 32) + u64::from(self.minor)
    }
}

fn device_number(field: &[u8], name: &str) -> Result<u32, Reason> {
    u32::try_from(number(field, name)?)
        .map_err(|_| format!("{name} `{}` is too large", clip(field)))
}

/// Size of the content that one digest covers, from the number of digests.
fn grain(hex: usize, sectors: u64) -> Result<Grain, Reason> {
    let pages = sectors.div_ceil(SECTORS_PER_PAGE);
    let found = hex as u64;

    // A digest per page; or a digest per sector, where the last page's may be padded to eight.
    let per_page = pages * DIGEST_HEX as u64;
    let per_sector = sectors * DIGEST_HEX as u64;
    let padded = pages * SECTORS_PER_PAGE * DIGEST_HEX as u64;
    if found == per_page {
        Ok(Grain::Page)
    } else if found == per_sector || found == padded {
        Ok(Grain::Sector)
    } else {
        Err(format!(
            "{found} hex digits of MD5 for {sectors} sectors instead of {per_page} or {padded}"
        ))
    }
}

fn is_hex(field: &[u8]) -> bool {
    field.iter().all(u8::is_ascii_hexdigit)
}

/// Appends the bytes of a hexadecimal `field`.
#[inline]
fn unhex(field: &[u8], bytes: &mut Vec<u8>) -> Result<(), Reason> {
    let before = bytes.len();
    bytes.resize(before + field.len() / 2, 0);
    faster_hex::hex_decode(field, &mut bytes[before..]).map_err(|_| not_digests(field))
}

#[cold]
fn not_digests(field: &[u8]) -> Reason {
    if is_hex(field) {
        return format!("the digest has {} hex digits, an odd number", field.len());
    }
    format!("the digest `{}` is not hexadecimal", clip(field))
}
