//! The measurements of one run: plain numbers, ready for JSON, tables and plots.
//!
//! The field names of the first block are a contract with programs that read `compare --json`:
//! fields may be added, never renamed.

pub use crate::flash_time::{LatencyCauses, ReadErrors, Utilisation};
use remap_ssd_ftl::SurvivalClass;
use serde::{Deserialize, Deserializer, Serialize};

/// Latency percentiles in microseconds. A value not measured, or from too few requests, is NaN:
/// null in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of requests measured.
    #[serde(default)]
    pub count: u64,
    /// Mean latency, in microseconds of virtual time.
    #[serde(deserialize_with = "number_or_null")]
    pub mean: f64,
    /// Median latency, in microseconds of virtual time.
    #[serde(deserialize_with = "number_or_null")]
    pub p50: f64,
    /// 90th percentile, of at least 10 requests.
    #[serde(deserialize_with = "number_or_null")]
    pub p90: f64,
    /// 99th percentile, of at least 100.
    #[serde(deserialize_with = "number_or_null")]
    pub p99: f64,
    /// 99.9th percentile, of at least 1,000.
    #[serde(deserialize_with = "number_or_null")]
    pub p999: f64,
    /// 99.99th percentile, of at least 10,000.
    #[serde(deserialize_with = "number_or_null")]
    pub p9999: f64,
    /// Largest latency, in microseconds of virtual time.
    #[serde(deserialize_with = "number_or_null")]
    pub max: f64,
}

impl Default for Percentiles {
    fn default() -> Self {
        Self {
            count: 0,
            mean: f64::NAN,
            p50: f64::NAN,
            p90: f64::NAN,
            p99: f64::NAN,
            p999: f64::NAN,
            p9999: f64::NAN,
            max: f64::NAN,
        }
    }
}

/// Half widths of 95 % confidence intervals of percentiles, in microseconds; NaN (null in JSON) if
/// there were too few requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PercentilesCi95 {
    /// Of the mean.
    #[serde(deserialize_with = "number_or_null")]
    pub mean: f64,
    /// Of the median.
    #[serde(deserialize_with = "number_or_null")]
    pub p50: f64,
    /// Of the 90th percentile.
    #[serde(deserialize_with = "number_or_null")]
    pub p90: f64,
    /// Of the 99th percentile.
    #[serde(deserialize_with = "number_or_null")]
    pub p99: f64,
    /// Of the 99.9th percentile.
    #[serde(deserialize_with = "number_or_null")]
    pub p999: f64,
}

impl Default for PercentilesCi95 {
    fn default() -> Self {
        Self {
            mean: f64::NAN,
            p50: f64::NAN,
            p90: f64::NAN,
            p99: f64::NAN,
            p999: f64::NAN,
        }
    }
}

/// Half widths of the 95 % confidence intervals of a run's figures, by batch means; each has the
/// name and the unit of its figure. NaN (null in JSON) if the run was too short, or a transient.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ci95 {
    /// Of the host bandwidth, MiB/s.
    #[serde(deserialize_with = "number_or_null")]
    pub bandwidth_mib_s: f64,
    /// Of the page operations per second.
    #[serde(deserialize_with = "number_or_null")]
    pub iops: f64,
    /// Of the requests completed per second.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub requests_per_s: f64,
    /// Of the write amplification.
    #[serde(deserialize_with = "number_or_null")]
    pub write_amplification: f64,
    /// Of the flash pages programmed for the same pages of the host.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub flash_pages: f64,
    /// Of the pages moved by garbage collection, for the same pages of the host.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub gc_pages: f64,
    /// Of the blocks erased, for the same pages of the host.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub erases: f64,
    /// Of the latencies of writes.
    pub latency_us: PercentilesCi95,
    /// Of the latencies of reads.
    pub read_latency_us: PercentilesCi95,
    /// Of the latencies of remap commands.
    pub remap_latency_us: PercentilesCi95,
}

