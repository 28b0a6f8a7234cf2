//! What a device is made of besides its geometry, and the check that it can work.
//!
//! Invariant: a `Config` that passed `check` leaves garbage collection enough room to always gain space.
//! Absent: latencies (the device's).

use crate::dedup::FingerprintKind;
use crate::granularity::Granularity;
use crate::guard::Guards;
use crate::policy::GcPolicy;
use crate::scheme::SchemeKind;
use crate::superblock::Stream;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Geometry, oob};
use serde::{Deserialize, Serialize};

/// Size of a persisted remapping entry (FAST'21 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntrySize {
    /// Table 2: each page of a remap is atomic by itself.
    #[serde(rename = "16")]
    Bytes16,
    /// With start LPN, length and the atomic flag: whole commands can be atomic.
    #[serde(rename = "24")]
    Bytes24,
}

impl EntrySize {
    /// 8-byte words of an entry.
    pub fn words(self) -> usize {
        match self {
            Self::Bytes16 => 2,
            Self::Bytes24 => 3,
        }
    }
}

/// Firmware parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Logical pages the host sees.
    pub lpns: u32,
    /// How remaps are made durable.
    pub scheme: SchemeKind,
    /// Bytes of remapping metadata: NVRAM for Remap-SSD and NLog, the log's cap on flash for FLog, DRAM under
    /// a capacitor for Copyless Copy, NVRAM for both mapping tables for PebbleSSD.
    pub log_bytes: u64,
    /// Pages' worth of entries that a scheme without NVRAM may cache under its capacitor, if it caches by superblock.
    pub cache_pages: u32,
    /// Flash pages that a capacitor's energy programs when power fails, for a scheme that relies on one; 0 is as many as
    /// its DRAM fills.
    pub energy_pages: u32,
    /// Bytes of an NVRAM segment.
    pub segment_bytes: u32,
    /// Size of a remapping entry.
    pub entry: EntrySize,
    /// Slots of a flash page: the LPNs that may be remapped to it at a time, where a scheme has a fixed number.
    pub degree: u32,
    /// What an entry of the mapping table stands for.
    #[serde(skip_serializing_if = "is_default")]
    pub mapping: Granularity,
    /// Hybrid mapping: logical pages of a block.
    #[serde(skip_serializing_if = "is_block_pages_default")]
    pub block_pages: u32,
    /// Hybrid mapping: entries of the table's extension, as a share of the logical pages.
    #[serde(skip_serializing_if = "is_extension_default")]
    pub extension: f64,
    /// Is the deduplication engine on?
    pub dedup: bool,
    /// Largest reference count of a page: 15 for 4-bit counters.
    pub count_max: u8,
    /// Remaps are refused while more than this share of the entries' room is valid.
    pub watermark: f64,
    /// What garbage collection collects, and where it puts it.
    pub gc_policy: GcPolicy,
    /// Garbage collection starts when at most this share of the superblocks is free.
    pub gc_free: f64,
    /// Ahead of need, only a superblock of whose pages at least this share is garbage is collected.
    pub gc_garbage: f64,
    /// A victim is emptied at once when its turn comes, and not page by page while the host uses what it gains.
    pub gc_at_once: bool,
    /// Pages moved by garbage collection go to the host's superblock (but for those that a policy keeps apart), and not
    /// to one of their own.
    pub gc_joins_host: bool,
    /// A superblock whose erase count is this far below the mean is collected to level wear; 0 is off.
    pub wear_gap: u32,
    /// Slots in each half of the NVRAM log of deallocations.
    pub dealloc_slots: u32,
    /// Files that the file map of `fs_write` can list; 0 if there is no map.
    pub fs_files: u32,
    /// Pages that its lists have room for, all together; 0 if there is no map.
    pub fs_blocks: u32,
    /// Content of pages is recognised by this.
    pub fingerprint: FingerprintKind,
    /// Erases after which a block is retired: the endurance of the flash chips. 0 means the limit of a superblock's
    /// erase counter, 2^21 - 1.
    #[serde(skip)]
    pub pe_limit: u32,
    /// Guards switched off, for the tests that prove each of them necessary.
    #[serde(skip)]
    pub guards: Guards,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lpns: 0,
            scheme: SchemeKind::RemapSsd,
            log_bytes: 80 << 20,
            cache_pages: 64,
            energy_pages: 0,
            segment_bytes: 1024,
            entry: EntrySize::Bytes16,
            degree: 2,
            mapping: Granularity::Page,
            block_pages: BLOCK_PAGES,
            extension: EXTENSION,
            dedup: true,
            count_max: 15,
            watermark: 0.95,
            gc_policy: GcPolicy::Greedy,
            gc_free: 0.10,
            gc_garbage: 0.0,
            gc_at_once: false,
            gc_joins_host: false,
            wear_gap: 64,
            dealloc_slots: 4096,
            fs_files: 0,
            fs_blocks: 0,
            fingerprint: FingerprintKind::Blake3,
            pe_limit: 0,
            guards: Guards::ALL,
        }
    }
}

/// Why a configuration cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Logical pages whose deallocation one bitmap page covers.
pub const CHUNK_LPNS: u32 = (PAGE_BYTES * 8) as u32;

