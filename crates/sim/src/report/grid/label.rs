//! Names of figures and settings in words, with their units.
//!
//! Invariant: a name of which nothing is known is kept, with blanks for its separators.

use super::GridAxis;

/// Names that do not say all.
const KNOWN: [(&str, &str); 3] = [
    ("iops", "page operations per second"),
    ("latency_us", "write latency_us"),
    ("response_us", "response time_us"),
];

/// Ends of names, and the units for which they stand; longer ones first.
const UNITS: [(&str, &str); 6] = [
    ("_mib_s", "MiB/s"),
    ("_per_s", "per second"),
    ("_us", "µs"),
    ("_ns", "ns"),
    ("_s", "s"),
    ("_years", "years"),
];

/// A name as in a run's JSON or a device's file, such as `latency_us.p99`, for an axis: `write
/// latency p99, µs`.
pub(in crate::report) fn label(name: &str) -> String {
    let mut unit = "";
    let words: Vec<String> = name
        .split('.')
        .map(|part| {
            let known = KNOWN.iter().find(|known| known.0 == part);
            let part = known.map_or(part, |known| known.1);
            let found = UNITS
                .iter()
                .find_map(|end| Some((part.strip_suffix(end.0)?, end.1)));
            let (part, its_unit) = found.unwrap_or((part, unit));
            // A number of latencies is no latency.
            unit = if part == "count" { "" } else { its_unit };
            match part {
                "p999" => "p99.9".to_owned(),
                "p9999" => "p99.99".to_owned(),
                part => part.replace('_', " "),
            }
        })
        .collect();

    let words = words.join(" ");
    match unit {
        "" => words,
        "per second" => format!("{words} per second"),
        unit => format!("{words}, {unit}"),
    }
}

/// An axis in words, with the unit of its numbers.
pub(super) fn axis_label(axis: &GridAxis) -> String {
    let words = label(&axis.name);
    let Some(numbers) = &axis.numbers else {
        return words;
    };
    let words = format!("{words} {}", numbers.model);
    match numbers.unit.as_str() {
        "" => words.trim_end().to_owned(),
        unit => format!("{}, {unit}", words.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_units() {
        for (name, words) in [
            ("bandwidth_mib_s", "bandwidth, MiB/s"),
            ("write_amplification", "write amplification"),
            ("requests_per_s", "requests per second"),
            ("latency_us.p999", "write latency p99.9, µs"),
            ("read_latency_us.mean", "read latency mean, µs"),
            ("flash.read_ns", "flash read, ns"),
            ("firmware.gc_free", "firmware gc free"),
            ("gc_pages", "gc pages"),
        ] {
            assert_eq!(label(name), words);
        }
    }
}
