//! Layout of a stored journal, and encoding of its metadata. Pure.
//!
//! ```text
//! segment      metadata page 0 | 176 slots | metadata page 1 | 256 slots | metadata page 2 | 256 slots ..
//! next one     directly after the last slot of the one before, and after its tail if that is not in metadata page 0
//! ```
//!
//! Metadata page 0 of a segment:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-27 | SQLite's header |
//! | 28-31 | zeroes |
//! | 32-39 | magic `RMPSQLJ1` |
//! | 40-47 | XXH3 of the other bytes |
//! | 48-55 | nonce: a random number of the transaction |
//! | 56-59 | number of the segment |
//! | 60-63 | size of a sector |
//! | 64-67 | size of an image, or 0 if slots hold SQLite's bytes unchanged |
//! | 68-71 | records |
//! | 72-79 | SQLite's offset of the segment |
//! | 80-87 | SQLite's offset of the tail |
//! | 88-91 | bytes of the tail |
//! | 92-95 | zeroes |
//! | 96-103 | XXH3 of a tail that is not in this page |
//! | 104-119 | a slot that was a tail at the last sync: its number (4), size (4), XXH3 (8); or zeroes |
//! | 120-1279 | the tail, if there is room for it |
//! | 1280-4095 | 176 entries |
//!
//! An entry is the page number and SQLite's checksum, as SQLite writes them, and the check (8
//! bytes) of the image. The further metadata pages are 256 entries. Numbers other than SQLite's are
//! little-endian.
//!
//! Invariants: all places are multiples of 4 KiB. The check of an entry covers the whole image, the
//! entry's other fields, its place and the nonce, so that neither an image nor a metadata page of
//! another transaction fits, and further metadata pages need no checksum of their own.

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

/// Bytes of a metadata page.
pub(super) const PAGE: usize = 4096;
/// Bytes of the header that SQLite writes.
pub(super) const HEADER_BYTES: usize = 28;
/// Room for a tail in metadata page 0.
const TAIL_ROOM: usize = ENTRIES_AT - TAIL_AT;

const MAGIC: [u8; 8] = *b"RMPSQLJ1";
const CHECK_AT: usize = 40;
const TAIL_AT: usize = 120;
const ENTRIES_AT: usize = 1280;
const ENTRY_BYTES: usize = 16;
/// Entries of metadata page 0, and of every other one.
const FIRST: usize = (PAGE - ENTRIES_AT) / ENTRY_BYTES;
const MORE: usize = PAGE / ENTRY_BYTES;

const SECTOR_MIN: u32 = 32;
const SECTOR_DEFAULT: u32 = 512;
const SIZE_MAX: u32 = 65_536;
/// SQLite's files are always shorter.
const OFFSET_MAX: u64 = 1 << 56;

/// The header that SQLite writes, as it is.
pub(super) type Header = [u8; HEADER_BYTES];
/// The bytes of a metadata page.
pub(super) type Page = [u8; PAGE];

/// Sizes that determine a journal's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalGeometry {
    sector: u32,
    /// 0: slots of 4 KiB hold SQLite's bytes unchanged.
    image: u32,
}

impl JournalGeometry {
    /// The geometry given by a header. Pages below 4 KiB, and invalid sizes, have no images.
    pub(super) fn of(header: &Header) -> Self {
        let size = |at| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        Self {
            sector: Some(size(20))
                .filter(|sector| is_size(*sector, SECTOR_MIN))
                .unwrap_or(SECTOR_DEFAULT),
            image: Some(size(24))
                .filter(|image| is_size(*image, PAGE as u32))
                .unwrap_or(0),
        }
    }

    fn is_possible(self) -> bool {
        is_size(self.sector, SECTOR_MIN) && (self.image == 0 || is_size(self.image, PAGE as u32))
    }

    /// Returns true if a slot is a page of the database.
    pub(super) fn has_images(self) -> bool {
        self.image > 0
    }

    /// Returns true if a tail of `bytes` bytes has pages of its own. Bytes that later become a slot
    /// are at the slot's place from the start.
    pub(super) fn tail_has_pages(self, bytes: usize) -> bool {
        bytes > if self.has_images() { TAIL_ROOM } else { 0 }
    }

    /// Size of a sector, which a header takes.
    pub(super) fn sector(self) -> u64 {
        self.sector.into()
    }

