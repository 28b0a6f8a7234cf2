//! Latencies of requests: a distribution, and how it varies along the run.
//!
//! The distribution has three significant digits. For confidence intervals requests are also counted
//! in consecutive batches, in classes of 3 %; with twice as many batches as wanted, neighbours are
//! merged and batches become twice as long.
//!
//! The interval of a quantile is that of the share of requests below it (Law and Kelton, section
//! 9.5.3), read off the distribution at both ends; it is no narrower than a class of the distribution.
//!
//! Invariant: recording a latency is a few additions. Absent: when a request began and ended.

use crate::interval;
use crate::summary::{Percentiles, PercentilesCi95};
use hdrhistogram::Histogram;

/// Latencies above this, 78 hours, are recorded as this.
const LATENCY_MAX_NS: u64 = 1 << 48;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;
/// Approximate number of points of a cumulative distribution.
const CDF_POINTS: f64 = 200.0;

/// Classes of latencies within a power of two, as a power of two.
const CLASS_BITS: u32 = 5;
/// Batches of requests, from this many to twice as many.
const BATCHES: usize = 32;
/// Requests of a batch at first.
const BATCH_REQUESTS: u64 = 16;

/// Latencies of the requests of a kind.
pub(crate) struct Latencies {
    all: Histogram<u64>,
    batches: Vec<Batch>,
    /// Requests of a full batch.
    batch_requests: u64,
}

/// Consecutive requests.
#[derive(Clone, Default)]
struct Batch {
    requests: u64,
    /// Nanoseconds; their sum may exceed 64 bits.
    total_ns: f64,
    /// Requests by class of latency; as long as the largest needs.
    classes: Vec<u32>,
}

impl Default for Latencies {
    fn default() -> Self {
        let all = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS);
        Self {
            all: all.expect("the bounds are valid"),
            batches: vec![Batch::default()],
            batch_requests: BATCH_REQUESTS,
        }
    }
}

impl Latencies {
    /// Records one latency in nanoseconds.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.all.saturating_record(ns);

        let batch = self.batches.last_mut().expect("there is always one");
        batch.requests += 1;
        batch.total_ns += ns as f64;
        let class = class_of(ns);
        if class >= batch.classes.len() {
            batch.classes.resize(class + 1, 0);
        }
        batch.classes[class] += 1;
        if batch.requests == self.batch_requests {
            self.begin_batch();
        }
    }

    #[cold]
    fn begin_batch(&mut self) {
        if self.batches.len() == 2 * BATCHES {
            let merged = self.batches.chunks(2).map(|two| two[0].merged(&two[1]));
            self.batches = merged.collect();
            self.batch_requests *= 2;
        }
        self.batches.push(Batch::default());
    }

    /// Number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.all.len()
    }

    /// Its percentiles; one in a thousand needs a thousand values.
    pub(crate) fn percentiles(&self) -> Percentiles {
        let count = self.all.len();
        if count == 0 {
            return Percentiles::default();
        }

        // A quantile needs enough values to be one of them; below that it is NaN.
        let at = |quantile, least| {
            if count >= least {
                us(self.all.value_at_quantile(quantile))
            } else {
                f64::NAN
            }
        };

        Percentiles {
            count,
            mean: self.all.mean() / 1e3,
            p50: at(0.5, 1),
            p90: at(0.9, 10),
            p99: at(0.99, 100),
            p999: at(0.999, 1_000),
            p9999: at(0.9999, 10_000),
            max: us(self.all.max()),
        }
    }

    /// Half widths of the 95 % confidence intervals of its percentiles.
    pub(crate) fn ci95(&self) -> PercentilesCi95 {
        let mean = self.interval(|batch| batch.total_ns / 1e3);
        PercentilesCi95 {
            mean,
            p50: self.quantile_ci95(0.5),
            p90: self.quantile_ci95(0.9),
            p99: self.quantile_ci95(0.99),
            p999: self.quantile_ci95(0.999),
        }
    }

    /// Half width of the interval of a mean over requests; NaN if there are too few.
    fn interval(&self, part: impl Fn(&Batch) -> f64) -> f64 {
        let mut sum = (0.0, 0.0);
        let readings: Vec<_> = self
            .batches
            .iter()
            .map(|batch| {
                sum.0 += part(batch);
                sum.1 += batch.requests as f64;
                sum
            })
            .collect();
        interval::ratio(&readings).map_or(f64::NAN, |found| found.half)
    }

    fn quantile_ci95(&self, quantile: f64) -> f64 {
        // Fewer than ten requests beyond it: their number says nothing about others.
        if (self.all.len() as f64) * (1.0 - quantile) < 10.0 {
            return f64::NAN;
        }

        let value = self.all.value_at_quantile(quantile);
        let class = class_of(value);

        // Many requests take exactly as long as one flash operation. So a quantile may jump from one
        // class to another, and the share below its class is as uncertain as the share through it.
        let share_of = |classes: usize| {
            self.interval(|batch| {
                let below = batch.classes.iter().take(classes);
                below.map(|count| f64::from(*count)).sum()
            })
        };
        let share = share_of(class).max(share_of(class + 1));
        if share.is_nan() {
            return f64::NAN;
        }

        let at = |quantile: f64| us(self.all.value_at_quantile(quantile.clamp(0.0, 1.0)));
        let (low, high) = (at(quantile - share), at(quantile + share));
        // A latency is known to the width of its class in the distribution.
        let width = us(self.all.equivalent_range(value));
        (high - us(value)).max(us(value) - low).max(width)
    }

    /// Points (microseconds, fraction of requests that took no longer), dense in the tail.
    pub(crate) fn cdf(&self) -> Vec<(f64, f64)> {
        let total = self.all.len() as f64;
        let (mut points, mut seen, mut shown) = (Vec::new(), 0, 0.0);
        for step in self.all.iter_recorded() {
            seen += step.count_since_last_iteration();
            let share = seen as f64 / total;
            // A point where the fraction has moved by a step, or the remainder has shrunk by three
            // tenths.
            let moved = share - shown >= 1.0 / CDF_POINTS || 1.0 - share <= (1.0 - shown) * 0.7;
            if moved || points.is_empty() {
                points.push((us(step.value_iterated_to()), share));
                shown = share;
            }
        }
        points
    }
}

