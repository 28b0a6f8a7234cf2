//! The figures: what each one shows, of which measurements, and how to read it.
//!
//! Invariants: a figure without anything to show says why instead of drawing an empty plot; the
//! description of each picture holds its values in words where there are few enough.
//! Absent: styling and layout.

mod amounts;
mod curves;

use maud::Markup;

use super::metrics::labels;
use super::palette::{Paint, paints};
use crate::summary::RunSummary;

/// A captioned picture with its legend.
pub struct Figure {
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub reading: String,
    /// Colours and what they stand for; empty if the picture says so itself.
    pub legend: Vec<(String, Key)>,
    /// The picture, or why there is none.
    pub picture: Result<Markup, &'static str>,
}

/// What a legend shows beside a name.
pub enum Key {
    Line(Paint),
    /// A filled box of a CSS colour.
    Box(&'static str),
}

/// All figures of a report.
pub fn figures(runs: &[RunSummary]) -> Vec<Figure> {
    let names = labels(runs);

    let all = Series {
        runs,
        names: &names,
        paints: paints(runs),
    };

    let mut figures = vec![
        all.bandwidth(),
        all.amplification(),
        all.bandwidth_over_time(),
        all.gc_over_time(),
        all.latency(),
        all.latency_tail(),
        all.demotions(),
        all.room_over_time(),
    ];

    if runs.iter().any(|run| run.arrivals.is_some()) {
        figures.push(all.backlog_over_time());
    }

    figures
}

/// The runs with what every figure needs of them.
struct Series<'a> {
    runs: &'a [RunSummary],
    names: &'a [String],
    paints: Vec<Paint>,
}
