//! Numbers and curves: formatting, and preservation of features when a curve is thinned.

use super::*;

#[test]
fn what_is_not_a_number_is_never_printed() {
    for runs in edges() {
        let texts = runs
            .iter()
            .map(report::details)
            .chain([report::table(&runs), page(&runs)]);
        for text in texts {
            let words = text.split(|c: char| !c.is_alphanumeric());
            for word in words {
                assert!(
                    !["nan", "inf", "infinity"].contains(&word.to_lowercase().as_str()),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn downsampling_keeps_ends_and_peaks() {
    let mut points: Vec<_> = (0..10_000)
        .map(|i| (f64::from(i), f64::from(i % 50)))
        .collect();
    points[6_001].1 = 1e6;
    points[777].1 = -1e6;
    let few = series::downsample(&points, series::POINTS_MAX);
    assert!(few.len() <= series::POINTS_MAX);
    for i in [0, 777, 6_001, 9_999] {
        assert!(few.contains(&points[i]), "point {i} was lost");
    }
    assert!(
        few.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "the points are out of order"
    );
    assert_eq!(series::downsample(&points[..600], 600), points[..600]);
}

#[test]
fn a_trend_weighs_a_rate_by_how_long_it_held() {
    // 10/s for 9 s, then 110/s for 1 s: 20/s on average.
    assert_eq!(
        series::trend(&[(9.0, 10.0, 9.0), (10.0, 110.0, 1.0)], 1),
        [(5.0, 20.0)]
    );
    // The same over the pages done: 90, then 110.
    assert_eq!(
        series::trend(&[(90.0, 10.0, 9.0), (200.0, 110.0, 1.0)], 1),
        [(100.0, 20.0)]
    );
    assert_eq!(series::trend(&[], 5), []);
}

#[test]
fn a_distribution_is_a_staircase() {
    let stairs = series::staircase(&[(10.0, 0.5), (f64::NAN, 0.6), (20.0, 1.0)]);
    assert_eq!(stairs, [(10.0, 0.0), (10.0, 0.5), (20.0, 0.5), (20.0, 1.0)]);
}

#[test]
fn numbers_read_well() {
    let shown = [
        0.0, 0.000_123, 0.5, 1.0, 9.999, 42.0, 123.4, 999.6, 12_345.6, -2.5, -1e4, 1e18,
    ];
    let expected = [
        "0", "1.2e-4", "0.500", "1.00", "10.0", "42.0", "123", "1,000", "12,346", "-2.50",
        "-10,000", "1.00e18",
    ];
    assert_eq!(shown.map(format::number), expected);
    assert_eq!(
        [0, 99_999, 100_000, 12_345_678].map(format::compact),
        ["0", "99,999", "100.0k", "12.35M"]
    );
    assert_eq!(
        [0, 1024, 81_920, 1 << 30].map(format::bytes),
        ["0 B", "1.00 KiB", "80.0 KiB", "1.00 GiB"]
    );
    assert_eq!(
        [0.0, 0.00001, 0.0567, 1.0].map(format::percent),
        ["0 %", "<0.01 %", "5.7 %", "100 %"]
    );
    assert_eq!(
        [0.0, 5e-8, 0.0183, 60.0].map(format::seconds),
        ["0 s", "50.0 ns", "18.3 ms", "60.0 s"]
    );
    let value: Value = json!({"life": format::years(f64::INFINITY)});
    assert_eq!(value["life"], "no wear");
}
