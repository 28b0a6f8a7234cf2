//! A comparison's result as JSON and as an HTML page.
//!
//! Invariants: JSON and page do not depend on the machine: no real time, no thread, and paths only
//! as typed. Absent: tables and figures (`remap_ssd_sim::report`).

use crate::numbers::fraction;
use crate::plan::Plan;
use crate::{ComparisonSpec, Error};
use remap_ssd_device::DeviceConfig;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_sim::aging::FillSpec;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::report;
use remap_ssd_sim::report::format::{bytes, counted, exact, percent};
use remap_ssd_sim::report::sheet::{Sheet, TableForm};
use remap_ssd_sim::study::{Requests, RunResult, TraceReplay};
use remap_ssd_sim::summary::RunSummary;
use serde_json::{Value, json as object};

/// The version of a result's JSON: incremented when a field changes its meaning or is removed.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The comparison as an HTML page.
pub(crate) fn page(spec: &ComparisonSpec, plan: &Plan, done: &[RunResult]) -> String {
    let heading = heading(spec, plan, done);

    let subtitle = heading
        .iter()
        .map(|(label, text)| format!("{label}: {text}"))
        .collect::<Vec<_>>()
        .join(". ");

    let title = "Schemes of address remapping side by side";
    let timelines: Vec<_> = done.iter().map(|done| done.timeline.as_ref()).collect();
    report::html(
        &summaries(done),
        &timelines,
        title,
        &(subtitle + "."),
        &object!({
            "program": format!("remap-ssd {}", env!("CARGO_PKG_VERSION")),
            "command": spec.command.join(" "),
            "decides": config(spec, plan, done),
        }),
        spec.seed(),
        spec.report_x.unwrap_or_default(),
    )
}

/// The comparison's table for a paper.
pub(crate) fn sheet(
    spec: &ComparisonSpec,
    plan: &Plan,
    done: &[RunResult],
    form: TableForm,
) -> Sheet {
    let command = format!(
        "remap-ssd {}: {}",
        env!("CARGO_PKG_VERSION"),
        spec.command.join(" ")
    );

    let heading = heading(spec, plan, done);
    let lines = heading
        .iter()
        .map(|(label, text)| format!("{label}: {text}"));

    report::sheet(
        &summaries(done),
        &spec.show,
        form,
        std::iter::once(command).chain(lines).collect(),
    )
}

/// The comparison as JSON.
pub(crate) fn json(
    spec: &ComparisonSpec,
    plan: &Plan,
    done: &[RunResult],
    failed: &[(String, Error)],
) -> Value {
    let run = |done: &RunResult| {
        let mut run = object!(done.summary);
        if let Value::Object(fields) = &mut run {
            // Real time depends on the machine, so results would differ.
            fields.remove("wall_s");
            fields.insert("aging".into(), object!(done.aged));
            fields.insert("recovery".into(), object!(done.recovered));
        }

        run
    };

    let failure = |(scheme, failure): &(String, Error)| object!({ "scheme": scheme, "error": failure.to_string() });

    object!({
        "format_version": FORMAT_VERSION,
        "program_version": env!("CARGO_PKG_VERSION"),
        "command": spec.command,
        "runs": done.iter().map(run).collect::<Vec<_>>(),
        "remarks": remarks(spec, done),
        "failed": failed.iter().map(failure).collect::<Vec<_>>(),
        "config": config(spec, plan, done),
        "seed": spec.seed(),
    })
}

/// What must be said where the figures stand.
pub(crate) fn remarks(spec: &ComparisonSpec, done: &[RunResult]) -> Vec<String> {
    let runs = summaries(done);
    let mut remarks = report::remarks(&runs);
    if let Some(wanted) = &spec.precision {
        let labels = runs.iter().zip(report::labels(&runs));
        let missed: Vec<String> = labels
            .filter(|(run, _)| run.steady.is_precise == Some(false))
            .map(|(_, label)| label)
            .collect();
        if !missed.is_empty() {
            remarks.push(format!(
                "Not as precise as wanted ({wanted}), or not steady: {}.",
                missed.join(", ")
            ));
        }
    }
    remarks
}

pub(crate) fn summaries(done: &[RunResult]) -> Vec<RunSummary> {
    done.iter().map(|done| done.summary.clone()).collect()
}

