//! The records of a volume: two superblocks, and a page for each file. FORMAT.md, section
//! "Volumes", shows their layout.
//!
//! Invariants: a record is one page, which the device keeps old or new; a page of zeroes is no
//! record; the checksum of a file's record covers the volume and its slot, so that a misplaced page
//! is rejected. Absent: when they are written (`change.rs`).

use super::space::Extent;
pub(super) use remap_ssd_device::superblocks::SUPERBLOCKS;
use remap_ssd_device::superblocks::{self, SuperblockError, superblock_crc};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The bytes of one page.
pub(super) type Page = [u8; PAGE_BYTES];

const MAGIC: [u8; 8] = *b"RMPVOLUM";
const VERSION: u32 = 1;
/// Maximum number of files in a volume.
pub(crate) const SLOTS_MAX: u32 = 65_536;
/// Default for the maximum number of files of a new volume.
pub(crate) const SLOTS_DEFAULT: u32 = 256;
/// Maximum length of a name in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Extents in a record without a lineage.
const EXTENTS_MAX: usize = 238;

/// A volume's constant parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// UUID that names the volume.
    pub uuid: [u8; 16],
    /// Pages, from page 0 of the disk on.
    pub pages: u64,
    /// Maximum number of files.
    pub slots: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SuperblockRecord {
    magic: [u8; 8],
    /// CRC-32C of everything after it.
    crc: U32,
    version: U32,
    uuid: [u8; 16],
    pages: U64,
    slots: U32,
    zeroes: [u8; PAGE_BYTES - 44],
}

const _: () = assert!(size_of::<SuperblockRecord>() == PAGE_BYTES);

/// The record of a file, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    /// Name: 1 to 255 bytes of UTF-8, none of them 0.
    pub name: String,
    /// A random number that tells the file apart from earlier ones in its slot.
    pub birth: u64,
    /// Size in bytes when the record was written.
    pub size: u64,
    /// The reader finds the end; `size` is not kept.
    pub open_end: bool,
    /// The extents of its pages, in order.
    pub extents: Vec<Extent>,
    /// Its relation to branches (`branch.rs`); zeroes if it has never had any.
    pub lineage: Lineage,
}

