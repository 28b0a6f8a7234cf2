//! Reduces curves to few enough points for drawing, without losing peaks.
//!
//! Invariants: points stay in order; every point of a downsampled curve is a point of the original;
//! its first, last, smallest and largest values are among them. Absent: points that are not finite;
//! they are dropped first.

/// A point of a curve: (x, y).
pub(crate) type Point = (f64, f64);

/// Maximum points of a drawn line.
pub(crate) const POINTS_MAX: usize = 600;

/// Returns the points with two finite coordinates.
pub fn finite(points: impl IntoIterator<Item = Point>) -> Vec<Point> {
    points
        .into_iter()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect()
}

/// Returns at most `limit` of the points: the ends, and each stretch's minimum and maximum.
///
/// # Panics
///
/// If `limit` is below four, which leaves no room for a stretch.
pub(crate) fn downsample(points: &[Point], limit: usize) -> Vec<Point> {
    assert!(
        limit >= 4,
        "a stretch needs two points beside the ends, limit is {limit}"
    );

    // Few enough: every point is drawn.
    if points.len() <= limit {
        return points.to_vec();
    }

    let inner = &points[1..points.len() - 1];
    // Two points per stretch, in addition to both ends.
    let stretches = (limit - 2) / 2;
    let mut kept = vec![points[0]];

    for stretch in 0..stretches {
        let start = stretch * inner.len() / stretches;
        let end = (stretch + 1) * inner.len() / stretches;
        kept.extend(extremes(&inner[start..end]));
    }

    kept.push(points[points.len() - 1]);
    kept
}

/// Returns the mean over each of `stretches` equal parts of the axis, for a noisy series of rates: position,
/// rate, and the seconds for which the rate held, up to its position.
pub(crate) fn trend(points: &[(f64, f64, f64)], stretches: usize) -> Vec<Point> {
    let Some(&(end, ..)) = points.last() else {
        return Vec::new();
    };

    let width = end / stretches as f64;

    // Per stretch: positions weighted by length, lengths, rates weighted by seconds, seconds.
    let mut sums = vec![[0.0; 4]; stretches];
    let mut previous = 0.0;

    for &(at, rate, held) in points {
        let length = at - previous;
        previous = at;

        if length > 0.0 && held > 0.0 {
            // A rate counts for the stretch that contains the middle of its interval.
            let middle = at - length / 2.0;
            let sum = &mut sums[((middle / width).max(0.0) as usize).min(stretches - 1)];
            sum[0] += middle * length;
            sum[1] += length;
            sum[2] += rate * held;
            sum[3] += held;
        }
    }

    finite(
        sums.into_iter()
            .filter(|[_, _, _, seconds]| *seconds > 0.0)
            .map(|[position, length, rate, seconds]| (position / length, rate / seconds)),
    )
}

/// Converts a cumulative distribution to a step function: level up to each point, then up.
///
/// With fewer than half of [`POINTS_MAX`] steps, so that the corners fit as well.
pub(crate) fn staircase(distribution: &[Point]) -> Vec<Point> {
    let mut points = finite(distribution.iter().copied());
    points.retain(|&(x, fraction)| x >= 0.0 && (0.0..=1.0).contains(&fraction));
    let mut level = 0.0;
    let mut stairs = Vec::new();
    for (x, fraction) in downsample(&points, POINTS_MAX / 2) {
        stairs.extend([(x, level), (x, fraction)]);
        level = fraction;
    }
    stairs
}

/// The minimum and maximum of a stretch, in order; one point if they are the same.
fn extremes(stretch: &[Point]) -> impl Iterator<Item = Point> {
    let by_y = |&a: &usize, &b: &usize| stretch[a].1.total_cmp(&stretch[b].1);
    let low = (0..stretch.len()).min_by(by_y);
    let high = (0..stretch.len())
        .max_by(by_y)
        .filter(|high| Some(*high) != low);
    // In order, so that the drawn line never goes back.
    let (first, second) = if high.is_some() && high < low {
        (high, low)
    } else {
        (low, high)
    };
    first.into_iter().chain(second).map(|i| stretch[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampling_keeps_ends_and_peaks() {
        let mut points: Vec<_> = (0..10_000)
            .map(|i| (f64::from(i), f64::from(i % 50)))
            .collect();
        points[6_001].1 = 1e6;
        points[777].1 = -1e6;
        let few = downsample(&points, POINTS_MAX);
        assert!(few.len() <= POINTS_MAX);
        for i in [0, 777, 6_001, 9_999] {
            assert!(few.contains(&points[i]), "point {i} was lost");
        }
        assert!(
            few.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "the points are out of order"
        );
        assert_eq!(downsample(&points[..600], 600), points[..600]);
    }

    #[test]
    fn a_trend_weighs_a_rate_by_how_long_it_held() {
        // 10/s for 9 s, then 110/s for 1 s: 20/s on average.
        assert_eq!(
            trend(&[(9.0, 10.0, 9.0), (10.0, 110.0, 1.0)], 1),
            [(5.0, 20.0)]
        );
        // The same over the pages done: 90, then 110.
        assert_eq!(
            trend(&[(90.0, 10.0, 9.0), (200.0, 110.0, 1.0)], 1),
            [(100.0, 20.0)]
        );
        assert_eq!(trend(&[], 5), []);
    }

    #[test]
    fn a_distribution_is_a_staircase() {
        let stairs = staircase(&[(10.0, 0.5), (f64::NAN, 0.6), (20.0, 1.0)]);
        assert_eq!(stairs, [(10.0, 0.0), (10.0, 0.5), (20.0, 0.5), (20.0, 1.0)]);
    }
}
