//! Figures of a grid of runs, such as a sweep's: a row for each combination of values.
//!
//! ```text
//! GridAxis  a name of the grid, its values, and their numbers if they are numbers
//! label     the names of axes and figures in words, with their units
//! picture   one figure over the grid
//! page      all figures and the table as HTML
//! ```
//! Invariants: a figure keeps its interval in every table and picture; a combination without a
//! result is shown as missing, not left out. Absent: the runs, and averaging over them.

mod label;
mod page;
mod picture;

use crate::interval::Interval;
use crate::report::format::{MISSING, counted, interval};
use crate::report::metrics::state;
use crate::report::sheet::{Cell, Sheet, SheetColumn};
use label::label;

/// Name of the column that marks transient runs.
const STATE: &str = "state";

/// The figures of a grid of runs.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Name of the grid.
    pub title: String,
    /// The scheme of its runs if they have only one.
    pub scheme: String,
    /// Number of runs with different seeds of which each figure is the mean; 1 without averaging.
    pub seeds: usize,
    /// Number of runs that measured no steady state.
    pub transient: usize,
    /// What was run: the device, options and seeds, a label and a text each.
    pub about: Vec<(String, String)>,
    /// Names and values.
    pub axes: Vec<GridAxis>,
    /// Names of the figures, as in the JSON of a run.
    pub figures: Vec<String>,
    /// The combinations, in order.
    pub rows: Vec<GridRow>,
}

/// A name of the grid, and its values in order.
#[derive(Clone, Debug)]
pub struct GridAxis {
    /// Its name.
    pub name: String,
    /// Its values as text.
    pub values: Vec<String>,
    /// Its values as numbers, if they are numbers.
    pub numbers: Option<Numbers>,
}

/// The values of an axis as numbers.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The model that all values name, such as `plain` of `plain:0.2`; may be empty.
    pub model: String,
    /// Their unit; may be empty.
    pub unit: String,
    /// Each value in this unit, and its label.
    pub marks: Vec<(f64, String)>,
}

impl Numbers {
    /// Numbers of a unit, without a model.
    pub fn new(unit: &str, marks: Vec<(f64, String)>) -> Self {
        Self {
            model: String::new(),
            unit: unit.to_owned(),
            marks,
        }
    }
}

impl GridAxis {
    /// An axis without values.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            values: Vec::new(),
            numbers: None,
        }
    }

    /// Adds a value, unless it is there.
    pub fn add(&mut self, value: &str) {
        if !self.values.iter().any(|other| other == value) {
            self.values.push(value.to_owned());
        }
    }

    /// The index of its value among a point's names and values.
    pub fn find(&self, point: &[(String, String)]) -> Option<usize> {
        let (_, value) = point.iter().find(|(name, _)| *name == self.name)?;
        self.values.iter().position(|other| other == value)
    }
}

/// The figures of a combination of values.
#[derive(Clone, Debug)]
pub struct GridRow {
    /// For each axis the index of its value.
    pub values: Vec<usize>,
    /// The figures; an unknown interval is NaN. None until a run is done.
    pub figures: Option<Vec<Option<Interval>>>,
    /// True if its runs measured a steady state; none if a run was too short to tell, or none is done.
    pub is_steady: Option<bool>,
}

impl Grid {
    /// The cells of a table: the names, and each combination with its figures.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = self.axes.iter().map(|axis| axis.name.clone());
        let names = names.chain([STATE.to_owned()]);
        let head = names.chain(self.figures.iter().cloned()).collect();

        let row = |row: &GridRow| {
            let texts = self.axes.iter().zip(&row.values);
            let texts = texts.map(|(axis, at)| axis.values[*at].clone());
            let figures = (0..self.figures.len()).map(|at| match &row.figures {
                None => "not done".to_owned(),
                Some(figures) => {
                    figures[at].map_or(MISSING.into(), |one| interval(one.value, one.half))
                }
            });
            let state = state(row.is_steady).to_owned();
            texts.chain([state]).chain(figures).collect()
        };
        (head, self.rows.iter().map(row).collect())
    }

    /// The meaning of the intervals.
    pub(crate) fn remark(&self) -> String {
        let half = "half of the 95 % confidence interval";
        match self.seeds {
            1 => format!("After ±: {half}."),
            seeds => format!("Means over {seeds} seeds; after ±: {half} (Student's t)."),
        }
    }

    /// Remarks shown beside the figures.
    pub fn remarks(&self) -> Vec<String> {
        let transient = format!(
            "Transient, not a steady state: {}, whose figures depend on the length of the measurement.",
            counted(self.transient as u64, "run")
        );
        let transient = (self.transient > 0).then_some(transient);
        std::iter::once(self.remark()).chain(transient).collect()
    }

    /// What was run, in lines.
    fn about(&self) -> impl Iterator<Item = String> {
        self.about
            .iter()
            .map(|(label, text)| format!("{label}: {text}"))
    }

    /// The table for a paper.
    pub fn sheet(&self) -> Sheet {
        let column = |name: &String, label: String, is_figure| SheetColumn {
            name: name.clone(),
            label,
            is_figure,
        };
        let axes = self
            .axes
            .iter()
            .map(|axis| column(&axis.name, label(&axis.name), false))
            .chain([column(&STATE.to_owned(), STATE.to_owned(), false)]);
        let figures = self
            .figures
            .iter()
            .map(|name| column(name, label(name), true));

        let row = |row: &GridRow| {
            let values = self.axes.iter().zip(&row.values);
            let values = values.map(|(axis, at)| Cell::Text(axis.values[*at].clone()));
            let figure = |at| self.figure(row, at).map_or(Cell::Missing, Cell::Figure);
            let state = Cell::Text(state(row.is_steady).to_owned());
            let figures = (0..self.figures.len()).map(figure);
            values.chain([state]).chain(figures).collect()
        };
        Sheet {
            columns: axes.chain(figures).collect(),
            rows: self.rows.iter().map(row).collect(),
            notes: self.about().chain(self.remarks()).collect(),
        }
    }

    /// The figure of a row, if it is a number.
    fn figure(&self, row: &GridRow, figure: usize) -> Option<Interval> {
        let found = row.figures.as_ref()?[figure]?;
        found.value.is_finite().then_some(found)
    }
}

#[cfg(test)]
mod tests;
