//! The device as hosts see it, with both ends on this machine and in this process.
//!
//! Invariants: a number is the median of several rounds; the rounds of different loads alternate,
//! so that a temporarily busy machine slows all of them. Absent: drivers of other hosts.

mod load;
mod rig;
mod watchers;
mod ways;

use crate::{BenchError, Progress, median};
use load::{Lane, Load, LoadKind, Until};
use remap_ssd_device::{Device, DeviceConfig, Lpn, Setting};
use remap_ssd_media::PageView;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::Latency;
use remap_ssd_nvme::tcp::client::Client;
use rig::{Protection, Rig, Served};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use watchers::Watching;
pub use ways::{Compared, ServingFigures};

/// I/O queues, and outstanding commands on each.
const QUEUES: u16 = 2;
const DEPTH_RANDOM: u16 = 32;
const DEPTH_SEQUENTIAL: u16 = 8;
/// Pages of a sequential command: 128 KiB.
const SEQUENTIAL_PAGES: u32 = 32;
/// Share of writes that repeat a content.
const DUPLICATES: f64 = 0.3;

/// Length and number of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct ServiceBenchSize {
    rounds: usize,
    each: Duration,
    /// Bytes of the region used by loads, and of a copy.
    region: u64,
    single_reads: usize,
}

impl ServiceBenchSize {
    /// 5 rounds of a second, with a device of 3 GiB.
    pub const FULL: Self = Self {
        rounds: 5,
        each: Duration::from_secs(1),
        region: 1 << 30,
        single_reads: 4000,
    };
    /// 3 short rounds, with a device of 192 MiB.
    pub const QUICK: Self = Self {
        rounds: 3,
        each: Duration::from_millis(100),
        region: 64 << 20,
        single_reads: 300,
    };

    fn device_bytes(self) -> u64 {
        self.region * 3
    }
}

/// Rates and times of one device; medians over the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Speed {
    /// Random reads of 4 KiB a second.
    pub random_reads_per_s: f64,
    /// Random writes of 4 KiB a second.
    pub random_writes_per_s: f64,
    /// GiB a second, in commands of 128 KiB.
    pub sequential_read_gib_per_s: f64,
    /// GiB a second, in commands of 128 KiB.
    pub sequential_write_gib_per_s: f64,
    /// Milliseconds to copy the region by Copy.
    pub copy_ms: f64,
    /// Milliseconds to copy the region by Remap.
    pub remap_ms: f64,
    /// Data pages programmed by all copies and remaps together.
    pub copy_data_pages: u64,
    /// Pages of these that were remapped.
    pub copy_remaps: u64,
}

/// Reads at queue depth 1, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Emulated {
    /// Duration of a read by the timing model.
    pub model_us: f64,
    /// Median without emulation.
    pub none_p50_us: f64,
    /// 99th percentile without emulation.
    pub none_p99_us: f64,
    /// Median with emulation.
    pub emulated_p50_us: f64,
    /// 99th percentile with emulation.
    pub emulated_p99_us: f64,
    /// Excess of the median over the model and the time without emulation.
    pub deviation_p50_us: f64,
    /// The same of the 99th percentile.
    pub deviation_p99_us: f64,
}

/// Measurements of a served device.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Without deduplication.
    pub dedup_off: Speed,
    /// With deduplication.
    pub dedup_on: Speed,
    /// Emulated latency.
    pub emulated: Emulated,
    /// Bytes of a copy.
    pub copy_bytes: u64,
    /// I/O queues.
    pub queues: u16,
    /// Outstanding random commands on each queue.
    pub queue_depth_random: u16,
    /// Outstanding sequential commands on each queue.
    pub queue_depth_sequential: u16,
    /// Share of writes that repeat a content.
    pub duplicates: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Folder of the image; none in memory.
    pub image: Option<PathBuf>,
}

/// A served device to measure.
#[derive(Clone, Copy)]
pub struct ServiceBench<'a> {
    /// Folder of its image; in memory if none.
    pub dir: Option<&'a Path>,
    /// Settings other than those of a normal served device.
    pub set: &'a [Setting],
    /// Length and number of the rounds.
    pub size: ServiceBenchSize,
}

