//! A comparison: several schemes, one after the other or in parallel.
//!
//! Invariants: results are in the order of the schemes and do not depend on threads; finished
//! results are kept, even if the rest fails. Absent: executing a run (`remap_ssd_sim::study`).

use crate::file::{Pending, Reports};
use crate::memory::{self, Need};
use crate::plan::{Plan, of_scheme, plan};
use crate::reading::{Follow, unfollowed};
use crate::watch::{Watch, following};
use crate::{ComparisonSpec, Error, result, rows};
use remap_ssd_device::Device;
use remap_ssd_ftl::GcPolicy;
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::report::format::{counted, seconds};
use remap_ssd_sim::study::{Requests, RunResult, RunSpec, Staged, Start, TraceReplay};
use remap_ssd_sim::summary::RunSummary;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Estimates the memory of a comparison, in bytes, independently of this machine; also returns its
/// device. A trace is read to its end.
///
/// # Errors
/// Incompatible arguments, an unreadable file, or a scheme that cannot run.
pub(crate) fn foresee(spec: &ComparisonSpec) -> Result<(u64, String), Error> {
    let mut plan = plan(spec, unfollowed())?;
    if plan.refused.is_empty() {
        let new = plan.runs.iter().find_map(RunSpec::new_device);
        let device = new.map(|new| result::device_name(&new.config, plan.device_scale));
        let memory_bytes = Need::of(&plan, threads(spec)).total_bytes;
        Ok((memory_bytes, device.unwrap_or_default()))
    } else {
        Err(plan.refused.swap_remove(0).1)
    }
}

/// A comparison that has passed all checks.
///
/// A scheme that cannot run is refused, and need not keep the others from running:
///
/// ```
/// use remap_ssd_study::{Comparison, ComparisonSpec, unfollowed};
///
/// let spec = ComparisonSpec {
///     scheme: vec!["remap-ssd".parse()?, "wal-ssd".parse()?],
///     scale: Some(1.0 / 256.0),
///     writes: Some(2_000),
///     ..ComparisonSpec::default()
/// };
/// assert!(Comparison::new(spec.clone(), unfollowed()).is_err());
///
/// let mut comparison = Comparison::of_possible(spec, unfollowed())?;
/// assert_eq!(comparison.refused()[0].0, "wal-ssd");
/// assert!(comparison.notes().is_empty());
/// assert!(comparison.need().total_bytes > 1 << 20);
/// assert_eq!(comparison.spec().seed(), 1);
///
/// // A watch for each job; `()` neither shows nor stops it.
/// comparison.keep_devices();
/// let mut measured = comparison.run_possible(&[()])?;
/// assert_eq!(measured.runs().len(), 1);
/// assert!(measured.take_devices()[0].stats().host_writes > 2_000); // aging's too
/// assert!(comparison.remarks(&measured)[0].starts_with("Transient, not a steady state: remap-ssd."));
/// // Of a trace, and of devices that were worn out.
/// assert!(comparison.served(&measured).is_empty() && comparison.lives(&measured).is_none());
/// let error = measured.complete().unwrap_err();
/// assert!(error.to_string().starts_with("1 of 2 schemes without a result: wal-ssd"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Comparison {
    spec: ComparisonSpec,
    pub(crate) plan: Plan,
    need: Need,
    keeps_devices: bool,
}

/// The device of a run that has ended.
struct KeptDevice(Device);

impl std::fmt::Debug for KeptDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.config().name)
    }
}

/// The measurements of a comparison, run by run.
#[derive(Debug)]
pub struct Measured {
    done: Vec<RunResult>,
    /// The device of each of them, if they are kept.
    devices: Vec<KeptDevice>,
    /// Schemes without a result, and the reasons.
    failed: Vec<(String, Error)>,
    /// Why schemes with a result have no picture.
    undrawn: Vec<Error>,
    written: Vec<PathBuf>,
}

impl Measured {
    /// The runs with a result, in the order of the schemes.
    pub fn runs(&self) -> &[RunResult] {
        &self.done
    }

    /// The files that were written: pictures, page, table, results.
    pub fn written(&self) -> &[PathBuf] {
        &self.written
    }

