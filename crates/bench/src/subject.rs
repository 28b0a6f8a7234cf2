//! The measured subjects: a device in steady state and the bare arrays, with the same input.
//!
//! Pages are generated in batches outside the timed sections and submitted one by one with the
//! look-ahead of a normal run. Virtual time is a closed loop of 32: a page enters when the page 32
//! positions earlier has completed, or with the engine `nand` when any of those in flight has.
//!
//! Invariant: timed sections contain only submissions. Absent: medians and presentation.

use crate::BenchError;
use crate::bare::Bare;
use remap_ssd_device::{Device, DeviceConfig, LOOK_AHEAD_FAR, LOOK_AHEAD_NEAR, PageCommand};
use remap_ssd_media::ContentMode;
use remap_ssd_sim::aging::{AgingOptions, age};
use remap_ssd_sim::run::{RunOptions, run};
use remap_ssd_sim::source::{HostPage, Source};
use remap_ssd_sim::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use std::ops::ControlFlow;
use std::time::Instant;

/// Pages generated at a time.
const BATCH: usize = 1 << 18;
const DEPTH: usize = 32;
/// Garbage collection is steady when its pages per host page change by less than this between
/// windows.
const STEADY: f64 = 0.03;
/// Warm-up windows: a quarter of the addressable pages each.
const WINDOWS: std::ops::Range<u32> = 4..24;

/// Work done in timed sections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Seconds of the timed sections.
    pub seconds: f64,
    /// Pages written by the host.
    pub host_pages: u64,
    /// Flash pages programmed.
    pub programs: u64,
    /// Host pages and pages moved by garbage collection.
    pub page_ops: u64,
}

/// Cost of a run, by the clocks of its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunWork {
    /// Work and wall-clock time.
    pub work: Work,
    /// Processor time of the thread that draws pages and keeps time; with one thread, the total.
    pub times_s: f64,
    /// Busy time of the firmware's thread, in seconds.
    pub firmware_s: f64,
}

/// Durations of several recoveries, in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recoveries {
    /// Of the mappings, which hosts read.
    pub mappings: Vec<f64>,
    /// Including the fingerprint store.
    pub with_store: Vec<f64>,
}

/// Processor time of this thread, in seconds; 0 if the system does not report it.
fn thread_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    ns.unwrap_or(0.0) / 1e9
}

/// Processor time of all threads, including ended ones, in seconds, with a resolution of 0.01 s.
fn process_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in parentheses, may contain anything.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    // Ticks are hundredths of a second (USER_HZ).
    ticks.sum::<f64>() / 100.0
}

/// A source of page commands, batch by batch.
pub(crate) struct CommandSource {
    workload: Workload,
    pages: Vec<HostPage>,
    commands: Vec<PageCommand>,
}

impl CommandSource {
    /// Random writes with 30 % duplicates (published definition).
    pub(crate) fn new(addressable: u64, seed: u64) -> Result<Self, BenchError> {
        let config = WorkloadConfig {
            pattern: Pattern::Random,
            read_percent: 0,
            request_pages: 1,
            content: ContentModel::Papers {
                duplicate_ratio: 0.3,
                exponent: ContentModel::PAPERS_EXPONENT,
            },
            addressable,
            seed,
            content_base: 0,
        };

        let workload = Workload::new(config).map_err(BenchError::impossible)?;
        let mut feed = Self {
            workload,
            pages: Vec::new(),
            commands: Vec::new(),
        };

        // The buffers have their size before any memory is measured.
        feed.next_batch(BATCH)?;

        Ok(feed)
    }

    /// Drawn outside the timed sections: part of the simulator, not of the device.
    fn next_batch(&mut self, pages: usize) -> Result<&[PageCommand], BenchError> {
        self.pages.clear();
        self.workload
            .fill(&mut self.pages, pages)
            .map_err(BenchError::failed)?;
        self.commands.clear();
        let command = |page: &HostPage| PageCommand {
            content: page.content,
            lpn: page.lpn,
            kind: page.kind,
        };
        self.commands.extend(self.pages.iter().map(command));
        Ok(&self.commands)
    }
}

/// A device under measurement.
pub(crate) struct Subject {
    device: Device,
    /// Completion times of the last pages.
    done: [u64; DEPTH],
    /// With the engine `nand`: numbers that no request in flight has.
    free: Vec<u32>,
    now: u64,
    /// Seconds of aging.
    pub aging_s: f64,
    /// Pages written during warm-up.
    pub warm_up_pages: u64,
}

