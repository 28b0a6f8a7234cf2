//! The parameters of a device apart from its geometry: plain data.
//!
//! Absent: derived sizes (`sizes`), validation (`limits`), and latencies (the device's).

pub(crate) mod buffered_remaps;
pub(crate) mod granularity;
pub mod guard;
pub(crate) mod kind;
pub(crate) mod layout;
mod limits;
mod sizes;

use crate::config::buffered_remaps::BufferedRemaps;
use crate::config::granularity::Granularity;
use crate::config::guard::Guards;
use crate::config::kind::{SchemeKey, SchemeKind};
use crate::dedup::FingerprintKind;
use crate::policy::GcPolicy;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Geometry, Lpn};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Size of a persisted remapping entry (FAST'21 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntrySize {
    /// Table 2: each page of a remap is atomic on its own.
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

/// Parameters of the firmware; the device's shape is in `Geometry`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Logical pages the host sees.
    pub lpns: u32,
    /// Scheme that makes remaps durable.
    pub scheme: SchemeKind,
    /// Bytes of remapping metadata: NVRAM for Remap-SSD and NLog, the log's cap on flash for FLog,
    /// DRAM under a capacitor for Copyless Copy, NVRAM for both mapping tables for PebbleSSD.
    pub log_bytes: u64,
    /// Bytes of an NVRAM segment.
    pub segment_bytes: u32,
    /// Size of a remapping entry.
    pub entry: EntrySize,
    /// Granularity of an entry of the mapping table.
    #[serde(skip_serializing_if = "is_default")]
    pub mapping: Granularity,
    /// Hybrid mapping: logical pages per block.
    #[serde(skip_serializing_if = "is_block_pages_default")]
    pub block_pages: u32,
    /// Hybrid mapping: entries of the table's extension, as a share of the logical pages.
    #[serde(skip_serializing_if = "is_extension_default")]
    pub extension: f64,
    /// Enables the deduplication engine.
    pub dedup: bool,
    /// Largest reference count of a page: 15 for counters of 4 bits, 255 for 8 bits, more with a table of what
    /// exceeds them.
    pub count_max: u16,
    /// Remaps are refused while more than this fraction of the entries' room is valid.
    pub watermark: f64,
    /// Victim selection and placement of garbage collection.
    pub gc_policy: GcPolicy,
    /// Superblocks that d-choices draws.
    #[serde(skip_serializing_if = "is_choices_default")]
    pub gc_choices: u32,
    /// Garbage collection starts when at most this fraction of the superblocks is free.
    pub gc_free: f64,
    /// Ahead of need, only superblocks with at least this fraction of garbage pages are collected.
    pub gc_garbage: f64,
    /// A victim is emptied at once when its turn comes, not page by page while the host uses the
    /// space gained.
    pub gc_at_once: bool,
    /// Garbage collection moves pages to the host's superblock (except those that a policy keeps
    /// apart), not to one of its own.
    pub gc_joins_host: bool,
    /// Where superblocks span fewer dies than the device: an LPN names the dies to which its pages go. Otherwise
    /// all take turns.
    #[serde(skip_serializing_if = "is_default")]
    pub die_by_lpn: bool,
    /// A superblock whose erase count is this far below the mean is collected to level wear; 0
    /// disables it.
    pub wear_gap: u32,
    /// Reads of a block after which its superblock is collected, so that its pages stay readable; 0
    /// disables it.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh_reads: u32,
    /// A superblock is collected when this number of pages has been written or remapped since it was opened;
    /// 0 disables it.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh_writes: u64,
    /// Bytes of DRAM for entries of L2P, whose table is on flash; 0 if the whole table is in DRAM.
    #[serde(skip_serializing_if = "is_default")]
    pub mapping_cache_bytes: u64,
    /// Bytes of DRAM for pages that the host has written and that are not on flash yet; 0 if writes go to flash at once.
    /// A capacitor saves them when power fails if there is `power_loss_protection`; otherwise they are lost unless a
    /// flush came before.
    #[serde(skip_serializing_if = "is_default")]
    pub write_buffer_bytes: u64,
    /// Bytes of the largest write that a power cut leaves whole or absent, wherever it begins; 0 if only pages are.
    #[serde(skip_serializing_if = "is_default")]
    pub untorn_bytes: u64,
    /// What a remap does with pages in a buffer that a capacitor saves. It waits for those in a volatile buffer.
    #[serde(skip_serializing_if = "is_default")]
    pub buffered_remaps: BufferedRemaps,
    /// Share of the superblocks whose cells store one bit each, as a cache of pages that the host writes; 0 if there
    /// is none.
    #[serde(skip_serializing_if = "is_default")]
    pub slc_share: f64,
    /// Share of the superblocks that may be opened in SLC mode at a time, any of them, while the device has room; 0 if
    /// superblocks do not change their mode.
    #[serde(skip_serializing_if = "is_default")]
    pub slc_dynamic: f64,
    /// While the host writes, superblocks in SLC mode are folded when at most this fraction of them is free.
    #[serde(skip_serializing_if = "is_fold_free_default")]
    pub slc_fold_free: f64,
    /// Then only those with at least this fraction of dead pages are folded.
    #[serde(skip_serializing_if = "is_fold_garbage_default")]
    pub slc_fold_garbage: f64,
    /// Slots in each half of the NVRAM log of deallocations.
    pub dealloc_slots: u32,
    /// Files that the file map of `fs_write` can list; 0 if there is no map.
    pub fs_files: u32,
    /// Pages that its lists can hold in total; 0 if there is no map.
    pub fs_blocks: u32,
    /// Pages in the controller's buffer survive a power cut. If not, the firmware fills word lines with pads before it
    /// acknowledges their pages.
    #[serde(skip_serializing_if = "is_true")]
    pub power_loss_protection: bool,
    /// Fingerprint function that identifies the contents of pages.
    pub fingerprint: FingerprintKind,
    /// Parameters of individual schemes: the table `[firmware.SCHEME]` in device files.
    #[serde(flatten)]
    pub scheme_values: SchemeValues,
    /// Erases after which a block is retired: the endurance of the flash. 0 means the limit of a
    /// superblock's erase counter, 2^21 - 1.
    #[serde(skip)]
    pub pe_limit: u32,
    /// The same of blocks in SLC mode.
    #[serde(skip)]
    pub slc_pe_limit: u32,
    /// Guards in force; tests switch them off to prove each one necessary.
    #[serde(skip)]
    pub guards: Guards,
}