/// Logical pages of a block under hybrid mapping.
const BLOCK_PAGES: u32 = 64;

/// Entries of its extension, as a share of the logical pages.
const EXTENSION: f64 = 1.0 / 32.0;

// What is not said is not written either, so that descriptions of devices stay as they were.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_block_pages_default(pages: &u32) -> bool {
    *pages == BLOCK_PAGES
}

fn is_extension_default(share: &f64) -> bool {
    *share == EXTENSION
}

/// Largest atomic remap, pages.
pub const ATOMIC_PAGES_MAX: u32 = 256;

impl Config {
    /// OOB records that fit in one tail page: 4096 / 10, or 4096 / 14 with the extension (FAST'21 §4.5 keeps "P2L
    /// mappings and WSN of all data pages").
    pub fn tail_records(&self) -> u32 {
        let extension = if self.scheme.uses_hints() {
            oob::SECOND_BYTES
        } else {
            0
        };
        (PAGE_BYTES / (oob::OOB_BYTES + extension)) as u32
    }

    /// Tail pages of a superblock.
    pub fn tail_pages(&self, geometry: &Geometry) -> u32 {
        geometry
            .pages_per_superblock()
            .div_ceil(self.tail_records())
    }

    /// Pages of a superblock that can hold data when no block of it is bad.
    pub fn data_pages(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_superblock() - 1 - self.tail_pages(geometry)
    }

    /// Internal logical pages: one per bitmap of deallocations.
    pub fn chunks(&self) -> u32 {
        self.lpns.div_ceil(CHUNK_LPNS)
    }

    /// Superblocks kept free so that garbage collection and a flash log can always go on: a victim's pages may open
    /// one in every zone before the victim is erased, and an atomic command takes two without collecting; each in every group
    /// of dies.
    pub fn reserve(&self, geometry: &Geometry) -> u32 {
        geometry.groups() * (2 + self.gc_opens() as u32)
            + crate::scheme::flash_need(self, geometry).spare
    }

    /// The stream that takes pages moved to a zone.
    pub fn gc_stream(&self, zone: usize) -> Stream {
        match self.is_hybrid() {
            // Pages that move alone go where pages are written alone.
            true => [Stream::Host, Stream::Gc][zone],
            false if zone == 0 && self.gc_joins_host => Stream::Host,
            false => Stream::ZONES[zone],
        }
    }

    /// Free superblocks at which garbage collection starts.
    pub fn gc_start(&self, geometry: &Geometry) -> u32 {
        ((f64::from(geometry.superblocks()) * self.gc_free) as u32).max(self.reserve(geometry) + 1)
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// One sentence: what cannot work and what would.
    pub fn check(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        if self.lpns == 0 || self.lpns >= 1 << 31 {
            return fail(format!("lpns = {} must be 1 to 2147483647", self.lpns));
        }
        let tail = self.tail_pages(geometry);
        if geometry.pages_per_superblock() < tail + 4 {
            return fail(format!(
                "a superblock of {} pages is too small for its head, {tail} tail pages and data: use more dies or pages per block",
                geometry.pages_per_superblock()
            ));
        }
        self.check_mapping(geometry)?;
        let (needed_pages, data) = self.pages_needed(geometry);
        // Open superblocks (host, GC's zones) and the reserve hold no closed data; one more gives GC something to gain.
        // So does a log on flash.
        let log = crate::scheme::flash_need(self, geometry).held;
        let open = u64::from(geometry.groups()) * (2 + self.gc_opens() as u64);
        let busy = u64::from(self.reserve(geometry) + log) + open;
        if self.scheme.keeps_entries_on_flash() && geometry.groups() > 1 {
            return fail(format!(
                "scheme {} keeps entries on flash, in superblocks across all {} dies: leave superblock_dies out",
                self.scheme,
                geometry.dies_total()
            ));
        }
        let needed = needed_pages.div_ceil(data) + busy;
        if needed > u64::from(geometry.superblocks()) {
            let beside = needed_pages - u64::from(self.lpns) - u64::from(self.chunks());
            let have = (u64::from(geometry.superblocks()).saturating_sub(busy) * data)
                .saturating_sub(beside);
            return fail(format!(
                "over-provisioning is too small for garbage collection: {} logical pages need {needed} superblocks and \
                 there are {}; use at most {} logical pages",
                self.lpns,
                geometry.superblocks(),
                have.saturating_sub(u64::from(self.chunks()) + 1)
            ));
        }
        if !(2..=15).contains(&self.count_max) {
            return fail(format!(
                "count_max = {} must be 2 to 15 (4-bit counters)",
                self.count_max
            ));
        }
        if !(0.0..=1.0).contains(&self.watermark) || !(0.0..0.9).contains(&self.gc_free) {
            return fail("watermark must be 0 to 1 and gc_free 0 to 0.9".into());
        }
        if !(0.0..1.0).contains(&self.gc_garbage) {
            return fail(format!(
                "gc_garbage = {} must be 0 to below 1",
                self.gc_garbage
            ));
        }
        if self.dealloc_slots < 4 {
            return fail(format!(
                "dealloc_slots = {} must be at least 4",
                self.dealloc_slots
            ));
        }
        crate::files::check(self)?;
        crate::scheme::check(self, geometry)
    }
}
