//! The rows that terminal and page share: what is shown of a run, in which words and units.
//!
//! [`overview()`] is one row per run, [`details()`] everything else of one run in titled sections.
//! Invariants: every run has the same sections and labels, so that runs can be laid side by side;
//! every cell is one line of text.
//! Absent: how the rows are drawn.
//!
//! ```text
//! compare   labels of runs, and what one run is as a multiple of another
//! overview  one row a run
//! details   the sections of one run: latencies, responses, flash, requests
//! remaps    sections on remaps: how many, why they became copies, what they cost
//! wear      sections on how flash ages, and how long its pages live
//! ```

mod compare;
mod details;
mod overview;
mod remaps;
mod wear;

pub use compare::{BASELINE, IDEAL, attempted, baseline, demoted, labels, occurrence, speedup};
pub use details::details;
pub use overview::{Column, Overview, overview};

use super::format::{MISSING, percent, share};

/// A titled group of measurements of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What the group is about.
    pub title: &'static str,
    /// Each row's label and value as shown.
    pub rows: Vec<(&'static str, String)>,
}

fn share_of(part: u64, whole: u64) -> String {
    optional(share(part as f64, whole as f64), percent)
}

fn optional(value: Option<f64>, format: fn(f64) -> String) -> String {
    value.map_or_else(|| MISSING.to_owned(), format)
}
