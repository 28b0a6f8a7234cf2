//! Executes one run: ages a device, measures or recovers it, and returns the result as JSON.
//!
//! Invariants: the result depends on the run alone, so the same run gives the same bytes on any
//! machine; it contains no real time. Absent: files, other runs.

use crate::config::{Fill, RunKind};
use crate::grid::RunSpec;
use crate::{host, micro, recordings, recovery};
use remap_ssd_device::Device;
use remap_ssd_media::Payload;
use remap_ssd_sim::aging::{self, AgingOptions, age};
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::cores::{Cores, Loan};
use remap_ssd_sim::run::{Progress, RunOptions, run};
use remap_ssd_sim::source::Source;
use remap_ssd_sim::trace::{Decoded, TraceOptions};
use remap_ssd_sim::workload::{ContentModel, NamedWorkload, Pattern, Workload, WorkloadConfig};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Contents of a run that are not aging's have identities above this one.
const OWN_CONTENTS: u64 = 1 << 40;

/// Workload generators whose construction has been checked.
///
/// A study has thousands of runs and some dozens of generators; constructing one of a file server
/// draws thousands of files.
#[derive(Debug, Default)]
pub struct CheckedSources(HashSet<SourceKey>);

/// Parameters that determine whether a workload's generator can be constructed.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    workload: String,
    content: String,
    addressable: u32,
    seed: u64,
}

impl CheckedSources {
    fn check(&mut self, run: &RunSpec) -> Result<(), String> {
        let key = SourceKey {
            workload: run.workload.clone(),
            content: run.content.clone(),
            addressable: run.device.addressable_lpns(),
            seed: run.seed,
        };

        if !self.0.contains(&key) {
            source(run)?;
            self.0.insert(key);
        }
        Ok(())
    }
}

/// Checks, as far as possible beforehand, that the run is possible.
///
/// # Errors
/// One sentence: why not.
pub fn check(run: &RunSpec, sources: &mut CheckedSources) -> Result<(), String> {
    let homes = run
        .workload
        .parse::<NamedWorkload>()
        .is_ok_and(|workload| workload.names_homes());

    if run.kind == RunKind::Workload && run.device.firmware.scheme.uses_hints() && !homes {
        return Err(format!(
            "scheme `{}` remaps only pages that were written for a home, and `{}` names none: use `journal`",
            run.scheme, run.workload
        ));
    }

    match (run.kind, run.workload.strip_prefix("trace:")) {
        (RunKind::Recovery, _) if !run.device.firmware.scheme.is_durable() => Err(format!(
            "scheme `{}` keeps its remaps in DRAM: there is nothing to recover",
            run.scheme
        )),
        (RunKind::Recovery, _) => Ok(()),
        (RunKind::Micro, _) => micro::parse(&run.workload).map(drop),
        (RunKind::Host, _) => host::check(run),
        (RunKind::Workload, Some(path)) => decoded(path).map(drop),

        // The recording exists; its integrity is covered by tests.
        (RunKind::Workload, None) if !run.recording.is_empty() => Ok(()),
        (RunKind::Workload, None) => {
            if let (Some(arrivals), workload) = (arrivals(run)?, workload(run)?) {
                arrivals
                    .check(&workload)
                    .map_err(|error| error.to_string())?;
            }
            sources.check(run)
        }
    }
}

/// Arrival times of its requests; `None` for a closed loop.
fn arrivals(run: &RunSpec) -> Result<Option<Arrivals>, String> {
    if run.arrivals.is_empty() {
        Ok(None)
    } else {
        run.arrivals.parse().map(Some)
    }
}

/// The workload that it names.
fn workload(run: &RunSpec) -> Result<NamedWorkload, String> {
    spanned(&run.workload, run.device.addressable_lpns())?
        .0
        .parse()
        .map_err(|error| format!("{error}"))
}

