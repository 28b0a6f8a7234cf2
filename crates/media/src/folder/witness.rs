//! Versions of the other files of a folder, in a page of its own after the flash pages of
//! `contents`: detects an older copy of one file, for example from a backup.
//!
//! ```text
//! byte    0  magic
//! byte  512  two records of the journal: number, generation, durable end, CRC
//! byte 1024  two records of `service.json`: serial number, CRC-32C of the file, 0, CRC
//! byte 1536  two records of `reservations.json`
//! ```
//! A record with number n is in slot n mod 2, so that a torn one leaves the previous one intact.
//! Each pair is within a sector.
//!
//! Invariant: a record is stored when its statement is already durable, so a cut at any instant
//! leaves a page that states the present versions, or older ones. The journal's record is a store
//! into the page cache that no command waits for. The next sync of the contents makes it durable:
//! that of the next flush, or the one that begins a new state, which contains the number. Absent:
//! handling of a file that is too old (`open`, and the service for its own files).

use super::files::{self, FolderAccess, about};
use crate::geometry::{Geometry, PAGE_BYTES};
use crate::image_file::ImageError;
use crate::pages::CONTENTS;
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"RMPWITNS";
/// Offset of the journal's records.
const JOURNAL_AT: usize = 512;

/// One record, of 32 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct WitnessRecord {
    number: u64,
    first: u64,
    second: u64,
    /// CRC-32C of its place in the page (8 bytes) and of the fields before.
    crc: u32,
    zero: u32,
}

const RECORD_BYTES: usize = size_of::<WitnessRecord>();
const _: () = assert!(RECORD_BYTES == 32);

impl WitnessRecord {
    fn new(at: usize, number: u64, first: u64, second: u64) -> Self {
        let mut record = Self {
            number,
            first,
            second,
            crc: 0,
            zero: 0,
        };
        record.crc = record.sum(at);
        record
    }

    fn sum(&self, at: usize) -> u32 {
        let words = [at as u64, self.number, self.first, self.second];
        crc32c::crc32c(words.as_bytes())
    }

    /// Offset of the record of a number in the pair at `at`.
    fn slot(at: usize, number: u64) -> usize {
        at + (number % 2) as usize * RECORD_BYTES
    }
}

/// Reads the newest of the pair of records at `at`, if any; fails if both are damaged.
fn newest(page: &[u8], at: usize) -> Result<Option<WitnessRecord>, WitnessDamaged> {
    let mut newest: Option<WitnessRecord> = None;
    let mut is_damaged = false;
    for slot in [at, at + RECORD_BYTES] {
        let (record, _) =
            WitnessRecord::read_from_prefix(&page[slot..]).map_err(|_| WitnessDamaged)?;
        let is_blank = record.as_bytes().iter().all(|byte| *byte == 0);
        if !is_blank && (record.crc != record.sum(slot) || record.zero != 0) {
            // Torn while it was stored; then the other one is the newest.
            is_damaged = true;
        } else if !is_blank && newest.is_none_or(|other| other.number < record.number) {
            newest = Some(record);
        }
    }

    match newest {
        None if is_damaged => Err(WitnessDamaged),
        newest => Ok(newest),
    }
}

/// The page is missing or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WitnessDamaged;

/// The durable end of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JournalWitness {
    pub(super) number: u64,
    pub(super) generation: u64,
    /// Offset in the journal of this generation.
    pub(super) end: u64,
}

/// Offset of the page: after the flash pages of the device.
pub(super) fn offset(geometry: &Geometry) -> u64 {
    u64::from(geometry.pages()) * geometry.page_bytes() as u64
}

/// Size of `contents` including the page.
pub(super) fn contents_bytes(geometry: &Geometry) -> u64 {
    offset(geometry) + PAGE_BYTES as u64
}

fn read_page(file: &File, geometry: &Geometry) -> io::Result<Result<Vec<u8>, WitnessDamaged>> {
    if file.metadata()?.len() < contents_bytes(geometry) {
        return Ok(Err(WitnessDamaged));
    }
    let mut page = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut page, offset(geometry))?;
    let is_ours = page.starts_with(&MAGIC);
    Ok(if is_ours {
        Ok(page)
    } else {
        Err(WitnessDamaged)
    })
}

/// Reads the durable end of the journal.
pub(super) fn of_journal(
    file: &File,
    geometry: &Geometry,
) -> io::Result<Result<JournalWitness, WitnessDamaged>> {
    let page = read_page(file, geometry)?;
    Ok(page
        .and_then(|page| newest(&page, JOURNAL_AT)?.ok_or(WitnessDamaged))
        .map(|record| JournalWitness {
            number: record.number,
            generation: record.first,
            end: record.second,
        }))
}

/// The mapped page of a device in use: the journal's records.
pub(super) struct WitnessPage {
    map: MmapMut,
    journal: JournalWitness,
}

