//! Labels of runs, and comparison with the run that remaps nothing.
//!
//! Invariants: labels of runs are unique; every cause of a demotion is counted. Absent: the
//! measurements shown (`overview`, `details`).

use super::super::format::{one_line, share};
use crate::summary::{Demotions, RunSummary};
use remap_ssd_ftl::SchemeKind;

/// The baseline scheme: no remapping.
pub(crate) const BASELINE: &str = SchemeKind::BASELINE.name();

/// The ideal scheme, which cannot be built: an upper bound, not a contender.
pub(crate) const IDEAL: &str = SchemeKind::IDEAL.name();

/// The usual garbage collection policy, omitted in labels.
const POLICY: &str = "greedy";

/// The usual mapping, omitted in labels.
const MAPPING: &str = "page";

/// Returns a label for each run: the scheme's name, the policy's if it is not the usual one, and a
/// number if the name occurs again.
pub fn labels(runs: &[RunSummary]) -> Vec<String> {
    let name = |run: &RunSummary| {
        // Text from a file may have several lines; a label has one.
        let scheme = match one_line(&run.scheme) {
            name if name.trim().is_empty() => "(unnamed)".to_owned(),
            name => name,
        };

        let name = match one_line(&run.gc_policy).as_str() {
            "" | POLICY => scheme,
            policy => format!("{scheme}/{policy}"),
        };

        // Only an unusual mapping is part of a label.
        match one_line(&run.mapping.kind).as_str() {
            "" | MAPPING => name,
            mapping => format!("{name}+{mapping}"),
        }
    };

    let names: Vec<String> = runs.iter().map(name).collect();

    // Runs of the same name are distinguished by their order.
    let earlier = |i: usize| names[..i].iter().filter(|name| **name == names[i]).count();
    let label = |(i, name): (usize, &String)| match earlier(i) {
        0 => name.clone(),
        earlier => format!("{name} #{}", earlier + 1),
    };

    names.iter().enumerate().map(label).collect()
}

/// The baseline run, if there is one.
pub(crate) fn baseline(runs: &[RunSummary]) -> Option<&RunSummary> {
    runs.iter().find(|run| run.scheme == BASELINE)
}

/// Bandwidth as a multiple of the baseline's, if there is one and it moved data.
pub(crate) fn speedup(runs: &[RunSummary], run: &RunSummary) -> Option<f64> {
    baseline(runs).and_then(|base| share(run.bandwidth_mib_s, base.bandwidth_mib_s))
}

/// Half the width of the interval of [`speedup`]: that of a quotient of two independent figures, whose
/// relative errors add up by their squares. None for the baseline itself, which is 1.
pub(crate) fn speedup_half(runs: &[RunSummary], run: &RunSummary) -> Option<f64> {
    let base = baseline(runs).filter(|base| !std::ptr::eq(*base, run))?;
    let relative = |run: &RunSummary| run.ci95.bandwidth_mib_s / run.bandwidth_mib_s;
    Some(speedup(runs, run)? * relative(run).hypot(relative(base)))
}

/// Pages whose remap became a copy, all causes.
pub(crate) fn demoted(demotions: &Demotions) -> u64 {
    // By name, so that a new cause does not compile until it is counted.
    let Demotions {
        counter_full,
        nvram_full,
        watermark,
        degree_full,
        unhinted,
        unaligned,
        partial_unit,
    } = *demotions;
    let others = [
        nvram_full,
        watermark,
        degree_full,
        unhinted,
        unaligned,
        partial_unit,
    ];
    others.into_iter().fold(counter_full, u64::saturating_add)
}

/// Pages to be remapped, demoted ones included.
pub(crate) fn attempted(run: &RunSummary) -> u64 {
    run.remaps.saturating_add(demoted(&run.demotions))
}
