//! A volatile write cache: what was written and is not on the device yet (NVMe Base 2.0, Flush; NVM
//! Command Set, FUA).
//!
//! ```text
//! mod     versions of pages, oldest first, and how much room they take
//! cut     which versions survive a power cut
//! access  how commands read and write through the cache, and how it is written back
//! ```
//! A write adds a version to each page that it touches; the device keeps the page's last durable
//! content. Reads see the newest version. Write-back puts the newest version of a page on the
//! device and forgets them all, oldest page first. At a power cut each block keeps, on its own, any
//! version since its last durable one.
//!
//! Invariants: a page with versions is in `ages` once, under the number of its oldest version;
//! `used_bytes` is the sum of what all versions take; versions that a newer one hides are kept
//! until the block is durable, since a cut may leave any of them. Absent: the device (`access`),
//! threads, and anything persisted.

mod access;
mod cut;

pub use cut::{CutReport, LostBlocks};
use remap_ssd_media::Lpn;

use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::BTreeMap;

const SECTOR_BYTES: usize = 512;
/// What a version takes besides its bytes.
const VERSION_BYTES: u64 = 128;
/// The smallest cache: commands make room for a page at a time.
pub const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Sectors of a page, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sectors(u8);

impl Sectors {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u8::MAX);

    /// The sectors that a part of a page covers; parts are whole sectors.
    fn of(start: usize, len: usize) -> Self {
        assert!(
            start.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES),
            "logical blocks are whole sectors"
        );
        (start / SECTOR_BYTES..(start + len) / SECTOR_BYTES)
            .fold(Self::NONE, |all, sector| Self(all.0 | 1 << sector))
    }

    fn has(self, sector: usize) -> bool {
        self.0 >> sector & 1 == 1
    }

    fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What a version says of its sectors.
#[derive(Clone, Debug)]
enum SectorData {
    /// They read as zeroes: they were deallocated, or zeroes were written by a command for that.
    Zeroes,
    /// Bytes of the sectors from `first` on.
    Bytes { first: usize, bytes: Box<[u8]> },
}

/// What one command has made of some sectors of a page.
#[derive(Clone, Debug)]
struct CachedVersion {
    number: u64,
    /// The command that made it.
    command: u64,
    sectors: Sectors,
    content: SectorData,
    /// The page from which it was remapped or copied: write-back remaps again if that page still
    /// holds the same.
    source: Option<Lpn>,
}

impl CachedVersion {
    fn bytes(&self) -> u64 {
        match &self.content {
            SectorData::Zeroes => VERSION_BYTES,
            SectorData::Bytes { bytes, .. } => VERSION_BYTES + bytes.len() as u64,
        }
    }

    /// Puts one of its sectors into a page.
    fn show(&self, sector: usize, page: &mut [u8; PAGE_BYTES]) {
        let at = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        match &self.content {
            SectorData::Zeroes => page[at].fill(0),
            SectorData::Bytes { first, bytes } => {
                let from = (sector - first) * SECTOR_BYTES;
                page[at].copy_from_slice(&bytes[from..from + SECTOR_BYTES]);
            }
        }
    }
}

/// A new version, before it has a number.
struct NewVersion {
    command: u64,
    sectors: Sectors,
    content: SectorData,
    source: Option<Lpn>,
}

/// What the newest versions make of a page as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    /// Some sectors come from the device.
    Part,
    /// Bytes, all of them cached.
    Whole,
    /// The last command has made zeroes of the whole page.
    Zeroes,
    /// The last command has remapped the whole page from this one.
    RemappedFrom(Lpn),
}

/// Versions of pages that are not durable yet.
pub struct VolatileCache {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Number of the next version.
    next: u64,
    pages: BTreeMap<Lpn, Vec<CachedVersion>>,
    /// Number of a page's oldest version: the order of write-back.
    ages: BTreeMap<u64, Lpn>,
}