impl Default for Ci95 {
    fn default() -> Self {
        Self {
            bandwidth_mib_s: f64::NAN,
            iops: f64::NAN,
            requests_per_s: f64::NAN,
            write_amplification: f64::NAN,
            flash_pages: f64::NAN,
            gc_pages: f64::NAN,
            erases: f64::NAN,
            latency_us: PercentilesCi95::default(),
            read_latency_us: PercentilesCi95::default(),
            remap_latency_us: PercentilesCi95::default(),
        }
    }
}

/// Whether the measured part was in a steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steadiness {
    /// Pages executed before the measurement, until write amplification was steady.
    pub warm_up_pages: u64,
    /// True if neither write amplification nor bandwidth changed over the measured part; none if it
    /// was too short to tell.
    pub is_steady: Option<bool>,
    /// True if the wanted precision was reached; none if no precision was wanted.
    #[serde(default)]
    pub is_precise: Option<bool>,
}

/// JSON has no NaN.
fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Infinite lifetimes of parts that never wear out are also null in JSON.
fn number_or_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Default for fields missing in older files. Serde takes a function.
fn none() -> f64 {
    f64::NAN
}

/// Years over which drive writes per day are counted, as vendors do.
pub(crate) const WARRANTY_YEARS: f64 = 5.0;

/// Why remaps became physical copies, in pages.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Demotions {
    /// The reference counter was full.
    pub counter_full: u64,
    /// No room for remapping metadata.
    pub nvram_full: u64,
    /// Valid entries above the high watermark.
    pub watermark: u64,
    /// The page had no slot left for one more owner.
    #[serde(default)]
    pub degree_full: u64,
    /// The page did not name the target as its home.
    #[serde(default)]
    pub unhinted: u64,
    /// Source and target were at different places in their indirection units.
    #[serde(default)]
    pub unaligned: u64,
    /// The command had only a part of the indirection unit.
    #[serde(default)]
    pub partial_unit: u64,
}

/// The cost of an indirection unit that is larger than a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndirectionCost {
    /// Size of the unit, in bytes.
    pub unit_bytes: u64,
    /// Units that the host wrote whole, without a read.
    pub whole_writes: u64,
    /// Units of which the host wrote a part: read, changed, and programmed at once or from the write buffer.
    pub read_modify_writes: u64,
    /// Units of which the host wrote a part while they were in the write buffer: neither read from flash nor programmed for it.
    #[serde(default)]
    pub merged_in_buffer: u64,
    /// Units that remap commands copied in part, or from several units: read and programmed.
    pub copied_units: u64,
    /// Pages that the host deallocated and that kept their contents, since it did not deallocate their whole unit.
    pub kept_pages: u64,
}

/// Use and wear of the SLC cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlcCost {
    /// Superblocks in SLC mode; with `slc_dynamic` at the end, and those that may still be opened in it then.
    pub superblocks: u64,
    /// Pages of data that superblocks in SLC mode have room for.
    pub room_pages: u64,
    /// Superblocks that are free at the end and may be opened in SLC mode.
    pub free_superblocks: u64,
    /// Pages of commands programmed in SLC mode.
    pub host_pages: u64,
    /// Pages of commands programmed past the cache.
    pub past_pages: u64,
    /// Pages folded, part of `gc_pages`: moved from superblocks in SLC mode.
    pub folded_pages: u64,
    /// Pages that were dead before their superblock was folded.
    pub died_pages: u64,
    /// Superblocks in SLC mode erased.
    pub erases: u64,
    /// Mean erase count of a block in SLC mode since it was new. With `slc_dynamic` a block has both modes: its mean erases
    /// in SLC mode since power-on.
    pub erase_mean: f64,
    /// The same of the other blocks; with `slc_dynamic` the other erases of a block.
    pub other_erase_mean: f64,
    /// Cycles that a block in SLC mode endures; with `slc_dynamic` a block of both modes.
    pub endurance_cycles: u64,
}

