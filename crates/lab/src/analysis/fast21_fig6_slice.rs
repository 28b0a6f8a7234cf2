//! FAST'21 figure 6 over a slice of the traces: bandwidth under Opt's, and mean response at the
//! traces' own times.
//!
//! A response time counts from arrival, so it includes queueing during a collection; the ratio is
//! NoRemap's over the other's.

use super::{Findings, least, mean, most};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};

const OTHERS: [&str; 4] = ["flog", "nlog", "remap-ssd", "opt"];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let workloads = table.distinct(|run| run.workload.as_str());
    below_opt(table, &workloads, &mut found)?;
    let panels = responses(table, &workloads, &mut found)?;
    found.plots.push(Plot {
        name: "fig6-response".into(),
        title: "Mean response at the traces' own times".into(),
        reading: "NoRemap's mean response over each scheme's, by the size of log or NVRAM.".into(),
        y: "times as fast as NoRemap".into(),
        shape: MarkKind::Bars(panels, Some(1.0)),
    });
    Ok(found)
}

fn row<'a>(
    table: &'a Table,
    arrivals: &str,
    scheme: &str,
    workload: &str,
    log_mib: Option<f64>,
) -> Result<&'a Row, LabError> {
    let ask = Ask {
        scheme: Some(scheme),
        workload: Some(workload),
        log_mib,
        ..Ask::default()
    };
    table.row(Ask {
        arrivals: Some(arrivals),
        ..ask
    })
}

/// Closed loop: how far Remap-SSD's bandwidth is below Opt's, and the others' over NoRemap's.
fn below_opt(table: &Table, workloads: &[&str], found: &mut Findings) -> Result<(), LabError> {
    let speed =
        |scheme, workload, log| row(table, "", scheme, workload, log)?.number("bandwidth_mib_s");

    let (mut below, mut over_none) = (Vec::new(), Vec::new());
    for log in table.logs() {
        for workload in workloads {
            let ours = row(table, "", "remap-ssd", workload, Some(log))?;
            below.push(1.0 - ours.number("bandwidth_mib_s")? / speed("opt", workload, Some(log))?);
            found.measure(
                format!("below_opt_{log} {workload}"),
                below[below.len() - 1],
            );
            found.measure(format!("demoted_{log} {workload}"), ours.demoted()?);

            for scheme in OTHERS {
                over_none
                    .push(speed(scheme, workload, Some(log))? / speed("none", workload, None)?);
            }
        }
    }

    found.measure("below_opt_mean", mean(&below));
    found.measure("below_opt_most", most(&below));
    found.measure("over_none_least", least(&over_none));
    found.measure("over_none_most", most(&over_none));

    Ok(())
}

/// Open loop: mean response times, as bars over NoRemap's.
fn responses(
    table: &Table,
    workloads: &[&str],
    found: &mut Findings,
) -> Result<Vec<Panel>, LabError> {
    let open = |scheme, workload, log| row(table, "trace", scheme, workload, log);
    let mean_us = |row: &Row| row.number("arrivals.response_us.mean");
    let (mut over_none, mut panels) = (Vec::new(), Vec::new());

    for workload in workloads {
        let none = open("none", workload, None)?;
        found.measure(format!("none_us {workload}"), mean_us(none)?);
        found.measure(format!("none_wa {workload}"), none.amplification_of_data()?);
        found.measure(
            format!("arrivals_per_s {workload}"),
            none.number("arrivals.offered_per_s")?,
        );
        found.measure(
            format!("backlog_none {workload}"),
            none.number("arrivals.backlog_max")?,
        );

        let mut groups = Vec::new();
        for log in table.logs() {
            let mut bars = Vec::new();
            for scheme in OTHERS {
                let other = open(scheme, workload, Some(log))?;
                let ratio = mean_us(none)? / mean_us(other)?;
                found.measure(format!("{scheme}_{log}_us {workload}"), mean_us(other)?);
                found.measure(
                    format!("{scheme}_{log}_wa {workload}"),
                    other.amplification_of_data()?,
                );
                found.measure(format!("over_none_{scheme}_{log} {workload}"), ratio);
                over_none.push(ratio);
                bars.push((scheme.to_owned(), ratio));
            }
            groups.push((format!("{log} MiB"), bars));
        }
        panels.push(Panel {
            title: (*workload).to_owned(),
            groups,
        });
    }

    found.measure("response_over_none_least", least(&over_none));
    found.measure("response_over_none_most", most(&over_none));
    Ok(panels)
}
