//! The simulator itself: random 4 KiB writes with 30 % duplicates (published definition) on
//! Remap-SSD, in steady state of garbage collection, on one thread; with deduplication, without it,
//! without it on TLC flash with the engine `nand`, and on bare arrays. Then whole runs, on one thread and on two.
//!
//! Invariant: runs on one and on two threads alternate.

use crate::memory::{grown_since, resident_bytes};
use crate::subject::{BareSubject, CommandSource, RunWork, Subject, Work, without_dedup};
use crate::{BenchError, Progress, median};
use remap_ssd_device::{DeviceConfig, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::report::format::bytes;
use serde::Serialize;

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct SimulatorBench<'a> {
    /// Name of a predefined device.
    pub preset: &'a str,
    /// Its other settings.
    pub set: &'a [Setting],
    /// Length and number of the rounds.
    pub size: BenchSize,
    /// Seed of the workload.
    pub seed: u64,
    /// Compares a page operation on devices of two sizes, too.
    pub scales: bool,
}

/// Measurements; rates are medians over the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Host pages and pages moved by garbage collection, a second.
    pub page_ops_per_s: f64,
    /// The same without deduplication, like each `_no_dedup` below.
    pub page_ops_per_s_no_dedup: f64,
    /// Flash pages programmed a second.
    pub programs_per_s: f64,
    /// Without deduplication.
    pub programs_per_s_no_dedup: f64,
    /// Pages written by the host a second.
    pub host_pages_per_s: f64,
    /// Without deduplication.
    pub host_pages_per_s_no_dedup: f64,
    /// Page operations a second of the bare arrays.
    pub bare_page_ops_per_s: f64,
    /// Pages written a second to the bare arrays.
    pub bare_host_pages_per_s: f64,
    /// Whole runs with deduplication.
    pub run: Runs,
    /// Whole runs without.
    pub run_no_dedup: Runs,
    /// The engine `nand`, if the device has the other one and can have its blocks.
    pub nand: Option<NandResults>,
    /// Memory per flash page, without the NVRAM image; none if the system does not report it.
    pub bytes_per_page: Option<f64>,
    /// Without deduplication.
    pub bytes_per_page_no_dedup: Option<f64>,
    /// Size of the NVRAM image.
    pub nvram_bytes: u64,
    /// Flash pages per second scanned by recovery, without the fingerprint store.
    pub recovery_pages_per_s: f64,
    /// Seconds of that recovery.
    pub recovery_s: f64,
    /// Including the fingerprint store, so that deduplication continues as before.
    pub recovery_with_store_s: f64,
    /// Seconds of aging the device.
    pub aging_s: f64,
    /// Without deduplication.
    pub aging_s_no_dedup: f64,
    /// Pages moved by garbage collection per host page.
    pub gc_pages_per_host_page: f64,
    /// Without deduplication.
    pub gc_pages_per_host_page_no_dedup: f64,
    /// The same of the bare arrays.
    pub gc_pages_per_host_page_bare: f64,
    /// Pages written before the measurement.
    pub warm_up_pages: u64,
    /// Flash pages of the device.
    pub flash_pages: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Pages written in a round.
    pub pages_per_round: u64,
    /// Devices of two sizes, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<Scaled>,
}

/// The same device with TLC flash of four planes and suspension, with the engine `nand` and without deduplication.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NandResults {
    /// Page operations a second.
    pub page_ops_per_s: f64,
    /// Flash pages programmed a second.
    pub programs_per_s: f64,
    /// Pages written by the host a second.
    pub host_pages_per_s: f64,
    /// Pages moved by garbage collection per host page.
    pub gc_pages_per_host_page: f64,
    /// Whole runs.
    pub run: Runs,
}

/// Whole runs, alternating between one thread and two.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Runs {
    /// Page operations a second on one thread.
    pub page_ops_per_s: f64,
    /// The same on two.
    pub page_ops_per_s_two_threads: f64,
    /// Median of the wall-clock speedup of two threads, over the pairs.
    pub speedup: f64,
    /// Processor time per host page in nanoseconds: of one thread.
    pub ns_per_host_page: f64,
    /// Of the firmware's thread, of two.
    pub firmware_ns_per_host_page: f64,
    /// Of the other one.
    pub times_ns_per_host_page: f64,
    /// Speedup with two dedicated cores: processor time of one thread divided by that of the busier
    /// of two.
    pub speedup_by_processor_time: f64,
}

