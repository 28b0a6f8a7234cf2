//! A comparison as terminal text, as an HTML page, and as JSON.
//!
//! Invariants: JSON and page do not depend on the machine: no real time, no thread, and paths only
//! as typed. Absent: tables and figures (`remap_ssd_sim::report`).

use super::args::Args;
use super::plan::{Plan, logical_bytes};
use crate::failure::Failure;
use crate::numbers::fraction;
use crate::output::{counted, pairs, table};
use remap_ssd_device::DeviceConfig;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::aging::FillSpec;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::report;
use remap_ssd_sim::report::format::{bytes, exact, percent, seconds};
use remap_ssd_sim::study::{Requests, RunResult, TraceReplay};
use remap_ssd_sim::summary::{Accounting, RunSummary};
use serde_json::{Value, json as object};

/// The version of the JSON: incremented when a field changes its meaning or is removed.
pub(super) const FORMAT_VERSION: u32 = 1;

/// The comparison as terminal text.
pub(super) fn text(args: &Args, plan: &Plan, done: &[RunResult]) -> String {
    let runs = summaries(done);
    let mut text = pairs(&heading(args, plan, done));
    text.push('\n');
    text.push_str(&report::table(&runs));
    if let Requests::Trace(trace) = plan.requests() {
        text.push('\n');
        text.push_str(&pairs(&served(trace, &runs)));
    }
    if args.until_death {
        text.push('\n');
        text.push_str(&lives(&runs));
    }
    if args.details {
        runs.iter()
            .for_each(|run| text.push_str(&format!("\n{}", report::details(run))));
    }
    text
}

