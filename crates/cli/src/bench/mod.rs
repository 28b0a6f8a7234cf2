//! `bench`: speed and memory of the simulator itself; `--service` measures the served device.
//!
//! Random 4 KiB writes with 30 % duplicates (published definition) on Remap-SSD, in steady state of
//! garbage collection, on one thread; with deduplication, without it, and on bare arrays. Then
//! whole runs as made by `compare`, on one thread and on two. Each number is the median of several
//! rounds. Invariant: everything is measured in the same process, one after the other; runs on one
//! and on two threads alternate. Absent: virtual time, which `compare` shows.

mod bare;
mod memory;
mod service;
mod subject;

use crate::failure::Failure;
use crate::output::{self, pairs};
use crate::settings;
use indicatif::{ProgressBar, ProgressDrawTarget};
use memory::{grown_since, resident_bytes};
use remap_ssd_device::{DeviceConfig, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::report::format::{bytes, exact, number, seconds, si};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use subject::{BareSubject, CommandSource, RunWork, Subject, Work, without_dedup};

/// Measures the speed and the memory of the simulator itself, on one thread and on two: random 4
/// KiB writes with 30 % duplicates (published definition) on Remap-SSD in steady state of garbage
/// collection, including firmware and timing model.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A sixteenth of the device, 3 rounds instead of 5, fewer pages.
    #[arg(long)]
    pub quick: bool,

    /// Predefined device to simulate.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "fast21-32g",
        help_heading = "Simulator"
    )]
    pub preset: String,
    /// Any other setting of the device: --set firmware.gc_free=0.2.
    ///
    /// Applies to the simulated device, or to the served one with --service. May be repeated, or
    /// comma-separated. Deduplication is measured on and off. The configuration reference
    /// (docs/configuration.md) lists the keys.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        help_heading = "Simulator"
    )]
    pub set: Vec<String>,
    /// Also compare a page operation's time on small and large devices.
    ///
    /// 4 and 256 GiB (with --quick 1 and 16 GiB). Takes minutes and some gigabytes of memory.
    #[arg(long, help_heading = "Simulator")]
    pub scales: bool,
    /// Seed of the workload.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Simulator"
    )]
    pub seed: u64,

    /// Measure a served device instead, over NVMe/TCP on the loopback.
    ///
    /// Reads and writes per second, GiB/s, the time to copy 1 GiB, the accuracy of emulated
    /// latencies. Takes minutes and 3.5 GiB in the folder for temporary files.
    #[arg(long, conflicts_with_all = ["scales", "preset", "seed"], help_heading = "Service")]
    pub service: bool,
    /// Folder for its image [default: the folder for temporary files].
    #[arg(
        long,
        value_name = "DIR",
        requires = "service",
        conflicts_with = "memory",
        help_heading = "Service"
    )]
    pub dir: Option<PathBuf>,
    /// Serve a device in memory instead of an image.
    #[arg(long, requires = "service", help_heading = "Service")]
    pub memory: bool,
    /// Compare the service with and without TLS, alternating, instead.
    ///
    /// Measures the remaining speed, and the time to connect. With --chap, also authentication
    /// alone and both together.
    #[arg(long, requires = "service", help_heading = "Service")]
    pub tls: bool,
    /// The same for hosts that authenticate with DH-HMAC-CHAP.
    #[arg(long, requires = "service", help_heading = "Service")]
    pub chap: bool,
    /// The same for a service whose metrics are scraped.
    ///
    /// Also for one whose live page is open. Each alternates with a service that is not observed.
    #[arg(
        long,
        requires = "service",
        conflicts_with_all = ["tls", "chap"],
        help_heading = "Service"
    )]
    pub http: bool,

    /// Print the results as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd bench --quick
  remap-ssd bench --json --quick
  remap-ssd bench --quick --set firmware.gc_free=0.1
  remap-ssd bench --service
  remap-ssd bench --service --memory --json
  remap-ssd bench --service --memory --tls --chap
  remap-ssd bench --service --memory --http";

/// Measurements; rates are medians over the rounds.
#[derive(Clone, Debug, Default, Serialize)]
struct Results {
    page_ops_per_s: f64,
    page_ops_per_s_no_dedup: f64,
    programs_per_s: f64,
    programs_per_s_no_dedup: f64,
    host_pages_per_s: f64,
    host_pages_per_s_no_dedup: f64,
    bare_page_ops_per_s: f64,
    bare_host_pages_per_s: f64,
    run: Runs,
    run_no_dedup: Runs,
    /// Without the NVRAM image.
    bytes_per_page: Option<f64>,
    bytes_per_page_no_dedup: Option<f64>,
    nvram_bytes: u64,
    /// Flash pages per second scanned by recovery, without the fingerprint store.
    recovery_pages_per_s: f64,
    recovery_s: f64,
    /// Including the fingerprint store, so that deduplication continues as before.
    recovery_with_store_s: f64,
    aging_s: f64,
    aging_s_no_dedup: f64,
    gc_pages_per_host_page: f64,
    gc_pages_per_host_page_no_dedup: f64,
    gc_pages_per_host_page_bare: f64,
    warm_up_pages: u64,
    flash_pages: u64,
    rounds: u32,
    pages_per_round: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scales: Vec<Scaled>,
}