impl Config {
    /// Value of one of the scheme's own parameters.
    pub fn own(&self, key: &SchemeKey) -> u64 {
        self.scheme_values.get(self.scheme, key)
    }

    /// Returns true if pages may have more owners than a counter of four bits holds. Then collection counts the
    /// owners that may find no room. With fewer it takes its chance, as the published platforms do: they would
    /// choose other victims.
    pub(crate) fn has_many_owners(&self) -> bool {
        self.count_max > 15
    }

    /// Returns true if L2P is on flash, and a part of it in DRAM.
    pub fn caches_mapping(&self) -> bool {
        self.mapping_cache_bytes > 0
    }

    /// Returns true if commands of several pages can be atomic.
    pub(crate) fn has_atomic_commands(&self) -> bool {
        self.entry == EntrySize::Bytes24 || self.untorn_bytes > 0
    }

    /// Pages that the write buffer holds: indirection units, if these are larger.
    pub fn buffer_slots(&self, geometry: &Geometry) -> u32 {
        (self.write_buffer_bytes / geometry.page_bytes() as u64) as u32
    }

    /// Slots of the write buffer that a capacitor saves when power fails: all or none.
    pub(crate) fn saved_buffer_slots(&self, geometry: &Geometry) -> u32 {
        if self.power_loss_protection {
            self.buffer_slots(geometry)
        } else {
            0
        }
    }

    /// Returns true if the write buffer is a volatile cache: a write is durable only after a flush.
    pub fn has_volatile_buffer(&self) -> bool {
        self.write_buffer_bytes > 0 && !self.power_loss_protection
    }

    /// Returns true if superblocks are refreshed.
    pub(crate) fn refreshes(&self) -> bool {
        self.refresh_reads > 0 || self.refresh_writes > 0
    }
}

/// Values of the schemes' own keys; a key that is absent has its default.
///
/// `scheme/catalogue.rs` parses them, since that takes the list of schemes to know the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemeValues(BTreeMap<(&'static str, &'static str), u64>);

