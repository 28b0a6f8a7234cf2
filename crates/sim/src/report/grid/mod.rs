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
pub(super) use label::label;

/// Name of the column that marks transient runs.
const STATE: &str = "state";
/// Name of the column that marks runs less precise than wanted; only if a precision was wanted.
const PRECISION: &str = "precision";

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
    /// Number of runs that missed the wanted precision.
    pub imprecise: usize,
    /// What was run: the device, options and seeds, a label and a text each.
    pub about: Vec<(String, String)>,
    /// The axes, with their names and values.
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
    /// True if its runs reached the wanted precision; none if none was wanted, or no run is done.
    pub is_precise: Option<bool>,
}

impl GridRow {
    /// Its cell in a column of `Grid::verdicts`.
    fn verdict(&self, column: &str) -> &'static str {
        match (column, self.is_precise) {
            (STATE, _) => state(self.is_steady),
            (_, Some(true)) => "reached",
            (_, Some(false)) => "missed",
            (_, None) => MISSING,
        }
    }
}

impl Grid {
    /// The cells of a table: the names, and each combination with its figures.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = self.axes.iter().map(|axis| axis.name.clone());
        let names = names.chain(self.verdicts().map(str::to_owned));
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
            let verdicts = self.verdicts().map(|name| row.verdict(name).to_owned());
            texts.chain(verdicts).chain(figures).collect()
        };
        (head, self.rows.iter().map(row).collect())
    }

    /// Names of the columns that say how far a row can be trusted.
    fn verdicts(&self) -> impl Iterator<Item = &'static str> {
        let is_wanted = self.rows.iter().any(|row| row.is_precise.is_some());
        [STATE].into_iter().chain(is_wanted.then_some(PRECISION))
    }

    /// The meaning of the intervals.
    pub(crate) fn remark(&self) -> String {
        let half = "half of the 95 % confidence interval";
        match self.seeds {
            1 => format!("After ±: {half}; a transient run has none."),
            seeds => format!("Means over {seeds} seeds; after ±: {half} (Student's t)."),
        }
    }

    /// Remarks shown beside the figures.
    pub fn remarks(&self) -> Vec<String> {
        let two_seeds = "2 seeds: Student's interval is 12.7 standard errors on each side, and 2.8 with five seeds; use five.";
        let transient = format!(
            "Transient, not a steady state: {}, whose figures depend on the length of the measurement{}.",
            counted(self.transient as u64, "run"),
            match self.seeds {
                1 => "",
                _ => "; an interval over seeds is that of runs of this length",
            }
        );
        let imprecise = format!(
            "Not as precise as wanted, or not steady, at the end of the longest measurement: {}.",
            counted(self.imprecise as u64, "run")
        );

        let remarks = [
            Some(self.remark()),
            (self.seeds == 2).then(|| two_seeds.to_owned()),
            (self.transient > 0).then_some(transient),
            (self.imprecise > 0).then_some(imprecise),
        ];
        remarks.into_iter().flatten().collect()
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
            .chain(
                self.verdicts()
                    .map(|name| column(&name.to_owned(), name.to_owned(), false)),
            );
        let figures = self
            .figures
            .iter()
            .map(|name| column(name, label(name), true));

        let row = |row: &GridRow| {
            let values = self.axes.iter().zip(&row.values);
            let values = values.map(|(axis, at)| Cell::Text(axis.values[*at].clone()));
            let figure = |at| self.figure(row, at).map_or(Cell::Missing, Cell::Figure);
            let verdicts = self
                .verdicts()
                .map(|name| Cell::Text(row.verdict(name).to_owned()));
            let figures = (0..self.figures.len()).map(figure);
            values.chain(verdicts).chain(figures).collect()
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
