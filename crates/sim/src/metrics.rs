//! Measurements during a run: latencies, counters, a time series.
//!
//! Counters are sampled as they are and subtracted at the end. The series keeps readings; with
//! twice as many as wanted it drops every second one and doubles its interval, so a run of unknown
//! length ends with between one and two times the wanted number of points.
//!
//! A reading has the counters since power-on, so any stretch of the run can be compared with any
//! other: intervals and the verdict on the steady state come from them.
//!
//! Invariant: all rates are over virtual time. Absent: the times of events (the run's), latencies
//! (`latencies`), and text (the report's).

use crate::energy::{crossings, energy};
use crate::flash_time::FlashTimes;
use crate::interval::{self, Interval};
use crate::latencies::Latencies;
use crate::precision::{Figure, Precision};
use crate::steady;
use crate::summary::{
    Ci95, Demotions, IndirectionCost, MappingCost, RunSummary, Sample, SlcCost, Steadiness,
    WARRANTY_YEARS, WearOut, WriteBufferUse,
};
use remap_ssd_device::{Device, IndirectionCounts};
use remap_ssd_ftl::{Glimpse, Stats, SurvivalClass};
use remap_ssd_media::geometry::PAGE_BYTES;

const NS_PER_S: f64 = 1e9;
const S_PER_YEAR: f64 = 365.25 * 86_400.0;
const MIB: f64 = (1 << 20) as f64;

/// Pages submitted, counted by the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageOps {
    /// Page operations of every kind.
    pub operations: u64,
    /// Those that were not refused.
    pub served: u64,
    /// Of the served ones, reads, writes and remaps: 4 KiB each.
    pub transfers: u64,
    /// Requests served.
    pub requests: u64,
}

/// One reading of the counters for the series.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub at_ns: u64,
    pub page_ops: PageOps,
    pub glimpse: Glimpse,
    /// Requests arrived and not completed, in an open loop.
    pub backlog: Option<u64>,
}

/// Readings at equal intervals.
pub(crate) struct Series {
    readings: Vec<Reading>,
    interval_ns: u64,
    /// When the next reading is due.
    pub due_ns: u64,
    wanted: usize,
}

impl Series {
    /// A reading every `interval_ns` from `now` on, until there are twice `wanted`.
    fn start(now: u64, interval_ns: u64, wanted: usize) -> Self {
        let interval_ns = interval_ns.max(1);
        Self {
            readings: Vec::new(),
            interval_ns,
            due_ns: now + interval_ns,
            wanted: wanted.max(1),
        }
    }

    /// Takes the due reading.
    #[cold]
    pub(crate) fn read(&mut self, reading: Reading) {
        self.readings.push(reading);

        // Twice as many as wanted: drops every second one, and doubles the interval.
        if self.readings.len() >= 2 * self.wanted {
            // The readings kept are those at even multiples of the interval.
            let mut index = 0;
            self.readings.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.interval_ns *= 2;
        }

        // Due on the grid of the new interval, and not twice within half of it.
        self.due_ns = (self.due_ns + self.interval_ns).max(reading.at_ns + self.interval_ns / 2);
    }

    /// Adds the reading at the end, unless one fell there anyway; returns true if it was added.
    fn close(&mut self, end: Reading) -> bool {
        let last = self.readings.last();
        let is_new = last.is_none_or(|reading| reading.at_ns < end.at_ns);
        self.readings.extend(is_new.then_some(end));
        is_new
    }

    /// Undoes a `close` that added a reading.
    fn open_again(&mut self, is_new: bool) {
        if is_new {
            self.readings.pop();
        }
    }
}

/// Every counter, at the beginning and at the end.
#[derive(Clone, Copy)]
struct CounterTotals {
    stats: Stats,
    nvram_bytes: u64,
    flash_reads: u64,
    indirection: IndirectionCounts,
    lookup_ns: u64,
    reading: Reading,
}