/// One point of the time series; all rates are over `[previous point, at_s)`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Virtual seconds since the measurement began.
    pub at_s: f64,
    /// Host bandwidth, remapped pages counted as served, MiB/s.
    pub bandwidth_mib_s: f64,
    /// Of that, pages written or remapped.
    #[serde(default)]
    pub written_mib_s: f64,
    /// Host page operations per second.
    pub iops: f64,
    /// Superblocks reclaimed in this interval.
    #[serde(default)]
    pub gc_runs: u64,
    /// Pages moved by GC per second.
    pub gc_pages_s: f64,
    /// Write amplification in this interval.
    pub write_amplification: f64,
    /// Free superblocks at the end of the interval.
    pub free_superblocks: u64,
    /// Demoted remaps in this interval, pages.
    pub demotions: u64,
    /// Fraction of the remapping metadata's space in use, 0..=1.
    pub nvram_used: f64,
    /// In an open loop, requests that had arrived and not completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
    /// Capacity for data in pages: shrinks as blocks fail and wear out.
    pub usable_pages: u64,
}

/// Wear of a device, counted since power-on, aging included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WearOut {
    /// Bytes the host wrote or remapped.
    pub host_bytes: u64,
    /// Of those, before the first block wore out; `None` if none did.
    pub first_retired_bytes: Option<u64>,
    /// True if the device is read-only.
    pub read_only: bool,
    /// Blocks that accept no more data: failed, or worn out.
    pub blocks_retired: u64,
    /// Erase blocks erased since power-on.
    pub block_erases: u64,
    /// Capacity for data, in pages.
    pub usable_pages: u64,
}

/// The mapping table, and under hybrid mapping the cost of keeping blocks in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingCost {
    /// Granularity of the table: `page` or `hybrid`.
    pub kind: String,
    /// Size of the table in DRAM, bytes.
    pub table_bytes: u64,
    /// Entries of the extension at the end.
    pub extension_entries: u64,
    /// Capacity of the extension, in entries.
    pub extension_room: u64,
    /// Blocks that the host wrote in order as a whole.
    pub merges_switch: u64,
    /// Blocks written in order in part, with the rest copied.
    pub merges_partial: u64,
    /// Blocks of which every page was copied.
    pub merges_full: u64,
    /// Pages programmed by merges, of those moved by garbage collection.
    pub merge_pages: u64,
    /// Of those, padding pages without data.
    pub merge_pads: u64,
    /// Shared flash pages split when their block was put in order.
    pub unshared: u64,
    /// Capacity of the mapping cache in bytes; 0 if the whole table is in DRAM.
    #[serde(default)]
    pub cache_bytes: u64,
    /// Most bytes that the cache has had: commands and collection may exceed its capacity for a moment.
    #[serde(default)]
    pub cache_peak_bytes: u64,
    /// Lookups and changes of entries that were cached.
    #[serde(default)]
    pub cache_hits: u64,
    /// Those of entries that were not.
    #[serde(default)]
    pub cache_misses: u64,
    /// Reads of translation pages, also those of pages that are programmed again.
    #[serde(default)]
    pub table_reads: u64,
    /// Translation pages programmed, part of `metadata_pages`; collection's moves of them are part of `gc_pages`.
    #[serde(default)]
    pub table_pages: u64,
}

/// What the write buffer took, and what it kept from flash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBufferUse {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Pages read by the host that were in the buffer.
    pub hits: u64,
    /// Pages in the buffer that the host wrote again before they reached flash.
    pub overwritten: u64,
    /// Pages in the buffer that the host deallocated before they reached flash.
    pub deallocated: u64,
    /// Pages that remaps of pages in the buffer put there.
    #[serde(default)]
    pub remapped: u64,
    /// Pages that left the buffer: programs, and remaps to pages with the same content.
    pub written_back: u64,
    /// Pages in the buffer at the end.
    pub pages_left: u64,
}

