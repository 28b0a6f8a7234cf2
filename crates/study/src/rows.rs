//! Rows of a comparison, for its text.
//!
//! Absent: the table of all schemes, and the formats of numbers (`remap_ssd_sim::report`).

use remap_ssd_sim::report;
use remap_ssd_sim::report::format::{bytes, counted, exact, percent, seconds};
use remap_ssd_sim::study::TraceReplay;
use remap_ssd_sim::summary::{Accounting, RunSummary};

/// Columns of [`lives`].
pub(crate) const LIVES: [&str; 9] = [
    "until death",
    "host data to first retired",
    "to read-only",
    "life",
    "block erases",
    "blocks retired",
    "capacity < 100 %",
    "< 95 %",
    "read-only after",
];

/// Lifetime of each device, and the loss of its capacity.
pub(crate) fn lives(runs: &[RunSummary]) -> Vec<Vec<String>> {
    let row = |(run, label): (&RunSummary, String)| {
        let wear = &run.wear_out;

        // A device without retired blocks lost nothing before its end.
        let first = wear.first_retired_bytes.unwrap_or(wear.host_bytes);
        let whole = run.samples.first().map_or(0, |sample| sample.usable_pages) as f64;

        // The first time at which the capacity was below a share; "-" if never.
        let at = |share: f64| {
            let shrunk = run
                .samples
                .iter()
                .find(|sample| (sample.usable_pages as f64) < whole * share);
            shrunk.map_or("-".into(), |sample| seconds(sample.at_s))
        };

        let compared = runs.first().map_or(0.0, |base| {
            wear.host_bytes as f64 / base.wear_out.host_bytes as f64
        });

        let mut row = vec![
            label,
            bytes(first),
            bytes(wear.host_bytes),
            format!("{compared:.2}x"),
        ];

        row.extend([exact(wear.block_erases), exact(wear.blocks_retired)]);
        row.extend([at(1.0), at(0.95), seconds(run.seconds_simulated)]);
        row
    };

    runs.iter().zip(report::labels(runs)).map(row).collect()
}

/// Outcomes of a trace's requests. All schemes get the same requests, and mostly the outcomes are
/// the same.
pub(crate) fn served(trace: &TraceReplay, runs: &[RunSummary]) -> Vec<(String, String)> {
    let line = |requests: &Accounting| {
        let refused: u64 = requests.refused.values().sum();

        let mut text = format!(
            "{} of {} requests served: {} reads, {} writes, {} partial writes, {} deallocations",
            exact(requests.submitted - refused),
            exact(trace.requests()),
            exact(requests.reads),
            exact(requests.writes),
            exact(requests.read_modify_writes),
            exact(requests.trims)
        );

        for (reason, count) in &requests.refused {
            text.push_str(&format!("; {} refused ({reason})", exact(*count)));
        }

        if requests.skipped > 0 {
            text.push_str(&format!(
                "; {} malformed records skipped",
                exact(requests.skipped)
            ));
        }

        if trace.decoded.stat().ignored > 0 {
            text.push_str(&format!(
                "; no requests: {}",
                counted(trace.decoded.stat().ignored, "record")
            ));
        }

        text
    };

    let mut lines: Vec<(String, String)> = runs
        .iter()
        .map(|run| (run.scheme.clone(), line(&run.requests)))
        .collect();

    // Same outcomes for all schemes: one line for all.
    if lines.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        lines.truncate(1);
        lines.iter_mut().for_each(|line| line.0 = "requests".into());
    }

    let contents = match trace.content {
        Some(content) => format!("contents {content}"),
        None => {
            let share = trace.decoded.stat().duplicate_share();
            format!("{} of the writes repeat a content", percent(share))
        }
    };
    lines.push((
        "pages".into(),
        format!(
            "{} in the trace, {} distinct; {contents}; recorded over {}",
            exact(trace.pages() / u64::from(trace.repeat)),
            exact(trace.decoded.stat().unique_pages),
            seconds(trace.decoded.stat().duration_ns as f64 / 1e9)
        ),
    ));

    lines
}