impl VolatileCache {
    /// An empty cache. It keeps at most so many bytes, and no less than `CACHE_BYTES_MIN`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes: capacity_bytes.max(CACHE_BYTES_MIN),
            used_bytes: 0,
            next: 0,
            pages: BTreeMap::new(),
            ages: BTreeMap::new(),
        }
    }

    /// Bytes that its versions take.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Would versions that take so much more exceed the capacity?
    fn is_full_for(&self, bytes: u64) -> bool {
        self.used_bytes + bytes > self.capacity_bytes
    }

    fn put(&mut self, lpn: Lpn, new: NewVersion) {
        let number = self.next;
        self.next += 1;
        let NewVersion {
            command,
            sectors,
            content,
            source,
        } = new;
        let version = CachedVersion {
            number,
            command,
            sectors,
            content,
            source,
        };

        // Hidden versions take room too: a cut may leave them.
        self.used_bytes += version.bytes();
        let versions = self.pages.entry(lpn).or_default();
        if versions.is_empty() {
            self.ages.insert(number, lpn);
        }
        versions.push(version);
    }

    /// Sectors whose newest content is here.
    fn covered(&self, lpn: Lpn) -> Sectors {
        let versions = self.pages.get(&lpn).map_or(&[][..], Vec::as_slice);
        versions
            .iter()
            .fold(Sectors::NONE, |all, version| all.with(version.sectors))
    }

    /// Lays the newest versions over a page's durable content.
    fn overlay(&self, lpn: Lpn, page: &mut [u8; PAGE_BYTES]) {
        // Oldest first: what comes later lies on top.
        for version in self.pages.get(&lpn).into_iter().flatten() {
            let sectors = (0..PAGE_BYTES / SECTOR_BYTES).filter(|at| version.sectors.has(*at));
            sectors.for_each(|sector| version.show(sector, page));
        }
    }

    /// What a page with versions is as a whole.
    fn newest(&self, lpn: Lpn) -> Option<Newest> {
        let last = self.pages.get(&lpn)?.last()?;
        Some(match (&last.content, last.source) {
            // A page that is known in part needs the device, so neither zeroes nor a source stand
            // for it.
            _ if self.covered(lpn) != Sectors::ALL => Newest::Part,
            _ if last.sectors != Sectors::ALL => Newest::Whole,
            (SectorData::Zeroes, _) => Newest::Zeroes,
            (_, Some(source)) => Newest::RemappedFrom(source),
            (_, None) => Newest::Whole,
        })
    }

    /// The page whose oldest version is the oldest of all, if that is older than `number`.
    fn oldest_before(&self, number: u64) -> Option<Lpn> {
        let (oldest, lpn) = self.ages.first_key_value()?;
        (*oldest < number).then_some(*lpn)
    }

    /// The first page from `lpn` on, and before `end`, that has versions.
    fn next_page(&self, lpn: Lpn, end: Lpn) -> Option<Lpn> {
        let (found, _) = self.pages.range(lpn..end).next()?;
        Some(*found)
    }

    /// Sectors of a page are durable as the device has them: their versions are gone.
    fn forget(&mut self, lpn: Lpn, durable: Sectors) {
        let Some(versions) = self.pages.get_mut(&lpn) else {
            return;
        };

        // The page's age is that of its oldest version, which may be gone below.
        let oldest = versions[0].number;
        let before: u64 = versions.iter().map(CachedVersion::bytes).sum();

        versions
            .iter_mut()
            .for_each(|version| version.sectors = version.sectors.without(durable));

        // A version all of whose sectors are durable is of no use to a cut.
        versions.retain(|version| version.sectors != Sectors::NONE);

        let after: u64 = versions.iter().map(CachedVersion::bytes).sum();
        self.used_bytes -= before - after;
        self.ages.remove(&oldest);
        match versions.first() {
            Some(first) => drop(self.ages.insert(first.number, lpn)),
            None => drop(self.pages.remove(&lpn)),
        }
    }

    /// Every table against every other.
    ///
    /// # Panics
    /// If they do not agree.
    pub fn check(&self) {
        let used: u64 = self
            .pages
            .values()
            .flatten()
            .map(CachedVersion::bytes)
            .sum();
        assert_eq!(used, self.used_bytes, "used bytes");
        assert_eq!(self.pages.len(), self.ages.len(), "a page has one age");
        for (number, lpn) in &self.ages {
            let versions = &self.pages[lpn];
            assert_eq!(versions[0].number, *number, "the age of page {lpn}");
            assert!(
                versions.is_sorted_by(|a, b| a.number < b.number),
                "versions of page {lpn} are in order"
            );
        }
    }
}
