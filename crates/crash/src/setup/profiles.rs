//! The profiles: the scarce resources of each device, and the main commands of its script.
//!
//! Invariant: a profile lists only its differences from `COMMON`. Absent: the size of a device,
//! which follows from the firmware's limits (`enough`).

mod combined;

pub(super) use combined::COMBINED;

use crate::script::Mix;
use remap_ssd_ftl::{BufferedRemaps, EntrySize, FingerprintKind, GcPolicy};
use remap_ssd_media::{ContentMode, WordLine};

#[derive(Clone, Copy)]
pub(super) struct SetupProfile {
    pub shape: (u32, u32, u32),
    /// Dies of a superblock, where the scheme allows fewer than all.
    pub superblock_dies: u32,
    pub word_line: WordLine,
    /// A cut empties the controller's buffers, under schemes that permit it.
    pub unprotected: bool,
    pub segment_bytes: u32,
    pub segments: u32,
    pub cache_pages: u32,
    pub entry: EntrySize,
    pub dedup: bool,
    pub count_max: u16,
    pub watermark: f64,
    pub wear_gap: u32,
    pub dealloc_slots: u32,
    pub spare_pages: u32,
    pub bad_blocks: u32,
    pub mode: ContentMode,
    pub mix: Mix,
    pub steps: u32,
    pub policy: GcPolicy,
    /// One superblock for host writes and pages moved by collection, and victims emptied at once.
    pub joins_host: bool,
    /// LPNs name the dies to which their pages go.
    pub die_by_lpn: bool,
    /// Maximum files and pages of the file map.
    pub files: (u32, u32),
    /// Program/erase cycles a block endures; 0 is unlimited.
    pub pe_limit: u32,
    pub fingerprint: FingerprintKind,
    /// Hundreds of commands are in flight: more than the free superblocks can hold.
    pub deep: bool,
    /// Fraction of free superblocks at which collection starts ahead of need.
    pub gc_free: f64,
    /// The capacitor has the least energy that the firmware accepts, instead of ample energy.
    pub tight_energy: bool,
    /// Some LPNs are kept apart, and deduplication is paused now and then.
    pub apart: bool,
    /// Pages and words become unreadable.
    pub damage: bool,
    /// Reads of a block after which its superblock is refreshed, 0 if none is. Then it is also refreshed when as
    /// many pages as the flash has were written since it was opened.
    pub refresh_reads: u32,
    /// Bytes of the mapping cache, under schemes whose table can be on flash; 0 if there is none.
    pub mapping_cache_bytes: u64,
    /// Pages of the write buffer, or indirection units, with page mapping; 0 if there is none.
    pub buffer_pages: u64,
    /// What remaps do with the pages in it.
    pub buffered_remaps: BufferedRemaps,
    /// Share of the superblocks in SLC mode, if cells have several bits; 0 if there is none.
    pub slc_share: f64,
    /// The same of those that may be opened in SLC mode, instead.
    pub slc_dynamic: f64,
}

/// Dies, superblocks and pages per block; the other fields are common to most profiles.
const COMMON: SetupProfile = SetupProfile {
    shape: (2, 16, 8),
    superblock_dies: 0,
    word_line: WordLine::SINGLE,
    unprotected: false,
    segment_bytes: 128,
    segments: 16,
    cache_pages: 1,
    entry: EntrySize::Bytes16,
    dedup: true,
    count_max: 3,
    watermark: 0.95,
    wear_gap: 0,
    dealloc_slots: 6,
    spare_pages: 0,
    bad_blocks: 0,
    mode: ContentMode::Identity,
    mix: Mix::EVEN,
    steps: 260,
    policy: GcPolicy::Greedy,
    joins_host: false,
    die_by_lpn: false,
    files: (0, 0),
    pe_limit: 0,
    fingerprint: FingerprintKind::Blake3,
    deep: false,
    gc_free: 0.0,
    tight_energy: false,
    apart: false,
    damage: false,
    refresh_reads: 0,
    mapping_cache_bytes: 0,
    buffer_pages: 0,
    buffered_remaps: BufferedRemaps::Wait,
    slc_share: 0.0,
    slc_dynamic: 0.0,
};

