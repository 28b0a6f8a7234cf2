//! The record of a snapshot: the last page of the namespace that holds it. FORMAT.md draws it, in
//! section "Snapshots".
//!
//! Invariants: a record is one page, which the device writes atomically; its checksum covers the
//! namespace number, so that a record copied along with its namespace is invalid elsewhere. Absent:
//! when it is written (`snapshot.rs`).

use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

type Page = [u8; PAGE_BYTES];

const MAGIC: [u8; 8] = *b"RMPSNAPS";
const VERSION: u32 = 1;
/// Maximum length of a name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// State of a snapshot namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// No snapshot; all other pages are empty.
    Vacant,
    /// A snapshot is being made: the pages are undefined.
    Creating,
    /// The snapshot is complete and can be used.
    Complete,
    /// It is complete, and its source is being rolled back to it.
    RollingBack,
    /// It is being deleted: the pages are undefined.
    Deleting,
}

impl SnapshotState {
    /// The state in words.
    pub fn described(self) -> &'static str {
        match self {
            Self::Complete => "whole",
            Self::Creating => "interrupted while it was made",
            Self::RollingBack => "rollback interrupted",
            Self::Deleting => "interrupted while it was deleted",
            Self::Vacant => "none",
        }
    }

    const ALL: [Self; 5] = [
        Self::Vacant,
        Self::Creating,
        Self::Complete,
        Self::RollingBack,
        Self::Deleting,
    ];

    fn number(self) -> u32 {
        // Part of the format: numbers are never reused.
        match self {
            Self::Vacant => 1,
            Self::Creating => 2,
            Self::Complete => 3,
            Self::RollingBack => 4,
            Self::Deleting => 5,
        }
    }
}

/// The record of a snapshot, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub state: SnapshotState,
    /// The snapshot's name; empty if there is none.
    pub name: String,
    /// Number of the source namespace.
    pub source: u32,
    /// Number of pages of the source.
    pub pages: u64,
    /// Time of creation: seconds since 1970.
    pub made_at: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SnapshotRecord {
    magic: [u8; 8],
    /// CRC-32C of the namespace's number (4 bytes) and all bytes after this field.
    crc: U32,
    version: U32,
    /// 1 vacant, 2 being made, 3 complete, 4 being rolled back to, 5 being deleted.
    state: U32,
    source: U32,
    pages: U64,
    made_at: U64,
    name_bytes: U16,
    zeroes: [u8; 6],
    name: [u8; NAME_BYTES_MAX],
    rest: [u8; PAGE_BYTES - 112],
}

const _: () = assert!(size_of::<SnapshotRecord>() == PAGE_BYTES);
// After the magic (8 bytes) and the checksum itself (4).
const CRC_FROM: usize = 12;

/// Classification of a namespace's last page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastPage {
    /// Zeroes: neither a record nor data.
    Blank,
    /// A record with a valid checksum.
    Record(Record),
    /// An invalid record, and the reason.
    Damaged(&'static str),
    /// Data, not a record.
    Other,
}

impl Record {
    /// The record of a namespace without a snapshot.
    pub(crate) fn vacant() -> Self {
        Self {
            state: SnapshotState::Vacant,
            name: String::new(),
            source: 0,
            pages: 0,
            made_at: 0,
        }
    }

    /// Encodes it as the last page of namespace `nsid`.
    pub(crate) fn encode(&self, nsid: u32) -> Page {
        assert!(
            self.name.len() <= NAME_BYTES_MAX,
            "names are checked before"
        );

        let mut record = SnapshotRecord {
            magic: MAGIC,
            crc: U32::ZERO,
            version: VERSION.into(),
            state: self.state.number().into(),
            source: self.source.into(),
            pages: self.pages.into(),
            made_at: self.made_at.into(),
            name_bytes: (self.name.len() as u16).into(),
            zeroes: [0; 6],
            name: [0; NAME_BYTES_MAX],
            rest: [0; PAGE_BYTES - 112],
        };

        record.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        record.crc = crc(nsid, record.as_bytes()).into();

        zerocopy::transmute!(record)
    }

    /// Decodes the last page of namespace `nsid`, which has `size` pages.
    pub(crate) fn decode(page: &Page, nsid: u32, size: u64) -> LastPage {
        // Blank and foreign pages are distinguished from damage: neither is a snapshot.
        if page.iter().all(|byte| *byte == 0) {
            return LastPage::Blank;
        }

        let record: &SnapshotRecord = zerocopy::transmute_ref!(page);
        // A namespace with data may have any bytes here, so a wrong magic is no damage.
        if record.magic != MAGIC {
            return LastPage::Other;
        }
        if record.crc.get() != crc(nsid, page) {
            return LastPage::Damaged("its checksum is wrong");
        }

        let state = SnapshotState::ALL
            .into_iter()
            .find(|state| state.number() == record.state.get());
        let (Some(state), VERSION) = (state, record.version.get()) else {
            return LastPage::Damaged("it is of an unknown version");
        };

        // A length greater than the field yields no name.
        let name = record
            .name
            .get(..usize::from(record.name_bytes.get()))
            .unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else {
            return LastPage::Damaged("its name is not text");
        };

        let found = Self {
            state,
            name: name.to_owned(),
            source: record.source.get(),
            pages: record.pages.get(),
            made_at: record.made_at.get(),
        };

        // The record itself is the last page.
        if found.pages < size {
            LastPage::Record(found)
        } else {
            LastPage::Damaged("its snapshot is longer than the namespace")
        }
    }
}

/// Checks that a name is valid for a snapshot.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    // `@` and `!` are excluded because they mark a snapshot's files in a volume (`files.rs`).
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    match name {
        "" => Err("a snapshot must have a name".into()),
        _ if name.len() > NAME_BYTES_MAX => Err(format!(
            "a snapshot's name has at most {NAME_BYTES_MAX} bytes"
        )),
        _ if !name.bytes().all(fits) => Err(format!(
            "{name:?} cannot be a snapshot's name: letters, digits and the characters - _ . : can be in it"
        )),
        _ => Ok(()),
    }
}

fn crc(nsid: u32, page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&nsid.to_le_bytes()), &page[CRC_FROM..])
}
