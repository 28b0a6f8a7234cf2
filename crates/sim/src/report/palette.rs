//! One colour and one line style for each run, the same in every figure.
//!
//! Schemes and the parts of a bar use disjoint halves of the palette. Lines of one scheme differ in
//! dashes; references (no remapping, the ideal) are always dashed.

use super::metrics::{BASELINE, IDEAL, occurrence};
use crate::plot::paint::{Fill, Paint, of_scheme};
use crate::summary::RunSummary;

/// The parts of stacked bars, in order.
pub(super) const PARTS: [Paint; 4] = [
    part("var(--sky)"),
    part("var(--vermilion)"),
    part("var(--yellow)"),
    part("var(--grey)"),
];

const fn part(color: &'static str) -> Paint {
    Paint {
        color,
        dash: "none",
        fill: Fill::Solid,
    }
}

/// A paint for each run.
pub(super) fn paints(runs: &[RunSummary]) -> Vec<Paint> {
    let mut unknown: Vec<&str> = Vec::new();

    runs.iter()
        .enumerate()
        .map(|(i, run)| {
            let name = run.scheme.as_str();
            let earlier = occurrence(runs, i);

            let mut paint = match of_scheme(name) {
                Some(color) => Paint::of(color, earlier),
                None => {
                    // Unknown schemes keep their colour in all figures, by order of appearance.
                    let place = unknown.iter().position(|seen| *seen == name);
                    let place = place.unwrap_or_else(|| {
                        unknown.push(name);
                        unknown.len() - 1
                    });
                    Paint::of(Paint::other(place).color, earlier)
                }
            };

            // References are dashed from the first: they are no measurement of a scheme.
            paint.dash = match (name, earlier) {
                (BASELINE, 0) => "6 4",
                (IDEAL, 0) => "2 5",
                _ => paint.dash,
            };
            paint
        })
        .collect()
}
