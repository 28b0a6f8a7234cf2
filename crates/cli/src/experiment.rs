//! `experiment`: repeats the published experiments and compares the results with the papers'
//! claims.
//!
//! Invariants: mistakes in a name, a folder or a run are reported before anything runs (exit code
//! 2); a claim that is not met is a result, not a failure. Absent: experiments (`remap_ssd_lab` and
//! `experiments/`).

use crate::failure::Failure;
use crate::interrupt;
use crate::numbers;
use crate::output::{self, counted};
use crate::settings;
use indicatif::ProgressBar;
use remap_ssd_lab::claim::{Claim, Verdict};
use remap_ssd_lab::folder::built_in;
use remap_ssd_lab::queue::Limits;
use remap_ssd_lab::store::Store;
use remap_ssd_lab::study::{Concluded, Event, Planned};
use remap_ssd_lab::{Form, Library, Options, Study};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Repeats the papers' experiments and compares our figures with every claim.
///
/// An experiment is a folder of text files: devices, schemes, workloads, and the paper's findings.
/// Results are kept run by run: after Ctrl-C or a crash, the same command continues where it
/// stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// `list`, names of experiments, or `all`.
    #[arg(required = true, value_name = "list | all | NAME")]
    pub names: Vec<String>,

    /// Scaled devices and shorter runs: minutes.
    #[arg(long, help_heading = "Size")]
    pub quick: bool,
    /// Tiny devices, seconds: shows that everything runs.
    ///
    /// The figures are meaningless.
    #[arg(long, conflicts_with = "quick", help_heading = "Size")]
    pub smoke: bool,

    /// Override a setting of the devices: --set flash.read_ns=40_000.
    ///
    /// Applies to every device that the experiments simulate, before it is scaled, to see how a
    /// claim depends on that value. A paper's own tables (arithmetic on its figures, recovery times
    /// by capacity) do not change. May be repeated, or comma-separated. The configuration reference
    /// (docs/configuration.md) lists the keys.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Device")]
    pub set: Vec<String>,
    /// Run the experiments under other readings of their papers as well.
    ///
    /// What a paper leaves open (how a device is aged, how long a flush takes) is a variant in
    /// papers/NAME.toml; the table shows which claims hold under which.
    #[arg(long, help_heading = "Size")]
    pub variants: bool,
    /// Folder with experiments of your own.
    ///
    /// It contains NAME/experiment.toml, and papers/NAME.toml; they replace built-in ones with the
    /// same names. An experiment with the analysis `table` needs no claims: its runs are printed as
    /// a table. For grids over any option or setting of the device, see `remap-ssd sweep`.
    #[arg(long, value_name = "DIR", help_heading = "Device")]
    pub from: Option<PathBuf>,

    /// Repeat every run, even if the results folder has it.
    #[arg(long, help_heading = "Run")]
    pub fresh: bool,
    /// Number of concurrent runs [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    pub threads: Option<u32>,
    /// Maximum total memory of concurrent runs.
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = numbers::size, help_heading = "Run")]
    pub memory: u64,

    /// Folder for results; results already in it are reused.
    #[arg(long, value_name = "DIR", default_value = "results", help_heading = "Output")]
    pub out: PathBuf,
    /// Print the claims, or the list, as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd experiment list
  remap-ssd experiment all --quick
  remap-ssd experiment all --out results
  remap-ssd experiment fast21-fig5 fast21-fig7 --json
  remap-ssd experiment copyless-ccaw --quick --variants
  remap-ssd experiment fast21-fig7 --quick --set flash.read_ns=40_000 --out slower-reads
  remap-ssd experiment my-own --from my-experiments

The results folder holds report.html, claims.json, findings.json, a folder for each experiment with
results.csv, results.parquet and its figures as SVG, and runs/ with the result of each run; with
--variants also variants.json, and a variants.md for each experiment.";

