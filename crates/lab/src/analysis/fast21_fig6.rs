//! FAST'21 figure 6: traces on a large device, bandwidth over Opt's.

use super::{Findings, least, mean, most};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let workloads = table.distinct(|run| run.workload.as_str());
    let logs = table.logs();
    let row = |scheme, workload, log_mib| {
        table.row(Ask {
            scheme: Some(scheme),
            workload: Some(workload),
            log_mib,
            ..Ask::default()
        })
    };
    let speed = |row: &Row| row.number("bandwidth_mib_s");

    let (mut below, mut over_none) = (Vec::new(), Vec::new());
    for log in &logs {
        // The bound is the device's: the same in any workload's run.
        if let Some(workload) = workloads.first() {
            super::fast21_fig5::bound(row("nlog", workload, Some(*log))?, *log, &mut found);
        }

        for global in ["flog", "nlog"] {
            let (mut gains, mut scanning) = (Vec::new(), Vec::new());
            for workload in &workloads {
                let (ours, theirs) = (
                    row("remap-ssd", workload, Some(*log))?,
                    row(global, workload, Some(*log))?,
                );
                gains.push(speed(ours)? / speed(theirs)?);
                found.measure(
                    format!("over_{global}_{log} {workload}"),
                    gains[gains.len() - 1],
                );
                scanning.push(theirs.number("p2l_lookup_s")? / theirs.number("seconds_simulated")?);
            }
            found.measure(format!("over_{global}_{log}"), mean(&gains));
            found.measure(format!("{global}_lookup_share_{log}"), mean(&scanning));
        }

        for workload in &workloads {
            let ours = row("remap-ssd", workload, Some(*log))?;
            // Opt is aged like the device with this log, so it has a run for each size.
            let opt = row("opt", workload, Some(*log))?;
            below.push(1.0 - speed(ours)? / speed(opt)?);
            over_none.push(speed(opt)? / speed(row("none", workload, None)?)?);
            found.measure(
                format!("below_opt_{log} {workload}"),
                below[below.len() - 1],
            );
            found.measure(format!("demoted_{log} {workload}"), ours.demoted()?);
            for scheme in ["flog", "nlog", "remap-ssd"] {
                over_none.push(
                    speed(row(scheme, workload, Some(*log))?)?
                        / speed(row("none", workload, None)?)?,
                );
            }
        }
    }

    for workload in &workloads {
        let (opt, none) = (
            row("opt", workload, logs.last().copied())?,
            row("none", workload, None)?,
        );
        found.measure(
            format!("opt_over_none {workload}"),
            speed(opt)? / speed(none)?,
        );
        found.measure(format!("none_wa {workload}"), none.amplification_of_data()?);
        found.measure(format!("opt_wa {workload}"), opt.amplification_of_data()?);
    }

    found.measure("below_opt_mean", mean(&below));
    found.measure("below_opt_most", most(&below));
    found.measure("over_none_least", least(&over_none));
    found.measure("over_none_most", most(&over_none));

    for (letter, workload) in ['a', 'b', 'c', 'd'].into_iter().zip(&workloads) {
        let mut groups = Vec::new();
        for log in &logs {
            let opt = speed(row("opt", workload, Some(*log))?)?;
            let mut bars = Vec::new();
            for scheme in ["flog", "nlog", "remap-ssd", "opt"] {
                bars.push((
                    scheme.to_owned(),
                    speed(row(scheme, workload, Some(*log))?)? / opt,
                ));
            }
            groups.push((format!("{log} MiB"), bars));
        }
        found.plots.push(Plot {
            name: format!("fig6{letter}"),
            title: format!("Bandwidth in {workload}"),
            reading: "Shares of Opt's bandwidth, by the size of log or NVRAM.".into(),
            y: "share of Opt's bandwidth".into(),
            shape: MarkKind::Bars(
                vec![Panel {
                    title: (*workload).to_owned(),
                    groups,
                }],
                Some(1.0),
            ),
        });
    }
    Ok(found)
}
