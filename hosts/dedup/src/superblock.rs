//! The superblock, in the first two pages: scheme, hash, sizes. Formatting a disk and finding it
//! again.
//!
//! *Make*: 1. trim of everything  2. flush  3. both superblocks  4. flush. Cut before 3: the old
//! contents are partly gone, as requested. Cut in 3 or 4: none, one or both; one is enough, and
//! everything else is blank because of 2.
//!
//! *Find*: superblocks are written together and never change, so a single valid one suffices; the
//! other is rewritten from it.
//!
//! Invariant: a disk that is not blank is overwritten only on request. Absent: the contents of
//! other pages (`ccaw/format.rs`, `ordermerge/format.rs`).

use crate::DedupError;
use crate::error::UnknownName;
use crate::guard::Guard;
use crate::pages::Page;
use crate::signature::Hash;
use remap_ssd_device::Disk;
pub(crate) use remap_ssd_device::superblocks::SUPERBLOCKS;
use remap_ssd_device::superblocks::{self, Copies, SuperblockError, first_written, superblock_crc};
use remap_ssd_media::geometry::PAGE_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"RMPDEDUP";
const VERSION: u32 = 1;

/// Deduplication schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Copies, on a disk that can remap.
    Ccaw,
    /// Its own mappings and reference counts, on any disk.
    OrderMerge,
}

impl Scheme {
    /// Name in options and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ccaw => "ccaw",
            Self::OrderMerge => "ordermerge",
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Ccaw => 1,
            Self::OrderMerge => 2,
        }
    }
}

impl std::str::FromStr for Scheme {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = [Self::Ccaw, Self::OrderMerge]
            .into_iter()
            .find(|scheme| scheme.name() == text);
        found.ok_or_else(|| UnknownName {
            what: "scheme",
            name: text.to_owned(),
            known: "ccaw or ordermerge",
        })
    }
}

/// Parameters of a new deduplicating disk.
#[derive(Clone, Debug)]
pub struct NewDedup {
    /// Hash function of the signatures.
    pub hash: Hash,
    /// Pages of the disk below to use; all by default.
    pub pages: Option<u64>,
    /// `Ccaw`: pages of a segment of the table; 1,024 (4 MiB) as in the paper.
    pub segment_pages: u32,
    /// `OrderMerge`: blocks in addition to the addressable ones. They take new writes until
    /// replaced blocks can be freed: a longer window ends early on a full disk.
    pub spare: u32,
    /// Identity and key; random by default. A fixed one is for simulations and tests.
    pub identity: Option<[u8; 16]>,
    /// Overwrites existing data; without it the disk must be blank.
    pub force: bool,
}

impl Default for NewDedup {
    fn default() -> Self {
        Self {
            hash: Hash::Md5,
            pages: None,
            segment_pages: 1024,
            spare: 1024,
            identity: None,
            force: false,
        }
    }
}

/// Parameters of a formatted disk; immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub scheme: Scheme,
    pub hash: Hash,
    /// Identity of the disk, part of all checksums.
    pub uuid: [u8; 16],
    /// Key of the hash function.
    pub key: [u8; 32],
    /// Pages used of the disk below.
    pub pages: u64,
    /// Pages that a user of the disk can address.
    pub logical: u32,
    /// Pages of a segment (`Ccaw`), or blocks (`OrderMerge`).
    pub extent: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SuperblockRecord {
    magic: [u8; 8],
    /// CRC-32C of all bytes after this field.
    crc: U32,
    version: U32,
    uuid: [u8; 16],
    key: [u8; 32],
    scheme: U32,
    hash: U32,
    pages: U64,
    logical: U32,
    extent: U32,
    zeroes: [u8; PAGE_BYTES - 88],
}

const _: () = assert!(size_of::<SuperblockRecord>() == PAGE_BYTES);

fn hash_number(hash: Hash) -> u32 {
    match hash {
        Hash::Md5 => 1,
        Hash::Blake3 => 2,
    }
}

impl Superblock {
    fn encode(&self) -> Page {
        let mut record = SuperblockRecord {
            magic: MAGIC,
            crc: U32::ZERO,
            version: VERSION.into(),
            uuid: self.uuid,
            key: self.key,
            scheme: self.scheme.number().into(),
            hash: hash_number(self.hash).into(),
            pages: self.pages.into(),
            logical: self.logical.into(),
            extent: self.extent.into(),
            zeroes: [0; PAGE_BYTES - 88],
        };
        record.crc = superblock_crc(record.as_bytes()).into();
        zerocopy::transmute!(record)
    }

    fn decode(page: &Page, disk_pages: u64) -> Result<Self, SuperblockError> {
        superblocks::check(page, MAGIC, VERSION)?;
        let record: &SuperblockRecord = zerocopy::transmute_ref!(page);

        // Unknown numbers come from a later scheme under the same version, or from a fault.
        let number = record.scheme.get();
        let scheme = [Scheme::Ccaw, Scheme::OrderMerge]
            .into_iter()
            .find(|scheme| scheme.number() == number);
        let hash = [Hash::Md5, Hash::Blake3]
            .into_iter()
            .find(|hash| hash_number(*hash) == record.hash.get());

        let (Some(scheme), Some(hash)) = (scheme, hash) else {
            return Err(SuperblockError::Values(format!(
                "its scheme {number} or its hash {} is unknown",
                record.hash
            )));
        };

        let found = Self {
            scheme,
            hash,
            uuid: record.uuid,
            key: record.key,
            pages: record.pages.get(),
            logical: record.logical.get(),
            extent: record.extent.get(),
        };

        // On a smaller disk the records at its end would be missing.
        if found.pages <= disk_pages {
            Ok(found)
        } else {
            Err(SuperblockError::Values(format!(
                "it is of {} pages, and the disk has {disk_pages}",
                found.pages
            )))
        }
    }