/// Runs `experiment`.
///
/// # Errors
/// Invalid arguments or experiments, or a failed run or write.
pub fn command(args: &Args) -> Result<(), Failure> {
    let mut library = built_in();
    if let Some(directory) = &args.from {
        library.lay_over(directory)?;
    }

    let form = match (args.quick, args.smoke) {
        (true, _) => Form::Quick,
        (_, true) => Form::Smoke,
        _ => Form::Full,
    };

    let list = args.names == ["list"];
    let names = names(args, &library, list)?;
    let set = settings::parse(&args.set)?;

    // Planned completely before anything runs, so that a mistake in the last experiment shows at
    // once.
    let mut study = Study::plan_with(&library, &names, form, &set)?;
    if args.variants {
        study.add_variants(&library, &set)?;
    }

    if list {
        return show_list(args, &study);
    }

    let concluded = run(args, &study)?;

    let json = || {
        json!({
            "form": form.to_string(),
            "out": args.out,
            "claims": concluded.iter().flat_map(|one| &one.claims).collect::<Vec<_>>(),
            "findings": concluded.iter().flat_map(|one| &one.findings).collect::<Vec<_>>(),
        })
    };
    output::result(args.json, json, || text(args, form, &concluded))
}

/// The requested experiments, without duplicates.
fn names(args: &Args, library: &Library, list: bool) -> Result<Vec<String>, Failure> {
    let all = || {
        library
            .folders
            .iter()
            .map(|folder| folder.name.clone())
            .collect()
    };

    // These two words mean all experiments and exclude other names.
    if list || args.names == ["all"] {
        return Ok(all());
    }

    if let Some(word) = args
        .names
        .iter()
        .find(|name| ["all", "list"].contains(&name.as_str()))
    {
        return Err(Failure::usage(format_args!(
            "`{word}` stands alone: leave the other names out"
        )));
    }

    let mut names: Vec<String> = Vec::new();
    for name in &args.names {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }

    Ok(names)
}

fn show_list(args: &Args, study: &Study) -> Result<(), Failure> {
    let ids = |planned: &Planned| {
        // Several claims of one paper may share an identifier.
        let mut ids: Vec<&str> = planned
            .expectation
            .claim
            .iter()
            .map(|claim| claim.id.as_str())
            .collect();
        ids.dedup();
        ids.join(" ")
    };

    if args.json {
        let one = |planned: &Planned| {
            json!({
                "name": planned.name,
                "title": planned.experiment.title,
                "paper": planned.paper.title,
                "claims": ids(planned).split_whitespace().collect::<Vec<_>>(),
                "runs": planned.runs.len(),
            })
        };
        return output::json(&json!(study.planned.iter().map(one).collect::<Vec<_>>()));
    }

    let row = |planned: &Planned| {
        vec![
            planned.name.clone(),
            planned.runs.len().to_string(),
            ids(planned),
            planned.experiment.title.clone(),
        ]
    };

    let rows: Vec<Vec<String>> = study.planned.iter().map(row).collect();
    output::text(&output::left_table(
        &["name", "runs", "claims", "shows"],
        &rows,
    ))
}

fn run(args: &Args, study: &Study) -> Result<Vec<Concluded>, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = args.threads.unwrap_or_else(cores) as usize;
    let options = Options {
        form: study.form,
        limits: Limits {
            threads,
            memory: args.memory,
        },
        fresh: args.fresh,
    };
    let progress = Arc::new(ExperimentProgress::new(args.json));
    progress.end_by_signals(&args.out)?;
    let store = Store::open(&args.out, &program())?;
    let done = study.run(&store, &options, &|event| progress.tell(&event));
    progress.bar.finish_and_clear();
    done?;
    Ok(study.conclude(&store)?)
}

/// Identifies this build, so that results of another one are detected.
pub(crate) fn program() -> String {
    let digest = std::env::current_exe()
        .and_then(std::fs::read)
        .map(|bytes| remap_ssd_lab::digest::digest(&bytes));
    digest.unwrap_or_else(|_| env!("CARGO_PKG_VERSION").into())
}

/// Steps of a full bar.
const STEPS: u64 = 10_000;

/// One bar for all runs, with the remaining time.
struct ExperimentProgress {
    bar: ProgressBar,
    began: Instant,
    state: Mutex<Worked>,
}

#[derive(Default)]
struct Worked {
    weight: f64,
    done: f64,
    runs: usize,
    runs_done: usize,
    /// Runs that were already in the folder.
    runs_found: usize,
}

