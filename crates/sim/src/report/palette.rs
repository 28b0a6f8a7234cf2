//! Colours of the parts of stacked bars, disjoint from those of schemes.

use crate::plot::paint::{Fill, Paint};

/// The parts of stacked bars, in order.
pub(super) const PARTS: [Paint; 10] = [
    part("var(--sky)"),
    part("var(--vermilion)"),
    part("var(--yellow)"),
    part("var(--grey)"),
    part("var(--moss)"),
    part("var(--teal)"),
    part("var(--violet)"),
    part("var(--rose)"),
    part("var(--brown)"),
    part("var(--wine)"),
];

const fn part(color: &'static str) -> Paint {
    Paint {
        color,
        dash: "none",
        fill: Fill::Solid,
    }
}
