//! Figures of experiments: groups of bars in panels, as arranged in the papers, and lines.
//!
//! Invariant: a figure is a self-contained file in light colours. PNG is not written: any browser
//! exports these files, and a renderer would double the dependencies. Absent: the data (`analysis`);
//! drawing (`remap_ssd_sim::plot`).

use maud::Markup;
use remap_ssd_sim::plot::axis::Axis;
use remap_ssd_sim::plot::columns::ColumnChart;
pub(crate) use remap_ssd_sim::plot::columns::Panel;
use remap_ssd_sim::plot::lines::{ChartLine, LineChart, LinePanel};
use remap_ssd_sim::plot::paint::paints;
use remap_ssd_sim::plot::series::finite;
use remap_ssd_sim::plot::{self, Certainty, Size};
use remap_ssd_sim::report::format::number;
use std::collections::BTreeMap;

/// A figure with its heading and explanation.
#[derive(Clone, Debug)]
pub struct Plot {
    /// File name without extension.
    pub name: String,
    /// Heading of the figure; with `reading` it is also its description.
    pub title: String,
    /// How to read the figure, in a sentence.
    pub reading: String,
    /// Label of the vertical axis.
    pub y: String,
    /// The marks: bars or lines.
    pub shape: MarkKind,
}

/// The marks of a figure.
#[derive(Clone, Debug)]
pub enum MarkKind {
    /// Panels side by side, of groups of bars; optionally a horizontal line at a value.
    Bars(Vec<Panel>, Option<f64>),
    /// The same, with half of the width of each bar's interval.
    Means(Vec<Panel>, Option<f64>, Halves),
    /// Lines over common axes, each with its name in the legend.
    Lines(Lines),
}

/// Half widths by panel, group and name.
pub(crate) type Halves = BTreeMap<[String; 3], f64>;

/// Lines over common axes, in the order of the legend.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Label of the horizontal axis.
    pub x: String,
    /// True if both axes are logarithmic.
    pub logarithmic: bool,
    /// Each line's name and points (x, y), by x.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Points without a line, such as another program's figures.
    pub points: Vec<(String, Vec<(f64, f64)>)>,
}

impl Lines {
    /// What is drawn, in the order of the legend: a name, its points, and true if they have a line.
    fn all(&self) -> impl Iterator<Item = (&str, &[(f64, f64)], bool)> {
        let lines = self.lines.iter().map(|line| (line, true));
        let points = self.points.iter().map(|line| (line, false));
        let all = lines.chain(points);
        all.map(|((name, points), has_line)| (name.as_str(), points.as_slice(), has_line))
    }
}

impl Plot {
    /// Renders the figure as a self-contained file.
    pub fn svg(&self) -> String {
        plot::file(&self.drawn(Size::Wide, true))
    }

    /// Renders it as an element of a page, which has its heading.
    pub(crate) fn draw(&self) -> Markup {
        plot::fluid(Size::Wide, &self.name, |size, alone| {
            self.drawn(size, alone)
        })
    }

    fn drawn(&self, size: Size, alone: bool) -> Markup {
        let description = format!("{}: {}", self.title, self.reading);
        let (names, heading) = (self.names(), Some(self.title.as_str()));
        let paints = paints(names.iter().copied());

        match &self.shape {
            MarkKind::Bars(panels, reference) => {
                let certainty = |_: &str, _: &str, _: &str| Certainty::UNKNOWN;
                self.columns(panels, *reference, &certainty, size, alone)
            }
            MarkKind::Means(panels, reference, halves) => {
                let certainty = |panel: &str, group: &str, name: &str| Certainty {
                    half: halves
                        .get(&[panel, group, name].map(str::to_owned))
                        .copied()
                        .unwrap_or(f64::NAN),
                    is_transient: false,
                };
                self.columns(panels, *reference, &certainty, size, alone)
            }

            MarkKind::Lines(lines) => {
                let all = || lines.all().flat_map(|(_, points, _)| points);
                let largest = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
                let (x, y) = if lines.logarithmic {
                    (
                        Axis::logarithmic(all().map(|point| point.0), number),
                        Axis::logarithmic(all().map(|point| point.1), number),
                    )
                } else {
                    (
                        Axis::rounded(largest(|point| point.0)),
                        Axis::rounded(largest(|point| point.1)),
                    )
                };

                let chart_lines =
                    lines
                        .all()
                        .zip(paints)
                        .map(|((label, points, has_line), paint)| ChartLine {
                            label,
                            paint: if has_line { paint } else { paint.as_points() },
                            points: finite(points.iter().copied()),
                            certainties: Vec::new(),
                            trend: None,
                        });
                LineChart {
                    heading,
                    description,
                    x_title: lines.x.clone(),
                    y_title: &self.y,
                    x,
                    y,
                    panels: LinePanel::alone(chart_lines.collect()),
                    dots: true,
                }
                .draw(size, alone)
            }
        }
    }

    fn columns(
        &self,
        panels: &[Panel],
        reference: Option<f64>,
        certainty: &dyn Fn(&str, &str, &str) -> Certainty,
        size: Size,
        alone: bool,
    ) -> Markup {
        let names = self.names();
        let paints = paints(names.iter().copied());
        ColumnChart {
            heading: Some(&self.title),
            description: format!("{}: {}", self.title, self.reading),
            y_title: &self.y,
            panels,
            names: names.into_iter().zip(paints).collect(),
            reference,
            certainty,
        }
        .draw(size, alone)
    }

    /// The distinct names of bars; the names of lines, in order.
    fn names(&self) -> Vec<&str> {
        match &self.shape {
            MarkKind::Lines(lines) => lines.all().map(|line| line.0).collect(),
            MarkKind::Bars(panels, _) | MarkKind::Means(panels, ..) => {
                let mut names: Vec<&str> = Vec::new();
                let groups = panels.iter().flat_map(|panel| &panel.groups);
                for (name, _) in groups.flat_map(|group| &group.1) {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
                names
            }
        }
    }
}
