//! Every key of a device file: its unit, its range and its description, in one place.
//!
//! This table is the source of the reference page, files with comments, the JSON schema
//! (`reference`), single values (`--set firmware.gc_free=0.1`) and the errors that list all
//! problems at once (`problems`).
//!
//! A scheme's own keys are declared in its folder (`SchemeFacts::keys`) and added from there.
//!
//! Invariant: each field of a `DeviceConfig` has a row here, and each row except those of the file
//! itself (`preset`, `scale`, `firmware.gc_mode`, the rate of the channel) is such a field; a test compares them. Absent:
//! constraints on several keys (`DeviceConfig::check`, the firmware's `Config::check`).

use crate::config::{Errors, TimingEngine};
use crate::factor::parse_scale;
use crate::nand::CellTimes;
use crate::preset::{self, PRESETS};
pub use crate::suggest::did_you_mean;
pub(crate) use crate::suggest::suggest;
use crate::units::{SIZES, TIMES, cell_times, with_unit};
use remap_ssd_ftl::{BufferedRemaps, GcPolicy, Granularity, SchemeKind, SchemeValues};
use serde_json::Value;
use std::sync::LazyLock;

/// A key of device files.
#[derive(Clone, Copy, Debug)]
pub struct DeviceKey {
    /// Its name with the name of its table: `firmware.gc_free`.
    pub path: &'static str,
    /// Its unit; empty if there is none.
    pub unit: &'static str,
    /// Kind and range of its values.
    pub kind: KeyKind,
    /// The command-line option in the help text that sets it, if there is one besides `--set`.
    pub flag: &'static str,
    /// Description in one or two sentences.
    pub about: &'static str,
}

/// Type and range of a key's values.
#[derive(Clone, Copy, Debug)]
pub enum KeyKind {
    /// An integer, with lower and upper bound.
    Integer(u64, u64),
    /// A number in a range.
    Number(NumberRange),
    /// A switch: `true` or `false`.
    Flag,
    /// One of the names returned by the function.
    Choice(fn() -> Vec<&'static str>),
    /// Any text, only displayed.
    Text,
    /// A factor: a number, or a fraction as text.
    Factor,
    /// A time above 0, or one for each page type of a word line.
    CellTimes,
    /// A list of shares, each above the one before; it may be empty.
    Rates,
}

/// A range of numbers, with or without its bounds.
#[derive(Clone, Copy, Debug)]
pub struct NumberRange {
    /// Lower bound; included unless `above`.
    pub least: f64,
    /// Upper bound; included unless `below`.
    pub most: f64,
    /// True if the lower bound is excluded.
    pub above: bool,
    /// True if the upper bound is excluded.
    pub below: bool,
}

const fn key(
    path: &'static str,
    unit: &'static str,
    kind: KeyKind,
    about: &'static str,
) -> DeviceKey {
    DeviceKey {
        path,
        unit,
        kind,
        flag: "",
        about,
    }
}

impl DeviceKey {
    const fn flag(self, flag: &'static str) -> Self {
        Self { flag, ..self }
    }

    /// The name of its table; empty for top-level keys.
    pub fn table(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }

