//! Arrival times of a trace of which only an excerpt is available: bursts, and pauses between them.
//!
//! A pause is more than a millisecond without a request; a burst is the time between two pauses. In
//! the excerpts of the FIU traces
//!
//! - a burst's length follows Zipf's law up to the longest seen. The exponent is fitted to the mean
//!   length, and also reproduces the mean length of the burst that contains a given request (homes
//!   68 requests and 67 here, web-vm 67 and 69, mail 48 and 46);
//! - requests of a burst come at random, with the mean interval of the excerpt;
//! - pauses are uniform on a logarithmic scale, from a millisecond on. The longest is fitted to the
//!   mean (homes 132 s, where the excerpt's is 139 s).
//!
//! Absent: daily patterns. An excerpt of a thousand requests shows none.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::Zipf;
use super::draw::unit;

/// Parameters fitted to an excerpt.
#[derive(Clone, Copy, Debug)]
pub(super) struct BurstFacts {
    /// Zipf exponent of lengths, and the longest.
    pub exponent: f64,
    pub requests_max: u32,
    /// Mean interval in a burst, nanoseconds.
    pub interval_ns: f64,
    /// The longest pause between bursts, in seconds.
    pub pause_max_s: f64,
}

/// Shorter gaps are within a burst.
const PAUSE_MIN_S: f64 = 1e-3;

/// Draws the lengths of bursts and pauses.
#[derive(Clone, Debug)]
pub struct Bursts {
    lengths: Zipf,
    facts: BurstFacts,
}

impl Bursts {
    pub(super) fn new(facts: BurstFacts) -> Self {
        let lengths = Zipf::new(facts.requests_max.into(), facts.exponent)
            .expect("a fitted exponent is in range");
        Self { lengths, facts }
    }

    /// Number of requests of the next burst, at least one.
    pub(crate) fn len(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        self.lengths.draw(rng) as u32
    }

    /// Mean time between requests of a burst, nanoseconds.
    pub(crate) fn interval_ns(&self) -> f64 {
        self.facts.interval_ns
    }

    /// The pause before a burst, nanoseconds.
    pub(crate) fn gap_ns(&self, rng: &mut Xoshiro256PlusPlus) -> f64 {
        // Uniform on a logarithmic scale, as the pauses of the excerpts are.
        let share = unit(rng);
        1e9 * PAUSE_MIN_S * libm::exp(share * libm::log(self.facts.pause_max_s / PAUSE_MIN_S))
    }
}