/// Requests by outcome. Their sum equals the requests submitted, or the run fails.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accounting {
    /// Requests handed to the device.
    pub submitted: u64,
    /// Read requests that were completed.
    pub reads: u64,
    /// Writes of whole pages that were completed.
    pub writes: u64,
    /// Writes of parts of pages that were completed.
    pub read_modify_writes: u64,
    /// Deallocation requests that were completed.
    pub trims: u64,
    /// Remap commands that were completed.
    pub remaps: u64,
    /// Flush requests that were completed.
    #[serde(default)]
    pub flushes: u64,
    /// Requests refused by the device, with the reason's name.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Malformed trace records skipped at the user's request.
    pub skipped: u64,
}

/// Measurements of requests that arrive at their own times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Maximum requests outstanding at once; `None`: unlimited.
    pub bound: Option<u32>,
    /// Mean arrival rate, requests per second.
    pub offered_per_s: f64,
    /// From arrival to completion, of all requests served.
    pub response_us: Percentiles,
    /// Response times of reads, in microseconds.
    pub read_response_us: Percentiles,
    /// Of writes, read-modify-writes and remaps.
    pub write_response_us: Percentiles,
    /// Requests arrived and not completed, mean over time.
    pub backlog_mean: f64,
    /// Largest number of requests waiting.
    pub backlog_max: u64,
    /// Backlog when the last request had arrived. A device that cannot keep up ends with close to
    /// the maximum.
    pub backlog_end: u64,
}

/// Energy of the flash operations of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Joules: page reads, page programs, block erases, and transfers over channels.
    pub joules: f64,
    /// Joules for each GiB that the host read, wrote or remapped.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub joules_per_gib: f64,
}