impl CounterTotals {
    fn of(device: &Device, at_ns: u64, page_ops: PageOps) -> Self {
        let ftl = device.ftl();
        let counts = ftl.media().counts;
        Self {
            stats: device.stats(),
            nvram_bytes: counts.nv_bytes_written,
            flash_reads: counts.reads * u64::from(device.config().geometry.host_pages()),
            indirection: device.indirection_counts(),
            lookup_ns: device.lookup_total_ns(),
            reading: Reading {
                at_ns,
                page_ops,
                glimpse: device.glimpse(),
                backlog: None,
            },
        }
    }
}

/// All meters of one run.
pub(crate) struct Meters {
    /// Latencies of read requests, from entry to end.
    pub reads: Latencies,
    /// Latencies of write requests, read-modify-writes included.
    pub writes: Latencies,
    /// Latencies of remap requests, from entry to end.
    pub remaps: Latencies,
    /// Measurements of the engine `nand`.
    pub flash: FlashTimes,
    first: CounterTotals,
    pub series: Series,
    /// Readings at the ends of bursts, before the pauses, if requests arrive in bursts: intervals and the verdict on the steady state come
    /// from these. Other parts of a run differ in how many pauses they have.
    pub bursts: Option<Series>,
    /// Requests enter at their own times, so bandwidth is that of the load.
    pub is_open: bool,
    /// Pages of 4 KiB in a page of the firmware.
    unit_pages: u64,
}

impl Meters {
    /// Starts at `now`, with a reading every `interval_ns` until there are twice `wanted`.
    pub(crate) fn start(device: &Device, now: u64, interval_ns: u64, wanted: usize) -> Self {
        Self {
            reads: Latencies::default(),
            writes: Latencies::default(),
            remaps: Latencies::default(),
            flash: FlashTimes::default(),
            first: CounterTotals::of(device, now, PageOps::default()),
            series: Series::start(now, interval_ns, wanted),
            bursts: None,
            is_open: false,
            unit_pages: device.config().geometry.host_pages().into(),
        }
    }

    /// Compares bursts that arrive every `every_ns`: the first one ends when the second one arrives.
    pub(crate) fn compare_bursts(&mut self, every_ns: u64) {
        let first_ns = self.first.reading.at_ns + every_ns;
        self.bursts = Some(Series::start(first_ns, every_ns, self.series.wanted));
    }

    /// Everything except the accounting of requests and the wall clock; the last completion was at
    /// `end_ns`.
    pub(crate) fn finish(mut self, device: &Device, end_ns: u64, page_ops: PageOps) -> RunSummary {
        let last = CounterTotals::of(device, end_ns, page_ops);
        self.close(last.reading);

        let seconds = (end_ns - self.first.reading.at_ns) as f64 / NS_PER_S;
        let stats = last.stats - self.first.stats;

        let is_steady = self.is_steady(device);
        let firmware = &device.config().firmware;
        let [read_causes, write_causes] =
            self.flash.causes(self.reads.count(), self.writes.count());
        let utilisation = self.flash.utilisation();
        let copybacks = utilisation.as_ref().and_then(|used| used.copybacks);

        let mut summary = RunSummary {
            scheme: firmware.scheme.to_string(),
            gc_policy: firmware.gc_policy.to_string(),
            mapping: mapping_cost(device, &stats),
            write_buffer: write_buffer(device, &stats),
            bandwidth_mib_s: rate(page_ops.transfers as f64 * PAGE_BYTES as f64 / MIB, seconds),
            iops: rate(page_ops.served as f64, seconds),
            latency_us: self.writes.percentiles(),
            seconds_simulated: seconds,
            read_latency_us: self.reads.percentiles(),
            remap_latency_us: self.remaps.percentiles(),
            latency_cdf: self.writes.cdf(),
            samples: self.samples(),
            p2l_lookup_s: (last.lookup_ns - self.first.lookup_ns) as f64 / NS_PER_S,
            survival: survival(device),
            utilisation: utilisation.clone(),
            read_errors: self.flash.read_errors(),
            latency_causes_us: write_causes,
            read_latency_causes_us: read_causes,
            // The spread of a transient's batches is its trend, not chance.
            ci95: match is_steady {
                Some(false) => Ci95::default(),
                _ => self.ci95(stats.host_writes as f64),
            },
            steady: Steadiness {
                is_steady,
                ..Steadiness::default()
            },
            ..RunSummary::default()
        };

        // Operations before the run are not counted.
        let (begin, end) = (&self.first.reading.glimpse, &last.reading.glimpse);
        summary.flash_pages = end.programs - begin.programs;
        summary.erases = end.erases - begin.erases;
        summary.nvram_bytes_written = last.nvram_bytes - self.first.nvram_bytes;

        let flash_reads = last.flash_reads - self.first.flash_reads;
        let config = device.config();
        let units = last.indirection - self.first.indirection;
        summary.energy = energy(
            &config.energy,
            [flash_reads, summary.flash_pages, summary.erases],
            crossings(
                flash_reads,
                summary.flash_pages,
                copybacks.unwrap_or(0) * self.unit_pages,
                config.timing.two_step,
            ) - units.unmoved_pages,
            page_ops.transfers,
        );

        add_pages(&mut summary, &stats);
        add_units(&mut summary, &units, self.unit_pages);
        add_nvram(&mut summary, device, &last.reading.glimpse);
        summary.slc = slc_cost(device, &stats, self.unit_pages);
        add_wear(&mut summary, device, stats.host_writes);

        summary.wear_out = wear_out(device, &last, self.unit_pages);
        summary
    }

