//! Confidence intervals of a run's figures, by batch means, and of means over independent runs.
//!
//! A run is one long series of correlated values, so the spread of single values says little about
//! their mean. The run is divided into consecutive batches instead. If these are long, their means
//! are nearly independent and nearly normal, and Student's t gives the interval (Law and Kelton,
//! "Simulation Modeling and Analysis", section 9.5.3). Batches are merged in pairs while neighbours
//! correlate.
//!
//! A figure is a ratio of two counters, such as pages programmed and pages written. Its interval is
//! that of the mean of `part - ratio * whole` over the batches.
//!
//! Invariant: an interval covers the value of an endless run in 95 of 100 runs, if the run was
//! steady and an eighth of it is long compared with its correlations. Absent: whether it was steady
//! (`steady`).

use serde::Serialize;
use serde_json::Value;

/// Batches at first; merged in pairs down to `BATCHES_MIN`.
const BATCHES: usize = 32;
/// Fewer batches give no interval.
const BATCHES_MIN: usize = 8;

/// Student's t for 95 %, from one degree of freedom on.
const STUDENT: [f64; 31] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
    2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687,
    2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423, 2.0395,
];

/// Correlation of neighbours below which batches are merged, since a single batch then varies more
/// than its share of the whole.
const NEGATIVE: f64 = -0.15;

/// A figure with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The figure of the whole run.
    pub value: f64,
    /// Half of the width of the 95 % confidence interval.
    pub half: f64,
}

impl Interval {
    /// The half width as a fraction of the figure.
    pub(crate) fn relative(&self) -> f64 {
        self.half / self.value.abs()
    }

    /// Returns true if the figures of two independent runs differ by more than chance, with 95 %
    /// confidence.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        (self.value - other.value).abs() > self.half.hypot(other.half)
    }
}

/// The ratio of two counters over a run. Each reading has both counters since its start, in order.
///
/// Returns `None` if there are too few readings, or the second counter did not grow.
pub(crate) fn ratio(readings: &[(f64, f64)]) -> Option<Interval> {
    let mut batches = grown(readings, BATCHES).or_else(|| grown(readings, BATCHES_MIN))?;
    let (parts, wholes) = batches
        .iter()
        .fold((0.0, 0.0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1));
    if wholes <= 0.0 {
        return None;
    }
    let value = parts / wholes;

    while batches.len() > BATCHES_MIN && are_correlated(&batches, value) {
        batches = batches
            .chunks(2)
            .map(|two| (two[0].0 + two[1].0, two[0].1 + two[1].1))
            .collect();
    }

    // The variance of the sum is that of a batch times their number.
    let count = batches.len() as f64;
    let squares: f64 = batches.iter().map(|batch| off(*batch, value).powi(2)).sum();
    let deviation = (squares / (count - 1.0) * count).sqrt() / wholes;

    Some(Interval {
        value,
        half: student(batches.len() - 1) * deviation,
    })
}

/// A figure of a run's JSON by its name, inner ones with a dot (`latency_us.p99`). An interval that
/// the run does not have is NaN.
pub fn of_run(run: &Value, name: &str) -> Option<Interval> {
    let number = |value: &Value| {
        let found = name
            .split('.')
            .try_fold(value, |value, part| value.get(part));
        found.and_then(Value::as_f64)
    };
    Some(Interval {
        value: number(run)?,
        half: run.get("ci95").and_then(number).unwrap_or(f64::NAN),
    })
}

/// The mean of independent values, such as a figure of runs with different seeds.
///
/// Returns `None` for fewer than two values.
pub fn mean(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0) / count).sqrt();
    Some(Interval {
        value: mean,
        half: student(values.len() - 1) * deviation,
    })
}

/// Student's t of a two-sided interval of 95 %.
fn student(freedom: usize) -> f64 {
    // The expansion about the normal distribution (Abramowitz and Stegun, 26.7.5) is exact to the
    // table's digits where the table ends.
    let inverse = 1.0 / freedom as f64;
    let expansion = || 1.959_964 + inverse * (2.372_27 + inverse * (2.822_5 + inverse * 2.555_8));
    let known = freedom.checked_sub(1).and_then(|at| STUDENT.get(at));
    known.copied().unwrap_or_else(expansion)
}