impl Runs {
    fn of(
        size: BenchSize,
        subject: &mut Subject,
        feed: &mut CommandSource,
    ) -> Result<Self, BenchError> {
        // The system reports processor time in hundredths of a second.
        let pages = size.pages.max(2_000_000);

        // One thread and two alternate, so that a temporarily busy machine affects both.
        let pairs = (0..size.rounds)
            .map(|_| {
                let one = subject.run(feed, pages, 1)?;
                Ok((one, subject.run(feed, pages, 2)?))
            })
            .collect::<Result<Vec<(RunWork, RunWork)>, BenchError>>()?;

        let of = |value: fn(&(RunWork, RunWork)) -> f64| median(pairs.iter().map(value).collect());

        Ok(Self {
            // Page operations include pages moved by garbage collection, which are part of the
            // work.
            page_ops_per_s: of(|(one, _)| one.work.page_ops as f64 / one.work.seconds),
            page_ops_per_s_two_threads: of(|(_, two)| two.work.page_ops as f64 / two.work.seconds),
            speedup: of(|(one, two)| one.work.seconds / two.work.seconds),
            ns_per_host_page: of(|(one, _)| one.times_s * 1e9 / one.work.host_pages as f64),
            firmware_ns_per_host_page: of(|(_, two)| {
                two.firmware_s * 1e9 / two.work.host_pages as f64
            }),
            times_ns_per_host_page: of(|(_, two)| two.times_s * 1e9 / two.work.host_pages as f64),
            speedup_by_processor_time: of(|(one, two)| {
                one.times_s / two.firmware_s.max(two.times_s)
            }),
        })
    }
}

/// The same workload on one size of device.
#[derive(Clone, Debug, Serialize)]
pub struct Scaled {
    /// Logical size of the device.
    pub logical_bytes: u64,
    /// Flash pages of the device.
    pub flash_pages: u64,
    /// Nanoseconds of a page operation.
    pub ns_per_page_op: f64,
    /// Nanoseconds of a page written by the host.
    pub ns_per_host_page: f64,
}

/// Length and number of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct BenchSize {
    scale: f64,
    rounds: u32,
    pages: u64,
    /// Sizes of the devices that `scales` compares: shares of 256 GiB.
    scales: [f64; 2],
}

impl BenchSize {
    /// The whole device, 5 rounds.
    pub const FULL: Self = Self {
        scale: 1.0,
        rounds: 5,
        pages: 4_000_000,
        scales: [1.0 / 64.0, 1.0],
    };
    /// A sixteenth of the device, 3 shorter rounds.
    pub const QUICK: Self = Self {
        scale: 1.0 / 16.0,
        rounds: 3,
        pages: 500_000,
        scales: [1.0 / 256.0, 1.0 / 16.0],
    };
}

impl SimulatorBench<'_> {
    /// The device to measure.
    ///
    /// # Errors
    /// There is no such device.
    pub fn config(&self) -> Result<DeviceConfig, BenchError> {
        device(self.preset, self.set, self.size.scale)
    }

    /// Measures it.
    ///
    /// # Errors
    /// There is no such device, or it refuses a page.
    pub fn run(&self, progress: Progress<'_>) -> Result<Results, BenchError> {
        let config = self.config()?;
        let mut results = measure(&config, self.size, self.seed, progress)?;
        if let Some(config) = self.tlc(&config) {
            results.nand = Some(measure_nand(config, self.size, self.seed, progress)?);
        }
        if self.scales {
            for factor in self.size.scales {
                let scaled = scaled(self.set, factor, self.size, self.seed, progress)?;
                results.scales.push(scaled);
            }
        }
        Ok(results)
    }
}

impl SimulatorBench<'_> {
    /// The device with TLC flash and the engine `nand`; `None` if it has that engine already, or blocks that cannot be
    /// made of word lines.
    fn tlc(&self, config: &DeviceConfig) -> Option<DeviceConfig> {
        if config.check_known_ends().is_err() {
            return None;
        }
        // Blocks three times as large, for as many pages in all.
        let whole = device(self.preset, self.set, 1.0).ok()?.geometry;
        let blocks = [
            format!("geometry.pages_per_block={}", 3 * whole.pages_per_block()),
            format!("geometry.superblocks={}", whole.superblocks() / 3),
        ];
        let settings = TLC.iter().map(|text| (*text).to_owned()).chain(blocks);
        let settings: Result<Vec<Setting>, _> = settings.map(|text| text.parse()).collect();
        let set = [self.set, &settings.ok()?].concat();
        device(self.preset, &set, self.size.scale).ok()
    }
}