/// All measurements of one run of one scheme, after aging.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunSummary {
    /// Scheme name: `none`, `remap-ssd`, `flog`, `nlog`, `opt` and others.
    pub scheme: String,
    /// Policy of garbage collection: `greedy`, `cost-benefit`, `coldmap`, `cagc`, `d-choices`.
    pub gc_policy: String,
    /// Granularity of the mapping table, and the cost of keeping blocks in order.
    #[serde(default)]
    pub mapping: MappingCost,
    /// Use of the write buffer, if the device has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_buffer: Option<WriteBufferUse>,
    /// Host bandwidth, remapped pages counted as served, MiB/s.
    pub bandwidth_mib_s: f64,
    /// Host page operations per second.
    pub iops: f64,
    /// Requests completed per second, of any size.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub requests_per_s: f64,
    /// `flash_pages / host_pages`; null if the host wrote nothing.
    #[serde(deserialize_with = "number_or_null")]
    pub write_amplification: f64,
    /// Pages the host wrote or remapped, dedup hits included.
    pub host_pages: u64,
    /// All programs: host, GC, metadata, log, in pages of 4 KiB.
    pub flash_pages: u64,
    /// Flash pages programmed by garbage collection.
    pub gc_pages: u64,
    /// Of those, pages that the policy keeps apart from pages with one reference.
    pub gc_zoned_pages: u64,
    /// Pages remapped rather than copied.
    pub remaps: u64,
    /// Remaps that became physical copies, by cause.
    pub demotions: Demotions,
    /// Blocks erased in the measured part.
    pub erases: u64,
    /// Latency of write requests, in microseconds.
    pub latency_us: Percentiles,
    /// Virtual seconds of the measured part.
    pub seconds_simulated: f64,

    /// Latency of read requests, in microseconds.
    pub read_latency_us: Percentiles,
    /// Latency of whole remap commands.
    pub remap_latency_us: Percentiles,
    /// Programs that carried host data.
    pub host_programs: u64,
    /// Programs of metadata: heads, tails, deallocation maps, remap log on flash.
    pub metadata_pages: u64,
    /// Of those, pages of a remap log kept in the flash array.
    #[serde(default)]
    pub log_pages: u64,
    /// Write amplification without metadata: host and GC pages per page the host wrote or remapped.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub write_amplification_data: f64,
    /// References that a scheme without reverse mappings lost when their pages moved.
    pub lost_references: u64,
    /// Writes that found their content on flash already (dedup hits).
    pub dedup_hits: u64,
    /// Duplicates missed: the content was on flash, but its page had no room in the fingerprint
    /// store.
    #[serde(default)]
    pub dedup_missed: u64,
    /// Cumulative distribution of write latency: (microseconds, fraction of requests).
    pub latency_cdf: Vec<(f64, f64)>,
    /// Readings at equal intervals of virtual time.
    pub samples: Vec<Sample>,
    /// Bytes stored to NVRAM in the measured part.
    pub nvram_bytes_written: u64,
    /// Years until the NVRAM's most written word wears out at this rate, if writes spread evenly.
    #[serde(deserialize_with = "number_or_infinite")]
    pub nvram_life_years: f64,
    /// Fraction of the remapping metadata's space in use at the end, 0..=1.
    pub nvram_used: f64,
    /// Fraction of it that is valid.
    pub nvram_valid: f64,
    /// Space for remapping metadata, bytes.
    #[serde(default)]
    pub nvram_room_bytes: u64,
    /// Of that, space that can hold no entry: segment heads, and remainders smaller than an entry.
    #[serde(default)]
    pub nvram_heads_bytes: u64,
    /// Of the space for entries, the part reserved for garbage collection, at the end.
    #[serde(default)]
    pub nvram_reserve_bytes: u64,
    /// Largest segment group seen, bytes.
    pub largest_group_bytes: u64,
    /// The logical-to-physical table, where it is kept in NVRAM, bytes.
    pub l2p_bytes: u64,
    /// The physical-to-logical table, where it is kept in NVRAM, bytes.
    pub p2l_bytes: u64,
    /// Virtual time spent finding the owners of victims' pages, seconds.
    pub p2l_lookup_s: f64,
    /// Superblocks reclaimed by garbage collection.
    pub gc_runs: u64,
    /// Of those, refreshed because of their reads or their age.
    #[serde(default)]
    pub refresh_runs: u64,
    /// Pages moved by these refreshes, part of `gc_pages`.
    #[serde(default)]
    pub refresh_pages: u64,
    /// Block erase counts: mean, maximum, and maximum minus minimum.
    pub erase_mean: f64,
    /// Erases of the most worn block.
    pub erase_max: u64,
    /// Erases of the most worn block minus those of the least worn.
    pub erase_spread: u64,
    /// Years until the mean block reaches its endurance at this rate.
    #[serde(deserialize_with = "number_or_infinite")]
    pub lifetime_years: f64,
    /// Program/erase cycles that a block endures: the basis of the next two figures.
    #[serde(default)]
    pub endurance_cycles: u64,
    /// Terabytes (10^12 bytes) that the host can write at this rate until the mean block reaches
    /// its endurance; null if no block was erased, or nothing written.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub life_tb_written: f64,
    /// The same, as writes of the whole logical size per day for `WARRANTY_YEARS`.
    #[serde(default = "none", deserialize_with = "number_or_null")]
    pub drive_writes_per_day: f64,
    /// Wear of the device.
    pub wear_out: WearOut,
    /// Page lifetimes by maximum number of references; empty if not watched.
    pub survival: Vec<SurvivalClass>,
    /// Outcomes of all requests of the source.
    pub requests: Accounting,
    /// Confidence intervals of the figures.
    #[serde(default)]
    pub ci95: Ci95,
    /// Whether the figures are those of a steady state.
    #[serde(default)]
    pub steady: Steadiness,
    /// Measurements of an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<OpenLoop>,
    /// How busy the device was, with `timing.engine = "nand"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Utilisation>,
    /// What writes waited for, with this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_causes_us: Option<LatencyCauses>,
    /// What reads waited for, with this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency_causes_us: Option<LatencyCauses>,
    /// What bit errors of flash needed, with this engine and `errors.rate` above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_errors: Option<ReadErrors>,
    /// Reads and copies for the indirection unit, if it is larger than a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indirection: Option<IndirectionCost>,
    /// Use of the SLC cache, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slc: Option<SlcCost>,
    /// Energy of the flash, if the device file says what operations take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Real seconds the simulation took, aging apart.
    pub wall_s: f64,
}
