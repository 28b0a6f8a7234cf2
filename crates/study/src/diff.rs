//! The difference of two results, and conditions that must not hold for it.
//!
//! Runs are matched by their labels: scheme, policy and mapping. A figure is a field of a run by
//! its name in the JSON, inner ones with a dot (`latency_us.p99`); some have short names.
//!
//! ```
//! use remap_ssd_study::{Diff, ResultFile};
//!
//! let folder = tempfile::tempdir()?;
//! let result = |name: &str, wa: f64| {
//!     let path = folder.path().join(name);
//!     let text = format!(r#"{{"runs": [{{"scheme": "none", "write_amplification": {wa}}}]}}"#);
//!     std::fs::write(&path, text)?;
//!     Ok::<_, Box<dyn std::error::Error>>(ResultFile::read(&path)?)
//! };
//! let diff = Diff::new(&result("a", 2.0)?, &result("b", 2.5)?, &["wa>+20%".parse()?])?;
//! let pair = diff.failed[0].pair;
//! assert_eq!((pair.change(), pair.ci95(), pair.is_noise()), (0.25, None, false));
//! assert_eq!(diff.json()["runs"][0]["label"], "none");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Two figures with 95 % confidence intervals differ only if their difference is larger than its own
//! interval, `sqrt(a² + b²)` for half widths `a` and `b` (the difference of two independent means);
//! else they count as unchanged. Figures without intervals differ if their values do.
//!
//! Invariant: a condition on a figure that is missing in a result is an error, and never counts as
//! met. Counts of failures are the exception: a run without failures may leave them out, so a missing one is 0.
//! Absent: running anything.

use crate::schema::{figure, long_name};
use crate::{Error, FORMAT_VERSION};
use remap_ssd_ftl::Refusal;
use remap_ssd_sim::interval::{Interval, of_run};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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

/// A condition on the difference of two results, such as `wa>+2%`.
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
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::usage(format_args!(
                "`{text}` is not a condition such as wa>+2%, bw<-5%, p99>+100 or iops<10000"
            ))
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
                return Err(Error::usage(format_args!(
                    "`{text}`: a change has a sign, such as {name}>+{limit}"
                )));
            }
        };

        let limit: f64 = digits.trim().parse().map_err(|_| wrong())?;
        Ok(Self {
            text: text.to_owned(),
            figure: long_name(name).to_owned(),
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
            ComparedQuantity::Value => pair.b,
            // Noise is no change, whichever direction is a regression.
            _ if pair.is_noise() => 0.0,
            ComparedQuantity::Share => pair.change(),
            ComparedQuantity::Change => pair.b - pair.a,
        };
        if self.above {
            found > self.limit
        } else {
            found < self.limit
        }
    }
}

/// A figure in both results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Its value in the first result.
    pub a: f64,
    /// Its value in the second.
    pub b: f64,
    /// The half widths of both 95 % confidence intervals; none unless both are known.
    pub halves: Option<(f64, f64)>,
}

impl Pair {
    /// Relative change from A to B: 0.1 is 10 % more.
    pub fn change(self) -> f64 {
        // Two zeroes have not changed, and must not be divided.
        match self.b - self.a {
            0.0 => 0.0,
            difference => difference / self.a.abs(),
        }
    }

    /// The half width of the 95 % confidence interval of the difference, if it is known.
    pub fn ci95(self) -> Option<f64> {
        self.halves.map(|(a, b)| a.hypot(b))
    }

    /// Returns true if the difference is no larger than chance explains, with 95 % confidence.
    pub fn is_noise(self) -> bool {
        self.ci95()
            .is_some_and(|half| (self.b - self.a).abs() <= half)
    }
}

/// One scheme in both results.
struct Both<'a> {
    label: String,
    a: &'a Value,
    b: &'a Value,
}

/// A result in its file.
#[derive(Clone, Debug)]
pub struct ResultFile {
    path: PathBuf,
    value: Value,
}

impl ResultFile {
    /// Reads a result of `compare`.
    ///
    /// # Errors
    /// It cannot be read, or is not JSON.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let about = |error: &dyn fmt::Display| Error::about(path.display(), error);
        let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
        let value = serde_json::from_str(&text);
        Ok(Self {
            path: path.into(),
            value: value.map_err(|error| about(&format_args!("not a result: {error}")))?,
        })
    }
}

