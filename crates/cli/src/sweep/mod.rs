//! `sweep`: a grid of comparisons in a file; each point is run once.
//!
//! Invariants: no point is run twice; finished results are kept, even if the rest fails; a point,
//! its key and its file are the same as for `remap_ssd.sweep` in Python. Absent: the definition of
//! points, running one, storing its result (`remap_ssd_study`).

mod cluster;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, counted, table};
use cluster::Cluster;
use remap_ssd_sim::report::grid::Grid;
use remap_ssd_sim::report::sheet::TableForm;
use remap_ssd_study::file::Reports;
use remap_ssd_study::{self as study, Point, PointEvent};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Runs every combination of a file's values, each once, and compares the results side by side.
///
/// A file has a table `options`, the same for all points, and a table `grid` of lists. Names are
/// the options of `compare` (scheme, workload, trace, seed, scale, ...) and settings of the device
/// with a dot (firmware.gc_free). After an interruption, the same command continues where it
/// stopped; with a larger grid only the new points are run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The grid.
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Folder for results; results already in it are reused [default: FILE.sweep].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Figures to show, by their names in the JSON of `compare` or their short names in `compare
    /// diff`; the first of them is drawn in _figure.svg.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = study::figure,
        default_value = "write_amplification,bandwidth_mib_s,requests_per_s,latency_us.p99"
    )]
    pub show: Vec<String>,
    /// Write a page with a picture of each figure and the table.
    #[arg(long, value_name = "HTML")]
    pub report: Option<PathBuf>,
    /// Write the table for a paper or a spreadsheet: FILE.tex (LaTeX), FILE.md or FILE.csv.
    #[arg(long, value_name = "FILE", value_parser = TableForm::checked)]
    pub table: Option<PathBuf>,
    /// Run every point again, even if the folder has its result.
    #[arg(long)]
    pub fresh: bool,
    /// List the points and their state, without running any; no file is written.
    #[arg(long)]
    pub dry_run: bool,
    /// Number of concurrent points [default: one per core, within the available memory].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Run the points on the workers of a Dask scheduler, such as tcp://host:8786. Requires the
    /// Python package on both sides, and the results' folder on a file system that the workers
    /// share.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "threads")]
    pub scheduler: Option<String>,
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
  remap-ssd sweep grid.toml --report grid.html --table grid.tex
  remap-ssd sweep grid.toml --scheduler tcp://head:8786

Pictures and tables have the mean of all seeds and its 95 % interval, or the interval of a single run. Values that are
numbers, such as sizes, are drawn along an axis, with a line for each scheme. `state` is transient if a run measured no
steady state; its point is hollow.