impl ExperimentProgress {
    fn new(hidden: bool) -> Self {
        let template = "{bar:40} {percent:>3} %  {elapsed}  {msg}";
        Self {
            bar: output::bar(hidden, Some(STEPS), template),
            began: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Ctrl-C ends the process at once, with a message: finished runs are on disk, and a run in
    /// progress may take long.
    fn end_by_signals(self: &Arc<Self>, out: &Path) -> Result<(), Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::failed)?;
        let (progress, out) = (Arc::clone(self), out.display().to_string());

        let wait = move || {
            let Some(signal) = signals.forever().next() else {
                return;
            };
            // Locked to the end, so that no run redraws the bar.
            let state = progress.state();
            progress.bar.finish_and_clear();

            let said = match state.runs_found + state.runs_done {
                0 => interrupt::NOTHING.to_owned(),
                kept => format!(
                    "interrupted: {kept} of {} are in {out}; the same command makes the others",
                    counted((state.runs_found + state.runs) as u64, "run")
                ),
            };
            let _ = output::failure(&Failure::Interrupted { signal, said });
            std::process::exit(interrupt::SIGNALLED + signal)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait)
            .map(drop)
            .map_err(Failure::failed)
    }

    fn state(&self) -> MutexGuard<'_, Worked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &Event<'_>) {
        let mut state = self.state();
        match event {
            Event::Begun {
                missing,
                runs,
                others,
                weight,
            } => {
                // Existing results are not part of the estimate.
                (state.weight, state.runs) = (*weight, *missing);
                state.runs_found = runs - missing;

                if missing < runs {
                    output::note(format_args!(
                        "{} of {} are there already",
                        runs - missing,
                        counted(*runs as u64, "run")
                    ));
                }

                if *others > 0 {
                    output::note(format_args!(
                        "note: {} of them were made by another build of the program; --fresh makes them again",
                        others
                    ));
                }
            }
            Event::Worked(weight) => state.done += weight,
            Event::Done(_) => state.runs_done += 1,
        }

        // Nothing is done of nothing.
        let share = (state.done / state.weight.max(f64::MIN_POSITIVE)).min(1.0);
        self.bar.set_position((share * STEPS as f64) as u64);

        // An estimate from the completed fraction; none before the first step.
        let remains = if share > 0.0 {
            remaining(self.began.elapsed().mul_f64((1.0 - share) / share))
        } else {
            "?".into()
        };

        self.bar.set_message(format!(
            "{} of {} runs, {remains} remaining",
            state.runs_done, state.runs
        ));
    }
}

fn remaining(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The table of claims, and the location of the results.
fn text(args: &Args, form: Form, concluded: &[Concluded]) -> String {
    let mut text = String::new();

    let claims: Vec<&Claim> = concluded.iter().flat_map(|one| &one.claims).collect();
    let findings: Vec<&Claim> = concluded.iter().flat_map(|one| &one.findings).collect();

    for list in [&claims, &findings] {
        if !list.is_empty() {
            text.push_str(&table(list));
            text.push('\n');
        }
    }

    concluded
        .iter()
        .flat_map(|one| [&one.text, &one.variants])
        .filter(|table| !table.is_empty())
        .for_each(|table| text.push_str(&format!("{table}\n")));

    // Claims are counted, findings are not: a finding claims nothing.
    let of = |verdict: Verdict| {
        claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .count()
    };

    if !claims.is_empty() {
        text.push_str(&format!(
            "{}: {} hold, {} show the same direction, {} differ\n",
            counted(claims.len() as u64, "claim"),
            of(Verdict::Holds),
            of(Verdict::SameDirection),
            of(Verdict::Differs)
        ));
    }

    if form == Form::Smoke {
        text.push_str("smoke form: the figures mean nothing\n");
    }

    text + &format!("report: {}\n", args.out.join("report.html").display())
}

fn table(claims: &[&Claim]) -> String {
    let row = |claim: &&Claim| {
        let part = if claim.part.is_empty() {
            claim.text.clone()
        } else {
            claim.part.clone()
        };
        vec![
            claim.id.clone(),
            part,
            claim.paper_text.clone(),
            claim.ours_text.clone(),
            claim.verdict_text(),
        ]
    };
    let rows: Vec<Vec<String>> = claims.iter().map(row).collect();
    output::left_table(&["claim", "", "paper", "ours", "verdict"], &rows)
}
