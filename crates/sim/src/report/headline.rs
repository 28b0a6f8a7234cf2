//! The cards at the top of the page: the best scheme and its gains.
//!
//! Invariants: the ideal scheme, which cannot be built, never counts as the best of several; no
//! scheme is called best if nothing was remapped or another is as fast within the noise; without a
//! run that does not remap, the cards give absolute values and say so; a loss is called a
//! loss. Absent: data that the table below does not show.

use super::format::{number, ratio, share};
use super::metrics::{BASELINE, IDEAL, baseline, differ, is_without_remaps, labels, speedup};
use crate::summary::RunSummary;

/// A highlighted number, with its meaning and origin.
pub(super) struct Card {
    /// Heading.
    pub title: String,
    /// The number, or a name.
    pub value: String,
    /// The underlying numbers; may be empty.
    pub note: String,
}

/// Returns the cards; none without runs.
pub(super) fn cards(runs: &[RunSummary]) -> Vec<Card> {
    let Some(best) = best(runs) else {
        return Vec::new();
    };

    let run = &runs[best];
    let name = labels(runs).swap_remove(best);
    // The baseline is not compared with itself.
    let other = baseline(runs).filter(|_| run.scheme != BASELINE);

    vec![
        Card {
            title: title(runs, run).to_owned(),
            value: name,
            note: bound(runs, run),
        },
        bandwidth(runs, run, other),
        compared("Write amplification", run, other, "", |run| {
            run.write_amplification
        }),
        compared("Write latency, p99", run, other, " µs", |run| {
            run.latency_us.p99
        }),
    ]
}

/// The claim that can be made of the fastest run.
fn title(runs: &[RunSummary], run: &RunSummary) -> &'static str {
    let is_contender = |other: &&RunSummary| other.scheme != IDEAL && !std::ptr::eq(*other, run);
    let lead: Option<Vec<bool>> = runs
        .iter()
        .filter(is_contender)
        .map(|other| differ(run, other))
        .collect();

    if is_without_remaps(runs) {
        "Fastest run, though nothing was remapped"
    } else if [BASELINE, IDEAL].contains(&run.scheme.as_str()) {
        "Fastest run"
    } else {
        match lead {
            Some(ahead) if ahead.iter().all(|is| *is) => "Best remapping scheme",
            Some(_) => "Fastest remapping scheme, within the noise of others",
            None => "Fastest remapping scheme",
        }
    }
}

/// The fastest run: of those that remap and can be built, else of those that can be built.
fn best(runs: &[RunSummary]) -> Option<usize> {
    let fastest = |eligible: &dyn Fn(&str) -> bool| {
        // The first of equal runs.
        let speed = |i: &usize| runs[*i].bandwidth_mib_s;
        (0..runs.len())
            .filter(|&i| eligible(&runs[i].scheme) && runs[i].bandwidth_mib_s.is_finite())
            .max_by(|a, b| speed(a).total_cmp(&speed(b)).then(b.cmp(a)))
    };
    fastest(&|scheme| scheme != BASELINE && scheme != IDEAL)
        .or_else(|| fastest(&|scheme| scheme != IDEAL))
        .or_else(|| fastest(&|_| true))
}

/// Bandwidth of the run relative to the ideal.
fn bound(runs: &[RunSummary], run: &RunSummary) -> String {
    let ideal = runs
        .iter()
        .find(|other| other.scheme == IDEAL && run.scheme != IDEAL);
    match ideal.and_then(|ideal| share(run.bandwidth_mib_s, ideal.bandwidth_mib_s)) {
        Some(part) => format!(
            "{} % of {IDEAL}, the ideal that can't be built",
            number(part * 100.0)
        ),
        None if runs.len() == 1 => "the only run".to_owned(),
        None => format!("of {} runs", runs.len()),
    }
}

fn bandwidth(runs: &[RunSummary], run: &RunSummary, other: Option<&RunSummary>) -> Card {
    let gain = other.and_then(|other| Some((speedup(runs, run)?, other)));

    match gain {
        Some((times, other)) => Card {
            title: format!("Bandwidth vs {BASELINE}"),
            value: ratio(times),
            note: format!(
                "{} MiB/s against {}",
                number(run.bandwidth_mib_s),
                number(other.bandwidth_mib_s)
            ),
        },
        None => Card {
            title: "Bandwidth".to_owned(),
            value: format!("{} MiB/s", number(run.bandwidth_mib_s)),
            note: match run.scheme.as_str() {
                BASELINE => String::new(),
                _ => "not compared with a run without remapping".to_owned(),
            },
        },
    }
}

/// A card for a measurement of which less is better.
fn compared(
    title: &str,
    run: &RunSummary,
    other: Option<&RunSummary>,
    unit: &str,
    of: impl Fn(&RunSummary) -> f64,
) -> Card {
    let value = of(run);
    let change = other.and_then(|other| Some((share(value, of(other))? - 1.0, of(other))));

    match change {
        Some((change, other)) => Card {
            title: format!("{title} vs {BASELINE}"),
            value: match change * 100.0 {
                // Less than half a tenth of a percent is no change.
                c if c.abs() < 0.05 => "no change".to_owned(),
                c if c < 0.0 => format!("{} % less", number(-c)),
                c => format!("{} % more", number(c)),
            },
            note: format!("{}{unit} against {}{unit}", number(value), number(other)),
        },
        None => Card {
            title: title.to_owned(),
            value: format!("{}{unit}", number(value)),
            note: String::new(),
        },
    }
}
