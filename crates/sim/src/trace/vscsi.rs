//! The CloudPhysics traces: binary records of SCSI commands, little-endian.
//!
//! Two versions exist; the high byte of the field `ver` in every record gives the version. The
//! reader takes the version from the first records and requires it of all others, which detects a
//! file that is cut or shifted by some bytes. Reads and writes of 6, 10, 12 and 16 bytes are
//! requests; every other command is ignored. Invariant: records are 32 and 40 bytes, as asserted.
//! Absent: contents; every whole page written is new. Response times of version 2.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::record::{ByteExtent, Parsed, Reason, RequestKind};

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordV1 {
    sequence: U32,
    len_bytes: U32,
    scatter_entries: U32,
    opcode: U16,
    version: VersionField,
    lba: U64,
    at_us: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordV2 {
    opcode: U16,
    version: VersionField,
    sequence: U32,
    len_bytes: U32,
    scatter_entries: U32,
    lba: U64,
    at_us: U64,
    response_us: U64,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VersionField {
    minor: u8,
    major: u8,
}

const _: () = assert!(size_of::<RecordV1>() == 32);
const _: () = assert!(size_of::<RecordV2>() == 40);

/// Longest record of any version.
pub(super) const RECORD_BYTES_MAX: usize = size_of::<RecordV2>();

/// The layout of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VscsiVersion {
    V1,
    V2,
}

impl VscsiVersion {
    /// Returns the version of a file that begins with `sample`, if most of its first records agree
    /// on one: other errors of a record are reported when it is read.
    pub(super) fn of(sample: &[u8]) -> Option<VscsiVersion> {
        const RECORDS_JUDGED: usize = 8;

        // Several records, since one may fit the other layout by chance.
        [VscsiVersion::V1, VscsiVersion::V2]
            .into_iter()
            .find(|version| {
                let records = sample
                    .chunks_exact(version.record_bytes())
                    .take(RECORDS_JUDGED);
                let judged = records.len();
                2 * records.filter(|record| version.is_of(record)).count() > judged
            })
    }

    /// Returns true if a record has this version, and a valid operation code in its place.
    fn is_of(self, bytes: &[u8]) -> bool {
        let (opcode, version, major) = match self {
            VscsiVersion::V1 => match RecordV1::ref_from_bytes(bytes) {
                Ok(record) => (record.opcode, record.version, 1),
                Err(_) => return false,
            },
            VscsiVersion::V2 => match RecordV2::ref_from_bytes(bytes) {
                Ok(record) => (record.opcode, record.version, 2),
                Err(_) => return false,
            },
        };
        version.major == major && opcode.get() <= 0xff
    }

    /// Bytes of one record of this version.
    pub(super) fn record_bytes(self) -> usize {
        match self {
            VscsiVersion::V1 => size_of::<RecordV1>(),
            VscsiVersion::V2 => size_of::<RecordV2>(),
        }
    }

    /// Returns the version of the first record, regardless of its other fields.
    pub(super) fn of_first(sample: &[u8]) -> Result<VscsiVersion, Reason> {
        let v1 = RecordV1::ref_from_prefix(sample).ok();
        let v2 = RecordV2::ref_from_prefix(sample).ok();
        if v1.is_some_and(|(record, _)| record.version.major == 1) {
            Ok(VscsiVersion::V1)
        } else if v2.is_some_and(|(record, _)| record.version.major == 2) {
            Ok(VscsiVersion::V2)
        } else if sample.len() < size_of::<RecordV1>() {
            Err(format!(
                "cut: {} bytes of at least {}",
                sample.len(),
                size_of::<RecordV1>()
            ))
        } else {
            Err("a record of neither version 1 nor version 2".to_owned())
        }
    }

    /// Parses one whole record.
    pub(super) fn parse(self, bytes: &[u8]) -> Result<Parsed, Reason> {
        let cut = || format!("cut: {} of {} bytes", bytes.len(), self.record_bytes());
        match self {
            VscsiVersion::V1 => {
                let record = RecordV1::ref_from_bytes(bytes).map_err(|_| cut())?;
                record.version.expect(1)?;
                request(record.opcode, record.lba, record.len_bytes, record.at_us)
            }
            VscsiVersion::V2 => {
                let record = RecordV2::ref_from_bytes(bytes).map_err(|_| cut())?;
                record.version.expect(2)?;
                request(record.opcode, record.lba, record.len_bytes, record.at_us)
            }
        }
    }
}

impl VersionField {
    fn expect(self, major: u8) -> Result<(), Reason> {
        if self.major == major {
            Ok(())
        } else {
            Err(format!(
                "version {}.{} instead of {major}",
                self.major, self.minor
            ))
        }
    }
}

/// The kind of a command, if it reads or writes.
pub(super) fn verb(opcode: u8) -> Option<RequestKind> {
    match opcode {
        // READ and WRITE of 6, 10, 16 and 12 bytes.
        0x08 | 0x28 | 0x88 | 0xa8 => Some(RequestKind::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(RequestKind::Write),
        _ => None,
    }
}

fn request(opcode: U16, lba: U64, len_bytes: U32, at_us: U64) -> Result<Parsed, Reason> {
    // Valid codes have one byte: a larger one means that this is no record.
    let Ok(code) = u8::try_from(opcode.get()) else {
        return Err(format!(
            "{:#06x} is not a SCSI operation code",
            opcode.get()
        ));
    };
    let Some(verb) = verb(code) else {
        return Ok(Parsed::Ignored);
    };

    let at_us = at_us.get();
    let at_ns = at_us
        .checked_mul(1000)
        .ok_or_else(|| format!("timestamp {at_us} us is too large"))?;

    // The location is in sectors, the size in bytes.
    let extent = ByteExtent {
        len: u64::from(len_bytes.get()),
        ..ByteExtent::of_sectors(lba.get(), 0)?
    };
    extent.request(at_ns, 0, verb)
}
