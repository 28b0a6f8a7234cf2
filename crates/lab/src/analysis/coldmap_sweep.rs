//! Coldmap's figures 5 to 8 under each reading of the points that the paper leaves open: the kind
//! of duplicates, the destination of moved pages with one LPN, the unit of collection, the amount
//! written, and duplicates in the fill.
//!
//! Each reading is a setup and a content. Figures are means over the workloads, Coldmap over Remap
//! and over the baseline. Where a setup keeps moved pages apart from the host's, Remap is also
//! taken from the setup that joins them: the paper's Remap is FEMU's, so this shows the effect of
//! Coldmap alone.

use super::coldmap::METRICS;
use super::{Findings, mean};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Table};
use remap_ssd_sim::report::sheet::Sheet;

/// Setups that keep moved pages apart, each with the otherwise equal setup.
const APART: [(&str, &str); 3] = [
    ("sweep-apart", "sweep"),
    ("sweep-2g-apart", "sweep-2g"),
    ("sweep-block-apart", "sweep-block"),
];

/// The paper's results of Coldmap over Remap, in the order of `METRICS`.
const PAPER: [f64; 4] = [1.0 - 0.458, 1.154, 1.0 - 0.311, 1.843];

/// Columns of the table.
const COLUMNS: [(&str, bool); 11] = [
    ("setup", false),
    ("content", false),
    ("Remap of", false),
    ("collections", true),
    ("IOPS", true),
    ("write amplification", true),
    ("lifetime", true),
    ("Remap over the baseline: collections", true),
    ("IOPS", true),
    ("write amplification", true),
    ("lifetime", true),
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let workloads = table.distinct(|run| run.workload.as_str());
    let setups = table.distinct(|run| run.setup.as_str());
    let contents = table.distinct(|run| run.content.as_str());

    // Where the paper has only Coldmap over the baseline, Remap over the baseline is that divided
    // by Coldmap over Remap.
    let mut lines = vec![line(
        ["the paper", "", ""],
        &PAPER,
        &[0.23 / 0.542, 1.35, 0.399 / 0.689, 4.34 / 1.843],
    )];

    let mut nearest = f64::INFINITY;
    let mut panels = Vec::new();
    for content in &contents {
        let mut groups = Vec::new();
        for setup in &setups {
            let joined = APART
                .iter()
                .find(|(apart, _)| apart == setup)
                .map(|(_, joined)| *joined);

            // Over Remap in the same setup; where that keeps moved pages apart, also over Remap in the setup that joins them.
            for base in std::iter::once(*setup).chain(joined) {
                let over_remap = ratios(
                    table,
                    &workloads,
                    content,
                    (setup, "remap-ssd", "coldmap"),
                    (base, "remap-ssd"),
                )?;
                let remap_over_none = ratios(
                    table,
                    &workloads,
                    content,
                    (base, "remap-ssd", "greedy"),
                    (base, "none"),
                )?;

                let bars = METRICS
                    .iter()
                    .zip(over_remap)
                    .map(|((name, ..), value)| ((*name).to_owned(), value));
                let name = if base == *setup {
                    (*setup).to_owned()
                } else {
                    format!("{setup} over {base}")
                };
                groups.push((name, bars.collect()));

                lines.push(line([setup, content, base], &over_remap, &remap_over_none));
                for ((name, ..), value) in METRICS.iter().zip(over_remap) {
                    found.measure(format!("{name} {setup} {content} over {base}"), value);
                }
                nearest = nearest.min(factor_from_paper(&over_remap));
            }
        }
        panels.push(Panel {
            title: (*content).to_owned(),
            groups,
        });
    }

    found.plots.push(Plot {
        name: "sweep".into(),
        title: "Coldmap over Remap by reading".into(),
        reading:
            "Collections, IOPS, write amplification and lifetime of Coldmap over those of Remap."
                .into(),
        y: "times Remap".into(),
        shape: MarkKind::Bars(panels, Some(1.0)),
    });

    found.measure("nearest_factor", nearest);
    found.table = Some(Sheet::of_words(&COLUMNS, lines, Vec::new()));
    Ok(found)
}

/// Distance of the four figures from the paper's, as the largest factor.
fn factor_from_paper(over_remap: &[f64; 4]) -> f64 {
    let factor = |(ours, paper): (&f64, &f64)| (ours / paper).max(paper / ours);
    over_remap
        .iter()
        .zip(&PAPER)
        .map(factor)
        .fold(1.0, f64::max)
}

/// Each metric of runs over that of others, as a mean over the workloads.
fn ratios(
    table: &Table,
    workloads: &[&str],
    content: &str,
    (setup, scheme, gc): (&str, &str, &str),
    (base, base_scheme): (&str, &str),
) -> Result<[f64; 4], LabError> {
    let mut all = [0.0; 4];
    for ((_, _, _, metric), ratio) in METRICS.iter().zip(&mut all) {
        let mut each = Vec::new();

        for workload in workloads {
            let of = |setup, scheme, gc| {
                let ask = Ask {
                    setup: Some(setup),
                    scheme: Some(scheme),
                    gc: Some(gc),
                    ..Ask::default()
                };
                metric(table.row(Ask {
                    workload: Some(workload),
                    content: Some(content),
                    ..ask
                })?)
            };

            each.push(of(setup, scheme, gc)? / of(base, base_scheme, "greedy")?);
        }
        *ratio = mean(&each);
    }

    Ok(all)
}

fn line(names: [&str; 3], over_remap: &[f64; 4], remap_over_none: &[f64; 4]) -> Vec<String> {
    let values = over_remap.iter().chain(remap_over_none);
    let cells = values.map(|value| format!("{value:.2}x"));
    names.map(str::to_owned).into_iter().chain(cells).collect()
}
