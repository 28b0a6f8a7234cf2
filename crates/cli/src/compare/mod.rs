//! `compare`: several schemes, and their results side by side.
//!
//! Absent: the options, the runs and their JSON (`remap_ssd_study`).

mod args;
pub(crate) mod diff;
mod progress;
mod show;

pub(crate) use args::{Args, SpecArgs};
pub(crate) use progress::Bar;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use remap_ssd_sim::report::format::bytes;
use remap_ssd_study::{self as study, Comparison, Need, STEPS};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs one workload or trace against several schemes of address remapping, on the same device, and
/// compares the results side by side.
///
/// Each device is aged first: every page is written, pages are overwritten until garbage collection
/// is in its steady state, and pages are moved until 90 % of the remapping metadata is used and 70 %
/// of that is valid, as in the published evaluations. All schemes begin with the same flash. Then the
/// workload runs until its write amplification is steady, and is measured. Figures have 95 %
/// confidence intervals. The results depend on the seed and the options alone, not on --threads nor
/// on the machine.
///
/// Ctrl-C stops the runs and shows the finished ones; the exit code is then 130. A scheme that
/// cannot run does not stop the others; the exit code is then 1.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = args::EXAMPLES_SHORT,
    after_long_help = args::EXAMPLES
)]
pub(crate) struct CompareCommand {
    /// The device, the schemes and the workload to run.
    #[command(flatten)]
    pub args: Args,
    /// A comparison of earlier results, instead of a run.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// Operations on results.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Compares two results side by side, and fails if a figure has changed too much.
    Diff(diff::Args),
}

/// Memory estimates from here on are printed before the runs: less fits on any machine.
const NOTED_BYTES: u64 = 512 << 20;

/// Runs `compare`.
///
/// # Errors
/// Incompatible arguments, an unreadable file, or a failed measurement.
pub(crate) fn command(line: &CompareCommand) -> Result<(), Failure> {
    if let Some(Action::Diff(args)) = &line.action {
        return diff::command(args);
    }
    let args = &line.args;

    // From here on a signal stops the reading of the trace, and then the jobs, but not the program,
    // so that finished results are shown.
    let interrupt = Interrupt::listen()?;
    let before_the_first = |error| match error {
        study::Error::Stopped(_) => interrupt.before_the_first(),
        other => other.into(),
    };
    let stop = Arc::clone(interrupt.flag());
    let follow = if args.json {
        study::until(stop)
    } else {
        progress::reading(stop)
    };
    let spec = args.spec.0.clone();
    let comparison = Comparison::of_possible(spec, follow).map_err(before_the_first)?;
    comparison.notes().iter().for_each(output::note);

    // A scheme that cannot run is reported, and the others are run.
    for (scheme, error) in comparison.refused() {
        output::note(format_args!("note: {scheme} is left out: {error}"));
    }

    let need = comparison.need();
    if !args.json && need.total_bytes >= NOTED_BYTES {
        let Need { total_bytes, .. } = need;
        output::note(format_args!(
            "about {} of memory: {need}",
            bytes(total_bytes)
        ));
    }

    let bars = bars(args, &comparison, interrupt.flag());
    let measured = comparison.run_possible(&bars);
    bars.iter().for_each(Bar::clear);
    let measured = measured.map_err(before_the_first)?;

    let text = || show::text(&comparison, &measured, args.details);
    output::result(args.json, || comparison.json(&measured), text)?;
    output::written(measured.written());

    // Shown first: the exit code says that a result is missing, and the others are printed.
    match measured.complete() {
        Err(failure) if interrupt.is_asked() => {
            Err(interrupt.failure(format!("interrupted: {failure}")))
        }
        result => Ok(result.map(drop)?),
    }
}

/// A progress line per job, on standard error if it is a terminal.
fn bars(args: &Args, comparison: &Comparison, stop: &Arc<AtomicBool>) -> Vec<Bar> {
    let lines = MultiProgress::with_draw_target(output::progress_target(args.json));
    let style =
        ProgressStyle::with_template("{prefix:10} {bar:40} {percent:>3} %  {elapsed}  {msg}")
            .expect("the template is valid");

    let bar = |name: String| {
        let bar = lines.add(ProgressBar::new(STEPS)).with_style(style.clone());
        let line = bar.with_prefix(name).with_message("waiting");
        Bar::new(line, Arc::clone(stop))
    };

    comparison.names().into_iter().map(bar).collect()
}
