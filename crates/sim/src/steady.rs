//! Detection of a steady state, by the rule of SNIA's Solid State Storage Performance Test
//! Specification (2.0.2, section 2.1.24), with a quarter of its tolerance.
//!
//! The rule looks at the last five rounds of equal length: the values differ by at most a share of
//! their mean, and the line that fits them best rises or falls by at most half of that share from
//! the first round to the last. SNIA's shares are 20 % and 10 %; they let a figure that still falls
//! by 2 % a round pass for steady.
//!
//! Absent: which figure, and how long a round is.

/// Rounds in which the state must be steady.
pub(crate) const ROUNDS: usize = 5;
/// Maximum difference of two rounds, as a share of their mean.
const RANGE: f64 = 0.05;
/// Maximum rise or fall of the fitted line, as a share of the mean.
const SLOPE: f64 = 0.025;

/// Returns true if the last rounds are steady: there are `ROUNDS` of them, and they neither differ
/// nor tend anywhere by more than the rule allows.
pub(crate) fn is_steady(rounds: &[f64]) -> bool {
    let Some(start) = rounds.len().checked_sub(ROUNDS) else {
        return false;
    };
    let last = &rounds[start..];
    let mean = last.iter().sum::<f64>() / ROUNDS as f64;
    let (least, most) = last.iter().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(*value), most.max(*value)),
    );

    // Least squares over -2, -1, 0, 1, 2: the sum of their squares is 10.
    let slope: f64 = last
        .iter()
        .zip(-2i8..)
        .map(|(value, at)| value * f64::from(at) / 10.0)
        .sum();
    most - least <= RANGE * mean && (slope * (ROUNDS - 1) as f64).abs() <= SLOPE * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_steady_if_they_neither_differ_nor_tend_anywhere() {
        assert!(is_steady(&[9.0, 2.0, 2.01, 1.99, 2.0, 2.02]));
        // Too few; a fall of 1 % a round; one round far away.
        assert!(!is_steady(&[2.0; 4]));
        assert!(!is_steady(&[2.08, 2.06, 2.04, 2.02, 2.0]));
        assert!(!is_steady(&[2.0, 2.0, 2.2, 2.0, 2.0]));
        // Without writes there is nothing that could change.
        assert!(is_steady(&[0.0; 5]));
        assert!(!is_steady(&[f64::NAN; 5]));
    }
}