/// TLC flash of four planes, programmed at once, with times of the order of those of `tlc-2t`.
const TLC: [&str; 13] = [
    "timing.engine=nand",
    "background.lookup_stalls_dies=false",
    "geometry.planes=4",
    "geometry.page_bytes=16384",
    "geometry.cell_bits=3",
    "flash.read_ns=40us/60us/80us",
    "flash.program_ns=500000",
    "flash.transfer_ns=3000",
    "timing.read_command_ns=500",
    "timing.suspensions=4",
    "timing.suspend_ns=20000",
    "timing.resume_ns=20000",
    "timing.suspend_least_ns=50000",
];

fn device(preset: &str, set: &[Setting], scale: f64) -> Result<DeviceConfig, BenchError> {
    let mut config = DeviceConfig::preset(preset).map_err(BenchError::impossible)?;
    // The bench's own choices. `--set` can change the other values of the preset.
    config.firmware.scheme = SchemeKind::default();
    config.firmware.dedup = true;
    config.content = remap_ssd_media::ContentMode::Identity;

    let config = config.with(set).map_err(BenchError::impossible)?;
    config.scale(scale).map_err(BenchError::impossible)
}

/// The rounds of one measurement.
struct Rounds(Vec<Work>);

impl Rounds {
    fn of(
        size: BenchSize,
        mut one: impl FnMut() -> Result<Work, BenchError>,
    ) -> Result<Self, BenchError> {
        (0..size.rounds)
            .map(|_| one())
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn rate(&self, of: fn(&Work) -> u64) -> f64 {
        median(
            self.0
                .iter()
                .map(|work| of(work) as f64 / work.seconds)
                .collect(),
        )
    }

    fn moved(&self) -> f64 {
        median(
            self.0
                .iter()
                .map(|work| work.page_ops as f64 / work.host_pages as f64 - 1.0)
                .collect(),
        )
    }
}

fn measure(
    config: &DeviceConfig,
    size: BenchSize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Results, BenchError> {
    let addressable = config.addressable_lpns();
    let flash_pages = u64::from(config.geometry.pages());
    let mut feed = CommandSource::new(addressable, seed)?;
    let mut results = Results {
        flash_pages,
        rounds: size.rounds,
        pages_per_round: size.pages,
        ..Results::default()
    };

    progress("without deduplication".into());
    // Read before the device is made: only growth distinguishes its memory from the rest of the
    // process.
    let before = resident_bytes();
    let mut plain = Subject::new(without_dedup(config.clone()), &mut feed)?;
    let rounds = Rounds::of(size, || plain.measure(&mut feed, size.pages))?;
    results.page_ops_per_s_no_dedup = rounds.rate(|work| work.page_ops);
    results.programs_per_s_no_dedup = rounds.rate(|work| work.programs);
    results.host_pages_per_s_no_dedup = rounds.rate(|work| work.host_pages);
    results.gc_pages_per_host_page_no_dedup = rounds.moved();
    results.aging_s_no_dedup = plain.aging_s;
    results.bytes_per_page_no_dedup = bytes_per_page(&plain, before);

    // Dropped here: memory may not suffice for two devices at once.
    drop(plain);

    progress("with deduplication".into());
    let before = resident_bytes();
    let mut full = Subject::new(config.clone(), &mut feed)?;
    let rounds = Rounds::of(size, || full.measure(&mut feed, size.pages))?;
    results.page_ops_per_s = rounds.rate(|work| work.page_ops);
    results.programs_per_s = rounds.rate(|work| work.programs);
    results.host_pages_per_s = rounds.rate(|work| work.host_pages);
    results.gc_pages_per_host_page = rounds.moved();
    (results.aging_s, results.warm_up_pages) = (full.aging_s, full.warm_up_pages);
    // Before the runs: their latencies and series are not part of the device.
    results.bytes_per_page = bytes_per_page(&full, before);
    results.run = Runs::of(size, &mut full, &mut feed)?;
    results.nvram_bytes = full.device().ftl().media().nvram_words() as u64 * 8;

    progress("recovery".into());
    // After the runs, because it consumes the device.
    let recoveries = full.recover(size.rounds)?;
    results.recovery_s = median(recoveries.mappings);
    results.recovery_with_store_s = median(recoveries.with_store);
    results.recovery_pages_per_s = flash_pages as f64 / results.recovery_s;

    progress("bare arrays".into());
    let mut bare = BareSubject::new(config, &mut feed)?;
    let rounds = Rounds::of(size, || bare.measure(&mut feed, size.pages))?;
    results.bare_page_ops_per_s = rounds.rate(|work| work.page_ops);
    results.bare_host_pages_per_s = rounds.rate(|work| work.host_pages);
    results.gc_pages_per_host_page_bare = rounds.moved();
    drop(bare);

    progress("whole runs without deduplication".into());
    // Last, and on a new device: a whole run changes the heap and uses up pages of the workload.
    // Before the other device was aged, that would affect the measurement of its aging.
    let mut plain = Subject::new(without_dedup(config.clone()), &mut feed)?;
    results.run_no_dedup = Runs::of(size, &mut plain, &mut feed)?;

    Ok(results)
}

fn measure_nand(
    config: DeviceConfig,
    size: BenchSize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<NandResults, BenchError> {
    progress("TLC flash with the engine nand".into());
    // It does several times as much for each page.
    let size = BenchSize {
        pages: size.pages / 8,
        ..size
    };
    let mut feed = CommandSource::new(config.addressable_lpns(), seed)?;
    let mut subject = Subject::new(without_dedup(config), &mut feed)?;
    let rounds = Rounds::of(size, || subject.measure(&mut feed, size.pages))?;
    Ok(NandResults {
        page_ops_per_s: rounds.rate(|work| work.page_ops),
        programs_per_s: rounds.rate(|work| work.programs),
        host_pages_per_s: rounds.rate(|work| work.host_pages),
        gc_pages_per_host_page: rounds.moved(),
        run: Runs::of(size, &mut subject, &mut feed)?,
    })
}

/// Growth of resident memory since before the device was made, minus the NVRAM image, per flash
/// page.
fn bytes_per_page(subject: &Subject, before: Option<u64>) -> Option<f64> {
    let media = subject.device().ftl().media();
    let nvram = media.nvram_words() as u64 * 8;
    grown_since(before)
        .map(|grown| grown.saturating_sub(nvram) as f64 / f64::from(media.geometry().pages()))
}

fn scaled(
    set: &[Setting],
    factor: f64,
    size: BenchSize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Scaled, BenchError> {
    let config = device("fast21-256g", set, factor)?;
    let logical_bytes = u64::from(config.firmware.lpns) * PAGE_BYTES as u64;
    progress(format!("{} device", bytes(logical_bytes)));

    // One source for all rounds: a device in steady state must continue with the same contents.
    let mut feed = CommandSource::new(config.addressable_lpns(), seed)?;
    let flash_pages = u64::from(config.geometry.pages());
    let mut subject = Subject::new(config, &mut feed)?;
    let rounds = Rounds::of(size, || subject.measure(&mut feed, size.pages))?;
    Ok(Scaled {
        logical_bytes,
        flash_pages,
        ns_per_page_op: 1e9 / rounds.rate(|work| work.page_ops),
        ns_per_host_page: 1e9 / rounds.rate(|work| work.host_pages),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_nand_is_measured_before_and_after_a_whole_run() {
        let bench = SimulatorBench {
            preset: "fast21-32g",
            set: &[],
            size: BenchSize {
                scale: 1.0 / 64.0,
                ..BenchSize::QUICK
            },
            seed: 1,
            scales: false,
        };
        let config = bench.tlc(&bench.config().unwrap()).unwrap();
        assert!(config.geometry.stripe() > 1 && config.check_known_ends().is_err());

        let mut feed = CommandSource::new(config.addressable_lpns(), 1).unwrap();
        let mut subject = Subject::new(without_dedup(config), &mut feed).unwrap();
        for threads in [1, 2] {
            let work = subject.measure(&mut feed, 3000).unwrap();
            assert_eq!(work.host_pages, 3000);
            assert!(work.page_ops > 2 * work.host_pages, "{work:?}");
            subject.run(&mut feed, 3000, threads).unwrap();
        }
    }
}
