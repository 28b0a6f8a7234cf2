//! What dies did: a row for each die, over virtual time.
//!
//! An interval is a box in its die's row. While a program or an erase is suspended, a striped box of its colour goes on
//! at the bottom of the row, and reads stand above it. Stripes are the dashes of a thick line, since patterns need
//! names that are unique in a page.
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
    /// Suspended operations are striped.
    pub place: Place,
    /// The boxes, in rows.
    pub boxes: Vec<Span>,
}

/// A box of a row.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// The row, from 0: its die.
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
    /// Heading inside a stand-alone picture.
    pub heading: Option<&'a String>,
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
        let heading = super::columns::heading(self.heading.map(String::as_str), width);
        let paint = |kind: &Kind<'_>| Paint {
            color: kind.color,
            dash: "none",
            fill: match kind.place {
                Place::Below => Fill::Striped,
                Place::Whole | Place::Above => Fill::Solid,
            },
        };
        let used = self.kinds.iter().filter(|kind| !kind.boxes.is_empty());
        let legend = Legend::new(
            used.map(|kind| (kind.name, paint(kind))),
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
            @for kind in self.kinds.iter().filter(|kind| !kind.boxes.is_empty()) {
                @let style = format!("--c:{}", kind.color);
                @let is_held = kind.place == Place::Below;
                path class=(if is_held { "held" } else { "dot" }) style=(style) d=(plot.boxes(&kind.boxes)) {}
                @if is_held {
                    path class="stripes" style=(style) stroke-width=(px(plot.height(Place::Below))) d=(plot.lines(&kind.boxes)) {}
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

    /// Height of a box.
    fn height(&self, place: Place) -> f64 {
        let row = (self.pitch - 2.0).max(self.pitch * 0.8);
        match place {
            Place::Whole => row,
            Place::Above => row * ABOVE,
            Place::Below => row * (1.0 - ABOVE),
        }
    }

    /// Upper edge of a box.
    fn top(&self, span: &Span) -> f64 {
        let row = self.top + self.pitch * span.row as f64 + 1.0;
        match span.place {
            Place::Whole | Place::Above => row,
            Place::Below => row + self.height(Place::Above),
        }
    }

    /// The path around boxes.
    fn boxes(&self, boxes: &[Span]) -> String {
        let mut path = String::new();
        for span in boxes {
            let (from, until) = (self.x(span.from), self.x(span.until));
            // To a hundredth: a read may be a fraction of a unit long.
            write!(
                path,
                "M{:.2} {}h{:.2}v{}H{:.2}z",
                from,
                px(self.top(span)),
                until - from,
                px(self.height(span.place)),
                from
            )
            .expect("a text takes everything");
        }
        path
    }

    /// The path along the middle of boxes.
    fn lines(&self, boxes: &[Span]) -> String {
        let mut path = String::new();
        for span in boxes {
            let (from, until) = (self.x(span.from), self.x(span.until));
            let middle = px(self.top(span) + self.height(span.place) / 2.0);
            write!(path, "M{from:.2} {middle}h{:.2}", until - from)
                .expect("a text takes everything");
        }
        path
    }
}
