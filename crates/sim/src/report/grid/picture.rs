//! A picture of one figure over a grid.
//!
//! Invariants: a scheme has its own colour; what distinguishes neither a line nor a position on the
//! horizontal axis makes a panel of its own. Absent: how lines and columns are drawn
//! (`crate::plot`).

use super::label::label;
use super::{Grid, GridRow};
use crate::interval::Interval;
use crate::plot::columns::{ColumnChart, Panel};
use crate::plot::paint::paints;
use crate::plot::{self, Size};
use maud::Markup;

/// The axes of a grid by their use in a picture, as indices.
struct Parts {
    /// One colour for each value.
    colors: Option<usize>,
    /// Along the horizontal axis.
    across: Option<usize>,
    /// One panel for each combination of values.
    panels: Vec<usize>,
}

/// The figure of a row, and where it is drawn.
struct Mark {
    panel: String,
    across: usize,
    color: usize,
    figure: Interval,
}

impl Grid {
    /// A stand-alone SVG file of a figure; none if no run has it.
    pub fn svg(&self, figure: usize) -> Option<String> {
        let picture = self.draw(figure, Size::Wide, true)?;
        Some(plot::file(&picture))
    }

    /// A picture of a figure; none if no run has it.
    pub(super) fn draw(&self, figure: usize, size: Size, alone: bool) -> Option<Markup> {
        let parts = self.parts();
        let mark = |row: &GridRow| {
            let at = |axis: Option<usize>| axis.map_or(0, |axis| row.values[axis]);
            Some(Mark {
                panel: self.panel(row, &parts),
                across: at(parts.across),
                color: at(parts.colors),
                figure: self.figure(row, figure)?,
            })
        };
        let marks: Vec<Mark> = self.rows.iter().filter_map(mark).collect();
        if marks.is_empty() {
            return None;
        }
        Some(self.columns(figure, &parts, &marks, size, alone))
    }

    fn parts(&self) -> Parts {
        let varies = |at: &usize| self.axes[*at].values.len() > 1;
        let mut rest: Vec<usize> = (0..self.axes.len()).filter(varies).collect();
        let mut take = |wanted: &dyn Fn(&usize) -> bool| {
            let found = rest.iter().position(wanted)?;
            Some(rest.remove(found))
        };

        // The scheme is the subject of the comparison.
        let scheme = take(&|at| self.axes[*at].name == "scheme");
        let across = take(&|_| true);
        let colors = scheme.or_else(|| take(&|_| true));
        Parts {
            colors,
            across,
            panels: rest,
        }
    }

    fn columns(
        &self,
        figure: usize,
        parts: &Parts,
        marks: &[Mark],
        size: Size,
        alone: bool,
    ) -> Markup {
        let names = self.names(parts);
        let mut panels: Vec<Panel> = Vec::new();
        for mark in marks {
            let panel = match panels.iter().position(|panel| panel.title == mark.panel) {
                Some(at) => at,
                None => {
                    panels.push(Panel {
                        title: mark.panel.clone(),
                        groups: Vec::new(),
                    });
                    panels.len() - 1
                }
            };
            let groups = &mut panels[panel].groups;
            let label = self.position(parts, mark);
            let column = (names[mark.color].clone(), mark.figure.value);
            match groups.iter_mut().find(|(other, _)| *other == label) {
                Some((_, columns)) => columns.push(column),
                None => groups.push((label, vec![column])),
            }
        }

        let half = |panel: &str, group: &str, name: &str| {
            let is_it = |mark: &&Mark| {
                mark.panel == panel
                    && self.position(parts, mark) == group
                    && names[mark.color] == name
            };
            marks
                .iter()
                .find(is_it)
                .map_or(f64::NAN, |mark| mark.figure.half)
        };
        let paints = paints(names.iter().map(String::as_str));
        ColumnChart {
            heading: Some(&self.title),
            description: self.description(figure),
            y_title: &label(&self.figures[figure]),
            panels: &panels,
            names: names.iter().map(String::as_str).zip(paints).collect(),
            reference: None,
            half: &half,
        }
        .draw(size, alone)
    }

    /// Names of the colours.
    fn names(&self, parts: &Parts) -> Vec<String> {
        match parts.colors {
            None => vec![self.scheme.clone()],
            Some(axis) => {
                let axis = &self.axes[axis];
                let name = |value: &String| match axis.name.as_str() {
                    "scheme" => value.clone(),
                    name => format!("{name}={value}"),
                };
                axis.values.iter().map(name).collect()
            }
        }
    }

    fn position(&self, parts: &Parts, mark: &Mark) -> String {
        parts
            .across
            .map_or(String::new(), |axis| self.said(axis, mark.across))
    }

    fn panel(&self, row: &GridRow, parts: &Parts) -> String {
        let values = parts
            .panels
            .iter()
            .map(|axis| self.said(*axis, row.values[*axis]));
        values.collect::<Vec<_>>().join(", ")
    }

    fn said(&self, axis: usize, value: usize) -> String {
        let axis = &self.axes[axis];
        format!("{}={}", axis.name, axis.values[value])
    }

    fn description(&self, figure: usize) -> String {
        let remark = self
            .remark()
            .unwrap_or_else(|| "± is half of a 95 % confidence interval.".into());
        format!(
            "{}: {} of each point. {remark}",
            self.title,
            label(&self.figures[figure])
        )
    }
}