impl<'a> ServiceBench<'a> {
    fn served(&self, dedup: bool, latency: Latency) -> Served<'a> {
        Served {
            bytes: self.size.device_bytes(),
            dedup,
            latency,
            dir: self.dir,
            protection: Protection::default(),
            watching: Watching::default(),
            set: self.set,
        }
    }

    /// Measures reads, writes and copies, with deduplication and without, and emulated latencies.
    ///
    /// # Errors
    /// There is no room for the device, or a command failed.
    pub fn run(&self, progress: Progress<'_>) -> Result<Results, BenchError> {
        let size = self.size;
        progress("deduplication off".into());
        let dedup_off = speed(&self.served(false, Latency::None), size)?;

        progress("deduplication on".into());
        let dedup_on = speed(&self.served(true, Latency::None), size)?;

        progress("emulated latency".into());
        let emulated = emulated(
            &self.served(false, Latency::None),
            &self.served(false, Latency::Emulated),
            size,
        )?;

        Ok(Results {
            dedup_off,
            dedup_on,
            emulated,
            copy_bytes: size.region,
            queues: QUEUES,
            queue_depth_random: DEPTH_RANDOM,
            queue_depth_sequential: DEPTH_SEQUENTIAL,
            duplicates: DUPLICATES,
            rounds: size.rounds,
            image: self.dir.map(Path::to_owned),
        })
    }

    /// Compares hosts that use TLS, authenticate, or both, with one that does neither.
    ///
    /// # Errors
    /// As in `run`.
    pub fn compare_protected(
        &self,
        tls: bool,
        chap: bool,
        progress: Progress<'_>,
    ) -> Result<Compared, BenchError> {
        let ways = ways::protected(self.served(false, Latency::None), tls, chap);
        ways::compare(&ways, self.size, progress)
    }

    /// Compares a device whose metrics are scraped, and whose live page is open, with one that is
    /// not observed.
    ///
    /// # Errors
    /// As in `run`.
    pub fn compare_watched(&self, progress: Progress<'_>) -> Result<Compared, BenchError> {
        let ways = ways::watched(self.served(false, Latency::None));
        ways::compare(&ways, self.size, progress)
    }
}

fn speed(served: &Served<'_>, size: ServiceBenchSize) -> Result<Speed, BenchError> {
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
fn warm_up(rig: &mut Rig, lanes: &mut [Lane], size: ServiceBenchSize) -> Result<(), BenchError> {
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
        .map_err(BenchError::failed)
}

/// Copies the region to the pages after it, by Copy and by Remap.
fn copies(client: &mut Client, size: ServiceBenchSize) -> Result<Speed, BenchError> {
    let blocks = size.region / PAGE_BYTES as u64;

    // The number of pages programmed shows whether they were copied or shared.
    let before = counters(client)?;
    let (mut copy, mut remap) = (Vec::new(), Vec::new());

    for _ in 0..size.rounds {
        client.trim(blocks, blocks).map_err(BenchError::failed)?;
        let began = Instant::now();
        client.copy(0, blocks, blocks).map_err(BenchError::failed)?;
        copy.push(began.elapsed().as_secs_f64() * 1e3);

        // The target is deallocated again, so that neither command depends on the other.
        client.trim(blocks, blocks).map_err(BenchError::failed)?;
        let began = Instant::now();
        client
            .remap(0, blocks, blocks as u32, false, false)
            .map_err(BenchError::failed)?;
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

fn counters(client: &mut Client) -> Result<[u64; 2], BenchError> {
    let values = client.statistics().map_err(BenchError::failed)?;
    let value = |name: &str| {
        values
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, value)| *value)
    };
    Ok([value("data_pages"), value("remaps")])
}

/// Completion time of a single page read on an idle device, by the timing model.
fn model(config: &DeviceConfig) -> Result<Duration, BenchError> {
    let config = DeviceConfig {
        // The timing model does not depend on contents, and identities need no memory.
        content: remap_ssd_media::ContentMode::Identity,
        ..config.clone()
    };
    let mut device = Device::format(config).map_err(BenchError::failed)?;
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
) -> Result<Emulated, BenchError> {
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
        Ok::<_, BenchError>((rig, lanes))
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
