//! What must be said where the figures stand: nothing was remapped, a state was not steady, a
//! difference is noise.
//!
//! Invariant: a scheme is called better only if the confidence intervals of both have no bandwidth in
//! common. Absent: the figures.

use super::compare::{BASELINE, IDEAL, attempted, baseline, labels};
use crate::interval::Interval;
use crate::summary::RunSummary;

/// Sentences about the runs, the most important first.
pub fn remarks(runs: &[RunSummary]) -> Vec<String> {
    let mut remarks = Vec::new();
    if is_without_remaps(runs) {
        remarks.push(
            "Nothing was remapped: the schemes differ by the metadata that aging left and by noise alone."
                .to_owned(),
        );
    }
    if let Some(equal) = equal_to_baseline(runs) {
        remarks.push(equal);
    }

    let named = |is: fn(&RunSummary) -> bool| {
        let runs = runs.iter().zip(labels(runs)).filter(|(run, _)| is(run));
        runs.map(|(_, label)| label).collect::<Vec<_>>().join(", ")
    };
    let transient = named(|run| run.steady.is_steady == Some(false));
    if !transient.is_empty() {
        remarks.push(format!(
            "Transient, not a steady state: {transient}. Write amplification or bandwidth changed during the \
             measurement, so the figures depend on its length."
        ));
    }
    let short = named(|run| run.steady.is_steady.is_none() && !run.samples.is_empty());
    if !short.is_empty() {
        remarks.push(format!(
            "Too short to tell whether the state was steady: {short}."
        ));
    }
    remarks
}

/// Returns true if several runs are compared, and none of those that could remap did.
pub(crate) fn is_without_remaps(runs: &[RunSummary]) -> bool {
    runs.len() > 1
        && runs.iter().any(|run| run.scheme != BASELINE)
        && runs.iter().all(|run| attempted(run) == 0)
}

/// Returns true if the bandwidths of two runs differ by more than chance: their confidence intervals
/// have no value in common.
pub(crate) fn differ(one: &RunSummary, other: &RunSummary) -> bool {
    let bandwidth = |run: &RunSummary| Interval {
        value: run.bandwidth_mib_s,
        // Unknown for a short run, and in older files.
        half: Some(run.ci95.bandwidth_mib_s)
            .filter(|half| half.is_finite())
            .unwrap_or(0.0),
    };
    bandwidth(one).differs(&bandwidth(other))
}

/// Names the schemes that are neither faster nor slower than the baseline, as far as can be told.
fn equal_to_baseline(runs: &[RunSummary]) -> Option<String> {
    let base = baseline(runs)?;
    let equal: Vec<String> = runs
        .iter()
        .zip(labels(runs))
        .filter(|(run, _)| run.scheme != BASELINE && run.scheme != IDEAL && !differ(run, base))
        .map(|(_, label)| label)
        .collect();
    if equal.is_empty() {
        None
    } else {
        Some(format!(
            "Within the noise of {BASELINE}'s bandwidth (95 % confidence intervals overlap): {}.",
            equal.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Ci95, Steadiness};

    fn run(scheme: &str, bandwidth: f64, half: f64, remaps: u64) -> RunSummary {
        RunSummary {
            scheme: scheme.to_owned(),
            bandwidth_mib_s: bandwidth,
            remaps,
            ci95: Ci95 {
                bandwidth_mib_s: half,
                ..Ci95::default()
            },
            steady: Steadiness {
                warm_up_pages: 0,
                is_steady: Some(true),
            },
            ..RunSummary::default()
        }
    }

    #[test]
    fn what_is_noise_or_not_steady_is_said() {
        let steady = [run("none", 20.0, 0.1, 0), run("nlog", 30.0, 0.5, 5)];
        assert_eq!(remarks(&steady), Vec::<String>::new());

        let unused = [run("none", 20.0, 0.1, 0), run("nlog", 20.4, 0.5, 0)];
        let said = remarks(&unused);
        assert!(said[0].starts_with("Nothing was remapped"), "{said:?}");
        assert!(said[1].ends_with("overlap): nlog."), "{said:?}");

        let mut changing = steady;
        changing[1].steady.is_steady = Some(false);
        let said = remarks(&changing);
        assert!(said.len() == 1 && said[0].starts_with("Transient, not a steady state: nlog."));

        // Without intervals, equal figures are equal and others are not.
        assert!(!differ(
            &run("none", 20.0, f64::NAN, 0),
            &run("nlog", 20.0, f64::NAN, 0)
        ));
        assert!(differ(
            &run("none", 20.0, f64::NAN, 0),
            &run("nlog", 20.1, f64::NAN, 0)
        ));
    }
}
