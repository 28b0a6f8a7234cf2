//! A picture of one figure over a grid: lines with the intervals of their points over an axis of
//! numbers, else columns with error bars.
//!
//! Invariants: a scheme has its own colour; a line has a gap where a result is missing; the point of a
//! transient run is hollow; what distinguishes neither a colour nor a position on
//! the horizontal axis makes a panel of its own. Absent: how lines and columns are drawn
//! (`crate::plot`).

use super::label::{axis_label, label};
use super::{Grid, GridRow, Numbers};
use crate::plot::axis::Axis;
use crate::plot::columns::{ColumnChart, Panel};
use crate::plot::lines::{ChartLine, LineChart, LinePanel};
use crate::plot::paint::{Paint, paints};
use crate::plot::{self, Certainty, Size};
use maud::Markup;

impl Grid {
    /// A stand-alone SVG file of a figure; none if no run has it.
    pub fn svg(&self, figure: usize) -> Option<String> {
        let picture = Picture::new(self, figure)?;
        Some(plot::file(&picture.draw(Size::Wide, true)))
    }
}

/// The axes of a grid by their use in a picture, as indices.
struct Parts {
    /// One colour for each value.
    colors: Option<usize>,
    /// Along the horizontal axis.
    across: Option<usize>,
    /// One panel for each combination of values.
    panels: Vec<usize>,
}

impl Parts {
    fn of(grid: &Grid) -> Self {
        let varies = |at: &usize| grid.axes[*at].values.len() > 1;
        let mut rest: Vec<usize> = (0..grid.axes.len()).filter(varies).collect();
        let numbers = |at: usize| {
            let numbers = grid.axes[at].numbers.as_ref();
            numbers.map_or(0, |numbers| numbers.marks.len())
        };
        let most = rest.iter().map(|at| numbers(*at)).max();

        let mut take = |wanted: &dyn Fn(usize) -> bool| {
            let found = rest.iter().position(|at| wanted(*at))?;
            Some(rest.remove(found))
        };
        // The scheme is the subject of the comparison.
        let scheme = take(&|at| grid.axes[at].name == "scheme");
        // The axis of numbers with the most values; without one, the first axis.
        let across = take(&|at| Some(numbers(at)) == most);
        let colors = scheme.or_else(|| take(&|_| true));
        Self {
            colors,
            across,
            panels: rest,
        }
    }
}

/// The figure of a row, and where it is drawn.
struct Mark {
    panel: String,
    /// The position along the horizontal axis, in words and as an index.
    position: String,
    across: usize,
    color: usize,
    value: f64,
    certainty: Certainty,
}

/// What lines and columns have in common.
pub(super) struct Picture<'a> {
    grid: &'a Grid,
    parts: Parts,
    marks: Vec<Mark>,
    /// Names of the colours.
    names: Vec<String>,
    /// The figure in words.
    title: String,
}

impl<'a> Picture<'a> {
    /// A picture of a figure; none if no run has it.
    pub(super) fn new(grid: &'a Grid, figure: usize) -> Option<Self> {
        let parts = Parts::of(grid);
        let mark = |row: &GridRow| {
            let found = grid.figure(row, figure)?;
            let at = |axis: Option<usize>| axis.map_or(0, |axis| row.values[axis]);
            let panel = parts
                .panels
                .iter()
                .map(|axis| said(grid, *axis, row.values[*axis]));
            Some(Mark {
                panel: panel.collect::<Vec<_>>().join(", "),
                position: parts
                    .across
                    .map_or(String::new(), |axis| said(grid, axis, row.values[axis])),
                across: at(parts.across),
                color: at(parts.colors),
                value: found.value,
                certainty: Certainty {
                    half: found.half,
                    is_transient: row.is_steady == Some(false),
                },
            })
        };

        let marks: Vec<Mark> = grid.rows.iter().filter_map(mark).collect();
        if marks.is_empty() {
            return None;
        }

        let names = match parts.colors {
            None => vec![grid.scheme.clone()],
            Some(axis) if grid.axes[axis].name == "scheme" => grid.axes[axis].values.clone(),
            Some(axis) => (0..grid.axes[axis].values.len())
                .map(|at| said(grid, axis, at))
                .collect(),
        };
        Some(Self {
            grid,
            parts,
            marks,
            names,
            title: label(&grid.figures[figure]),
        })
    }

