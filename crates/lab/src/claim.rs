//! A paper's claim, our figure, and the rule that compares them.
//!
//! A figure is compared by its *effect*: its distance from the value that would mean "no effect" (1
//! for a ratio, 0 for a share). The claim *holds* if our effect is within 25 % of the claimed one;
//! it shows the *same direction* if ours is at least half of it, including more than claimed; else
//! it *differs*. For a claim "up to x", ours may be any smaller effect: it holds up to 25 % above,
//! and has the same direction while the claimed effect is at least half of ours. A claim of *no*
//! effect has no size to compare with: its reference is an effect of 10 %, so that it holds within
//! 2.5 % and has the same direction within 5 %.
//!
//! Invariant: the verdict is a function of these numbers alone. Absent: measuring ours
//! (`analysis`).

use crate::LabError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Result of comparing our figure with a paper's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Within a quarter of the claimed effect.
    #[serde(rename = "holds")]
    Holds,
    /// At least half of the claimed effect.
    #[serde(rename = "same direction")]
    SameDirection,
    /// Less than half of the claimed effect, or in the other direction.
    #[serde(rename = "differs")]
    Differs,
    /// An input was chosen to give this figure, so it says nothing of the model.
    #[serde(rename = "calibrated")]
    Calibrated,
}

impl Verdict {
    /// Name of the verdict, for reports and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::SameDirection => "same direction",
            Self::Differs => "differs",
            Self::Calibrated => "calibrated",
        }
    }
}

/// Reading of a claim: a figure or a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reading {
    /// The paper gives the figure itself.
    Figure,
    /// The paper says "up to" this figure.
    AtMost,
}

/// The reference effect for a claim of no effect.
pub(crate) const NOTICEABLE: f64 = 0.10;

/// Compares our figure with the paper's, by the rule of this module.
///
/// "20 % faster" as a ratio is 1.2: the effect is 0.2, so 1.16 holds, 1.11 shows the same direction,
/// and 0.9 differs.
pub(crate) fn verdict(paper: f64, neutral: f64, reading: Reading, ours: f64) -> Verdict {
    let (claimed, found) = (paper - neutral, ours - neutral);

    let (holds, direction) = if claimed == 0.0 {
        (
            found.abs() <= 0.25 * NOTICEABLE,
            found.abs() <= 0.5 * NOTICEABLE,
        )
    } else {
        let share = found / claimed;
        // Rounding errors must not decide exact border cases.
        let (from, to) = (share + 1e-9, share - 1e-9);
        match reading {
            Reading::Figure => (from >= 0.75 && to <= 1.25, from >= 0.5),
            Reading::AtMost => (to <= 1.25, to <= 2.0),
        }
    };

    match (holds, direction) {
        (true, _) => Verdict::Holds,
        (_, true) => Verdict::SameDirection,
        // NaN differs.
        _ => Verdict::Differs,
    }
}

/// Notation of figures, and their value for "no effect".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// A share, in percent.
    #[serde(rename = "%")]
    Percent,
    /// A change, in percent with its sign; the figure is a ratio.
    #[serde(rename = "+%")]
    Change,
    /// A ratio, as `1.20x`.
    #[serde(rename = "x")]
    Times,
}

impl Unit {
    /// Formats a figure, such as `20.0 %`.
    pub(crate) fn show(self, value: f64) -> String {
        let digits = |value: f64| {
            // With a decimal there would be four digits from here on, more than the measured
            // precision.
            if value.abs() >= 99.95 {
                format!("{value:.0}")
            } else {
                format!("{value:.1}")
            }
        };

        match self {
            _ if !value.is_finite() => "-".into(),
            Self::Percent => format!("{} %", digits(value * 100.0)),
            Self::Change => {
                let change = (value - 1.0) * 100.0;
                format!(
                    "{}{} %",
                    if change >= 0.0 { "+" } else { "" },
                    digits(change)
                )
            }
            Self::Times => format!("{value:.2}x"),
        }
    }

    /// Formats half of the width of an interval, such as `±0.4`.
    fn show_half(self, half: f64) -> String {
        match self {
            Self::Percent | Self::Change => format!("±{:.1}", half * 100.0),
            Self::Times => format!("±{half:.2}"),
        }
    }

    /// The value that means "no effect".
    pub(crate) fn neutral(self) -> f64 {
        match self {
            Self::Percent => 0.0,
            Self::Change | Self::Times => 1.0,
        }
    }

