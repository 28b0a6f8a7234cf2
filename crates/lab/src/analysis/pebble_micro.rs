//! PebbleSSD figures 5 and 6: fs_write against write, and MOVE by remap against read and write.

use super::Findings;
use crate::LabError;
use crate::plot::{MarkKind, Panel, Plot};
use crate::table::{Ask, Table};

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();

    let of = |workload: &str, field: &str| {
        table
            .row(Ask {
                workload: Some(workload),
                ..Ask::default()
            })?
            .number(field)
    };

    for (name, figure, title, with, without) in [
        (
            "fs_write",
            "fig5",
            "fs_write against write",
            "fs-write",
            "write",
        ),
        (
            "move",
            "fig6",
            "MOVE by remap against read and write",
            "move-remap",
            "move-readwrite",
        ),
    ] {
        // Throughput with several threads, latency with one.
        let (fast, slow) = (
            of(&format!("{with},threads=4"), "per_second")?,
            of(&format!("{without},threads=4"), "per_second")?,
        );
        let (short, long) = (
            of(&format!("{with},threads=1"), "latency_mean_us")?,
            of(&format!("{without},threads=1"), "latency_mean_us")?,
        );

        found.measure(format!("{name}_throughput"), fast / slow);
        found.measure(format!("{name}_latency"), short / long);
        found.measure(format!("{name}_latency_us"), short);
        found.measure(format!("{name}_baseline_latency_us"), long);
        found.measure(format!("{name}_per_s"), fast);
        found.measure(format!("{name}_baseline_per_s"), slow);

        let pair = |with: f64, without: f64| {
            vec![
                ("conventional".to_owned(), without),
                ("PebbleSSD".to_owned(), with),
            ]
        };

        let groups = vec![
            ("throughput, 4 threads".to_owned(), pair(fast / slow, 1.0)),
            ("latency, 1 thread".to_owned(), pair(short / long, 1.0)),
        ];

        found.plots.push(Plot {
            name: figure.into(),
            title: title.into(),
            reading:
                "Throughput of four threads and latency of one, over the conventional commands."
                    .into(),
            y: "times the conventional command".into(),
            shape: MarkKind::Bars(
                vec![Panel {
                    title: String::new(),
                    groups,
                }],
                Some(1.0),
            ),
        });
    }

    // Additional latency of the host interface that would give the paper's ratio of latencies.
    let (short, long) = (
        of("move-remap,threads=1", "latency_mean_us")?,
        of("move-readwrite,threads=1", "latency_mean_us")?,
    );
    // (short + x) / (long + 2 x) = 0.13
    found.measure(
        "move_fixed_cost_us_for_87_percent",
        (0.13 * long - short) / (1.0 - 0.26),
    );

    Ok(found)
}
