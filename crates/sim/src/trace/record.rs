//! The common form of the records of all formats: one request in bytes, and the digests of its
//! contents.
//!
//! Invariants: a `Request` has at least one byte, ends below 2^64, and is no longer than its verb
//! allows, so that a damaged size cannot take memory or time without bound; text of a file quoted
//! in a reason is escaped. Absent: pages. Cutting and folding happen in `address.rs`, for all
//! formats alike. The order of times: `order.rs`.

use remap_ssd_media::Escaped;
use xxhash_rust::xxh3::xxh3_128;

use super::action::Action;
use super::address::PAGE_BYTES;

/// Bytes of a sector, the unit of most formats.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Longest read or write accepted; kernels split requests three orders of magnitude earlier.
const TRANSFER_BYTES_MAX: u64 = 1 << 30;
/// Longest deallocation accepted; Linux counts the bytes of one in 32 bits.
const TRIM_BYTES_MAX: u64 = 1 << 32;

/// Why a record cannot be used, in a few words.
pub(super) type Reason = String;

/// A parsed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request that reads, writes or deallocates.
    Request(Request),
    /// A request that remaps pages.
    Moved(Moved),
    /// A flush at this time; replayed on request only.
    Flush(u64),
    /// Well-formed, but not a request: another action, a flush, a line of a summary.
    Ignored,
    /// A request of no bytes: some recorders write them. Nothing to replay, but evidence of a
    /// format.
    Empty,
    /// An event of an action preferred to the one chosen for the file.
    Better(Action),
    /// A header or a comment, which is no record.
    Blank,
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write,
    Trim,
}

/// One request as recorded; `at_ns` counts from the recorder's own zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub at_ns: u64,
    pub device: u64,
    pub verb: RequestKind,
    pub offset: u64,
    pub len: u64,
}

/// A remap as recorded, in pages of device 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub at_ns: u64,
    pub target: u64,
    pub source: u64,
    pub count: u64,
    pub relocate: bool,
    pub atomic: bool,
}

/// Offset and length of a request, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteExtent {
    pub offset: u64,
    pub len: u64,
}

impl ByteExtent {
    /// An extent given in sectors of 512 bytes.
    pub(super) fn of_sectors(lba: u64, sectors: u64) -> Result<Self, Reason> {
        Ok(Self {
            offset: lba
                .checked_mul(SECTOR_BYTES)
                .ok_or_else(|| format!("sector {lba} lies beyond any disk"))?,
            len: sectors
                .checked_mul(SECTOR_BYTES)
                .ok_or_else(|| format!("a size of {sectors} sectors is absurd"))?,
        })
    }

    /// Converts this extent to a request, if it is valid.
    pub(super) fn request(
        self,
        at_ns: u64,
        device: u64,
        verb: RequestKind,
    ) -> Result<Parsed, Reason> {
        let Self { offset, len } = self;

        if len == 0 {
            return Ok(Parsed::Empty);
        }

        // A deallocation may span a disk, a transfer only what fits in memory.
        let longest = match verb {
            RequestKind::Read | RequestKind::Write => TRANSFER_BYTES_MAX,
            RequestKind::Trim => TRIM_BYTES_MAX,
        };

        if len > longest {
            return Err(format!("a size of {len} bytes is absurd"));
        }

        // Checked here once: later additions of the two cannot overflow.
        if offset.checked_add(len).is_none() {
            return Err(format!("{len} bytes at byte {offset} end beyond any disk"));
        }

        Ok(Parsed::Request(Request {
            at_ns,
            device,
            verb,
            offset,
            len,
        }))
    }
}

/// Size of the content that one digest covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Grain {
    /// The record carries no digests.
    #[default]
    None,
    /// One per 4 KiB of the request, counted from its start.
    Page,
    /// One per sector of 512 bytes.
    Sector,
}

/// Bytes of one MD5 digest.
pub(super) const DIGEST_BYTES: usize = 16;

/// The digests of one request; a buffer reused from record to record.
#[derive(Debug, Default)]
pub(super) struct Digests {
    pub bytes: Vec<u8>,
    pub grain: Grain,
}

