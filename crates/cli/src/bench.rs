//! `bench`: speed and memory of the simulator itself; `--service` measures the served device.
//!
//! Absent: the measurements and their text (`crates/bench`).

use crate::failure::Failure;
use crate::manual::preset;
use crate::output;
use crate::settings;
use indicatif::ProgressBar;
use remap_ssd_bench::service::{ServiceBench, ServiceBenchSize};
use remap_ssd_bench::{BenchSize, SimulatorBench, text};
use remap_ssd_device::Setting;
use remap_ssd_nvme::tls;
use std::path::PathBuf;
use std::time::Duration;

/// Measures the speed and the memory of the simulator itself, on one thread and on two: random 4
/// KiB writes with 30 % duplicates (published definition) on Remap-SSD in steady state of garbage
/// collection, including firmware and timing model; without deduplication also on TLC flash with
/// the engine `nand`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A sixteenth of the device, 3 rounds instead of 5, fewer pages.
    #[arg(long)]
    pub quick: bool,

    /// Predefined device to simulate.
    #[arg(long, value_name = "NAME", value_parser = preset(), hide_possible_values = true, default_value = "fast21-32g", help_heading = "Simulator")]
    pub preset: String,
    /// Any other setting of the device: --set firmware.gc_free=0.2.
    ///
    /// Applies to the simulated device, or to the served one with --service. May be repeated, or
    /// comma-separated. Deduplication is measured on and off; published devices also with the engine `nand`. The configuration reference
    /// (docs/configuration.md) lists the keys.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Simulator")]
    pub set: Vec<String>,
    /// Also compare a page operation's time on small and large devices.
    ///
    /// 4 and 256 GiB (with --quick 1 and 16 GiB). Takes minutes and some gigabytes of memory.
    #[arg(long, help_heading = "Simulator")]
    pub scales: bool,
    /// Seed of the workload.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Simulator")]
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

/// Runs `bench`.
///
/// # Errors
/// Invalid device configuration.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    // Validated first: building a device takes long.
    let set = settings::parse(&args.set)?;
    settings::refuse(&set, &CHOSEN)?;

    let line = ProgressBar::with_draw_target(None, output::progress_target(args.json));
    line.enable_steady_tick(Duration::from_millis(200));
    if args.service {
        return service(args, &set, &line);
    }

    let size = if args.quick {
        BenchSize::QUICK
    } else {
        BenchSize::FULL
    };
    let bench = SimulatorBench {
        preset: &args.preset,
        set: &set,
        size,
        seed: args.seed,
        scales: args.scales,
    };
    let config = bench.config()?;
    let results = bench.run(&mut |now| line.set_message(now))?;
    line.finish_and_clear();

    let shown = || text::simulator(&config, &results, output::window());
    output::result(args.json, || serde_json::json!(results), shown)
}

fn service(args: &Args, set: &[Setting], line: &ProgressBar) -> Result<(), Failure> {
    if args.tls && !tls::IS_BUILT {
        return Err(Failure::usage(format_args!("--tls: {}", tls::ABSENT)));
    }

    // By default in the folder for temporary files; in memory only on request.
    let dir = match (&args.dir, args.memory) {
        (Some(dir), _) => Some(dir.clone()),
        (None, false) => Some(std::env::temp_dir()),
        (None, true) => None,
    };
    let size = if args.quick {
        ServiceBenchSize::QUICK
    } else {
        ServiceBenchSize::FULL
    };
    let bench = ServiceBench {
        dir: dir.as_deref(),
        set,
        size,
    };
    let progress = &mut |now| line.set_message(now);

    // A comparison of modes replaces the normal measurement.
    let (json, shown) = if args.http || args.tls || args.chap {
        let compared = if args.http {
            bench.compare_watched(progress)?
        } else {
            bench.compare_protected(args.tls, args.chap, progress)?
        };
        (
            serde_json::json!(compared),
            text::compared(&compared, output::window()),
        )
    } else {
        let results = bench.run(progress)?;
        (
            serde_json::json!(results),
            text::service(&results, output::window()),
        )
    };
    line.finish_and_clear();

    output::result(args.json, || json, || shown)
}

/// Keys that `--set` cannot change here, with the reasons.
const CHOSEN: [(&str, &str); 2] = [
    ("firmware.dedup", "it is measured on and off"),
    ("content", "it is measured with contents and without"),
];