/// Reads a trace, once for all runs of a process.
fn decoded(path: &str) -> Result<Decoded, String> {
    static READ: Mutex<Vec<(String, Decoded)>> = Mutex::new(Vec::new());
    // Read for the largest disk; each replay folds it to its own device.
    const WHOLE_DISK: u32 = u32::MAX >> 1;
    // Locked during reading: another run of the same trace waits instead of reading it again.
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, decoded)) = read.iter().find(|(other, _)| other == path) {
        return Ok(decoded.clone());
    }
    let decoded = Decoded::read(Path::new(path), None, TraceOptions::new(WHOLE_DISK))
        .map_err(|error| error.to_string())?;
    read.push((path.to_owned(), decoded.clone()));
    Ok(decoded)
}

/// Creates the source of the run's requests.
fn source(run: &RunSpec) -> Result<Box<dyn Source>, String> {
    let addressable = run.device.addressable_lpns();

    if let Some(path) = run.workload.strip_prefix("trace:") {
        let options = TraceOptions {
            content_base: OWN_CONTENTS,
            ..TraceOptions::new(addressable)
        };
        return Ok(Box::new(decoded(path)?.replay(options, 1)));
    }

    if let Some(name) = run.workload.strip_prefix(recordings::PREFIX) {
        let options = TraceOptions {
            content_base: OWN_CONTENTS,
            ..TraceOptions::new(addressable)
        };
        return recordings::find(name)?.replay(options);
    }

    let (workload, addressable) = spanned(&run.workload, addressable)?;
    let workload: NamedWorkload = workload.parse().map_err(|error| format!("{error}"))?;
    let content: ContentModel = run.content.parse().map_err(|error| format!("{error}"))?;

    // The published model's contents are those written by aging; others are new.
    let base = if matches!(content, ContentModel::Papers { .. }) {
        0
    } else {
        OWN_CONTENTS
    };

    let source = workload
        .source(content, addressable, run.seed, base)
        .map_err(|error| error.to_string())?;

    Ok(source)
}

/// Returns a workload without its `,span=SHARE`, and that share of the addressable pages.
fn spanned(workload: &str, addressable: u32) -> Result<(String, u32), String> {
    let Some((before, after)) = workload.split_once(",span=") else {
        return Ok((workload.into(), addressable));
    };

    let (share, rest) = after
        .split_once(',')
        .map_or((after, ""), |(share, rest)| (share, rest));

    let span = share
        .parse::<f64>()
        .ok()
        .filter(|span| *span > 0.0 && *span <= 1.0);

    let span = span.ok_or_else(|| {
        format!("`span={share}` in `{workload}` is not a share above 0 and at most 1")
    })?;

    let workload = if rest.is_empty() {
        before.into()
    } else {
        format!("{before},{rest}")
    };

    Ok((workload, ((f64::from(addressable) * span) as u32).max(1)))
}

/// Executes the run, with another thread if one can be borrowed. `tell` receives the completed
/// fraction, from 0 to 1.
///
/// # Errors
/// Why the run failed.
pub fn perform(run: &RunSpec, cores: &Cores, tell: &mut dyn FnMut(f64)) -> Result<Value, String> {
    let mut device = Device::format(run.device.clone()).map_err(|error| error.to_string())?;
    match run.kind {
        RunKind::Micro => micro::measured(run, &mut device),
        RunKind::Host => host::measured(run, device, tell),
        RunKind::Workload => {
            aged(run, &mut device)?;
            measured(run, &mut device, cores, tell)
        }
        RunKind::Recovery => {
            aged(run, &mut device)?;
            recovery::recovered(run, device)
        }
    }
}