/// Everything that determines the results besides the seed; the device is that of the first scheme.
fn config(spec: &ComparisonSpec, plan: &Plan, done: &[RunResult]) -> Value {
    let first = done.first().map(|done| &done.config);

    let feed = match plan.requests() {
        Requests::Workload { workload, content } => {
            let mut feed = object!({
                "workload": workload.to_string(),
                "content": content.to_string(),
                "pages": done
                    .first()
                    .filter(|_| spec.precision.is_none())
                    .and_then(|done| done.pages),
            });
            if let Some(job) = &spec.job {
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
        "aging": aged_here.then(|| match plan.aging.fill {
            FillSpec::Sequential => object!({ "fill": "sequential" }),
            FillSpec::Ordered => object!({ "fill": "ordered", "content": aging_content(plan) }),
            FillSpec::Random | FillSpec::Whole => {
                let mut aging = object!(plan.aging);
                aging["content"] = aging_content(plan).into();
                aging
            }
        }),
        "warm_up": spec.warm_up(),
        "precision": spec.precision.map(|precision| precision.to_string()),
        "from_image": spec.age.is_some(),
        "queue_depth": first.map(|config| spec.queue_depth().unwrap_or(config.queue_depth)),
        "open_loop": spec.arrivals.is_some(),
        "arrivals": spec.arrivals.map(|arrivals| arrivals.to_string()),
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
    let mut json = object!({
        "file": file_name(trace),
        "format": trace.decoded.format().to_string(),
        "repeat": trace.repeat,
        "requests": trace.requests(),
        "contains": stat,
        "duplicate_share": stat.duplicate_share(),
        "fold": trace.options.fold.to_string(),
    });
    if let Some(content) = trace.content {
        json["content"] = content.to_string().into();
    }
    json
}

fn file_name(trace: &TraceReplay) -> String {
    let name = trace.decoded.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The parameters of the comparison, in a few lines.
pub(crate) fn heading(
    spec: &ComparisonSpec,
    plan: &Plan,
    done: &[RunResult],
) -> Vec<(&'static str, String)> {
    // No run finished: there is no device to describe.
    let Some(first) = done.first() else {
        return Vec::new();
    };

    let config = &first.config;
    let addressable = plan.requests().pages(config.addressable_lpns());
    let addressable = counted(addressable, "page");

    // The source of request times: the trace, a rate, or completions.
    let host = match spec.arrivals {
        Some(Arrivals::OWN) => "requests enter at their own times".into(),
        Some(arrivals) => format!("arrivals {arrivals}"),
        None => format!(
            "queue depth {}",
            spec.queue_depth().unwrap_or(config.queue_depth)
        ),
    };

    let mut lines = vec![("device", device_line(config, plan.device_scale))];
    match plan.requests() {
        Requests::Workload { workload, content } => {
            let length = match (spec.precision, first.pages) {
                (Some(precision), _) => format!("until {precision}"),
                (None, Some(pages)) => format!("{} page operations", exact(pages)),
                (None, None) => "until the device is read-only".into(),
            };

            lines.push((
                "workload",
                format!("{workload} over {addressable}, contents {content}, {length}, {host}"),
            ));

            let job = spec.job.as_ref().filter(|job| !job.ignored.is_empty());
            lines.extend(job.map(|job| ("left out of the job", job.ignored.join(", "))));
        }
        Requests::Trace(trace) => {
            let times = if trace.repeat > 1 {
                format!(", {} times", trace.repeat)
            } else {
                String::new()
            };

            let contents = match trace.content {
                Some(content) => format!(", contents {content}"),
                None => String::new(),
            };

            lines.push((
                "trace",
                format!(
                    "{} ({}){times}, folded ({}) into {addressable}{contents}, {host}",
                    file_name(trace),
                    trace.decoded.format(),
                    trace.options.fold
                ),
            ));
        }
        Requests::Recording(_) => {}
    }

    lines.extend(aging_lines(spec, plan, done));
    lines.push(("seed", spec.seed().to_string()));
    lines
}

/// How the devices were aged, and how long each run was warmed up.
fn aging_lines(
    spec: &ComparisonSpec,
    plan: &Plan,
    done: &[RunResult],
) -> Vec<(&'static str, String)> {
    // A scheme that cannot remap has no metadata.
    let remapped = |done: &&RunResult| done.aged.is_some_and(|aged| aged.remapped > 0);
    let aged = done.iter().find(remapped).or(done.first());
    let mut lines: Vec<_> = aged
        .map(|done| ("aging", aging_line(plan, done)))
        .into_iter()
        .collect();

    if spec.warm_up() > 0.0 {
        let run = |done: &RunResult| counted(done.summary.steady.warm_up_pages, "page");
        let pages: Vec<String> = done.iter().map(run).collect();
        lines.push((
            "warm-up",
            format!(
                "the same workload, until write amplification is steady, for at most {} times the pages: {}",
                spec.warm_up(),
                pages.join(", ")
            ),
        ));
    }
    lines
}

/// The device's name and its scale.
pub(crate) fn device_name(config: &DeviceConfig, scale: Option<f64>) -> String {
    let scale = scale.map(|scale| format!(" at {}", fraction(scale)));
    format!("{}{}", config.name, scale.unwrap_or_default())
}

fn device_line(config: &DeviceConfig, scale: Option<f64>) -> String {
    let flash = config.flash_pages() * PAGE_BYTES as u64;
    let unit = match config.geometry.word_line().indirection_bytes {
        4096 => String::new(),
        unit => format!(" in units of {}", bytes(unit.into())),
    };
    format!(
        "{}: {} logical{unit} on {} of flash, {} of remapping metadata, deduplication {}",
        device_name(config, scale),
        bytes(logical_bytes(config)),
        bytes(flash),
        bytes(config.firmware.log_bytes),
        if config.firmware.dedup { "on" } else { "off" }
    )
}

fn aging_line(plan: &Plan, done: &RunResult) -> String {
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
        (Some(aged), _) => format!(
            "{}: {}, {} moved, {} of the metadata used, {} of that valid",
            plan.aging,
            counted(aged.filled + aged.overwritten, "page") + " written",
            exact(aged.remapped),
            percent(aged.nvram_used),
            percent(aged.nvram_valid)
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

/// Bytes addressable by hosts.
fn logical_bytes(config: &DeviceConfig) -> u64 {
    config.logical_pages() * PAGE_BYTES as u64
}
