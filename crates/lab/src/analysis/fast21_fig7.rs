//! FAST'21 figure 7: the cost of larger NVRAM segments in Remap-SSD.

use super::{Findings, least, mean, most, workload_name};
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Table};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    let workloads = table.distinct(|run| run.workload.as_str());
    let mut sizes = table.distinct(|run| run.segment_bytes);
    sizes.sort_unstable();
    let smallest = sizes.first().copied().unwrap_or(0);

    let (mut speeds, mut amplifications, mut demotions) = (Vec::new(), Vec::new(), Vec::new());

    for (field, name, title, y) in [
        (
            "iops",
            "fig7a",
            "Performance by segment size",
            "share of the smallest's",
        ),
        (
            "write_amplification",
            "fig7b",
            "Flash write amplification by segment size",
            "flash pages per host page",
        ),
    ] {
        let mut groups = Vec::new();
        for workload in &workloads {
            let ask = |bytes| Ask {
                workload: Some(workload),
                segment_bytes: Some(bytes),
                ..Ask::default()
            };

            // Speed is relative to the smallest segments', amplification is absolute.
            let first = table.row(ask(smallest))?.number(field)?;
            let mut bars = Vec::new();

            for size in &sizes {
                let row = table.row(ask(*size))?;
                let value = row.number(field)?;
                let shown = if field == "iops" {
                    value / first
                } else {
                    value
                };

                bars.push((label(*size), shown));

                // Relative to itself it would be 1, and distort the means.
                if *size != smallest {
                    let of = if field == "iops" {
                        &mut speeds
                    } else {
                        &mut amplifications
                    };
                    of.push(value / first);
                    found.measure(
                        format!("{field} {} {}", workload_name(workload), label(*size)),
                        value / first,
                    );
                }

                if field == "iops" {
                    demotions.push(row.demoted()?);
                }
            }

            groups.push((workload_name(workload).to_owned(), bars));
        }

        let reading =
            "Each bar is a size of NVRAM segments, at the smallest NVRAM of figure 5.".into();
        let panels = vec![Panel {
            title: "workload".into(),
            groups,
        }];

        found.plots.push(Plot {
            name: name.into(),
            title: title.into(),
            reading,
            y: y.into(),
            shape: MarkKind::Bars(panels, None),
        });
    }

    found.measure("speed_mean", mean(&speeds));
    found.measure("speed_least", least(&speeds));
    found.measure("wa_mean", mean(&amplifications));
    found.measure("wa_most", most(&amplifications));
    found.measure("demoted_least", least(&demotions));
    found.measure("demoted_most", most(&demotions));

    Ok(found)
}

fn label(bytes: u32) -> String {
    if bytes >= 1024 {
        format!("{} KiB", f64::from(bytes) / 1024.0)
    } else {
        format!("{bytes} B")
    }
}