    /// Half widths of the intervals of this run's figures; those of counts are for the same pages of
    /// the host.
    fn ci95(&self, host_pages: f64) -> Ci95 {
        let half = |found: Option<Interval>| found.map_or(f64::NAN, |found| found.half);
        let write_amplification = half(self.interval(Figure::WriteAmplification));
        Ci95 {
            bandwidth_mib_s: half(self.interval(Figure::Bandwidth)),
            iops: half(self.interval(Figure::Iops)),
            requests_per_s: half(self.rate(|ops| ops.requests as f64)),
            write_amplification,
            flash_pages: write_amplification * host_pages,
            gc_pages: half(self.per_host_page(|glimpse| glimpse.gc_programs)) * host_pages,
            erases: half(self.per_host_page(|glimpse| glimpse.erases)) * host_pages,
            latency_us: self.writes.ci95(),
            read_latency_us: self.reads.ci95(),
            remap_latency_us: self.remaps.ci95(),
        }
    }

    /// A figure over all readings so far, with its confidence interval.
    fn interval(&self, figure: Figure) -> Option<Interval> {
        match figure {
            Figure::Bandwidth => self.rate(|ops| ops.transfers as f64 * PAGE_BYTES as f64 / MIB),
            Figure::Iops => self.rate(|ops| ops.served as f64),
            Figure::WriteAmplification => self.per_host_page(|glimpse| glimpse.programs),
        }
    }

    /// A count for each page that the host wrote.
    fn per_host_page(&self, count: impl Fn(&Glimpse) -> u64) -> Option<Interval> {
        let begin = &self.first.reading.glimpse;
        self.ratio(|Reading { glimpse, .. }| {
            (
                (count(glimpse) - count(begin)) as f64,
                (glimpse.host_writes - begin.host_writes) as f64,
            )
        })
    }

    /// An amount per second of virtual time.
    fn rate(&self, amount: impl Fn(&PageOps) -> f64) -> Option<Interval> {
        let start_ns = self.first.reading.at_ns;
        let seconds = |at_ns: u64| (at_ns - start_ns) as f64 / NS_PER_S;
        self.ratio(|reading| (amount(&reading.page_ops), seconds(reading.at_ns)))
    }

    fn ratio(&self, grown: impl Fn(&Reading) -> (f64, f64)) -> Option<Interval> {
        interval::ratio(&self.compared().iter().map(grown).collect::<Vec<_>>())
    }

    /// The readings that divide the run into parts which are alike in a steady state.
    fn compared(&self) -> &[Reading] {
        &self.bursts.as_ref().unwrap_or(&self.series).readings
    }

    /// Adds the reading at the end; returns to which series it was added.
    fn close(&mut self, end: Reading) -> (bool, bool) {
        let is_new_of_burst = self.bursts.as_mut().is_some_and(|bursts| bursts.close(end));
        (self.series.close(end), is_new_of_burst)
    }

