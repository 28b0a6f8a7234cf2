//! Line charts.
//!
//! Invariants: at most `POINTS_MAX` points per line; every coordinate is finite and inside the
//! plot; tick labels neither overlap nor leave the picture.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::legend::{Legend, Mark};
use super::paint::Paint;
use super::series::{Point, downsample};
use super::{Size, px, svg, text};

/// Room for half of the last tick label.
const RIGHT: f64 = 14.0;

/// A chart of lines over common axes.
pub struct LineChart<'a> {
    /// Heading inside a stand-alone picture.
    pub heading: Option<&'a str>,
    /// Text alternative for screen readers.
    pub description: String,
    /// Label of the horizontal axis, with its unit.
    pub x_title: String,
    /// Label of the vertical axis, with its unit.
    pub y_title: &'a str,
    /// The horizontal axis, common to all lines.
    pub x: Axis,
    /// The vertical axis, common to all lines.
    pub y: Axis,
    /// The lines, later ones in front.
    pub lines: Vec<ChartLine<'a>>,
    /// True if each point has a dot with its values as a tooltip.
    pub dots: bool,
}

/// One line of a chart.
pub struct ChartLine<'a> {
    /// Name of its run.
    pub label: &'a str,
    /// Colour and dashes, distinct from the other lines'.
    pub paint: Paint,
    /// Points (x, y), by x.
    pub points: Vec<Point>,
    /// Optional trend, drawn boldly; the points are then drawn faintly in the background.
    pub trend: Option<Vec<Point>>,
}

/// Position of the plot within the picture.
struct Plane<'a> {
    x: &'a Axis,
    y: &'a Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    points_max: usize,
}

impl Plane<'_> {
    fn x_at(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    fn y_at(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }
}

impl LineChart<'_> {
    /// Renders the chart as an SVG element of a page, or stand-alone.
    pub fn draw(&self, size: Size, alone: bool) -> Markup {
        let width = size.width();
        let heading = super::columns::heading(self.heading, width);
        let legend = Legend::new(
            self.lines.iter().map(|line| (line.label, line.paint)),
            Mark::Line,
            (6.0, width - 6.0),
        );

        // The widest tick label decides where the plot begins.
        let labels = self
            .y
            .marks
            .iter()
            .map(|mark| text::width(&mark.1, text::TEXT));
        let (legend_top, title_y) = (heading.height, heading.height + legend.height() + 15.0);
        let top = title_y + 13.0;
        let plane = Plane {
            x: &self.x,
            y: &self.y,
            left: labels.fold(24.0, f64::max) + 12.0,
            right: width - RIGHT,
            top,
            bottom: top + (width * 0.4).clamp(190.0, 280.0),
            points_max: size.points_max(),
        };

        let titles = text::wrapped(&self.x_title, width - 12.0, text::TEXT, 2);
        let height = plane.bottom + 24.0 + 15.0 * titles.len() as f64 + 5.0;
        let middle = (plane.left + plane.right) / 2.0;

        let content = html! {
            (heading.markup)
            (legend.draw(legend_top))
            text class="axis-title" x="6" y=(px(title_y)) { (text::fitted(self.y_title, width - 12.0, text::TEXT)) }
            (axes(&plane))

            @for (row, title) in titles.iter().enumerate() {
                // In the middle of the plot, unless it is too long for that.
                @let half = text::width(title, text::TEXT) / 2.0;
                text class="axis-title" x=(px(middle.clamp(half + 2.0, (width - half - 2.0).max(half + 2.0))))
                    y=(px(plane.bottom + 36.0 + 15.0 * row as f64)) text-anchor="middle" { (title) }
            }

            // All faint lines first: no line's noise hides another one's trend.
            @for line in &self.lines { @if line.trend.is_some() { (path(&plane, line, &line.points, "noise")) } }
            @for line in &self.lines {
                (path(&plane, line, line.trend.as_ref().unwrap_or(&line.points), "line"))
                @if self.dots { (dots(&plane, line)) }
            }
        };
        svg((width, height), &self.description, alone, &content)
    }
}

/// Grid, ticks and their labels; labels that would touch the previous one are left out.
fn axes(plane: &Plane) -> Markup {
    const APART: f64 = 7.0;
    let (left, right, bottom) = (px(plane.left), px(plane.right), plane.bottom);

    let mut free_from = f64::NEG_INFINITY;
    let x_labels: Vec<(f64, &str, f64)> = plane
        .x
        .marks
        .iter()
        .map(|(value, label)| {
            let (x, half) = (plane.x_at(*value), text::width(label, text::TEXT) / 2.0);
            // The outermost labels stay inside the picture.
            let middle = x.clamp(half, (plane.right + RIGHT - half - 1.0).max(half));
            // Labels from left to right: the first that fits keeps its place.
            if label.is_empty() || middle - half < free_from {
                return (x, "", middle);
            }
            free_from = middle + half + APART;
            (x, label.as_str(), middle)
        })
        .collect();

    html! {
        @for (value, label) in plane.y.marks.iter().filter(|mark| !mark.1.is_empty()) {
            @let y = plane.y_at(*value);
            line class="grid" x1=(left) x2=(right) y1=(px(y)) y2=(px(y)) {}
            text class="mark" x=(px(plane.left - 6.0)) y=(px(y + 4.0)) text-anchor="end" { (label) }
        }

        @for (x, label, middle) in x_labels {
            line class="tick" x1=(px(x)) x2=(px(x)) y1=(px(bottom)) y2=(px(bottom + if label.is_empty() { 3.0 } else { 6.0 })) {}
            @if !label.is_empty() {
                text class="mark" x=(px(middle)) y=(px(bottom + 19.0)) text-anchor="middle" { (label) }
            }
        }
        line class="base" x1=(left) x2=(right) y1=(px(bottom)) y2=(px(bottom)) {}
    }
}

fn path(plane: &Plane, line: &ChartLine, points: &[Point], class: &str) -> Markup {
    let mut data = String::new();
    // More points would be indistinguishable.
    for (i, &(x, y)) in downsample(points, plane.points_max).iter().enumerate() {
        let verb = if i == 0 { 'M' } else { 'L' };
        write!(data, "{verb}{} {}", px(plane.x_at(x)), px(plane.y_at(y)))
            .expect("a String takes all text");
    }

    let dash = if class == "noise" {
        "none"
    } else {
        line.paint.dash
    };
    let color = format!("--c:{}", line.paint.color);

    html! {
        // A single point would be an invisible line.
        @if points.len() == 1 {
            circle class="dot" style=(color) r="3.5"
                cx=(px(plane.x_at(points[0].0))) cy=(px(plane.y_at(points[0].1))) {
                title { (line.label) }
            }
        } @else if !points.is_empty() {
            path class=(class) d=(data) stroke-dasharray=(dash) style=(color) {
                title { (line.label) }
            }
        }
    }
}

fn dots(plane: &Plane, line: &ChartLine) -> Markup {
    use crate::report::format::number;
    html! {
        @for &(x, y) in &line.points {
            circle class="dot" style=(format!("--c:{}", line.paint.color)) cx=(px(plane.x_at(x))) cy=(px(plane.y_at(y))) r="2.8" {
                title { (line.label) ": " (number(x)) ", " (number(y)) }
            }
        }
    }
}
