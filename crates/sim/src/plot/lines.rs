//! Line charts, in one panel or in several with common axes.
//!
//! Invariants: at most `POINTS_MAX` points per line; every coordinate is finite and inside the
//! plot; tick labels neither overlap nor leave the picture.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::Axis;
use super::legend::{Legend, Mark, TRANSIENT};
use super::paint::Paint;
use super::series::{Point, downsample};
use super::{Certainty, Size, px, svg, text, whisker};
use crate::report::format::{interval, number};

/// Room for half of the last tick label.
const RIGHT: f64 = 14.0;
/// Least width of one of several panels.
const PANEL: f64 = 270.0;
/// Room for the heading of a panel.
const TITLE: f64 = 20.0;
/// Room for tick labels below a panel.
const LABELS: f64 = 24.0;

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
    /// The panels, from left to right and then down.
    pub panels: Vec<LinePanel<'a>>,
    /// True if each point has a dot with its values as a tooltip.
    pub dots: bool,
}

/// Lines under one heading.
pub struct LinePanel<'a> {
    /// Heading of the panel; may be empty.
    pub title: String,
    /// The lines, later ones in front.
    pub lines: Vec<ChartLine<'a>>,
}

impl<'a> LinePanel<'a> {
    /// A chart's only panel.
    pub fn alone(lines: Vec<ChartLine<'a>>) -> Vec<Self> {
        let title = String::new();
        vec![Self { title, lines }]
    }
}

/// One line of a chart.
pub struct ChartLine<'a> {
    /// Name of its run.
    pub label: &'a str,
    /// Colour and dashes, distinct from the other lines'.
    pub paint: Paint,
    /// Points (x, y), by x; the line has a gap where y is NaN.
    pub points: Vec<Point>,
    /// What is known about each point; empty for points that are no measurements.
    pub certainties: Vec<Certainty>,
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
            self.names(),
            Mark::Line,
            self.has_transient(),
            (6.0, width - 6.0),
        );

        let (legend_top, title_y) = (heading.height, heading.height + legend.height() + 15.0);
        let planes = self.planes(size, title_y + 13.0);
        let edges = |of: fn(&Plane) -> f64| planes.iter().map(of);
        let (left, right) = (edges(|plane| plane.left), edges(|plane| plane.right));
        let (left, right) = (left.fold(width, f64::min), right.fold(0.0, f64::max));
        let bottom = edges(|plane| plane.bottom).fold(title_y, f64::max);

        let titles = text::wrapped(&self.x_title, width - 12.0, text::TEXT, 2);
        let height = bottom + LABELS + 15.0 * titles.len() as f64 + 5.0;
        let middle = (left + right) / 2.0;

        let content = html! {
            (heading.markup)
            (legend.draw(legend_top))
            text class="axis-title" x="6" y=(px(title_y)) { (text::fitted(self.y_title, width - 12.0, text::TEXT)) }
            @for (panel, plane) in self.panels.iter().zip(&planes) { (panel.draw(plane, self.dots)) }
            @for (row, title) in titles.iter().enumerate() {
                // In the middle of the plot, unless it is too long for that.
                @let half = text::width(title, text::TEXT) / 2.0;
                text class="axis-title" x=(px(middle.clamp(half + 2.0, (width - half - 2.0).max(half + 2.0))))
                    y=(px(bottom + LABELS + 12.0 + 15.0 * row as f64)) text-anchor="middle" { (title) }
            }
        };
        svg((width, height), &self.description, alone, &content)
    }

    /// The distinct names of all panels' lines.
    fn names(&self) -> Vec<(&str, Paint)> {
        let mut names: Vec<(&str, Paint)> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&(line.label, line.paint)) {
                names.push((line.label, line.paint));
            }
        }
        names
    }

    fn has_transient(&self) -> bool {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let mut certainties = lines.flat_map(|line| &line.certainties);
        certainties.any(|known| known.is_transient)
    }

    /// The positions of the panels, in rows from `top` on.
    fn planes(&self, size: Size, top: f64) -> Vec<Plane<'_>> {
        let fitting = (size.width() / PANEL) as usize;
        let columns = fitting.clamp(1, self.panels.len().max(1));
        let width = size.width() / columns as f64;
        let title = match self.panels.iter().any(|panel| !panel.title.is_empty()) {
            true => TITLE,
            false => 0.0,
        };
        let height = (width * 0.4).clamp(190.0, 280.0);

        // The widest tick label decides where the plots begin.
        let labels = self.y.marks.iter();
        let labels = labels.map(|mark| text::width(&mark.1, text::TEXT));
        let left = labels.fold(24.0, f64::max) + 12.0;

        let plane = |at: usize| {
            let (row, column) = ((at / columns) as f64, (at % columns) as f64);
            let top = top + title + row * (title + height + LABELS + 10.0);
            Plane {
                x: &self.x,
                y: &self.y,
                left: column * width + left,
                right: (column + 1.0) * width - RIGHT,
                top,
                bottom: top + height,
                points_max: size.points_max(),
            }
        };
        (0..self.panels.len()).map(plane).collect()
    }
}

