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

/// The same for any bound. Below 2^32 it is the same number, from the same bits.
#[inline]
pub(super) fn below_any(bound: u64, rng: &mut impl Rng) -> u64 {
    if let Ok(bound) = u32::try_from(bound) {
        return below(bound, rng).into();
    }
    loop {
        let wide = u128::from(rng.next_u64()) * u128::from(bound);
        let low = wide as u64;
        if low >= bound || low >= bound.wrapping_neg() % bound {
            return (wide >> 64) as u64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_bound_of_32_bits_draws_the_same_numbers_and_a_larger_one_all_of_its_own() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for bound in [1, 7, 1 << 31, u32::MAX] {
            let mut same = rng.clone();
            for _ in 0..1000 {
                let drawn = below_any(bound.into(), &mut rng);
                assert_eq!(drawn, u64::from(below(bound, &mut same)));
            }
        }
        for bound in [1 << 32, (1 << 34) + 3, 3 << 62] {
            let mut parts = [0; 8];
            for _ in 0..80_000 {
                let drawn = below_any(bound, &mut rng);
                assert!(drawn < bound);
                parts[(u128::from(drawn) * 8 / u128::from(bound)) as usize] += 1;
            }
            assert!(parts.iter().all(|count| (9_500..10_500).contains(count)));
        }
    }
}