    /// The picture for a page, or stand-alone.
    pub(super) fn draw(&self, size: Size, alone: bool) -> Markup {
        let axis = self.parts.across.map(|axis| &self.grid.axes[axis]);
        match axis.and_then(|axis| Some((axis_label(axis), axis.numbers.as_ref()?))) {
            Some((label, numbers)) => self.lines(label, numbers, alone).draw(size, alone),
            None => self.columns(size, alone),
        }
    }

    fn lines(&self, x_title: String, numbers: &Numbers, alone: bool) -> LineChart<'_> {
        let paints = self.paints();
        let line = |panel: &str, color: usize| {
            // Each place of the axis, so that a missing result is a gap.
            let point = |(across, (place, _)): (usize, &(f64, String))| {
                let is_it = |mark: &&Mark| (mark.across, mark.color) == (across, color);
                let mut its = self.marks.iter().filter(is_it);
                let found = its.find(|mark| mark.panel == panel);
                let (value, certainty) = found.map_or((f64::NAN, Certainty::UNKNOWN), |mark| {
                    (mark.value, mark.certainty)
                });
                ((*place, value), certainty)
            };

            let marks = numbers.marks.iter().enumerate();
            let mut points: Vec<((f64, f64), Certainty)> = marks.map(point).collect();
            // A line goes from left to right, even if the values were given in another order.
            points.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
            let (points, certainties) = points.into_iter().unzip();
            ChartLine {
                label: &self.names[color],
                paint: paints[color],
                points,
                certainties,
                trend: None,
            }
        };

        let panel = |title: &str| LinePanel {
            title: title.to_owned(),
            lines: (0..self.names.len())
                .map(|color| line(title, color))
                .collect(),
        };

        // With the upper ends of intervals, which would else leave the picture.
        let upper = |mark: &Mark| mark.value + mark.certainty.half.max(0.0);
        let values = self.marks.iter();
        let values = values.flat_map(|mark| [mark.value, upper(mark)]);
        LineChart {
            heading: alone.then_some(&self.grid.title),
            description: self.description(),
            x_title,
            y_title: &self.title,
            x: Axis::through(numbers.marks.clone()),
            y: Axis::fitting(&values.collect::<Vec<_>>()),
            panels: self.panels().into_iter().map(panel).collect(),
            dots: true,
        }
    }

    fn columns(&self, size: Size, alone: bool) -> Markup {
        let panel = |title: &str| {
            let mut groups: Vec<(String, Vec<(String, f64)>)> = Vec::new();
            for mark in self.marks.iter().filter(|mark| mark.panel == title) {
                let column = (self.names[mark.color].clone(), mark.value);
                match groups.iter_mut().find(|(other, _)| *other == mark.position) {
                    Some((_, columns)) => columns.push(column),
                    None => groups.push((mark.position.clone(), vec![column])),
                }
            }
            Panel {
                title: title.to_owned(),
                groups,
            }
        };
        let certainty = |panel: &str, group: &str, name: &str| {
            let is_it = |mark: &&Mark| {
                mark.panel == panel && mark.position == group && self.names[mark.color] == name
            };
            self.marks
                .iter()
                .find(is_it)
                .map_or(Certainty::UNKNOWN, |mark| mark.certainty)
        };

        let names = self.names.iter().map(String::as_str);
        ColumnChart {
            heading: alone.then_some(&self.grid.title),
            description: self.description(),
            y_title: &self.title,
            panels: &self.panels().into_iter().map(panel).collect::<Vec<_>>(),
            names: names.zip(self.paints()).collect(),
            reference: None,
            certainty: &certainty,
        }
        .draw(size, alone)
    }

    fn paints(&self) -> Vec<Paint> {
        paints(self.names.iter().map(String::as_str))
    }

    /// The distinct headings of panels, in order.
    fn panels(&self) -> Vec<&str> {
        let mut titles: Vec<&str> = Vec::new();
        for mark in &self.marks {
            if !titles.contains(&mark.panel.as_str()) {
                titles.push(&mark.panel);
            }
        }
        titles
    }

    fn description(&self) -> String {
        format!(
            "{}: {}. {}",
            self.grid.title,
            self.title,
            self.grid.remark()
        )
    }
}

/// A name and one of its values.
fn said(grid: &Grid, axis: usize, value: usize) -> String {
    let axis = &grid.axes[axis];
    format!("{}={}", axis.name, axis.values[value])
}