    /// Returns true if the figure is as precise as wanted, in a steady state, if the run ends at
    /// `end_ns`.
    pub(crate) fn is_precise(
        &mut self,
        wanted: &Precision,
        device: &Device,
        end_ns: u64,
        page_ops: PageOps,
    ) -> bool {
        // One reading more makes other rounds and batches, which may be less even.
        let (is_new, is_new_of_burst) =
            self.close(CounterTotals::of(device, end_ns, page_ops).reading);
        let interval = self.interval(wanted.figure);
        let is_precise = self.is_steady(device) == Some(true)
            && interval.is_some_and(|found| found.relative() <= wanted.relative);
        self.series.open_again(is_new);
        if let Some(bursts) = &mut self.bursts {
            bursts.open_again(is_new_of_burst);
        }
        is_precise
    }

    /// Returns true if neither write amplification nor bandwidth changed over the run, by the rule of
    /// `steady`; in an open loop, whose bandwidth is the load's, if write amplification did not. None if
    /// the run was too short to tell.
    fn is_steady(&self, device: &Device) -> Option<bool> {
        let readings = self.compared();
        let last = readings.len();
        if last < 4 * steady::ROUNDS {
            return None;
        }

        let mut before = self.first.reading;
        let (mut amplification, mut bandwidth) = (Vec::new(), Vec::new());
        for round in 1..=steady::ROUNDS {
            let end = readings[round * last / steady::ROUNDS - 1];
            let sample = sample(&before, &end, before.at_ns, self.unit_pages);
            amplification.push(sample.write_amplification);
            bandwidth.push(sample.bandwidth_mib_s);
            before = end;
        }

        let is_served_evenly = self.is_open || steady::is_steady(&bandwidth);
        // A device that still has erased space is faster than it will be.
        let stats = device.stats();
        let has_wrapped = stats.gc_runs > 0 || stats.host_writes == self.first.stats.host_writes;
        Some(steady::is_steady(&amplification) && is_served_evenly && has_wrapped)
    }

    fn samples(&self) -> Vec<Sample> {
        // Each reading with the previous one; the first with the beginning.
        let earlier = std::iter::once(&self.first.reading).chain(&self.series.readings);
        earlier
            .zip(&self.series.readings)
            .map(|(from, to)| sample(from, to, self.first.reading.at_ns, self.unit_pages))
            .collect()
    }
}

/// The mapping's tables, and the merges of hybrid mapping in the run.
fn mapping_cost(device: &Device, stats: &Stats) -> MappingCost {
    let firmware = &device.config().firmware;
    MappingCost {
        kind: firmware.mapping.to_string(),
        table_bytes: firmware.mapping_bytes(),
        extension_entries: device.ftl().extension_entries().into(),
        extension_room: if firmware.is_hybrid() {
            firmware.extension_entries().into()
        } else {
            0
        },
        merges_switch: stats.merges_switch,
        merges_partial: stats.merges_partial,
        merges_full: stats.merges_full,
        merge_pages: stats.merge_programs,
        merge_pads: stats.merge_pads,
        unshared: stats.merge_unshared,
        cache_bytes: firmware.mapping_cache_bytes,
        cache_peak_bytes: device.ftl().mapping_cache_peak_bytes(),
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        table_reads: stats.table_reads,
        table_pages: stats.table_programs,
    }
}

/// Use of the write buffer in the run, if there is one.
fn write_buffer(device: &Device, stats: &Stats) -> Option<WriteBufferUse> {
    let bytes = device.config().firmware.write_buffer_bytes;
    let unit = device.config().geometry.host_pages();
    (bytes > 0).then(|| WriteBufferUse {
        bytes,
        hits: stats.buffer_hits,
        overwritten: stats.buffer_overwritten,
        deallocated: stats.buffer_deallocated,
        remapped: stats.buffer_remapped,
        written_back: stats.buffer_written_back,
        pages_left: u64::from(device.ftl().buffered_pages()) * u64::from(unit),
    })
}