    /// Its name within its table.
    pub fn name(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or(self.path, |(_, name)| name)
    }
}

/// Larger latencies are typing errors, and sums of them could overflow.
pub(crate) const LATENCY_MAX_NS: u64 = 1_000_000_000_000;
const TIME: KeyKind = KeyKind::Integer(0, LATENCY_MAX_NS);
const TIME_ABOVE_0: KeyKind = KeyKind::Integer(1, LATENCY_MAX_NS);
/// A joule for one operation is a typing error.
const ENERGY: KeyKind = KeyKind::Integer(0, 1_000_000_000);
const ANY_U32: KeyKind = KeyKind::Integer(0, u32::MAX as u64);
const MANY: KeyKind = KeyKind::Number(NumberRange {
    least: 0.0,
    most: 1e6,
    above: false,
    below: false,
});
const SHARE: KeyKind = KeyKind::Number(NumberRange {
    least: 0.0,
    most: 1.0,
    above: false,
    below: false,
});

const fn below(most: f64) -> KeyKind {
    KeyKind::Number(NumberRange {
        least: 0.0,
        most,
        above: false,
        below: true,
    })
}

/// The keys of every device, in file order.
static COMMON: &[DeviceKey] = &[
    key("preset", "", KeyKind::Choice(preset_names), "The ready-made device whose values are meant where the file says nothing. Without it, every key \
        outside `[firmware]`, `[controller]`, `[timing]`, `[energy]` and `[errors]` must be there, but for `host_ns` and `flash.flush_ns`.").flag("--preset"),
    key("scale", "", KeyKind::Factor, "Size of the device as a share of the one described, above 0 and at most 1, such as \"1/16\". Blocks become \
        smaller, down to one word line; their number, the latencies and all shares stay.").flag("--scale"),
    key("name", "", KeyKind::Text, "What to call the device in results."),
    key("addressable", "", KeyKind::Number(NumberRange { least: 0.0, most: 1.0, above: true, below: false }), "Share of the logical pages that workloads \
        address."),
    key("queue_depth", "requests", KeyKind::Integer(1, 65_535), "Requests a host keeps in flight.").flag("--queue-depth"),
    key("host_ns", "ns", TIME, "Host's time before each request: from a completion to the request that takes its place. Requests that arrive at given \
        times do not wait for it."),
    key("content", "", KeyKind::Choice(|| vec!["none", "identity", "bytes"]), "How data pages are stored: not at all (for devices of terabytes), as a \
        64-bit identity, or as 4 KiB of bytes."),

    key("geometry.channels", "", KeyKind::Integer(1, 64), "Channels; dies are dealt to them round robin."),
    key("geometry.dies", "", KeyKind::Integer(1, 256), "Dies of the whole device; more than 64 need `superblock_dies`."),
    key("geometry.superblocks", "", KeyKind::Integer(1, (1 << 21) - 1), "Blocks of a die: as many superblocks, if each spans all dies."),
    key("geometry.pages_per_block", "pages", KeyKind::Integer(1, 1 << 21), "Pages of a block, 4 KiB each. With the dies of a superblock: 4 to 2,097,152."),
    key("geometry.superblock_dies", "dies", KeyKind::Integer(0, 64), "Dies that a superblock spans; 0 is all. It must divide `dies`."),

    key("geometry.planes", "", KeyKind::Integer(1, 8), "Planes of a die, which work together. `pages_per_block` counts the pages of all of them."),
    key("geometry.page_bytes", "bytes", KeyKind::Integer(4096, 65_536), "A flash page in one plane: 4096, or a power of two up to 65,536, of which pages of 4 KiB are parts."),
    key("geometry.cell_bits", "bits", KeyKind::Integer(1, 4), "Flash pages that share a word line's cells in one plane: 3 for TLC. At 1, page types have no cells in common."),
    key("geometry.one_shot", "", KeyKind::Flag, "All flash pages of a word line are programmed at once; otherwise one after the other."),
    key("geometry.indirection_bytes", "bytes", KeyKind::Integer(4096, 65_536), "The indirection unit, of which the mapping table has one entry: 4096, or a power of two up to 65,536 that divides \
        `page_bytes`. Smaller writes are read-modify-writes. All sizes in pages stay in pages of 4 KiB."),

    key("flash.read_ns", "ns", KeyKind::CellTimes, "Reading a page inside its die. With `timing.engine = \"nand\"` there may be one time for each page type \
        of a word line, the fastest first: 2 for MLC, 3 for TLC, 4 for QLC; `[40_000, 60_000, 80_000]` in a file, `40us/60us/80us` with `--set`."),
    key("flash.program_ns", "ns", KeyKind::CellTimes, "Programming a page inside its die; a list of times as for `read_ns`."),
    key("flash.erase_ns", "ns", TIME_ABOVE_0, "Erasing a block."),
    key("flash.transfer_ns", "ns", TIME, "Moving a page over its channel; 0 if channels are not modelled. 4 KiB at 800 MT/s take 5,120."),
    key("flash.channel_mts", "MT/s", KeyKind::Integer(1, 100_000), "Transfer rate of a channel, in place of `transfer_ns`: the time of 4 KiB, and of their share of `spare_bytes`, rounded up."),
    key("flash.channel_bytes", "bytes", KeyKind::Integer(1, 8), "Bytes of a transfer, for `channel_mts`."),
    key("flash.spare_bytes", "bytes", KeyKind::Integer(0, 65_536), "Spare bytes of a flash page that cross the channel with its data, for `channel_mts`."),
    key("flash.flush_ns", "ns", TIME, "A flush, once everything before it has ended. Traces with `--flushes`, recordings and host software have flushes."),
    key("flash.endurance", "cycles", KeyKind::Integer(1, u64::MAX), "Program/erase cycles that a block endures before it is retired."),

    key("flash.slc_read_ns", "ns", TIME_ABOVE_0, "Reading a flash page in SLC mode inside its die (`firmware.slc_share`)."),
    key("flash.slc_program_ns", "ns", TIME_ABOVE_0, "Programming a flash page on all planes in SLC mode."),
    key("flash.slc_endurance", "cycles", KeyKind::Integer(1, u64::MAX), "Program/erase cycles that a block in SLC mode endures."),

    key("nvram.read_ns", "ns", TIME, "Reading 64 bytes of NVRAM; other amounts in proportion."),
    key("nvram.write_ns", "ns", TIME, "Writing 64 bytes of NVRAM; other amounts in proportion."),
    key("nvram.endurance", "writes", KeyKind::Integer(1, u64::MAX), "Writes that a word of NVRAM endures."),

    key("hash.latency_ns", "ns", TIME, "From a page to its fingerprint."),
    key("hash.interval_ns", "ns", TIME, "From one page's start in the hash unit to the next one's."),

    key("link.mib_s", "MiB/s", KeyKind::Integer(0, 1 << 40), "Bandwidth of each direction of the host link; 0 is unlimited."),
    key("link.command_ns", "ns", TIME, "Fixed cost of a command; it does not occupy the link."),
    key("link.write_saves_ns", "ns", TIME, "How much less a command with data from the host costs: drives answer a write from their buffer sooner than they find a page to read."),

    key("controller.firmware_ns", "ns", TIME, "Firmware's time for a command; each core executes one after the other."),
    key("controller.page_ns", "ns", TIME, "Firmware's additional time for each page that a command transfers or remaps."),
    key("controller.cores", "cores", KeyKind::Integer(1, 64), "Cores that execute commands."),

    key("background.lookup_stalls_dies", "", KeyKind::Flag, "All dies stand still while the owners of a victim's pages are looked up."),
    key("background.idle_after_ns", "ns", TIME, "After so much idle time the device collects garbage ahead of need."),

    key("timing.engine", "", KeyKind::Choice(|| TimingEngine::NAMES.to_vec()), "The model of time. `published`: dies work first come, first served, as in the \
        published evaluations. `nand`: dies choose, reads may suspend programs, pages of a word line differ; the other keys of this table are its own."),
    key("timing.data_first", "", KeyKind::Flag, "A free channel first moves data that was read, and then takes new commands; otherwise commands are first."),
    key("timing.program_patience_ns", "ns", TIME, "How much later than a read of the host a program of the host may begin that was ready at the same time. \
        A die takes the operation whose ready time plus patience is earliest."),
    key("timing.collection_patience_ns", "ns", TIME, "The same for operations of garbage collection."),
    key("timing.metadata_patience_ns", "ns", TIME, "The same for the firmware's own metadata on flash."),
    key("timing.read_command_ns", "ns", TIME, "Command and address cycles of a read on the channel."),
    key("timing.program_command_ns", "ns", TIME, "Those of a program; its data follow."),
    key("timing.erase_command_ns", "ns", TIME, "Those of an erase."),
    key("timing.read_plane_ns", "ns", TIME, "Further cycles of a read for each plane after the first."),
    key("timing.program_plane_ns", "ns", TIME, "Those of a program."),
    key("timing.erase_plane_ns", "ns", TIME, "Those of an erase."),
    key("timing.independent_planes", "", KeyKind::Flag, "Planes read different flash pages at once, if the reads wait when the die begins; otherwise only the same one. Programs and erases take all planes."),
    key("timing.part_saves_ns", "ns", TIME, "How much less the array needs to read a single page of 4 KiB of a larger flash page."),
    key("timing.buffer_units", "", KeyKind::Integer(1, 64), "Program units that the controller's buffer holds for each die (or for dies of a chip that take turns), if one operation programs several pages: a page that finds no room waits for the \
        program of an earlier unit. Units that are not full need no room."),
    key("timing.two_step", "", KeyKind::Flag, "A word line is programmed in two steps, and `flash.program_ns` has the times of the coarse one and the fine one. The fine step follows the coarse step of the block's next \
        word line; until then the pages stay in the controller's buffer, so allow for them in `buffer_units`."),
    key("timing.whole_reads", "", KeyKind::Flag, "The pages that a request reads cross the link together, once all of them are in the controller, as in MQSim; otherwise each page crosses it as it comes."),
    key("timing.dies_per_chip", "dies", KeyKind::Integer(1, 64), "Dies of a chip, of which only one works at a time: 1 if all dies are independent."),
    key("timing.cache_read", "", KeyKind::Flag, "Cache read: a die begins its next read while data that it has read wait for the channel, or cross it; otherwise it holds the data until then."),
    key("timing.cache_program", "", KeyKind::Flag, "Cache program: a die takes the data of its next program while it programs."),
    key("timing.cache_busy_ns", "ns", TIME, "Busy time of a die before the array begins in such a case, for the move between page register and cache register (tRCBSY, tPCBSY)."),
    key("timing.copybacks", "", KeyKind::Integer(0, 255), "Copyback: copies of a page by garbage collection that may follow each other inside its die, if source and destination are on the same die; they do not cross the channel, and nothing \
        corrects their bit errors. After these a page goes through the controller. 0: there are none. Needs flash pages of 4 KiB in one plane, and `errors.rate` = 0."),
    key("timing.suspend_ns", "ns", TIME, "From the command that suspends a program or an erase until the die can read."),
    key("timing.resume_ns", "ns", TIME, "Resuming a suspended operation, beyond the time that was left of it."),
    key("timing.suspend_least_ns", "ns", TIME, "A program or an erase with less than this left is not suspended."),
    key("timing.resume_to_suspend_ns", "ns", TIME, "A program or an erase that was resumed works at least this long before it is suspended again."),
    key("timing.suspensions", "", ANY_U32, "How often reads of the host may suspend one program, or one erase if `erase_suspensions` is absent; 0: never. An operation whose patience is over is not suspended."),
    key("timing.erase_suspend_ns", "ns", TIME, "The same as `suspend_ns` for an erase. Without this key it has the value of `suspend_ns`."),
    key("timing.erase_suspensions", "", ANY_U32, "The same as `suspensions` for an erase. Without this key it has the value of `suspensions`."),

    key("energy.read_nj", "nJ", ENERGY, "Reading a page inside its die; 0 if it is unknown. Runs have the energy of their flash operations if one of these is above 0."),
    key("energy.program_nj", "nJ", ENERGY, "Programming a page."),
    key("energy.erase_nj", "nJ", ENERGY, "Erasing a block."),
    key("energy.transfer_nj", "nJ", ENERGY, "Moving a page over its channel, once for each read and each program; twice for a program with `timing.two_step`."),

    key("errors.rate", "", SHARE, "Raw bit error rate of a page of a new block that has just been programmed; 0 if flash has no errors. Wear, age and reads add to it: (rate x (1 + wear x \
        (cycles / endurance) ^ wear_power) x (1 + retention x days) + disturb x reads) x the page's place in the spread."),
    key("errors.wear", "", MANY, "Increase of the rate at the end of `flash.endurance`, as a multiple."),
    key("errors.wear_power", "", KeyKind::Integer(1, 8), "The increase grows with this power of the erase count."),
    key("errors.erase_cycles", "cycles", ANY_U32, "Erases of each block before the run, for its error rate: its life is not shorter for them."),
    key("errors.retention", "", MANY, "Increase for each day since the block's first page was programmed, as a share of the rate."),
    key("errors.age_days", "days", MANY, "Days since then, of data that was programmed before the measured run."),
    key("errors.writes_per_day", "pages", ANY_U32, "Pages that are written or remapped in a day, by which data ages during the run, as for `firmware.refresh_writes`; 0: it does not age. `--scale` makes it smaller with the device."),
    key("errors.disturb", "", SHARE, "Increase for each read of the block since its erase, as a rate."),
    key("errors.spread", "", KeyKind::Number(NumberRange { least: 0.0, most: 4.0, above: false, below: false }), "How pages differ: the standard deviation of the logarithm of their rates."),
    key("errors.seed", "", ANY_U32, "Seed of the pages' places in this distribution."),
    key("errors.codeword_bits", "bits", KeyKind::Integer(1, 1 << 20), "Bits of a codeword: 8192 for 1 KiB."),
    key("errors.correctable_bits", "bits", KeyKind::Integer(0, 1 << 20), "Bits of a codeword that can be corrected; a page with a higher rate is read again."),
    key("errors.decode_ns", "ns", TIME, "Decoding a page after its transfer, in the controller."),
    key("errors.retry_rates", "", KeyKind::Rates, "The largest rate that each read retry corrects: `[0.01, 0.012, 0.015]` in a file, `0.01/0.012/0.015` with `--set`."),
    key("errors.retry_ns", "ns", TIME, "A retry: the die reads the page again."),
    key("errors.soft_rate", "", SHARE, "The largest rate that soft decoding corrects after the last retry; 0 if there is none."),
    key("errors.soft_ns", "ns", TIME, "Time for soft decoding, during which the die reads the page several times."),

    key("firmware.lpns", "pages", KeyKind::Integer(1, ((1 << 31) - 1) * 16), "Logical pages that the host sees, 4 KiB each: at most 2,147,483,647 \
        indirection units, whole ones."),
    key("firmware.scheme", "", KeyKind::Choice(|| SchemeKind::ALL.map(SchemeKind::name).to_vec()), "How a remap survives a power cut.").flag("--scheme"),
    key("firmware.log_bytes", "bytes", KeyKind::Integer(0, 1 << 44), "Remapping metadata: NVRAM of most schemes, the log's cap on flash of `flog`, DRAM \
        under a capacitor of `shadow-oob`, both mapping tables of `pebble`.").flag("--log-size"),
    key("firmware.segment_bytes", "bytes", ANY_U32, "Size of an NVRAM segment (FAST'21 section 4.3)."),
    key("firmware.entry", "bytes", KeyKind::Choice(|| vec!["16", "24"]), "Size of a remapping entry; with 24 bytes whole commands can be atomic."),
    key("firmware.mapping", "", KeyKind::Choice(|| Granularity::ALL.map(Granularity::name).to_vec()), "What an entry of the mapping table stands for: a \
        page, or a block of pages in order with an extension for the others.").flag("--mapping"),
    key("firmware.block_pages", "pages", KeyKind::Integer(2, 4096), "Hybrid mapping: logical pages of a block."),
    key("firmware.extension", "", SHARE, "Hybrid mapping: entries of the table's extension, as a share of the logical pages."),
    key("firmware.dedup", "", KeyKind::Flag, "The deduplication engine is on.").flag("--dedup"),
    key("firmware.count_max", "", KeyKind::Integer(2, 65_535), "Largest reference count of a page: 15 for counters of 4 bits, 255 for 8 bits. Counts above 15 are in a table of the pages that have them."),
    key("firmware.watermark", "", SHARE, "Remaps are demoted to copies while more than this share of the metadata's room is valid."),
    key("firmware.gc_policy", "", KeyKind::Choice(|| GcPolicy::ALL.map(GcPolicy::name).to_vec()), "Which superblock garbage collection collects, and where \
        it moves the pages.").flag("--gc"),
    key("firmware.gc_choices", "", KeyKind::Integer(1, 1000), "Superblocks that the policy `d-choices` draws at random, of which it collects the one with the most garbage."),
    key("firmware.gc_mode", "", KeyKind::Choice(|| GC_MODES.iter().map(|mode| mode.name).collect()), "How garbage collection works; it stands for \
        `gc_at_once`, `gc_joins_host` and `gc_garbage`, which are read after it."),
    key("firmware.gc_free", "", below(0.9), "Garbage collection starts when at most this share of the superblocks is free."),
    key("firmware.gc_garbage", "", below(1.0), "Ahead of need, only a superblock with at least this share of garbage is collected."),
    key("firmware.gc_at_once", "", KeyKind::Flag, "A victim is emptied at once, instead of page by page while the host uses what it gains."),
    key("firmware.die_by_lpn", "", KeyKind::Flag, "With `geometry.superblock_dies`: an LPN names the dies to which its pages go, also when they are written again or moved. \
        Otherwise all dies take turns."),
    key("firmware.gc_joins_host", "", KeyKind::Flag, "Pages that garbage collection moves go to the host's superblock, instead of one of their own."),
    key("firmware.power_loss_protection", "", KeyKind::Flag, "Pages in the controller's buffer survive a power cut. If not, a command is acknowledged when its \
        word lines are programmed, filled up with pads. It matters only where pages share word lines, and for `write_buffer_bytes`."),
    key("firmware.wear_gap", "erases", ANY_U32, "A superblock whose erase count is so far below the mean is collected to level wear; 0 is off."),
    key("firmware.refresh_reads", "reads", ANY_U32, "A superblock is collected when one of its blocks has been read this often since its erase, or since power-on; 0 is off."),
    key("firmware.refresh_writes", "pages", KeyKind::Integer(0, 1 << 42), "A superblock is collected when this number of pages has been written or remapped since it was \
        opened, at least the pages of the flash; 0 is off."),
    key("firmware.mapping_cache_bytes", "bytes", KeyKind::Integer(0, 1 << 40), "DRAM for entries of the mapping table, 8 bytes each. The table is then on flash, and entries that are not cached cost reads \
        and programs of it; 0: all of it is in DRAM. `--scale` makes it smaller with the device."),
    key("firmware.write_buffer_bytes", "bytes", KeyKind::Integer(0, 1 << 40), "DRAM for pages that the host has written: a write is acknowledged when it is there. The oldest \
        pages go to flash when it is full; 0: writes go to flash at once. A capacitor saves it when power fails; without `power_loss_protection` a write is durable after a flush. \
        It holds indirection units, two or more, and merges writes of their parts. `--scale` makes it smaller with the device."),
    key("firmware.untorn_bytes", "bytes", KeyKind::Integer(0, 1 << 20), "The largest write that a power cut leaves whole or absent, wherever it begins, at most 1 MiB in steps of 4 KiB; 0: only \
        pages are. Each write of several pages stores two words of NVRAM."),
    key("firmware.buffered_remaps", "", KeyKind::Choice(|| BufferedRemaps::ALL.map(BufferedRemaps::name).to_vec()), "A remap of a page that is in the write buffer: `wait` \
        writes the page back and waits for it; `name` puts a second page with its content into the buffer, and flash shares them when they leave. Moves, atomic remaps and a \
        buffer that a power cut empties always wait."),
    key("firmware.slc_share", "", KeyKind::Number(NumberRange { least: 0.0, most: 0.5, above: false, below: false }), "SLC cache: share of the superblocks whose cells store one bit each, at least one in each group of dies; 0 is none. \
        The host writes there first. Idle time, and pressure if enough pages are dead, fold what is still valid. Needs `geometry.cell_bits` above 1."),
    key("firmware.slc_dynamic", "", SHARE, "Dynamic SLC cache, instead of `slc_share`: any free superblock may be opened in SLC mode, at most this share of them at a time, \
        while more are free than collection wants (`gc_free`). So the cache shrinks as the device fills, and its superblocks are no loss of room. An erase in either mode counts against `flash.endurance`. 0 is none."),
    key("firmware.slc_fold_free", "", SHARE, "While the host writes, superblocks in SLC mode are folded when at most this share of them is free, or with `slc_dynamic` may still be opened. Idle time folds at any share."),
    key("firmware.slc_fold_garbage", "", SHARE, "Then only superblocks in SLC mode with at least this share of dead pages are folded: 0 folds any of them, 1 only those that are dead altogether. \
        Pages are written past the cache while none is free."),
    key("firmware.dealloc_slots", "", KeyKind::Integer(4, u32::MAX as u64), "Slots in each half of the NVRAM log of deallocations."),
    key("firmware.fs_files", "files", ANY_U32, "Files that the file map of `fs_write` can list; 0 if there is no map."),
    key("firmware.fs_blocks", "pages", ANY_U32, "Pages that all its lists have room for together; 0 if there is no map."),
    key("firmware.fingerprint", "", KeyKind::Choice(|| vec!["blake3", "murmur3"]), "Digest by which equal pages are found: of 256 bits, or of 128 bits with \
        each hit verified by a read."),
];

/// All keys, in file order: those of single schemes come last, in their own tables.
pub static KEYS: LazyLock<Vec<DeviceKey>> = LazyLock::new(|| {
    let of_schemes = SchemeKind::ALL.into_iter().flat_map(|scheme| {
        let keys = scheme.facts().keys.iter();
        keys.map(move |own| DeviceKey {
            // Built once and kept for the program's lifetime.
            path: format!("firmware.{scheme}.{}", own.name).leak(),
            unit: own.unit,
            kind: KeyKind::Integer(own.least, own.most),
            flag: "",
            about: own.about,
        })
    });
    COMMON.iter().copied().chain(of_schemes).collect()
});

/// The current path of a scheme's own key that older files have in `[firmware]`.
fn renamed(path: &str) -> Option<String> {
    let name = path.strip_prefix("firmware.")?;
    let owner = SchemeValues::owner_of(name)?;
    Some(format!("firmware.{owner}.{name}"))
}

fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// A mode of garbage collection: a value of `firmware.gc_mode`.
#[derive(Clone, Copy, Debug)]
pub struct GcMode {
    /// Name in files and options.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// Value of `firmware.gc_at_once`.
    pub at_once: bool,
    /// Value of `firmware.gc_joins_host`.
    pub joins_host: bool,
    /// Value of `firmware.gc_garbage`.
    pub garbage: f64,
}

/// Modes of garbage collection, each a shorthand for three keys.
pub static GC_MODES: &[GcMode] = &[
    GcMode {
        name: "background",
        about: "Victims are emptied page by page beside the host, into superblocks of their own.",
        at_once: false,
        joins_host: false,
        garbage: 0.0,
    },
    GcMode {
        name: "published",
        about: "As the simulator of FAST'21's authors: a victim is emptied at once, into the host's superblock.",
        at_once: true,
        joins_host: true,
        garbage: 0.0,
    },
    GcMode {
        name: "femu",
        about: "As FEMU: like `published`, and only superblocks of which an eighth is garbage are collected ahead of need.",
        at_once: true,
        joins_host: true,
        garbage: 0.125,
    },
    GcMode {
        name: "femu-apart",
        about: "Like `femu`, into superblocks of their own.",
        at_once: true,
        joins_host: false,
        garbage: 0.125,
    },
];

/// The key with this path, or with this path in older files.
pub fn find(path: &str) -> Option<&'static DeviceKey> {
    let renamed = renamed(path);
    let path = renamed.as_deref().unwrap_or(path);
    KEYS.iter().find(|key| key.path == path)
}

