//! Executes one run of an experiment and returns its result as JSON.
//!
//! Invariants: the result depends on the run alone, so the same run gives the same bytes on any
//! machine; it contains no real time. Absent: files, other runs, and the execution of a run under a
//! workload (`remap_ssd_sim::study`).

use crate::RunError;
use crate::config::{Fill, RunKind};
use crate::grid::{GridRun, TRACE};
use crate::{host, micro, order, recordings, recovery};
use remap_ssd_device::Device;
use remap_ssd_sim::aging::{AgingSpec, FillSpec};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::study::{
    Length, Lifetimes, NewDevice, Requests, RunSpec, Stage, Start, TraceReplay, WHOLE_DISK,
};
use remap_ssd_sim::trace::{Decoded, TraceOptions};
use remap_ssd_sim::workload::NamedWorkload;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Workload generators whose construction has been checked.
///
/// A study has thousands of runs and some dozens of generators; constructing one of a file server
/// draws thousands of files.
#[derive(Debug, Default)]
pub(crate) struct CheckedSources(HashSet<SourceKey>);

/// Parameters that determine whether a workload's generator can be constructed.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    workload: String,
    content: String,
    arrivals: String,
    addressable: u64,
    seed: u64,
}

impl CheckedSources {
    fn check(&mut self, run: &GridRun) -> Result<(), RunError> {
        let spec = spec(run)?;
        spec.check_scheme(run.device.firmware.scheme)?;

        let key = SourceKey {
            workload: run.workload.clone(),
            content: run.content.clone(),
            arrivals: run.arrivals.clone(),
            addressable: run.device.addressable_lpns(),
            seed: run.seed,
        };

        if !self.0.contains(&key) {
            spec.check_requests()?;
            self.0.insert(key);
        }
        Ok(())
    }
}

/// Checks, as far as possible beforehand, that the run is possible.
///
/// # Errors
/// One sentence: why not.
pub(crate) fn check(run: &GridRun, sources: &mut CheckedSources) -> Result<(), RunError> {
    match run.kind {
        RunKind::Recovery if !run.device.firmware.scheme.is_durable() => Err(format!(
            "scheme `{}` keeps its remaps in DRAM: there is nothing to recover",
            run.scheme
        )
        .into()),

        RunKind::Recovery => spec(run).map(drop),
        RunKind::Micro => {
            run.device.check_unit_is_page()?;
            run.device.check_known_ends()?;
            micro::parse(&run.workload).map(drop)
        }
        RunKind::Order => {
            run.device.check_unit_is_page()?;
            order::parse(&run.workload).map(drop)
        }
        RunKind::Host => {
            run.device.check_unit_is_page()?;
            run.device.check_known_ends()?;
            host::check(run)
        }
        RunKind::Workload => sources.check(run),
    }
}

/// The run's device, aging and requests. A recovery may have no requests of its own: aging is that
/// for the usual ones.
fn spec(run: &GridRun) -> Result<RunSpec, RunError> {
    let requests = requests(run)?;

    Ok(RunSpec {
        start: Start::New(Box::new(NewDevice {
            config: run.device.clone(),
            aging: aging(run)?,
            save: None,
        })),
        // Traces and recordings are finite.
        length: match requests {
            Requests::Workload { .. } => Length::Pages(run.pages),
            Requests::Trace(_) | Requests::Recording(_) => Length::Usual,
        },
        requests,
        arrivals: given(&run.arrivals)?,
        queue_depth: None,
        warm_up: run.warm_up,
        lifetimes: if run.survival {
            Lifetimes::OfRun
        } else {
            Lifetimes::Untracked
        },
        timeline: None,
        seed: run.seed,
    })
}

/// A value as text; `None` if the text is empty.
fn given<T: FromStr<Err: Into<RunError>>>(text: &str) -> Result<Option<T>, RunError> {
    let value = (!text.is_empty()).then(|| text.parse());
    value.transpose().map_err(Into::into)
}

