//! A volatile write cache of written data that is not yet on the device (NVMe Base 2.0, Flush; NVM
//! Command Set, FUA).
//!
//! ```text
//! mod     versions of pages, oldest first, and the room that they take
//! page    the versions of one page, and the previous content of the device
//! cut     the versions that survive a power cut
//! draw    how many of its newest versions each block loses
//! access  reads and writes of commands through the cache, and write-back
//! ```
//! A write adds a version to each page that it touches. Reads see the newest version. Write-back
//! puts the newest version of a page on the device, oldest page first. The versions stay in the
//! cache, with the previous content of the device, until a sync has made them durable: until then
//! no flush that waits for them is acknowledged, and a power cut may take them back. At a power cut
//! each block independently keeps any version since its last durable one.
//!
//! Invariants: a page with versions is in `ages` once, under the number of its oldest version; in
//! `unwritten` under the number of its oldest version that is not on the device; and in `awaiting`
//! if one of them is. `used_bytes` is the sum of all pages' bytes. Versions hidden by a newer one
//! are kept until the block is durable, since a cut may leave any of them. Absent: the device
//! (`access`), threads, and anything persisted.

mod access;
mod cut;
mod draw;
mod page;

pub use cut::{CutReport, LostBlocks};
pub use draw::LossDraw;
use page::{BASE_BYTES, CachedPage, WrittenBack};
use remap_ssd_media::Lpn;
use remap_ssd_media::folder::HistoryPosition;

use remap_ssd_media::geometry::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

const SECTOR_BYTES: usize = 512;
/// Bytes that a version takes besides its data.
const VERSION_BYTES: u64 = 128;
/// Minimum cache size: commands make room for one page at a time.
pub const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Sectors of a page, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sectors(u8);

impl Sectors {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u8::MAX);

    /// The sectors covered by a part of a page; parts are whole sectors.
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

    fn each(self) -> impl Iterator<Item = usize> {
        (0..PAGE_BYTES / SECTOR_BYTES).filter(move |sector| self.has(*sector))
    }
}

/// Content of a version's sectors.
#[derive(Clone, Debug)]
enum SectorData {
    /// They read as zeroes: deallocated, or zeroed by a command.
    Zeroes,
    /// Bytes of the sectors from `first` on.
    Bytes { first: usize, bytes: Box<[u8]> },
}

/// New content of some sectors of a page, written by one command.
#[derive(Clone, Debug)]
struct CachedVersion {
    number: u64,
    /// The command that wrote it.
    command: u64,
    sectors: Sectors,
    content: SectorData,
    /// The page that it was remapped or copied from. Write-back remaps again if that page's content
    /// is unchanged.
    source: Option<Lpn>,
    /// Whether the device has it, or newer versions of all its sectors.
    written_back: WrittenBack,
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

/// The newest content of a page as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    /// Some sectors come from the device.
    Part,
    /// Bytes, all cached.
    Whole,
    /// The last command zeroed the whole page.
    Zeroes,
    /// The last command remapped the whole page from this one.
    RemappedFrom(Lpn),
}

/// Versions of pages that are not durable yet.
pub(super) struct VolatileCache {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Number of the next version.
    next: u64,
    pages: BTreeMap<Lpn, CachedPage>,
    /// Number of a page's oldest version: the order in which pages make room for others.
    ages: BTreeMap<u64, Lpn>,
    /// Number of a page's oldest version that the device does not have: the order of write-back.
    unwritten: BTreeMap<u64, Lpn>,
    /// Pages with versions that the device has, and that a sync has not made durable yet.
    awaiting: BTreeSet<Lpn>,
    /// Everything before this position is durable.
    durable_until: Option<HistoryPosition>,
}

