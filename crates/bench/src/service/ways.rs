//! The cost of authentication and encryption, and of observing the device.
//!
//! Invariant: the modes alternate, load by load, so that a temporarily busy machine slows all of
//! them; the comparison uses the median of the ratios of each round. Absent: drivers of other
//! hosts, and networks.

use super::load::{Lane, Load};
use super::rig::{Protection, Rig, Served};
use super::watchers::Watching;
use super::{QUEUES, SEQUENTIAL_PAGES, ServiceBenchSize, loads, warm_up};
use crate::{BenchError, Progress, median};
use remap_ssd_media::geometry::PAGE_BYTES;
use serde::Serialize;

/// Connections timed per round.
const CONNECTS: usize = 20;

/// Results of one mode; all are medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct ServingFigures {
    /// Its name.
    pub name: &'static str,
    /// Random reads of 4 KiB a second.
    pub random_reads_per_s: f64,
    /// Random writes of 4 KiB a second.
    pub random_writes_per_s: f64,
    /// GiB a second, in commands of 128 KiB.
    pub sequential_read_gib_per_s: f64,
    /// GiB a second, in commands of 128 KiB.
    pub sequential_write_gib_per_s: f64,
    /// Time to connect both queues of a host.
    pub connect_ms: f64,
    /// Ratios of the four rates above, in order, to those of the first mode: medians over the
    /// rounds.
    pub ratios: [f64; 4],
    /// Processor time of both ends per command, in the same order; it depends less on a busy
    /// machine than the rates.
    pub processor_us: [f64; 4],
}

/// All modes, beginning with the plain one.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The modes.
    pub ways: Vec<ServingFigures>,
    /// Number of rounds.
    pub rounds: usize,
}

/// A running mode.
struct Lap {
    name: &'static str,
    rig: Rig,
    lanes: Vec<Lane>,
    rates: [Vec<f64>; 4],
    processor_us: [Vec<f64>; 4],
    connects: Vec<f64>,
}

impl Lap {
    fn start(
        name: &'static str,
        served: &Served<'_>,
        size: ServiceBenchSize,
    ) -> Result<Self, BenchError> {
        let mut rig = Rig::new(served)?;
        let mut lanes = Lane::connect(&rig.client, QUEUES)?;

        // Each mode starts with a device in the same state.
        warm_up(&mut rig, &mut lanes, size)?;
        Ok(Self {
            name,
            rig,
            lanes,
            rates: Default::default(),
            processor_us: Default::default(),
            connects: Vec::new(),
        })
    }

    fn run(&mut self, index: usize, load: &Load) -> Result<(), BenchError> {
        let done = load.run(&self.rig.client, &mut self.lanes)?;
        self.rates[index].push(done.commands as f64 / done.seconds);
        self.processor_us[index].push(done.processor_seconds * 1e6 / done.commands as f64);
        Ok(())
    }

    fn connect(&mut self) -> Result<(), BenchError> {
        for _ in 0..CONNECTS {
            self.connects
                .push(self.rig.connecting()?.as_secs_f64() * 1e3);
        }
        Ok(())
    }

    fn way(&self, bare: &Self) -> ServingFigures {
        // Per round, before the median: both parts of a ratio were measured in the same minute.
        let ratios = [0, 1, 2, 3].map(|load| {
            let pairs = self.rates[load].iter().zip(&bare.rates[load]);
            median(pairs.map(|(own, bare)| own / bare).collect())
        });

        let [reads, writes, reads_in_order, writes_in_order] = self.rates.clone().map(median);
        let bytes = f64::from(SEQUENTIAL_PAGES) * PAGE_BYTES as f64;
        let gib = |rate: f64| rate * bytes / (1u64 << 30) as f64;

        ServingFigures {
            name: self.name,
            random_reads_per_s: reads,
            random_writes_per_s: writes,
            sequential_read_gib_per_s: gib(reads_in_order),
            sequential_write_gib_per_s: gib(writes_in_order),
            connect_ms: median(self.connects.clone()),
            ratios,
            processor_us: self.processor_us.clone().map(median),
        }
    }
}

/// A mode and its name.
pub(crate) type NamedWay<'a> = (&'static str, Served<'a>);

/// Modes with different proofs, beginning with none.
pub(crate) fn protected(served: Served<'_>, tls: bool, chap: bool) -> Vec<NamedWay<'_>> {
    let ways = [
        (true, "neither", [false, false]),
        (chap, "DH-HMAC-CHAP", [false, true]),
        (tls, "TLS", [true, false]),
        (tls && chap, "both", [true, true]),
    ];

    let wanted = ways.into_iter().filter(|(is_wanted, ..)| *is_wanted);
    wanted
        .map(|(_, name, [tls, chap])| {
            let protection = Protection { tls, chap };
            (
                name,
                Served {
                    protection,
                    ..served
                },
            )
        })
        .collect()
}

/// Modes with different observers, beginning with none.
pub(crate) fn watched(served: Served<'_>) -> Vec<NamedWay<'_>> {
    let ways = [
        ("neither", [false, false]),
        ("metrics scraped", [true, false]),
        ("and the page open", [true, true]),
    ];
    ways.into_iter()
        .map(|(name, [metrics, page])| {
            let watching = Watching { metrics, page };
            (name, Served { watching, ..served })
        })
        .collect()
}

/// Measures all modes, alternating.
pub(crate) fn compare(
    ways: &[NamedWay<'_>],
    size: ServiceBenchSize,
    progress: Progress<'_>,
) -> Result<Compared, BenchError> {
    progress("starting".into());
    let mut laps: Vec<Lap> = ways
        .iter()
        .map(|(name, served)| Lap::start(name, served, size))
        .collect::<Result<_, _>>()?;

    let region = (size.region / PAGE_BYTES as u64) as u32;
    // All modes in every round, load by load.
    for round in 0..size.rounds {
        progress(format!("round {}", round + 1));
        for (index, load) in loads(region, size).iter().enumerate() {
            for lap in &mut laps {
                lap.run(index, load)?;
            }
        }
        laps.iter_mut().try_for_each(Lap::connect)?;
    }

    Ok(Compared {
        ways: laps.iter().map(|lap| lap.way(&laps[0])).collect(),
        rounds: size.rounds,
    })
}
