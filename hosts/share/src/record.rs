//! The record of a snapshot: the last page of the namespace that holds it. FORMAT.md draws it, in
//! section "Snapshots".
//!
//! Invariants: a record is one page, which the device keeps old or new; its checksum covers the
//! namespace's number, so that a record that was copied with its namespace is not believed
//! elsewhere. Absent: when it is written (`snapshot.rs`).

use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

type Page = [u8; PAGE_BYTES];

const MAGIC: [u8; 8] = *b"RMPSNAPS";
const VERSION: u32 = 1;
/// Bytes of the longest name.
pub const NAME_BYTES_MAX: usize = 64;

/// What is under way, or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// No snapshot; all other pages are empty.
    Vacant,
    /// It is being made: the pages are any.
    Creating,
    /// The snapshot is whole and can be used.
    Complete,
    /// It is whole, and its source is being made the same.
    RollingBack,
    /// It is being deleted: the pages are any.
    Deleting,
}

impl SnapshotState {
    const ALL: [Self; 5] = [
        Self::Vacant,
        Self::Creating,
        Self::Complete,
        Self::RollingBack,
        Self::Deleting,
    ];

    fn number(self) -> u32 {
        // Part of the format: a number is never given to another state.
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
pub struct Record {
    pub state: SnapshotState,
    /// The snapshot's name; empty if there is none.
    pub name: String,
    /// The namespace that it is of.
    pub source: u32,
    /// Number of pages of that namespace.
    pub pages: u64,
    /// When it was made: seconds since 1970.
    pub made_at: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SnapshotRecord {
    magic: [u8; 8],
    /// CRC-32C of the namespace's number (4 bytes) and everything behind this.
    crc: U32,
    version: U32,
    /// 1 vacant, 2 being made, 3 whole, 4 being rolled back to, 5 being deleted.
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
// Behind the magic (8 bytes) and the checksum itself (4).
const CRC_FROM: usize = 12;

/// What the last page of a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastPage {
    /// Zeroes: no record, and no data.
    Blank,
    /// A record with the right checksum.
    Record(Record),
    /// A record, or why it is invalid.
    Damaged(&'static str),
    /// Data, which are not a record.
    Other,
}

impl Record {
    /// That of a namespace without a snapshot.
    pub fn vacant() -> Self {
        Self {
            state: SnapshotState::Vacant,
            name: String::new(),
            source: 0,
            pages: 0,
            made_at: 0,
        }
    }

    /// As the last page of namespace `nsid`.
    pub fn encode(&self, nsid: u32) -> Page {
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

    /// From the last page of namespace `nsid`, which has `size` pages.
    pub fn decode(page: &Page, nsid: u32, size: u64) -> LastPage {
        // Blank and foreign pages are told apart from damage: neither is a snapshot.
        if page.iter().all(|byte| *byte == 0) {
            return LastPage::Blank;
        }

        let record: &SnapshotRecord = zerocopy::transmute_ref!(page);
        // A namespace that holds data has any bytes here, so a wrong magic is no damage.
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

        // A length beyond the field is no name.
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

/// Whether a snapshot can have this name; or why not.
pub fn check_name(name: &str) -> Result<(), String> {
    // `@` and `!` are left out because they mark a snapshot's files in a volume (`files.rs`).
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
