//! `compare diff`: two results side by side, and conditions that make the command fail.
//!
//! Runs are matched by their labels: scheme, policy and mapping. A figure is a field of a run by
//! its name in the JSON, inner ones with a dot (`latency_us.p99`); some have short names.
//! Invariant: a condition on a figure that is missing in a result is an error, and never counts as
//! met. Absent: running anything.

use crate::failure::Failure;
use crate::output::{self, table};
use remap_ssd_device::keys::did_you_mean;
use remap_ssd_sim::report::format::number;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Compares two results side by side, and fails if a figure has changed too much.
///
/// Exit code 1 if a condition holds for any scheme. Results are files from `compare --out`, or the
/// output of `compare --json`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The baseline result.
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// The result to judge.
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Fail if this holds: FIGURE>+2% or FIGURE<-2% (change from A to B), FIGURE>+0.1 (change in
    /// the figure's own unit), FIGURE>2.5 (its value in B). Figures: wa, bw, iops, req, p50, p99,
    /// p999 (writes), read_p50, read_p99, tbw, or any number of a run by its name in the JSON, such
    /// as latency_us.p99. May be repeated, or comma-separated.
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
  remap-ssd compare diff a.json b.json --fail-if 'requests_per_s<10000' --json";

const SHORT: [(&str, &str); 10] = [
    ("wa", "write_amplification"),
    ("bw", "bandwidth_mib_s"),
    ("iops", "iops"),
    ("req", "requests_per_s"),
    ("p50", "latency_us.p50"),
    ("p99", "latency_us.p99"),
    ("p999", "latency_us.p999"),
    ("read_p50", "read_latency_us.p50"),
    ("read_p99", "read_latency_us.p99"),
    ("tbw", "life_tb_written"),
];

/// Figures that are always shown.
const SHOWN: [&str; 9] = [
    "bandwidth_mib_s",
    "requests_per_s",
    "write_amplification",
    "latency_us.p99",
    "read_latency_us.p99",
    "host_pages",
    "flash_pages",
    "gc_pages",
    "remaps",
];

/// A condition that makes the command fail.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    figure: String,
    above: bool,
    of: ComparedQuantity,
    limit: f64,
}

/// The quantity that a condition limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedQuantity {
    /// The relative change.
    Share,
    /// The absolute change, in the figure's unit.
    Change,
    /// The new value.
    Value,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a condition such as wa>+2%, bw<-5%, p99>+100 or iops<10000")
        };

        // The first sign separates name and limit; a second one belongs to the limit.
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, limit) = (text[..at].trim(), text[at + 1..].trim());
        if name.is_empty() {
            return Err(wrong());
        }

        let is_change = limit.starts_with(['+', '-']);

        // A change has a sign. With a percent sign it is relative; without a sign the value is
        // compared.
        let (digits, of) = match (limit.strip_suffix('%'), is_change) {
            (Some(digits), true) => (digits, ComparedQuantity::Share),
            (None, true) => (limit, ComparedQuantity::Change),
            (None, false) => (limit, ComparedQuantity::Value),
            (Some(_), false) => {
                return Err(format!(
                    "`{text}`: a change has a sign, such as {name}>+{limit}"
                ));
            }
        };

        let limit: f64 = digits.trim().parse().map_err(|_| wrong())?;
        let long = SHORT.iter().find(|(short, _)| *short == name);

        Ok(Self {
            text: text.to_owned(),
            figure: long.map_or(name, |(_, long)| long).to_owned(),
            above: text.as_bytes()[at] == b'>',
            of,
            limit: if of == ComparedQuantity::Share {
                limit / 100.0
            } else {
                limit
            },
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    fn holds(&self, pair: Pair) -> bool {
        let found = match self.of {
            ComparedQuantity::Share => pair.change(),
            ComparedQuantity::Change => pair.b - pair.a,
            ComparedQuantity::Value => pair.b,
        };
        if self.above {
            found > self.limit
        } else {
            found < self.limit
        }
    }
}

/// A figure in both results.
#[derive(Clone, Copy, Debug)]
struct Pair {
    a: f64,
    b: f64,
}

impl Pair {
    /// Relative change from A to B.
    fn change(self) -> f64 {
        // Two zeroes have not changed, and must not be divided.
        match self.b - self.a {
            0.0 => 0.0,
            difference => difference / self.a.abs(),
        }
    }
}

/// One scheme in both results.
struct Both<'a> {
    label: String,
    a: &'a Value,
    b: &'a Value,
}

