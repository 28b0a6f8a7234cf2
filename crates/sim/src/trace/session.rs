//! Requests to a served device (`serve --record`): text, in whole pages, with contents and remaps.
//!
//! ```text
//! ns R page count                 read
//! ns W page digest ...            write, one digest of 16 bytes in hexadecimal for each page
//! ns N page count                 write of contents that were not recorded: each page's is unique
//! ns P page                       write of a part of a page
//! ns D page count                 deallocate
//! ns C target source count [a]    remap, to copy; `a`: all pages or none survive a power cut
//! ns M target source count [a]    remap, to relocate
//! ns F                            flush; replayed on request only
//! #device JSON                    first line: the device that was served
//! ```
//! Pages are of 4 KiB. Invariant: `parse` reads all lines written by `SessionEntry`. Absent: the
//! client of each request.

use std::io::{self, Write};

use remap_ssd_device::DeviceConfig;

use super::address::PAGE_BYTES;
use super::record::{
    ByteExtent, DIGEST_BYTES, Digests, Grain, Moved, Parsed, Reason, RequestKind, clip, number,
    words,
};

/// Half a page: the replayed length of a partial write.
const PART_BYTES: u64 = PAGE_BYTES / 2;

/// Writes the first line of a session of this device.
///
/// # Errors
/// The sink fails.
pub fn write_device(config: &DeviceConfig, to: &mut impl Write) -> io::Result<()> {
    let json = serde_json::to_string(config).map_err(io::Error::other)?;
    writeln!(to, "{DEVICE}{json}")
}

/// Prefix of the first line.
const DEVICE: &str = "#device ";

/// The device named at the beginning of a session.
pub(super) fn device(sample: &[u8]) -> Option<DeviceConfig> {
    let line = sample.split(|&byte| byte == b'\n').next()?;
    serde_json::from_slice(line.strip_prefix(DEVICE.as_bytes())?).ok()
}

/// One request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEntry<'a> {
    /// Reads consecutive pages.
    Read {
        /// First page of the request.
        page: u64,
        /// Number of pages.
        count: u64,
    },
    /// Writes a page for each digest.
    Write {
        /// First page of the request.
        page: u64,
        /// Equal if and only if the contents are equal.
        digests: &'a [[u8; DIGEST_BYTES]],
    },
    /// Writes a part of a page.
    WritePart {
        /// The page written.
        page: u64,
    },
    /// Deallocates consecutive pages.
    Deallocate {
        /// First page of the request.
        page: u64,
        /// Number of pages.
        count: u64,
    },
    /// Remaps consecutive pages.
    Remap {
        /// First page of the target.
        target: u64,
        /// First page of the source.
        source: u64,
        /// Number of pages.
        count: u64,
        /// The sources are unmapped.
        relocate: bool,
        /// All pages or none survive a power cut.
        atomic: bool,
    },
    /// Makes all earlier requests durable.
    Flush,
}

