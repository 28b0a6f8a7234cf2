//! FAST'21 figure 6: traces on a large device, bandwidth over Opt's.

use super::{Findings, least, mean, most, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Row, Table};

/// The schemes with remapping metadata, in the order of the figure.
const SCHEMES: [&str; 3] = ["flog", "nlog", "remap-ssd"];

/// Three tenths of mail's working set, at the smallest NVRAM: for the reasons, no figure of the paper.
const PART: &str = "fiu-mail,size=0.3";
const PART_LOG: f64 = 160.0;

/// The runs, by workload and by size of log or NVRAM in MiB.
struct Runs<'a> {
    table: &'a Table,
    workloads: Vec<&'a str>,
    logs: Vec<f64>,
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut workloads = table.distinct(|run| run.workload.as_str());
    workloads.retain(|workload| *workload != PART);
    let runs = Runs {
        table,
        workloads,
        logs: table.logs(),
    };

    let (mut below, mut over_none) = (Vec::new(), Vec::new());
    for log in &runs.logs {
        // The bound is the device's: the same in any workload's run.
        if let Some(workload) = runs.workloads.first() {
            let run = runs.row("nlog", workload, Some(*log))?;
            super::fast21_fig5::bound(run, *log, &mut found);
        }

        for global in ["flog", "nlog"] {
            runs.over_global_log(global, *log, &mut found)?;
        }
        runs.between_bounds(*log, &mut below, &mut over_none, &mut found)?;
    }
    found.measure("below_opt_mean", mean(&below));
    found.measure("below_opt_most", most(&below));
    found.measure("over_none_least", least(&over_none));
    found.measure("over_none_most", most(&over_none));
    runs.slowest(&mut found)?;
    runs.part_of_mail(&mut found)?;

    runs.opt_over_none(&mut found)?;
    for (letter, workload) in ['a', 'b', 'c', 'd'].into_iter().zip(&runs.workloads) {
        found.plots.push(runs.figure(letter, workload)?);
    }
    Ok(found)
}

impl Runs<'_> {
    fn row(&self, scheme: &str, workload: &str, log_mib: Option<f64>) -> Result<&Row, LabError> {
        self.table.row(Ask {
            scheme: Some(scheme),
            workload: Some(workload),
            log_mib,
            ..Ask::default()
        })
    }

    fn speed(&self, scheme: &str, workload: &str, log_mib: Option<f64>) -> Result<f64, LabError> {
        self.row(scheme, workload, log_mib)?
            .number("bandwidth_mib_s")
    }

    /// Remap-SSD over a scheme with a global log, and that scheme's time in lookups.
    fn over_global_log(
        &self,
        global: &str,
        log: f64,
        found: &mut Findings,
    ) -> Result<(), LabError> {
        let (mut gains, mut scanning) = (Vec::new(), Vec::new());
        for workload in &self.workloads {
            let gain = self.speed("remap-ssd", workload, Some(log))?
                / self.speed(global, workload, Some(log))?;
            gains.push(gain);
            found.measure(format!("over_{global}_{log} {workload}"), gain);

            let theirs = self.row(global, workload, Some(log))?;
            scanning.push(theirs.number("p2l_lookup_s")? / theirs.number("seconds_simulated")?);
        }
        found.measure(format!("over_{global}_{log}"), mean(&gains));
        found.measure(format!("{global}_lookup_share_{log}"), mean(&scanning));
        Ok(())
    }

    /// Remap-SSD below Opt, and all schemes over the device without remapping.
    fn between_bounds(
        &self,
        log: f64,
        below: &mut Vec<f64>,
        over_none: &mut Vec<f64>,
        found: &mut Findings,
    ) -> Result<(), LabError> {
        for workload in &self.workloads {
            let speed = |scheme| self.speed(scheme, workload, Some(log));
            let none = self.speed("none", workload, None)?;

            // Opt is aged like the device with this log, so it has a run for each size.
            let share = 1.0 - speed("remap-ssd")? / speed("opt")?;
            below.push(share);
            found.measure(format!("below_opt_{log} {workload}"), share);

            let demoted = self.row("remap-ssd", workload, Some(log))?.demoted()?;
            found.measure(format!("demoted_{log} {workload}"), demoted);

            for scheme in ["opt"].into_iter().chain(SCHEMES) {
                over_none.push(speed(scheme)? / none);
            }
        }
        Ok(())
    }

    /// Lookups of the run that gains least over the device without remapping, and Remap-SSD's least gain.
    fn slowest(&self, found: &mut Findings) -> Result<(), LabError> {
        let (mut lowest, mut ours) = (f64::INFINITY, f64::INFINITY);
        for log in &self.logs {
            for workload in &self.workloads {
                let none = self.speed("none", workload, None)?;
                for scheme in SCHEMES {
                    let run = self.row(scheme, workload, Some(*log))?;
                    let gain = run.number("bandwidth_mib_s")? / none;

                    if scheme == "remap-ssd" {
                        ours = ours.min(gain);
                    }
                    if gain < lowest {
                        lowest = gain;
                        let share =
                            run.number("p2l_lookup_s")? / run.number("seconds_simulated")?;
                        found.measure("lookup_share_of_least", share);
                    }
                }
            }
        }
        found.measure("remap_ssd_over_none_least", ours);
        Ok(())
    }

    fn part_of_mail(&self, found: &mut Findings) -> Result<(), LabError> {
        let speed = |scheme| self.speed(scheme, PART, Some(PART_LOG));
        let ours = speed("remap-ssd")?;
        found.measure("part over_flog", ours / speed("flog")?);
        found.measure("part over_nlog", ours / speed("nlog")?);
        found.measure("part below_opt", 1.0 - ours / speed("opt")?);
        let demoted = self.row("remap-ssd", PART, Some(PART_LOG))?.demoted()?;
        found.measure("part demoted", demoted);
        Ok(())
    }

    /// The effect of remapping without limit.
    fn opt_over_none(&self, found: &mut Findings) -> Result<(), LabError> {
        let largest = self.logs.last().copied();
        for workload in &self.workloads {
            let gain =
                self.speed("opt", workload, largest)? / self.speed("none", workload, None)?;
            found.measure(format!("opt_over_none {workload}"), gain);

            for (scheme, log) in [("none", None), ("opt", largest)] {
                let amplification = self.row(scheme, workload, log)?.amplification_of_data()?;
                found.measure(format!("{scheme}_wa {workload}"), amplification);
            }
        }
        Ok(())
    }

    fn figure(&self, letter: char, workload: &str) -> Result<Plot, LabError> {
        let mut groups = Vec::new();
        for log in &self.logs {
            let speed = |scheme| self.speed(scheme, workload, Some(*log));
            let opt = speed("opt")?;
            let bars = SCHEMES
                .into_iter()
                .chain(["opt"])
                .map(|scheme| Ok((scheme.to_owned(), speed(scheme)? / opt)))
                .collect::<Result<_, LabError>>()?;
            groups.push((format!("{log} MiB"), bars));
        }

        Ok(Plot {
            name: format!("fig6{letter}"),
            title: format!("Bandwidth in {workload}"),
            reading: "Shares of Opt's bandwidth, by the size of log or NVRAM.".into(),
            y: "share of Opt's bandwidth".into(),
            shape: one_panel(workload, groups, Some(1.0)),
        })
    }
}
