//! FAST'21 figure 5: deduplication inside the SSD, performance over NoRemap and write
//! amplification.
//!
//! A mean is over workloads and contents; demotions and write amplification are those at the
//! largest share of duplicates, as in the paper.

use super::{Findings, content_name, least, mean, most, workload_name};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};

const LOGGED: [&str; 3] = ["flog", "nlog", "remap-ssd"];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    let workloads = table.distinct(|run| run.workload.as_str());
    let contents = table.distinct(|run| run.content.as_str());
    let cells: Vec<(&str, &str)> = contents
        .iter()
        .flat_map(|content| workloads.iter().map(|workload| (*workload, *content)))
        .collect();

    opt(table, &cells, &mut found)?;

    for log in table.logs() {
        demoted(
            table,
            &workloads,
            contents.last().copied().unwrap_or(""),
            log,
            &mut found,
        )?;
        gains(
            table,
            &cells,
            contents.last().copied().unwrap_or(""),
            log,
            &mut found,
        )?;
        bound(row(table, "nlog", cells[0], Some(log))?, log, &mut found);
    }

    // Performance is a figure for each content (5a, 5b, 5d), amplification one for the last (5c).
    for (index, content) in contents.iter().enumerate() {
        found.plots.push(performance(
            table,
            &workloads,
            content,
            ['a', 'b', 'd'][index.min(2)],
        )?);
    }

    if let Some(content) = contents.last() {
        found.plots.push(amplification(table, &workloads, content)?);
    }

    Ok(found)
}

fn row<'a>(
    table: &'a Table,
    scheme: &str,
    (workload, content): (&str, &str),
    log_mib: Option<f64>,
) -> Result<&'a Row, LabError> {
    table.row(Ask {
        scheme: Some(scheme),
        workload: Some(workload),
        content: Some(content),
        log_mib,
        ..Ask::default()
    })
}

/// Speed of Opt over NoRemap, and the reduction of its amplification.
fn opt(table: &Table, cells: &[(&str, &str)], found: &mut Findings) -> Result<(), LabError> {
    let (mut speed, mut fall, mut plain) = (Vec::new(), Vec::new(), Vec::new());

    for cell in cells {
        let (opt, none) = (
            row(table, "opt", *cell, None)?,
            row(table, "none", *cell, None)?,
        );

        speed.push(opt.number("iops")? / none.number("iops")?);
        fall.push(1.0 - opt.amplification_of_data()? / none.amplification_of_data()?);
        plain.push(none.amplification_of_data()?);

        found.measure(
            format!("opt_over_none {} {}", workload_name(cell.0), cell.1),
            speed[speed.len() - 1],
        );
        found.measure(
            format!("opt_wa_falls {} {}", workload_name(cell.0), cell.1),
            fall[fall.len() - 1],
        );
    }

    found.measure("opt_over_none_least", least(&speed));
    found.measure("opt_over_none_most", most(&speed));
    found.measure("opt_wa_falls_least", least(&fall));
    found.measure("opt_wa_falls_most", most(&fall));
    found.measure("none_wa_least", least(&plain));
    found.measure("none_wa_most", most(&plain));

    Ok(())
}

/// Remaps of Remap-SSD that became copies.
fn demoted(
    table: &Table,
    workloads: &[&str],
    content: &str,
    log: f64,
    found: &mut Findings,
) -> Result<(), LabError> {
    let mut shares = Vec::new();
    for workload in workloads {
        shares.push(row(table, "remap-ssd", (workload, content), Some(log))?.demoted()?);
        found.measure(
            format!("demoted_{log} {}", workload_name(workload)),
            shares[shares.len() - 1],
        );
    }
    found.measure(format!("demoted_{log}_least"), least(&shares));
    found.measure(format!("demoted_{log}_most"), most(&shares));
    Ok(())
}