/// A problem with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProblem {
    /// The key's path, or the text in its place.
    pub path: String,
    /// The problem, as a sentence.
    pub text: String,
    /// For an unknown key, the one that was probably meant.
    pub meant: Option<&'static str>,
}

/// All problems with single keys: names, types, ranges. Sorted by key name.
pub(crate) fn problems(given: &Value) -> Vec<KeyProblem> {
    let mut found = Vec::new();
    walk("", given, &mut found);
    found
}

fn walk(table: &str, given: &Value, found: &mut Vec<KeyProblem>) {
    for (name, value) in given.as_object().into_iter().flatten() {
        let path = match table {
            "" => name.clone(),
            table => format!("{table}.{name}"),
        };
        let is_table = KEYS.iter().any(|key| key.table() == path);

        // `firmware.nlog` is a nested table: neither a key nor unknown.
        match (find(&path), value) {
            (Some(key), value) => found.extend(key.problem(value)),
            (None, Value::Object(_)) if is_table => walk(&path, value, found),
            (None, _) if is_table => found.push(KeyProblem {
                text: format!("`{path}` must be a table: [{path}]"),
                path,
                meant: None,
            }),
            (None, _) => found.push(unknown(path)),
        }
    }
}

/// An unknown key; it may belong to another table.
fn unknown(path: String) -> KeyProblem {
    let name = path
        .rsplit_once('.')
        .map_or(path.as_str(), |(_, name)| name);

    // The same name in another table is the likelier mistake; only then similar spellings.
    let same_name = KEYS.iter().find(|key| key.name() == name);
    let meant = same_name
        .map(|key| key.path)
        .or_else(|| suggest(&path, KEYS.iter().map(|key| key.path)))
        .or_else(|| {
            let like = suggest(name, KEYS.iter().map(|key| key.name()))?;
            KEYS.iter()
                .find(|key| key.name() == like)
                .map(|key| key.path)
        });

    let hint = meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"));

    KeyProblem {
        text: format!("unknown field `{path}`{hint}"),
        path,
        meant,
    }
}

