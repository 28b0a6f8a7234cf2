//! `compare`: several schemes, one after the other or in parallel, and their results side by side.
//!
//! ```text
//! args -> plan (one run per scheme) -> run, on threads -> table, page, JSON
//! ```
//! Invariants: results are in the order of the schemes and do not depend on threads; finished
//! results are shown and written, even if the rest fails. Absent: executing a run
//! (`remap_ssd_sim::study`).

mod args;
pub mod diff;
mod memory;
mod plan;
mod reading;
mod show;
mod watch;

pub use args::{Args, Switch};
pub use memory::available;
pub use reading::{BytesRead, Follow, unfollowed, until};
pub(crate) use watch::Bar;
pub use watch::Watch;
use watch::following;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Pending, counted};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use memory::Need;
use plan::{Plan, plan};
use remap_ssd_ftl::GcPolicy;
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::report::format::bytes;
use remap_ssd_sim::study::{RunResult, RunSpec, Staged, Start};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs one workload or trace against several schemes of address remapping, on the same device, and
/// compares the results side by side.
///
/// Each device is aged first, as in the published evaluations: random writes until garbage
/// collection has run, then remaps until 90 % of the remapping metadata is used and 70 % of that is
/// valid. The results depend on the seed and the options alone, not on --threads nor on the
/// machine.
///
/// Ctrl-C stops the runs and shows the finished ones; the exit code is then 130. A scheme that
/// cannot run does not stop the others; the exit code is then 1.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = args::EXAMPLES_SHORT,
    after_long_help = args::EXAMPLES
)]
pub struct CompareCommand {
    /// The device, the schemes and the workload to run.
    #[command(flatten)]
    pub args: Args,
    /// A comparison of earlier results, instead of a run.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// Operations on results.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Compares two results side by side, and fails if a figure has changed too much.
    Diff(diff::Args),
}

/// Memory estimates from here on are printed before the runs: less fits on any machine.
const NOTED_BYTES: u64 = 512 << 20;

/// Runs `compare`.
///
/// # Errors
/// Incompatible arguments, an unreadable file, or a failed measurement.
pub fn command(line: &CompareCommand) -> Result<(), Failure> {
    if let Some(Action::Diff(args)) = &line.action {
        return diff::command(args);
    }
    let args = &line.args;

    // From here on a signal stops the reading of the trace, and then the jobs, but not the program,
    // so that finished results are shown.
    let interrupt = Interrupt::listen()?;
    let before_the_first = |failure| match failure {
        Failure::Stopped(_) => interrupt.before_the_first(),
        other => other,
    };
    let stop = Arc::clone(interrupt.flag());
    let follow = if args.json {
        reading::until(stop)
    } else {
        reading::on_terminal(stop)
    };
    let comparison = Comparison::of_possible(args, follow).map_err(before_the_first)?;

    // A scheme that cannot run is reported, and the others are run.
    for (scheme, failure) in &comparison.plan.refused {
        output::note(format_args!("note: {scheme} is left out: {failure}"));
    }

    if !args.json && comparison.need.total_bytes >= NOTED_BYTES {
        let Need { total_bytes, .. } = comparison.need;
        output::note(format_args!(
            "about {} of memory: {}",
            bytes(total_bytes),
            comparison.need
        ));
    }

    let bars = bars(args, &comparison, interrupt.flag());
    let measured = comparison.run_possible(&bars);
    bars.iter().for_each(Bar::clear);
    let measured = measured.map_err(before_the_first)?;

    if args.json {
        output::json(&comparison.json(&measured))?
    } else {
        output::text(&show::text(args, &comparison.plan, &measured.done))?
    }

    // Shown first: the exit code says that a result is missing, and the others are printed.
    match measured.complete() {
        Err(failure) if interrupt.is_asked() => {
            Err(interrupt.failure(format!("interrupted: {failure}")))
        }
        result => result.map(drop),
    }
}

