//! Figures of a grid of runs, such as a sweep's: a row for each combination of values.
//!
//! ```text
//! label    the names of axes and figures in words, with their units
//! picture  one figure over the grid
//! ```
//! Invariants: a figure keeps its interval in every table and picture; a combination without a
//! result is shown as missing, not left out. Absent: the runs, and averaging over them.

mod label;
mod picture;

use crate::interval::Interval;
use crate::report::format::{MISSING, interval};

/// The figures of a grid of runs.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Name of the grid.
    pub title: String,
    /// The scheme of its runs if they have only one.
    pub scheme: String,
    /// Number of runs with different seeds of which each figure is the mean; 1 without averaging.
    pub seeds: usize,
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
}

impl GridAxis {
    /// An axis without values.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            values: Vec::new(),
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
}

impl Grid {
    /// The cells of a table: the names, and each combination with its figures.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = self.axes.iter().map(|axis| axis.name.clone());
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
            texts.chain(figures).collect()
        };
        (head, self.rows.iter().map(row).collect())
    }

    /// What must be said of all figures.
    pub fn remark(&self) -> Option<String> {
        let seeds = self.seeds;
        (seeds > 1).then(|| {
            format!(
                "Means over {seeds} seeds, ± half of their 95 % confidence interval (Student's t)."
            )
        })
    }

    /// The figure of a row, if it is a number.
    fn figure(&self, row: &GridRow, figure: usize) -> Option<Interval> {
        let found = row.figures.as_ref()?[figure]?;
        found.value.is_finite().then_some(found)
    }
}
