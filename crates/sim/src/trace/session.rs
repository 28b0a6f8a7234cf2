//! What a served device was asked (`serve --record`): text, in whole pages, with contents and remaps.
//!
//! ```text
//! ns R page count                 read
//! ns W page digest ...            write, one digest of 16 bytes in hexadecimal for each page
//! ns N page count                 write of contents that were not recorded: each page has one of its own
//! ns P page                       write of a part of a page
//! ns D page count                 deallocate
//! ns C target source count [a]    remap, to copy; `a`: all pages or none survive a power cut
//! ns M target source count [a]    remap, to relocate
//! ns F                            flush; replayed if that is asked for
//! ```
//! Pages are of 4 KiB. Invariant: what `Entry` writes, `parse` reads. Absent: who asked.

use std::io::{self, Write};

use super::address::PAGE_BYTES;
use super::record::{
    DIGEST_BYTES, Digests, Extent, Grain, Moved, Parsed, Reason, Verb, clip, number,
};

/// Half a page, which is what a part is replayed as.
const PART_BYTES: u64 = PAGE_BYTES / 2;

/// One request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Reads pages.
    Read {
        /// First.
        page: u64,
        /// How many.
        count: u64,
    },
    /// Writes a page for each digest.
    Write {
        /// First.
        page: u64,
        /// Equal for equal contents, and for no others.
        digests: &'a [[u8; DIGEST_BYTES]],
    },
    /// Writes a part of a page.
    WritePart {
        /// The page.
        page: u64,
    },
    /// Deallocates pages.
    Deallocate {
        /// First.
        page: u64,
        /// How many.
        count: u64,
    },
    /// Remaps pages.
    Remap {
        /// First target.
        target: u64,
        /// First source.
        source: u64,
        /// How many.
        count: u64,
        /// The sources lose their pages.
        relocate: bool,
        /// All pages or none survive a power cut.
        atomic: bool,
    },
    /// Makes everything durable.
    Flush,
}

impl Entry<'_> {
    /// Writes it as a line.
    ///
    /// # Errors
    /// The sink's.
    pub fn write(&self, at_ns: u64, to: &mut impl Write) -> io::Result<()> {
        match *self {
            Self::Read { page, count } => writeln!(to, "{at_ns} R {page} {count}"),
            Self::Write { page, digests } => {
                write!(to, "{at_ns} W {page}")?;
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

fn extent(page: u64, count: u64) -> Result<Extent, Reason> {
    let bytes = |pages: u64| {
        pages
            .checked_mul(PAGE_BYTES)
            .ok_or_else(|| format!("page {pages} lies beyond any disk"))
    };
    Ok(Extent {
        offset: bytes(page)?,
        len: bytes(count)?,
    })
}

pub(super) fn parse(line: &str, digests: &mut Digests) -> Result<Parsed, Reason> {
    digests.clear();
    let mut fields = line.split_ascii_whitespace();
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
    let parsed = match verb {
        "R" => extent(next("page")?, next("count")?)?.request(at_ns, 0, Verb::Read)?,
        "D" => extent(next("page")?, next("count")?)?.request(at_ns, 0, Verb::Trim)?,
        "N" => extent(next("page")?, next("count")?)?.request(at_ns, 0, Verb::Write)?,
        "P" => Extent {
            len: PART_BYTES,
            ..extent(next("page")?, 1)?
        }
        .request(at_ns, 0, Verb::Write)?,
        "W" => {
            let page = next("page")?;
            let mut count = 0;
            for digest in fields.by_ref() {
                let value = (digest.len() == 2 * DIGEST_BYTES)
                    .then(|| u128::from_str_radix(digest, 16).ok())
                    .flatten();
                let value = value.ok_or_else(|| {
                    format!("`{}` is no digest of 32 hexadecimal digits", clip(digest))
                })?;
                digests.bytes.extend_from_slice(&value.to_be_bytes());
                count += 1;
            }
            digests.grain = Grain::Page;
            extent(page, count)?.request(at_ns, 0, Verb::Write)?
        }
        "C" | "M" => {
            let (target, source, count) = (next("target")?, next("source")?, next("count")?);
            // Both ends must be possible.
            for page in [target, source] {
                extent(page, count)?.request(at_ns, 0, Verb::Trim)?;
            }
            let atomic = match fields.next() {
                None => false,
                Some("a") => true,
                Some(other) => return Err(format!("`{}` is not `a`", clip(other))),
            };
            Parsed::Moved(Moved {
                at_ns,
                target,
                source,
                count,
                relocate: verb == "M",
                atomic,
            })
        }
        "F" => Parsed::Flush(at_ns),
        other => {
            return Err(format!(
                "`{}` is none of R, W, N, P, D, C, M, F",
                clip(other)
            ));
        }
    };
    match fields.next() {
        Some(more) => Err(format!("more than belongs to {verb}: `{}`", clip(more))),
        None => Ok(parsed),
    }
}
