//! Numbers with units, as typed on a command line.
//!
//! Absent: which keys have which unit (`keys`).

use serde_json::Value;

/// Units of sizes, in bytes.
pub(crate) const SIZES: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Units of times, in nanoseconds.
pub(crate) const TIMES: [(&str, u64); 5] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// One time, or several of them separated by `/`, such as `400us/900us/2.5ms`.
pub(crate) fn cell_times(text: &str) -> Option<Value> {
    let one = |text: &str| {
        let digits = text.replace('_', "");
        with_unit(text, &TIMES).or_else(|| digits.parse().ok())
    };
    let times: Option<Vec<u64>> = text.split('/').map(|text| one(text.trim())).collect();
    match times?.as_slice() {
        [time] => Some(Value::from(*time)),
        times => Some(Value::from(times)),
    }
}

/// A number with one of these units, such as `40MiB` or `30us`.
pub(crate) fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = text.find(char::is_alphabetic)?;
    let (number, unit) = text.split_at(at);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number.trim().replace('_', "").parse::<f64>().ok()? * *factor as f64;
    // Less than a nanosecond or a byte is a mistake, not none.
    let is_some = value == 0.0 || value >= 1.0;
    (is_some && (0.0..1e18).contains(&value)).then_some(value.round() as u64)
}