    /// Size of a slot: a page's image, or 4 KiB.
    pub(super) fn slot_bytes(self) -> usize {
        if self.image > 0 {
            self.image as usize
        } else {
            PAGE
        }
    }

    /// Bytes of a record before the image, and after it.
    pub(super) fn frame_bytes(self) -> usize {
        if self.image > 0 { 4 } else { 0 }
    }

    /// Size of a record in SQLite's format.
    pub(super) fn record_bytes(self) -> u64 {
        (self.slot_bytes() + 2 * self.frame_bytes()) as u64
    }

    /// Offset of a metadata page in its segment.
    pub(super) fn metadata_at(self, number: usize) -> u64 {
        let slots = if number == 0 {
            0
        } else {
            FIRST + (number - 1) * MORE
        };
        (number * PAGE) as u64 + slots as u64 * self.slot_bytes() as u64
    }

    /// Offset of a slot in its segment.
    pub(super) fn slot_at(self, index: usize) -> u64 {
        let (number, _) = place_of_entry(index);
        ((number + 1) * PAGE) as u64 + index as u64 * self.slot_bytes() as u64
    }
}

fn is_size(size: u32, least: u32) -> bool {
    size.is_power_of_two() && (least..=SIZE_MAX).contains(&size)
}

/// The metadata page of an entry, and its index in that page.
pub(super) fn place_of_entry(index: usize) -> (usize, usize) {
    match index.checked_sub(FIRST) {
        None => (0, index),
        Some(rest) => (1 + rest / MORE, rest % MORE),
    }
}

/// The entries of a metadata page.
pub(super) fn entries_of(number: usize) -> std::ops::Range<usize> {
    let first = if number == 0 {
        0
    } else {
        FIRST + (number - 1) * MORE
    };
    first..first + if number == 0 { FIRST } else { MORE }
}

/// A record's entry in a metadata page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordEntry {
    /// Page number, as SQLite writes it.
    pub page: [u8; 4],
    /// SQLite's checksum, as SQLite writes it.
    pub sum: [u8; 4],
    /// Check of the whole image.
    pub check: u64,
}

impl RecordEntry {
    /// The entry of an image.
    pub(super) fn new(page: [u8; 4], sum: [u8; 4], image: &[u8], place: RecordPlace) -> Self {
        let mut entry = Self {
            page,
            sum,
            check: 0,
        };
        entry.check = entry.check_of(image, place);
        entry
    }

    /// Returns true if this is the image.
    pub(super) fn fits(&self, image: &[u8], place: RecordPlace) -> bool {
        self.check == self.check_of(image, place)
    }

    fn check_of(&self, image: &[u8], place: RecordPlace) -> u64 {
        // The check covers the image's place: that of another record, segment or transaction never
        // matches.
        let mut seed = [0; 28];
        seed[..8].copy_from_slice(&place.nonce.to_le_bytes());
        seed[8..12].copy_from_slice(&place.segment.to_le_bytes());
        seed[12..20].copy_from_slice(&(place.index as u64).to_le_bytes());
        seed[20..24].copy_from_slice(&self.page);
        seed[24..].copy_from_slice(&self.sum);
        xxh3_64_with_seed(image, xxh3_64(&seed))
    }

    /// Reads an entry of a metadata page.
    pub(super) fn get(page: &Page, number: usize, which: usize) -> Self {
        let at = entry_at(number, which);
        let bytes = &page[at..at + ENTRY_BYTES];
        Self {
            page: bytes[..4].try_into().expect("4 bytes"),
            sum: bytes[4..8].try_into().expect("4 bytes"),
            check: u64::from_le_bytes(bytes[8..].try_into().expect("8 bytes")),
        }
    }

    /// Writes it into a metadata page.
    pub(super) fn put(&self, page: &mut Page, number: usize, which: usize) {
        let at = entry_at(number, which);
        page[at..at + 4].copy_from_slice(&self.page);
        page[at + 4..at + 8].copy_from_slice(&self.sum);
        page[at + 8..at + ENTRY_BYTES].copy_from_slice(&self.check.to_le_bytes());
    }
}

fn entry_at(number: usize, which: usize) -> usize {
    if number == 0 {
        ENTRIES_AT + which * ENTRY_BYTES
    } else {
        which * ENTRY_BYTES
    }
}

/// Identifies a record of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    /// Nonce of the transaction, which tells it from earlier ones.
    pub nonce: u64,
    /// Number of the segment, from 0.
    pub segment: u32,
    /// Number of the record in it.
    pub index: usize,
}