/// Prepares the device of a single scheme, for callers that run it themselves.
///
/// # Errors
/// Incompatible arguments, or an unreadable file.
pub fn stage(args: &Args, watch: &dyn Watch) -> Result<(RunSpec, Staged), Failure> {
    let mut plan = plan(args, unfollowed())?;
    if plan.runs.len() > 1 {
        return Err(Failure::usage("--scheme: one scheme"));
    }

    let run = plan.runs.remove(0);
    let staged = run.stage(&mut following(watch))?;
    run.check_scheme(staged.device.config().firmware.scheme)?;
    Ok((run, staged))
}

/// Estimates the memory of a comparison, in bytes, independently of this machine; a trace is read
/// to its end.
///
/// # Errors
/// Incompatible arguments, an unreadable file, or a scheme that cannot run.
pub fn foresee(args: &Args) -> Result<u64, Failure> {
    let mut plan = plan(args, unfollowed())?;
    if plan.refused.is_empty() {
        Ok(Need::of(args, &plan).total_bytes)
    } else {
        Err(plan.refused.swap_remove(0).1)
    }
}

/// A comparison that has passed all checks: the same as `command`, for programs that follow its
/// progress and use its results.
#[derive(Debug)]
pub struct Comparison<'a> {
    args: &'a Args,
    plan: Plan,
    need: Need,
}

/// The measurements of a comparison, run by run.
#[derive(Debug)]
pub struct Measured {
    done: Vec<RunResult>,
    /// Schemes without a result, and the reasons.
    failed: Vec<(String, Failure)>,
}

impl Measured {
    /// Returns itself if every scheme has a result.
    ///
    /// # Errors
    /// One sentence about all schemes without a result.
    pub fn complete(self) -> Result<Self, Failure> {
        if self.failed.is_empty() {
            return Ok(self);
        }
        let all = (self.done.len() + self.failed.len()) as u64;
        let reasons: Vec<String> = self
            .failed
            .iter()
            .map(|(scheme, failure)| format!("{scheme} ({failure})"))
            .collect();
        Err(Failure::Failed(format!(
            "{} of {} without a result: {}",
            self.failed.len(),
            counted(all, "scheme"),
            reasons.join("; ")
        )))
    }
}

impl<'a> Comparison<'a> {
    /// Makes the plan; reads a trace to its end, which may take a while and can be followed.
    ///
    /// # Errors
    /// Incompatible arguments, an unreadable file, a scheme that cannot run, or clearly more memory
    /// than available; `Stopped` if the reading was aborted.
    pub fn new(args: &'a Args, follow: Follow) -> Result<Self, Failure> {
        let mut comparison = Self::of_possible(args, follow)?;
        if comparison.plan.refused.is_empty() {
            Ok(comparison)
        } else {
            Err(comparison.plan.refused.swap_remove(0).1)
        }
    }