impl VolatileCache {
    /// An empty cache. It keeps at most `capacity_bytes`, but at least `CACHE_BYTES_MIN`.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes: capacity_bytes.max(CACHE_BYTES_MIN),
            used_bytes: 0,
            next: 0,
            pages: BTreeMap::new(),
            ages: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            awaiting: BTreeSet::new(),
            durable_until: None,
        }
    }

    /// Bytes that its versions take.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Returns true if versions of `bytes` more would exceed the capacity.
    fn is_full_for(&self, bytes: u64) -> bool {
        self.used_bytes + bytes > self.capacity_bytes
    }

    /// Changes a page and updates the tables.
    fn change(&mut self, lpn: Lpn, change: impl FnOnce(&mut CachedPage)) {
        let page = self.pages.entry(lpn).or_default();

        // Remove the page's entries from the tables; they are added again after the change.
        self.used_bytes -= page.bytes();
        if let Some(number) = page.oldest() {
            self.ages.remove(&number);
        }
        if let Some(number) = page.oldest_unwritten() {
            self.unwritten.remove(&number);
        }
        self.awaiting.remove(&lpn);

        change(page);

        self.used_bytes += page.bytes();
        self.ages.extend(page.oldest().map(|number| (number, lpn)));
        self.unwritten
            .extend(page.oldest_unwritten().map(|number| (number, lpn)));
        self.awaiting.extend(page.is_awaiting().then_some(lpn));
        if page.versions.is_empty() {
            self.pages.remove(&lpn);
        }
    }

    /// A version with the next number.
    fn number(&mut self, new: NewVersion, written_back: WrittenBack) -> CachedVersion {
        let number = self.next;
        self.next += 1;
        let NewVersion {
            command,
            sectors,
            content,
            source,
        } = new;
        CachedVersion {
            number,
            command,
            sectors,
            content,
            source,
            written_back,
        }
    }

    /// Adds a version. Hidden versions stay and take room: a cut may leave them.
    fn put(&mut self, lpn: Lpn, new: NewVersion) {
        let version = self.number(new, WrittenBack::No);
        self.change(lpn, |page| page.versions.push(version));
    }

    /// The device has written a version past the cache. `before` is the previous content of the
    /// page on the device, if known. If it is unknown, or there is no room for it, the version
    /// counts as durable at once.
    fn put_through(&mut self, lpn: Lpn, new: NewVersion, before: Option<&[u8; PAGE_BYTES]>) {
        let sectors = new.sectors;
        let version = self.number(new, WrittenBack::SinceLastSync);
        match before {
            Some(before) if !self.is_full_for(version.bytes() + BASE_BYTES) => {
                self.change(lpn, |page| page.put_through(version, before));
            }
            _ => self.forget(lpn, sectors),
        }
    }

    /// The device has the newest version of a page now. `before` as in `put_through`.
    fn written_back(&mut self, lpn: Lpn, before: Option<&[u8; PAGE_BYTES]>) {
        match before {
            Some(before) if !self.is_full_for(BASE_BYTES) => {
                self.change(lpn, |page| page.written_back(before));
            }
            _ => self.forget(lpn, Sectors::ALL),
        }
    }

    /// Everything now on the device becomes durable with this position. A device in memory has no
    /// positions: its content is durable.
    fn sync_to(&mut self, position: Option<HistoryPosition>) {
        // A sync to an earlier position than the last one has nothing to wait for.
        let durable_until = self.durable_until;
        let is_durable = position.is_none_or(|position| durable_until >= Some(position));

        for lpn in self.awaiting.clone() {
            self.change(lpn, |page| {
                if is_durable {
                    page.settle(|state| state != WrittenBack::No);
                } else if let Some(position) = position {
                    page.sync_to(position);
                }
            });
        }
    }

    /// Everything before a position is durable: versions covered by a flush that waits for it can
    /// no longer be lost.
    pub(super) fn durable_until(&mut self, until: HistoryPosition) {
        self.durable_until = self.durable_until.max(Some(until));
        for lpn in self.awaiting.clone() {
            self.change(lpn, |page| page.settle(|state| state.is_before(until)));
        }
    }

    /// Sectors whose newest content is in the cache.
    fn covered(&self, lpn: Lpn) -> Sectors {
        self.versions(lpn)
            .iter()
            .fold(Sectors::NONE, |all, version| all.with(version.sectors))
    }

    fn versions(&self, lpn: Lpn) -> &[CachedVersion] {
        self.pages.get(&lpn).map_or(&[], |page| &page.versions)
    }

    /// Lays the newest versions over the page's durable content.
    fn overlay(&self, lpn: Lpn, page: &mut [u8; PAGE_BYTES]) {
        // Oldest first: newer versions overwrite older ones.
        for version in self.versions(lpn) {
            let sectors = version.sectors.each();
            sectors.for_each(|sector| version.show(sector, page));
        }
    }

    /// The newest content of a page as a whole; `None` if it has no versions.
    fn newest(&self, lpn: Lpn) -> Option<Newest> {
        let last = self.versions(lpn).last()?;
        Some(match (&last.content, last.source) {
            // A partly cached page needs the device, so it is neither all zeroes nor a remap.
            _ if self.covered(lpn) != Sectors::ALL => Newest::Part,
            _ if last.sectors != Sectors::ALL => Newest::Whole,
            (SectorData::Zeroes, _) => Newest::Zeroes,
            (_, Some(source)) => Newest::RemappedFrom(source),
            (_, None) => Newest::Whole,
        })
    }

    /// Like `newest`, for pages that must be written back.
    fn newest_unwritten(&self, lpn: Lpn) -> Option<Newest> {
        self.pages.get(&lpn)?.oldest_unwritten()?;
        self.newest(lpn)
    }

    /// The page whose oldest version is the oldest of all, and whether it must be written back.
    fn oldest(&self) -> Option<(Lpn, bool)> {
        let (_, lpn) = self.ages.first_key_value()?;
        Some((*lpn, self.pages[lpn].oldest_unwritten().is_some()))
    }

    /// The page to write back next, if its version is older than `number`.
    fn oldest_unwritten_before(&self, number: u64) -> Option<Lpn> {
        let (oldest, lpn) = self.unwritten.first_key_value()?;
        (*oldest < number).then_some(*lpn)
    }

    /// The first page from `lpn` on, and before `end`, that has versions.
    fn next_page(&self, lpn: Lpn, end: Lpn) -> Option<Lpn> {
        let (found, _) = self.pages.range(lpn..end).next()?;
        Some(*found)
    }

    /// Like `next_page`, for pages that must be written back.
    fn next_unwritten_page(&self, lpn: Lpn, end: Lpn) -> Option<Lpn> {
        let mut pages = self.pages.range(lpn..end);
        let (found, _) = pages.find(|(_, page)| page.oldest_unwritten().is_some())?;
        Some(*found)
    }

    /// Sectors are durable as the device has them: drops their versions.
    fn forget(&mut self, lpn: Lpn, durable: Sectors) {
        if self.pages.contains_key(&lpn) {
            self.change(lpn, |page| page.forget(durable));
        }
    }

    /// Checks every table against the others.
    ///
    /// # Panics
    /// If they do not agree.
    pub(super) fn check(&self) {
        let used: u64 = self.pages.values().map(CachedPage::bytes).sum();
        assert_eq!(used, self.used_bytes, "used bytes");

        let ages = |oldest: fn(&CachedPage) -> Option<u64>| -> BTreeMap<u64, Lpn> {
            let pages = self.pages.iter();
            pages
                .filter_map(|(lpn, page)| Some((oldest(page)?, *lpn)))
                .collect()
        };
        assert_eq!(ages(CachedPage::oldest), self.ages, "ages");
        assert_eq!(
            ages(CachedPage::oldest_unwritten),
            self.unwritten,
            "the order of write-back"
        );

        for (lpn, page) in &self.pages {
            page.check(*lpn);
            assert_eq!(
                page.is_awaiting(),
                self.awaiting.contains(lpn),
                "whether page {lpn} awaits a sync"
            );
        }
        assert!(
            self.awaiting.iter().all(|lpn| self.pages.contains_key(lpn)),
            "only pages with versions await a sync"
        );
    }
}
