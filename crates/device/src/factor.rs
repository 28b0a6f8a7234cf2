//! A factor: the share of a device's size to which it is scaled.
//!
//! Absent: its effect (`scale`).

use crate::config::DeviceConfigError;

/// Parses a factor: `1/16`, `0.25` or `1`.
///
/// # Errors
/// It is not a number above 0 and at most 1.
pub fn parse_scale(text: &str) -> Result<f64, DeviceConfigError> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let factor = match text.split_once('/') {
        Some((numerator, denominator)) => number(numerator)
            .zip(number(denominator))
            .map(|(n, d)| n / d),
        None => number(text),
    };
    factor
        .filter(|factor| is_valid(*factor))
        .ok_or_else(|| refuse(text))
}

/// Returns true if a device can be scaled by this factor.
pub(crate) fn is_valid(factor: f64) -> bool {
    factor > 0.0 && factor <= 1.0
}

/// The error for an invalid factor.
pub(crate) fn refuse(factor: impl std::fmt::Display) -> DeviceConfigError {
    DeviceConfigError(format!(
        "scale {factor} must be above 0 and at most 1, such as 1/16 or 0.25"
    ))
}