/// The growth of both counters in each of `count` batches, of equal numbers of readings but for one.
fn grown(readings: &[(f64, f64)], count: usize) -> Option<Vec<(f64, f64)>> {
    if readings.len() < count {
        return None;
    }
    let ends = (1..=count).map(|batch| readings[batch * readings.len() / count - 1]);
    let mut before = (0.0, 0.0);
    let batches = ends.map(|end| {
        let batch = (end.0 - before.0, end.1 - before.1);
        before = end;
        batch
    });
    Some(batches.collect())
}

fn off(batch: (f64, f64), ratio: f64) -> f64 {
    batch.0 - ratio * batch.1
}

/// Returns true if a batch and its successor tend to the same side of the ratio, or clearly to
/// different ones.
fn are_correlated(batches: &[(f64, f64)], ratio: f64) -> bool {
    let product: f64 = batches
        .windows(2)
        .map(|two| off(two[0], ratio) * off(two[1], ratio))
        .sum();
    let squares: f64 = batches.iter().map(|batch| off(*batch, ratio).powi(2)).sum();
    product > 0.0 || product < NEGATIVE * squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Readings of two counters whose ratio is 3, with noise of which each value keeps `kept` of
    /// the previous one.
    fn readings(rng: &mut impl Rng, count: usize, kept: f64) -> Vec<(f64, f64)> {
        let (mut noise, mut part, mut whole) = (0.0, 0.0, 0.0);
        let mut next = || {
            // The sum of twelve uniform values is nearly normal.
            let drawn: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            noise = kept * noise + drawn;
            whole += 100.0;
            part += 300.0 + noise;
            (part, whole)
        };

        // The noise is stationary after a while.
        for _ in 0..100 {
            next();
        }

        let begin = next();
        (0..count)
            .map(|_| {
                let (part, whole) = next();
                (part - begin.0, whole - begin.1)
            })
            .collect()
    }

    #[test]
    fn intervals_cover_the_true_ratio_in_95_of_100_runs() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for kept in [-0.5, 0.0, 0.5, 0.8] {
            let runs = 4000;
            let covered = (0..runs)
                .filter(|_| {
                    let interval = ratio(&readings(&mut rng, 300, kept)).unwrap();
                    (interval.value - 3.0).abs() <= interval.half
                })
                .count();
            let share = covered as f64 / f64::from(runs);
            assert!((0.93..=0.975).contains(&share), "{kept}: {share}");
        }
    }

    #[test]
    fn a_run_with_few_readings_has_no_interval() {
        let few: Vec<(f64, f64)> = (1..8).map(|at| (f64::from(at), f64::from(at))).collect();
        assert_eq!(ratio(&few), None);
        let constant: Vec<(f64, f64)> =
            (1..=8).map(|at| (f64::from(at) * 2.0, at.into())).collect();
        assert_eq!(
            ratio(&constant),
            Some(Interval {
                value: 2.0,
                half: 0.0
            })
        );
        assert_eq!(ratio(&[(0.0, 0.0); 64]), None);
    }

    #[test]
    fn the_mean_over_seeds_has_students_interval() {
        // Mean 4, deviation 2, so 4.3027 * 2 / sqrt(3).
        let found = mean(&[2.0, 4.0, 6.0]).unwrap();
        assert!(found.value == 4.0 && (found.half - 4.96834).abs() < 1e-4);
        assert_eq!(mean(&[2.0]), None);

        // From statistical tables.
        for (freedom, t) in [
            (1, 12.7062),
            (31, 2.0395),
            (32, 2.0369),
            (40, 2.0211),
            (120, 1.9799),
        ] {
            assert!((student(freedom) - t).abs() < 6e-5, "{freedom}");
        }
    }

    #[test]
    fn readings_that_fill_no_batch_count_too() {
        // The first three readings grow by 5 each, all others by 1.
        let mut part = 0.0;
        let readings: Vec<(f64, f64)> = (0..35)
            .map(|at| {
                part += if at < 3 { 5.0 } else { 1.0 };
                (part, f64::from(at + 1))
            })
            .collect();
        assert_eq!(ratio(&readings).unwrap().value, 47.0 / 35.0);
    }
}
