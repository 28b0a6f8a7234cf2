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
use remap_ssd_lab::{
    Concluded, Event, Form, Limits, Options, Store, Study, StudyProgress, built_in, text,
};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Repeats the papers' experiments and compares our figures with every claim.
///
/// An experiment is a folder of text files: devices, schemes, workloads, and the paper's findings.
/// Results are kept run by run: after Ctrl-C or a crash, the same command continues where it
/// stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
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
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let mut library = built_in();
    if let Some(directory) = &args.from {
        library.lay_over(directory)?;
    }

    let form = match (args.quick, args.smoke) {
        (true, _) => Form::Quick,
        (_, true) => Form::Smoke,
        _ => Form::Full,
    };

    let names = library.names(&args.names)?;
    let set = settings::parse(&args.set)?;

    // Planned completely before anything runs, so that a mistake in the last experiment shows at
    // once.
    let mut study = Study::plan_with(&library, &names, form, &set)?;
    if args.variants {
        study.add_variants(&library, &set)?;
    }
    if args.names == ["list"] {
        let planned = &study.planned;
        return output::result(
            args.json,
            || text::list_json(planned),
            || text::list(planned),
        );
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
    output::result(args.json, json, || {
        let report = args.out.join("report.html");
        format!(
            "{}report: {}\n",
            text::outcome(&concluded, form),
            report.display()
        )
    })
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
        .map(|bytes| remap_ssd_lab::digest(&bytes));
    digest.unwrap_or_else(|_| env!("CARGO_PKG_VERSION").into())
}

/// Steps of a full bar.
const STEPS: u64 = 10_000;

/// One bar for all runs, with the remaining time.
struct ExperimentProgress {
    bar: ProgressBar,
    state: Mutex<StudyProgress>,
}

impl ExperimentProgress {
    fn new(hidden: bool) -> Self {
        let template = "{bar:40} {percent:>3} %  {elapsed}  {msg}";
        Self {
            bar: output::bar(hidden, Some(STEPS), template),
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

            let said = match state.found + state.made {
                0 => interrupt::NOTHING.to_owned(),
                kept => format!(
                    "interrupted: {kept} of {} are in {out}; the same command makes the others",
                    counted((state.found + state.missing) as u64, "run")
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

    fn state(&self) -> MutexGuard<'_, StudyProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &Event<'_>) {
        let mut state = self.state();
        state.add(event);
        if let Event::Begun { runs, others, .. } = event {
            if state.found > 0 {
                let runs = counted(*runs as u64, "run");
                output::note(format_args!("{} of {runs} are there already", state.found));
            }
            if *others > 0 {
                output::note(format_args!(
                    "note: {others} of them were made by another build of the program; --fresh makes them again"
                ));
            }
        }

        self.bar.set_position((state.share() * STEPS as f64) as u64);
        let remains = state.remaining().map_or("?".into(), |time| {
            format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
        });
        self.bar.set_message(format!(
            "{} of {} runs, {remains} remaining",
            state.made, state.missing
        ));
    }
}