    /// The devices after these runs, if the comparison keeps them.
    pub fn take_devices(&mut self) -> Vec<Device> {
        let kept = std::mem::take(&mut self.devices);
        kept.into_iter().map(|kept| kept.0).collect()
    }

    /// Their measurements.
    pub fn summaries(&self) -> Vec<RunSummary> {
        result::summaries(&self.done)
    }

    /// Returns itself if every scheme has a result, and its picture if one is wanted.
    ///
    /// # Errors
    /// One sentence about all schemes without a result, or about the first one without a picture.
    pub fn complete(mut self) -> Result<Self, Error> {
        if self.failed.is_empty() {
            return match self.undrawn.is_empty() {
                true => Ok(self),
                false => Err(self.undrawn.swap_remove(0)),
            };
        }

        let all = (self.done.len() + self.failed.len()) as u64;
        let reasons: Vec<String> = self
            .failed
            .iter()
            .map(|(scheme, failure)| format!("{scheme} ({failure})"))
            .collect();
        Err(Error::Failed(format!(
            "{} of {} without a result: {}",
            self.failed.len(),
            counted(all, "scheme"),
            reasons.join("; ")
        )))
    }
}

impl Comparison {
    /// Makes the plan; reads a trace to its end, which may take a while and can be followed.
    ///
    /// # Errors
    /// Incompatible arguments, an unreadable file, a scheme that cannot run, or clearly more memory
    /// than available; `Stopped` if the reading was aborted.
    pub fn new(spec: ComparisonSpec, follow: Follow) -> Result<Self, Error> {
        let mut comparison = Self::of_possible(spec, follow)?;
        if comparison.plan.refused.is_empty() {
            Ok(comparison)
        } else {
            let refused = comparison.plan.refused.swap_remove(0).1;
            Err(refused.with_notes(comparison.notes()))
        }
    }

    /// The same for the schemes that can run.
    ///
    /// # Errors
    /// Incompatible arguments, an unreadable file, no scheme that can run, or too little memory.
    pub fn of_possible(spec: ComparisonSpec, follow: Follow) -> Result<Self, Error> {
        let plan = plan(&spec, follow)?;
        let need = Need::of(&plan, threads(&spec));
        need.check(spec.memory.or_else(memory::available))
            .map_err(|error| error.with_notes(&plan.notes))?;
        Ok(Self {
            spec,
            plan,
            need,
            keeps_devices: false,
        })
    }

    /// Keeps the device of each run, with its contents, for [`Measured::take_devices`]. All of them are in memory at the end.
    pub fn keep_devices(&mut self) {
        self.keeps_devices = true;
    }

    /// Its description.
    pub fn spec(&self) -> &ComparisonSpec {
        &self.spec
    }

    /// Its estimated memory.
    pub fn need(&self) -> Need {
        self.need
    }

    /// What a user should know before the runs, one per line.
    pub fn notes(&self) -> &[String] {
        &self.plan.notes
    }

    /// Schemes that cannot run, and the reasons.
    pub fn refused(&self) -> &[(String, Error)] {
        &self.plan.refused
    }

    /// The trace, if one is replayed.
    pub(crate) fn trace(&self) -> Option<&TraceReplay> {
        match self.plan.requests() {
            Requests::Trace(trace) => Some(trace),
            Requests::Workload { .. } | Requests::Recording(_) => None,
        }
    }

    /// The names of the jobs, in order.
    pub fn names(&self) -> Vec<String> {
        let name = |run: &RunSpec| match &run.start {
            Start::New(new) => {
                // Only values that differ from the defaults are part of a name.
                let firmware = &new.config.firmware;
                let name = match firmware.gc_policy {
                    GcPolicy::Greedy => firmware.scheme.to_string(),
                    policy => format!("{}/{policy}", firmware.scheme),
                };

                if firmware.is_hybrid() {
                    format!("{name}+{}", firmware.mapping)
                } else {
                    name
                }
            }
            Start::Image(path) => path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };

        self.plan.runs.iter().map(name).collect()
    }

    /// Prepares the device of a single scheme, for callers that run it themselves.
    ///
    /// # Errors
    /// Several schemes, or a device that cannot be prepared.
    pub fn stage(&self, watch: &dyn Watch) -> Result<(&RunSpec, Staged), Error> {
        let [run] = &self.plan.runs[..] else {
            return Err(Error::usage("--scheme: one scheme"));
        };
        let staged = run.stage(&mut following(watch))?;
        run.check_scheme(staged.device.config().firmware.scheme)?;
        Ok((run, staged))
    }