/// Runs it.
///
/// # Errors
/// A result cannot be read, a figure is missing, or a condition holds.
pub fn command(args: &Args) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let (runs_a, runs_b) = (labelled(&args.a, &a)?, labelled(&args.b, &b)?);

    // Only runs in both results are compared. The others are listed below.
    let both: Vec<Both<'_>> = runs_a
        .iter()
        .filter_map(|(label, a)| {
            let (_, b) = runs_b.iter().find(|(other, _)| other == label)?;
            Some(Both {
                label: label.clone(),
                a,
                b,
            })
        })
        .collect();
    if both.is_empty() {
        return Err(Failure::failed(format_args!(
            "{} and {} have no scheme in common",
            args.a.display(),
            args.b.display()
        )));
    }

    let mut held = Vec::new();
    for run in &both {
        for condition in &args.fail_if {
            // A missing figure must not count as a condition met.
            let pair = run.figure(&condition.figure).ok_or_else(|| {
                let names = SHORT.iter().flat_map(|(short, long)| [*short, *long]);
                let hint = match run.a.get(&condition.figure) {
                    Some(_) => " in both results".to_owned(),
                    None if names.clone().any(|name| name == condition.figure) => {
                        " in both results".to_owned()
                    }
                    None => did_you_mean(&condition.figure, names),
                };
                Failure::failed(format_args!(
                    "{condition}: {} has no figure `{}`{hint}",
                    run.label, condition.figure
                ))
            })?;
            if condition.holds(pair) {
                held.push((run, condition, pair));
            }
        }
    }

    // Unmatched runs are listed, so that they are not assumed to agree.
    let lone = |runs: &[(String, &Value)], others: &[(String, &Value)]| -> Vec<String> {
        let is_lone = |label: &String| others.iter().all(|(other, _)| other != label);
        let labels = runs.iter().map(|(label, _)| label.clone());
        labels.filter(is_lone).collect()
    };
    let (only_a, only_b) = (lone(&runs_a, &runs_b), lone(&runs_b, &runs_a));
    let figures = figures(&args.fail_if);

    if args.json {
        let pair = |pair: Pair| json!({ "a": pair.a, "b": pair.b, "change": pair.change() });
        let run = |run: &Both<'_>| {
            let found = figures
                .iter()
                .filter_map(|name| Some((name.clone(), pair(run.figure(name)?))));
            json!({ "label": run.label, "figures": found.collect::<serde_json::Map<_, _>>() })
        };
        let failed = held.iter().map(|(run, condition, found)| {
            json!({ "label": run.label, "condition": condition.text, "a": found.a, "b": found.b })
        });
        output::json(&json!({
            "format_version": super::show::FORMAT_VERSION,
            "runs": both.iter().map(run).collect::<Vec<_>>(),
            "only_in_a": only_a,
            "only_in_b": only_b,
            "config": differences(&a["config"], &b["config"]),
            "failed": failed.collect::<Vec<_>>(),
        }))?;
    } else {
        output::text(&as_text(&both, &figures))?;
        for (name, only) in [(&args.a, &only_a), (&args.b, &only_b)] {
            if !only.is_empty() {
                output::note(format_args!(
                    "note: only in {}: {}",
                    name.display(),
                    only.join(", ")
                ));
            }
        }

        // A dozen is enough to show that the devices differ.
        for line in differences(&a["config"], &b["config"]).iter().take(12) {
            output::note(format_args!("note: configurations differ: {line}"));
        }
        for (run, condition, pair) in &held {
            output::text(&format!(
                "FAILED {condition}: {} {} -> {} ({})\n",
                run.label,
                number(pair.a),
                number(pair.b),
                change(*pair)
            ))?;
        }
    }
    if held.is_empty() {
        Ok(())
    } else {
        Err(Failure::Found)
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::about(path.display(), error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::about(path.display(), format_args!("not a result: {error}")))
}