    /// Converts a figure of a paper's text: `20.2` percent of change is a ratio of 1.202.
    fn read(self, written: f64) -> f64 {
        match self {
            Self::Percent => written / 100.0,
            Self::Change => 1.0 + written / 100.0,
            Self::Times => written,
        }
    }
}

/// One entry of an `expectation.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// The claim's name, unique within the experiment.
    pub id: String,
    /// Distinguishes several figures of one claim.
    #[serde(default)]
    pub part: String,
    /// Text of the claim.
    pub text: String,
    /// The paper's figure, in its unit.
    pub paper: f64,
    /// The unit of the paper's figure.
    pub unit: Unit,
    /// The figure, or "up to".
    #[serde(default = "figure")]
    pub reading: Reading,
    /// Name of the analysis' measure to compare.
    pub measure: String,
    /// True if an input that the paper leaves open was chosen to give its figure.
    #[serde(default)]
    pub is_calibrated: bool,
    /// Reason for a deviation, with `{measure}` as a placeholder for a measured figure.
    #[serde(default)]
    pub why: String,
}

fn figure() -> Reading {
    Reading::Figure
}

/// An `expectation.toml`: the claims of the paper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expectation {
    /// Claims that are in the list of claims.
    pub claim: Vec<Expected>,
    /// Other statements, of the papers' texts or our own.
    pub finding: Vec<Expected>,
}

impl Expectation {
    /// Parses an `expectation.toml`.
    ///
    /// # Errors
    /// A one-line parse error.
    pub(crate) fn read(about: &str, text: &str) -> Result<Self, LabError> {
        toml::from_str(text)
            .map_err(|error| LabError::wrong(about, crate::config::sentence(&error, text)))
    }
}

/// A claim compared with a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// The claim's name, unique within the experiment.
    pub id: String,
    /// Distinguishes several figures of one claim; empty if there is only one.
    pub part: String,
    /// The paper's figure: a ratio or a share.
    pub paper: f64,
    /// Our figure, in the measure's own unit.
    pub ours: f64,
    /// Half of the width of our figure's 95 % confidence interval; `None` if its runs have none.
    pub ci95: Option<f64>,
    /// Verdict of the rule on both figures.
    pub verdict: Verdict,
    /// True if the verdict is the same at both ends of the interval.
    pub is_settled: bool,
    /// Reason for a deviation; empty if the claim holds.
    pub why: String,
    /// Text of the claim.
    pub text: String,
    /// Notation of both figures.
    pub unit: Unit,
    /// The paper's figure as text.
    pub paper_text: String,
    /// Our figure as text, in the same unit, with its interval if it has one.
    pub ours_text: String,
    /// Name of its experiment.
    pub experiment: String,
}

/// Measured figures by name, as ratios and shares.
pub(crate) type Measures = BTreeMap<String, f64>;

impl Claim {
    /// Its verdict in words, with a question mark if the interval includes another.
    pub(crate) fn verdict_text(&self) -> String {
        let doubt = if self.is_settled { "" } else { " (?)" };
        format!("{}{doubt}", self.verdict.name())
    }
}

/// Compares expected figures with measured ones, of which some have intervals.
///
/// # Errors
/// An expectation names a measure that the analysis does not have.
pub(crate) fn judge(
    experiment: &str,
    expected: &[Expected],
    measures: &Measures,
    half_widths: &Measures,
) -> Result<Vec<Claim>, LabError> {
    let one = |expected: &Expected| {
        let ours = *measures.get(&expected.measure).ok_or_else(|| {
            let known = measures
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let what = format!(
                "claim {} wants the measure `{}`; there are {known}",
                expected.id, expected.measure
            );
            LabError::wrong(format_args!("{experiment}/expectation.toml"), what)
        })?;

        let (unit, paper) = (expected.unit, expected.unit.read(expected.paper));
        let judged = |ours| match expected.is_calibrated {
            true => Verdict::Calibrated,
            false => verdict(paper, unit.neutral(), expected.reading, ours),
        };
        let verdict = judged(ours);
        let why = filled(&expected.why, measures).map_err(|name| {
            let what = format!("the reason of {} names no measure: `{name}`", expected.id);
            LabError::wrong(format_args!("{experiment}/expectation.toml"), what)
        })?;

        let ci95 = half_widths.get(&expected.measure).copied();
        let up_to = if expected.reading == Reading::AtMost {
            "up to "
        } else {
            ""
        };

        Ok(Claim {
            id: expected.id.clone(),
            part: expected.part.clone(),
            paper,
            ours,
            ci95,
            is_settled: ci95
                .is_none_or(|half| [ours - half, ours + half].map(judged) == [verdict; 2]),
            verdict,
            why: if verdict == Verdict::Holds {
                String::new()
            } else {
                why
            },
            text: expected.text.clone(),
            unit,
            paper_text: format!("{up_to}{}", unit.show(paper)),
            ours_text: match ci95 {
                Some(half) => format!("{} {}", unit.show(ours), unit.show_half(half)),
                None => unit.show(ours),
            },
            experiment: experiment.into(),
        })
    };

    expected.iter().map(one).collect()
}