impl SessionEntry<'_> {
    /// Writes the entry as a line.
    ///
    /// # Errors
    /// The sink fails.
    pub fn write(&self, at_ns: u64, to: &mut impl Write) -> io::Result<()> {
        match *self {
            Self::Read { page, count } => writeln!(to, "{at_ns} R {page} {count}"),
            Self::Write { page, digests } => {
                write!(to, "{at_ns} W {page}")?;
                // Fixed width: leading zeros are kept.
                for digest in digests {
                    write!(to, " {:032x}", u128::from_be_bytes(*digest))?;
                }
                writeln!(to)
            }
            Self::WritePart { page } => writeln!(to, "{at_ns} P {page}"),
            Self::Deallocate { page, count } => writeln!(to, "{at_ns} D {page} {count}"),
            Self::Remap {
                target,
                source,
                count,
                relocate,
                atomic,
            } => {
                // Only the atomic mark is written: the usual remap has none.
                let (verb, atomic) = (
                    if relocate { 'M' } else { 'C' },
                    if atomic { " a" } else { "" },
                );
                writeln!(to, "{at_ns} {verb} {target} {source} {count}{atomic}")
            }
            Self::Flush => writeln!(to, "{at_ns} F"),
        }
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u128> {
    let text = std::str::from_utf8(digits).ok()?;
    u128::from_str_radix(text, 16).ok()
}

fn extent(page: u64, count: u64) -> Result<ByteExtent, Reason> {
    let bytes = |pages: u64| {
        pages
            .checked_mul(PAGE_BYTES)
            .ok_or_else(|| format!("page {pages} lies beyond any disk"))
    };
    Ok(ByteExtent {
        offset: bytes(page)?,
        len: bytes(count)?,
    })
}

pub(super) fn parse(line: &[u8], digests: &mut Digests) -> Result<Parsed, Reason> {
    // Digests of the previous record must not remain.
    digests.clear();

    // The device's description is no record: `device` reads it when the file is opened.
    if line.starts_with(b"#") {
        return Ok(Parsed::Blank);
    }

    let mut fields = words(line);
    let at_ns = number(fields.next().ok_or("an empty line")?, "time")?;
    let verb = fields.next().ok_or("the verb is missing")?;

    let mut next = |name: &str| {
        number(
            fields
                .next()
                .ok_or_else(|| format!("the {name} is missing"))?,
            name,
        )
    };

    // The verb decides which fields follow, so they are parsed by name.
    let parsed = match verb {
        b"R" => extent(next("page")?, next("count")?)?.request(at_ns, 0, RequestKind::Read)?,
        b"D" => extent(next("page")?, next("count")?)?.request(at_ns, 0, RequestKind::Trim)?,
        b"N" => extent(next("page")?, next("count")?)?.request(at_ns, 0, RequestKind::Write)?,
        // The length of a partial write is not recorded: half a page stands for any part.
        b"P" => ByteExtent {
            len: PART_BYTES,
            ..extent(next("page")?, 1)?
        }
        .request(at_ns, 0, RequestKind::Write)?,
        b"W" => {
            let page = next("page")?;
            let count = read_digests(fields.by_ref(), digests)?;
            extent(page, count)?.request(at_ns, 0, RequestKind::Write)?
        }
        b"C" | b"M" => {
            let (target, source, count) = (next("target")?, next("source")?, next("count")?);
            // Both ranges must be valid.
            for page in [target, source] {
                extent(page, count)?.request(at_ns, 0, RequestKind::Trim)?;
            }

            let atomic = match fields.next() {
                None => false,
                Some(b"a") => true,
                Some(other) => return Err(format!("`{}` is not `a`", clip(other))),
            };

            Parsed::Moved(Moved {
                at_ns,
                target,
                source,
                count,
                relocate: verb == b"M",
                atomic,
            })
        }
        b"F" => Parsed::Flush(at_ns),
        other => {
            return Err(format!(
                "`{}` is none of R, W, N, P, D, C, M, F",
                clip(other)
            ));
        }
    };

    // A line with more fields is of a later version, or damaged.
    match fields.next() {
        Some(more) => Err(format!(
            "more than belongs to {}: `{}`",
            clip(verb),
            clip(more)
        )),
        None => Ok(parsed),
    }
}

/// Reads one digest for each page of a write, and returns their number: a write has no count field.
fn read_digests<'a>(
    fields: impl Iterator<Item = &'a [u8]>,
    digests: &mut Digests,
) -> Result<u64, Reason> {
    let mut count = 0;
    for digest in fields {
        // All digits are required: a truncated digest would be another content.
        let value = (digest.len() == 2 * DIGEST_BYTES)
            .then(|| hexadecimal(digest))
            .flatten();
        let value = value
            .ok_or_else(|| format!("`{}` is no digest of 32 hexadecimal digits", clip(digest)))?;
        digests.bytes.extend_from_slice(&value.to_be_bytes());
        count += 1;
    }

    // One digest per page, independent of the last record's grain.
    digests.grain = Grain::Page;
    Ok(count)
}
