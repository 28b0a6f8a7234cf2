//! Host software on a simulated device, in virtual time: the unmodified schemes of `hosts/dedup`
//! under a load.
//!
//! A host issues its requests one after the other, as fast as the device's queue accepts them. A
//! request *enters* its window when it is issued and is *done* when the window is, which is how
//! Copyless Copy measures latency; then the next window begins. Before the measurement the disk is
//! written (with as many requests), closed and reopened.
//!
//! Invariants: the real library runs, and all its I/O is charged; the same run gives the same
//! result. Absent: processor time of the host.

mod load;
mod timed;

use crate::RunError;
use crate::grid::GridRun;
use load::{Load, LoadSpec, Request};
use remap_ssd_dedup::{Ccaw, CcawOptions, NewDedup, OrderMerge, OrderMergeOptions, Statistics};
use remap_ssd_device::{Device, Disk};
use remap_ssd_media::geometry::PAGE_BYTES;
use serde_json::{Value, json};
use timed::{TimedDisk, page};

/// Measured requests are a multiple of this: the longest window.
const WINDOW_MAX: u64 = 1000;
/// Quantiles of a latency distribution.
const QUANTILES: usize = 200;

/// Host software on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// None: plain writes, and the window's flush.
    Plain,
    /// CCAW: duplicates become copies, which the device remaps.
    Ccaw,
    /// OrderMergeDedup: its own mappings and counts, on any device.
    OrderMerge,
}

/// A run's workload: `plain`, `ccaw` or `ordermerge`, `,window=N`, `,compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostSpec {
    arm: Arm,
    window: u32,
    compare: bool,
}

impl HostSpec {
    fn parse(text: &str) -> Result<Self, RunError> {
        let wrong = || {
            format!(
                "unknown host software `{text}`: plain, ccaw or ordermerge, `,window=N`, `,compare`"
            )
        };

        let mut fields = text.split(',');
        let arm = match fields.next() {
            Some("plain") => Arm::Plain,
            Some("ccaw") => Arm::Ccaw,
            Some("ordermerge") => Arm::OrderMerge,
            _ => return Err(wrong().into()),
        };

        let mut spec = Self {
            arm,
            window: 0,
            compare: false,
        };

        for field in fields {
            match field.strip_prefix("window=") {
                Some(window) => {
                    // Divisors of the longest window: the same number of writes fills all windows.
                    let known = |window: &u32| {
                        *window == 0 || WINDOW_MAX.is_multiple_of(u64::from(*window))
                    };
                    spec.window = window.parse().ok().filter(known).ok_or_else(wrong)?;
                }
                None if field == "compare" => spec.compare = true,
                None => return Err(wrong().into()),
            }
        }

        Ok(spec)
    }
}

/// Checks that the run is possible.
///
/// # Errors
/// One sentence: why not.
pub(crate) fn check(run: &GridRun) -> Result<(), RunError> {
    HostSpec::parse(&run.workload)?;
    Load::new(
        run.content.parse()?,
        run.device.addressable_units(),
        run.seed,
    )
    .map(drop)
}

/// The disk under load.
enum Subject {
    Plain {
        disk: Box<TimedDisk>,
        window: u32,
        used: u32,
    },
    Ccaw(Box<Ccaw<TimedDisk>>),
    OrderMerge(Box<OrderMerge<TimedDisk>>),
}

impl Subject {
    /// Creates the disk on a new device, for this number of pages, or opens it on a used one.
    fn new(spec: HostSpec, mut disk: TimedDisk, pages: u32, first: bool) -> Result<Self, RunError> {
        let HostSpec {
            arm,
            window,
            compare,
        } = spec;

        // The table and the records take less than a 64th.
        let used = (u64::from(pages) + u64::from(pages) / 64 + 2048).min(disk.pages());

        // Reads during opening are not measured, but waited for.
        disk.reads_wait = true;

        let new = NewDedup {
            pages: Some(used),
            force: true,
            // Arbitrary but constant: it is in all checksums.
            identity: Some([7; 16]),
            ..NewDedup::default()
        };

        let ccaw = CcawOptions {
            window,
            compare: Some(compare),
            // 255 stands for a table without limit.
            shared_max: disk.device().config().firmware.count_max.min(254) as u8,
            ..CcawOptions::default()
        };
        let order_merge = OrderMergeOptions {
            window,
            compare: Some(compare),
            ..OrderMergeOptions::default()
        };

        let subject = match (arm, first) {
            (Arm::Plain, _) => Self::Plain {
                disk: Box::new(disk),
                window,
                used: 0,
            },
            (Arm::Ccaw, true) => {
                Self::Ccaw(Box::new(Ccaw::create(disk, &new, ccaw, &mut |_, _| {})?))
            }
            (Arm::Ccaw, false) => Self::Ccaw(Box::new(Ccaw::open(disk, ccaw)?)),
            (Arm::OrderMerge, true) => Self::OrderMerge(Box::new(OrderMerge::create(
                disk,
                &new,
                order_merge,
                &mut |_, _| {},
            )?)),
            (Arm::OrderMerge, false) => {
                Self::OrderMerge(Box::new(OrderMerge::open(disk, order_merge)?))
            }
        };

        if subject.pages() >= u64::from(pages) {
            Ok(subject)
        } else {
            Err(format!(
                "{} pages of {pages} are left beside the metadata",
                subject.pages()
            )
            .into())
        }
    }