/// Adds the firmware's counts of pages, remaps and collections.
fn add_pages(summary: &mut RunSummary, stats: &Stats) {
    let flash_pages = summary.flash_pages;
    let data_pages = flash_pages - stats.meta_programs.min(flash_pages);
    summary.write_amplification = measured(flash_pages, stats.host_writes);
    summary.write_amplification_data = measured(data_pages, stats.host_writes);

    summary.host_pages = stats.host_writes;
    summary.host_programs = stats.host_programs;
    summary.metadata_pages = stats.meta_programs;
    summary.log_pages = stats.log_programs;
    summary.gc_runs = stats.gc_runs;
    summary.refresh_runs = stats.refresh_runs;
    summary.refresh_pages = stats.refresh_programs;
    summary.gc_pages = stats.gc_programs;
    summary.gc_zoned_pages = stats.gc_zoned;

    summary.remaps = stats.remaps;
    summary.demotions = Demotions {
        counter_full: stats.demoted_counter_full,
        nvram_full: stats.demoted_nvram_full,
        watermark: stats.demoted_watermark,
        degree_full: stats.demoted_degree_full,
        unhinted: stats.demoted_unhinted,
        ..Demotions::default()
    };
    summary.lost_references = stats.lost_references;
    summary.dedup_hits = stats.dedup_hits;
    summary.dedup_missed = stats.dedup_missed;
}

/// Adds the cost of indirection units, if they are larger than a page.
fn add_units(summary: &mut RunSummary, counts: &IndirectionCounts, unit_pages: u64) {
    if unit_pages == 1 {
        return;
    }
    summary.demotions.unaligned = counts.demoted_unaligned;
    summary.demotions.partial_unit = counts.demoted_partial;
    summary.indirection = Some(IndirectionCost {
        unit_bytes: unit_pages * PAGE_BYTES as u64,
        whole_writes: counts.whole_writes,
        read_modify_writes: counts.read_modify_writes,
        merged_in_buffer: counts.merged_in_buffer,
        copied_units: counts.copied_units,
        kept_pages: counts.kept_pages,
    });
}

/// Over the device's whole life, aging included.
fn wear_out(device: &Device, last: &CounterTotals, unit_pages: u64) -> WearOut {
    let glimpse = &last.reading.glimpse;
    let first_retired = device.first_retired();
    WearOut {
        host_bytes: last.stats.host_writes * PAGE_BYTES as u64,
        first_retired_bytes: first_retired.map(|pages| pages * PAGE_BYTES as u64),
        read_only: device.ftl().is_read_only(),
        blocks_retired: last.stats.blocks_retired + last.stats.blocks_worn,
        block_erases: glimpse.erases,
        usable_pages: u64::from(glimpse.usable_pages) * unit_pages,
    }
}

/// The use of the SLC cache, if there is one.
fn slc_cost(device: &Device, stats: &Stats, unit_pages: u64) -> Option<SlcCost> {
    let (ftl, config) = (device.ftl(), device.config());
    let area = ftl.slc_modes().area();
    if area.is_dynamic() {
        return Some(dynamic_slc_cost(device, stats, unit_pages));
    }

    // A fixed share of the superblocks is in this mode, the first of each group of dies: these are the lowest numbers.
    let superblocks = area.superblocks();
    let slc = |at: &usize| *at < superblocks as usize;
    let room = ftl.superblocks().take(superblocks as usize);
    let room: u64 = room.map(|(_, sb)| u64::from(sb.capacity)).sum();

    let counts = ftl.media().erase_counts();
    let dies = config.geometry.dies() as usize;
    let mean = |of: &dyn Fn(&usize) -> bool| {
        let of = (0..counts.len()).filter(|block| of(&(block / dies)));
        let counts: Vec<f64> = of.map(|block| f64::from(counts[block])).collect();
        counts.iter().sum::<f64>() / counts.len() as f64
    };

    (superblocks > 0).then(|| SlcCost {
        superblocks: superblocks.into(),
        room_pages: room * unit_pages,
        free_superblocks: ftl.free_slc_superblocks().into(),
        host_pages: stats.slc_programs,
        past_pages: stats.host_programs.saturating_sub(stats.slc_programs),
        folded_pages: stats.slc_folded,
        died_pages: stats.slc_died,
        erases: stats.slc_erases,
        erase_mean: mean(&slc),
        other_erase_mean: mean(&|at| !slc(at)),
        endurance_cycles: config.flash.slc_endurance,
    })
}