/// Whole runs, alternating between one thread and two.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Runs {
    page_ops_per_s: f64,
    page_ops_per_s_two_threads: f64,
    /// Median of the wall-clock speedup of two threads, over the pairs.
    speedup: f64,
    /// Processor time per host page: of one thread, of the firmware's and of the other one.
    ns_per_host_page: f64,
    firmware_ns_per_host_page: f64,
    times_ns_per_host_page: f64,
    /// Speedup with two dedicated cores: processor time of one thread divided by that of the busier
    /// of two.
    speedup_by_processor_time: f64,
}

impl Runs {
    fn of(
        size: BenchSize,
        subject: &mut Subject,
        feed: &mut CommandSource,
    ) -> Result<Self, Failure> {
        // The system reports processor time in hundredths of a second.
        let pages = size.pages.max(2_000_000);

        // One thread and two alternate, so that a temporarily busy machine affects both.
        let pairs = (0..size.rounds)
            .map(|_| {
                let one = subject.run(feed, pages, 1)?;
                Ok((one, subject.run(feed, pages, 2)?))
            })
            .collect::<Result<Vec<(RunWork, RunWork)>, Failure>>()?;

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
struct Scaled {
    logical_bytes: u64,
    flash_pages: u64,
    ns_per_page_op: f64,
    ns_per_host_page: f64,
}

/// Length and number of the rounds.
#[derive(Clone, Copy)]
struct BenchSize {
    scale: f64,
    rounds: u32,
    pages: u64,
}

/// Runs `bench`.
///
/// # Errors
/// Invalid device configuration.
pub fn command(args: &Args) -> Result<(), Failure> {
    let size = if args.quick {
        BenchSize {
            scale: 1.0 / 16.0,
            rounds: 3,
            pages: 500_000,
        }
    } else {
        BenchSize {
            scale: 1.0,
            rounds: 5,
            pages: 4_000_000,
        }
    };

    let target = if args.json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let line = ProgressBar::with_draw_target(None, target);
    line.enable_steady_tick(Duration::from_millis(200));

    // Validated first: building a device takes long.
    let set = settings::parse(&args.set)?;
    settings::refuse(&set, &CHOSEN)?;

    if args.service {
        return service::command(args, &set, &line);
    }

    let config = device(&args.preset, &set, size.scale)?;
    let mut results = measure(&config, size, args.seed, &line)?;

    if args.scales {
        let factors = if args.quick {
            [1.0 / 256.0, 1.0 / 16.0]
        } else {
            [1.0 / 64.0, 1.0]
        };
        for factor in factors {
            results
                .scales
                .push(scaled(&set, factor, size, args.seed, &line)?);
        }
    }

    line.finish_and_clear();

    if args.json {
        output::json(&serde_json::json!(results))
    } else {
        output::text(&as_text(&config, &results))
    }
}

/// Keys that `--set` cannot change here, with the reasons.
const CHOSEN: [(&str, &str); 2] = [
    ("firmware.dedup", "it is measured on and off"),
    ("content", "it is measured with contents and without"),
];

fn device(preset: &str, set: &[Setting], scale: f64) -> Result<DeviceConfig, Failure> {
    let mut config = DeviceConfig::preset(preset).map_err(Failure::usage)?;
    // The bench's own choices. `--set` can change the other values of the preset.
    config.firmware.scheme = SchemeKind::default();
    config.firmware.dedup = true;
    config.content = remap_ssd_media::ContentMode::Identity;

    let config = config.with(set).map_err(Failure::usage)?;
    config.scale(scale).map_err(Failure::usage)
}

/// The rounds of one measurement.
struct Rounds(Vec<Work>);

impl Rounds {
    fn of(
        size: BenchSize,
        mut one: impl FnMut() -> Result<Work, Failure>,
    ) -> Result<Self, Failure> {
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    // The number of rounds is odd, so there is a middle one.
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn measure(
    config: &DeviceConfig,
    size: BenchSize,
    seed: u64,
    line: &ProgressBar,
) -> Result<Results, Failure> {
    let addressable = config.addressable_lpns();
    let flash_pages = u64::from(config.geometry.pages());
    let mut feed = CommandSource::new(addressable, seed)?;
    let mut results = Results {
        flash_pages,
        rounds: size.rounds,
        pages_per_round: size.pages,
        ..Results::default()
    };

    line.set_message("without deduplication");
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

    line.set_message("with deduplication");
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

    line.set_message("recovery");
    // After the runs, because it consumes the device.
    let recoveries = full.recover(size.rounds)?;
    results.recovery_s = median(recoveries.mappings);
    results.recovery_with_store_s = median(recoveries.with_store);
    results.recovery_pages_per_s = flash_pages as f64 / results.recovery_s;

    line.set_message("bare arrays");
    let mut bare = BareSubject::new(config, &mut feed)?;
    let rounds = Rounds::of(size, || bare.measure(&mut feed, size.pages))?;
    results.bare_page_ops_per_s = rounds.rate(|work| work.page_ops);
    results.bare_host_pages_per_s = rounds.rate(|work| work.host_pages);
    results.gc_pages_per_host_page_bare = rounds.moved();
    drop(bare);

    line.set_message("whole runs without deduplication");
    // Last, and on a new device: a whole run changes the heap and uses up pages of the workload.
    // Before the other device was aged, that would affect the measurement of its aging.
    let mut plain = Subject::new(without_dedup(config.clone()), &mut feed)?;
    results.run_no_dedup = Runs::of(size, &mut plain, &mut feed)?;

    Ok(results)
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
    line: &ProgressBar,
) -> Result<Scaled, Failure> {
    let config = device("fast21-256g", set, factor)?;
    let logical_bytes = u64::from(config.firmware.lpns) * PAGE_BYTES as u64;
    line.set_message(format!("{} device", bytes(logical_bytes)));

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

fn as_text(config: &DeviceConfig, results: &Results) -> String {
    let rate = |value: f64| {
        let (divisor, prefix) = si(value);
        format!("{:.2} {prefix}", value / divisor)
    };
    let mut text = format!(
        "{}: {} flash pages, {} of NVRAM, random 4 KiB writes over {} pages, 30 % duplicates\n\
         Medians of {} rounds of {} pages, after {} pages of warming up. Commands and arrays on one thread.\n\n",
        config.name,
        exact(results.flash_pages),
        bytes(results.nvram_bytes),
        exact(config.addressable_lpns().into()),
        results.rounds,
        exact(results.pages_per_round),
        exact(results.warm_up_pages),
    );
    let row = |name: &str, [operations, programs, host, moved]: [f64; 4], memory: Option<f64>| {
        let memory = memory.map_or("-".into(), number);
        vec![
            name.to_owned(),
            rate(operations),
            rate(programs),
            rate(host),
            format!("{moved:.2}"),
            memory,
        ]
    };
    let r = results;
    let rows = [
        row(
            "deduplication on",
            [
                r.page_ops_per_s,
                r.programs_per_s,
                r.host_pages_per_s,
                r.gc_pages_per_host_page,
            ],
            r.bytes_per_page,
        ),
        row(
            "deduplication off",
            [
                r.page_ops_per_s_no_dedup,
                r.programs_per_s_no_dedup,
                r.host_pages_per_s_no_dedup,
                r.gc_pages_per_host_page_no_dedup,
            ],
            r.bytes_per_page_no_dedup,
        ),
        row(
            "bare arrays",
            [
                r.bare_page_ops_per_s,
                // They program nothing else, so both rates are equal.
                r.bare_page_ops_per_s,
                r.bare_host_pages_per_s,
                r.gc_pages_per_host_page_bare,
            ],
            None,
        ),
    ];
    text.push_str(&output::table(
        &[
            "",
            "page ops/s",
            "programs/s",
            "host pages/s",
            "GC moves/host page",
            "bytes/page",
        ],
        &rows,
    ));
    text.push('\n');
    let row = |name: &str, runs: &Runs| {
        vec![
            name.to_owned(),
            rate(runs.page_ops_per_s),
            rate(runs.page_ops_per_s_two_threads),
            number(runs.speedup),
            number(runs.ns_per_host_page),
            number(runs.firmware_ns_per_host_page),
            number(runs.times_ns_per_host_page),
            number(runs.speedup_by_processor_time),
        ]
    };
    text.push_str(&output::table(
        &[
            "whole runs",
            "page ops/s, one thread",
            "two threads",
            "times",
            "ns/host page, one thread",
            "firmware's",
            "the other",
            "times on cores of their own",
        ],
        &[
            row("deduplication on", &r.run),
            row("deduplication off", &r.run_no_dedup),
        ],
    ));
    let mut facts = vec![
        (
            "recovery".to_owned(),
            format!(
                "{}: {}pages/s; {} with the fingerprint store",
                seconds(r.recovery_s),
                rate(r.recovery_pages_per_s),
                seconds(r.recovery_with_store_s)
            ),
        ),
        (
            "aging".to_owned(),
            format!(
                "{} with deduplication, {} without",
                seconds(r.aging_s),
                seconds(r.aging_s_no_dedup)
            ),
        ),
    ];
    for scaled in &r.scales {
        facts.push((
            format!("{} device", bytes(scaled.logical_bytes)),
            format!(
                "{} ns a page operation, {} ns a host page",
                number(scaled.ns_per_page_op),
                number(scaled.ns_per_host_page)
            ),
        ));
    }
    text.push('\n');
    text.push_str(&pairs(&facts));
    text.push_str(
        "\nPage operations are host pages and pages moved by garbage collection. Bytes per flash page are the growth of\n\
         the process's resident memory since before the device was made, less the NVRAM image; with deduplication off\n\
         no contents are stored. The bare arrays (L2P, P2L, reference counts, greedy collection) do nothing else. Whole runs\n\
         also draw the pages and record latencies; their ns are processor time, which busy neighbours disturb less.\n",
    );
    text
}
