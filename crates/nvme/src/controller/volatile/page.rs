//! The versions of one page, and the content of the device before those already written back.
//!
//! A version is written back before it is durable. From then on a power cut may leave content that
//! the device no longer has: the base keeps it, sector by sector. When a sync has made a version
//! durable, it becomes the base of newer versions that are not durable yet.
//!
//! Invariants: the base has a sector if and only if a version of that sector was written back and
//! is not durable; every version has sectors. Absent: the device (`access`), and other pages.

use super::{CachedVersion, SECTOR_BYTES, Sectors};
use remap_ssd_media::Lpn;
use remap_ssd_media::folder::HistoryPosition;
use remap_ssd_media::geometry::PAGE_BYTES;

/// Bytes that a base takes.
pub(super) const BASE_BYTES: u64 = PAGE_BYTES as u64 + 128;

/// Write-back state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenBack {
    /// The device has an older version of some sector.
    No,
    /// Yes, and no sync has begun since.
    SinceLastSync,
    /// Yes: durable once everything before this position is.
    Before(HistoryPosition),
}

impl WrittenBack {
    /// Returns true if it is durable once everything before `until` is.
    pub(super) fn is_before(self, until: HistoryPosition) -> bool {
        matches!(self, Self::Before(position) if position <= until)
    }
}

/// Content of some sectors on the device before they were written back.
#[derive(Debug)]
struct Base {
    sectors: Sectors,
    page: Box<[u8; PAGE_BYTES]>,
}

/// Copies one sector from page to page.
pub(super) fn copy_sector(sector: usize, from: &[u8; PAGE_BYTES], to: &mut [u8; PAGE_BYTES]) {
    let at = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
    to[at.clone()].copy_from_slice(&from[at]);
}

/// A page with versions that are not durable.
#[derive(Debug, Default)]
pub(super) struct CachedPage {
    /// Oldest first.
    pub versions: Vec<CachedVersion>,
    base: Option<Base>,
}

impl CachedPage {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let versions: u64 = self.versions.iter().map(CachedVersion::bytes).sum();
        versions + self.base.as_ref().map_or(0, |_| BASE_BYTES)
    }

    /// Number of its oldest version.
    pub(super) fn oldest(&self) -> Option<u64> {
        Some(self.versions.first()?.number)
    }

    /// Number of its oldest version that the device does not have.
    pub(super) fn oldest_unwritten(&self) -> Option<u64> {
        let mut versions = self.versions.iter();
        let oldest = versions.find(|version| version.written_back == WrittenBack::No)?;
        Some(oldest.number)
    }

    /// Returns true if it has versions that are on the device but not durable.
    pub(super) fn is_awaiting(&self) -> bool {
        self.base.is_some()
    }

    /// The content of a sector on the device before it was written back, if it was.
    pub(super) fn base(&self, sector: usize) -> Option<&[u8; PAGE_BYTES]> {
        let base = self.base.as_ref().filter(|base| base.sectors.has(sector))?;
        Some(&base.page)
    }

    /// Sectors with a version that is on the device.
    fn awaiting(&self) -> Sectors {
        let versions = self.versions.iter();
        versions
            .filter(|version| version.written_back != WrittenBack::No)
            .fold(Sectors::NONE, |all, version| all.with(version.sectors))
    }

    /// The device held `before` in sectors that are written back from now on. A sector that already
    /// has a base keeps it.
    fn add_base(&mut self, before: &[u8; PAGE_BYTES]) {
        let awaiting = self.awaiting();
        let base = self.base.get_or_insert_with(|| Base {
            sectors: Sectors::NONE,
            page: Box::new([0; PAGE_BYTES]),
        });
        let missing = awaiting.without(base.sectors);
        missing
            .each()
            .for_each(|sector| copy_sector(sector, before, &mut base.page));
        base.sectors = awaiting;
    }

    /// Its newest content is on the device, which held `before`.
    pub(super) fn written_back(&mut self, before: &[u8; PAGE_BYTES]) {
        for version in &mut self.versions {
            if version.written_back == WrittenBack::No {
                version.written_back = WrittenBack::SinceLastSync;
            }
        }
        self.add_base(before);
    }

    /// A version was written to the device, which held `before`, ahead of older cached versions.
    pub(super) fn put_through(&mut self, version: CachedVersion, before: &[u8; PAGE_BYTES]) {
        self.versions.push(version);

        // A version whose sectors all have newer versions on the device is not written back later.
        let mut newer = Sectors::NONE;
        for version in self.versions.iter_mut().rev() {
            if version.written_back == WrittenBack::No
                && version.sectors.without(newer) == Sectors::NONE
            {
                version.written_back = WrittenBack::SinceLastSync;
            }
            if version.written_back != WrittenBack::No {
                newer = newer.with(version.sectors);
            }
        }
        self.add_base(before);
    }

    /// Versions on the device become durable with this position.
    pub(super) fn sync_to(&mut self, position: HistoryPosition) {
        for version in &mut self.versions {
            if version.written_back == WrittenBack::SinceLastSync {
                version.written_back = WrittenBack::Before(position);
            }
        }
    }

    /// Drops durable versions, and older ones of the same sectors. The newest durable version
    /// becomes the base of the remaining ones.
    pub(super) fn settle(&mut self, is_durable: impl Fn(WrittenBack) -> bool) {
        let mut durable = Sectors::NONE;
        for version in self.versions.iter_mut().rev() {
            // Newest first: an older durable version of a sector is no base.
            if is_durable(version.written_back) {
                let newest = version.sectors.without(durable);
                if let Some(base) = &mut self.base {
                    newest
                        .each()
                        .for_each(|sector| version.show(sector, &mut base.page));
                }
                durable = durable.with(newest);
            }
            version.sectors = version.sectors.without(durable);
        }
        self.tidy();
    }

    /// Sectors are durable as the device has them: drops all versions of them.
    pub(super) fn forget(&mut self, durable: Sectors) {
        self.versions
            .iter_mut()
            .for_each(|version| version.sectors = version.sectors.without(durable));
        self.tidy();
    }

    fn tidy(&mut self) {
        // A version whose sectors are all durable is of no use to a cut.
        self.versions
            .retain(|version| version.sectors != Sectors::NONE);

        let awaiting = self.awaiting();
        if let Some(base) = &mut self.base {
            base.sectors = awaiting;
        }
        if awaiting == Sectors::NONE {
            self.base = None;
        }
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check(&self, lpn: Lpn) {
        assert!(!self.versions.is_empty(), "page {lpn} has versions");
        assert!(
            self.versions.is_sorted_by(|a, b| a.number < b.number),
            "versions of page {lpn} are in order"
        );
        let base = self
            .base
            .as_ref()
            .map_or(Sectors::NONE, |base| base.sectors);
        assert_eq!(base, self.awaiting(), "the base of page {lpn}");
        assert_eq!(
            self.base.is_some(),
            base != Sectors::NONE,
            "page {lpn} has no empty base"
        );
    }
}
