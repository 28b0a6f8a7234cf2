//! Computes figures from an experiment's runs: one small file per figure of a paper.
//!
//! Invariants: an analysis reads results only; a measure is a ratio or a share unless its name ends
//! in a unit; means over ratios are arithmetic, as the papers' "on average". Absent: verdicts
//! (`claim`).

mod agreement;
mod buffered_remaps;
mod closed_forms;
mod coldmap;
mod coldmap_fig2;
mod coldmap_sweep;
mod copyless_ccaw;
mod copyless_sqlite;
mod cost;
mod die_order;
mod fast21_fig5;
mod fast21_fig6;
mod fast21_fig6_slice;
mod fast21_fig7;
mod fast21_fig8;
mod fast21_fig9;
mod flushes;
mod indirection_units;
mod levels;
mod mapping_cache;
mod ours;
mod pebble_bam;
mod pebble_f2fs;
mod pebble_micro;
mod phases;
mod real_flash;
mod recovery;
mod recovery_parts;
mod remapcom;
mod slc_bursts;
mod slc_cache;
mod write_buffer;

use crate::LabError;
use crate::claim::Measures;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Row, Table};
use remap_ssd_sim::report::format::number;
use remap_ssd_sim::report::sheet::Sheet;

/// Output of an analysis.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Measured figures by name; expectations refer to these names.
    pub measures: Measures,
    /// Figures in the paper's arrangement.
    pub plots: Vec<Plot>,
    /// A table, where there would be too many figures.
    pub table: Option<Sheet>,
}

impl Findings {
    /// Adds a measured figure, or replaces the one of the same name.
    pub(crate) fn measure(&mut self, name: impl Into<String>, value: f64) {
        self.measures.insert(name.into(), value);
    }
}

/// Computes figures from the results of all runs.
pub(crate) type Analyse = Box<dyn Fn(&Table) -> Result<Findings, LabError>>;

/// An analysis, prepared for a table: what the results of its runs cannot change is computed once, however
/// often they are moved for error bars.
pub(crate) type Analysis = fn(&Table) -> Analyse;

const ALL: &[(&str, Analysis)] = &[
    ("table", |_| Box::new(plain)),
    ("fast21-fig5", |_| Box::new(fast21_fig5::analyse)),
    ("fast21-fig6", |_| Box::new(fast21_fig6::analyse)),
    ("fast21-fig6-slice", |_| {
        Box::new(fast21_fig6_slice::analyse)
    }),
    ("fast21-fig7", |_| Box::new(fast21_fig7::analyse)),
    ("fast21-fig8", |_| Box::new(fast21_fig8::analyse)),
    ("fast21-fig9", |_| Box::new(fast21_fig9::analyse)),
    ("copyless-sqlite", |_| Box::new(copyless_sqlite::analyse)),
    ("remapcom", |_| Box::new(remapcom::analyse)),
    ("copyless-ccaw", |_| Box::new(copyless_ccaw::analyse)),
    ("coldmap-fig2", |_| Box::new(coldmap_fig2::analyse)),
    ("coldmap-figs5-8", |_| Box::new(coldmap::analyse)),
    ("coldmap-sweep", |_| Box::new(coldmap_sweep::analyse)),
    ("pebble-bam", |_| Box::new(pebble_bam::analyse)),
    ("ours-small-nvram", |_| Box::new(ours::analyse)),
    ("pebble-f2fs", |_| Box::new(pebble_f2fs::analyse)),
    ("pebble-micro", |_| Box::new(pebble_micro::analyse)),
    ("recovery", |_| Box::new(recovery::analyse)),
    ("recovery-parts", |_| Box::new(recovery_parts::analyse)),
    ("cost", |_| Box::new(cost::analyse)),
    ("closed-forms", closed_forms::prepare),
    ("die-order", |_| Box::new(die_order::analyse)),
    ("real-flash", |_| Box::new(real_flash::analyse)),
    ("mapping-cache", |_| Box::new(mapping_cache::analyse)),
    ("write-buffer", |_| Box::new(write_buffer::analyse)),
    ("buffered-remaps", |_| Box::new(buffered_remaps::analyse)),
    ("indirection-units", |_| {
        Box::new(indirection_units::analyse)
    }),
    ("slc-cache", |_| Box::new(slc_cache::analyse)),
    ("slc-bursts", |_| Box::new(slc_bursts::by_share)),
    ("slc-dynamic", |_| Box::new(slc_bursts::by_fill)),
    ("flushes", |_| Box::new(flushes::analyse)),
    ("agreement", |_| Box::new(agreement::analyse)),
];

/// Every run as a row: for experiments without claims.
fn plain(table: &Table) -> Result<Findings, LabError> {
    const SHOWN: [(&str, &str); 4] = [
        ("WA", "write_amplification"),
        ("MiB/s", "bandwidth_mib_s"),
        ("requests/s", "requests_per_s"),
        ("write p99, us", "latency_us.p99"),
    ];

    let mut columns = vec![("run", false)];
    columns.extend(SHOWN.map(|(head, _)| (head, true)));

    // Some kinds of runs lack some of these numbers.
    let cells = |row: &Row| SHOWN.map(|(_, name)| row.number(name).map_or("-".into(), number));
    let row = |row: &Row| std::iter::once(row.run.title()).chain(cells(row)).collect();
    let rows = table.rows.iter().map(row).collect();
    Ok(Findings {
        table: Some(Sheet::of_words(&columns, rows, Vec::new())),
        ..Findings::default()
    })
}

/// Returns an analysis by name.
///
/// # Errors
/// Lists the valid names.
pub(crate) fn find(name: &str) -> Result<Analysis, LabError> {
    ALL.iter()
        .find(|one| one.0 == name)
        .map(|one| one.1)
        .ok_or_else(|| {
            let known = ALL.iter().map(|one| one.0).collect::<Vec<_>>().join(", ");
            LabError::Wrong(format!("no analysis is named `{name}`; there are {known}"))
        })
}

/// A label, and bars of a name and a value.
type BarGroup = (String, Vec<(String, f64)>);

/// Groups of bars in one panel, with a dashed line at `reference`.
fn one_panel(title: &str, groups: Vec<BarGroup>, reference: Option<f64>) -> MarkKind {
    let title = title.to_owned();
    MarkKind::Bars(vec![Panel { title, groups }], reference)
}

/// The mean; NaN if empty.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The minimum; infinite if empty.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The maximum; minus infinity if empty.
pub(crate) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// A workload without its options.
pub(crate) fn workload_name(workload: &str) -> &str {
    workload.split(',').next().unwrap_or(workload)
}

/// Returns the papers' name of a content: `papers:0.3` is "30 % duplicates".
pub(crate) fn content_name(content: &str) -> String {
    let share = content
        .strip_prefix("papers:")
        .and_then(|rest| rest.split(':').next()?.parse::<f64>().ok());
    share.map_or_else(
        || content.to_owned(),
        |share| format!("{:.0} % duplicates", share * 100.0),
    )
}
