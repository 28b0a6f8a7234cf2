//! PebbleSSD figures 5 and 6: fs_write against write, and MOVE by remap against read and write.

use super::{Findings, one_panel};
use crate::LabError;
use crate::plot::Plot;
use crate::table::{Ask, Table};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    let fs_write = compare(table, "fs_write", ["fs-write", "write"], &mut found)?;
    found
        .plots
        .push(figure("fig5", "fs_write against write", fs_write));

    let moves = compare(table, "move", ["move-remap", "move-readwrite"], &mut found)?;
    found.plots.push(figure(
        "fig6",
        "MOVE by remap against read and write",
        moves,
    ));

    // Additional latency of the host interface that would give the paper's ratio of latencies.
    let short = number(table, "move-remap,threads=1", "latency_mean_us")?;
    let long = number(table, "move-readwrite,threads=1", "latency_mean_us")?;
    // (short + x) / (long + 2 x) = 0.13
    found.measure(
        "move_fixed_cost_us_for_87_percent",
        (0.13 * long - short) / (1.0 - 0.26),
    );

    Ok(found)
}

fn number(table: &Table, workload: &str, field: &str) -> Result<f64, LabError> {
    table
        .row(Ask {
            workload: Some(workload),
            ..Ask::default()
        })?
        .number(field)
}

/// A command over the conventional one: throughput with several threads, latency with one.
fn compare(
    table: &Table,
    name: &str,
    [with, without]: [&str; 2],
    found: &mut Findings,
) -> Result<[f64; 2], LabError> {
    let fast = number(table, &format!("{with},threads=4"), "per_second")?;
    let slow = number(table, &format!("{without},threads=4"), "per_second")?;
    found.measure(format!("{name}_throughput"), fast / slow);
    found.measure(format!("{name}_per_s"), fast);
    found.measure(format!("{name}_baseline_per_s"), slow);

    let short = number(table, &format!("{with},threads=1"), "latency_mean_us")?;
    let long = number(table, &format!("{without},threads=1"), "latency_mean_us")?;
    found.measure(format!("{name}_latency"), short / long);
    found.measure(format!("{name}_latency_us"), short);
    found.measure(format!("{name}_baseline_latency_us"), long);

    Ok([fast / slow, short / long])
}

fn figure(name: &str, title: &str, [throughput, latency]: [f64; 2]) -> Plot {
    let pair = |label: &str, ratio: f64| {
        let bars = [("conventional", 1.0), ("PebbleSSD", ratio)];
        let bars = bars.map(|(name, value)| (name.to_owned(), value));
        (label.to_owned(), bars.to_vec())
    };
    let groups = vec![
        pair("throughput, 4 threads", throughput),
        pair("latency, 1 thread", latency),
    ];

    Plot {
        name: name.into(),
        title: title.into(),
        reading: "Throughput of four threads and latency of one, over the conventional commands."
            .into(),
        y: "times the conventional command".into(),
        shape: one_panel("", groups, Some(1.0)),
    }
}