/// The difference of two results.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The labels of the runs in both, each with its figures.
    pub runs: Vec<(String, Vec<(String, Pair)>)>,
    /// The labels of runs that are transient in one result or both: they have no intervals, so every
    /// difference counts.
    pub transient: Vec<String>,
    /// The labels of runs only in the first result.
    pub only_in_a: Vec<String>,
    /// The labels of runs only in the second result.
    pub only_in_b: Vec<String>,
    /// Differences between the configurations: `path: a -> b`.
    pub config: Vec<String>,
    /// Conditions that hold.
    pub failed: Vec<Violation>,
}

/// A condition that holds for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The run.
    pub label: String,
    /// The condition.
    pub condition: Condition,
    /// The figure that it limits.
    pub pair: Pair,
}

impl Diff {
    /// Compares two results.
    ///
    /// # Errors
    /// They have no run in common, or lack a figure of a condition.
    pub fn new(a: &ResultFile, b: &ResultFile, conditions: &[Condition]) -> Result<Self, Error> {
        let (runs_a, runs_b) = (labelled(a)?, labelled(b)?);

        // Only runs in both results are compared. The others are listed.
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
            return Err(Error::failed(format_args!(
                "{} and {} have no scheme in common",
                a.path.display(),
                b.path.display()
            )));
        }

        let mut failed = Vec::new();
        for run in &both {
            for condition in conditions {
                let pair = run.limited(condition)?;
                if condition.holds(pair) {
                    failed.push(Violation {
                        label: run.label.clone(),
                        condition: condition.clone(),
                        pair,
                    });
                }
            }
        }

        // Unmatched runs are listed, so that they are not assumed to agree.
        let lone = |runs: &[(String, &Value)], others: &[(String, &Value)]| -> Vec<String> {
            let is_lone = |label: &String| others.iter().all(|(other, _)| other != label);
            let labels = runs.iter().map(|(label, _)| label.clone());
            labels.filter(is_lone).collect()
        };

        let names = figures(conditions);
        let of = |run: &Both<'_>| {
            let found = names
                .iter()
                .filter_map(|name| Some((name.clone(), run.figure(name)?)));
            (run.label.clone(), found.collect())
        };

        let is_transient = |run: &&Both<'_>| {
            let state = |run: &Value| run.pointer("/steady/is_steady").and_then(Value::as_bool);
            [run.a, run.b].map(state).contains(&Some(false))
        };
        let transient = both.iter().filter(is_transient);

        Ok(Self {
            transient: transient.map(|run| run.label.clone()).collect(),
            runs: both.iter().map(of).collect(),
            only_in_a: lone(&runs_a, &runs_b),
            only_in_b: lone(&runs_b, &runs_a),
            config: differences(&a.value["config"], &b.value["config"]),
            failed,
        })
    }

    /// The difference as JSON.
    pub fn json(&self) -> Value {
        let run = |(label, figures): &(String, Vec<(String, Pair)>)| {
            let pair = |pair: &Pair| {
                json!({
                    "a": pair.a,
                    "b": pair.b,
                    "change": pair.change(),
                    "ci95": pair.ci95(),
                    "within_noise": pair.is_noise(),
                })
            };
            let figures = figures
                .iter()
                .map(|(name, found)| (name.clone(), pair(found)));
            json!({ "label": label, "figures": figures.collect::<Map<_, _>>() })
        };

        let failed = self.failed.iter().map(|held| {
            json!({ "label": held.label, "condition": held.condition.text, "a": held.pair.a, "b": held.pair.b })
        });
        json!({
            "format_version": FORMAT_VERSION,
            "runs": self.runs.iter().map(run).collect::<Vec<_>>(),
            "transient": self.transient,
            "only_in_a": self.only_in_a,
            "only_in_b": self.only_in_b,
            "config": self.config,
            "failed": failed.collect::<Vec<_>>(),
        })
    }
}