/// Remap-SSD against the global logs.
fn gains(
    table: &Table,
    cells: &[(&str, &str)],
    figure_c: &str,
    log: f64,
    found: &mut Findings,
) -> Result<(), LabError> {
    let mut amplification = Vec::new();
    for global in ["flog", "nlog"] {
        let (mut speed, mut scanning, mut each) = (Vec::new(), Vec::new(), Vec::new());

        for cell in cells {
            let ours = row(table, "remap-ssd", *cell, Some(log))?;
            let theirs = row(table, global, *cell, Some(log))?;

            speed.push(ours.number("iops")? / theirs.number("iops")?);
            found.measure(
                format!("over_{global}_{log} {} {}", workload_name(cell.0), cell.1),
                speed[speed.len() - 1],
            );

            scanning.push(theirs.number("p2l_lookup_s")? / theirs.number("seconds_simulated")?);
            each.push(theirs.number("p2l_lookup_s")? / theirs.number("gc_runs")?.max(1.0) * 1e3);

            // The paper shows amplification for one content only.
            if cell.1 == figure_c {
                amplification.push(ours.amplification_of_data()? / theirs.amplification_of_data()?);
            }
        }

        found.measure(format!("over_{global}_{log}"), mean(&speed));
        found.measure(format!("{global}_lookup_share_{log}"), mean(&scanning));
        found.measure(format!("{global}_lookup_ms_{log}"), mean(&each));
    }

    found.measure(format!("wa_over_logs_{log}"), mean(&amplification));
    Ok(())
}

/// Upper bound of a scan's cost, for a log in NVRAM and one on flash (read, then scanned): a
/// collection frees a superblock, and no second one is due before all dies together have programmed
/// that much again.
pub(super) fn bound(nlog: &Row, log: f64, found: &mut Findings) {
    let device = &nlog.run.device;
    let pages = f64::from(device.geometry.pages_per_superblock());
    let period_ns =
        pages / f64::from(device.geometry.dies_total()) * device.flash.program_ns.mean() as f64;

    let scan_ns = device.firmware.log_bytes as f64 / 64.0 * device.nvram.read_ns as f64;
    let log_pages = device.firmware.log_bytes as f64 / 4096.0;
    let read_ns =
        log_pages / f64::from(device.geometry.dies_total()) * device.flash.read_ns.mean() as f64;

    // All shrink with the scale: shown for full size.
    found.measure("superblock_ms", period_ns / nlog.run.scale / 1e6);
    found.measure(format!("scan_ms_{log}"), scan_ns / nlog.run.scale / 1e6);
    found.measure(format!("scan_bound_{log}"), 1.0 + scan_ns / period_ns);
    found.measure(
        format!("flog_scan_ms_{log}"),
        (read_ns + scan_ns) / nlog.run.scale / 1e6,
    );
    found.measure(
        format!("flog_scan_bound_{log}"),
        1.0 + (read_ns + scan_ns) / period_ns,
    );
}

fn performance(
    table: &Table,
    workloads: &[&str],
    content: &str,
    letter: char,
) -> Result<Plot, LabError> {
    let figure = |row: &Row, none: &Row| Ok(row.number("iops")? / none.number("iops")?);
    Ok(Plot {
        name: format!("fig5{letter}"),
        title: format!("Performance over NoRemap, {}", content_name(content)),
        reading: "Each panel is a size of log or NVRAM; bars past the dashed line are faster than the device without \
                  remapping."
            .into(),
        y: "times NoRemap".into(),
        shape: MarkKind::Bars(panels(table, workloads, content, false, &figure)?, Some(1.0)),
    })
}

fn amplification(table: &Table, workloads: &[&str], content: &str) -> Result<Plot, LabError> {
    let figure = |row: &Row, _: &Row| row.amplification_of_data();
    Ok(Plot {
        name: "fig5c".into(),
        title: format!("Flash write amplification, {}", content_name(content)),
        reading: "Flash pages of data programmed for each page the host wrote or remapped; lower is better.".into(),
        y: "flash pages per host page".into(),
        shape: MarkKind::Bars(panels(table, workloads, content, true, &figure)?, Some(1.0)),
    })
}

fn panels(
    table: &Table,
    workloads: &[&str],
    content: &str,
    with_none: bool,
    figure: &dyn Fn(&Row, &Row) -> Result<f64, LabError>,
) -> Result<Vec<Panel>, LabError> {
    let mut panels = Vec::new();

    for log in table.logs() {
        let mut groups = Vec::new();

        for workload in workloads {
            let cell = (*workload, content);
            let none = row(table, "none", cell, None)?;

            let mut bars = Vec::new();
            if with_none {
                bars.push(("none".to_owned(), figure(none, none)?));
            }
            for scheme in LOGGED.iter().chain(&["opt"]) {
                // Opt's remaps need no space, so one run serves all log sizes.
                let log = (*scheme != "opt").then_some(log);
                bars.push((
                    (*scheme).to_owned(),
                    figure(row(table, scheme, cell, log)?, none)?,
                ));
            }

            groups.push((workload_name(workload).to_owned(), bars));
        }
        panels.push(Panel {
            title: format!("{log} MiB"),
            groups,
        });
    }

    Ok(panels)
}