impl Digests {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.grain = Grain::None;
    }

    /// The digest, or the eight digests, of the page at `page_start`, which the request covers
    /// whole; `None` if the recorder's chunks straddle the page.
    pub(super) fn of_page(&self, request: &Request, page_start: u64) -> Option<&[u8]> {
        let ahead = page_start.checked_sub(request.offset)?;
        let (chunk, digests) = match self.grain {
            Grain::None => return None,
            Grain::Page => (PAGE_BYTES, 1),
            Grain::Sector => (SECTOR_BYTES, (PAGE_BYTES / SECTOR_BYTES) as usize),
        };
        if ahead % chunk != 0 {
            return None;
        }
        let from = usize::try_from(ahead / chunk).ok()? * DIGEST_BYTES;
        self.bytes.get(from..from + digests * DIGEST_BYTES)
    }

    /// Derives the content of a request of `len` bytes from `name`: each of its pages has the same
    /// content as that page of any other request with this name.
    pub(super) fn of_request(&mut self, name: &[u8], len: u64) {
        self.grain = Grain::Page;
        let first = xxh3_128(name);
        for page in 0..len.div_ceil(PAGE_BYTES) {
            let digest = match page {
                0 => first,
                _ => xxh3_128([first, page.into()].map(u128::to_le_bytes).as_flattened()),
            };
            self.bytes.extend(digest.to_le_bytes());
        }
    }
}

/// Parses `field` as a number, or returns a reason that names the field.
#[inline(always)]
pub(super) fn number(field: &[u8], name: &str) -> Result<u64, Reason> {
    // Nineteen digits always fit.
    if (1..=19).contains(&field.len()) {
        let (mut value, mut worst) = (0u64, 0);
        for &byte in field {
            // A non-digit wraps to more than nine, and shows in the maximum.
            let digit = byte.wrapping_sub(b'0');
            worst = worst.max(digit);
            value = value.wrapping_mul(10).wrapping_add(digit.into());
        }
        if worst <= 9 {
            return Ok(value);
        }
    }
    long_number(field, name)
}

/// Like `number`, for any field, with the reason for an invalid one.
#[cold]
fn long_number(field: &[u8], name: &str) -> Result<u64, Reason> {
    if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
        return Err(format!("{name} `{}` is not a number", clip(field)));
    }
    let text = String::from_utf8_lossy(field);
    text.parse()
        .map_err(|_| format!("{name} `{}` is too large", clip(field)))
}

/// A timestamp in units of `unit_ns` nanoseconds.
pub(super) fn ticks(field: &[u8], unit_ns: u64) -> Result<u64, Reason> {
    number(field, "timestamp")?
        .checked_mul(unit_ns)
        .ok_or_else(|| format!("timestamp `{}` is too large", clip(field)))
}

/// Returns the kind for one of two codes, or a reason that names the field.
#[inline(always)]
pub(super) fn verb_of(
    field: &[u8],
    name: &str,
    read: &str,
    write: &str,
) -> Result<RequestKind, Reason> {
    if field == read.as_bytes() {
        return Ok(RequestKind::Read);
    }
    if field == write.as_bytes() {
        return Ok(RequestKind::Write);
    }
    let (first, second) = (read.min(write), read.max(write));
    Err(format!(
        "{name} `{}` is neither {first} nor {second}",
        clip(field)
    ))
}

/// Seconds with up to nine digits after the point, in nanoseconds.
pub(super) fn seconds(field: &[u8]) -> Result<u64, Reason> {
    let not_time = || format!("time `{}` is not seconds.nanoseconds", clip(field));
    let point = field.iter().position(|&byte| byte == b'.');
    let digits = point.map_or(0, |point| field.len() - point - 1);
    if !(1..=9).contains(&digits) {
        return Err(not_time());
    }
    decimal(field, 1_000_000_000, "time").map_err(|_| not_time())
}

/// Parses a number with or without a fraction, in units of `unit_ns` nanoseconds; fractions of a
/// nanosecond are dropped.
pub(super) fn decimal(field: &[u8], unit_ns: u64, name: &str) -> Result<u64, Reason> {
    /// Digits of a fraction that are used; more are far below a nanosecond.
    const DIGITS: usize = 18;

    let wrong = |what| format!("{name} `{}` {what}", clip(field));
    let (whole, fraction) = match field.iter().position(|&byte| byte == b'.') {
        Some(point) => (&field[..point], &field[point + 1..]),
        None => (field, &b"0"[..]),
    };
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || !is_number(fraction) {
        return Err(wrong("is not a number"));
    }

    let whole = number(whole, name).map_err(|_| wrong("is too large"))?;
    let counted = &fraction[..fraction.len().min(DIGITS)];
    let parts = u128::from(number(counted, name)?) * u128::from(unit_ns);
    let part_ns = (parts / 10u128.pow(counted.len() as u32)) as u64;

    whole
        .checked_mul(unit_ns)
        .and_then(|ns| ns.checked_add(part_ns))
        .ok_or_else(|| wrong("is too large"))
}

