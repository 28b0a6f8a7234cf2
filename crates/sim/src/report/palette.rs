//! One colour and one line style for each run, the same in every figure.
//!
//! The colours are Okabe and Ito's, which colour-blind readers can tell apart; the style sheet
//! defines them for light and dark pages. Schemes and the parts of a bar draw from disjoint halves
//! of the palette (names we don't know borrow from the parts). Lines differ in dashes too: what is only a
//! reference (no remapping, the ideal) is dashed.

use super::metrics::{BASELINE, IDEAL, occurrence};
use crate::summary::RunSummary;
use remap_ssd_ftl::{Hue, SchemeKind};

/// How a run is drawn: a colour of the style sheet and a dash pattern of SVG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    pub color: &'static str,
    pub dash: &'static str,
}

/// The parts of stacked bars, in their order.
pub const PARTS: [&str; 4] = [
    "var(--sky)",
    "var(--vermilion)",
    "var(--yellow)",
    "var(--grey)",
];

const OTHERS: [&str; 3] = ["var(--vermilion)", "var(--sky)", "var(--yellow)"];
const DASHES: [&str; 4] = ["none", "9 4", "5 2 1 2", "2 2"];

/// A paint for each run.
pub fn paints(runs: &[RunSummary]) -> Vec<Paint> {
    let mut unknown: Vec<&str> = Vec::new();

    runs.iter()
        .enumerate()
        .map(|(i, run)| {
            let name = run.scheme.as_str();

            let color = known(name).unwrap_or_else(|| {
                let place = unknown
                    .iter()
                    .position(|seen| *seen == name)
                    .unwrap_or_else(|| {
                        unknown.push(name);
                        unknown.len() - 1
                    });
                OTHERS[place % OTHERS.len()]
            });

            let dash = match (name, occurrence(runs, i)) {
                (BASELINE, 0) => "6 4",
                (IDEAL, 0) => "2 5",
                (_, earlier) => DASHES[earlier % DASHES.len()],
            };

            Paint { color, dash }
        })
        .collect()
}

fn known(scheme: &str) -> Option<&'static str> {
    let hue = scheme.parse::<SchemeKind>().ok()?.facts().hue?;
    Some(match hue {
        Hue::Black => "var(--black)",
        Hue::Green => "var(--green)",
        Hue::Blue => "var(--blue)",
        Hue::Orange => "var(--orange)",
        Hue::Purple => "var(--purple)",
    })
}