/// The fields of a metadata page 0 except its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The header that SQLite writes, as it is.
    pub header: Header,
    /// Nonce of the transaction, which tells it from earlier ones.
    pub nonce: u64,
    /// Number of the segment, from 0.
    pub segment: u32,
    /// Page and sector size of the segment.
    pub shape: JournalGeometry,
    /// Number of records in the segment.
    pub records: u32,
    /// SQLite's offset of the segment.
    pub offset: u64,
    /// SQLite's offset of the tail.
    pub tail_at: u64,
    /// Size of the tail in bytes.
    pub tail_bytes: u32,
    /// Check of a tail that does not fit in the page.
    pub tail_check: u64,
    /// The tail, if it fits.
    pub tail: Vec<u8>,
    /// The part of an incomplete slot that the last sync made durable.
    pub part: SlotPart,
}

/// The first bytes of a slot; empty if `bytes` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotPart {
    /// Number of the slot in the segment.
    pub index: u32,
    /// Number of bytes.
    pub bytes: u32,
    /// Their check, as for a tail.
    pub check: u64,
}

impl Head {
    /// Decodes a page; `None` if it is no metadata page 0.
    pub(super) fn get(page: &Page) -> Option<Self> {
        let word = |at| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let long = |at| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        if page[32..40] != MAGIC || long(CHECK_AT) != check_of(page) {
            return None;
        }

        let tail_bytes = word(88);
        let shape = JournalGeometry {
            sector: word(60),
            image: word(64),
        };

        // The checksum is no proof against a crafted page.
        if !shape.is_possible() || long(72).max(long(80)) > OFFSET_MAX {
            return None;
        }

        let inside = if shape.tail_has_pages(tail_bytes as usize) {
            0
        } else {
            tail_bytes as usize
        };

        Some(Self {
            header: page[..HEADER_BYTES].try_into().expect("28 bytes"),
            nonce: long(48),
            segment: word(56),
            shape,
            records: word(68),
            offset: long(72),
            tail_at: long(80),
            tail_bytes,
            tail_check: long(96),
            tail: page[TAIL_AT..TAIL_AT + inside].to_vec(),
            part: SlotPart {
                index: word(104),
                bytes: word(108),
                check: long(112),
            },
        })
    }

    /// Encodes the page with these entries, the first of the segment.
    pub(super) fn put(&self, entries: &[RecordEntry]) -> Page {
        let mut page = [0; PAGE];
        page[..HEADER_BYTES].copy_from_slice(&self.header);
        page[32..40].copy_from_slice(&MAGIC);
        page[48..56].copy_from_slice(&self.nonce.to_le_bytes());
        page[56..60].copy_from_slice(&self.segment.to_le_bytes());
        page[60..64].copy_from_slice(&self.shape.sector.to_le_bytes());
        page[64..68].copy_from_slice(&self.shape.image.to_le_bytes());
        page[68..72].copy_from_slice(&self.records.to_le_bytes());
        page[72..80].copy_from_slice(&self.offset.to_le_bytes());
        page[80..88].copy_from_slice(&self.tail_at.to_le_bytes());
        page[88..92].copy_from_slice(&self.tail_bytes.to_le_bytes());
        page[96..104].copy_from_slice(&self.tail_check.to_le_bytes());
        page[104..108].copy_from_slice(&self.part.index.to_le_bytes());
        page[108..112].copy_from_slice(&self.part.bytes.to_le_bytes());
        page[112..120].copy_from_slice(&self.part.check.to_le_bytes());
        page[TAIL_AT..TAIL_AT + self.tail.len()].copy_from_slice(&self.tail);

        for (which, entry) in entries.iter().take(FIRST).enumerate() {
            entry.put(&mut page, 0, which);
        }
        let check = check_of(&page);
        page[CHECK_AT..CHECK_AT + 8].copy_from_slice(&check.to_le_bytes());
        page
    }
}

fn check_of(page: &Page) -> u64 {
    let mut check = Xxh3::new();
    check.update(&page[..CHECK_AT]);
    check.update(&page[CHECK_AT + 8..]);
    check.digest()
}

/// Check of a tail that does not fit in metadata page 0.
pub(super) fn tail_check(nonce: u64, segment: u32, tail: &[u8]) -> u64 {
    xxh3_64_with_seed(tail, nonce ^ u64::from(segment))
}
