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

pub use args::{Args, Switch};

use crate::failure::Failure;
use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use job::{Done, job};
use plan::{Plan, Start, plan};
use remap_ssd_ftl::GcPolicy;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Runs it.
///
/// # Errors
/// What does not fit together, cannot be read, or cannot be measured.
pub fn command(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    let done = run_all(args, &plan)?;
    if let Some(path) = &args.report {
        output::file(path, &show::page(args, &plan, &done))?;
    }
    match args.json {
        true => output::json(&show::json(args, &plan, &done)),
        false => output::text(&show::text(args, &plan, &done)),
    }
}

/// All jobs, in order.
fn run_all(args: &Args, plan: &Plan) -> Result<Vec<Done>, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = args.threads.unwrap_or_else(cores).min(plan.jobs.len() as u32);
    let bars = bars(args, plan);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<Done, Failure>>>> = plan.jobs.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(start), false) = (plan.jobs.get(index), failed.load(Ordering::Relaxed)) else { return };
                    bars[index].enable_steady_tick(Duration::from_millis(200));
                    let result = job(args, plan, start, &bars[index]);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    bars[index].finish_with_message("done");
                    *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    bars.iter().for_each(ProgressBar::finish_and_clear);
    // Jobs are begun in order: those without a result come after a failure.
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Steps of a full bar.
const BAR_STEPS: u64 = 1000;

/// A line for each job, on standard error if that is a terminal.
fn bars(args: &Args, plan: &Plan) -> Vec<ProgressBar> {
    let target = if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let lines = MultiProgress::with_draw_target(target);
    let style = ProgressStyle::with_template("{prefix:10} {bar:40} {percent:>3} %  {elapsed}  {msg}")
        .expect("the template is valid");
    let bar = |start: &Start| {
        let bar = lines.add(ProgressBar::new(BAR_STEPS)).with_style(style.clone());
        let name = match start {
            Start::New { config, .. } => match config.firmware.gc_policy {
                GcPolicy::Greedy => config.firmware.scheme.to_string(),
                policy => format!("{}/{policy}", config.firmware.scheme),
            },
            Start::Image(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        bar.with_prefix(name).with_message("waiting")
    };
    plan.jobs.iter().map(bar).collect()
}