The folder is a Parquet data set, a file for each point: scheme=NAME/KEY.parquet; _figure.svg is drawn beside them. The
same file and folder are those of remap_ssd.sweep(\"grid.toml\") in Python.";

/// Runs `sweep`.
///
/// # Errors
/// Errors in the file, or a failed run or write.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let cluster = args.scheduler.as_deref().map(Cluster::find);
    let cluster = cluster.transpose()?;

    // Files that this machine cannot read are identified by their digest, which the cluster
    // computes.
    let digest = |address: &str| match &cluster {
        Some(cluster) => cluster.digest(address),
        None => Err("there is no cluster".into()),
    };
    let points = study::of_file(&args.file, cluster.as_ref().map(|_| &digest as _))?;
    let folder = args
        .out
        .clone()
        .unwrap_or_else(|| args.file.with_extension("sweep"));
    // A dry run has nothing to write.
    let reports = match args.dry_run {
        true => Reports::begin(None, None)?,
        false => Reports::begin(args.report.as_deref(), args.table.as_deref())?,
    };
    let interrupt = Interrupt::listen()?;
    if !args.dry_run {
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::about(folder.display(), error))?;
    }

    let failed = if args.dry_run {
        Vec::new()
    } else {
        make_missing(args, &points, &folder, cluster.as_ref(), &interrupt)?
    };

    // Read again from the folder: that is what others will find there.
    let found: Vec<(&Point, Option<Value>)> = points
        .iter()
        .map(|point| (point, study::load(&folder, &point.name)))
        .collect();
    let without = found.iter().filter(|(_, run)| run.is_none()).count();
    let interrupted = interrupt.is_asked() && without > 0;
    if interrupted && without == found.len() {
        return Err(interrupt.before_the_first());
    }

    // The figure shows all results in the folder, not only those of this call.
    let title = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let grid = study::means(&title, &command_line(), &found, &args.show);
    if !args.dry_run
        && let Some(figure) = grid.svg(0)
    {
        study::file::write(&folder.join("_figure.svg"), &figure)?;
    }
    let page = || grid.page(&study::grid_config(&points, &command_line()));
    output::written(&reports.write(page, |_| grid.sheet())?);
    let text = || text(&grid, &folder, (found.len() - without, found.len()));
    output::result(args.json, || study::points_json(&found), text)?;

    if interrupted {
        return Err(interrupt.failure(format!(
            "interrupted: {} of {} are in {}; the same command makes the others",
            found.len() - without,
            counted(found.len() as u64, "point"),
            folder.display()
        )));
    }
    match &failed[..] {
        [] => Ok(()),
        reasons => Err(Failure::Failed(format!(
            "{without} of {} without a result:\n  {}",
            counted(points.len() as u64, "point"),
            reasons.join("\n  ")
        ))),
    }
}

/// Runs the points without a result; returns the reasons for those that are still missing.
fn make_missing(
    args: &Args,
    points: &[Point],
    folder: &Path,
    cluster: Option<&Cluster>,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failure> {
    // A point with a result is done, by this sweep or an earlier one.
    let missing: Vec<&Point> = points
        .iter()
        .filter(|point| args.fresh || study::load(folder, &point.name).is_none())
        .collect();
    if missing.len() < points.len() {
        output::note(format_args!(
            "{} of {} are there already",
            points.len() - missing.len(),
            counted(points.len() as u64, "point")
        ));
    }
    let others = study::of_other_sources(folder, points.iter().map(|point| &point.name));
    if others > 0 {
        output::note(format_args!(
            "{} in {} of other sources or another version: kept, not reused; the column `sources` tells them apart",
            counted(others, "result"),
            folder.display()
        ));
    }
    // Unreadable results, or results to be replaced, would be in the way.
    for point in &missing {
        let _ = std::fs::remove_file(study::path(folder, &point.name));
    }
    match cluster {
        Some(_) if missing.is_empty() => Ok(Vec::new()),
        Some(cluster) => cluster.run(&args.file, folder),
        None => Ok(run(args, &missing, folder, interrupt)),
    }
}

/// Runs points on all cores; returns the reasons for missing results.
fn run(args: &Args, points: &[&Point], folder: &Path, interrupt: &Interrupt) -> Vec<String> {
    let template = "{bar:40} {pos} of {len} points  {elapsed}, {eta} left";
    let bar = output::bar(args.json, Some(points.len() as u64), template);
    let failed =
        study::run_points(
            points,
            folder,
            args.threads,
            interrupt.flag(),
            &|event| match event {
                PointEvent::Note(text) => output::note(text),
                PointEvent::Ended => bar.inc(1),
            },
        );
    bar.finish_and_clear();

    let reason = |(point, error): &(&Point, _)| format!("{}: {error}", point.title());
    failed.iter().map(reason).collect()
}

/// The table, and the location of the results.
fn text(grid: &Grid, folder: &Path, (done, points): (usize, usize)) -> String {
    let (head, rows) = grid.table();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let remarks: String = grid
        .remarks()
        .iter()
        .map(|said| format!("{said}\n"))
        .collect();

    format!(
        "{}\n{remarks}{done} of {} done, in {}\n",
        table(&head, &rows),
        counted(points as u64, "point"),
        folder.display()
    )
}

/// The command line, without the folder of the program.
fn command_line() -> String {
    study::said(std::env::args_os().map(|word| word.to_string_lossy().into())).join(" ")
}
