//! `compare`: several schemes, one after the other or at the same time, and their results side by side.
//!
//! ```text
//! args -> plan (devices, what they are fed) -> one job a scheme, on threads -> table, page, JSON
//! ```
//! Invariants: results stand in the order of the schemes and do not depend on threads; the first failure in that
//! order is the command's. Absent: any measuring (`remap_ssd_sim::run`).

mod args;
mod job;
mod plan;
mod replay;
mod show;
mod watch;

pub use args::{Args, Switch};
pub use watch::Watch;

use crate::failure::Failure;
use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use job::{Done, Staged, job, staged};
use plan::{Plan, Start, plan};
use remap_ssd_ftl::GcPolicy;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs it.
///
/// # Errors
/// What does not fit together, cannot be read, or cannot be measured.
pub fn command(args: &Args) -> Result<(), Failure> {
    let comparison = Comparison::new(args)?;
    let bars = bars(args, &comparison);
    let done = comparison.run(&bars);
    bars.iter().for_each(ProgressBar::finish_and_clear);
    let measured = done?;
    match args.json {
        true => output::json(&comparison.json(&measured)),
        false => output::text(&show::text(args, &comparison.plan, &measured.0)),
    }
}

/// The device of the only scheme and what it is fed, for those who run it themselves.
///
/// # Errors
/// What does not fit together, or cannot be read.
pub fn stage(args: &Args, watch: &dyn Watch) -> Result<Staged, Failure> {
    let plan = plan(args)?;
    match &plan.jobs[..] {
        [start] => staged(args, &plan, start, watch),
        _ => Err(Failure::usage("--scheme: one scheme")),
    }
}

/// A comparison that can be run, as far as can be told beforehand: what `command` does, for programs that watch it
/// themselves and want its results.
#[derive(Debug)]
pub struct Comparison<'a> {
    args: &'a Args,
    plan: Plan,
}

/// What a comparison measured.
#[derive(Debug)]
pub struct Measured(Vec<Done>);

impl<'a> Comparison<'a> {
    /// Decides everything; reads a trace through.
    ///
    /// # Errors
    /// What does not fit together, or cannot be read.
    pub fn new(args: &'a Args) -> Result<Self, Failure> {
        Ok(Self {
            args,
            plan: plan(args)?,
        })
    }

    /// The names of the jobs, in order.
    pub fn names(&self) -> Vec<String> {
        let name = |start: &Start| match start {
            Start::New { config, .. } => {
                let firmware = &config.firmware;
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
        self.plan.jobs.iter().map(name).collect()
    }

    /// Runs all jobs, each watched by its own of `watches`, and writes the report if one is asked for.
    ///
    /// # Errors
    /// What cannot be measured or written.
    pub fn run(&self, watches: &[impl Watch]) -> Result<Measured, Failure> {
        let done = run_all(self.args, &self.plan, watches)?;
        if let Some(path) = &self.args.report {
            output::file(path, &show::page(self.args, &self.plan, &done))?;
        }
        Ok(Measured(done))
    }

    /// What was measured, as `--json` prints it.
    pub fn json(&self, measured: &Measured) -> serde_json::Value {
        show::json(self.args, &self.plan, &measured.0)
    }
}

/// All jobs, in order.
fn run_all(args: &Args, plan: &Plan, watches: &[impl Watch]) -> Result<Vec<Done>, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = args
        .threads
        .unwrap_or_else(cores)
        .min(plan.jobs.len() as u32);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<Done, Failure>>>> =
        plan.jobs.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(start), false) =
                        (plan.jobs.get(index), failed.load(Ordering::Relaxed))
                    else {
                        return;
                    };
                    watches[index].begin();
                    let result = job(args, plan, start, &watches[index]);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    watches[index].end();
                    *results[index]
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    // Jobs are begun in order: those without a result come after a failure.
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// Steps of a full bar.
const BAR_STEPS: u64 = 1000;

/// A line for each job, on standard error if that is a terminal.
fn bars(args: &Args, comparison: &Comparison<'_>) -> Vec<ProgressBar> {
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
        bar.with_prefix(name).with_message("waiting")
    };
    comparison.names().into_iter().map(bar).collect()
}
