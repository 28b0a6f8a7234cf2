//! The rows common to terminal and page: the measurements of a run, with their labels and units.
//!
//! `overview()` is one row per run, `details()` all other measurements of one run in titled
//! sections. Invariants: every run has the same sections and labels, so that runs can be compared
//! side by side; every cell is one line of text. Absent: rendering of the rows.
//!
//! ```text
//! compare   labels of runs, and ratios between runs
//! overview  one row per run
//! details   the sections of one run: latencies, responses, flash, requests
//! remarks   sentences about what the figures do not show: noise, transients
//! flash_time  sections on the engine `nand`: what requests waited for, and what was busy
//! remaps    sections on remaps: their number, why some became copies, and their cost
//! wear      sections on flash wear, and lifetimes of pages
//! ```

mod compare;
mod details;
mod flash_time;
mod overview;
mod remaps;
mod remarks;
mod wear;

pub use compare::labels;
pub(crate) use compare::{BASELINE, IDEAL, attempted, baseline, demoted, speedup, speedup_half};
pub(crate) use details::details;
pub(crate) use overview::state;
pub(crate) use overview::{Column, Overview, overview};
pub use remarks::remarks;
pub(crate) use remarks::{differ, is_without_remaps};

use super::format::{MISSING, percent, share};

/// A titled group of measurements of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Title of the group.
    pub title: &'static str,
    /// Label and value of each row.
    pub rows: Vec<(&'static str, String)>,
}

fn share_of(part: u64, whole: u64) -> String {
    optional(share(part as f64, whole as f64), percent)
}

fn optional(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| MISSING.to_owned(), format)
}
