//! The figures: the content of each, its measurements, and how to read it.
//!
//! Invariants: a figure without data says why instead of drawing an empty plot; the description of
//! each picture holds its values as text if there are few enough. Absent: styling and layout.

mod amounts;
mod causes;
mod curves;

use maud::Markup;

use super::metrics::labels;
use super::progress::Progress;
use crate::plot::paint::{Paint, paints};
use crate::summary::RunSummary;

/// A captioned picture with its legend.
pub(super) struct Figure {
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub reading: String,
    /// The picture, or the reason that there is none.
    pub picture: Result<Markup, &'static str>,
}

/// All figures of a report.
pub(super) fn figures(runs: &[RunSummary], progress: Progress) -> Vec<Figure> {
    let names = labels(runs);

    let all = Series {
        runs,
        names: &names,
        paints: paints(names.iter().map(String::as_str)),
        progress,
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

    // Only one engine knows causes.
    figures.extend(
        [all.read_causes(), all.write_causes()]
            .into_iter()
            .flatten(),
    );

    // Only an open loop has a backlog.
    if runs.iter().any(|run| run.arrivals.is_some()) {
        figures.push(all.backlog_over_time());
    }

    // A device that lost no capacity would be a straight line.
    let shrinks = |run: &RunSummary| {
        let first = run.samples.first().map(|sample| sample.usable_pages);
        let shrunk = run.samples.last().map(|sample| sample.usable_pages) < first;
        shrunk || run.wear_out.read_only
    };
    if runs.iter().any(shrinks) {
        figures.insert(1, all.capacity_over_writes());
    }

    figures
}

/// The runs with the common data of all figures.
struct Series<'a> {
    runs: &'a [RunSummary],
    names: &'a [String],
    paints: Vec<Paint>,
    progress: Progress,
}
