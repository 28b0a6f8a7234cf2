//! Copyless Copy figures 4 to 6: CCAW against DEDUP (OrderMergeDedup), by window and deduplication
//! ratio.
//!
//! Latencies and their ratios depend on dies and flushes, which the paper does not give (`--variants`).

use super::{Findings, least, most};
use crate::LabError;
use crate::plot::{Lines, MarkKind, Panel, Plot};
use crate::table::{Ask, Row, Table};

const WINDOWS: [u32; 4] = [1, 10, 100, 1000];
const RATIOS: [&str; 2] = ["2", "8"];
/// Duplicate ratios measured without windows: the host never waits for a flush.
const CONTINUOUS: [&str; 4] = ["1.25", "2", "4", "8"];
const SEGMENTS: [(&str, &str); 3] = [
    ("Segment I, 1.42", "mail:1.42"),
    ("Segment II, 1.55, read mostly", "mail:1.55:0.8"),
    ("Segment III, 4.22", "mail:4.22"),
];

pub(super) fn analyse(table: &Table) -> Result<Findings, LabError> {
    let mut found = Findings::default();
    continuous(table, &mut found)?;
    windows(table, &mut found)?;
    latencies(table, &mut found)?;
    mail(table, &mut found)?;
    plots(table, &mut found)?;
    Ok(found)
}

fn row<'a>(table: &'a Table, workload: &str, content: &str) -> Result<&'a Row, LabError> {
    // CCAW runs on the paper's own device; DEDUP and plain writes issue no remaps.
    let scheme = if workload.starts_with("ccaw") {
        "shadow-oob"
    } else {
        "none"
    };
    let setup = Some("dedup");
    table.row(Ask {
        setup,
        workload: Some(workload),
        content: Some(content),
        scheme: Some(scheme),
        ..Ask::default()
    })
}

fn speed(table: &Table, workload: &str, content: &str) -> Result<f64, LabError> {
    row(table, workload, content)?.number("per_second")
}

/// Without windows: gains over a device without deduplication, and their fraction of 1 / (1 -
/// conversion ratio).
fn continuous(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    // Without deduplication the ratio of the contents does not matter.
    let plain = speed(table, "plain,window=0", "ratio:2")?;
    let mut shares = Vec::new();
    for name in CONTINUOUS {
        let run = row(table, "ccaw,window=0", &format!("ratio:{name}"))?;
        let gain = run.number("per_second")? / plain;
        let converted = run.number("duplicates")?;
        found.measure(format!("gain_{name}"), gain);
        found.measure(format!("converted_{name}"), converted);
        found.measure(format!("of_ideal_{name}"), gain * (1.0 - converted));
        found.measure(format!("programs_{name}"), run.number("programs")?);
        found.measure(format!("demoted_{name}"), run.number("demoted")?);
        shares.push(gain * (1.0 - converted));
    }
    found.measure("of_ideal_least", least(&shares));
    found.measure("of_ideal_most", most(&shares));

    let deep = |workload: &str, content: &str| {
        let (setup, workload, content) = (Some("dedup-deep"), Some(workload), Some(content));
        table.row(Ask {
            setup,
            workload,
            content,
            ..Ask::default()
        })
    };
    let plain = deep("plain,window=0", "ratio:2")?.number("per_second")?;
    for name in ["2", "4", "8"] {
        let run = deep("ccaw,window=0", &format!("ratio:{name}"))?;
        let gain = run.number("per_second")? / plain;
        found.measure(format!("deep_gain_{name}"), gain);
        found.measure(
            format!("deep_of_ideal_{name}"),
            gain * (1.0 - run.number("duplicates")?),
        );
    }
    Ok(())
}

/// CCAW over DEDUP by window.
fn windows(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    for ratio in RATIOS {
        let content = format!("ratio:{ratio}");
        for window in WINDOWS {
            let ccaw = row(table, &format!("ccaw,window={window}"), &content)?;
            let dedup = row(table, &format!("ordermerge,window={window}"), &content)?;

            let workload = format!("ccaw,window={window}");
            let ask = Ask {
                workload: Some(&workload),
                content: Some(&content),
                scheme: Some("remap-ssd"),
                ..Ask::default()
            };
            let ours = table.row(ask)?;

            let gain = ccaw.number("per_second")? / dedup.number("per_second")?;
            found.measure(format!("over_dedup_{ratio}_{window}"), gain);
            found.measure(
                format!("remap_ssd_over_dedup_{ratio}_{window}"),
                ours.number("per_second")? / dedup.number("per_second")?,
            );

            for (arm, row) in [("ccaw", ccaw), ("dedup", dedup)] {
                for name in [
                    "programs",
                    "metadata_pages",
                    "flushes",
                    "per_second",
                    "latency_mean_ms",
                ] {
                    found.measure(format!("{name}_{ratio}_{window} {arm}"), row.number(name)?);
                }
            }
            let pages = dedup.number("programs")? / ccaw.number("programs")?;
            found.measure(format!("pages_over_ccaw_{ratio}_{window}"), pages);
        }
    }

    // The price of comparing bytes before a page is shared, as for a hash with known collisions.
    let compared = speed(table, "ccaw,window=100,compare", "ratio:2")?;
    found.measure(
        "compare_share",
        compared / speed(table, "ccaw,window=100", "ratio:2")?,
    );
    found.measure(
        "compare_over_dedup",
        compared / speed(table, "ordermerge,window=100,compare", "ratio:2")?,
    );
    Ok(())
}

