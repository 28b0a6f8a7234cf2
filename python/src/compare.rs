//! A comparison, from named values to its JSON.
//!
//! The library reads the values, as for the command line, so that mistakes get the same messages.
//! Invariant: runs are made without the interpreter's lock; the calling thread checks for signals
//! and reports progress. Absent: the names of the options in Python (`remap_ssd/_compare.py`).

use crate::device::Device;
use crate::errors::{Failed, failed, mistake};
use crate::stop::StopSign;
use crate::workload::{PythonRequests, Raised};
use pyo3::prelude::*;
use remap_ssd_study::{BytesRead, Comparison, ComparisonSpec, Kind, OPTIONS, STEPS, Watch};
use serde_json::{Map, Value};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between checks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a comparison; returns its JSON, and the devices after the runs if they are kept.
///
/// `values` is a JSON object. `progress`, if given, is called every 50 ms with a list of (job,
/// current activity, fraction of the run done). `workload` is a name, and a function that makes the
/// requests.
#[pyfunction]
pub(crate) fn compare(
    py: Python<'_>,
    values: &str,
    progress: Option<Bound<'_, PyAny>>,
    workload: Option<(String, Py<PyAny>)>,
    keep_devices: bool,
) -> PyResult<(String, Vec<Device>)> {
    let (mut spec, raised) = (read(values)?, Raised::default());
    if let Some((name, batches)) = workload {
        let own = PythonRequests::new(name, batches, Arc::clone(&raised));
        spec.requests = Some(Arc::new(own));
    }
    let sign = StopSign::new();
    let mut comparison = read_trace(py, spec, progress.as_ref(), sign)?;
    if keep_devices {
        comparison.keep_devices();
    }
    let result = run(py, &comparison, progress.as_ref(), sign);
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => result,
    }
}

/// Runs all jobs on other threads, and watches them on this one.
fn run(
    py: Python<'_>,
    comparison: &Comparison,
    progress: Option<&Bound<'_, PyAny>>,
    sign: StopSign,
) -> PyResult<(String, Vec<Device>)> {
    for note in comparison.notes() {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "{note}");
    }

    let stop = AtomicBool::new(false);
    let watched: Vec<WatchedJob<'_>> = comparison
        .names()
        .into_iter()
        .map(|name| WatchedJob::new(name, &stop))
        .collect();
    let tell = |py: Python<'_>, watched: &[WatchedJob<'_>]| -> PyResult<()> {
        sign.check(py)?;
        if let Some(progress) = &progress {
            progress.call1((watched.iter().map(WatchedJob::read).collect::<Vec<_>>(),))?;
        }
        Ok(())
    };

    std::thread::scope(|scope| {
        let (done, wait) = channel();
        let watched = &watched;
        let worker = scope.spawn(move || {
            let result = comparison.run(watched).map(|mut measured| {
                let devices = measured.take_devices();
                (comparison.json(&measured).to_string(), devices)
            });
            let _ = done.send(result); // The receiver waits for it, or this thread has ended.
        });
        let wait = Mutex::new(wait);
        loop {
            let next = py.detach(|| {
                wait.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .recv_timeout(LOOK_EVERY)
            });
            match next {
                Ok(result) => {
                    tell(py, watched)?;
                    let (json, devices) = result.map_err(failed)?;
                    let devices = devices.into_iter().map(Device::after_run);
                    return Ok((json, devices.collect::<PyResult<_>>()?));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // Joined here, so that its panic is not propagated by the scope.
                    let _ = py.detach(|| worker.join());
                    return Err(Failed::new_err("a run has panicked: see above"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = tell(py, watched) {
                        stop.store(true, Ordering::Relaxed);
                        let _ = py.detach(|| worker.join());
                        return Err(error);
                    }
                }
            }
        }
    })
}

/// Makes the plan, and reads the trace if there is one; Ctrl-C aborts.
fn read_trace(
    py: Python<'_>,
    spec: ComparisonSpec,
    progress: Option<&Bound<'_, PyAny>>,
    sign: StopSign,
) -> PyResult<Comparison> {
    let progress = progress.map(|progress| progress.clone().unbind());
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();

    let tell = move |read: BytesRead| {
        Python::attach(|py| {
            sign.check(py)?;
            if let Some(progress) = &progress {
                progress.call1(py, (vec![("trace", "reading", read.share())],))?;
            }
            Ok(())
        })
    };

    let (keep, mut told) = (Arc::clone(&raised), Instant::now());
    let follow = Box::new(move |read| {
        // Reading a piece of a file is faster than taking the lock.
        if told.elapsed() < LOOK_EVERY {
            return ControlFlow::Continue(());
        }
        told = Instant::now();

        match tell(read) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                ControlFlow::Break(())
            }
        }
    });

    let result = py.detach(|| Comparison::new(spec, follow));
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => result.map_err(failed),
    }
}

/// The options of a comparison: name, true if it takes a value, and help.
#[pyfunction]
pub(crate) fn compare_options() -> Vec<(&'static str, bool, String)> {
    OPTIONS
        .iter()
        .map(|option| {
            let takes_value = option.kind != Kind::Switch;
            (option.name, takes_value, option.short_help())
        })
        .collect()
}

fn read(values: &str) -> PyResult<ComparisonSpec> {
    let values: Map<String, Value> = serde_json::from_str(values).map_err(mistake)?;
    ComparisonSpec::try_from(values).map_err(failed)
}

/// Progress of one job, as seen by the calling thread.
struct WatchedJob<'a> {
    name: String,
    message: Mutex<&'static str>,
    position: AtomicU64,
    stop: &'a AtomicBool,
}

impl<'a> WatchedJob<'a> {
    fn new(name: String, stop: &'a AtomicBool) -> Self {
        Self {
            name,
            message: Mutex::new("waiting"),
            position: AtomicU64::new(0),
            stop,
        }
    }

    fn read(&self) -> (String, &'static str, f64) {
        let message = *self.message.lock().unwrap_or_else(PoisonError::into_inner);
        (
            self.name.clone(),
            message,
            self.position.load(Ordering::Relaxed) as f64 / STEPS as f64,
        )
    }
}

impl Watch for WatchedJob<'_> {
    fn set_message(&self, message: &'static str) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = message;
    }

    fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    fn end(&self) {
        self.set_message("done");
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