pub(super) const PROFILES: &[SetupProfile] = &[
    COMMON,
    // Hardly any NVRAM: active collection, and remaps become copies.
    SetupProfile {
        segment_bytes: 64,
        segments: 8,
        count_max: 15,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Atomic commands.
    SetupProfile {
        entry: EntrySize::Bytes24,
        segments: 24,
        count_max: 6,
        dealloc_slots: 14,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Deallocations, flushed often.
    SetupProfile {
        dealloc_slots: 4,
        mix: Mix::TRIMS,
        spare_pages: 2,
        ..COMMON
    },
    // Blocks that fail.
    SetupProfile {
        shape: (2, 20, 8),
        bad_blocks: 3,
        count_max: 4,
        ..COMMON
    },
    // A low watermark.
    SetupProfile {
        watermark: 0.12,
        segments: 20,
        count_max: 15,
        mix: Mix::REMAPS,
        spare_pages: 1,
        ..COMMON
    },
    // Moves, with 24-byte entries.
    SetupProfile {
        entry: EntrySize::Bytes24,
        segment_bytes: 256,
        segments: 12,
        dealloc_slots: 16,
        mix: Mix::MOVES,
        ..COMMON
    },
    // Moves, with 16-byte entries, four dies.
    SetupProfile {
        shape: (4, 14, 8),
        mix: Mix::MOVES,
        count_max: 2,
        dealloc_slots: 8,
        ..COMMON
    },
    // No deduplication, much collection, wear levelling.
    SetupProfile {
        dedup: false,
        wear_gap: 3,
        mix: Mix::WRITES,
        ..COMMON
    },
    // Real bytes.
    SetupProfile {
        mode: ContentMode::Bytes,
        steps: 120,
        spare_pages: 1,
        ..COMMON
    },
    // Three dies: nothing is a power of two.
    SetupProfile {
        shape: (3, 16, 9),
        segment_bytes: 192,
        segments: 14,
        count_max: 5,
        ..COMMON
    },
    // Many counts a page, much NVRAM: long groups.
    SetupProfile {
        shape: (2, 18, 8),
        segment_bytes: 64,
        segments: 64,
        count_max: u16::MAX,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Blocks that fail under whole commands.
    SetupProfile {
        shape: (4, 15, 8),
        entry: EntrySize::Bytes24,
        segments: 24,
        bad_blocks: 2,
        dealloc_slots: 8,
        ..COMMON
    },
    // One die, long blocks.
    SetupProfile {
        shape: (1, 24, 16),
        mix: Mix::WRITES,
        dealloc_slots: 5,
        bad_blocks: 1,
        ..COMMON
    },
    // Hardly any NVRAM and few entries in a page: logs on flash are filled, rewritten and emptied.
    SetupProfile {
        shape: (2, 24, 8),
        segment_bytes: 48,
        segments: 8,
        count_max: 4,
        mix: Mix::REMAPS,
        steps: 400,
        bad_blocks: 4,
        ..COMMON
    },
    // Superblocks of a few pages: collection within nearly every command.
    SetupProfile {
        shape: (1, 40, 7),
        segments: 48,
        mix: Mix::REMAPS,
        dealloc_slots: 8,
        ..COMMON
    },
    // Superblocks whose tail needs two pages.
    SetupProfile {
        shape: (4, 8, 104),
        segments: 48,
        segment_bytes: 256,
        steps: 60,
        dealloc_slots: 8,
        ..COMMON
    },
    // Shared pages in a zone of their own, on the most worn blocks, while wear is levelled.
    SetupProfile {
        policy: GcPolicy::Coldmap,
        shape: (2, 20, 8),
        wear_gap: 1,
        segments: 32,
        count_max: 9,
        mix: Mix::WRITES,
        ..COMMON
    },
    // Three zones, whole commands, blocks that fail.
    SetupProfile {
        policy: GcPolicy::Cagc,
        shape: (2, 24, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 15,
        dealloc_slots: 14,
        bad_blocks: 1,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Old victims rather than empty ones.
    SetupProfile {
        policy: GcPolicy::CostBenefit,
        mix: Mix::WRITES,
        spare_pages: 6,
        ..COMMON
    },
    // Runs: written, repeated, copied and moved.
    SetupProfile {
        shape: (2, 18, 16),
        segments: 24,
        count_max: 6,
        dealloc_slots: 64,
        mix: Mix::RUNS,
        ..COMMON
    },
    // Runs under whole commands, hardly any NVRAM, three dies.
    SetupProfile {
        shape: (3, 16, 10),
        segment_bytes: 72,
        segments: 10,
        entry: EntrySize::Bytes24,
        count_max: 15,
        dealloc_slots: 96,
        mix: Mix::RUNS,
        ..COMMON
    },
    // Runs, and blocks that fail.
    SetupProfile {
        shape: (4, 15, 8),
        segment_bytes: 192,
        bad_blocks: 2,
        dealloc_slots: 40,
        mix: Mix::RUNS,
        ..COMMON
    },
    // A file system that records its pages, until table or lists are full.
    SetupProfile {
        files: (4, 24),
        mix: Mix::FILES,
        spare_pages: 2,
        count_max: 4,
        ..COMMON
    },
    // Blocks that wear out, until the device is read-only.
    SetupProfile {
        pe_limit: 2,
        shape: (2, 18, 8),
        mix: Mix::WRITES,
        spare_pages: 12,
        steps: 400,
        ..COMMON
    },
    // Superblocks of one block each, four open per stream.
    SetupProfile {
        shape: (4, 24, 12),
        superblock_dies: 1,
        segments: 64,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Superblocks of two dies that LPNs name, whole commands, blocks that fail, three zones.
    SetupProfile {
        shape: (4, 24, 8),
        superblock_dies: 2,
        die_by_lpn: true,
        entry: EntrySize::Bytes24,
        segments: 48,
        segment_bytes: 96,
        count_max: 9,
        dealloc_slots: 14,
        bad_blocks: 3,
        policy: GcPolicy::Cagc,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Collection writes moved pages among host writes.
    SetupProfile {
        joins_host: true,
        segments: 32,
        count_max: 6,
        mix: Mix::WRITES,
        dealloc_slots: 8,
        ..COMMON
    },
    // Except shared pages, under whole commands and with blocks that fail.
    SetupProfile {
        joins_host: true,
        policy: GcPolicy::Coldmap,
        shape: (3, 22, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 9,
        dealloc_slots: 14,
        bad_blocks: 2,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Real bytes whose fingerprints prove nothing.
    SetupProfile {
        fingerprint: FingerprintKind::Murmur3,
        mode: ContentMode::Bytes,
        steps: 100,
        spare_pages: 1,
        ..COMMON
    },
    // A deep queue: superblocks are opened and collected long before any completion is known.
    SetupProfile {
        deep: true,
        shape: (2, 18, 8),
        count_max: 6,
        mix: Mix::WRITES,
        steps: 400,
        ..COMMON
    },
    // Another, of superblocks of a few pages.
    SetupProfile {
        deep: true,
        shape: (1, 40, 7),
        segments: 48,
        mix: Mix::REMAPS,
        dealloc_slots: 32,
        steps: 400,
        ..COMMON
    },
];

/// Devices whose media fail: pages and words become unreadable.
pub(super) const FAILING: &[SetupProfile] = &[
    COMMON,
    // NVRAM full of entries, which move often.
    SetupProfile {
        segment_bytes: 64,
        segments: 16,
        count_max: 9,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Atomic commands.
    SetupProfile {
        entry: EntrySize::Bytes24,
        segments: 32,
        count_max: 6,
        dealloc_slots: 14,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Bitmaps, rewritten often.
    SetupProfile {
        dealloc_slots: 4,
        mix: Mix::TRIMS,
        spare_pages: 4,
        ..COMMON
    },
    // Blocks that fail as well.
    SetupProfile {
        shape: (3, 20, 8),
        bad_blocks: 2,
        count_max: 4,
        ..COMMON
    },
    // Much collection, no deduplication.
    SetupProfile {
        dedup: false,
        mix: Mix::WRITES,
        spare_pages: 4,
        ..COMMON
    },
    // Real bytes.
    SetupProfile {
        mode: ContentMode::Bytes,
        steps: 120,
        spare_pages: 2,
        ..COMMON
    },
    // Logs on flash are filled, rewritten and emptied.
    SetupProfile {
        shape: (2, 24, 8),
        segment_bytes: 48,
        segments: 8,
        count_max: 4,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Extents.
    SetupProfile {
        shape: (2, 18, 16),
        segments: 24,
        count_max: 6,
        dealloc_slots: 64,
        mix: Mix::RUNS,
        ..COMMON
    },
    // Tails of two pages.
    SetupProfile {
        shape: (4, 8, 104),
        segments: 48,
        segment_bytes: 256,
        steps: 60,
        dealloc_slots: 8,
        ..COMMON
    },
];
