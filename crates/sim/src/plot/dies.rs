//! What dies did: a row for each die, over virtual time.
//!
//! An interval is a box in its die's row. While a program or an erase is suspended, a strip of its colour goes on at
//! the bottom of the row, and reads stand above it.
//!
//! Invariants: boxes stay within the plot; boxes of one kind are one path, so that thousands of them make a small
//! file. Absent: the choice of the window (`timeline`).

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::legend::{Legend, Mark};
use super::paint::{Fill, Paint};
use super::{Size, px, svg, text};

/// Room for the last tick label, and below the rows.
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 44.0;
const EDGE: f64 = 6.0;
/// Share of a row's height that is left for reads while an operation is suspended.
const ABOVE: f64 = 0.62;

/// Boxes of one kind.
pub(crate) struct Kind<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// A colour of the style sheet.
    pub color: &'static str,
    /// The boxes, in rows.
    pub boxes: Vec<Span>,
}

/// A box of a row.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// The row, from 0.
    pub row: usize,
    /// Beginning and end, in the axis' unit.
    pub from: f64,
    /// Its end.
    pub until: f64,
    /// Where in the row it stands.
    pub place: Place,
}

/// Where in its row a box stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All of it.
    Whole,
    /// Above a suspended operation.
    Above,
    /// A suspended operation.
    Below,
}

/// A picture of rows of boxes.
pub(crate) struct DieChart<'a> {
    /// What is shown.
    pub heading: &'a str,
    /// Text alternative for screen readers.
    pub description: String,
    /// Label of the axis, with its unit.
    pub title: &'a str,
    /// Length of the axis.
    pub length: f64,
    /// Number of dies.
    pub rows: usize,
    /// The kinds, later ones in front.
    pub kinds: Vec<Kind<'a>>,
}

impl DieChart<'_> {
    /// Renders the chart as an SVG element of a page, or stand-alone.
    pub(crate) fn draw(&self, size: Size, alone: bool) -> Markup {
        let width = size.width();
        let heading = super::columns::heading(Some(self.heading), width);
        let paint = |color| Paint {
            color,
            dash: "none",
            fill: Fill::Solid,
        };
        let used = self.kinds.iter().filter(|kind| !kind.boxes.is_empty());
        let legend = Legend::new(
            used.map(|kind| (kind.name, paint(kind.color))),
            Mark::Box,
            false,
            (EDGE, width - EDGE),
        );
        let axis = Axis::upto(self.length);
        let left = text::width(&format!("die {}", self.rows), text::TEXT) + 14.0;
        let top = heading.height + legend.height() + 12.0;
        let pitch = (520.0 / self.rows.max(1) as f64).clamp(11.0, 34.0);
        let bottom = top + pitch * self.rows as f64;
        let plot = Plot {
            left,
            right: width - RIGHT,
            top,
            pitch,
            axis: &axis,
        };
        // Names of all rows only where they have room.
        let named = |row: &usize| pitch >= 13.0 || row.is_multiple_of(2);

        let content = html! {
            (heading.markup)
            (legend.draw(heading.height))
            @for (value, label) in &axis.marks {
                @let x = px(plot.x(*value));
                line class="grid" x1=(x) x2=(x) y1=(px(top - 4.0)) y2=(px(bottom + 4.0)) {}
                text class="mark" x=(x) y=(px(bottom + 18.0)) text-anchor="middle" { (label) }
            }
            @for row in 0..self.rows {
                @let middle = px(top + pitch * (row as f64 + 0.5));
                line class="grid" x1=(px(left)) x2=(px(plot.right)) y1=(middle) y2=(middle) {}
                @if named(&row) {
                    text class="label" x=(px(left - 8.0)) y=(px(top + pitch * (row as f64 + 0.5) + 4.0)) text-anchor="end" { "die " (row) }
                }
            }
            @for kind in &self.kinds {
                @for (class, is_below) in [("held", true), ("dot", false)] {
                    @let path = plot.path(&kind.boxes, is_below);
                    @if !path.is_empty() { path class=(class) style=(format!("--c:{}", kind.color)) d=(path) {} }
                }
            }
            text class="axis-title" x=(px((left + plot.right) / 2.0)) y=(px(bottom + BOTTOM - 8.0))
                text-anchor="middle" { (text::fitted(self.title, width - 2.0 * EDGE, text::TEXT)) }
        };
        svg((width, bottom + BOTTOM), &self.description, alone, &content)
    }
}

/// Position of the rows within the picture.
struct Plot<'a> {
    left: f64,
    right: f64,
    top: f64,
    pitch: f64,
    axis: &'a Axis,
}

impl Plot<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.axis.place(value).clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// The path of the boxes that are suspended operations, or of the others.
    fn path(&self, boxes: &[Span], is_below: bool) -> String {
        let mut path = String::new();
        let height = (self.pitch - 2.0).max(self.pitch * 0.8);
        for span in boxes {
            if (span.place == Place::Below) != is_below {
                continue;
            }
            let (from, until) = (self.x(span.from), self.x(span.until));
            let row = self.top + self.pitch * span.row as f64 + 1.0;
            let (top, height) = match span.place {
                Place::Whole => (row, height),
                Place::Above => (row, height * ABOVE),
                Place::Below => (row + height * ABOVE, height * (1.0 - ABOVE)),
            };
            // To a hundredth: a read may be a fraction of a unit long.
            write!(
                path,
                "M{:.2} {}h{:.2}v{}H{:.2}z",
                from,
                px(top),
                until - from,
                px(height),
                from
            )
            .expect("a text takes everything");
        }
        path
    }
}