impl WitnessPage {
    /// Maps the page. `blank`: its contents are cleared.
    pub(super) fn map(
        file: &File,
        geometry: &Geometry,
        found: JournalWitness,
        blank: bool,
    ) -> Result<Self, ImageError> {
        // Images of earlier versions end before it. Its space is allocated before it is needed.
        let bytes = contents_bytes(geometry);
        files::reserve(file, CONTENTS, bytes)?;
        let about = |error| about(CONTENTS, error);
        if file.metadata().map_err(about)?.len() < bytes {
            file.set_len(bytes).map_err(about)?;
        }

        // SAFETY: as for the contents: the folder's own file, locked, and of at least this length.
        // It is read once, by `of_journal`, and only written here.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .offset(offset(geometry))
                .len(PAGE_BYTES)
                .map_mut(file)
                .map_err(about)?
        };
        let mut page = Self {
            map,
            journal: found,
        };

        if blank {
            page.map.fill(0);
            page.journal(found.generation, found.end);
            // Last: a page without it is invalid.
            page.map[..MAGIC.len()].copy_from_slice(&MAGIC);
        }
        Ok(page)
    }

    /// Number of the newest record.
    pub(super) fn number(&self) -> u64 {
        self.journal.number
    }

    /// Records that the journal of this generation is durable up to `end`.
    pub(super) fn journal(&mut self, generation: u64, end: u64) {
        // A commit may end after a later sync.
        if (generation, end) < (self.journal.generation, self.journal.end) {
            return;
        }
        self.journal = JournalWitness {
            number: self.journal.number + 1,
            generation,
            end,
        };

        let at = WitnessRecord::slot(JOURNAL_AT, self.journal.number);
        let record = WitnessRecord::new(at, self.journal.number, generation, end);
        self.map[at..at + RECORD_BYTES].copy_from_slice(record.as_bytes());
    }
}

/// A file that the service keeps beside the device and replaces as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessedFile {
    /// `service.json`.
    Service,
    /// `reservations.json`.
    Reservations,
}

impl WitnessedFile {
    fn at(self) -> usize {
        match self {
            Self::Service => 1024,
            Self::Reservations => 1536,
        }
    }
}

/// The newest version of such a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// Incremented with each version; 0 if there was none.
    pub serial: u64,
    /// CRC-32C of the file.
    pub crc: u32,
}

impl FileVersion {
    /// Returns true if a file of this version must be refused where `newest` was current: it is
    /// older, or another one with the same number. Without a witnessed version any is accepted.
    pub fn is_older_than(self, newest: Self) -> bool {
        newest.serial > 0 && self.serial <= newest.serial && self != newest
    }
}

/// The newest witnessed version of one of these files of the image in `dir`, with this geometry; `None` if the image was made by an earlier version, and never opened since.
///
/// # Errors
/// The system's reason. Damage is detected when the device is opened.
pub fn newest_version(
    dir: &Path,
    geometry: &Geometry,
    of: WitnessedFile,
) -> io::Result<Option<FileVersion>> {
    let file = files::open(dir, CONTENTS, FolderAccess::Look)?;
    let Ok(page) = read_page(&file, geometry)? else {
        return Ok(None);
    };
    let newest = newest(&page, of.at()).ok().flatten();
    Ok(Some(newest.map_or_else(FileVersion::default, |record| {
        FileVersion {
            serial: record.number,
            crc: record.first as u32,
        }
    })))
}

/// Replaces the file by a new version; older ones are refused from then on.
///
/// # Errors
/// The system's reason; then either version may be current.
pub fn replace_witnessed(
    dir: &Path,
    geometry: &Geometry,
    of: WitnessedFile,
    name: &str,
    bytes: &[u8],
    version: FileVersion,
) -> io::Result<()> {
    // 1. the file and its name are durable (`replace_file`)  2. the record is durable  3. the
    // version is current, when this returns. Cut before 1 has ended: the old file, which matches
    // the record, or the new one, which is newer than the record. Cut in 2: the new file, and the
    // record of the old one or of the new one. So neither is ever refused. After 2 the old file is.
    files::replace_file(dir, name, bytes)?;
    witness_version(dir, geometry, of, version)
}

/// Records a version of the file; older ones are refused from then on. Must be called when the file
/// and its name are durable, and before anything relies on it. Does nothing in an image without the
/// page.
///
/// # Errors
/// The system's reason.
pub fn witness_version(
    dir: &Path,
    geometry: &Geometry,
    of: WitnessedFile,
    version: FileVersion,
) -> io::Result<()> {
    let file = files::open(dir, CONTENTS, FolderAccess::Own)?;
    if read_page(&file, geometry)?.is_err() {
        return Ok(());
    }

    let at = WitnessRecord::slot(of.at(), version.serial);
    let record = WitnessRecord::new(at, version.serial, version.crc.into(), 0);
    file.write_all_at(record.as_bytes(), offset(geometry) + at as u64)
        .and_then(|()| file.sync_data())
        .map_err(|error| about(CONTENTS, error))
}