impl DeviceKey {
    /// Its permitted values, to follow "must be".
    pub(crate) fn range(&self) -> String {
        match self.kind {
            KeyKind::Integer(1, LATENCY_MAX_NS) => {
                format!("above 0 and at most {LATENCY_MAX_NS} ns (1000 seconds)")
            }
            KeyKind::Integer(0, LATENCY_MAX_NS) => {
                format!("at most {LATENCY_MAX_NS} ns (1000 seconds)")
            }
            KeyKind::Integer(least, most) if most >= u64::from(u32::MAX) => {
                let whole = match self.unit {
                    "" => "a whole number".into(),
                    unit => format!("a whole number of {unit}"),
                };
                match least {
                    0 => whole,
                    1 => format!("{whole} above 0"),
                    least => format!("{whole}, at least {least}"),
                }
            }
            KeyKind::Integer(least, most) => self.numbers(least, most),
            KeyKind::Number(NumberRange {
                least,
                most,
                above,
                below,
            }) => {
                let least = if above {
                    format!("above {least} and ")
                } else {
                    format!("{least} to ")
                };

                let most = match (above, below) {
                    (_, true) => format!("below {most}"),
                    (true, false) => format!("at most {most}"),
                    (false, false) => most.to_string(),
                };

                least + &most
            }
            KeyKind::Flag => "true or false".into(),
            KeyKind::Choice(names) => {
                let names = names();
                let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            KeyKind::Text => "text".into(),
            KeyKind::Factor => "above 0 and at most 1, such as \"1/16\" or 0.25".into(),
            KeyKind::Rates => format!(
                "a list of up to {} rates above 0 and at most 1, each above the one before",
                Errors::RETRIES_MAX
            ),
            KeyKind::CellTimes => format!(
                "above 0 and at most {LATENCY_MAX_NS} ns (1000 seconds), or a list of up to {} such times, none less than the one before",
                CellTimes::BITS_MAX
            ),
        }
    }

    /// A range of whole numbers, with the unit.
    fn numbers(&self, least: u64, most: u64) -> String {
        match self.unit {
            "" => format!("{least} to {most}"),
            unit => format!("{least} to {most} {unit}"),
        }
    }

    /// Its permitted values, for a given one that is not. The range of a whole number that is out of it is given even
    /// if it is that of the type, which `range` leaves out.
    fn range_for(&self, value: &Value) -> String {
        let is_whole = |value: &f64| value.fract() == 0.0;
        match (self.kind, value.as_f64().filter(is_whole)) {
            (KeyKind::Integer(_, LATENCY_MAX_NS), _) => self.range(),
            (KeyKind::Integer(least, most), Some(value))
                if value < least as f64 || value > most as f64 =>
            {
                self.numbers(least, most)
            }
            _ => self.range(),
        }
    }

    fn fits(&self, value: &Value) -> bool {
        match self.kind {
            KeyKind::Integer(least, most) => value
                .as_u64()
                .is_some_and(|value| (least..=most).contains(&value)),
            KeyKind::Number(range) => value.as_f64().is_some_and(|value| {
                let low = value > range.least || (!range.above && value == range.least);
                let high = value < range.most || (!range.below && value == range.most);
                low && high
            }),
            KeyKind::Flag => value.is_boolean(),
            KeyKind::Choice(names) => value.as_str().is_some_and(|name| names().contains(&name)),
            KeyKind::Text => value.is_string(),
            KeyKind::Factor => match value {
                Value::String(text) => parse_scale(text).is_ok(),
                value => value
                    .as_f64()
                    .is_some_and(|value| value > 0.0 && value <= 1.0),
            },
            KeyKind::Rates => value.as_array().is_some_and(|rates| {
                let rates: Option<Vec<f64>> = rates.iter().map(Value::as_f64).collect();
                rates.is_some_and(|rates| {
                    rates.len() <= Errors::RETRIES_MAX
                        && rates.iter().all(|rate| *rate > 0.0 && *rate <= 1.0)
                        && rates.is_sorted_by(|one, next| one < next)
                })
            }),
            KeyKind::CellTimes => {
                let list = std::slice::from_ref(value);
                let times = value.as_array().map_or(list, Vec::as_slice).iter();
                let times: Option<Vec<u64>> = times.map(Value::as_u64).collect();
                times.is_some_and(|times| {
                    times.iter().all(|time| (1..=LATENCY_MAX_NS).contains(time))
                        && CellTimes::new(&times).is_some()
                })
            }
        }
    }

    /// The problem with a value of this key, if any.
    pub fn problem(&self, value: &Value) -> Option<KeyProblem> {
        if self.fits(value) {
            return None;
        }

        // The most helpful sentence: the presets, the name that was meant, or the range.
        let text = match (self.path, self.kind, value) {
            ("preset", _, Value::String(name)) => match preset::preset(name) {
                Err(error) => error.to_string(),
                Ok(_) => return None,
            },
            (path, KeyKind::Choice(names), Value::String(name)) => format!(
                "{path} = \"{name}\" must be {}{}",
                self.range(),
                did_you_mean(name, names())
            ),
            ("scale", _, value) => format!(
                "scale {} must be {}",
                value.as_str().map_or(value.to_string(), str::to_owned),
                self.range()
            ),
            (path, _, value) => format!("{path} = {value} must be {}", self.range_for(value)),
        };

        Some(KeyProblem {
            path: self.path.into(),
            text,
            meant: None,
        })
    }

    /// The units that its values may have on a command line.
    pub(crate) fn units(&self) -> Vec<&'static str> {
        let units: &[(&str, u64)] = match (self.unit, &self.kind) {
            ("bytes", KeyKind::Integer(..)) => &SIZES,
            ("ns", KeyKind::Integer(..) | KeyKind::CellTimes) => &TIMES,
            _ => &[],
        };
        units.iter().map(|(name, _)| *name).collect()
    }

