//! Numbers as they are shown.

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
    let shown = [
        (4.81, 0.0123),
        (4.81, 40.0),
        (4.81, 2000.0),
        (0.0, 3.0),
        (4.81, f64::NAN),
    ];
    assert_eq!(
        shown.map(|(value, half)| format::interval(value, half)),
        ["4.81 ±0.02", "4.81 ±40.00", "4.81 ±>1000 %", "0 ±3", "4.81"]
    );
    let value: Value = json!({"life": format::years(f64::INFINITY)});
    assert_eq!(value["life"], "no wear");
}
