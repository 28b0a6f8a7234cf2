//! What must be said where the figures stand: nothing was remapped, a state was not steady, a
//! difference is noise.
//!
//! Invariant: a scheme is called better only if its bandwidth differs by more than chance, with 95 %
//! confidence. Absent: the figures.

use super::compare::{BASELINE, IDEAL, attempted, baseline, labels};
use crate::interval::Interval;
use crate::report::format::{exact, is_unknown};
use crate::summary::RunSummary;

/// Sentences about the runs, the most important first.
pub fn remarks(runs: &[RunSummary]) -> Vec<String> {
    let mut remarks = Vec::new();
    if is_without_remaps(runs) {
        let kind = |run: &RunSummary| (run.gc_policy.clone(), run.mapping.kind.clone());
        let are_alike = runs.iter().all(|run| kind(run) == kind(&runs[0]));
        let reason = ": the schemes differ by the metadata that aging left and by noise alone";
        remarks.push(format!(
            "Nothing was remapped{}.",
            if are_alike { reason } else { "" }
        ));
    }

    if let Some(equal) = equal_to_baseline(runs) {
        remarks.push(equal);
    }

    let failing: Vec<String> = runs.iter().zip(labels(runs)).filter_map(failed).collect();
    if !failing.is_empty() {
        remarks.push(format!(
            "Requests that failed, which no rate and no latency counts: {}.",
            failing.join(", ")
        ));
    }

    let named = |is: fn(&RunSummary) -> bool| {
        let runs = runs.iter().zip(labels(runs)).filter(|(run, _)| is(run));
        runs.map(|(_, label)| label).collect::<Vec<_>>().join(", ")
    };

    let transient = named(|run| run.steady.is_steady == Some(false));
    if !transient.is_empty() {
        remarks.push(format!(
            "Transient, not a steady state: {transient}. Write amplification or bandwidth changed during the \
             measurement, so the figures depend on its length and have no confidence interval (±)."
        ));
    }

    let short = named(|run| run.steady.is_steady.is_none() && !run.samples.is_empty());
    if !short.is_empty() {
        remarks.push(format!(
            "Too short to tell whether the state was steady: {short}."
        ));
    }

    let unknown = named(has_unknown);
    if !unknown.is_empty() {
        remarks.push(format!(
            "±>1000 %: chance alone moves this figure by more than ten times its value, so that nothing is known about it. Measure more pages (--writes, --precision): {unknown}."
        ));
    }
    remarks
}

/// Returns true if the interval of a figure says nothing.
fn has_unknown(run: &RunSummary) -> bool {
    let ci95 = &run.ci95;
    let latencies = [
        (&run.latency_us, &ci95.latency_us),
        (&run.read_latency_us, &ci95.read_latency_us),
    ];
    let of_latencies = latencies.iter().any(|(found, half)| {
        is_unknown(found.p50, half.p50)
            || is_unknown(found.p99, half.p99)
            || is_unknown(found.p999, half.p999)
    });
    of_latencies
        || is_unknown(run.bandwidth_mib_s, ci95.bandwidth_mib_s)
        || is_unknown(run.write_amplification, ci95.write_amplification)
}

/// A worn-out device has refused the request by which this was noticed.
fn failed((run, label): (&RunSummary, String)) -> Option<String> {
    let refused: u64 = run.requests.refused.values().sum();
    let (refused, of) = (refused, run.requests.submitted);
    (refused > 0 && !run.wear_out.read_only)
        .then(|| format!("{} of {} ({label})", exact(refused), exact(of)))
}

/// Returns true if several runs are compared, and none of those that could remap did.
pub(crate) fn is_without_remaps(runs: &[RunSummary]) -> bool {
    runs.len() > 1
        && runs.iter().any(|run| run.scheme != BASELINE)
        && runs.iter().all(|run| attempted(run) == 0)
}

/// Returns true if the bandwidths of two runs differ by more than chance; none if an interval is
/// unknown, as that of a short run.
pub(crate) fn differ(one: &RunSummary, other: &RunSummary) -> Option<bool> {
    let bandwidth = |run: &RunSummary| {
        let (value, half) = (run.bandwidth_mib_s, run.ci95.bandwidth_mib_s);
        half.is_finite().then_some(Interval { value, half })
    };
    Some(bandwidth(one)?.differs(&bandwidth(other)?))
}

/// Names the schemes that are neither faster nor slower than the baseline, as far as can be told.
fn equal_to_baseline(runs: &[RunSummary]) -> Option<String> {
    let base = baseline(runs)?;
    let equal: Vec<String> = runs
        .iter()
        .zip(labels(runs))
        .filter(|(run, _)| run.scheme != BASELINE && run.scheme != IDEAL)
        .filter(|(run, _)| differ(run, base) == Some(false))
        .map(|(_, label)| label)
        .collect();
    if equal.is_empty() {
        None
    } else {
        Some(format!(
            "Within the noise of {BASELINE}'s bandwidth, with 95 % confidence: {}.",
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
                is_steady: Some(true),
                ..Steadiness::default()
            },
            ..RunSummary::default()
        }
    }

    #[test]
    fn what_is_noise_or_not_steady_is_said() {
        let steady = [run("none", 20.0, 0.1, 0), run("nlog", 30.0, 0.5, 5)];
        assert_eq!(remarks(&steady), Vec::<String>::new());

        let wide = [run("none", 20.0, 0.1, 0), run("nlog", 30.0, 300.0, 5)];
        let said = remarks(&wide);
        assert!(
            said.iter()
                .any(|said| said.starts_with("±>1000 %") && said.ends_with(": nlog.")),
            "{said:?}"
        );

        let unused = [run("none", 20.0, 0.1, 0), run("nlog", 20.4, 0.5, 0)];
        let said = remarks(&unused);
        assert!(said[0].starts_with("Nothing was remapped"), "{said:?}");
        assert!(said[1].ends_with("confidence: nlog."), "{said:?}");

        let mut changing = steady;
        changing[1].steady.is_steady = Some(false);
        let said = remarks(&changing);
        assert!(said.len() == 1 && said[0].starts_with("Transient, not a steady state: nlog."));

        // Other differences than the scheme's are not denied.
        let mut policies = unused;
        policies[1].gc_policy = "coldmap".to_owned();
        assert_eq!(remarks(&policies)[0], "Nothing was remapped.");

        // 5 MiB/s are more than chance if both are known to 3.
        let base = run("none", 100.0, 3.0, 0);
        assert_eq!(differ(&base, &run("nlog", 105.0, 3.0, 0)), Some(true));
        assert_eq!(differ(&base, &run("nlog", 104.0, 3.0, 0)), Some(false));
        assert_eq!(differ(&base, &run("nlog", 200.0, f64::NAN, 0)), None);
    }
}