    /// A list of its values as typed on a command line, if it has lists.
    pub(crate) fn list_example(&self) -> Option<&'static str> {
        match self.kind {
            KeyKind::CellTimes => Some("400us/900us/1.6ms"),
            KeyKind::Rates => Some("0.01/0.012/0.015"),
            _ => None,
        }
    }

    /// Parses a value as typed after `=` on a command line.
    pub fn value(&self, text: &str) -> Value {
        // As in TOML, `_` may separate digits.
        let digits = text.replace('_', "");

        let number = || {
            if let Ok(whole) = digits.parse::<u64>() {
                return Some(Value::from(whole));
            }

            // Fractions may be typed as percentages.
            let share = text
                .strip_suffix('%')
                .and_then(|text| text.trim().parse::<f64>().ok());
            let value = share.map(|percent| percent / 100.0);
            value.or_else(|| digits.parse().ok()).map(Value::from)
        };

        let quoted = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));

        let known = match self.kind {
            KeyKind::Integer(..) if self.unit == "bytes" => {
                with_unit(text, &SIZES).map(Value::from).or_else(number)
            }
            KeyKind::Integer(..) if self.unit == "ns" => {
                with_unit(text, &TIMES).map(Value::from).or_else(number)
            }
            KeyKind::Integer(..) | KeyKind::Number(_) => number(),
            KeyKind::Flag => match text {
                "true" | "on" => Some(Value::Bool(true)),
                "false" | "off" => Some(Value::Bool(false)),
                _ => None,
            },
            KeyKind::CellTimes => cell_times(text),
            KeyKind::Rates => {
                let rates = text.split('/').map(|text| text.trim().parse().ok());
                rates.collect::<Option<Vec<f64>>>().map(Value::from)
            }
            KeyKind::Choice(_) | KeyKind::Text | KeyKind::Factor => None,
        };

        // A value of the wrong type stays text: `problem` then shows it with the range.
        known.unwrap_or_else(|| Value::String(quoted.unwrap_or(text).to_owned()))
    }
}

