//! The outcome of an experiment.

use crate::claim::Claim;
use crate::plot::Plot;
use remap_ssd_sim::report::sheet::Sheet;
use std::collections::BTreeMap;

/// An experiment's outcome, for reports.
#[derive(Debug)]
pub struct Concluded {
    /// Name of the experiment's folder, and of its results.
    pub name: String,
    /// Title of the experiment.
    pub title: String,
    /// Text of its `README.md`, for the report.
    pub readme: String,
    /// Title, authors and year of its paper.
    pub paper: String,
    /// Claims of the papers' list.
    pub claims: Vec<Claim>,
    /// Statements of the text that are not claims of the abstract or figures.
    pub findings: Vec<Claim>,
    /// All measures of the analysis.
    pub measures: BTreeMap<String, f64>,
    /// Figures in the paper's arrangement.
    pub plots: Vec<Plot>,
    /// A table, where there would be too many figures.
    pub table: Option<Sheet>,
    /// Its claims under variants of the paper's inputs, if these were run.
    pub variants: Option<Sheet>,
    /// Number of its runs, including shared ones.
    pub runs: usize,
}
