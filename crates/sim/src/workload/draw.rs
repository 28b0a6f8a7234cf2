//! Draws integers and events from 64 random bits, exactly and with integer arithmetic only.
//!
//! Invariant: the same bits give the same draw on any machine.

use rand::Rng;

/// Draws a number in `0..bound`, each equally likely.
///
/// The number is the high half of `32 random bits x bound`; the few low halves that would bias the
/// result are rejected.
#[inline]
pub(super) fn below(bound: u32, rng: &mut impl Rng) -> u32 {
    debug_assert!(bound > 0);
    loop {
        let wide = u64::from((rng.next_u64() >> 32) as u32) * u64::from(bound);
        let low = wide as u32;
        if low >= bound || low >= bound.wrapping_neg() % bound {
            return (wide >> 32) as u32;
        }
    }
}

/// An event of a given probability.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// The event happens when 64 random bits are below this; `None` if always.
    bound: Option<u64>,
}

impl Chance {
    /// An event that happens with `probability`, which is 0 to 1.
    pub(super) fn of(probability: f64) -> Self {
        const ALL: f64 = 18_446_744_073_709_551_616.0; // 2^64
        Self {
            bound: (probability < 1.0).then_some((probability * ALL) as u64),
        }
    }

    /// Draws the event.
    #[inline]
    pub(super) fn happens(self, rng: &mut impl Rng) -> bool {
        let bits = rng.next_u64();
        self.bound.is_none_or(|bound| bits < bound)
    }
}

/// Draws a number above 0 and at most 1, uniform to 53 bits.
#[inline]
pub(crate) fn unit(rng: &mut impl Rng) -> f64 {
    const STEPS: f64 = 9_007_199_254_740_992.0; // 2^53
    ((rng.next_u64() >> 11) + 1) as f64 / STEPS
}