/// The runs of a result, with unique labels.
fn labelled(result: &ResultFile) -> Result<Vec<(String, &Value)>, Error> {
    let runs = result.value["runs"].as_array().ok_or_else(|| {
        let reason = "not a result of `compare`: it has no list `runs`";
        Error::about(result.path.display(), reason)
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

/// The requests that the device refused, by the text of the reason.
const REFUSED: &str = "requests.refused";

/// The reason in the name of a count of refused requests.
fn reason_of(name: &str) -> Option<&str> {
    name.strip_prefix(REFUSED)?.strip_prefix('.')
}

/// The texts of all reasons.
fn reasons() -> impl Iterator<Item = String> {
    Refusal::ALL.iter().map(Refusal::to_string)
}

/// A figure of a run. Counts of failures are 0 if the run does not have them: it names only the reasons that
/// occurred, and read errors only if flash had them.
fn figure_of(run: &Value, name: &str) -> Option<Interval> {
    let count = |value: f64| {
        let half = f64::NAN;
        Some(Interval { value, half })
    };
    if name == REFUSED {
        let counts = run.pointer("/requests/refused")?.as_object()?.values();
        return count(counts.filter_map(Value::as_f64).sum());
    }
    let is_failure = match reason_of(name) {
        Some(reason) => reasons().any(|known| known == reason),
        None => name.starts_with("read_errors.") && figure(name).is_ok(),
    };
    of_run(run, name).or_else(|| is_failure.then(|| count(0.0))?)
}

impl Both<'_> {
    /// The figure in both results, if both have it.
    fn figure(&self, name: &str) -> Option<Pair> {
        let (a, b) = (figure_of(self.a, name)?, figure_of(self.b, name)?);
        let is_known = a.half.is_finite() && b.half.is_finite();
        Some(Pair {
            a: a.value,
            b: b.value,
            halves: is_known.then_some((a.half, b.half)),
        })
    }

    /// The figure of a condition; a missing one must not count as a condition met.
    fn limited(&self, condition: &Condition) -> Result<Pair, Error> {
        self.figure(&condition.figure).ok_or_else(|| {
            let name = &condition.figure;
            if reason_of(name).is_some() {
                let known: Vec<String> = reasons().collect();
                return Error::usage(format_args!(
                    "{condition}: no request is refused for this reason; there are: {}; {REFUSED} counts all",
                    known.join(", ")
                ));
            }

            match figure(name) {
                // Newer and older results have other figures.
                Err(reason) if self.a.get(name).is_none() => {
                    Error::Usage(format!("{condition}: {reason}"))
                }
                _ => Error::failed(format_args!(
                    "{condition}: {} has no figure `{name}` in both results",
                    self.label
                )),
            }
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
        let halves = None;
        let pair = Pair { a, b, halves };
        text.parse::<Condition>().unwrap().holds(pair)
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

    #[test]
    fn a_missing_count_of_failures_is_zero_and_any_other_figure_is_missing() {
        let clean = json!({ "requests": { "refused": {} } });
        let failed = json!({
            "requests": { "refused": { "unrecovered read error": 3, "LBA out of range": 1 } },
            "read_errors": { "lost": 2, "retries_per_read": 0.5 },
        });
        let value = |run: &Value, name: &str| figure_of(run, name).map(|found| found.value);

        for (name, count) in [
            ("requests.refused", 4.0),
            ("requests.refused.unrecovered read error", 3.0),
            ("read_errors.lost", 2.0),
            ("read_errors.retries_per_read", 0.5),
        ] {
            assert_eq!(value(&failed, name), Some(count), "{name}");
            assert_eq!(value(&clean, name), Some(0.0), "{name}");
        }

        for name in ["requests.refused.bad luck", "read_errors.los", "iops"] {
            assert_eq!(value(&clean, name), None, "{name}");
        }
        // A result that does not count requests at all.
        assert_eq!(value(&json!({}), "requests.refused"), None);
    }

    /// Half widths of 3 and 4 make 5: a change of 5 is noise, and one of 6 is not.
    #[test]
    fn a_difference_within_the_combined_interval_is_no_change() {
        let holds = |text: &str, b: f64, halves: Option<(f64, f64)>| {
            let pair = Pair {
                a: 100.0,
                b,
                halves,
            };
            text.parse::<Condition>().unwrap().holds(pair)
        };
        let known = Some((3.0, 4.0));
        assert!(!holds("wa>+2%", 105.0, known) && holds("wa>+2%", 106.0, known));
        assert!(!holds("bw<-1", 95.0, known) && holds("bw<-1", 94.0, known));
        assert!(holds("wa>+2%", 105.0, None));

        // A demanded gain is not met by noise, and a limit of the value has nothing to do with it.
        assert!(holds("bw<+2%", 105.0, known) && !holds("bw<+2%", 106.0, known));
        assert!(holds("wa>104", 105.0, known));
    }
}
