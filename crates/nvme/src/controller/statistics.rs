//! Statistics of the translation layer, by name: the vendor log page, and its decoding by a client.
//!
//! ```text
//! 0-7    "RMPSTATS"
//! 8-11   version, 1
//! 12-15  number of counters
//! 16-    8 bytes each, in the order of `NAMES`; later versions only append
//! ```

use remap_ssd_device::Device;

const MAGIC: [u8; 8] = *b"RMPSTATS";
const VERSION: u32 = 1;

/// Names in the order of the page, the same as in `compare --json` where that has them.
pub const NAMES: [&str; 32] = [
    "host_pages",
    "flash_pages",
    "data_pages",
    "gc_pages",
    "metadata_pages",
    "remaps",
    "dedup_hits",
    "no_effect",
    "demoted_counter_full",
    "demoted_nvram_full",
    "demoted_watermark",
    "copies",
    "host_reads",
    "host_deallocations",
    "gc_runs",
    "wear_runs",
    "metadata_gc_runs",
    "erases",
    "blocks_retired",
    "program_failures",
    "atomic_commands",
    "free_superblocks",
    "nvram_capacity_bytes",
    "nvram_used_bytes",
    "nvram_valid_bytes",
    "nvram_bytes_written",
    "dedup_missed",
    "refresh_runs",
    "refresh_pages",
    "demoted_degree_full",
    "demoted_unhinted",
    "demoted_units",
];

/// Values in the order of `NAMES`; counters are since power-on.
pub fn read(device: &Device) -> [u64; NAMES.len()] {
    let ftl = device.ftl();
    let (stats, usage, media) = (device.stats(), ftl.usage(), ftl.media().counts);

    [
        stats.host_writes,
        stats.programs(),
        stats.host_programs,
        stats.gc_programs,
        stats.meta_programs,
        stats.remaps,
        stats.dedup_hits,
        stats.no_effect,
        stats.demoted_counter_full,
        stats.demoted_nvram_full,
        stats.demoted_watermark,
        stats.copies,
        stats.host_reads,
        stats.host_deallocations,
        stats.gc_runs,
        stats.wear_runs,
        stats.metadata_gc_runs,
        media.erases,
        stats.blocks_retired,
        stats.program_failures,
        stats.atomic_commands,
        u64::from(ftl.free_superblocks()),
        usage.capacity_bytes,
        usage.used_bytes,
        usage.valid_bytes,
        media.nv_bytes_written,
        stats.dedup_missed,
        stats.refresh_runs,
        stats.refresh_programs,
        stats.demoted_degree_full,
        stats.demoted_unhinted,
        device.indirection_counts().demoted(),
    ]
}

/// The vendor's log page with all counters of the device.
pub(crate) fn page(device: &Device) -> Vec<u8> {
    let mut page = MAGIC.to_vec();
    page.extend(VERSION.to_le_bytes());
    // The number of counters is part of the page: clients of older or newer devices read the
    // counters that both know.
    page.extend((NAMES.len() as u32).to_le_bytes());
    read(device)
        .iter()
        .for_each(|value| page.extend(value.to_le_bytes()));
    page
}

/// Bytes of the log page.
pub(crate) const PAGE_BYTES: usize = 16 + NAMES.len() * 8;

/// Decodes a log page; `None` if it is not one.
pub(crate) fn parse(page: &[u8]) -> Option<Vec<(&'static str, u64)>> {
    let (head, values) = page.split_at_checked(16)?;
    // The version is ignored: later ones only append.
    if head[..8] != MAGIC {
        return None;
    }
    let count = u32::from_le_bytes(head[12..].try_into().ok()?) as usize;
    let values = values
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes));
    Some(NAMES.iter().copied().zip(values.take(count)).collect())
}
