//! FAST'21 figure 7: the cost of larger NVRAM segments in Remap-SSD.

use super::{Findings, least, mean, most, one_panel, workload_name};
use crate::LabError;
use crate::plot::{MarkKind, Plot};
use crate::table::{Ask, Row, Table};

/// The runs, by workload and by size of segments in bytes, in ascending order.
struct Runs<'a> {
    table: &'a Table,
    workloads: Vec<&'a str>,
    sizes: Vec<u32>,
}

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut sizes = table.distinct(|run| run.segment_bytes);
    sizes.sort_unstable();
    let runs = Runs {
        table,
        workloads: table.distinct(|run| run.workload.as_str()),
        sizes,
    };

    let speeds = runs.over_smallest("iops", &mut found)?;
    found.measure("speed_mean", mean(&speeds));
    found.measure("speed_least", least(&speeds));

    let amplifications = runs.over_smallest("write_amplification", &mut found)?;
    found.measure("wa_mean", mean(&amplifications));
    found.measure("wa_most", most(&amplifications));

    let mut demotions = Vec::new();
    for workload in &runs.workloads {
        for size in &runs.sizes {
            demotions.push(runs.row(workload, *size)?.demoted()?);
        }
    }
    found.measure("demoted_least", least(&demotions));
    found.measure("demoted_most", most(&demotions));

    // Speed is shown relative to the smallest segments', amplification is absolute.
    let plot = |name: &str, title: &str, y: &str, shape| Plot {
        name: name.into(),
        title: title.into(),
        reading: "Each bar is a size of NVRAM segments, at the smallest NVRAM of figure 5.".into(),
        y: y.into(),
        shape,
    };
    found.plots.push(plot(
        "fig7a",
        "Performance by segment size",
        "share of the smallest's",
        runs.bars(|workload, row| {
            Ok(row.number("iops")? / runs.smallest(workload)?.number("iops")?)
        })?,
    ));
    found.plots.push(plot(
        "fig7b",
        "Flash write amplification by segment size",
        "flash pages per host page",
        runs.bars(|_, row| row.number("write_amplification"))?,
    ));
    Ok(found)
}

impl Runs<'_> {
    fn row(&self, workload: &str, bytes: u32) -> Result<&Row, LabError> {
        self.table.row(Ask {
            workload: Some(workload),
            segment_bytes: Some(bytes),
            ..Ask::default()
        })
    }

    fn smallest(&self, workload: &str) -> Result<&Row, LabError> {
        self.row(workload, self.sizes.first().copied().unwrap_or(0))
    }

    /// A figure with larger segments over that with the smallest.
    fn over_smallest(&self, field: &str, found: &mut Findings) -> Result<Vec<f64>, LabError> {
        let mut ratios = Vec::new();
        for workload in &self.workloads {
            let first = self.smallest(workload)?.number(field)?;

            // Relative to itself it would be 1, and distort the means.
            for size in self.sizes.iter().skip(1) {
                let ratio = self.row(workload, *size)?.number(field)? / first;
                ratios.push(ratio);
                let workload = workload_name(workload);
                found.measure(format!("{field} {workload} {}", label(*size)), ratio);
            }
        }
        Ok(ratios)
    }

    /// A group of bars for each workload, with a bar for each size of segments.
    fn bars(
        &self,
        value: impl Fn(&str, &Row) -> Result<f64, LabError>,
    ) -> Result<MarkKind, LabError> {
        let mut groups = Vec::new();
        for workload in &self.workloads {
            let bar = |size: &u32| {
                let row = self.row(workload, *size)?;
                Ok((label(*size), value(workload, row)?))
            };
            let bars = self
                .sizes
                .iter()
                .map(bar)
                .collect::<Result<_, LabError>>()?;
            groups.push((workload_name(workload).to_owned(), bars));
        }
        Ok(one_panel("workload", groups, None))
    }
}

fn label(bytes: u32) -> String {
    if bytes >= 1024 {
        format!("{} KiB", f64::from(bytes) / 1024.0)
    } else {
        format!("{bytes} B")
    }
}
