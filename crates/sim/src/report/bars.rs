//! Horizontal bars, plain or stacked, as SVG.
//!
//! Horizontal because then names and values stand beside the bars, in full and level.
//! Invariants: bars start at zero and no bar leaves the plot; each bar carries its value in words.
//! Absent: the meaning of the parts' colours; the page has the legend.

use maud::{Markup, html};

use super::axis::Axis;
use super::lines::px;

const WIDTH: f64 = 560.0;
/// A generous guess at how wide a letter is, to leave room for words beside the bars.
const LETTER: f64 = 7.4;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
const THICKNESS: f64 = 24.0;

/// A chart of horizontal bars.
pub struct BarChart<'a> {
    /// What is shown, for those who can't see it.
    pub description: String,
    /// What a bar's length measures, with its unit.
    pub title: &'a str,
    /// One bar below the other.
    pub bars: Vec<Bar<'a>>,
    /// A value to draw a line at across all bars.
    pub reference: Option<f64>,
}

/// One bar, of one or several parts.
pub struct Bar<'a> {
    /// Name of the run that it is of.
    pub label: &'a str,
    /// Its value in words, set behind it.
    pub note: String,
    /// Its parts from zero on; one for a plain bar. None of them is negative.
    pub parts: Vec<Part>,
}

/// A part of a bar.
pub struct Part {
    /// What it is, shown when pointed at.
    pub name: String,
    /// Length of the part, in the axis' unit.
    pub value: f64,
    pub color: &'static str,
}

impl BarChart<'_> {
    /// The chart as an SVG element.
    pub fn draw(&self) -> Markup {
        let longest = self.bars.iter().map(Bar::length).fold(0.0, f64::max);
        let axis = Axis::rounded(longest.max(self.reference.unwrap_or(0.0)));

        // Few bars get more room each, so that the figure isn't a mere strip.
        let pitch = (190.0 / self.bars.len().max(1) as f64).clamp(38.0, 62.0);
        let bottom = TOP + pitch * self.bars.len() as f64;

        let room = |words: &mut dyn Iterator<Item = usize>| {
            16.0 + LETTER * words.max().unwrap_or(0) as f64
        };

        let left = room(
            &mut self
                .bars
                .iter()
                .map(|bar| shortened(bar.label).chars().count()),
        );

        let notes = room(&mut self.bars.iter().map(|bar| bar.note.chars().count()));
        let right = (WIDTH - notes).max(WIDTH / 2.0);

        let at = |value: f64| left + axis.place(value) * (right - left);

        html! {
            svg role="img" viewBox=(format!("0 0 {WIDTH} {}", px(bottom + BOTTOM)))
                aria-label=(self.description) {
                @for (value, label) in &axis.marks {
                    @let x = px(at(*value));
                    line class="grid" x1=(x) x2=(x) y1=(TOP) y2=(px(bottom)) {}
                    text class="mark" x=(x) y=(px(bottom + 16.0)) text-anchor="middle" { (label) }
                }

                @for (i, bar) in self.bars.iter().enumerate() {
                    (bar.draw(TOP + pitch * (i as f64 + 0.5), at))
                }

                line class="base" x1=(px(left)) x2=(px(left)) y1=(TOP) y2=(px(bottom)) {}
                @if let Some(value) = self.reference {
                    line class="reference" x1=(px(at(value))) x2=(px(at(value))) y1=(TOP - 6.0) y2=(px(bottom)) {}
                }

                text class="axis-title" x=(px((left + right) / 2.0)) y=(px(bottom + BOTTOM - 8.0))
                    text-anchor="middle" { (self.title) }
            }
        }
    }
}

impl Bar<'_> {
    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.value).sum()
    }

    fn draw(&self, middle: f64, at: impl Fn(f64) -> f64) -> Markup {
        let mut start = 0.0;

        let parts: Vec<_> = self
            .parts
            .iter()
            .map(|part| {
                let from = at(start);
                start += part.value;
                (part, from, at(start) - from)
            })
            .collect();

        html! {
            text class="name" x=(px(at(0.0) - 8.0)) y=(px(middle + 4.0)) text-anchor="end" {
                (shortened(self.label)) title { (self.label) }
            }

            @for (part, from, width) in parts {
                @if width > 0.0 {
                    rect class="part" style=(format!("--c:{}", part.color)) x=(px(from)) width=(format!("{width:.2}"))
                        y=(px(middle - THICKNESS / 2.0)) height=(THICKNESS) {
                        title { (self.label) ": " (part.name) }
                    }
                }
            }

            text class="note" x=(px(at(start) + 7.0)) y=(px(middle + 4.0)) { (self.note) }
        }
    }
}

/// A label that fits beside the bars.
fn shortened(label: &str) -> String {
    const FITS: usize = 16;
    if label.chars().count() <= FITS {
        return label.to_owned();
    }
    label.chars().take(FITS - 1).chain(['…']).collect()
}