impl Subject {
    /// Creates, ages and warms up a device.
    ///
    /// # Errors
    /// Invalid device configuration.
    pub(crate) fn new(config: DeviceConfig, feed: &mut CommandSource) -> Result<Self, BenchError> {
        let mut device = Device::format(config).map_err(BenchError::impossible)?;
        let began = Instant::now();
        age(&mut device, &mut feed.workload, &AgingOptions::default())
            .map_err(BenchError::failed)?;
        let aging_s = began.elapsed().as_secs_f64();
        let mut subject = Self {
            device,
            done: [0; DEPTH],
            free: (0..DEPTH as u32).collect(),
            now: 0,
            aging_s,
            warm_up_pages: 0,
        };
        subject.warm_up(feed)?;
        Ok(subject)
    }

    fn warm_up(&mut self, feed: &mut CommandSource) -> Result<(), BenchError> {
        let window = (self.device.config().addressable_lpns() / 4).max(1);
        // Until two consecutive windows move about the same number of pages: steady state.
        let mut before = f64::NAN;
        for number in 0..WINDOWS.end {
            let work = self.measure(feed, window)?;
            self.warm_up_pages += work.host_pages;
            let moved = work.page_ops as f64 / work.host_pages as f64;
            if number >= WINDOWS.start && (moved / before - 1.0).abs() < STEADY {
                break;
            }
            before = moved;
        }
        Ok(())
    }

    /// Submits `pages` pages.
    ///
    /// # Errors
    /// The device refuses one.
    pub(crate) fn measure(
        &mut self,
        feed: &mut CommandSource,
        pages: u64,
    ) -> Result<Work, BenchError> {
        let stats = self.device.ftl().stats();
        let programs = self.device.ftl().media().counts.programs;

        let (mut seconds, mut left) = (0.0, pages);

        while left > 0 {
            let commands = feed.next_batch(left.min(BATCH as u64) as usize)?;
            left -= commands.len() as u64;

            // Only the commands are timed.
            let began = Instant::now();
            let refused = if self.device.nand().is_some() {
                self.queue_all(commands)
            } else {
                self.submit_all(commands)
            };
            seconds += began.elapsed().as_secs_f64();

            if refused > 0 {
                return Err(BenchError::Failed(format!(
                    "the device refused {refused} pages"
                )));
            }
        }

        let did = self.device.ftl().stats() - stats;
        let programs = self.device.ftl().media().counts.programs - programs;

        Ok(Work {
            seconds,
            host_pages: did.host_writes,
            programs,
            page_ops: did.host_writes + did.gc_programs,
        })
    }

    #[inline(never)]
    fn submit_all(&mut self, commands: &[PageCommand]) -> u64 {
        let mut refused = 0;
        for (index, command) in commands.iter().enumerate() {
            self.device.look_ahead(commands, index, |command| *command);
            // The page replaced in the queue has completed by then: a closed loop.
            let place = &mut self.done[index % DEPTH];
            self.now = self.now.max(*place);
            let completion = self.device.submit(self.now, command);
            *place = completion.done_at;
            refused += u64::from(completion.result.is_err());
        }
        refused
    }

    /// The same where requests end when their time has come.
    #[inline(never)]
    fn queue_all(&mut self, commands: &[PageCommand]) -> u64 {
        let mut refused = 0;
        for (index, command) in commands.iter().enumerate() {
            self.device.look_ahead(commands, index, |command| *command);
            let nand = self.device.nand().expect("the engine is nand");
            let request = self.free.pop().unwrap_or_else(|| {
                let end = nand.next_end().expect("requests are in flight");
                self.now = self.now.max(end.at);
                end.request
            });
            nand.open(request);
            let result = self.device.submit_part(request, self.now, command, false);
            let nand = self.device.nand().expect("the engine is nand");
            nand.close(request);
            refused += u64::from(result.is_err());
        }
        refused
    }