/// Replaces placeholders in a reason by measured figures: `{name}` as a number, `{name%}` in
/// percent, `{name+}` as a change.
///
/// # Errors
/// Returns the name of an unknown measure.
fn filled(text: &str, measures: &Measures) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;

    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);

        // An unclosed brace is kept as text.
        let Some((name, behind)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            break;
        };

        let (name, show): (&str, fn(f64) -> String) = match name.strip_suffix('%') {
            Some(name) => (name, |value| Unit::Percent.show(value)),
            None => match name.strip_suffix('+') {
                Some(name) => (name, |value| Unit::Change.show(value)),
                None => (name, remap_ssd_sim::report::format::number),
            },
        };

        let value = measures.get(name).ok_or_else(|| name.to_owned())?;
        out.push_str(&show(*value));
        rest = behind;
    }

    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Directly from the rule: a quarter, a half, for gains, losses and shares alike.
    proptest! {
        #[test]
        fn the_verdict_depends_on_the_share_of_the_claimed_effect_alone(
            neutral in prop_oneof![Just(0.0), Just(1.0)],
            effect in prop_oneof![-0.9..-0.01, 0.01..40.0],
            share in -1.0..3.0f64,
        ) {
            let ours = neutral + effect * share;
            let expected = match share {
                s if (0.75..=1.25).contains(&s) => Verdict::Holds,
                s if s >= 0.5 => Verdict::SameDirection,
                _ => Verdict::Differs,
            };
            prop_assert_eq!(verdict(neutral + effect, neutral, Reading::Figure, ours), expected);
            let bounded = match share {
                s if s <= 1.25 => Verdict::Holds,
                s if s <= 2.0 => Verdict::SameDirection,
                _ => Verdict::Differs,
            };
            prop_assert_eq!(verdict(neutral + effect, neutral, Reading::AtMost, ours), bounded);
        }
    }

    #[test]
    fn borders_belong_to_the_better_verdict_and_what_is_no_number_differs() {
        assert_eq!(verdict(1.4, 1.0, Reading::Figure, 1.3), Verdict::Holds);
        assert_eq!(verdict(1.4, 1.0, Reading::Figure, 1.5), Verdict::Holds);
        assert_eq!(
            verdict(1.4, 1.0, Reading::Figure, 1.2),
            Verdict::SameDirection
        );
        assert_eq!(verdict(0.6, 1.0, Reading::Figure, 0.5), Verdict::Holds);
        assert_eq!(
            verdict(1.4, 1.0, Reading::Figure, f64::NAN),
            Verdict::Differs
        );
        assert_eq!(
            verdict(0.0, 0.0, Reading::Figure, f64::NAN),
            Verdict::Differs
        );
    }

    #[test]
    fn no_effect_is_judged_by_a_noticeable_one() {
        assert_eq!(verdict(1.0, 1.0, Reading::Figure, 0.98), Verdict::Holds);
        assert_eq!(
            verdict(1.0, 1.0, Reading::Figure, 1.04),
            Verdict::SameDirection
        );
        assert_eq!(verdict(0.0, 0.0, Reading::Figure, 0.06), Verdict::Differs);
    }

    #[test]
    fn reasons_carry_measured_figures() {
        let measures = Measures::from([("a".to_owned(), 0.125), ("b".to_owned(), 1.5)]);
        let text = filled("{a%} and {b+}, {b}.", &measures);
        assert_eq!(text.as_deref(), Ok("12.5 % and +50.0 %, 1.50."));
        assert_eq!(filled("{b} of {a", &measures).as_deref(), Ok("1.50 of {a"));
        assert_eq!(filled("{b} and {c}", &measures), Err("c".to_owned()));
    }
}