/// A value nested in the tables of its path.
pub(crate) fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, name| {
        Value::Object(serde_json::Map::from_iter([(name.to_owned(), inner)]))
    })
}

/// Moves keys of single schemes from `[firmware]` to the schemes' tables, unless these have them.
pub(crate) fn move_renamed(given: &mut Value) {
    let Some(firmware) = given.get_mut("firmware").and_then(Value::as_object_mut) else {
        return;
    };

    let names: Vec<String> = firmware.keys().cloned().collect();
    for name in names {
        let Some(owner) = SchemeValues::owner_of(&name) else {
            continue;
        };
        let value = firmware.remove(&name).expect("it is there");
        let table = firmware
            .entry(owner.name())
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(table) = table.as_object_mut() {
            table.entry(name).or_insert(value);
        }
    }
}

/// Keys of the channel's rate, for which `flash.transfer_ns` stands.
pub(crate) const OF_CHANNEL: [&str; 3] = ["channel_mts", "channel_bytes", "spare_bytes"];

/// Checks that settings of an existing device which name the channel's rate name the spare bytes too: of a rate in its file, the device has
/// only `flash.transfer_ns`.
pub(crate) fn names_spare(given: &Value) -> Result<(), KeyProblem> {
    let [rate, _, spare] =
        OF_CHANNEL.map(|name| given.pointer(&format!("/flash/{name}")).is_some());
    if rate && !spare {
        return Err(KeyProblem {
            path: "flash.channel_mts".into(),
            text: "flash.channel_mts needs flash.spare_bytes beside it (0 for data alone): of these the device keeps only flash.transfer_ns".into(),
            meant: None,
        });
    }
    Ok(())
}

