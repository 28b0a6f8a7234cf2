//! `bench --service`: the device as hosts see it, with both ends on this machine and in this
//! process.
//!
//! Invariants: a number is the median of several rounds; the rounds of different loads alternate,
//! so that a temporarily busy machine slows all of them. Absent: drivers of other hosts.

mod load;
mod rig;
mod watchers;
mod ways;

use super::{Args, median};
use crate::failure::Failure;
use crate::output;
use indicatif::ProgressBar;
use load::{Lane, Load, LoadKind, Until};
use remap_ssd_device::{Device, DeviceConfig, Lpn, Setting};
use remap_ssd_media::PageView;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::{COPY_BYTES_MAX, Latency};
use remap_ssd_nvme::tcp::client::Client;
use remap_ssd_nvme::tls;
use remap_ssd_sim::report::format::bytes;
use rig::{Protection, Rig, Served};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use watchers::Watching;

/// I/O queues, and outstanding commands on each.
const QUEUES: u16 = 2;
const DEPTH_RANDOM: u16 = 32;
const DEPTH_SEQUENTIAL: u16 = 8;
/// Pages of a sequential command: 128 KiB.
const SEQUENTIAL_PAGES: u32 = 32;
/// Share of writes that repeat a content.
const DUPLICATES: f64 = 0.3;

/// Length and number of the rounds.
#[derive(Clone, Copy)]
struct ServiceBenchSize {
    rounds: usize,
    each: Duration,
    /// Bytes of the region used by loads, and of a copy.
    region: u64,
    single_reads: usize,
}

impl ServiceBenchSize {
    fn device_bytes(self) -> u64 {
        self.region * 3
    }
}

/// Rates and times of one device; medians over the rounds.
#[derive(Clone, Debug, Default, Serialize)]
struct Speed {
    random_reads_per_s: f64,
    random_writes_per_s: f64,
    sequential_read_gib_per_s: f64,
    sequential_write_gib_per_s: f64,
    copy_ms: f64,
    remap_ms: f64,
    /// Data pages programmed by all copies and remaps together.
    copy_data_pages: u64,
    /// Pages of these that were remapped.
    copy_remaps: u64,
}