    /// Checksum of `bytes` at a page of this disk, so that a misplaced page is invalid.
    pub(crate) fn crc(&self, page: u64, bytes: &[u8]) -> u32 {
        // Includes the identity: pages of an earlier disk at the same position are invalid too.
        let crc = crc32c::crc32c(&self.uuid);
        let crc = crc32c::crc32c_append(crc, &page.to_le_bytes());
        crc32c::crc32c_append(crc, bytes)
    }
}

/// Returns the scheme of a disk; `None` if it is not formatted.
///
/// # Errors
/// The two superblocks contradict each other.
pub fn scheme_on<D: Disk>(disk: &mut D) -> Result<Option<Scheme>, DedupError<D::Error>> {
    match find(disk) {
        Ok((superblock, _)) => Ok(Some(superblock.scheme)),
        Err(DedupError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the superblock; also returns notes on a damaged copy.
pub(crate) fn find<D: Disk>(
    disk: &mut D,
) -> Result<(Superblock, Vec<String>), DedupError<D::Error>> {
    let pages = disk.pages();
    if pages <= SUPERBLOCKS {
        return Err(DedupError::NotFound(format!("the disk has {pages} pages")));
    }
    // Both are read even if the first is valid: a damaged copy is repaired while a valid one
    // remains.
    let [first, second] = [0, 1].map(|number| {
        let mut page: Page = [0; PAGE_BYTES];
        match disk.read(number, &mut page) {
            Ok(()) => Superblock::decode(&page, pages),
            Err(error) => Err(SuperblockError::Unreadable(error.to_string())),
        }
    });

    match Copies::judge([first, second]) {
        Copies::Sound(superblock, damaged) => {
            let mended = damaged
                .map(|(page, why)| format!("page {page} was written again from its copy: {why}"));
            Ok((superblock, mended.into_iter().collect()))
        }
        Copies::Contradict => Err(DedupError::Damaged(
            "pages 0 and 1 are of two different disks".into(),
        )),
        Copies::Neither(why) => Err(DedupError::NotFound(why)),
    }
}

/// Finds the superblock of a scheme, and repairs a damaged copy. Flushes first: writes that an
/// ended process left unflushed are durable before they are read and relied on.
pub(crate) fn open<D: Disk>(
    disk: &mut D,
    scheme: Scheme,
    without: Option<Guard>,
) -> Result<(Superblock, Vec<String>), DedupError<D::Error>> {
    if without != Some(Guard::FlushOpened) {
        disk.flush()?;
    }

    let (superblock, notes) = find(disk)?;
    if superblock.scheme != scheme {
        let other = superblock.scheme.name();
        return Err(DedupError::NotFound(format!(
            "it was made for scheme {other}, not {}",
            scheme.name()
        )));
    }

    if !notes.is_empty() {
        // One after the other: a cut must not destroy both.
        for page in 0..SUPERBLOCKS {
            disk.write(page, &superblock.encode())?;
            disk.flush()?;
        }
    }

    Ok((superblock, notes))
}

/// Formats a disk as an empty one of this kind. `progress` receives pages checked and pages in
/// total.
pub(crate) fn make<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    new: &NewDedup,
    without: Option<Guard>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), DedupError<D::Error>> {
    if !new.force {
        must_be_blank(disk, superblock.pages, progress)?;
    }

    // Old records must be gone first: zeroes mean "nothing known", but old records might be taken
    // as valid.
    disk.trim(0, superblock.pages)?;
    if without != Some(Guard::FlushTrimmed) {
        disk.flush()?;
    }
    disk.write(0, &[superblock.encode(); SUPERBLOCKS as usize].concat())?;
    Ok(disk.flush()?)
}

fn must_be_blank<D: Disk>(
    disk: &mut D,
    pages: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), DedupError<D::Error>> {
    match find(disk) {
        Ok((old, _)) => {
            return Err(DedupError::NotBlank(format!(
                "scheme {} is on it",
                old.scheme.name()
            )));
        }
        Err(DedupError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }

    match first_written(pages, progress, |first, bytes| disk.read(first, bytes))? {
        Some(page) => Err(DedupError::NotBlank(format!("something is in page {page}"))),
        None => Ok(()),
    }
}

/// The superblock of a new disk. `shape` returns the addressable pages and the extent for a number
/// of pages, or a sentence. All checks of sizes are here, before the first write.
pub(crate) fn new<E: std::error::Error>(
    scheme: Scheme,
    new: &NewDedup,
    disk_pages: u64,
    shape: impl FnOnce(u64) -> Result<(u32, u32), String>,
) -> Result<Superblock, DedupError<E>> {
    let pages = new.pages.unwrap_or(disk_pages);
    if pages > disk_pages {
        return Err(DedupError::BadShape(format!(
            "{pages} pages do not fit on a disk of {disk_pages}"
        )));
    }
    if pages > u64::from(u32::MAX) {
        return Err(DedupError::BadShape(format!(
            "{pages} pages are more than 2^32 - 1, which is all that it can number"
        )));
    }
    let (logical, extent) = shape(pages).map_err(DedupError::BadShape)?;

    // Simulations and tests are reproducible. Their key is no secret, and need not be.
    let key = match new.identity {
        Some(known) => *blake3::hash(&known).as_bytes(),
        None => random(),
    };
    Ok(Superblock {
        scheme,
        hash: new.hash,
        uuid: new.identity.unwrap_or_else(random),
        key,
        pages,
        logical,
        extent,
    })
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(N), "the kernel has random numbers");
    bytes
}