/// The same of superblocks that change their mode.
fn dynamic_slc_cost(device: &Device, stats: &Stats, unit_pages: u64) -> SlcCost {
    let (ftl, config) = (device.ftl(), device.config());
    let (modes, superblocks) = (ftl.slc_modes(), ftl.superblocks());
    let in_slc = superblocks.filter(|(id, _)| modes.has(*id));
    let room: u64 = in_slc
        .map(|(id, _)| u64::from(ftl.filled_capacity(id)))
        .sum();

    let free = u64::from(ftl.free_slc_superblocks());

    // The same block is erased in either mode: erases count for the mode that the superblock had until then.
    let blocks = f64::from(config.geometry.blocks());
    let counts = ftl.media().erase_counts();
    let all: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let erases = ftl.stats().slc_erases * u64::from(config.geometry.dies());
    let erase_mean = erases as f64 / blocks;

    SlcCost {
        superblocks: u64::from(modes.count()) + free,
        room_pages: room * unit_pages,
        free_superblocks: free,
        host_pages: stats.slc_programs,
        past_pages: stats.host_programs.saturating_sub(stats.slc_programs),
        folded_pages: stats.slc_folded,
        died_pages: stats.slc_died,
        erases: stats.slc_erases,
        erase_mean,
        other_erase_mean: (all / blocks - erase_mean).max(0.0),
        endurance_cycles: config.flash.endurance,
    }
}

/// Erases of a block of each mode as a share of what it endures, for the mode that is worn sooner.
fn worn_share(summary: &RunSummary, slc: &SlcCost, device: &Device) -> f64 {
    let config = device.config();
    if config.firmware.slc_dynamic > 0.0 {
        // A block has both modes, and an erase in either counts.
        return summary.erases as f64
            / f64::from(config.geometry.blocks())
            / config.flash.endurance as f64;
    }

    let dies = u64::from(config.geometry.dies());
    let slc_blocks = slc.superblocks * dies;
    let blocks = u64::from(config.geometry.blocks());
    let slc_erases = (slc.erases * dies).min(summary.erases);

    let share =
        |erases: u64, blocks: u64, endurance: u64| erases as f64 / blocks as f64 / endurance as f64;
    let others = summary.erases - slc_erases;
    share(slc_erases, slc_blocks, slc.endurance_cycles).max(share(
        others,
        blocks - slc_blocks,
        config.flash.endurance,
    ))
}

/// Adds the use of remapping metadata, and the time until the NVRAM is worn out.
fn add_nvram(summary: &mut RunSummary, device: &Device, end: &Glimpse) {
    let usage = device.ftl().usage();
    let config = device.config();

    let nvram_bytes = device.ftl().media().nvram_words() as f64 * 8.0;
    summary.nvram_life_years = years(
        config.nvram.endurance,
        summary.nvram_bytes_written as f64 / nvram_bytes,
        summary.seconds_simulated,
    );

    // A scheme without limit has no space to run out of.
    let room_bytes = if usage.entry_room_bytes > 0 {
        config.firmware.log_bytes
    } else {
        0
    };
    summary.nvram_room_bytes = room_bytes;
    summary.nvram_heads_bytes = room_bytes.saturating_sub(usage.entry_room_bytes);
    summary.nvram_reserve_bytes = usage.gc_reserve_bytes;
    summary.nvram_used = nvram_used(end);
    summary.nvram_valid = share(usage.valid_bytes, usage.used_bytes);

    summary.largest_group_bytes = usage.largest_group_seen_bytes;
    summary.l2p_bytes = usage.l2p_bytes;
    summary.p2l_bytes = usage.p2l_bytes;
}