/// Returns `field` truncated for a message, and escaped: control characters of a file must not
/// reach the terminal.
pub(super) fn clip(field: &[u8]) -> String {
    const SHOWN: usize = 32;
    let text = String::from_utf8_lossy(field);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", Escaped::text(&text[..end])),
        None => Escaped::text(&text).to_string(),
    }
}

/// The blank-separated fields of a line, from either end.
#[inline]
pub(super) fn words(line: &[u8]) -> Words<'_> {
    Words { rest: line }
}

/// The remaining fields of a line.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.rest.iter().position(|byte| !is_blank(*byte))?;
        let from_begin = &self.rest[begin..];
        let end = from_begin.iter().position(|byte| is_blank(*byte));
        let (word, rest) = from_begin.split_at(end.unwrap_or(from_begin.len()));
        self.rest = rest;
        Some(word)
    }
}

impl<'a> DoubleEndedIterator for Words<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<&'a [u8]> {
        let end = 1 + self.rest.iter().rposition(|byte| !is_blank(*byte))?;
        let to_end = &self.rest[..end];

        // Digests are long: compares many bytes at a time first.
        let mut unknown = to_end;
        while let Some((before, chunk)) = unknown.split_last_chunk::<32>()
            && is_solid(chunk)
        {
            unknown = before;
        }

        let begin = unknown.iter().rposition(|byte| is_blank(*byte));
        let (rest, word) = to_end.split_at(begin.map_or(0, |blank| blank + 1));
        self.rest = rest;
        Some(word)
    }
}

/// Returns true if every byte is above the space, which no blank is: eight bytes at a time.
#[inline]
fn is_solid(chunk: &[u8; 32]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Added to the low seven bits of a byte, it carries into the eighth bit from 0x21 on.
    const FROM_0X21: u64 = 0x5f5f_5f5f_5f5f_5f5f;

    let (words, _) = chunk.as_chunks::<8>();
    let highest = words.iter().fold(HIGH, |all, word| {
        let word = u64::from_le_bytes(*word);
        all & (((word & !HIGH) + FROM_0X21) | word)
    });
    highest == HIGH
}

/// Returns true for the five bytes of `u8::is_ascii_whitespace`, none of them above a space.
#[inline]
fn is_blank(byte: u8) -> bool {
    byte <= b' ' && byte.is_ascii_whitespace()
}

/// The comma-separated fields of a line.
#[inline]
pub(super) fn values(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns exactly `N` fields, or a reason that says how many there are.
pub(super) fn exactly<'a, const N: usize>(
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> Result<[&'a [u8]; N], Reason> {
    let mut found: [&[u8]; N] = [b""; N];
    for (count, slot) in found.iter_mut().enumerate() {
        *slot = fields
            .next()
            .ok_or_else(|| format!("{count} fields instead of {N}"))?;
    }
    match fields.next() {
        Some(extra) => Err(format!("more than {N} fields: `{}`", clip(extra))),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_solid_if_each_of_its_bytes_is_above_the_space() {
        for place in 0..32 {
            for byte in 0..=u8::MAX {
                let mut chunk = [b'f'; 32];
                chunk[place] = byte;
                assert_eq!(is_solid(&chunk), byte > b' ', "{byte:#x} at {place}");
            }
        }
    }

    #[test]
    fn fields_are_found_from_both_ends_whatever_blanks_are_between() {
        let long = "0123456789abcdef".repeat(5);
        let line = format!(" 12\t{long} x\x0c{long}\r");
        let forward: Vec<&[u8]> = words(line.as_bytes()).collect();
        let mut backward: Vec<&[u8]> = words(line.as_bytes()).rev().collect();
        backward.reverse();

        let expected = ["12", &long, "x", &long].map(str::as_bytes);
        assert_eq!(
            (&forward[..], &backward[..]),
            (&expected[..], &expected[..])
        );
    }
}