impl Batch {
    fn merged(&self, next: &Self) -> Self {
        let (long, short) = if self.classes.len() >= next.classes.len() {
            (self, next)
        } else {
            (next, self)
        };
        let mut classes = long.classes.clone();
        for (count, more) in classes.iter_mut().zip(&short.classes) {
            *count += more;
        }
        Self {
            requests: self.requests + next.requests,
            total_ns: self.total_ns + next.total_ns,
            classes,
        }
    }
}

/// The class of a latency: its highest bits.
#[inline]
fn class_of(ns: u64) -> usize {
    let ns = ns.min(LATENCY_MAX_NS);
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(CLASS_BITS + 1);
    (u64::from(shift << CLASS_BITS) + (ns >> shift)) as usize
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn percentiles_are_microseconds_and_too_few_samples_give_none() {
        let mut latencies = Latencies::default();
        assert!(latencies.percentiles().p50.is_nan());
        assert!(latencies.percentiles().max.is_nan());
        (1..=999).for_each(|n| latencies.record(n * 1000));
        assert!(latencies.percentiles().p999.is_nan() && latencies.percentiles().p99 > 0.0);
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.record(n * 1000));
        let found = latencies.percentiles();
        assert!(
            (found.p50 - 500.0).abs() < 1.0
                && (found.p99 - 990.0).abs() < 1.0
                && (found.max - 1000.0).abs() < 1.0
        );
        assert!((found.mean - 500.5).abs() < 0.5);
    }

    #[test]
    fn a_distribution_rises_to_one_and_shows_its_tail() {
        let mut latencies = Latencies::default();
        (0..100_000).for_each(|n| latencies.record(500_000 + n));
        latencies.record(90_000_000);
        let points = latencies.cdf();
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert!(points.len() < 300);
        let last = points.last().unwrap();
        assert!(last.0 > 89_000.0 && (last.1 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn classes_rise_with_latencies_and_none_is_wider_than_its_share() {
        let mut before = 0;
        for ns in 0..100_000 {
            let class = class_of(ns);
            assert!(class == before || class == before + 1, "{ns}");
            before = class;
        }
        assert_eq!(class_of(1 << 40), class_of((1 << 40) + (1 << 34)));
        assert_ne!(class_of(1 << 40), class_of((1 << 40) + (1 << 35)));
        assert!(class_of(u64::MAX) < 2048);
    }

    #[test]
    fn batches_of_any_number_of_requests_hold_them_all() {
        let mut latencies = Latencies::default();
        for n in 0..100_000 {
            latencies.record(1000 + n % 7);
            let held: u64 = latencies.batches.iter().map(|batch| batch.requests).sum();
            assert_eq!(held, n + 1);
            assert!(latencies.batches.len() <= 2 * BATCHES);
        }

        // The same in every batch: known exactly.
        assert!(latencies.ci95().mean < 0.001);
        // The width of a class: of one nanosecond here, and of 32 below 65,536.
        assert_eq!(latencies.ci95().p99, 0.001);
        let mut equal = Latencies::default();
        (0..100_000).for_each(|_| equal.record(53_250));
        assert_eq!(equal.ci95().p99, 0.032);

        // Nothing is known of one request in a thousand of a thousand, nor from a few batches.
        let recorded = |count| {
            let mut few = Latencies::default();
            (0..count).for_each(|n| few.record(1000 + n));
            few.ci95()
        };
        assert!(recorded(1000).p999.is_nan() && recorded(1000).p50 > 0.0);
        assert!(recorded(20).p50.is_nan() && recorded(100).p50.is_nan());
    }

    /// One request in a hundred takes longer, by chance a little more or less.
    #[test]
    fn the_interval_of_a_quantile_between_two_values_has_both() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut latencies = Latencies::default();
        for _ in 0..100_000 {
            let is_long = rng.random_bool(0.01);
            latencies.record(if is_long { 800_000 } else { 60_000 });
        }
        assert!(latencies.ci95().p99 > 700.0, "{:?}", latencies.ci95());
    }
}