    /// Runs all jobs, without following them.
    ///
    /// # Errors
    /// A failed measurement or write.
    pub fn measure(&self) -> Result<Measured, Error> {
        self.run(&vec![(); self.plan.runs.len()])
    }

    /// Runs all jobs, each with its own element of `watches`, and writes the requested files. The
    /// first job that fails ends the others.
    ///
    /// # Errors
    /// A failed measurement or write.
    pub fn run(&self, watches: &[impl Watch]) -> Result<Measured, Error> {
        let mut measured = self.run_all(watches, Failing::Ends)?;
        match measured.failed.is_empty() {
            true => measured.complete(),
            false => Err(measured.failed.swap_remove(0).1),
        }
    }

    /// The same, but a job that fails or is stopped does not end the others.
    ///
    /// # Errors
    /// A file cannot be written; or no job has a result, with the first reason.
    pub fn run_possible(&self, watches: &[impl Watch]) -> Result<Measured, Error> {
        self.run_all(watches, Failing::Continues)
    }

    fn run_all(&self, watches: &[impl Watch], failing: Failing) -> Result<Measured, Error> {
        // Hours of work must not end at a missing folder.
        let reports = Reports::begin(self.spec.report.as_deref(), self.spec.table.as_deref())?;
        let out = self.spec.out.as_deref().map(Pending::begin).transpose()?;

        let names = self.names();
        let pictures = self.spec.timeline.as_deref().map(|path| {
            let file = |name: &String| match names.len() {
                1 => Pending::begin(path),
                _ => Pending::begin(&of_scheme(path, &name.replace(['/', '+'], "."))),
            };
            names.iter().map(file).collect::<Result<Vec<_>, _>>()
        });
        let mut pictures = pictures.transpose()?.unwrap_or_default().into_iter();

        // Files for saved devices are checked as well.
        let new = self.plan.runs.iter().filter_map(RunSpec::new_device);
        for path in new.filter_map(|new| new.save.as_ref()) {
            drop(Pending::begin(path)?);
        }

        // Measured in any order, stored in the order of the plan.
        let results = self.run_jobs(watches, failing);
        let mut measured = Measured {
            done: Vec::new(),
            devices: Vec::new(),
            failed: Vec::new(),
            undrawn: Vec::new(),
            written: Vec::new(),
        };

        for (scheme, failure) in &self.plan.refused {
            let failure = Error::Failed(failure.to_string());
            measured.failed.push((scheme.clone(), failure));
        }

        for (name, result) in names.into_iter().zip(results) {
            let picture = pictures.next();
            match result {
                Some(Ok((done, device))) => {
                    match (picture, &done.timeline) {
                        (Some(picture), Some(timeline)) => {
                            measured.written.push(picture.write(&timeline.svg(&name))?);
                        }
                        (_, None) if self.spec.pictured().is_some() => {
                            measured.undrawn.push(no_picture(&name, &done));
                        }
                        _ => {}
                    }
                    measured.done.push(done);
                    measured.devices.extend(device.map(KeptDevice));
                }
                Some(Err(failure)) => measured.failed.push((name, failure)),
                None if failing == Failing::Continues => measured
                    .failed
                    .push((name, Error::Stopped("stopped before it began"))),
                None => {}
            }
        }

        // No result to show: the first reason is the command's.
        if measured.done.is_empty() {
            // A job's own failure says more than being stopped.
            let own = |(_, failure): &(String, Error)| !matches!(failure, Error::Stopped(_));
            let first = measured.failed.iter().position(own).unwrap_or(0);
            return Err(measured.failed.swap_remove(first).1);
        }

        let (spec, plan, done) = (&self.spec, &self.plan, &measured.done);
        let reports = reports.write(
            || result::page(spec, plan, done),
            |form| result::sheet(spec, plan, done, form),
        )?;
        measured.written.extend(reports);
        if let Some(out) = out {
            let json = format!("{:#}\n", self.json(&measured));
            measured.written.push(out.write(&json)?);
        }
        Ok(measured)
    }