impl SchemeValues {
    /// A set with one value; the other keys have their defaults.
    pub fn of(scheme: SchemeKind, name: &str, value: u64) -> Self {
        let mut values = Self::default();
        values.set(scheme, name, value);
        values
    }

    /// The value of a scheme's key.
    pub fn get(&self, scheme: SchemeKind, key: &SchemeKey) -> u64 {
        let given = self.0.get(&(scheme.name(), key.name));
        given.copied().unwrap_or(key.default)
    }

    /// Sets the value of a scheme's key, which must exist.
    pub fn set(&mut self, scheme: SchemeKind, name: &str, value: u64) {
        let key = scheme.key(name).expect("the scheme has a key of this name");
        // Defaults are not stored, so that equivalent configurations are equal.
        if value == key.default {
            self.0.remove(&(scheme.name(), key.name));
        } else {
            self.0.insert((scheme.name(), key.name), value);
        }
    }
}

// Defaults are not written.
impl Serialize for SchemeValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tables: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for ((scheme, key), value) in &self.0 {
            tables.entry(scheme).or_default().insert(key, *value);
        }
        tables.serialize(serializer)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lpns: 0,
            scheme: SchemeKind::default(),
            log_bytes: 80 << 20,
            segment_bytes: 1024,
            entry: EntrySize::Bytes16,
            mapping: Granularity::Page,
            block_pages: BLOCK_PAGES,
            extension: EXTENSION,
            dedup: true,
            count_max: 15,
            watermark: 0.95,
            gc_policy: GcPolicy::Greedy,
            gc_choices: CHOICES,
            gc_free: 0.10,
            gc_garbage: 0.0,
            gc_at_once: false,
            gc_joins_host: false,
            die_by_lpn: false,
            wear_gap: 64,
            refresh_reads: 0,
            refresh_writes: 0,
            mapping_cache_bytes: 0,
            write_buffer_bytes: 0,
            untorn_bytes: 0,
            buffered_remaps: BufferedRemaps::Wait,
            slc_share: 0.0,
            slc_dynamic: 0.0,
            slc_fold_free: SLC_FOLD_FREE,
            slc_fold_garbage: SLC_FOLD_GARBAGE,
            dealloc_slots: 4096,
            fs_files: 0,
            fs_blocks: 0,
            power_loss_protection: true,
            fingerprint: FingerprintKind::Blake3,
            scheme_values: SchemeValues::default(),
            pe_limit: 0,
            slc_pe_limit: 0,
            guards: Guards::ALL,
        }
    }
}

/// Logical pages whose deallocation one bitmap page covers.
pub(crate) const CHUNK_LPNS: u32 = (PAGE_BYTES * 8) as u32;

/// The bitmap that covers an LPN.
#[inline(always)]
pub(crate) const fn chunk_of(lpn: Lpn) -> u32 {
    lpn.0 / CHUNK_LPNS
}

/// Default of `block_pages`.
const BLOCK_PAGES: u32 = 64;

/// Default of `extension`.
const EXTENSION: f64 = 1.0 / 32.0;

/// Default of `gc_choices`.
const CHOICES: u32 = 10;

/// Default of `slc_fold_free`.
const SLC_FOLD_FREE: f64 = 0.125;

/// Default of `slc_fold_garbage`. A page in SLC mode then costs its own program and half of one of the slower kind: as
/// much as a page that is written past the cache if programs in SLC mode take half the time for a page, less if they are
/// faster.
const SLC_FOLD_GARBAGE: f64 = 0.5;

// Defaults are not written, so that descriptions of existing devices do not change.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_block_pages_default(pages: &u32) -> bool {
    *pages == BLOCK_PAGES
}

fn is_extension_default(share: &f64) -> bool {
    *share == EXTENSION
}

fn is_choices_default(choices: &u32) -> bool {
    *choices == CHOICES
}

fn is_fold_free_default(share: &f64) -> bool {
    *share == SLC_FOLD_FREE
}

fn is_fold_garbage_default(share: &f64) -> bool {
    *share == SLC_FOLD_GARBAGE
}

/// Pages of the largest remap that can be atomic.
pub(crate) const ATOMIC_PAGES_MAX: u32 = 256;
