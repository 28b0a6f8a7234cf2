//! A comparison as terminal text.
//!
//! Absent: tables and figures (`remap_ssd_sim::report`); JSON and page (`remap_ssd_study`).

use crate::output::{self, pairs, table};
use remap_ssd_sim::report;
use remap_ssd_study::{Comparison, Measured};

/// The comparison as terminal text.
pub(super) fn text(comparison: &Comparison, measured: &Measured, details: bool) -> String {
    let runs = measured.summaries();
    let mut text = pairs(&comparison.heading(measured));
    text.push('\n');
    text.push_str(&report::table_within(&runs, output::window()));
    for remark in comparison.remarks(measured) {
        text.push_str(&format!("\n{remark}\n"));
    }
    let served = comparison.served(measured);
    if !served.is_empty() {
        text.push('\n');
        text.push_str(&pairs(&served));
    }
    if let Some((head, rows)) = comparison.lives(measured) {
        text.push('\n');
        text.push_str(&table(&head, &rows));
    }
    if details {
        runs.iter()
            .for_each(|run| text.push_str(&format!("\n{}", report::details(run))));
    }
    text
}