/// The relation of a file to its branches, and to the file that it is a branch of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lineage {
    /// Odd as long as the file is as it was when its latest branch was made. Only grows.
    pub version: u32,
    /// The version of the parent that this branch was made of.
    pub parent_version: u32,
    /// Birth of the parent; 0: this file is not a branch.
    pub parent: u64,
    /// Birth of the branch whose pages this file took over last: a record with it is void.
    pub merged: u64,
    /// When the branch was made: seconds since 1970.
    pub made_at: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct InodeRecord {
    /// CRC-32C of the volume's UUID, the slot (4 bytes) and everything after this.
    crc: U32,
    version: U16,
    flags: U16,
    birth: U64,
    size: U64,
    extents: U16,
    name_bytes: U16,
    zeroes: [u8; 4],
    name: [u8; 256],
    list: [ExtentRecord; EXTENTS_MAX],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ExtentRecord {
    first: U64,
    pages: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct LineageRecord {
    version: U32,
    parent_version: U32,
    parent: U64,
    merged: U64,
    made_at: U64,
}

/// Extents of the list that a lineage takes, at its end.
const LINEAGE_EXTENTS: usize = 2;

const _: () = assert!(size_of::<InodeRecord>() == PAGE_BYTES);
const _: () = assert!(size_of::<LineageRecord>() == LINEAGE_EXTENTS * size_of::<ExtentRecord>());
// After the checksum itself.
const INODE_CRC_FROM: usize = 4;
const OPEN_END: u16 = 1;
const LINEAGE: u16 = 2;

/// A UUID in its usual text form.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

impl Superblock {
    /// The first page available to files.
    pub(super) fn first_data_page(&self) -> u64 {
        SUPERBLOCKS + u64::from(self.slots)
    }

    /// The page of a slot.
    pub(super) fn page_of(&self, slot: u32) -> u64 {
        SUPERBLOCKS + u64::from(slot)
    }

    /// The UUID in its usual text form.
    pub(super) fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }

    /// The record as a page, with its checksum.
    pub(super) fn encode(&self) -> Page {
        let mut record = SuperblockRecord {
            magic: MAGIC,
            crc: U32::ZERO,
            version: VERSION.into(),
            uuid: self.uuid,
            pages: self.pages.into(),
            slots: self.slots.into(),
            zeroes: [0; PAGE_BYTES - 44],
        };

        record.crc = superblock_crc(record.as_bytes()).into();
        zerocopy::transmute!(record)
    }

    /// Decodes a page of a disk of `disk_pages` pages, or says why it is invalid.
    pub(super) fn decode(page: &Page, disk_pages: u64) -> Result<Self, SuperblockError> {
        superblocks::check(page, MAGIC, VERSION)?;
        let record: &SuperblockRecord = zerocopy::transmute_ref!(page);

        let found = Self {
            uuid: record.uuid,
            pages: record.pages.get(),
            slots: record.slots.get(),
        };

        if found.pages > disk_pages {
            return Err(SuperblockError::Values(format!(
                "it is of a volume of {} pages, and the disk has {disk_pages}",
                found.pages
            )));
        }

        // Checked although the checksum matches: sizes decide which pages are read next.
        if found.slots == 0 || found.slots > SLOTS_MAX || found.first_data_page() >= found.pages {
            return Err(SuperblockError::Values(format!(
                "{} files in {} pages cannot be",
                found.slots, found.pages
            )));
        }

        Ok(found)
    }
}

impl Inode {
    /// Number of pages in its extents.
    pub(super) fn capacity(&self) -> u64 {
        self.extents.iter().map(|extent| extent.pages).sum()
    }

    /// Maximum number of extents.
    pub(super) fn extents_max(&self) -> usize {
        let is_plain = self.lineage == Lineage::default();
        EXTENTS_MAX - if is_plain { 0 } else { LINEAGE_EXTENTS }
    }

    /// Encodes the record for the page of a slot.
    pub(super) fn encode(&self, volume: &Superblock, slot: u32) -> Page {
        assert!((1..=NAME_BYTES_MAX).contains(&self.name.len()));
        assert!(self.extents.len() <= self.extents_max());
        let mut record = InodeRecord {
            crc: U32::ZERO,
            version: U16::new(VERSION as u16),
            flags: self.flags().into(),
            birth: self.birth.into(),
            size: self.size.into(),
            extents: (self.extents.len() as u16).into(),
            name_bytes: (self.name.len() as u16).into(),
            zeroes: [0; 4],
            name: [0; 256],
            list: [ExtentRecord {
                first: U64::ZERO,
                pages: U64::ZERO,
            }; EXTENTS_MAX],
        };

        record.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        for (place, extent) in record.list.iter_mut().zip(&self.extents) {
            *place = ExtentRecord {
                first: extent.first.into(),
                pages: extent.pages.into(),
            };
        }

        // In the place of the last extents, which `extents_max` leaves free.
        if self.lineage != Lineage::default() {
            let list = record.list.last_chunk_mut::<LINEAGE_EXTENTS>();
            *list.expect("the list is longer") = zerocopy::transmute!(self.lineage.record());
        }

        record.crc = inode_crc(volume, slot, record.as_bytes()).into();
        zerocopy::transmute!(record)
    }

    fn flags(&self) -> u16 {
        let lineage = self.lineage != Lineage::default();
        (OPEN_END * u16::from(self.open_end)) | (LINEAGE * u16::from(lineage))
    }

    /// Decodes the page of a slot: `None` if it is empty, or why it is invalid.
    pub(super) fn decode(
        page: &Page,
        volume: &Superblock,
        slot: u32,
    ) -> Result<Option<Self>, &'static str> {
        // Zeroes are the record of no file.
        if page.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let record: &InodeRecord = zerocopy::transmute_ref!(page);
        if record.crc.get() != inode_crc(volume, slot, page) {
            return Err("its checksum is wrong");
        }

        // An unknown flag may change the meaning of the rest.
        if record.version.get() != VERSION as u16 || record.flags.get() & !(OPEN_END | LINEAGE) != 0
        {
            return Err("it is of an unknown version");
        }

        let name = record
            .name
            .get(..usize::from(record.name_bytes.get()))
            .unwrap_or_default();

        // Names are used to build other names, so an invalid one is rejected.
        let name = std::str::from_utf8(name).map_err(|_| "its name is not text")?;
        if check_name(name).is_err() {
            return Err("its name cannot be");
        }

        let (listed, lineage) = match record.flags.get() & LINEAGE {
            0 => (&record.list[..], Lineage::default()),
            _ => {
                let split = record.list.split_last_chunk::<LINEAGE_EXTENTS>();
                let (listed, last) = split.expect("the list is longer");
                (listed, Lineage::of(zerocopy::transmute_ref!(last)))
            }
        };
        let list = listed
            .get(..usize::from(record.extents.get()))
            .ok_or("it has too many extents")?;
        let extents: Vec<Extent> = list
            .iter()
            .map(|extent| Extent {
                first: extent.first.get(),
                pages: extent.pages.get(),
            })
            .collect();

        // Pages outside would belong to another owner: such a record is rejected.
        let inside = |extent: &Extent| {
            let end = extent.first.checked_add(extent.pages);
            extent.pages > 0
                && extent.first >= volume.first_data_page()
                && end.is_some_and(|end| end <= volume.pages)
        };
        if !extents.iter().all(inside) {
            return Err("it has pages outside the volume");
        }

        let inode = Self {
            name: name.to_owned(),
            birth: record.birth.get(),
            size: record.size.get(),
            open_end: record.flags.get() & OPEN_END != 0,
            extents,
            lineage,
        };
        if inode.size.div_ceil(PAGE_BYTES as u64) <= inode.capacity() {
            Ok(Some(inode))
        } else {
            Err("it is longer than its pages")
        }
    }
}

impl Lineage {
    fn record(self) -> LineageRecord {
        LineageRecord {
            version: self.version.into(),
            parent_version: self.parent_version.into(),
            parent: self.parent.into(),
            merged: self.merged.into(),
            made_at: self.made_at.into(),
        }
    }

    fn of(record: &LineageRecord) -> Self {
        Self {
            version: record.version.get(),
            parent_version: record.parent_version.get(),
            parent: record.parent.get(),
            merged: record.merged.get(),
            made_at: record.made_at.get(),
        }
    }

    /// A branch was made of the file as it is.
    pub(super) fn is_branched(self) -> bool {
        !self.version.is_multiple_of(2)
    }
}

/// Checks a name, or says why it is invalid.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("it is empty"),
        _ if name.len() > NAME_BYTES_MAX => Err("it has more than 255 bytes"),
        _ if name.contains('\0') => Err("it has a zero byte"),
        _ => Ok(()),
    }
}

fn inode_crc(volume: &Superblock, slot: u32, page: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&volume.uuid);
    let crc = crc32c::crc32c_append(crc, &slot.to_le_bytes());
    crc32c::crc32c_append(crc, &page[INODE_CRC_FROM..])
}
