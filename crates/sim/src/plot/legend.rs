//! Legends: names with samples of their marks, in as many rows as needed.
//!
//! Invariant: no entry leaves the picture; a name longer than a row is shortened, with the full
//! name as a tooltip.

use maud::{Markup, html};

use super::paint::{Fill, Paint};
use super::{px, text};

/// The mark next to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A short line.
    Line,
    /// A box, for bars and columns.
    Box,
    /// The hollow point of a transient run.
    Transient,
}

/// The legend of hollow points.
pub(super) const TRANSIENT: &str = "transient, not a steady state";

/// The colour of a hollow point that stands for those of all lines.
const HOLLOW: Paint = Paint {
    color: "var(--soft)",
    dash: "none",
    fill: Fill::Hollow,
};

/// Height of a row, and the gap between two entries.
const ROW: f64 = 18.0;
const GAP: f64 = 16.0;

/// A legend, laid out for a given width.
pub(crate) struct Legend<'a> {
    entries: Vec<LegendEntry<'a>>,
    rows: usize,
}

struct LegendEntry<'a> {
    name: &'a str,
    shown: String,
    paint: Paint,
    mark: Mark,
    x: f64,
    row: usize,
}

impl<'a> Legend<'a> {
    /// Entries from `left` to `right`; the last one explains hollow points if there are any.
    pub(crate) fn new(
        names: impl IntoIterator<Item = (&'a str, Paint)>,
        mark: Mark,
        has_transient: bool,
        (left, right): (f64, f64),
    ) -> Self {
        let (mut x, mut row) = (left, 0);
        let names = names.into_iter().map(|(name, paint)| (name, paint, mark));
        let hollow = (TRANSIENT, HOLLOW, Mark::Transient);
        let entries: Vec<LegendEntry> = names
            .chain(has_transient.then_some(hollow))
            .map(|(name, paint, mark)| {
                let sample = Self::sample_width(mark);
                let shown = text::fitted(name, right - left - sample, text::TEXT);
                let width = sample + text::width(&shown, text::TEXT);
                // A name that does not fit begins a new row, unless the row is empty.
                if x > left && x + width > right {
                    (x, row) = (left, row + 1);
                }

                let at = x;
                x += width + GAP;
                LegendEntry {
                    name,
                    shown,
                    paint,
                    mark,
                    x: at,
                    row,
                }
            })
            .collect();

        let rows = if entries.is_empty() { 0 } else { row + 1 };
        Self { entries, rows }
    }

    /// Total height of its rows, 0 without entries.
    pub(crate) fn height(&self) -> f64 {
        ROW * self.rows as f64
    }

    /// Renders the legend as SVG, with its first row below `top`.
    pub(crate) fn draw(&self, top: f64) -> Markup {
        html! {
            @for entry in &self.entries {
                @let middle = top + ROW * (entry.row as f64 + 0.5);
                @match entry.mark {
                    Mark::Line if entry.paint.is_points() => circle class="dot ring" style=(format!("--c:{}", entry.paint.color))
                        cx=(px(entry.x + 12.0)) cy=(px(middle)) r="4.5" {},
                    Mark::Line => path class="line" style=(format!("--c:{}", entry.paint.color)) stroke-dasharray=(entry.paint.dash)
                        d=(format!("M{} {}L{} {}", px(entry.x), px(middle), px(entry.x + 24.0), px(middle))) {},
                    Mark::Box => {
                        rect class=(entry.paint.fill.class()) style=(format!("--c:{}", entry.paint.color))
                            x=(px(entry.x)) y=(px(middle - 5.5)) width="11" height="11" {}
                        @if entry.paint.fill == Fill::Striped {
                            path class="stripes" style=(format!("--c:{}", entry.paint.color)) stroke-width="11"
                                d=(format!("M{} {}h11", px(entry.x), px(middle))) {}
                        }
                    },
                    Mark::Transient => circle class="dot hollow" style=(format!("--c:{}", entry.paint.color))
                        cx=(px(entry.x + 4.0)) cy=(px(middle)) r="3.5" {},
                }
                text class="entry" x=(px(entry.x + Self::sample_width(entry.mark))) y=(px(middle + 4.0)) {
                    (entry.shown)
                    @if entry.shown != entry.name { title { (entry.name) } }
                }
            }
        }
    }

    fn sample_width(mark: Mark) -> f64 {
        match mark {
            Mark::Line => 30.0,
            Mark::Box => 17.0,
            Mark::Transient => 13.0,
        }
    }
}
