//! The values of a grid's axis as numbers: sizes, counts, shares, fractions, and those of a model
//! such as `plain:0.2`.
//!
//! Invariant: values are numbers only if all of an axis are, of one kind, and no two are equal.
//! Absent: the parsing of options, of which each knows its kind (`spec`).

use crate::numbers;
use remap_ssd_sim::report::grid::Numbers;

/// Units of sizes, the largest first.
const BINARY: [(f64, &str); 5] = [
    ((1u64 << 40) as f64, "TiB"),
    ((1 << 30) as f64, "GiB"),
    ((1 << 20) as f64, "MiB"),
    ((1 << 10) as f64, "KiB"),
    (1.0, "bytes"),
];
const DECIMAL: [(f64, &str); 5] = [
    (1e12, "TB"),
    (1e9, "GB"),
    (1e6, "MB"),
    (1e3, "kB"),
    (1.0, "bytes"),
];

/// The numbers of an axis, if its values are numbers.
pub(crate) fn numbers(name: &str, values: &[String]) -> Option<Numbers> {
    // The same model with different numbers.
    let (model, values) = without_model(values);

    let found = plain(&values)
        .or_else(|| sizes(name, &values))
        .or_else(|| counts(&values))?;
    let mut places: Vec<f64> = found.marks.iter().map(|mark| mark.0).collect();
    places.sort_by(f64::total_cmp);
    let are_distinct = places.windows(2).all(|two| two[0] < two[1]);
    (are_distinct && places.iter().all(|place| place.is_finite()))
        .then_some(Numbers { model, ..found })
}

/// `plain` and `0.1`, `0.2` of `plain:0.1`, `plain:0.2`.
fn without_model(values: &[String]) -> (String, Vec<&str>) {
    let split: Option<Vec<(&str, &str)>> =
        values.iter().map(|value| value.rsplit_once(':')).collect();
    match split {
        Some(split) if split.iter().all(|one| one.0 == split[0].0) => (
            split[0].0.to_owned(),
            split.iter().map(|one| one.1).collect(),
        ),
        _ => (String::new(), values.iter().map(String::as_str).collect()),
    }
}

/// Numbers, fractions and percentages; with a unit if all are percentages.
fn plain(values: &[&str]) -> Option<Numbers> {
    let are_percent = values.iter().all(|value| value.ends_with('%'));
    let mark = |value: &&str| {
        let number = |text: &str| text.trim().replace('_', "").parse::<f64>().ok();
        let text = value.strip_suffix('%').unwrap_or(value).trim();
        let found = match text.split_once('/') {
            Some((part, whole)) => number(part)? / number(whole)?,
            None => number(text)?,
        };
        match value.ends_with('%') {
            true if are_percent => Some((found, text.to_owned())),
            true => Some((found / 100.0, (*value).to_owned())),
            false => Some((found, text.replace('_', ""))),
        }
    };

    let unit = if are_percent { "%" } else { "" };
    Some(Numbers::new(
        unit,
        values.iter().map(mark).collect::<Option<_>>()?,
    ))
}

/// Sizes, in the largest unit of which all are at least one.
fn sizes(name: &str, values: &[&str]) -> Option<Numbers> {
    // `k` is 1,000 of a count, and 1,024 of a size.
    let is_size = |value: &&str| value.ends_with(['b', 'B']);
    if !values.iter().any(is_size) && !name.contains("size") && !name.contains("bytes") {
        return None;
    }
    let bytes: Option<Vec<f64>> = values
        .iter()
        .map(|value| numbers::size(value).ok().map(|bytes| bytes as f64))
        .collect();
    let bytes = bytes?;

    let are_decimal = values
        .iter()
        .all(|value| is_size(value) && !value.ends_with("iB"));
    let units = if are_decimal { DECIMAL } else { BINARY };
    let smallest = bytes
        .iter()
        .copied()
        .filter(|bytes| *bytes > 0.0)
        .fold(f64::INFINITY, f64::min);
    let (divisor, unit) = units.into_iter().find(|unit| smallest >= unit.0)?;
    let mark = |bytes: &f64| {
        let place = bytes / divisor;
        (place, format!("{}", (place * 100.0).round() / 100.0))
    };
    Some(Numbers::new(unit, bytes.iter().map(mark).collect()))
}

/// Counts such as `200k`.
fn counts(values: &[&str]) -> Option<Numbers> {
    let mark = |value: &&str| Some((numbers::count(value).ok()? as f64, (*value).to_owned()));
    Some(Numbers::new(
        "",
        values.iter().map(mark).collect::<Option<_>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, values: &[&str]) -> Option<Numbers> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        numbers(name, &values)
    }

    #[test]
    fn values_with_units_are_numbers_of_one_unit() {
        for (name, values, model, unit, marks) in [
            (
                "log_size",
                ["512KiB", "2MiB", "1GiB"],
                "",
                "KiB",
                [(512.0, "512"), (2048.0, "2048"), (1_048_576.0, "1048576")],
            ),
            (
                "log_size",
                ["20MiB", "1.5GiB", "80M"],
                "",
                "MiB",
                [(20.0, "20"), (1536.0, "1536"), (80.0, "80")],
            ),
            (
                "log_size",
                ["20MB", "40MB", "1GB"],
                "",
                "MB",
                [(20.0, "20"), (40.0, "40"), (1000.0, "1000")],
            ),
            (
                "writes",
                ["200k", "1M", "3000"],
                "",
                "",
                [(2e5, "200k"), (1e6, "1M"), (3000.0, "3000")],
            ),
            (
                "scale",
                ["1/64", "0.25", "1"],
                "",
                "",
                [(1.0 / 64.0, "1/64"), (0.25, "0.25"), (1.0, "1")],
            ),
            (
                "duplicates",
                ["10%", "20%", "30%"],
                "",
                "%",
                [(10.0, "10"), (20.0, "20"), (30.0, "30")],
            ),
            (
                "duplicates",
                ["10%", "0.2", "0"],
                "",
                "",
                [(0.1, "10%"), (0.2, "0.2"), (0.0, "0")],
            ),
            (
                "content",
                ["plain:0", "plain:0.2", "plain:0.4"],
                "plain",
                "",
                [(0.0, "0"), (0.2, "0.2"), (0.4, "0.4")],
            ),
            (
                "workload",
                ["zipfrw:0.9:50", "zipfrw:0.9:70", "zipfrw:0.9:90"],
                "zipfrw:0.9",
                "",
                [(50.0, "50"), (70.0, "70"), (90.0, "90")],
            ),
        ] {
            let marks = marks.map(|(place, text)| (place, text.to_owned())).to_vec();
            let found = found(name, &values).expect(name);
            assert_eq!((found.model.as_str(), found.unit.as_str()), (model, unit));
            assert_eq!(found.marks, marks, "{name}");
        }
    }

    #[test]
    fn other_values_are_none() {
        for values in [
            ["oltp", "1"],
            ["zipf:0.9", "skew:0.9"],
            ["0.2", "20%"],
            ["inf", "1"],
            ["1/0", "1"],
            ["nan", "2"],
        ] {
            assert!(found("workload", &values).is_none(), "{values:?}");
        }
    }
}