/// Replaces the rate of the channel by the time of 4 KiB, on flash pages of `page_bytes` unless they are given. Invalid values
/// are reported by `problems`.
pub(crate) fn expand_channel(given: &mut Value, page_bytes: u64) -> Result<(), KeyProblem> {
    let own_page = given
        .pointer("/geometry/page_bytes")
        .and_then(Value::as_u64);
    let Some(flash) = given.get_mut("flash").and_then(Value::as_object_mut) else {
        return Ok(());
    };

    // They are in no device: only the time is.
    let has_time = flash.contains_key("transfer_ns");
    let taken = OF_CHANNEL.map(|name| flash.remove(name));
    let wrong = |name: &str, text: &str| {
        Err(KeyProblem {
            path: format!("flash.{name}"),
            text: format!("flash.{name} {text}"),
            meant: None,
        })
    };
    let [rate, width, spare] = taken
        .each_ref()
        .map(|value| value.as_ref().and_then(Value::as_u64));
    let Some(rate) = rate.filter(|rate| *rate > 0) else {
        let alone = OF_CHANNEL.into_iter().zip(&taken).skip(1);
        return match alone.into_iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) if taken[0].is_none() => {
                wrong(name, "needs flash.channel_mts beside it")
            }
            _ => Ok(()),
        };
    };
    if has_time {
        return wrong(
            "channel_mts",
            "and flash.transfer_ns give the same time: leave one of them out",
        );
    }

    // Of each 4 KiB, the data and a share of the page's spare bytes; 1,000 MT/s take a nanosecond each.
    let page = u128::from(own_page.unwrap_or(page_bytes).max(1));
    let bytes_of_pages = 4096 * (page + u128::from(spare.unwrap_or(0)));
    let per_us = u128::from(rate) * u128::from(width.unwrap_or(1).max(1));
    let transfer_ns = (bytes_of_pages * 1000).div_ceil(page * per_us);
    flash.insert("transfer_ns".into(), (transfer_ns as u64).into());
    Ok(())
}

/// Replaces `gc_mode` by its keys, unless these are given.
pub(crate) fn expand_mode(given: &mut Value) {
    let Some(firmware) = given.get_mut("firmware").and_then(Value::as_object_mut) else {
        return;
    };

    let Some(name) = firmware.remove("gc_mode") else {
        return;
    };

    let Some(mode) = GC_MODES
        .iter()
        .find(|mode| Some(mode.name) == name.as_str())
    else {
        return; // `problems` has reported it.
    };

    let parts = [
        ("gc_at_once", Value::Bool(mode.at_once)),
        ("gc_joins_host", Value::Bool(mode.joins_host)),
        ("gc_garbage", Value::from(mode.garbage)),
    ];

    for (part, value) in parts {
        firmware.entry(part).or_insert(value);
    }
}
