//! How runs are named, and compared with the one that remaps nothing.
//!
//! Invariants: each run has a label of its own; every cause of a demotion is counted.
//! Absent: what is shown of a run (`overview`, `details`).

use super::super::format::{one_line, share};
use crate::summary::{Demotions, RunSummary};
use remap_ssd_ftl::SchemeKind;

/// The scheme that others are compared with: no remapping.
pub const BASELINE: &str = SchemeKind::BASELINE.name();

/// The scheme that can't be built: an upper bound, not a contender.
pub const IDEAL: &str = SchemeKind::IDEAL.name();

/// The policy of garbage collection that needs no mention.
const POLICY: &str = "greedy";

/// The mapping that needs no mention.
const MAPPING: &str = "page";

/// A label for each run: the scheme's name, the policy's if it is not the common one, numbered
/// where it occurs again.
pub fn labels(runs: &[RunSummary]) -> Vec<String> {
    let name = |run: &RunSummary| {
        // Text from a file may be of several lines; a label is one.
        let scheme = match one_line(&run.scheme) {
            name if name.trim().is_empty() => "(unnamed)".to_owned(),
            name => name,
        };

        let name = match one_line(&run.gc_policy).as_str() {
            "" | POLICY => scheme,
            policy => format!("{scheme}/{policy}"),
        };

        // Only what is not the usual is part of a label.
        match one_line(&run.mapping.kind).as_str() {
            "" | MAPPING => name,
            mapping => format!("{name}+{mapping}"),
        }
    };

    let names: Vec<String> = runs.iter().map(name).collect();

    // Runs of one name are told apart by their order.
    let earlier = |i: usize| names[..i].iter().filter(|name| **name == names[i]).count();
    let label = |(i, name): (usize, &String)| match earlier(i) {
        0 => name.clone(),
        earlier => format!("{name} #{}", earlier + 1),
    };

    names.iter().enumerate().map(label).collect()
}

/// How many runs before this one have the same scheme.
pub fn occurrence(runs: &[RunSummary], index: usize) -> usize {
    runs[..index]
        .iter()
        .filter(|run| run.scheme == runs[index].scheme)
        .count()
}

/// The run that others are compared with, if it was made.
pub fn baseline(runs: &[RunSummary]) -> Option<&RunSummary> {
    runs.iter().find(|run| run.scheme == BASELINE)
}

/// Bandwidth as a multiple of the baseline's, if there is one and it moved data.
pub fn speedup(runs: &[RunSummary], run: &RunSummary) -> Option<f64> {
    baseline(runs).and_then(|base| share(run.bandwidth_mib_s, base.bandwidth_mib_s))
}

/// Pages whose remap became a copy, all causes.
pub fn demoted(demotions: &Demotions) -> u64 {
    // By name, so that a new cause does not compile until it is counted.
    let Demotions {
        counter_full,
        nvram_full,
        watermark,
        degree_full,
        unhinted,
    } = *demotions;
    [nvram_full, watermark, degree_full, unhinted]
        .into_iter()
        .fold(counter_full, u64::saturating_add)
}

/// Pages that were to be remapped, demoted ones included.
pub fn attempted(run: &RunSummary) -> u64 {
    run.remaps.saturating_add(demoted(&run.demotions))
}