    fn pages(&self) -> u64 {
        match self {
            Self::Plain { disk, .. } => disk.pages(),
            Self::Ccaw(disk) => disk.pages(),
            Self::OrderMerge(disk) => disk.pages(),
        }
    }

    fn timed(&mut self) -> &mut TimedDisk {
        match self {
            Self::Plain { disk, .. } => disk,
            Self::Ccaw(disk) => disk.disk_mut(),
            Self::OrderMerge(disk) => disk.disk_mut(),
        }
    }

    fn write(&mut self, at: u32, content: u64) -> Result<(), RunError> {
        let bytes = page(content);

        match self {
            Self::Plain { disk, window, used } => {
                disk.write(at.into(), &bytes)?;
                *used += 1;
                if *used == *window {
                    *used = 0;
                    disk.flush()?;
                }
                Ok(())
            }

            Self::Ccaw(disk) => Ok(disk.write(at.into(), &bytes)?),
            Self::OrderMerge(disk) => Ok(disk.write(at.into(), &bytes)?),
        }
    }

    /// Reads a page without waiting for the data.
    fn read(&mut self, at: u32) -> Result<(), RunError> {
        let mut bytes = [0; PAGE_BYTES];
        self.timed().reads_wait = false;
        let read = match self {
            Self::Plain { disk, .. } => disk.read(at.into(), &mut bytes).map_err(RunError::from),
            Self::Ccaw(disk) => disk.read(at.into(), &mut bytes).map_err(RunError::from),
            Self::OrderMerge(disk) => disk.read(at.into(), &mut bytes).map_err(RunError::from),
        };
        self.timed().reads_wait = true;
        read
    }

    fn close(self) -> Result<TimedDisk, RunError> {
        match self {
            Self::Plain { disk, .. } => Ok(*disk),
            Self::Ccaw(disk) => Ok(disk.close()?),
            Self::OrderMerge(disk) => Ok(disk.close()?),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            Self::Plain { .. } => Statistics::default(),
            Self::Ccaw(disk) => disk.statistics(),
            Self::OrderMerge(disk) => disk.statistics(),
        }
    }
}

#[derive(Default)]
struct Tally {
    writes: u64,
    reads: u64,
    /// Latencies of writes, in nanoseconds.
    latencies: Vec<u64>,
}

/// Issues this number of requests, and more until the last window is full.
fn issue(
    subject: &mut Subject,
    load: &mut Load,
    spec: HostSpec,
    requests: u64,
) -> Result<Tally, RunError> {
    let mut tally = Tally::default();
    let mut entered = Vec::new();

    while tally.writes + tally.reads < requests || !entered.is_empty() {
        match load.next()? {
            Request::Read { page } => {
                subject.read(page)?;
                tally.reads += 1;
            }
            Request::Write { page, content } => {
                // Without windows the host never waits, so requests have no latency.
                if spec.window > 0 {
                    entered.push(subject.timed().now());
                }
                subject.write(page, content)?;
                tally.writes += 1;
            }
        }

        // A window's requests complete together: each has waited since its entry.
        if spec.window > 0 && entered.len() == spec.window as usize {
            let now = subject.timed().now();
            tally
                .latencies
                .extend(entered.drain(..).map(|entered| now - entered));
        }
    }

    subject.timed().wait();
    Ok(tally)
}

