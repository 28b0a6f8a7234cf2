//! `sweep`: a grid of comparisons in a file, each point done once.
//!
//! Invariants: a point's result is written beside and renamed, so it is whole or absent, and its name is its key, so that no
//! point is done twice; what has finished is kept, whatever becomes of the rest.
//! Absent: what a point is (`grid`), how one is run (`compare`).

mod grid;
mod show;

use crate::compare::{Comparison, Watch};
use crate::failure::Failure;
use crate::output::{self, counted};
use grid::Point;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Runs every combination of a file's values, each once, and lays the results beside each other.
///
/// A file has a table `options`, the same for all points, and a table `grid` of lists. Names are the options of `compare`
/// (scheme, workload, trace, seed, scale, ...) and values of the device with a dot (firmware.gc_free). Give the same command
/// again after an interruption, and it goes on where it stopped; a larger grid makes only what is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The grid.
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Folder for results; those of an earlier command are used again [default: FILE.sweep].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Figures to show, by their names in the JSON of `compare`; the first of them is drawn.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "write_amplification,bandwidth_mib_s,requests_per_s,latency_us.p99"
    )]
    pub show: Vec<String>,
    /// Run every point again, whatever is in the folder.
    #[arg(long)]
    pub fresh: bool,
    /// List the points and which of them are done, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Points that run at the same time [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Print the points and their results as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
A file:
  [options]
  scale = \"1/64\"
  writes = \"200k\"
  [grid]
  scheme = [\"none\", \"remap-ssd\"]
  \"firmware.gc_free\" = [0.1, 0.2]
  seed = [1, 2, 3]

Examples:
  remap-ssd sweep grid.toml
  remap-ssd sweep grid.toml --dry-run
  remap-ssd sweep grid.toml --out results --show write_amplification,gc_pages --json

The folder holds points/KEY.json (each point's result), results.jsonl (all, one a line, in the grid's order), and figure.svg.";

/// Runs it.
///
/// # Errors
/// What is wrong with the file; what cannot be run or written.
pub fn command(args: &Args) -> Result<(), Failure> {
    let points = grid::points(&args.file, &crate::experiment::program())?;
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| args.file.with_extension("sweep"));
    let of_points = folder.join("points");
    std::fs::create_dir_all(&of_points)
        .map_err(|error| Failure::about(of_points.display(), error))?;

    let missing: Vec<&Point> = points
        .iter()
        .filter(|point| args.fresh || load(&of_points, point).is_none())
        .collect();
    let mut failed = Vec::new();
    if !args.dry_run {
        if missing.len() < points.len() {
            output::note(format_args!(
                "{} of {} are there already",
                points.len() - missing.len(),
                counted(points.len() as u64, "point")
            ));
        }
        failed = run(args, &missing, &of_points)?;
    }

    let found: Vec<(&Point, Option<Value>)> = points
        .iter()
        .map(|point| (point, load(&of_points, point)))
        .collect();
    if !args.dry_run {
        let lines = found.iter().filter_map(|(_, result)| result.as_ref());
        let lines: String = lines.map(|result| format!("{result}\n")).collect();
        output::file(&folder.join("results.jsonl"), &lines)?;
        if let Some(figure) = show::figure(args, &found) {
            output::file(&folder.join("figure.svg"), &figure)?;
        }
    }
    if args.json {
        output::json(&show::json(&found))?
    } else {
        output::text(&show::text(args, &folder, &found))?
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "{} of {} without a result: {}",
            failed.len(),
            counted(points.len() as u64, "point"),
            failed[0]
        )))
    }
}

/// A point's result, if it is there.
fn load(folder: &Path, point: &Point) -> Option<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{}.json", point.key))).ok()?;
    serde_json::from_str(&text).ok()
}

/// Runs points on all cores; why some have no result.
fn run(args: &Args, points: &[&Point], folder: &Path) -> Result<Vec<String>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(Failure::failed)?;
    }
    let target = if args.json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let style =
        ProgressStyle::with_template("{bar:40} {pos} of {len} points  {elapsed}, {eta} left")
            .expect("the template is valid");
    let bar = ProgressBar::with_draw_target(Some(points.len() as u64), target).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));

    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = args.threads.unwrap_or_else(cores).min(points.len() as u32);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = if stop.load(Ordering::Relaxed) {
                        Err(Failure::failed("stopped before it began"))
                    } else {
                        one(point, folder, &stop)
                    };
                    bar.inc(1);
                    if let Err(failure) = result {
                        let title = show::title(point);
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(format!("{title}: {failure}"));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs one point and writes its file.
fn one(point: &Point, folder: &Path, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let comparison = Comparison::new(&point.args)?;
    let measured = comparison.run(&[Quiet(Arc::clone(stop))])?;
    let result = comparison.json(&measured);
    let kept = json!({
        "key": point.key,
        "point": point.of_grid.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect::<serde_json::Map<_, _>>(),
        "command": result["command"],
        "run": result["runs"][0],
    });
    // Beside, then renamed: a file of this name is whole.
    output::file(
        &folder.join(format!("{}.json", point.key)),
        &kept.to_string(),
    )
}

/// Watches nothing, and stops by a signal.
struct Quiet(Arc<AtomicBool>);

impl Watch for Quiet {
    fn set_message(&self, _: &'static str) {}
    fn set_position(&self, _: u64) {}
    fn end(&self) {}

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