    /// A whole run of `pages` pages, including drawing them and all measurements.
    ///
    /// # Errors
    /// The device refuses a page.
    pub(crate) fn run(
        &mut self,
        feed: &mut CommandSource,
        pages: u64,
        threads: u32,
    ) -> Result<RunWork, BenchError> {
        let stats = self.device.ftl().stats();
        let programs = self.device.ftl().media().counts.programs;
        let options = RunOptions {
            pages: Some(pages),
            queue_depth: DEPTH as u32,
            threads,
            ..RunOptions::default()
        };

        // Three clocks: wall time, processor time of all threads, and of this one, which computes
        // the times.
        let (began, all, own) = (Instant::now(), process_s(), thread_s());
        let summary = run(&mut self.device, &mut feed.workload, &options, &mut |_| {
            ControlFlow::Continue(())
        })
        .map_err(BenchError::failed)?;
        let seconds = began.elapsed().as_secs_f64();
        let (own, all) = (thread_s() - own, process_s() - all);
        if !summary.requests.refused.is_empty() {
            return Err(BenchError::failed("the device refused pages of a run"));
        }

        // The next measurement continues at the end of the run.
        self.now = self.device.busy_until();
        self.free = (0..DEPTH as u32).collect();
        let did = self.device.ftl().stats() - stats;
        Ok(RunWork {
            work: Work {
                seconds,
                host_pages: did.host_writes,
                programs: self.device.ftl().media().counts.programs - programs,
                page_ops: did.host_writes + did.gc_programs,
            },
            times_s: own,
            firmware_s: (all - own).max(0.0),
        })
    }

    /// The device, for inspection between runs.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Recovers the device from its media several times, without and with its fingerprint store.
    ///
    /// # Errors
    /// It cannot be recovered.
    pub(crate) fn recover(self, rounds: u32) -> Result<Recoveries, BenchError> {
        let with_store = self.device.config().clone();
        let mut mappings = with_store.clone();
        mappings.firmware.dedup = false;

        let mut media = self.device.into_media();
        let mut recoveries = Recoveries::default();
        // Each recovery uses the same media, and returns them.
        for _ in 0..rounds {
            for (config, seconds) in [
                (&mappings, &mut recoveries.mappings),
                (&with_store, &mut recoveries.with_store),
            ] {
                let began = Instant::now();
                let (device, _) =
                    Device::recover(media, config.clone()).map_err(BenchError::failed)?;
                seconds.push(began.elapsed().as_secs_f64());
                media = device.into_media();
            }
        }
        Ok(recoveries)
    }
}

/// The bare arrays with the same addresses, warmed up.
pub(crate) struct BareSubject(Bare);

impl BareSubject {
    /// Fills and warms up the arrays.
    ///
    /// # Errors
    /// The workload ends.
    pub(crate) fn new(config: &DeviceConfig, feed: &mut CommandSource) -> Result<Self, BenchError> {
        let gc_start = config.firmware.gc_start(&config.geometry);
        let mut bare = Self(Bare::new(config.geometry, config.firmware.lpns, gc_start));
        let addressable = config.addressable_lpns();
        // All flash once, then three times the addressable pages: garbage collection is steady by
        // then.
        bare.measure(feed, 3 * addressable + u64::from(config.geometry.pages()))?;
        Ok(bare)
    }

    /// Writes `pages` pages.
    ///
    /// # Errors
    /// The workload ends.
    pub(crate) fn measure(
        &mut self,
        feed: &mut CommandSource,
        pages: u64,
    ) -> Result<Work, BenchError> {
        let moves = self.0.moves;
        let (mut seconds, mut left) = (0.0, pages);
        while left > 0 {
            let commands = feed.next_batch(left.min(BATCH as u64) as usize)?;
            left -= commands.len() as u64;
            let began = Instant::now();
            self.write_all(commands);
            seconds += began.elapsed().as_secs_f64();
        }
        let page_ops = pages + self.0.moves - moves;
        Ok(Work {
            seconds,
            host_pages: pages,
            programs: page_ops,
            page_ops,
        })
    }

    #[inline(never)]
    fn write_all(&mut self, commands: &[PageCommand]) {
        for (index, command) in commands.iter().enumerate() {
            if let Some(far) = commands.get(index + LOOK_AHEAD_FAR) {
                self.0.look_ahead_far(far.lpn.unit(0));
                self.0
                    .look_ahead_near(commands[index + LOOK_AHEAD_NEAR].lpn.unit(0));
            }
            self.0.write(command.lpn.unit(0));
        }
    }
}

/// The same device without deduplication and without stored contents.
pub(crate) fn without_dedup(mut config: DeviceConfig) -> DeviceConfig {
    config.firmware.dedup = false;
    config.content = ContentMode::None;
    config
}