/// Writes the disk, reopens it, and measures. `tell` receives the completed fraction.
///
/// # Errors
/// Why the run failed.
pub(crate) fn measured(
    run: &GridRun,
    device: Device,
    tell: &mut dyn FnMut(f64),
) -> Result<Value, RunError> {
    let spec = HostSpec::parse(&run.workload)?;
    let load: LoadSpec = run.content.parse()?;
    let pages = run.device.addressable_units();
    let requests = (run.pages / WINDOW_MAX).max(1) * WINDOW_MAX;
    let mut load = Load::new(load, pages, run.seed)?;

    let mut subject = Subject::new(spec, TimedDisk::new(device), pages, true)?;
    issue(&mut subject, &mut load, spec, requests)?;
    // The writes before take as long as the measured ones.
    tell(0.5);
    let mut subject = Subject::new(spec, subject.close()?, pages, false)?;
    subject.timed().wait();

    let (start, before, known) = (
        subject.timed().now(),
        subject.timed().device().ftl().stats(),
        subject.statistics(),
    );
    let mut tally = issue(&mut subject, &mut load, spec, requests)?;
    tally.latencies.sort_unstable();
    let seconds = (subject.timed().now() - start) as f64 / 1e9;
    let (after, done) = (subject.timed().device().ftl().stats(), subject.statistics());

    // Counts of the measured part, per write.
    let writes = tally.writes.max(1) as f64;
    let of = |after: u64, before: u64| (after - before) as f64 / writes;

    Ok(json!({
        "seconds": seconds,
        "writes": tally.writes,
        "reads": tally.reads,
        "per_second": (tally.writes + tally.reads) as f64 / seconds.max(f64::MIN_POSITIVE),
        "duplicates": of(done.duplicates, known.duplicates),
        "data_pages": of(done.data_pages, known.data_pages),
        "metadata_pages": of(done.metadata_pages, known.metadata_pages),
        "flushes": of(done.flushes, known.flushes),
        "compared": of(done.compared, known.compared),
        "segments_invalidated": of(done.segments_invalidated, known.segments_invalidated),
        "programs": of(after.programs(), before.programs()),
        "demoted": of(after.demoted(), before.demoted()),
        "latency_mean_ms": tally.latencies.iter().sum::<u64>() as f64 / tally.latencies.len().max(1) as f64 / 1e6,
        "latency_ms": quantiles(&tally.latencies),
    }))
}

/// Latencies in milliseconds at evenly spaced quantiles from 0 to 1.
fn quantiles(sorted: &[u64]) -> Vec<f64> {
    if sorted.is_empty() {
        return Vec::new();
    }
    let at = |index: usize| sorted[(index * (sorted.len() - 1)) / QUANTILES] as f64 / 1e6;
    (0..=QUANTILES).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_and_windows_are_read_and_others_refused_in_a_sentence() {
        let spec = HostSpec::parse("ccaw,window=100,compare").unwrap();
        assert_eq!(
            spec,
            HostSpec {
                arm: Arm::Ccaw,
                window: 100,
                compare: true
            }
        );
        for wrong in ["zfs", "ccaw,window=7", "plain,window=x", "ordermerge,fast"] {
            assert!(
                HostSpec::parse(wrong)
                    .unwrap_err()
                    .to_string()
                    .contains(wrong)
            );
        }
        for wrong in ["ratio:0.5", "mail:2:1", "ratio", "noise:2"] {
            assert!(
                wrong
                    .parse::<LoadSpec>()
                    .unwrap_err()
                    .to_string()
                    .contains(wrong)
            );
        }
    }

    // A table with one row per quantile has no gaps, and ends with the slowest request.
    #[test]
    fn quantiles_go_evenly_from_the_fastest_request_to_the_slowest() {
        let ms = 1_000_000;
        let all: Vec<u64> = (0..=2 * QUANTILES as u64).map(|at| at * ms).collect();
        let every_second: Vec<f64> = (0..=QUANTILES).map(|at| 2.0 * at as f64).collect();
        assert_eq!(quantiles(&all), every_second);

        assert_eq!(quantiles(&[7 * ms]), vec![7.0; QUANTILES + 1]);
        assert_eq!(quantiles(&[]), Vec::<f64>::new());
    }

    // The requested fraction, and no content that was not written before.
    #[test]
    fn loads_have_the_duplicates_and_the_reads_that_they_are_asked_for() {
        for (text, duplicates, reads) in [
            ("ratio:4", 0.75, 0.0),
            ("mail:1.55:0.8", 0.355, 0.8),
            ("mail:4.22", 0.763, 0.215),
        ] {
            let mut load = Load::new(text.parse().unwrap(), 1 << 18, 3).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            let (mut known, mut writes) = (0, 0);

            for _ in 0..60_000 {
                if let Request::Write { content, .. } = load.next().unwrap() {
                    writes += 1;
                    known += u32::from(!seen.insert(content));
                }
            }

            let found = f64::from(known) / f64::from(writes);
            assert!(
                (found - duplicates).abs() < 0.02,
                "{text}: {found} duplicates"
            );

            let found = 1.0 - f64::from(writes) / 60_000.0;
            assert!((found - reads).abs() < 0.02, "{text}: {found} reads");
        }
    }
}
