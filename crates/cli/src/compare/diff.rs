//! `compare diff`: two results side by side, and conditions that make the command fail.
//!
//! Absent: the differences (`remap_ssd_study::Diff`).

use crate::failure::Failure;
use crate::output::{self, table};
use remap_ssd_sim::report::format::{interval, number};
use remap_ssd_study::{Condition, Diff, Pair, ResultFile};
use std::path::PathBuf;

/// Compares two results side by side, and fails if a figure has changed too much.
///
/// Exit code 1 if a condition holds for any scheme. Results are files from `compare --out`, or the
/// output of `compare --json`. A difference of two figures with 95 % confidence intervals, of half
/// widths a and b, counts as no change if it is within sqrt(a² + b²); without intervals every
/// difference counts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The baseline result.
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// The result to judge.
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Fail if this holds: FIGURE>+2% or FIGURE<-2% (change from A to B), FIGURE>+0.1 (change in
    /// the figure's own unit), FIGURE>2.5 (its value in B). Figures: wa, bw, iops, req, p50, p99,
    /// p999 (writes), read_p50, read_p99, tbw, or any number of a run by its name in the JSON, such
    /// as latency_us.p99. requests.refused counts all refused requests. Counts of refused requests and
    /// of read errors are 0 in a run that has none. May be repeated, or comma-separated.
    #[arg(long, value_name = "CONDITION", value_delimiter = ',')]
    pub fail_if: Vec<Condition>,
    /// Print the differences as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  remap-ssd compare diff a.json b.json
  remap-ssd compare diff a.json b.json --fail-if 'wa>+2%' --fail-if 'bw<-5%,p99>+10%'
  remap-ssd compare diff a.json b.json --fail-if 'requests_per_s<10000' --json
  remap-ssd compare diff a.json b.json --fail-if 'requests.refused>0' --fail-if 'read_errors.lost>0'";

/// Runs it.
///
/// # Errors
/// A result cannot be read, a figure is missing, or a condition holds.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let (a, b) = (ResultFile::read(&args.a)?, ResultFile::read(&args.b)?);
    let diff = Diff::new(&a, &b, &args.fail_if)?;

    if args.json {
        output::json(&diff.json())?;
    } else {
        show(args, &diff)?;
    }
    Failure::found_unless(diff.failed.is_empty())
}

fn show(args: &Args, diff: &Diff) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (label, figures) in &diff.runs {
        for (name, pair) in figures {
            rows.push(vec![
                format!("{label} {name}"),
                figure(pair.a, pair.halves.map(|halves| halves.0)),
                figure(pair.b, pair.halves.map(|halves| halves.1)),
                change(*pair),
            ]);
        }
    }
    output::text(&table(&["", "A", "B", "change"], &rows))?;

    if !diff.transient.is_empty() {
        output::note(format_args!(
            "note: transient, so without intervals, and every difference counts: {}",
            diff.transient.join(", ")
        ));
    }
    for (path, only) in [(&args.a, &diff.only_in_a), (&args.b, &diff.only_in_b)] {
        if !only.is_empty() {
            output::note(format_args!(
                "note: only in {}: {}",
                path.display(),
                only.join(", ")
            ));
        }
    }

    // A dozen is enough to show that the devices differ.
    for line in diff.config.iter().take(12) {
        output::note(format_args!("note: configurations differ: {line}"));
    }
    for held in &diff.failed {
        output::text(&format!(
            "FAILED {}: {} {} -> {} ({})\n",
            held.condition,
            held.label,
            number(held.pair.a),
            number(held.pair.b),
            change(held.pair)
        ))?;
    }
    Ok(())
}

fn figure(value: f64, half: Option<f64>) -> String {
    half.map_or_else(|| number(value), |half| interval(value, half))
}

fn change(pair: Pair) -> String {
    match pair.change() {
        0.0 => "same".into(),
        change if pair.is_noise() => format!("within the noise ({:+.2} %)", change * 100.0),
        change if change.is_finite() => format!("{:+.2} %", change * 100.0),
        _ => "new".into(),
    }
}
