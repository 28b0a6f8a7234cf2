//! Axes: the range of values, their positions, and the tick marks.
//!
//! Invariants: `low < high`, both finite; marks lie within and are numbers of the 1-2-5 series
//! times a power of ten, or the values of a grid; a linear axis starts at zero, so lengths can be
//! compared, unless it goes through the values of a grid. Absent: pixels. An axis maps a value to `0..=1`, the chart does the rest.

use crate::report::format;

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// Values and their labels, ascending; minor marks have an empty label.
    pub marks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to the first mark that is not below `largest`.
    pub fn rounded(largest: f64) -> Axis {
        let largest = usable(largest);

        // At most five steps, so that labels have room.
        let step = above(largest / 5.0);

        // A largest value on a mark takes no further step, despite rounding errors.
        Axis::linear((largest / step - 1e-9).ceil() * step, step)
    }

    /// From zero to exactly `largest`.
    pub(crate) fn upto(largest: f64) -> Axis {
        let largest = usable(largest);
        Axis::linear(largest, above(largest / 5.0))
    }

    /// Logarithmic over the positive `values`, at least a decade; `label` formats a mark.
    pub fn logarithmic(
        values: impl IntoIterator<Item = f64>,
        label: impl Fn(f64) -> String,
    ) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        // Non-positive values have no place on a logarithmic axis.
        for value in values
            .into_iter()
            .filter(|v| v.is_finite() && *v > 1e-9 && *v < 1e15)
        {
            low = low.min(value);
            high = high.max(value);
        }

        // Without any value, a default axis.
        if high == 0.0 {
            (low, high) = (1.0, 10.0);
        }

        // At least a decade, so that a round number is visible.
        let (mut low, mut high) = (below(low), above(high));
        if high / low < 9.9 {
            low = decade(low);
            high = if high <= low * 10.0 {
                low * 10.0
            } else {
                low * 100.0
            };
        }

        // Over more than three decades there is room only for the powers of ten.
        let wide = high / low > 1001.0;

        let mut marks = Vec::new();
        let mut power = decade(low);
        while power <= high * 1.001 {
            for digit in [1.0, 2.0, 5.0] {
                let value = power * digit;
                // Tolerance for rounding errors of computed marks.
                if (low * 0.999..=high * 1.001).contains(&value) {
                    let silent = wide && digit > 1.0;
                    marks.push((value, if silent { String::new() } else { label(value) }));
                }
            }
            power *= 10.0;
        }

        Axis {
            logarithmic: true,
            low,
            high,
            marks,
        }
    }

    /// Through the values of a grid, each with its own mark; logarithmic if they grow by a constant
    /// factor, such as 20, 40, 80, 160, or span more than two decades.
    pub(crate) fn through(mut marks: Vec<(f64, String)>) -> Axis {
        /// Space before the first mark and after the last, as a share of the axis.
        const SPACE: f64 = 0.04;

        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let first = marks.first().map_or(0.0, |mark| mark.0);
        let last = marks.last().map_or(1.0, |mark| mark.0);
        let values: Vec<f64> = marks.iter().map(|mark| mark.0).collect();
        let logarithmic = is_wide([first, last]) || is_geometric(&values);
        let (low, high) = if logarithmic {
            let space = (last / first).powf(SPACE);
            (first / space, last * space)
        } else {
            // A single value is in the middle.
            let space = if last > first {
                (last - first) * SPACE
            } else {
                1.0
            };
            (first - space, last + space)
        };
        Axis {
            logarithmic,
            low,
            high,
            marks,
        }
    }

    /// For measured values: from zero, or logarithmic if they span more than two decades.
    pub(crate) fn fitting(values: &[f64]) -> Axis {
        if is_wide(values.iter().copied()) {
            Axis::logarithmic(values.iter().copied(), format::number)
        } else {
            Axis::rounded(values.iter().copied().fold(0.0, f64::max))
        }
    }

    /// Position of a value: 0 at the low end, 1 at the high end, never outside.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    fn linear(high: f64, step: f64) -> Axis {
        // Large numbers are shown in thousands, so that marks stay short.
        let (divisor, prefix) = if high >= 10_000.0 {
            format::si(high)
        } else {
            (1.0, "")
        };

        // As many decimals as the step needs, so that no two labels are equal.
        let decimals = (-(step / divisor).log10().floor()).max(0.0) as usize;

        let marks = (0..=(high / step + 1e-9) as u32)
            .map(|i| {
                let value = f64::from(i) * step;
                let label = if i == 0 {
                    "0".to_owned()
                } else {
                    format!("{:.decimals$}{prefix}", value / divisor)
                };
                (value, label)
            })
            .collect();

        Axis {
            logarithmic: false,
            low: 0.0,
            high,
            marks,
        }
    }
}

/// Unit of time for an axis of this span, and its length in seconds.
pub(crate) fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 1e-3 => (1e-6, "µs"),
        s if s < 1.0 => (1e-3, "ms"),
        s if s <= 600.0 => (1.0, "s"),
        s if s <= 36_000.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    }
}

/// Returns true if ascending values grow by a constant factor: at least three, as two always do.
fn is_geometric(values: &[f64]) -> bool {
    let [first, second, .., _] = values else {
        return false;
    };
    // Smaller factors look the same on a linear axis; values in rounded units differ a little.
    let factor = second / first;
    *first > 0.0
        && factor >= 1.5
        && values
            .windows(2)
            .all(|two| (two[1] / two[0] / factor - 1.0).abs() < 0.02)
}

/// Returns true if positive values span more than two decades.
fn is_wide(values: impl IntoIterator<Item = f64>) -> bool {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in values {
        low = low.min(value);
        high = high.max(value);
    }
    low > 0.0 && high.is_finite() && high / low > 100.0
}

/// A valid upper end of an axis for any measured value.
fn usable(largest: f64) -> f64 {
    if largest.is_finite() && largest > 1e-9 {
        largest.min(1e18)
    } else {
        1.0
    }
}

/// The largest power of ten not above `value`.
fn decade(value: f64) -> f64 {
    10.0f64.powf((value * 1.000_001).log10().floor())
}

/// The smallest of 1, 2, 5 times a power of ten not below `value`.
fn above(value: f64) -> f64 {
    let decade = decade(value);
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|d| d * decade >= value * 0.999_999);
    digit.unwrap_or(10.0) * decade
}

/// The largest of 1, 2, 5 times a power of ten not above `value`.
fn below(value: f64) -> f64 {
    let decade = decade(value);
    let digit = [5.0, 2.0]
        .into_iter()
        .find(|d| d * decade <= value * 1.000_001);
    digit.unwrap_or(1.0) * decade
}
