//! Line charts as SVG.
//!
//! Invariants: at most [`POINTS_MAX`] points a line; every coordinate is finite and inside the
//! plot; colours come from the style sheet, so one picture serves light and dark pages.
//! Absent: a legend; the page has one for all figures of a kind.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::palette::Paint;
use super::series::{POINTS_MAX, Point, downsample};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// A chart of lines over common axes.
pub struct LineChart<'a> {
    /// What is shown, for those who can't see it.
    pub description: String,
    /// What the horizontal axis measures, with its unit.
    pub x_title: String,
    /// What the vertical axis measures, with its unit.
    pub y_title: &'a str,
    pub x: Axis,
    pub y: Axis,
    /// The lines, later ones in front.
    pub lines: Vec<ChartLine<'a>>,
}

/// One line of a chart.
pub struct ChartLine<'a> {
    /// Name of the run that it is of.
    pub label: &'a str,
    /// Colour and dash pattern of the line.
    pub paint: Paint,
    /// Points (x, y), by x.
    pub points: Vec<Point>,
    /// The trend: if there is one it is drawn boldly, and the points faintly behind it.
    pub trend: Option<Vec<Point>>,
}

impl LineChart<'_> {
    /// The chart as an SVG element.
    pub fn draw(&self) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);

        html! {
            svg role="img" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) aria-label=(self.description) {
                text class="axis-title" x="6" y="14" { (self.y_title) }

                @for (value, label) in self.y.marks.iter().filter(|mark| !mark.1.is_empty()) {
                    @let y = self.y_at(*value);
                    line class="grid" x1=(LEFT) x2=(right) y1=(px(y)) y2=(px(y)) {}
                    text class="mark" x=(LEFT - 7.0) y=(px(y + 4.0)) text-anchor="end" { (label) }
                }

                @for (value, label) in &self.x.marks {
                    @let x = self.x_at(*value);
                    line class="tick" x1=(px(x)) x2=(px(x)) y1=(bottom) y2=(bottom + if label.is_empty() { 3.0 } else { 6.0 }) {}
                    @if !label.is_empty() {
                        text class="mark" x=(px(x)) y=(bottom + 18.0) text-anchor="middle" { (label) }
                    }
                }

                line class="base" x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
                text class="axis-title" x=(px((LEFT + right) / 2.0)) y=(HEIGHT - 6.0)
                    text-anchor="middle" { (self.x_title) }

                // All faint lines first: no line's noise hides another one's trend.
                @for line in &self.lines { @if line.trend.is_some() { (self.path(line, &line.points, "noise")) } }
                @for line in &self.lines { (self.path(line, line.trend.as_ref().unwrap_or(&line.points), "line")) }
            }
        }
    }

    fn path(&self, line: &ChartLine, points: &[Point], class: &str) -> Markup {
        let mut data = String::new();
        for (i, &(x, y)) in downsample(points, POINTS_MAX).iter().enumerate() {
            let verb = if i == 0 { 'M' } else { 'L' };
            write!(data, "{verb}{} {}", px(self.x_at(x)), px(self.y_at(y)))
                .expect("a String takes all text");
        }

        let dash = if class == "noise" {
            "none"
        } else {
            line.paint.dash
        };

        html! {
            @if points.len() == 1 {
                circle class="dot" style=(format!("--c:{}", line.paint.color)) r="3.5"
                    cx=(px(self.x_at(points[0].0))) cy=(px(self.y_at(points[0].1))) {
                    title { (line.label) }
                }
            } @else if !points.is_empty() {
                path class=(class) d=(data) stroke-dasharray=(dash)
                    style=(format!("--c:{}", line.paint.color)) {
                    title { (line.label) }
                }
            }
        }
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - RIGHT - LEFT)
    }

    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - BOTTOM - TOP)
    }
}

/// A coordinate to a tenth of a unit, as short as it can be written.
pub fn px(coordinate: f64) -> String {
    format!("{}", (coordinate * 10.0).round() / 10.0)
}
