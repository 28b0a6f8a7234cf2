//! Horizontal bars, plain or stacked.
//!
//! Horizontal because then names and values stand next to the bars, in full; without enough room
//! there they stand above. Invariants: bars and their error bars start at zero and stay within the
//! plot; each bar has its value as text.

use maud::{Markup, html};

use super::axis::Axis;
use super::legend::{Legend, Mark};
use super::paint::{Fill, Paint};
use super::{Size, px, svg, text};

/// Sizes of text: names of bars, and the notes after them.
const NAME: f64 = 13.0;
const NOTE: f64 = 12.5;
const EDGE: f64 = 6.0;
const BOTTOM: f64 = 44.0;
const THICKNESS: f64 = 22.0;

/// A chart of horizontal bars.
pub(crate) struct BarChart<'a> {
    /// Text alternative for screen readers.
    pub description: String,
    /// Label of the axis, with its unit.
    pub title: &'a str,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar<'a>>,
    /// Names of the parts, with their colours; empty if each bar has one part.
    pub legend: Vec<(&'a str, Paint)>,
    /// Value of a reference line across all bars.
    pub reference: Option<f64>,
}

/// One bar, of one or several parts.
pub(crate) struct Bar<'a> {
    /// Name of its run.
    pub label: &'a str,
    /// Its value as text, set after it.
    pub note: String,
    /// Its parts from zero on; one for a plain bar. None of them is negative.
    pub parts: Vec<Part>,
    /// Half the width of the interval of its end, NaN if it is unknown.
    pub half: f64,
}

/// A part of a bar.
pub(crate) struct Part {
    /// Name, shown as a tooltip.
    pub name: String,
    /// Length of the part, in the axis' unit.
    pub value: f64,
    /// A colour of the style sheet.
    pub color: &'static str,
    /// Fill pattern, in addition to its colour.
    pub fill: Fill,
}

/// Positions of bars and text.
struct BarLayout {
    left: f64,
    right: f64,
    /// Text stands above the bars.
    above: bool,
    top: f64,
    pitch: f64,
}

impl BarChart<'_> {
    /// Renders the chart as an SVG element of a page, or stand-alone.
    pub(crate) fn draw(&self, size: Size, alone: bool) -> Markup {
        let width = size.width();
        let legend = Legend::new(
            self.legend.iter().copied(),
            Mark::Box,
            false,
            (EDGE, width - EDGE),
        );
        let layout = self.layout(width, EDGE + legend.height());
        let bottom = layout.top + layout.pitch * self.bars.len() as f64;

        // The reference must also be on the axis, however short the bars are.
        let longest = self.bars.iter().map(Bar::end).fold(0.0, f64::max);
        let axis = Axis::rounded(longest.max(self.reference.unwrap_or(0.0)));
        let at = |value: f64| layout.left + axis.place(value) * (layout.right - layout.left);

        let content = html! {
            (legend.draw(EDGE))
            @for (value, label) in &axis.marks {
                @let x = px(at(*value));
                line class="grid" x1=(x) x2=(x) y1=(px(layout.top)) y2=(px(bottom)) {}
                text class="mark" x=(x) y=(px(bottom + 16.0)) text-anchor="middle" { (label) }
            }

            @for (i, bar) in self.bars.iter().enumerate() {
                (bar.draw(&layout, layout.top + layout.pitch * i as f64, width, at))
            }

            line class="base" x1=(px(layout.left)) x2=(px(layout.left)) y1=(px(layout.top)) y2=(px(bottom)) {}
            @if let Some(value) = self.reference {
                line class="reference" x1=(px(at(value))) x2=(px(at(value))) y1=(px(layout.top - 5.0)) y2=(px(bottom)) {}
            }

            text class="axis-title" x=(px(width / 2.0)) y=(px(bottom + BOTTOM - 8.0))
                text-anchor="middle" { (text::fitted(self.title, width - 2.0 * EDGE, text::TEXT)) }
        };
        svg((width, bottom + BOTTOM), &self.description, alone, &content)
    }

    fn layout(&self, width: f64, top: f64) -> BarLayout {
        let widest = |words: &mut dyn Iterator<Item = f64>| words.fold(0.0, f64::max) + 14.0;
        let names = widest(&mut self.bars.iter().map(|bar| text::width(bar.label, NAME)));
        let notes = widest(&mut self.bars.iter().map(|bar| text::width(&bar.note, NOTE)));

        // Few bars get more room each, so that the figure is no mere strip.
        let pitch = (190.0 / self.bars.len().max(1) as f64).clamp(30.0, 60.0);
        // Next to the bars if a third of the width is left for them.
        let above = width - names - notes < width * 0.35;

        if above {
            BarLayout {
                left: EDGE + 4.0,
                right: width - 24.0,
                above,
                top,
                pitch: THICKNESS + 26.0,
            }
        } else {
            BarLayout {
                left: names,
                right: width - notes,
                above,
                top: top + 4.0,
                pitch,
            }
        }
    }
}

impl Bar<'_> {
    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.value).sum()
    }

    /// The upper end of its interval, or its own end.
    fn end(&self) -> f64 {
        self.length() + self.half.max(0.0)
    }

    fn draw(&self, layout: &BarLayout, top: f64, width: f64, at: impl Fn(f64) -> f64) -> Markup {
        let mut start = 0.0;
        let parts: Vec<_> = self
            // Each part begins where the previous one ends.
            .parts
            .iter()
            .map(|part| {
                let from = at(start);
                start += part.value;
                (part, from, at(start) - from)
            })
            .collect();

        let bar_top = if layout.above {
            top + 20.0
        } else {
            top + (layout.pitch - THICKNESS) / 2.0
        };

        html! {
            @for (part, from, width) in parts {
                @if width > 0.0 {
                    rect class=(part.fill.class()) style=(format!("--c:{}", part.color)) x=(px(from)) width=(format!("{width:.2}"))
                        y=(px(bar_top)) height=(THICKNESS) {
                        title { (self.label) ": " (part.name) }
                    }
                }
            }

            @if self.half.is_finite() {
                @let (low, high) = (at(start - self.half), at(self.end()));
                path class="whisker" d=(whisker((low, high), bar_top + THICKNESS / 2.0)) {}
            }

            @if layout.above {
                @let note = text::fitted(&self.note, width * 0.62, NOTE);
                @let room = width - 3.0 * EDGE - text::width(&note, NOTE);
                text class="name" x=(px(EDGE)) y=(px(top + 15.0)) { (text::fitted(self.label, room, NAME)) title { (self.label) } }
                text class="note" x=(px(width - EDGE)) y=(px(top + 15.0)) text-anchor="end" { (note) }
            } @else {
                @let y = px(bar_top + THICKNESS / 2.0 + 4.0);
                text class="name" x=(px(layout.left - 7.0)) y=(y) text-anchor="end" { (self.label) title { (self.label) } }
                text class="note" x=(px(at(self.end()) + 7.0)) y=(y) { (self.note) }
            }
        }
    }
}

/// The path of an error bar along a bar, from `low` to `high`.
fn whisker((low, high): (f64, f64), y: f64) -> String {
    const END: f64 = 4.0;
    let (low, high) = (px(low), px(high));
    let (top, middle, bottom) = (px(y - END), px(y), px(y + END));
    format!(
        "M{low} {top}L{low} {bottom}M{low} {middle}L{high} {middle}M{high} {top}L{high} {bottom}"
    )
}