/// Reads at queue depth 1, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
struct Emulated {
    model_us: f64,
    none_p50_us: f64,
    none_p99_us: f64,
    emulated_p50_us: f64,
    emulated_p99_us: f64,
    /// In excess of the model and of `--latency none`.
    deviation_p50_us: f64,
    deviation_p99_us: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Results {
    dedup_off: Speed,
    dedup_on: Speed,
    emulated: Emulated,
    copy_bytes: u64,
    queues: u16,
    queue_depth_random: u16,
    queue_depth_sequential: u16,
    duplicates: f64,
    rounds: usize,
    image: Option<PathBuf>,
}

/// Runs `bench --service`.
///
/// # Errors
/// There is no room for the device, or a command failed.
pub(super) fn command(args: &Args, set: &[Setting], line: &ProgressBar) -> Result<(), Failure> {
    let size = if args.quick {
        ServiceBenchSize {
            rounds: 3,
            each: Duration::from_millis(100),
            region: 64 << 20,
            single_reads: 300,
        }
    } else {
        ServiceBenchSize {
            rounds: 5,
            each: Duration::from_secs(1),
            region: 1 << 30,
            single_reads: 4000,
        }
    };

    // By default in the folder for temporary files; in memory only on request.
    let dir = match (&args.dir, args.memory) {
        (Some(dir), _) => Some(dir.clone()),
        (None, false) => Some(std::env::temp_dir()),
        (None, true) => None,
    };

    let served = |dedup, latency| Served {
        bytes: size.device_bytes(),
        dedup,
        latency,
        dir: dir.as_deref(),
        protection: Protection::default(),
        watching: Watching::default(),
        set,
    };
    if args.tls && !tls::IS_BUILT {
        return Err(Failure::usage(format_args!("--tls: {}", tls::ABSENT)));
    }

    // A comparison of modes replaces the normal measurement.
    if args.tls || args.chap || args.http {
        let served = served(false, Latency::None);
        let ways = if args.http {
            ways::watched(served)
        } else {
            ways::protected(served, args.tls, args.chap)
        };
        let compared = ways::compare(&ways, size, line)?;
        line.finish_and_clear();
        return compared.show(args.json);
    }

    line.set_message("deduplication off");
    let dedup_off = speed(&served(false, Latency::None), size)?;

    line.set_message("deduplication on");
    let dedup_on = speed(&served(true, Latency::None), size)?;

    line.set_message("emulated latency");
    let emulated = emulated(
        &served(false, Latency::None),
        &served(false, Latency::Emulated),
        size,
    )?;

    line.finish_and_clear();

    let results = Results {
        dedup_off,
        dedup_on,
        emulated,
        copy_bytes: size.region,
        queues: QUEUES,
        queue_depth_random: DEPTH_RANDOM,
        queue_depth_sequential: DEPTH_SEQUENTIAL,
        duplicates: DUPLICATES,
        rounds: size.rounds,
        image: dir,
    };

    if args.json {
        output::json(&serde_json::json!(results))
    } else {
        output::text(&as_text(&results))
    }
}

fn speed(served: &Served<'_>, size: ServiceBenchSize) -> Result<Speed, Failure> {
    let mut rig = Rig::new(served)?;
    let mut lanes = Lane::connect(&rig.client, QUEUES)?;
    let region = (size.region / PAGE_BYTES as u64) as u32;
    let loads = loads(region, size);

    warm_up(&mut rig, &mut lanes, size)?;
    let mut rates = [const { Vec::new() }; 4];

    // One round of each load in turn, so that a slow period affects all of them.
    for _ in 0..size.rounds {
        for (load, rates) in loads.iter().zip(&mut rates) {
            let done = load.run(&rig.client, &mut lanes)?;
            rates.push(done.commands as f64 / done.seconds);
        }
    }

    // In the units that matter to hosts: commands for random loads, bytes for sequential ones.
    let [reads, writes, reads_in_order, writes_in_order] = rates.map(median);
    let gib =
        |rate: f64| rate * f64::from(SEQUENTIAL_PAGES) * PAGE_BYTES as f64 / (1u64 << 30) as f64;
    let copies = copies(&mut rig.client, size)?;
    Ok(Speed {
        random_reads_per_s: reads,
        random_writes_per_s: writes,
        sequential_read_gib_per_s: gib(reads_in_order),
        sequential_write_gib_per_s: gib(writes_in_order),
        ..copies
    })
}

/// Random reads and writes, then sequential ones.
fn loads(region: u32, size: ServiceBenchSize) -> [Load; 4] {
    let random = |kind| Load {
        kind,
        pages: 1,
        depth: DEPTH_RANDOM,
        region,
        duplicates: DUPLICATES,
        until: Until::Elapsed(size.each),
    };
    let sequential = |kind| Load {
        pages: SEQUENTIAL_PAGES,
        depth: DEPTH_SEQUENTIAL,
        ..random(kind)
    };

    // Reads come first: writes leave the device collecting garbage.
    [
        random(LoadKind::RandomRead),
        random(LoadKind::RandomWrite),
        sequential(LoadKind::SequentialRead),
        sequential(LoadKind::SequentialWrite),
    ]
}

/// Writes the whole device, then the region again, and trims the rest.
///
/// Flash pages that were never programmed have no memory yet. The speed at which the system
/// provides it varies by a factor of several within minutes, and would distort the loads.
fn warm_up(rig: &mut Rig, lanes: &mut [Lane], size: ServiceBenchSize) -> Result<(), Failure> {
    let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
    let (region, device) = (pages(size.region), pages(size.device_bytes()));

    // The whole device once, so that its flash has memory; then the region again, in order.
    for region in [device, region] {
        let fill = Load {
            kind: LoadKind::SequentialWrite,
            pages: SEQUENTIAL_PAGES,
            depth: DEPTH_SEQUENTIAL,
            region: region as u32,
            duplicates: 0.0,
            until: Until::Once,
        };
        fill.run(&rig.client, lanes)?;
    }

    // Garbage collection would move the pages outside the region for nothing.
    rig.client
        .trim(region, device - region)
        .map_err(Failure::failed)
}

/// Copies the region to the pages after it, by Copy and by Remap.
fn copies(client: &mut Client, size: ServiceBenchSize) -> Result<Speed, Failure> {
    let blocks = size.region / PAGE_BYTES as u64;

    // The number of pages programmed shows whether they were copied or shared.
    let before = counters(client)?;
    let (mut copy, mut remap) = (Vec::new(), Vec::new());

    for _ in 0..size.rounds {
        client.trim(blocks, blocks).map_err(Failure::failed)?;
        let began = Instant::now();
        client.copy(0, blocks, blocks).map_err(Failure::failed)?;
        copy.push(began.elapsed().as_secs_f64() * 1e3);

        // The target is deallocated again, so that neither command depends on the other.
        client.trim(blocks, blocks).map_err(Failure::failed)?;
        let began = Instant::now();
        client
            .remap(0, blocks, blocks as u32, false, false)
            .map_err(Failure::failed)?;
        remap.push(began.elapsed().as_secs_f64() * 1e3);
    }

    let after = counters(client)?;
    let grown = |index: usize| after[index] - before[index];

    Ok(Speed {
        copy_ms: median(copy),
        remap_ms: median(remap),
        copy_data_pages: grown(0),
        copy_remaps: grown(1),
        ..Speed::default()
    })
}

fn counters(client: &mut Client) -> Result<[u64; 2], Failure> {
    let values = client.statistics().map_err(Failure::failed)?;
    let value = |name: &str| {
        values
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, value)| *value)
    };
    Ok([value("data_pages"), value("remaps")])
}

