//! What every format's record becomes: one request in bytes, and the digests of its contents.
//!
//! Invariants: a `Request` has at least one byte, ends below 2^64, and is no longer than its verb
//! can be, so that a damaged size cannot ask for memory or time without bound. Absent: pages.
//! Cutting and folding happen in `address.rs`, for all formats alike.

/// Bytes of a sector, the unit of most formats.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Longest read or write believed; kernels split requests three orders of magnitude earlier.
const TRANSFER_BYTES_MAX: u64 = 1 << 30;
/// Longest deallocation believed; Linux counts the bytes of one in 32 bits.
const TRIM_BYTES_MAX: u64 = 1 << 32;

/// Why a record cannot be used, in a few words.
pub(super) type Reason = String;

/// What a well-formed record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request that reads, writes or deallocates.
    Request(Request),
    /// A request that remaps pages.
    Moved(Moved),
    /// A flush at this time, to replay if that is wanted.
    Flush(u64),
    /// Well-formed, but not a request: another action, a flush, a line of a summary.
    Ignored,
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

/// One request as recorded; `at_ns` counts from whatever the recorder counted from.
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

/// Where a request starts and how long it is, in the recorder's unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteExtent {
    pub offset: u64,
    pub len: u64,
}

impl ByteExtent {
    /// An extent given in sectors of 512 bytes.
    pub fn of_sectors(lba: u64, sectors: u64) -> Result<Self, Reason> {
        Ok(Self {
            offset: lba
                .checked_mul(SECTOR_BYTES)
                .ok_or_else(|| format!("sector {lba} lies beyond any disk"))?,
            len: sectors
                .checked_mul(SECTOR_BYTES)
                .ok_or_else(|| format!("a size of {sectors} sectors is absurd"))?,
        })
    }

    /// This extent as a request, if it can be one.
    pub fn request(self, at_ns: u64, device: u64, verb: RequestKind) -> Result<Parsed, Reason> {
        let Self { offset, len } = self;

        // Some recorders write such lines; none of them can be replayed.
        if len == 0 {
            return Err("the size is 0".to_owned());
        }

        // A deallocation may name a whole disk, a transfer only what memory can hold.
        let longest = match verb {
            RequestKind::Read | RequestKind::Write => TRANSFER_BYTES_MAX,
            RequestKind::Trim => TRIM_BYTES_MAX,
        };

        if len > longest {
            return Err(format!("a size of {len} bytes is absurd"));
        }

        // Checked once, here: whoever adds the two later need not.
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

/// How much content one digest covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Grain {
    /// The record carries no digests.
    #[default]
    None,
    /// One per 4 KiB of the request, counted from its start.
    Page,
    /// One identity for each sector of 512 bytes.
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
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.grain = Grain::None;
    }

    /// The digest, or the eight digests, of exactly the content at `page_start`, a page that the
    /// request covers whole; `None` when the recorder's chunks straddle it.
    pub fn of_page(&self, request: &Request, page_start: u64) -> Option<&[u8]> {
        let ahead = page_start.checked_sub(request.offset)?;
        let (chunk, digests) = match self.grain {
            Grain::None => return None,
            Grain::Page => (super::PAGE_BYTES, 1),
            Grain::Sector => (SECTOR_BYTES, (super::PAGE_BYTES / SECTOR_BYTES) as usize),
        };
        if ahead % chunk != 0 {
            return None;
        }
        let from = usize::try_from(ahead / chunk).ok()? * DIGEST_BYTES;
        self.bytes.get(from..from + digests * DIGEST_BYTES)
    }
}

/// `field` as a number, or a reason that names the field.
#[inline(always)]
pub(super) fn number(field: &[u8], name: &str) -> Result<u64, Reason> {
    // Nineteen digits always fit.
    if (1..=19).contains(&field.len()) {
        let (mut value, mut worst) = (0u64, 0);
        for &byte in field {
            // What is no digit wraps to more than nine, and shows in the worst of all.
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

/// The same of any field, and what is wrong with one.
#[cold]
fn long_number(field: &[u8], name: &str) -> Result<u64, Reason> {
    if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
        return Err(format!("{name} `{}` is not a number", clip(field)));
    }
    let text = String::from_utf8_lossy(field);
    text.parse()
        .map_err(|_| format!("{name} `{}` is too large", clip(field)))
}

/// Seconds with up to nine digits behind the point, in nanoseconds.
pub(super) fn seconds(field: &[u8]) -> Result<u64, Reason> {
    const NS_PER_S: u64 = 1_000_000_000;
    let not_time = || format!("time `{}` is not seconds.nanoseconds", clip(field));
    let point = field
        .iter()
        .position(|&byte| byte == b'.')
        .ok_or_else(not_time)?;
    let (whole, fraction) = (&field[..point], &field[point + 1..]);
    let missing = 9usize.checked_sub(fraction.len()).ok_or_else(not_time)?;
    let whole = number(whole, "").map_err(|_| not_time())?;
    let fraction = number(fraction, "").map_err(|_| not_time())?;
    whole
        .checked_mul(NS_PER_S)
        .and_then(|ns| ns.checked_add(fraction * 10u64.pow(missing as u32)))
        .ok_or_else(not_time)
}

/// `field`, short enough to be quoted in a message.
pub(super) fn clip(field: &[u8]) -> String {
    const SHOWN: usize = 32;
    let text = String::from_utf8_lossy(field);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

/// The fields of a line that blanks separate, from either end.
#[inline]
pub(super) fn words(line: &[u8]) -> Words<'_> {
    Words { rest: line }
}

/// What is left of a line's fields.
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

        // Digests are long: many bytes at a time first.
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

/// Whether every byte is above the space, which no blank is: eight bytes at a time.
#[inline]
fn is_solid(chunk: &[u8; 32]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Added to the low seven bits of a byte, it carries into the eighth from the byte 0x21 on.
    const FROM_0X21: u64 = 0x5f5f_5f5f_5f5f_5f5f;

    let (words, _) = chunk.as_chunks::<8>();
    let highest = words.iter().fold(HIGH, |all, word| {
        let word = u64::from_le_bytes(*word);
        all & (((word & !HIGH) + FROM_0X21) | word)
    });
    highest == HIGH
}

/// One of the five bytes that `u8::is_ascii_whitespace` knows, none of them above a space.
#[inline]
fn is_blank(byte: u8) -> bool {
    byte <= b' ' && byte.is_ascii_whitespace()
}

/// The fields of a line that commas separate.
#[inline]
pub(super) fn values(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Exactly `N` fields, or a reason that says how many there are.
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
