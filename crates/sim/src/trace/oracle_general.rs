//! libCacheSim's `oracleGeneral`: binary records of cache requests, little-endian.
//!
//! ```text
//! u32 seconds, u64 object, u32 size(B), i64 number of the next request of the object, or -1
//! ```
//!
//! A cache request names an object without a location: each request reads the object's pages,
//! starting at the page with its number (the lowest 40 bits of it). `Fold::Compact` assigns
//! locations to objects in order of appearance. The records have no magic number: a file is
//! accepted if, in its first records, times do not go back and each next request comes later.
//! Absent: writes, contents.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::address::PAGE_BYTES;
use super::record::{ByteExtent, Parsed, Reason, RequestKind};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OracleRecord {
    at_s: U32,
    object: U64,
    len_bytes: U32,
    next: I64,
}

const _: () = assert!(size_of::<OracleRecord>() == RECORD_BYTES);

pub(super) const RECORD_BYTES: usize = 24;

const TICK_NS: u64 = 1_000_000_000;
const PAGES_MAX: u64 = 1 << 40;

/// Returns true if a file begins with such records.
pub(super) fn is_trace(sample: &[u8]) -> bool {
    const RECORDS_JUDGED: usize = 64;

    let (records, rest) = sample.as_chunks::<RECORD_BYTES>();
    // Few records prove little: at least they must be whole.
    if records.len() < RECORDS_JUDGED && !rest.is_empty() {
        return false;
    }
    let mut before = 0;

    let is_record = |(index, bytes): (usize, &[u8; RECORD_BYTES])| {
        let Ok(record) = OracleRecord::ref_from_bytes(bytes) else {
            return false;
        };

        let (at_s, next) = (record.at_s.get(), record.next.get());
        let in_order = at_s >= before;
        before = at_s;

        // The next access to an object is after this one, or there is none.
        let is_later = next == -1 || next == i64::MAX || next > index as i64;
        in_order && is_later && parse(bytes).is_ok()
    };

    // A text may look like records by chance, and is rejected.
    let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();

    !records.is_empty()
        && !sample.iter().take(RECORD_BYTES).all(text)
        && records
            .iter()
            .take(RECORDS_JUDGED)
            .enumerate()
            .all(is_record)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Reason> {
    let record = OracleRecord::ref_from_bytes(bytes)
        .map_err(|_| format!("cut: {} of {RECORD_BYTES} bytes", bytes.len()))?;
    let next = record.next.get();
    if next < -1 {
        return Err(format!("{next} is not the number of a request"));
    }
    let extent = ByteExtent {
        offset: record.object.get() % PAGES_MAX * PAGE_BYTES,
        len: record.len_bytes.get().into(),
    };
    extent.request(u64::from(record.at_s.get()) * TICK_NS, 0, RequestKind::Read)
}
