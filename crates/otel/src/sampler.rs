//! Which commands are sampled: each by itself, with the same chance.
//!
//! Invariants: 1 samples all; whether a command is sampled depends on no other than its turn, so
//! that a host with a rhythm is sampled as any other. Absent: the commands.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A part of all commands, above 0 and up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(f64);

/// It is no part of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fraction above 0 and up to 1 is needed: 1 traces every command, 0.01 one in a hundred")]
pub struct FractionError;

impl Fraction {
    /// Every command, without a draw.
    pub const ALL: Self = Self(1.0);

    /// A part of all commands.
    ///
    /// # Errors
    /// It is not above 0, or above 1.
    pub fn new(part: f64) -> Result<Self, FractionError> {
        if part > 0.0 && part <= 1.0 {
            Ok(Self(part))
        } else {
            Err(FractionError)
        }
    }
}

/// Draws for one command after the other.
pub(crate) struct Sampler {
    /// A draw up to this is a hit.
    threshold: u64,
    drawn: AtomicU64,
}

impl Sampler {
    pub fn new(fraction: Fraction, seed: u64) -> Self {
        Self {
            // Above 2^53 an f64 has no odd numbers; 1.0 becomes the largest threshold.
            threshold: (fraction.0 * u64::MAX as f64) as u64,
            drawn: AtomicU64::new(seed),
        }
    }

    /// Is the next command sampled?
    #[inline]
    pub fn draw(&self) -> bool {
        // All commands: no draw, so that connections do not share the counter's cache line.
        if self.threshold == u64::MAX {
            return true;
        }
        mixed(self.drawn.fetch_add(1, Relaxed)) <= self.threshold
    }
}

/// SplitMix64: neighbouring numbers become independent ones.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_above_nothing_and_at_most_everything() {
        assert!(
            [0.0, -0.1, 1.1, f64::NAN]
                .map(Fraction::new)
                .iter()
                .all(Result::is_err)
        );
        assert!(
            [1e-6, 0.5, 1.0]
                .map(Fraction::new)
                .iter()
                .all(Result::is_ok)
        );
    }

    #[test]
    fn all_are_drawn_or_about_as_many_as_the_fraction_says() {
        let of = |part: f64| {
            let sampler = Sampler::new(Fraction::new(part).expect("a fraction"), 7);
            (0..100_000).filter(|_| sampler.draw()).count()
        };
        assert_eq!(of(1.0), 100_000);
        // Four standard deviations.
        assert!(of(0.5).abs_diff(50_000) < 640, "{}", of(0.5));
        assert!(of(0.01).abs_diff(1000) < 130, "{}", of(0.01));
    }

    #[test]
    fn a_rhythm_of_hosts_is_not_the_samplers() {
        let sampler = Sampler::new(Fraction::new(0.25).expect("a fraction"), 1);
        let mut hits = [0u32; 4];
        for command in 0..40_000 {
            hits[command % 4] += u32::from(sampler.draw());
        }
        assert!(
            hits.iter().all(|hits| hits.abs_diff(2500) < 220),
            "{hits:?}"
        );
    }
}