fn requests(run: &GridRun) -> Result<Requests, RunError> {
    if let Some(path) = run.workload.strip_prefix(TRACE) {
        let replay = TraceReplay {
            content: given(&run.content)?,
            ..trace(path)?
        };
        let keeps = "content = [\"own\"] keeps them";
        let checked = replay.check_content();
        checked.map_err(|error| format!("{error}: {keeps}"))?;
        return Ok(Requests::Trace(replay));
    }
    if let Some(name) = run.workload.strip_prefix(recordings::PREFIX) {
        return Ok(Requests::Recording(Arc::new(recordings::find(name)?)));
    }

    let workload: NamedWorkload = given(&run.workload)?.unwrap_or_default();
    let content = given(&run.content)?;
    Ok(Requests::Workload {
        workload,
        content: content.unwrap_or_else(|| workload.content_default()),
    })
}

/// Reads a trace, once for all runs of a process.
fn trace(path: &str) -> Result<TraceReplay, RunError> {
    static READ: Mutex<Vec<(String, Arc<Decoded>)>> = Mutex::new(Vec::new());

    let options = TraceOptions::new(WHOLE_DISK);
    let replay = |decoded: &Arc<Decoded>| TraceReplay {
        decoded: Arc::clone(decoded),
        options,
        repeat: 1,
        content: None,
    };

    // Locked during reading: another run of the same trace waits instead of reading it again.
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, decoded)) = read.iter().find(|(other, _)| other == path) {
        return Ok(replay(decoded));
    }

    let decoded = Decoded::read(Path::new(path), None, options)?;
    let decoded = Arc::new(decoded);
    let found = replay(&decoded);
    read.push((path.to_owned(), decoded));
    Ok(found)
}

/// The paper's state of the device; `None` if it is new.
fn aging(run: &GridRun) -> Result<Option<AgingSpec>, RunError> {
    let fill = match run.fill {
        Fill::Random => FillSpec::Random,
        Fill::Whole => FillSpec::Whole,
        Fill::Sequential => FillSpec::Ordered,
        Fill::Nothing => return Ok(None),
    };

    Ok(Some(AgingSpec {
        fill,
        nvram_used: run.nvram_used,
        nvram_valid: run.nvram_valid,
        overwrite: 0.0,
        content: given(&run.aging_content)?,
    }))
}

/// Executes the run, with another thread if one can be borrowed. `tell` receives the completed
/// fraction, from 0 to 1.
///
/// # Errors
/// Why the run failed.
pub(crate) fn perform(
    run: &GridRun,
    cores: &Cores,
    tell: &mut dyn FnMut(f64),
) -> Result<Value, RunError> {
    let new = || Device::format(run.device.clone());
    match run.kind {
        RunKind::Micro => micro::measured(run, &mut new()?),
        RunKind::Order => order::measured(run, new()?),
        RunKind::Host => host::measured(run, new()?, tell),
        RunKind::Workload => measured(run, cores, tell),
        RunKind::Recovery => {
            let staged = spec(run)?.stage(&mut |_| ControlFlow::Continue(()));
            let staged = staged?;
            recovery::recovered(run, staged.device)
        }
    }
}

fn measured(run: &GridRun, cores: &Cores, tell: &mut dyn FnMut(f64)) -> Result<Value, RunError> {
    let mut follow = |stage| {
        if let Stage::Measuring(progress) = stage {
            let total = progress.pages_total.unwrap_or(run.pages).max(1);
            tell(progress.pages as f64 / total as f64);
        }
        ControlFlow::Continue(())
    };

    let result = spec(run)?.perform(cores, &mut follow);
    let result = result?;

    let mut summary = result.summary;
    // The same run must give the same bytes.
    summary.wall_s = 0.0;
    // Only the parts of the series and of the distribution needed for figures; the rest is large
    // and unused.
    summary.latency_cdf.clear();

    let mut value = serde_json::to_value(&summary)?;
    value["usage"] = json!(result.usage);

    Ok(value)
}