/// Adds the erases of blocks, and the time until the flash is worn out.
fn add_wear(summary: &mut RunSummary, device: &Device, host_writes: u64) {
    let config = device.config();
    let blocks = device.ftl().media().erase_counts();
    let erase_max = blocks.iter().copied().max().unwrap_or(0);
    let erase_min = blocks.iter().copied().min().unwrap_or(0);
    let erases: f64 = blocks.iter().map(|count| f64::from(*count)).sum();

    summary.erase_mean = erases / blocks.len() as f64;
    summary.erase_max = erase_max.into();
    summary.erase_spread = (erase_max - erase_min).into();

    let mut erases_per_block = summary.erases as f64 / blocks.len() as f64;
    let endurance = config.flash.endurance;
    if let Some(slc) = &summary.slc {
        // As many erases of each block as wear it like those of the mode that is worn sooner.
        erases_per_block = worn_share(summary, slc, device) * endurance as f64;
    }
    summary.lifetime_years = years(endurance, erases_per_block, summary.seconds_simulated);
    summary.endurance_cycles = endurance;

    // Bytes written per erase of every block, times the endurance of a block.
    let life_bytes = if summary.erases > 0 && host_writes > 0 {
        let bytes = host_writes as f64 * PAGE_BYTES as f64;
        bytes / erases_per_block * endurance as f64
    } else {
        f64::NAN
    };
    summary.life_tb_written = life_bytes / 1e12;
    summary.drive_writes_per_day = life_bytes
        / (config.logical_pages() as f64 * PAGE_BYTES as f64)
        / (WARRANTY_YEARS * 365.25);
}

/// The survival classes with at least one page.
fn survival(device: &Device) -> Vec<SurvivalClass> {
    let classes = device.ftl().survival();
    classes
        .into_iter()
        .flatten()
        .filter(|class| class.died + class.alive > 0)
        .collect()
}

// Rates between two readings; levels at the second.
fn sample(from: &Reading, to: &Reading, start_ns: u64, unit_pages: u64) -> Sample {
    let seconds = (to.at_ns - from.at_ns) as f64 / NS_PER_S;

    let (glimpse, before) = (&to.glimpse, &from.glimpse);
    let host_writes = glimpse.host_writes - before.host_writes;
    let transfers = (to.page_ops.transfers - from.page_ops.transfers) as f64;

    Sample {
        at_s: (to.at_ns - start_ns) as f64 / NS_PER_S,
        bandwidth_mib_s: rate(transfers * PAGE_BYTES as f64 / MIB, seconds),
        written_mib_s: rate(host_writes as f64 * PAGE_BYTES as f64 / MIB, seconds),
        iops: rate((to.page_ops.served - from.page_ops.served) as f64, seconds),
        gc_runs: glimpse.gc_runs - before.gc_runs,
        gc_pages_s: rate((glimpse.gc_programs - before.gc_programs) as f64, seconds),
        write_amplification: ratio(glimpse.programs - before.programs, host_writes),
        free_superblocks: glimpse.free_superblocks.into(),
        demotions: glimpse.demoted - before.demoted,
        nvram_used: nvram_used(glimpse),
        backlog: to.backlog,
        usable_pages: u64::from(glimpse.usable_pages) * unit_pages,
    }
}

fn nvram_used(glimpse: &Glimpse) -> f64 {
    share(glimpse.room.used_bytes, glimpse.room.capacity_bytes)
}

/// Years until a counter that gains `growth` in `seconds` reaches `endurance`; infinite if it does
/// not grow.
fn years(endurance: u64, growth: f64, seconds: f64) -> f64 {
    if growth > 0.0 {
        endurance as f64 / growth * seconds / S_PER_YEAR
    } else {
        f64::INFINITY
    }
}

fn rate(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

/// A ratio that is NaN if the whole is zero.
fn measured(part: u64, whole: u64) -> f64 {
    if whole > 0 {
        ratio(part, whole)
    } else {
        f64::NAN
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 {
        part as f64 / whole as f64
    } else {
        0.0
    }
}

fn share(part: u64, whole: u64) -> f64 {
    ratio(part, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A counter that grew by 2 in ten seconds reaches 10 in fifty.
    #[test]
    fn a_life_ends_when_the_endurance_is_used_up_and_never_if_nothing_wears() {
        assert_eq!(years(10, 2.0, 10.0), 50.0 / S_PER_YEAR);
        assert_eq!(years(3000, 1.0, S_PER_YEAR), 3000.0);
        assert_eq!(years(3000, 0.0, S_PER_YEAR), f64::INFINITY);
    }
}
