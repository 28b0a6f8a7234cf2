//! Parsing of numbers: sizes, counts, shares, factors.
//!
//! Invariant: the error for an invalid number has an example of a valid one. Absent: formatting of
//! numbers (`remap_ssd_sim::report::format`).

use remap_ssd_device::{DeviceConfigError, parse_scale};

/// A text that is not such a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// A size in bytes.
    #[error("`{0}` is not a size such as 40MiB, 80MB or 4096")]
    Size(String),
    /// A count.
    #[error("`{0}` is not a count such as 500000, 500k or 2M")]
    Count(String),
    /// A share.
    #[error("`{0}` is not a share such as 0.3 or 30%")]
    Share(String),
    /// A duration.
    #[error("`{0}` is not a number of seconds above 0")]
    Seconds(String),
    /// A whole number, with its least and its greatest value.
    #[error("{0} is not a whole number from {1} to {2}")]
    Whole(String, u64, u64),
}

/// Parses a size in bytes: `40MiB`, `80 MB`, `4096`. K, M, G and T are powers of 1024, like KiB and
/// so on; kB, MB, GB and TB are powers of 1000.
///
/// # Errors
/// The text is not a size.
pub fn size(text: &str) -> Result<u64, NumberError> {
    let wrong = || NumberError::Size(text.into());
    let (number, unit) = split(text);

    // Powers of 1024 by default, as for memory; of 1000 for decimal units.
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };

    multiply(number, factor).ok_or_else(wrong)
}

/// Parses a count: `2000000`, `2_000_000`, `2M`, `500k`.
///
/// # Errors
/// The text is not a count.
pub fn count(text: &str) -> Result<u64, NumberError> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" => Some(1),
        "k" | "K" => Some(1_000),
        "m" | "M" => Some(1_000_000),
        "g" | "G" => Some(1_000_000_000),
        _ => None,
    };
    let value = factor.and_then(|factor| multiply(number, factor));
    value
        // A count of zero is never valid.
        .filter(|value| *value > 0)
        .ok_or_else(|| NumberError::Count(text.into()))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    (text[..end].trim_end(), &text[end..])
}

fn multiply(number: &str, factor: u64) -> Option<u64> {
    let digits = number.replace('_', "");
    // Integers stay exact: an f64 would round sizes above 2^53.
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = digits.parse::<f64>().ok()? * factor as f64;
    (value >= 0.0 && value < u64::MAX as f64).then_some(value.round() as u64)
}

/// Parses a share from 0 to 1: `0.3`, `30%`.
///
/// # Errors
/// The text is not a share.
pub(crate) fn share(text: &str) -> Result<f64, NumberError> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    value
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(|| NumberError::Share(text.into()))
}

/// Parses a factor above 0, up to 1: `1/16`, `0.25`.
///
/// # Errors
/// The text is not a factor.
pub(crate) fn scale(text: &str) -> Result<f64, DeviceConfigError> {
    parse_scale(text)
}

/// Parses a duration in seconds, above 0.
///
/// # Errors
/// The text is not a duration.
pub fn seconds(text: &str) -> Result<f64, NumberError> {
    let value = text.trim().trim_end_matches('s').parse::<f64>().ok();
    value
        // The upper limit is three years: larger values are mistakes.
        .filter(|seconds| *seconds > 0.0 && *seconds < 1e8)
        .ok_or_else(|| NumberError::Seconds(text.into()))
}

/// Formats a factor, as a fraction if possible: `1/16`.
pub(crate) fn fraction(factor: f64) -> String {
    let whole = 1.0 / factor;
    let is_whole = (whole - whole.round()).abs() < 1e-9 * whole;

    if !is_whole {
        format!("{factor}")
    } else if whole.round() == 1.0 {
        "full size".into()
    } else {
        format!("1/{}", whole.round())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        let known = [
            ("40MiB", 40 << 20),
            ("40M", 40 << 20),
            ("80 MB", 80_000_000),
            ("1.5k", 1536),
            ("7", 7),
            ("7B", 7),
        ];
        known
            .iter()
            .for_each(|(text, bytes)| assert_eq!(size(text), Ok(*bytes), "{text}"));
        ["", "MiB", "-1", "1 parsec", "99999999999T", "nan", "1..2"]
            .iter()
            .for_each(|text| assert!(size(text).is_err(), "{text}"));
    }

    #[test]
    fn counts_and_shares_say_what_they_would_be() {
        assert_eq!(
            (count("2M"), count("1_000"), count("1.5k")),
            (Ok(2_000_000), Ok(1_000), Ok(1_500))
        );

        assert!(
            ["0", "", "1x", "-3", "1e400"]
                .iter()
                .all(|text| count(text).is_err())
        );

        assert_eq!((share("30%"), share("0.3")), (Ok(0.3), Ok(0.3)));
        assert!(
            ["1.1", "-0.1", "nan", "", "101%"]
                .iter()
                .all(|text| share(text).is_err())
        );

        assert!(
            ["0", "-1", "inf", "1h"]
                .iter()
                .all(|text| seconds(text).is_err())
        );
    }

    #[test]
    fn factors_are_shown_as_fractions() {
        assert_eq!(fraction(1.0 / 16.0), "1/16");
        assert_eq!(fraction(1.0), "full size");
        assert_eq!(fraction(0.3), "0.3");
    }
}