/// A run's latencies, ascending.
fn distribution<'a>(table: &'a Table, workload: &str) -> Result<(&'a Row, Vec<f64>), LabError> {
    let row = row(table, workload, "ratio:2")?;
    let list = row
        .result
        .get("latency_ms")
        .and_then(|value| value.as_array());
    let list: Option<Vec<f64>> =
        list.and_then(|list| list.iter().map(serde_json::Value::as_f64).collect());
    match list.filter(|list| !list.is_empty()) {
        Some(list) => Ok((row, list)),
        None => Err(LabError::Failed(format!(
            "run `{}` has no latencies",
            row.run.title()
        ))),
    }
}

/// Fraction of requests with at most this latency.
fn share_within(distribution: &[f64], ms: f64) -> f64 {
    distribution.partition_point(|latency| *latency <= ms) as f64 / distribution.len() as f64
}

/// The latency not exceeded by this fraction of the requests.
fn quantile(distribution: &[f64], share: f64) -> f64 {
    distribution[((distribution.len() - 1) as f64 * share).round() as usize]
}

fn latencies(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let (ccaw, ccaw_ms) = distribution(table, "ccaw,window=100")?;
    let (dedup, dedup_ms) = distribution(table, "ordermerge,window=100")?;
    let (short, short_ms) = distribution(table, "ordermerge,window=10")?;

    let p80 = quantile(&ccaw_ms, 0.8);

    // CC5: shares within 10 ms at window 100, and how much of its throughput DEDUP keeps with a window of 10.
    found.measure("ccaw_within_10_ms", share_within(&ccaw_ms, 10.0));
    found.measure("dedup_within_10_ms", share_within(&dedup_ms, 10.0));
    found.measure("dedup_within_ccaw_p80", share_within(&dedup_ms, p80));
    found.measure("ccaw_p80_ms", p80);
    found.measure("dedup_p80_ms", quantile(&dedup_ms, 0.8));
    found.measure("dedup_p80_ms_10", quantile(&short_ms, 0.8));

    found.measure(
        "dedup_10_p80_over_ccaw_100_p80",
        quantile(&short_ms, 0.8) / p80,
    );
    found.measure(
        "dedup_10_over_100",
        short.number("per_second")? / dedup.number("per_second")?,
    );
    found.measure(
        "mean_over_ccaw",
        dedup.number("latency_mean_ms")? / ccaw.number("latency_mean_ms")?,
    );

    Ok(())
}

fn mail(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let mut gains = Vec::new();
    for (index, (_, content)) in SEGMENTS.into_iter().enumerate() {
        for window in WINDOWS {
            let ccaw = row(table, &format!("ccaw,window={window}"), content)?;
            let dedup = row(table, &format!("ordermerge,window={window}"), content)?;
            let gain = ccaw.number("per_second")? / dedup.number("per_second")?;
            found.measure(format!("mail_{}_{window}", index + 1), gain);
            found.measure(
                format!("mail_duplicates_{}", index + 1),
                ccaw.number("duplicates")?,
            );
            gains.push(gain);
        }
    }
    found.measure("mail_least", least(&gains));
    found.measure("mail_most", most(&gains));
    Ok(())
}

fn plots(table: &Table, found: &mut Findings) -> Result<(), LabError> {
    let panel = |title: &str, content: &str| {
        let mut groups = Vec::new();
        for window in WINDOWS {
            let bars = [("CCAW", "ccaw"), ("DEDUP", "ordermerge")].map(|(name, arm)| {
                Ok((
                    name.to_owned(),
                    speed(table, &format!("{arm},window={window}"), content)? / 1e3,
                ))
            });
            groups.push((
                window.to_string(),
                bars.into_iter().collect::<Result<Vec<_>, LabError>>()?,
            ));
        }
        Ok::<_, LabError>(Panel {
            title: title.into(),
            groups,
        })
    };
    found.plots.push(Plot {
        name: "fig4".into(),
        title: "Throughput of random writes".into(),
        reading: "By window, in pages; left with deduplication ratio 2, right with 8.".into(),
        y: "thousand writes a second".into(),
        shape: MarkKind::Bars(
            vec![panel("ratio 2", "ratio:2")?, panel("ratio 8", "ratio:8")?],
            None,
        ),
    });

    let mut lines = Vec::new();
    for (name, workload) in [
        ("CCAW, window 10", "ccaw,window=10"),
        ("CCAW, window 100", "ccaw,window=100"),
        ("DEDUP, window 10", "ordermerge,window=10"),
        ("DEDUP, window 100", "ordermerge,window=100"),
    ] {
        let (_, list) = distribution(table, workload)?;
        let last = (list.len() - 1) as f64;
        lines.push((
            name.to_owned(),
            (0..)
                .zip(&list)
                .map(|(index, ms)| (*ms, f64::from(index) / last))
                .collect(),
        ));
    }
    found.plots.push(Plot {
        name: "fig5".into(),
        title: "Latency of writes at deduplication ratio 2".into(),
        reading: "Share of the writes that take no longer, from entering a window to its end."
            .into(),
        y: "share of writes".into(),
        shape: MarkKind::Lines(Lines {
            x: "milliseconds".into(),
            logarithmic: false,
            lines,
            points: Vec::new(),
        }),
    });

    let panels = SEGMENTS
        .into_iter()
        .map(|(title, content)| panel(title, content));
    found.plots.push(Plot {
        name: "fig6".into(),
        title: "Throughput of a mail server's requests, as a model has them".into(),
        reading: "By window, in pages; three days of different deduplication ratios. No trace: a generator fitted to FIU mail.".into(),
        y: "thousand requests a second".into(),
        shape: MarkKind::Bars(panels.collect::<Result<_, _>>()?, None),
    });
    Ok(())
}
