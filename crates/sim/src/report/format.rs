//! Formats numbers for people.
//!
//! Invariants: the width follows the magnitude (three or four significant digits); a non-finite
//! value becomes `-`; a count below 100,000 is exact. Absent: locales. The decimal point is
//! `.`, thousands are separated by `,`.

/// Placeholder for a missing number.
pub(crate) const MISSING: &str = "-";

/// A count in full: `1,234,567`.
pub fn exact(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 page`, `2,000 pages`.
pub fn counted(count: u64, one: &str) -> String {
    format!(
        "{} {one}{}",
        exact(count),
        if count == 1 { "" } else { "s" }
    )
}

/// A count that fits a narrow column: exact below 100,000, else four digits and a unit prefix.
pub fn compact(count: u64) -> String {
    if count < 100_000 {
        return exact(count);
    }
    let (divisor, prefix) = si(count as f64);
    let value = count as f64 / divisor;
    // Four significant digits.
    let decimals = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:.decimals$}{prefix}")
}

/// A measured value with about three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        // From the largest down; the limits are where rounding would add a digit.
        _ if !value.is_finite() => MISSING.to_owned(),
        m if m >= 1e15 => format!("{value:.2e}"),
        m if m >= 999.5 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", exact(m.round() as u64))
        }
        m if m >= 99.95 => format!("{value:.0}"),
        m if m >= 9.995 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        m if m < 0.001 => format!("{value:.1e}"),
        m if m < 0.9995 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

/// Half widths from this many times the value on say no more than that nothing is known.
const UNKNOWN_TIMES: f64 = 10.0;

/// Returns true if the half width of a value's confidence interval is so large that nothing is known about the value.
pub(crate) fn is_unknown(value: f64, half: f64) -> bool {
    value != 0.0 && half.is_finite() && half >= UNKNOWN_TIMES * value.abs()
}

/// A measured value and half the width of its confidence interval, `4.81 ±0.02`; the half is rounded
/// up to the digits of the value, and left out if it is unknown. If it is ten times the value or more, `4.81 ±>1000 %`.
pub fn interval(value: f64, half: f64) -> String {
    let text = number(value);
    // Of tiny values, which are shown with an exponent, the half says nothing more.
    if !value.is_finite() || !half.is_finite() || text.contains('e') {
        return text;
    }
    if is_unknown(value, half) {
        return format!("{text} ±>{:.0} %", 100.0 * UNKNOWN_TIMES);
    }
    let decimals = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let unit = 10f64.powi(decimals as i32);
    // A rounding error must not turn an exact tenth into the next.
    let half = (half * unit - 1e-6).ceil().max(0.0) / unit + 0.0;
    if decimals == 0 {
        format!("{text} ±{}", exact(half as u64))
    } else {
        format!("{text} ±{half:.decimals$}")
    }
}

/// A ratio to the baseline and half the width of its confidence interval, `1.83x ±0.02`.
pub(crate) fn ratio_interval(value: f64, half: f64) -> String {
    let text = interval(value, half);
    match text.split_once(' ') {
        Some((value, half)) => format!("{value}x {half}"),
        None => ratio(value),
    }
}

/// A share in `0..=1` as a percentage, `1.2 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        _ if !value.is_finite() => MISSING.to_owned(),
        0.0 => "0 %".to_owned(),
        m if m < 0.01 => "<0.01 %".to_owned(),
        m if m < 1.0 => format!("{value:.2} %"),
        m if m < 99.95 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A ratio to the baseline, `1.83x`.
pub(crate) fn ratio(value: f64) -> String {
    with_unit(value, number, "x")
}

/// Bytes with a binary prefix, `12.0 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;

    // From 1023.5 on it would be rounded to 1,024, which is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", number(value), UNITS[unit])
}

/// Seconds in a suitable unit, `18.3 ms`.
pub fn seconds(value: f64) -> String {
    let (divisor, unit) = match value.abs() {
        0.0 => (1.0, " s"),
        m if m < 1e-6 => (1e-9, " ns"),
        m if m < 1e-3 => (1e-6, " µs"),
        m if m < 1.0 => (1e-3, " ms"),
        _ => (1.0, " s"),
    };
    with_unit(value / divisor, number, unit)
}

/// A projected lifetime; an infinite one, without writes, is `no wear`.
pub fn years(value: f64) -> String {
    if value == f64::INFINITY {
        return "no wear".to_owned();
    }
    with_unit(value, number, " years")
}

/// The unit prefix for a magnitude: its divisor and its letter.
pub fn si(magnitude: f64) -> (f64, &'static str) {
    match magnitude.abs() {
        m if m >= 1e15 => (1e15, "P"),
        m if m >= 1e12 => (1e12, "T"),
        m if m >= 1e9 => (1e9, "G"),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// `part / whole`, or `None` if that is undefined.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    let value = part / whole;
    (whole > 0.0 && value.is_finite()).then_some(value)
}

/// Replaces control characters, so that text cannot break a line, a column or a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn with_unit(value: f64, format: fn(f64) -> String, unit: &str) -> String {
    if value.is_finite() {
        format!("{}{unit}", format(value))
    } else {
        MISSING.to_owned()
    }
}
