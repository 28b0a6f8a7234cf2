//! Profiles of devices that are tight in two resources at once: what is safe in each may be unsafe in both.

use super::{COMMON, SetupProfile};
use crate::script::Mix;
use remap_ssd_ftl::{BufferedRemaps, EntrySize, GcPolicy};
use remap_ssd_media::{ContentMode, WordLine};

/// Devices that are tight in two resources at once. Some have failing media too.
pub(in crate::setup) const COMBINED: &[SetupProfile] = &[
    // Wears out under remaps, while blocks fail: the log on flash runs out of superblocks.
    SetupProfile {
        pe_limit: 2,
        shape: (2, 24, 8),
        segment_bytes: 48,
        segments: 8,
        count_max: 4,
        mix: Mix::REMAPS,
        steps: 400,
        bad_blocks: 4,
        ..COMMON
    },
    // Wears out under remaps, a few LPNs on a device of many superblocks.
    SetupProfile {
        pe_limit: 3,
        shape: (1, 28, 10),
        segment_bytes: 48,
        segments: 10,
        count_max: 9,
        mix: Mix::REMAPS,
        spare_pages: 40,
        steps: 900,
        ..COMMON
    },
    // The same with whole commands.
    SetupProfile {
        pe_limit: 4,
        shape: (2, 22, 8),
        entry: EntrySize::Bytes24,
        segments: 24,
        count_max: 6,
        dealloc_slots: 14,
        mix: Mix::REMAPS,
        spare_pages: 16,
        steps: 900,
        cache_pages: 2,
        ..COMMON
    },
    // Wears out under writes, while blocks fail.
    SetupProfile {
        pe_limit: 3,
        shape: (3, 20, 8),
        mix: Mix::WRITES,
        bad_blocks: 5,
        steps: 600,
        ..COMMON
    },
    // Collection begins early, and some LPNs share nothing.
    SetupProfile {
        gc_free: 0.4,
        shape: (2, 24, 8),
        apart: true,
        cache_pages: 3,
        count_max: 6,
        mix: Mix::REMAPS,
        spare_pages: 24,
        ..COMMON
    },
    // The same with whole commands, moves, and the least energy.
    SetupProfile {
        gc_free: 0.2,
        apart: true,
        tight_energy: true,
        entry: EntrySize::Bytes24,
        segments: 24,
        count_max: 40,
        dealloc_slots: 14,
        mix: Mix::MOVES,
        bad_blocks: 1,
        ..COMMON
    },
    // Little energy while the capacitor's pages wear out.
    SetupProfile {
        pe_limit: 3,
        tight_energy: true,
        apart: true,
        shape: (2, 24, 8),
        mix: Mix::EVEN,
        spare_pages: 12,
        steps: 500,
        ..COMMON
    },
    // Failing media under superblocks of one block each.
    SetupProfile {
        damage: true,
        shape: (4, 24, 12),
        superblock_dies: 1,
        segments: 64,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // And of two, with blocks that fail and three zones.
    SetupProfile {
        damage: true,
        shape: (4, 24, 8),
        superblock_dies: 2,
        segments: 48,
        segment_bytes: 96,
        count_max: 9,
        bad_blocks: 2,
        policy: GcPolicy::Cagc,
        mix: Mix::EVEN,
        ..COMMON
    },
    // Failing media that wear out as well.
    SetupProfile {
        damage: true,
        pe_limit: 4,
        shape: (2, 24, 8),
        segment_bytes: 64,
        segments: 16,
        count_max: 6,
        mix: Mix::REMAPS,
        spare_pages: 16,
        steps: 600,
        ..COMMON
    },
    // Word lines that are programmed at once, from a buffer that a cut empties.
    SetupProfile {
        unprotected: true,
        word_line: WordLine {
            planes: 2,
            bits: 3,
            ..WordLine::SINGLE
        },
        shape: (2, 16, 24),
        segments: 24,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Two pages of a word line in turn, and blocks that fail.
    SetupProfile {
        unprotected: true,
        word_line: WordLine {
            planes: 2,
            bits: 2,
            one_shot: false,
            ..WordLine::SINGLE
        },
        shape: (2, 20, 16),
        segments: 48,
        segment_bytes: 96,
        count_max: 9,
        bad_blocks: 1,
        mix: Mix::EVEN,
        ..COMMON
    },
    // The same in superblocks of two of four dies, with whole commands.
    SetupProfile {
        unprotected: true,
        word_line: WordLine {
            planes: 1,
            bits: 3,
            one_shot: false,
            ..WordLine::SINGLE
        },
        shape: (4, 24, 15),
        superblock_dies: 2,
        segments: 48,
        entry: EntrySize::Bytes24,
        count_max: 6,
        bad_blocks: 1,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Large pages on four dies of four planes, in superblocks of two dies.
    SetupProfile {
        word_line: WordLine {
            planes: 4,
            page_bytes: 8192,
            ..WordLine::SINGLE
        },
        shape: (4, 24, 32),
        superblock_dies: 2,
        segments: 64,
        entry: EntrySize::Bytes24,
        mix: Mix::MOVES,
        spare_pages: 24,
        ..COMMON
    },
    // Superblocks are refreshed, while hardly any NVRAM is left for the owners of their pages.
    SetupProfile {
        refresh_reads: 24,
        segment_bytes: 64,
        segments: 12,
        count_max: 9,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Under whole commands, with blocks that fail and three zones.
    SetupProfile {
        refresh_reads: 16,
        shape: (2, 24, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        policy: GcPolicy::Cagc,
        mix: Mix::EVEN,
        ..COMMON
    },
    // Where collection fills up word lines.
    SetupProfile {
        refresh_reads: 60,
        unprotected: true,
        word_line: WordLine {
            planes: 2,
            bits: 2,
            ..WordLine::SINGLE
        },
        shape: (2, 20, 16),
        segments: 32,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        refresh_reads: 24,
        damage: true,
        pe_limit: 6,
        shape: (2, 24, 8),
        segments: 24,
        count_max: 6,
        mix: Mix::EVEN,
        spare_pages: 16,
        ..COMMON
    },
    // Nearly all of the mapping table is on flash.
    SetupProfile {
        mapping_cache_bytes: 64,
        shape: (2, 24, 8),
        segments: 24,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Under whole commands, with blocks that fail, three zones and refreshes.
    SetupProfile {
        mapping_cache_bytes: 160,
        refresh_reads: 40,
        shape: (2, 26, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        policy: GcPolicy::Cagc,
        ..COMMON
    },
    // In word lines, from a buffer that a cut empties.
    SetupProfile {
        mapping_cache_bytes: 96,
        unprotected: true,
        word_line: WordLine {
            planes: 2,
            bits: 2,
            one_shot: false,
            ..WordLine::SINGLE
        },
        shape: (2, 24, 16),
        segments: 32,
        count_max: 6,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        mapping_cache_bytes: 64,
        damage: true,
        pe_limit: 6,
        shape: (2, 26, 8),
        segments: 24,
        count_max: 6,
        spare_pages: 16,
        ..COMMON
    },
    // A write buffer, and deallocations that are flushed often.
    SetupProfile {
        buffer_pages: 6,
        shape: (2, 20, 8),
        segments: 24,
        count_max: 6,
        dealloc_slots: 4,
        mix: Mix::TRIMS,
        ..COMMON
    },
    // With whole commands, blocks that fail, and most of the mapping table on flash.
    SetupProfile {
        buffer_pages: 12,
        buffered_remaps: BufferedRemaps::Name,
        mapping_cache_bytes: 96,
        shape: (2, 26, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // In word lines, with refreshes.
    SetupProfile {
        buffer_pages: 24,
        refresh_reads: 40,
        word_line: WordLine {
            planes: 2,
            bits: 3,
            one_shot: true,
            ..WordLine::SINGLE
        },
        shape: (2, 24, 24),
        segments: 32,
        count_max: 6,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        buffer_pages: 5,
        buffered_remaps: BufferedRemaps::Name,
        damage: true,
        pe_limit: 6,
        shape: (2, 26, 8),
        segments: 24,
        count_max: 6,
        spare_pages: 16,
        ..COMMON
    },
    // Indirection units of four pages, which commands change in part.
    SetupProfile {
        word_line: WordLine {
            page_bytes: 16_384,
            indirection_bytes: 16_384,
            ..WordLine::SINGLE
        },
        mode: ContentMode::Bytes,
        shape: (2, 18, 8),
        segments: 24,
        count_max: 6,
        dealloc_slots: 16,
        mix: Mix::REMAPS,
        steps: 120,
        ..COMMON
    },
    // Of eight pages, under whole commands and moves, with blocks that fail.
    SetupProfile {
        word_line: WordLine {
            page_bytes: 32_768,
            indirection_bytes: 32_768,
            ..WordLine::SINGLE
        },
        mode: ContentMode::Bytes,
        shape: (2, 18, 8),
        entry: EntrySize::Bytes24,
        segments: 24,
        count_max: 6,
        dealloc_slots: 24,
        bad_blocks: 1,
        mix: Mix::MOVES,
        steps: 100,
        ..COMMON
    },
    // Of two pages, several in a word line, from a buffer that a cut empties.
    SetupProfile {
        word_line: WordLine {
            page_bytes: 16_384,
            bits: 2,
            one_shot: false,
            indirection_bytes: 8192,
            ..WordLine::SINGLE
        },
        mode: ContentMode::Bytes,
        unprotected: true,
        shape: (2, 20, 16),
        segments: 32,
        count_max: 6,
        dealloc_slots: 24,
        mix: Mix::MOVES,
        steps: 120,
        ..COMMON
    },
    // Pages are written in SLC mode and folded, in word lines that a buffer protects.
    SetupProfile {
        slc_share: 0.15,
        word_line: TWO_BITS,
        shape: (2, 26, 16),
        segments: 24,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // Under whole commands, with blocks that fail, three zones and refreshes.
    SetupProfile {
        slc_share: 0.1,
        word_line: WordLine {
            planes: 1,
            ..TWO_BITS
        },
        refresh_reads: 40,
        shape: (2, 34, 16),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        policy: GcPolicy::Cagc,
        ..COMMON
    },
    // From a buffer that a cut empties.
    SetupProfile {
        slc_share: 0.15,
        unprotected: true,
        word_line: TWO_BITS,
        shape: (2, 26, 16),
        segments: 32,
        count_max: 6,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        slc_share: 0.15,
        word_line: TWO_BITS,
        damage: true,
        pe_limit: 6,
        shape: (2, 26, 16),
        segments: 24,
        count_max: 6,
        spare_pages: 16,
        ..COMMON
    },
    // A write buffer that a cut empties, and deallocations that are flushed often.
    SetupProfile {
        buffer_pages: 6,
        unprotected: true,
        shape: (2, 20, 8),
        segments: 24,
        count_max: 6,
        dealloc_slots: 4,
        mix: Mix::TRIMS,
        ..COMMON
    },
    // With whole commands, blocks that fail, and most of the mapping table on flash.
    SetupProfile {
        buffer_pages: 12,
        unprotected: true,
        mapping_cache_bytes: 96,
        shape: (2, 26, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // In word lines, with refreshes.
    SetupProfile {
        buffer_pages: 24,
        unprotected: true,
        refresh_reads: 40,
        word_line: WordLine {
            planes: 2,
            bits: 3,
            one_shot: true,
            ..WordLine::SINGLE
        },
        shape: (2, 24, 24),
        segments: 32,
        count_max: 6,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        buffer_pages: 5,
        unprotected: true,
        damage: true,
        pe_limit: 6,
        shape: (2, 26, 8),
        segments: 24,
        count_max: 6,
        spare_pages: 16,
        ..COMMON
    },
    // Superblocks change their mode, in word lines that a buffer protects.
    SetupProfile {
        slc_dynamic: 0.4,
        word_line: TWO_BITS,
        shape: (2, 24, 16),
        segments: 24,
        count_max: 6,
        mix: Mix::REMAPS,
        ..COMMON
    },
    // With blocks that fail, three zones and refreshes, and several groups of dies.
    SetupProfile {
        slc_dynamic: 0.3,
        word_line: WordLine {
            planes: 1,
            ..TWO_BITS
        },
        refresh_reads: 40,
        superblock_dies: 2,
        shape: (4, 22, 16),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        bad_blocks: 2,
        policy: GcPolicy::Cagc,
        ..COMMON
    },
    // From a buffer that a cut empties, with three bits.
    SetupProfile {
        slc_dynamic: 0.5,
        unprotected: true,
        word_line: WordLine {
            bits: 3,
            ..TWO_BITS
        },
        shape: (2, 24, 24),
        segments: 32,
        count_max: 6,
        mix: Mix::TRIMS,
        ..COMMON
    },
    // On failing media, until blocks wear out.
    SetupProfile {
        slc_dynamic: 1.0,
        word_line: TWO_BITS,
        damage: true,
        pe_limit: 8,
        shape: (2, 26, 16),
        segments: 24,
        count_max: 6,
        spare_pages: 16,
        ..COMMON
    },
    // Units of two pages in a write buffer, where remaps name them, with whole commands and most of the mapping table on flash.
    SetupProfile {
        buffer_pages: 6,
        buffered_remaps: BufferedRemaps::Name,
        mapping_cache_bytes: 96,
        word_line: WordLine {
            page_bytes: 8192,
            indirection_bytes: 8192,
            ..WordLine::SINGLE
        },
        mode: ContentMode::Bytes,
        shape: (2, 24, 8),
        entry: EntrySize::Bytes24,
        segments: 40,
        count_max: 6,
        dealloc_slots: 14,
        mix: Mix::REMAPS,
        steps: 120,
        ..COMMON
    },
    // Of four pages in a buffer that a cut empties.
    SetupProfile {
        buffer_pages: 5,
        unprotected: true,
        word_line: WordLine {
            page_bytes: 16_384,
            indirection_bytes: 16_384,
            ..WordLine::SINGLE
        },
        mode: ContentMode::Bytes,
        shape: (2, 18, 8),
        segments: 24,
        count_max: 20,
        dealloc_slots: 16,
        mix: Mix::MOVES,
        steps: 120,
        ..COMMON
    },
];

/// Pages in turn of cells with two bits, on two planes.
const TWO_BITS: WordLine = WordLine {
    planes: 2,
    bits: 2,
    one_shot: false,
    ..WordLine::SINGLE
};