impl LinePanel<'_> {
    fn draw(&self, plane: &Plane, with_dots: bool) -> Markup {
        let room = (plane.right - plane.left) / 1.12;
        html! {
            @if !self.title.is_empty() {
                text class="panel" x=(px(plane.left)) y=(px(plane.top - 7.0)) {
                    (text::fitted(&self.title, room, text::TEXT)) title { (self.title) }
                }
            }
            (axes(plane))

            // All faint parts first: no line's noise hides another one's trend.
            @for line in &self.lines { @if line.trend.is_some() { (path(plane, line, &line.points, "noise")) } }
            @for line in &self.lines { (intervals(plane, line)) }
            @for line in &self.lines {
                @if !line.paint.is_points() { (path(plane, line, line.trend.as_ref().unwrap_or(&line.points), "line")) }
                @if with_dots || line.paint.is_points() { (dots(plane, line)) }
            }
        }
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
    let (mut data, mut verb) = (String::new(), 'M');
    // More points would be indistinguishable.
    for &(x, y) in &downsample(points, plane.points_max) {
        // A missing value is a gap, not a straight line.
        if y.is_nan() {
            verb = 'M';
            continue;
        }
        write!(data, "{verb}{} {}", px(plane.x_at(x)), px(plane.y_at(y)))
            .expect("a String takes all text");
        verb = 'L';
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
        } @else if !data.is_empty() {
            path class=(class) d=(data) stroke-dasharray=(dash) style=(color) {
                title { (line.label) }
            }
        }
    }
}

/// The intervals of points: a band between neighbours, and an error bar at each.
fn intervals(plane: &Plane, line: &ChartLine) -> Markup {
    const END: f64 = 3.5;
    let (mut bars, mut band) = (String::new(), String::new());
    let mut before: Option<(f64, f64, f64)> = None;
    for (&(x, y), &Certainty { half, .. }) in line.points.iter().zip(&line.certainties) {
        let (x, top, bottom) = (plane.x_at(x), plane.y_at(y + half), plane.y_at(y - half));
        let point = (half.is_finite() && y.is_finite()).then_some((x, top, bottom));
        if point.is_some() {
            bars += &whisker(x, top, bottom, END.min(x - plane.left).min(plane.right - x));
        }
        if let (Some((x, top, bottom)), Some(last)) = (point, before) {
            let corners = [(last.0, last.1), (x, top), (x, bottom), (last.0, last.2)];
            let corners = corners.map(|(x, y)| format!("{} {}", px(x), px(y)));
            write!(band, "M{}Z", corners.join("L")).expect("a String takes all text");
        }
        before = point;
    }

    let color = format!("--c:{}", line.paint.color);
    html! {
        @if !band.is_empty() { path class="band" d=(band) style=(color) {} }
        @if !bars.is_empty() { path class="whisker" d=(bars) style=(color) {} }
    }
}

fn dots(plane: &Plane, line: &ChartLine) -> Markup {
    let known = |at: usize| line.certainties.get(at).copied();
    let said = |at: usize, y: f64| match known(at) {
        Some(known) if known.is_transient => format!("{}, {TRANSIENT}", interval(y, known.half)),
        Some(known) => interval(y, known.half),
        None => number(y),
    };
    let class = |at: usize| match known(at) {
        Some(known) if known.is_transient => "dot hollow",
        _ if line.paint.is_points() => "dot ring",
        _ => "dot",
    };
    // A ring around a curve's dot.
    let radius = if line.paint.is_points() { 4.5 } else { 2.8 };
    html! {
        @for (at, &(x, y)) in line.points.iter().enumerate().filter(|(_, point)| point.1.is_finite()) {
            circle class=(class(at)) style=(format!("--c:{}", line.paint.color)) cx=(px(plane.x_at(x))) cy=(px(plane.y_at(y))) r=(px(radius)) {
                title { (line.label) ": " (number(x)) ", " (said(at, y)) }
            }
        }
    }
}