/// Ages the device to the paper's state.
fn aged(run: &RunSpec, device: &mut Device) -> Result<(), String> {
    if run.fill == Fill::Nothing {
        return Ok(());
    }

    let content: ContentModel = run
        .aging_content
        .parse()
        .map_err(|error| format!("{error}"))?;

    // A device filled whole holds the pages addressed by the run and no others.
    let addressable = match run.fill {
        Fill::Whole => spanned(&run.workload, run.device.addressable_lpns())?.1,
        Fill::Random | Fill::Sequential | Fill::Nothing => run.device.addressable_lpns(),
    };

    let mut workload = WorkloadConfig {
        pattern: Pattern::Random,
        read_percent: 0,
        request_pages: 1,
        content,
        addressable,
        // Other addresses than the measured run's, with the same contents.
        seed: run.seed ^ 0x6167_696e_6700_0000,
        content_base: 0,
    };

    if run.fill == Fill::Sequential {
        workload.pattern = Pattern::Sequential;
        return fill(device, workload);
    }

    let mut writes = Workload::new(workload).map_err(|error| error.to_string())?;
    let options = AgingOptions {
        fill: match run.fill {
            Fill::Whole => aging::Fill::Whole(addressable),
            Fill::Random | Fill::Sequential | Fill::Nothing => aging::Fill::Random,
        },
        seed: run.seed,
        nvram_used: run.nvram_used,
        nvram_valid: run.nvram_valid,
        ..AgingOptions::default()
    };

    age(device, &mut writes, &options)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Writes every addressable page once, in order.
fn fill(device: &mut Device, workload: WorkloadConfig) -> Result<(), String> {
    let mut writes = Workload::new(workload).map_err(|error| error.to_string())?;
    let (mut pages, mut left) = (Vec::new(), workload.addressable as usize);
    while left > 0 {
        pages.clear();
        writes
            .fill(&mut pages, left.min(4096))
            .map_err(|error| error.to_string())?;
        left -= pages.len().min(left);
        for page in &pages {
            let payload = Payload::Identity(page.content);
            let written = device.untimed(|ftl| ftl.write(page.lpn, &payload));
            written.map_err(|refusal| {
                format!("the device refused a page while it was filled: {refusal}")
            })?;
        }
    }
    Ok(())
}

fn measured(
    what: &RunSpec,
    device: &mut Device,
    cores: &Cores,
    tell: &mut dyn FnMut(f64),
) -> Result<Value, String> {
    let mut source = source(what)?;
    if what.survival {
        device.untimed(|ftl| ftl.watch_survival());
    }

    // Traces and recordings are finite; all other sources end after the run's number of pages.
    let endless = !what.workload.starts_with("trace:") && what.recording.is_empty();
    let arrivals = arrivals(what)?;
    let loan = cores.borrow();
    let options = RunOptions {
        threads: Loan::threads(loan.as_ref()),
        pages: endless.then_some(what.pages),
        queue_depth: what.device.queue_depth,
        open_loop: arrivals.is_some(),
        bound: arrivals.and_then(|arrivals| arrivals.bound),
        ..RunOptions::default()
    };

    let mut progress = |progress: &Progress| {
        tell(progress.pages as f64 / progress.pages_total.unwrap_or(what.pages).max(1) as f64);
        ControlFlow::Continue(())
    };

    let done = match arrivals {
        None => run(device, &mut *source, &options, &mut progress),
        Some(arrivals) if endless => {
            let timed = arrivals.over_workload(&mut *source, &workload(what)?, what.seed);
            run(
                device,
                &mut timed.map_err(|error| error.to_string())?,
                &options,
                &mut progress,
            )
        }
        Some(arrivals) => run(
            device,
            &mut arrivals.over_trace(&mut *source, what.seed),
            &options,
            &mut progress,
        ),
    };

    let mut summary = done.map_err(|error| error.to_string())?;
    // The same run must give the same bytes.
    summary.wall_s = 0.0;
    // Only the parts of the series and of the distribution needed for figures; the rest is large
    // and unused.
    summary.latency_cdf.clear();

    let mut value = serde_json::to_value(&summary).map_err(|error| error.to_string())?;
    value["usage"] = json!(device.ftl().usage());

    Ok(value)
}