/// Completion time of a single page read on an idle device, by the timing model.
fn model(config: &DeviceConfig) -> Result<Duration, Failure> {
    let config = DeviceConfig {
        // The timing model does not depend on contents, and identities need no memory.
        content: remap_ssd_media::ContentMode::Identity,
        ..config.clone()
    };
    let mut device = Device::format(config).map_err(Failure::failed)?;
    device.write(0, Lpn(0), &remap_ssd_media::Payload::Identity(1));
    // Long after the write, so that the device is idle.
    let later = 1_000_000_000;
    let (done_at, _) = device.view(later, Lpn(0), |page| {
        assert_eq!(page, PageView::Identity(1))
    });
    Ok(Duration::from_nanos(done_at - later))
}

fn emulated(
    none: &Served<'_>,
    emulated: &Served<'_>,
    size: ServiceBenchSize,
) -> Result<Emulated, Failure> {
    // Small enough that random reads hit the machine's caches.
    let region = (size.region / 16 / PAGE_BYTES as u64) as u32;

    let start = |served: &Served<'_>| {
        let rig = Rig::new(&Served {
            bytes: size.region,
            ..*served
        })?;
        let mut lanes = Lane::connect(&rig.client, 1)?;

        let fill = Load {
            kind: LoadKind::SequentialWrite,
            pages: SEQUENTIAL_PAGES,
            depth: 1,
            region,
            duplicates: 0.0,
            until: Until::Once,
        };
        fill.run(&rig.client, &mut lanes)?;
        Ok::<_, Failure>((rig, lanes))
    };

    let mut pair = [start(none)?, start(emulated)?];
    let model = model(&pair[1].0.config)?.as_secs_f64() * 1e6;
    let mut quantiles = [const { [const { Vec::new() }; 2] }; 2];

    for _ in 0..size.rounds {
        for ((rig, lanes), quantiles) in pair.iter_mut().zip(&mut quantiles) {
            let mut took = lanes[0].read_singly(&rig.client, region, size.single_reads)?;
            // Sorted for the quantiles; the order of the reads does not matter.
            took.sort_unstable();

            let at =
                |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
            quantiles[0].push(at(0.5));
            quantiles[1].push(at(0.99));
        }
    }

    let [[none_p50, none_p99], [emulated_p50, emulated_p99]] =
        quantiles.map(|both| both.map(median));

    Ok(Emulated {
        model_us: model,
        none_p50_us: none_p50,
        none_p99_us: none_p99,
        emulated_p50_us: emulated_p50,
        emulated_p99_us: emulated_p99,
        // Excess of emulation over the model and the transport.
        deviation_p50_us: emulated_p50 - model - none_p50,
        deviation_p99_us: emulated_p99 - model - none_p99,
    })
}

fn as_text(results: &Results) -> String {
    let place = match &results.image {
        Some(dir) => format!("an image in {}", dir.display()),
        None => "memory".into(),
    };

    // The conditions of a figure are stated above it.
    let mut text = format!(
        "NVMe/TCP on the loopback, both ends on this machine, the device in {place}; medians of {} rounds.\n\
         Random: 4 KiB, {} queues of {}; sequential: 128 KiB, {} queues of {}; {:.0} % of the writes repeat a content.\n\
         Copy is commands of {}, one after the other; Remap is one command.\n\n",
        results.rounds,
        results.queues,
        results.queue_depth_random,
        results.queues,
        results.queue_depth_sequential,
        results.duplicates * 100.0,
        bytes(COPY_BYTES_MAX),
    );

    let row = |name: &str, speed: &Speed| {
        vec![
            name.to_owned(),
            format!("{:.1} k", speed.random_reads_per_s / 1e3),
            format!("{:.1} k", speed.random_writes_per_s / 1e3),
            format!("{:.2}", speed.sequential_read_gib_per_s),
            format!("{:.2}", speed.sequential_write_gib_per_s),
            format!("{:.1}", speed.copy_ms),
            format!("{:.1}", speed.remap_ms),
            speed.copy_data_pages.to_string(),
        ]
    };

    let (copy, remap) = (
        format!("Copy {} ms", bytes(results.copy_bytes)),
        format!("Remap {} ms", bytes(results.copy_bytes)),
    );
    let head = [
        "",
        "reads/s",
        "writes/s",
        "GiB/s read",
        "GiB/s written",
        copy.as_str(),
        remap.as_str(),
        "pages programmed by these",
    ];

    let rows = [
        row("deduplication off", &results.dedup_off),
        row("deduplication on", &results.dedup_on),
    ];
    text.push_str(&output::table(&head, &rows));

    // Both latency modes, compared with the model of the flash.
    let e = &results.emulated;
    text.push_str(&format!(
        "\nOne read at a time, µs: the model says {:.1}. Median {:.1} emulated, {:.1} without: {:+.1} from the model.\n\
         99th percentile {:.1} emulated, {:.1} without: {:+.1} from the model.\n",
        e.model_us,
        e.emulated_p50_us,
        e.none_p50_us,
        e.deviation_p50_us,
        e.emulated_p99_us,
        e.none_p99_us,
        e.deviation_p99_us,
    ));
    text
}
