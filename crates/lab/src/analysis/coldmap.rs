//! Coldmap's figures 5 to 8: collections, IOPS, write amplification and lifetime, normalised to the
//! baseline.

use super::{Findings, mean, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Row, Table};

/// A metric of a run.
pub(super) type Metric = fn(&Row) -> Result<f64, LabError>;

/// Name, figure, title and metric; a count is at least one, so that a short run also has a ratio.
pub(super) const METRICS: [(&str, &str, &str, Metric); 4] = [
    ("gc", "fig5", "Collections", |row| {
        Ok(row.number("gc_runs")?.max(1.0))
    }),
    ("iops", "fig6", "IOPS", |row| row.number("iops")),
    ("wa", "fig7", "Write amplification", |row| {
        row.number("write_amplification")
    }),
    ("life", "fig8", "Lifetime: the inverse of erases", |row| {
        Ok(1.0 / row.number("erases")?.max(1.0))
    }),
];

/// FIO over the whole device: not among the paper's four workloads, but with the most moves.
const WHOLE: &str = "randwrite";

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    let mut workloads = table.distinct(|run| run.workload.as_str());
    // The means are compared with the paper's, which are over its four workloads.
    workloads.retain(|workload| *workload != WHOLE);

    for (name, figure, title, metric) in METRICS {
        let (mut remap_none, mut cold_none, mut cold_remap) = (Vec::new(), Vec::new(), Vec::new());
        let mut groups = Vec::new();

        for workload in &workloads {
            let of = |scheme, gc| {
                metric(table.row(Ask {
                    scheme: Some(scheme),
                    gc: Some(gc),
                    workload: Some(workload),
                    ..Ask::default()
                })?)
            };

            // Without remapping, with remapping, and with collection that separates shared pages.
            let (none, remap, cold) = (
                of("none", "greedy")?,
                of("remap-ssd", "greedy")?,
                of("remap-ssd", "coldmap")?,
            );

            remap_none.push(remap / none);
            cold_none.push(cold / none);
            cold_remap.push(cold / remap);
            let bars = [
                ("none", 1.0),
                ("remap-ssd", remap / none),
                ("coldmap", cold / none),
            ];

            let short = workload.split(',').next().unwrap_or(workload);
            found.measure(format!("{name}_coldmap_over_remap {short}"), cold / remap);
            found.measure(format!("{name}_coldmap_over_none {short}"), cold / none);
            groups.push((
                short.to_owned(),
                bars.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            ));
        }

        found.measure(format!("{name}_remap_over_none"), mean(&remap_none));
        found.measure(format!("{name}_coldmap_over_none"), mean(&cold_none));
        found.measure(format!("{name}_coldmap_over_remap"), mean(&cold_remap));

        found.plots.push(Plot {
            name: figure.into(),
            title: title.into(),
            reading: format!("{title}, normalised to the device without remapping."),
            y: "times the baseline".into(),
            shape: one_panel("workload", groups, Some(1.0)),
        });
    }

    // Over all workloads, only the policies differ.
    zoned(table, &workloads, &mut found)?;
    for (name, _, _, metric) in METRICS {
        let of = |gc| {
            let ask = Ask {
                scheme: Some("remap-ssd"),
                gc: Some(gc),
                workload: Some(WHOLE),
                ..Ask::default()
            };
            metric(table.row(ask)?)
        };
        found.measure(
            format!("{name}_coldmap_over_remap_whole"),
            of("coldmap")? / of("greedy")?,
        );
    }

    Ok(found)
}

/// The upper bound of a policy's effect: the share of moves in Remap's programs, and of shared
/// pages in those moves.
fn zoned(table: &Table, workloads: &[&str], found: &mut Findings) -> Result<(), LabError> {
    let of = |scheme, gc, workload| {
        table.row(Ask {
            scheme: Some(scheme),
            gc: Some(gc),
            workload: Some(workload),
            ..Ask::default()
        })
    };

    let (mut shares, mut rooms, mut zoned) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads.iter().chain(&[WHOLE]) {
        let (remap, cold) = (
            of("remap-ssd", "greedy", workload)?,
            of("remap-ssd", "coldmap", workload)?,
        );

        // A short run may move nothing: dividing by at least one page avoids a division by zero.
        let room = remap.number("gc_pages")? / remap.number("flash_pages")?.max(1.0);
        let share = cold.number("gc_zoned_pages")? / cold.number("gc_pages")?.max(1.0);
        let short = if *workload == WHOLE {
            "whole"
        } else {
            workload.split(',').next().unwrap_or(workload)
        };

        found.measure(format!("moves_of_remap {short}"), room);
        found.measure(format!("shared_share_of_moves {short}"), share);
        found.measure(
            format!("none_wa {short}"),
            of("none", "greedy", workload)?.number("write_amplification")?,
        );

        // The whole-device workload is measured separately: in the means it would count every
        // workload twice.
        if *workload == WHOLE {
            found.measure("moves_of_remap_whole", room);
            found.measure("shared_share_of_moves_whole", share);
        } else {
            rooms.push(room);
            shares.push(share);
            zoned.push(cold.number("gc_zoned_pages")? / cold.number("flash_pages")?.max(1.0));
        }
    }

    found.measure("shared_share_of_moves", mean(&shares));
    found.measure("moves_of_remap", mean(&rooms));
    found.measure("shared_share_of_programs", mean(&zoned));
    Ok(())
}