/// The runs of a result, with unique labels.
fn labelled<'a>(path: &Path, result: &'a Value) -> Result<Vec<(String, &'a Value)>, Failure> {
    let runs = result["runs"].as_array().ok_or_else(|| {
        let reason = "not a result of `compare`: it has no list `runs`";
        Failure::about(path.display(), reason)
    })?;

    let mut labelled: Vec<(String, &Value)> = Vec::new();
    for run in runs {
        let text = |name: &str| run.pointer(name).and_then(Value::as_str).unwrap_or("");
        let mut label = text("/scheme").to_owned();

        // Only values that differ from the defaults are in a label.
        if !["", "greedy"].contains(&text("/gc_policy")) {
            label = format!("{label}/{}", text("/gc_policy"));
        }
        if !["", "page"].contains(&text("/mapping/kind")) {
            label = format!("{label}+{}", text("/mapping/kind"));
        }

        // Runs with the same label are numbered.
        let plain = label.clone();
        let mut number = 1;
        while labelled.iter().any(|(other, _)| *other == label) {
            number += 1;
            label = format!("{plain} #{number}");
        }

        labelled.push((label, run));
    }

    Ok(labelled)
}

impl Both<'_> {
    /// The figure in both results, if both have it.
    fn figure(&self, name: &str) -> Option<Pair> {
        let of = |run: &Value| {
            let found = name.split('.').try_fold(run, |value, part| value.get(part));
            found.and_then(Value::as_f64)
        };
        Some(Pair {
            a: of(self.a)?,
            b: of(self.b)?,
        })
    }
}

/// Figures to show: the default ones, and those of conditions.
fn figures(conditions: &[Condition]) -> Vec<String> {
    let mut figures = SHOWN.map(str::to_owned).to_vec();
    for condition in conditions {
        if !figures.contains(&condition.figure) {
            figures.push(condition.figure.clone());
        }
    }
    figures
}

fn as_text(both: &[Both<'_>], figures: &[String]) -> String {
    let mut rows = Vec::new();
    for run in both {
        for name in figures {
            if let Some(pair) = run.figure(name) {
                rows.push(vec![
                    format!("{} {name}", run.label),
                    number(pair.a),
                    number(pair.b),
                    change(pair),
                ]);
            }
        }
    }
    table(&["", "A", "B", "change"], &rows)
}

fn change(pair: Pair) -> String {
    match pair.change() {
        0.0 => "same".into(),
        change if change.is_finite() => format!("{:+.2} %", change * 100.0),
        _ => "new".into(),
    }
}

/// Differences between the configurations: `path: a -> b`.
fn differences(a: &Value, b: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ("", a, b, &mut found);
    found
}

fn differ(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(first), Value::Object(second)) => {
            let more = second.keys().filter(|name| !first.contains_key(*name));
            for name in first.keys().chain(more) {
                let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
                differ(&path, &a[name], &b[name], found);
            }
        }
        // Lists count as one value: their elements cannot be matched by name.
        (a, b) if a != b => found.push(format!("{path}: {a} -> {b}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, a: f64, b: f64) -> bool {
        text.parse::<Condition>().unwrap().holds(Pair { a, b })
    }

    #[test]
    fn a_condition_is_about_a_change_or_about_a_value() {
        assert!(holds("wa>+2%", 2.0, 2.05) && !holds("wa>+2%", 2.0, 2.03));
        assert!(holds("bw<-5%", 100.0, 94.0) && !holds("bw<-5%", 100.0, 96.0));
        assert!(holds("p99>+10", 100.0, 111.0) && !holds("p99>+10", 100.0, 110.0));
        assert!(holds("iops<10000", 9.0, 9_999.0) && !holds("iops<10000", 9.0, 10_000.0));
        assert!(holds("gc_pages>+0%", 0.0, 1.0) && !holds("gc_pages>+0%", 0.0, 0.0));
        for wrong in ["wa", ">2", "wa>2%", "wa>", "wa>+x%"] {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }
}