    /// The same for the schemes that can run.
    ///
    /// # Errors
    /// Incompatible arguments, an unreadable file, no scheme that can run, or too little memory.
    pub fn of_possible(args: &'a Args, follow: Follow) -> Result<Self, Failure> {
        let plan = plan(args, follow)?;
        let need = Need::of(args, &plan);
        need.check(args.memory.or_else(memory::available))?;
        Ok(Self { args, plan, need })
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

    /// Runs all jobs, each with its own element of `watches`, and writes the requested files. The
    /// first job that fails ends the others.
    ///
    /// # Errors
    /// A failed measurement or write.
    pub fn run(&self, watches: &[impl Watch]) -> Result<Measured, Failure> {
        let measured = self.run_all(watches, Failing::Ends)?;
        if measured.failed.is_empty() {
            Ok(measured)
        } else {
            Err(measured
                .failed
                .into_iter()
                .map(|(_, failure)| failure)
                .next())
            .map_err(|failure| failure.expect("there is one"))
        }
    }

    /// The same, but a job that fails or is stopped does not end the others.
    ///
    /// # Errors
    /// A file cannot be written; or no job has a result, with the first reason.
    pub fn run_possible(&self, watches: &[impl Watch]) -> Result<Measured, Failure> {
        self.run_all(watches, Failing::Continues)
    }

    fn run_all(&self, watches: &[impl Watch], failing: Failing) -> Result<Measured, Failure> {
        // Hours of work must not end at a missing folder.
        let begin = |path: &std::path::PathBuf| Pending::begin(path);
        let report = self.args.report.as_ref().map(begin).transpose()?;
        let out = self.args.out.as_ref().map(begin).transpose()?;

        // Files for saved devices are checked as well.
        let new = self.plan.runs.iter().filter_map(RunSpec::new_device);
        for path in new.filter_map(|new| new.save.as_ref()) {
            drop(Pending::begin(path)?);
        }

        // Measured in any order, stored in the order of the plan.
        let results = run_all(self.args, &self.plan, watches, failing);
        let mut measured = Measured {
            done: Vec::new(),
            failed: Vec::new(),
        };
        for (scheme, failure) in &self.plan.refused {
            let failure = Failure::Failed(failure.to_string());
            measured.failed.push((scheme.clone(), failure));
        }
        for (name, result) in self.names().into_iter().zip(results) {
            match result {
                Some(Ok(done)) => measured.done.push(done),
                Some(Err(failure)) => measured.failed.push((name, failure)),
                None if failing == Failing::Continues => measured
                    .failed
                    .push((name, Failure::Stopped("stopped before it began"))),
                None => {}
            }
        }

        // No result to show: the first reason is the command's.
        if measured.done.is_empty() {
            // A job's own failure says more than being stopped.
            let own = |(_, failure): &(String, Failure)| !matches!(failure, Failure::Stopped(_));
            let first = measured.failed.iter().position(own).unwrap_or(0);
            return Err(measured.failed.swap_remove(first).1);
        }

        if let Some(report) = report {
            report.write(&show::page(self.args, &self.plan, &measured.done))?;
        }
        if let Some(out) = out {
            out.write(&format!("{:#}\n", self.json(&measured)))?;
        }
        Ok(measured)
    }

    /// The measurements, as printed by `--json`.
    pub fn json(&self, measured: &Measured) -> serde_json::Value {
        show::json(self.args, &self.plan, &measured.done, &measured.failed)
    }
}

/// Maximum threads of a comparison.
fn threads(args: &Args) -> u32 {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    args.threads.unwrap_or_else(cores)
}

/// Effect of a failing job on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Ends,
    Continues,
}

/// Runs all jobs and returns results in order; none for a job that was not started.
fn run_all(
    args: &Args,
    plan: &Plan,
    watches: &[impl Watch],
    failing: Failing,
) -> Vec<Option<Result<RunResult, Failure>>> {
    let allowed = threads(args);
    let workers = allowed.min(plan.runs.len() as u32);

    // Processors not used by workers are lent to runs that can use a second thread.
    let cores = Cores::new(allowed - workers);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));

    let results: Vec<Mutex<Option<Result<RunResult, Failure>>>> =
        plan.runs.iter().map(|_| Mutex::default()).collect();

    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(run), false) = (plan.runs.get(index), failed.load(Ordering::Relaxed))
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
                    let result = run.perform(&cores, &mut following(&watches[index]));
                    // Aging and runs fail in different ways when they are stopped.
                    let result = result.map_err(|error| match watches[index].is_stopped() {
                        true => Failure::Stopped("stopped"),
                        false => error.into(),
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

/// Steps of a full bar.
const BAR_STEPS: u64 = 1000;

/// A progress line per job, on standard error if it is a terminal.
fn bars(args: &Args, comparison: &Comparison<'_>, stop: &Arc<AtomicBool>) -> Vec<Bar> {
    // JSON is for programs, whose logs a progress line would fill.
    let target = if args.json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };

    let lines = MultiProgress::with_draw_target(target);
    let style =
        ProgressStyle::with_template("{prefix:10} {bar:40} {percent:>3} %  {elapsed}  {msg}")
            .expect("the template is valid");

    let bar = |name: String| {
        let bar = lines
            .add(ProgressBar::new(BAR_STEPS))
            .with_style(style.clone());
        let line = bar.with_prefix(name).with_message("waiting");
        Bar::new(line, Arc::clone(stop))
    };

    comparison.names().into_iter().map(bar).collect()
}