    /// Runs all jobs and returns results in order; none for a job that was not started.
    fn run_jobs(&self, watches: &[impl Watch], failing: Failing) -> Vec<Option<JobResult>> {
        let (plan, allowed) = (&self.plan, threads(&self.spec));
        let workers = allowed.min(plan.runs.len() as u32);

        // Processors not used by workers are lent to runs that can use a second thread.
        let cores = Cores::new(allowed - workers);
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));

        let results: Vec<Mutex<Option<JobResult>>> =
            plan.runs.iter().map(|_| Mutex::default()).collect();

        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(run), false) =
                            (plan.runs.get(index), failed.load(Ordering::Relaxed))
                        else {
                            // No job is left to start: this thread's core goes to a run that is about
                            // to be measured.
                            return cores.add();
                        };

                        // Jobs already started are stopped by their own watch.
                        if failing == Failing::Continues && watches[index].is_stopped() {
                            return;
                        }

                        watches[index].begin();
                        let result = Error::of_panics(|| {
                            let mut follow = following(&watches[index]);
                            let result = if self.keeps_devices {
                                run.perform_keeping(&cores, &mut follow)
                                    .map(|(result, device)| (result, Some(device)))
                            } else {
                                run.perform(&cores, &mut follow)
                                    .map(|result| (result, None))
                            };
                            // Aging and runs fail in different ways when they are stopped.
                            result.map_err(|error| match watches[index].is_stopped() {
                                true => Error::Stopped("stopped"),
                                false => error.into(),
                            })
                        });
                        let ends = result.is_err() && failing == Failing::Ends;
                        // Only jobs that have not started check this.
                        failed.fetch_or(ends, Ordering::Relaxed);

                        watches[index].end();
                        *results[index]
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner) = Some(result);
                    }
                });
            }
        });

        results
            .into_iter()
            .map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// The parameters of the comparison, a label and a text each.
    pub fn heading(&self, measured: &Measured) -> Vec<(&'static str, String)> {
        result::heading(&self.spec, &self.plan, &measured.done)
    }

    /// What must be said where the figures stand: nothing was remapped, a state was not steady, a
    /// difference is noise.
    pub fn remarks(&self, measured: &Measured) -> Vec<String> {
        result::remarks(&self.spec, &measured.done)
    }

    /// Outcomes of a trace's requests, by label; nothing without a trace.
    pub fn served(&self, measured: &Measured) -> Vec<(String, String)> {
        let rows = |trace| rows::served(trace, &measured.summaries());
        self.trace().map(rows).unwrap_or_default()
    }

    /// Lifetime of each device, as columns and rows, of runs until death.
    pub fn lives(&self, measured: &Measured) -> Option<([&'static str; 9], Vec<Vec<String>>)> {
        let rows = || (rows::LIVES, rows::lives(&measured.summaries()));
        self.spec().until_death.then(rows)
    }

    /// The measurements as JSON, the same on every machine.
    pub fn json(&self, measured: &Measured) -> serde_json::Value {
        result::json(&self.spec, &self.plan, &measured.done, &measured.failed)
    }
}

/// Maximum threads of a comparison.
fn threads(spec: &ComparisonSpec) -> u32 {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    spec.threads.unwrap_or_else(cores)
}

/// The result of one job, and its device if it is kept.
type JobResult = Result<(RunResult, Option<Device>), Error>;

/// Effect of a failing job on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Ends,
    Continues,
}

/// The run has a result, but its window has nothing to draw.
fn no_picture(scheme: &str, done: &RunResult) -> Error {
    let end = seconds(done.summary.seconds_simulated);
    Error::Failed(format!(
        "{scheme} has no picture: the window of the timeline begins after the run, which ends at {end}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A scale in the file and one beside it are both the device's.
    #[test]
    fn the_heading_has_the_scale_of_the_devices_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.toml");
        let text = "preset = \"fast21-32g\"\nname = \"own\"\nscale = \"1/64\"\n";
        std::fs::write(&file, text).unwrap();
        let heading = |scale| {
            let spec = ComparisonSpec {
                config: Some(file.clone()),
                scale,
                ..ComparisonSpec::default()
            };
            foresee(&spec).unwrap().1
        };
        assert_eq!(heading(None), "own at 1/64");
        assert_eq!(heading(Some(0.5)), "own at 1/128");
    }
}