/// Lifetime of each device, and the loss of its capacity.
fn lives(runs: &[RunSummary]) -> String {
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

    let rows: Vec<Vec<String>> = runs.iter().zip(report::labels(runs)).map(row).collect();

    let head = [
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

    table(&head, &rows)
}

/// The comparison as an HTML page.
pub(super) fn page(args: &Args, plan: &Plan, done: &[RunResult]) -> String {
    let heading = heading(args, plan, done);

    let subtitle = heading
        .iter()
        .map(|(label, text)| format!("{label}: {text}"))
        .collect::<Vec<_>>()
        .join(". ");

    let title = "Schemes of address remapping side by side";
    report::html(
        &summaries(done),
        title,
        &(subtitle + "."),
        &object!({
            "program": format!("remap-ssd {}", env!("CARGO_PKG_VERSION")),
            "command": args.command.join(" "),
            "decides": config(args, plan, done),
        }),
        args.seed,
        args.report_x,
    )
}

/// The comparison as JSON.
pub(super) fn json(
    args: &Args,
    plan: &Plan,
    done: &[RunResult],
    failed: &[(String, Failure)],
) -> Value {
    let run = |done: &RunResult| {
        let mut run = object!(done.summary);
        if let Value::Object(fields) = &mut run {
            // Real time depends on the machine, so results would differ.
            fields.remove("wall_s");
            fields.insert(
                "aging".into(),
                object!(done.aged.map(|aged| object!({
                    "filled": aged.filled,
                    "remapped": aged.remapped,
                    "overwritten": aged.overwritten,
                    "nvram_used": aged.nvram_used,
                    "nvram_valid": aged.nvram_valid,
                }))),
            );
            fields.insert("recovery".into(), object!(done.recovered));
        }

        run
    };

    let failure = |(scheme, failure): &(String, Failure)| object!({ "scheme": scheme, "error": failure.to_string() });

    object!({
        "format_version": FORMAT_VERSION,
        "program_version": env!("CARGO_PKG_VERSION"),
        "command": args.command,
        "runs": done.iter().map(run).collect::<Vec<_>>(),
        "failed": failed.iter().map(failure).collect::<Vec<_>>(),
        "config": config(args, plan, done),
        "seed": args.seed,
    })
}

fn summaries(done: &[RunResult]) -> Vec<RunSummary> {
    done.iter().map(|done| done.summary.clone()).collect()
}

/// Everything that determines the results besides the seed; the device is that of the first scheme.
fn config(args: &Args, plan: &Plan, done: &[RunResult]) -> Value {
    let first = done.first().map(|done| &done.config);

    let feed = match plan.requests() {
        Requests::Workload { workload, content } => {
            let mut feed = object!({
                "workload": workload.to_string(),
                "content": content.to_string(),
                "pages": done.first().and_then(|done| done.pages),
            });
            if let Some(job) = &args.job {
                feed["job_left_out"] = job.ignored.clone().into();
            }
            feed
        }
        Requests::Trace(trace) => object!({ "trace": trace_json(trace) }),
        Requests::Recording(_) => Value::Null,
    };

    // A device from an image was aged elsewhere.
    let aged_here = done.iter().any(|done| done.aged.is_some());

    object!({
        "schemes": done.iter().map(|done| done.summary.scheme.clone()).collect::<Vec<_>>(),
        "device": first,
        "scale": plan.scale,
        "feed": feed,
        "aging": aged_here.then(|| match (plan.aging.fill, args.aging) {
            (FillSpec::Sequential, _) => object!({ "fill": "sequential" }),
            (FillSpec::Ordered, _) => object!({ "fill": "ordered", "content": aging_content(plan) }),
            (_, None) => object!({ "content": aging_content(plan) }),
            (_, Some(spec)) => {
                let mut aging = object!(spec);
                aging["content"] = aging_content(plan).into();
                aging
            }
        }),
        "from_image": args.age.is_some(),
        "queue_depth": first.map(|config| args.queue_depth().unwrap_or(config.queue_depth)),
        "open_loop": args.arrivals.is_some(),
        "arrivals": args.arrivals.map(|arrivals| arrivals.to_string()),
    })
}

/// The contents written by aging.
fn aging_content(plan: &Plan) -> String {
    let content = plan.aging.content;
    content.map_or(String::new(), |content| content.to_string())
}

/// A trace as a part of the configuration; the file by name only, so that results do not depend on
/// its folder.
fn trace_json(trace: &TraceReplay) -> Value {
    let stat = trace.decoded.stat();
    object!({
        "file": file_name(trace),
        "format": trace.decoded.format().to_string(),
        "repeat": trace.repeat,
        "requests": trace.requests(),
        "contains": stat,
        "duplicate_share": stat.duplicate_share(),
        "fold": trace.options.fold.to_string(),
    })
}

fn file_name(trace: &TraceReplay) -> String {
    let name = trace.decoded.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The parameters of the comparison, in a few lines.
fn heading(args: &Args, plan: &Plan, done: &[RunResult]) -> Vec<(&'static str, String)> {
    // No run finished: there is no device to describe.
    let Some(first) = done.first() else {
        return Vec::new();
    };

    let config = &first.config;
    let addressable = plan.requests().pages(config.addressable_lpns());
    let addressable = counted(addressable.into(), "page");

    // The source of request times: the trace, a rate, or completions.
    let host = match args.arrivals {
        Some(Arrivals::OWN) => "requests enter at their own times".into(),
        Some(arrivals) => format!("arrivals {arrivals}"),
        None => format!(
            "queue depth {}",
            args.queue_depth().unwrap_or(config.queue_depth)
        ),
    };

    let mut lines = vec![("device", device_line(config, plan.scale))];
    match plan.requests() {
        Requests::Workload { workload, content } => {
            let length = first
                .pages
                .map_or("until the device is read-only".into(), |pages| {
                    format!("{} page operations", exact(pages))
                });

            lines.push((
                "workload",
                format!("{workload} over {addressable}, contents {content}, {length}, {host}"),
            ));

            let job = args.job.as_ref().filter(|job| !job.ignored.is_empty());
            lines.extend(job.map(|job| ("left out of the job", job.ignored.join(", "))));
        }
        Requests::Trace(trace) => {
            let times = if trace.repeat > 1 {
                format!(", {} times", trace.repeat)
            } else {
                String::new()
            };

            lines.push((
                "trace",
                format!(
                    "{} ({}){times}, folded ({}) into {addressable}, {host}",
                    file_name(trace),
                    trace.decoded.format(),
                    trace.options.fold
                ),
            ));
        }
        Requests::Recording(_) => {}
    }

    lines.push(("aging", aging_line(args, plan, first)));
    lines.push(("seed", args.seed.to_string()));
    lines
}

fn device_line(config: &DeviceConfig, scale: Option<f64>) -> String {
    let flash = u64::from(config.geometry.pages()) * PAGE_BYTES as u64;
    let scale = scale
        .map(|scale| format!(" at {}", fraction(scale)))
        .unwrap_or_default();
    format!(
        "{}{scale}: {} logical on {} of flash, {} of remapping metadata, deduplication {}",
        config.name,
        bytes(logical_bytes(config)),
        bytes(flash),
        bytes(config.firmware.log_bytes),
        if config.firmware.dedup { "on" } else { "off" }
    )
}

fn aging_line(args: &Args, plan: &Plan, done: &RunResult) -> String {
    match (&done.aged, &done.recovered) {
        (Some(aged), _) if plan.aging.fill == FillSpec::Sequential => {
            format!(
                "{} written once, in order",
                counted(aged.filled, "logical page")
            )
        }
        (Some(aged), _) if plan.aging.fill == FillSpec::Ordered => {
            format!(
                "{} written once, in order (contents {})",
                counted(aged.filled, "page"),
                aging_content(plan)
            )
        }
        (Some(aged), _) if args.aging.is_some() => format!(
            "{} (contents {}): {}, {} remapped, {} of the metadata used, {} of that valid",
            args.aging(),
            aging_content(plan),
            counted(aged.filled, "page") + " written",
            exact(aged.remapped),
            percent(aged.nvram_used),
            percent(aged.nvram_valid)
        ),

        (Some(_), _) => format!(
            "random writes (contents {}) until garbage collection has run, then remaps until 90 % of the metadata is used",
            aging_content(plan)
        ),

        (None, Some(report)) => {
            format!(
                "from an image: {} mapped, {} lost",
                counted(report.mapped, "page"),
                exact(report.lost)
            )
        }
        (None, None) => "none: the device was new".into(),
    }
}

/// Outcomes of a trace's requests. All schemes get the same requests, and mostly the outcomes are
/// the same.
fn served(trace: &TraceReplay, runs: &[RunSummary]) -> Vec<(String, String)> {
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

    lines.push((
        "pages".into(),
        format!(
            "{} in the trace, {} distinct; {} of the writes repeat a content; recorded over {}",
            exact(trace.pages() / u64::from(trace.repeat)),
            exact(trace.decoded.stat().unique_pages),
            percent(trace.decoded.stat().duplicate_share()),
            seconds(trace.decoded.stat().duration_ns as f64 / 1e9)
        ),
    ));

    lines
}
