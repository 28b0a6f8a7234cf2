//! Names: parsing them, where the error for an unknown one suggests a similar one; and lists of them, for
//! completion in a shell.
//!
//! Absent: the names themselves (`remap_ssd_ftl`, `remap_ssd_sim`).

use crate::Error;
use remap_ssd_device::PRESETS;
use remap_ssd_device::keys::did_you_mean;
use remap_ssd_ftl::{GcPolicy, Granularity, SchemeKind, UnknownChoice};
use remap_ssd_sim::trace::{Action, Format};
use remap_ssd_sim::workload::MODELS;

/// Parses the name of a scheme.
///
/// # Errors
/// There is no such scheme.
pub(crate) fn scheme(name: &str) -> Result<SchemeKind, Error> {
    let names = SchemeKind::ALL.map(SchemeKind::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

/// Parses the name of a garbage collection policy.
///
/// # Errors
/// There is no such policy.
pub(crate) fn policy(name: &str) -> Result<GcPolicy, Error> {
    let names = GcPolicy::ALL.map(GcPolicy::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

/// Parses the name of a mapping's granularity.
///
/// # Errors
/// There is no such mapping.
pub(crate) fn mapping(name: &str) -> Result<Granularity, Error> {
    let names = Granularity::ALL.map(Granularity::name);
    name.parse().map_err(|error: UnknownChoice| {
        Error::usage(format_args!("{error}{}", did_you_mean(name, names)))
    })
}

/// Values as text.
fn all<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

/// All schemes.
pub fn schemes() -> Vec<String> {
    all(SchemeKind::ALL)
}

/// All predefined devices.
pub fn presets() -> Vec<String> {
    all(PRESETS.iter().map(|preset| preset.name))
}

/// All formats of traces.
pub fn formats() -> Vec<String> {
    all(Format::ALL).into_iter().chain(all(["csv:"])).collect()
}

/// All workloads: patterns, of which some go on with numbers, and models.
pub fn workloads() -> Vec<String> {
    let patterns = [
        "randwrite",
        "randread",
        "randrw:",
        "seqwrite",
        "seqread",
        "seqrw:",
        "zipf:",
        "zipfread:",
        "zipfrw:",
        "hot:",
        "hotread:",
        "hotrw:",
    ];
    all(patterns)
        .into_iter()
        .chain(all(MODELS.map(|kind| kind.name())))
        .collect()
}

/// All models of contents.
pub fn contents() -> Vec<String> {
    all([
        "papers:",
        "plain:",
        "repeat:",
        "runs:",
        "history:",
        "measured:",
        "unique",
    ])
}

/// Foldings of a trace's disk.
pub fn folds() -> Vec<String> {
    all(["modulo", "compact"])
}

/// Events of traces that count as requests.
pub fn actions() -> Vec<String> {
    all(Action::ALL)
}

pub(crate) fn policies() -> Vec<String> {
    all(GcPolicy::ALL)
}

pub(crate) fn granularities() -> Vec<String> {
    all(Granularity::ALL)
}

pub(crate) fn arrivals() -> Vec<String> {
    all(["trace", "trace:", "rate:", "burst:"])
}

pub(crate) fn progresses() -> Vec<String> {
    all(["pages", "time"])
}

/// Values of a switch with a default of its own.
pub fn on_off() -> Vec<String> {
    all(["on", "off"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OPTIONS;

    #[test]
    fn every_listed_value_is_one() {
        let mut checked = 0;
        for option in OPTIONS {
            for value in (option.values)() {
                // Some values go on with a number.
                let whole = match value.chars().last() {
                    Some(':') => continue,
                    _ => value,
                };
                option
                    .check(&whole)
                    .unwrap_or_else(|why| panic!("{option} {whole}: {why}"));
                checked += 1;
            }
        }
        assert!(checked > 50, "{checked}");
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_was_meant() {
        for name in ["Remap-SSD", "remap_ssd", "REMAPSSD", "remap-sdd"] {
            let error = scheme(name).unwrap_err().to_string();
            assert!(error.ends_with("did you mean `remap-ssd`?"), "{error}");
        }
        assert!(
            !scheme("raid")
                .unwrap_err()
                .to_string()
                .contains("did you mean")
        );
        assert!(
            policy("Greedy")
                .unwrap_err()
                .to_string()
                .contains("did you mean `greedy`?")
        );
        let error = mapping("hybird").unwrap_err().to_string();
        assert!(error.ends_with("did you mean `hybrid`?"), "{error}");
    }
}
