//! One scheme's part of a comparison: its device, aging, the measured run.
//!
//! Invariants: everything depends only on plan and seed; every request of a trace was served,
//! refused with a reason, or the job has failed. Absent: other schemes.

use super::args::Args;
use super::plan::{Plan, RequestSource, Start, check_homes, pages_default, pages_of_a_life};
use super::replay::{OWN_CONTENTS, trace_options};
use super::watch::{Stoppable, Watch};
use crate::failure::Failure;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::RecoveryReport;
use remap_ssd_media::{ContentMode, image_file};
use remap_ssd_sim::aging::{AgingReport, age};
use remap_ssd_sim::cores::{Cores, Loan};
use remap_ssd_sim::run::{Progress, RunOptions, run};
use remap_ssd_sim::source::Source;
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use std::ops::ControlFlow;
use std::path::Path;

/// Result of a job.
#[derive(Debug)]
pub struct FinishedJob {
    /// The device it ran on.
    pub config: DeviceConfig,
    /// Report of aging, if the device was aged here.
    pub aged: Option<AgingReport>,
    /// Report of recovery, if the device came from an image.
    pub recovered: Option<RecoveryReport>,
    /// Pages requested of a synthetic workload.
    pub pages: Option<u64>,
    /// Measurements of the run, as in result files.
    pub summary: RunSummary,
}

/// Runs one scheme's part.
///
/// # Errors
/// Why there is no result.
pub fn job(
    args: &Args,
    plan: &Plan,
    start: &Start,
    cores: &Cores,
    bar: &dyn Watch,
) -> Result<FinishedJob, Failure> {
    let (mut device, aged, recovered) = match start {
        Start::Image(path) => {
            bar.set_message("recovering");
            let (device, report) = load(path)?;
            (device, None, Some(report))
        }
        Start::New { config, aged, save } => {
            bar.set_message("aging");

            let mut lean = (**config).clone();
            // Without deduplication page contents do not matter, unless the device is saved.
            if !lean.firmware.dedup && lean.content == ContentMode::Identity && save.is_none() {
                lean.content = ContentMode::None;
            }

            let (device, report) =
                new_device(args, &lean, aged.then_some(plan.aging_content), bar)?;

            if let Some(path) = save {
                bar.set_message("saving");
                device
                    .save(path)
                    .map_err(|error| Failure::about(path.display(), error))?;
            }

            (device, report, None)
        }
    };

    let config = match start {
        Start::New { config, .. } => (**config).clone(),
        Start::Image(_) => device.config().clone(),
    };

    // Known only now for an image, which has its own scheme.
    check_homes(config.firmware.scheme, &plan.feed)?;

    // Only now, since aging cannot use a second thread.
    let loan = cores.borrow();
    let threads = Loan::threads(loan.as_ref());
    let (summary, pages) = measure(args, plan, &mut device, threads, bar)?;

    Ok(FinishedJob {
        config,
        aged,
        recovered,
        pages,
        summary,
    })
}

/// A device at the start of a job, and its requests.
pub struct Staged {
    /// The device, aged if requested.
    pub device: Device,
    /// Its requests.
    pub source: Box<dyn Source>,
    /// Number of pages to take from the source.
    pub pages: u64,
    /// Short name of the source.
    pub title: String,
}

/// Prepares a job for callers that run it themselves.
///
/// # Errors
/// Why there is no device.
pub fn staged(args: &Args, plan: &Plan, start: &Start, bar: &dyn Watch) -> Result<Staged, Failure> {
    let device = match start {
        Start::Image(path) => load(path)?.0,
        Start::New { config, aged, .. } => {
            bar.set_message("aging");
            new_device(args, config, aged.then_some(plan.aging_content), bar)?.0
        }
    };

    // Checked before any request, as in `job`.
    check_homes(device.config().firmware.scheme, &plan.feed)?;
    let addressable = device.config().addressable_lpns();

    let (source, pages, title): (Box<dyn Source>, _, _) = match &plan.feed {
        RequestSource::Synthetic {
            spec,
            content,
            pages,
        } => {
            let base = content_base(content);
            let source = spec.source(*content, addressable, args.seed, base);

            let pages = pages.unwrap_or_else(|| pages_default(device.config()));
            (source.map_err(Failure::usage)?, pages, spec.to_string())
        }
        RequestSource::Trace(facts) => {
            let options = trace_options(args, addressable);
            let title = facts.path.display().to_string();
            // A trace has its own end.
            (Box::new(facts.replay(options)), u64::MAX, title)
        }
    };

    Ok(Staged {
        device,
        source,
        pages,
        title,
    })
}

/// The published model reuses the contents written by aging; other models use new ones.
fn content_base(content: &ContentModel) -> u64 {
    match content {
        ContentModel::Papers { .. } => 0,
        _ => OWN_CONTENTS,
    }
}

fn load(path: &Path) -> Result<(Device, RecoveryReport), Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::about(path.display(), error);
    let _lock = image_file::lock(path).map_err(|error| about(&error))?;
    Device::load(path).map_err(|error| about(&error))
}

fn new_device(
    args: &Args,
    config: &DeviceConfig,
    aging: Option<ContentModel>,
    bar: &dyn Watch,
) -> Result<(Device, Option<AgingReport>), Failure> {
    let mut device = Device::format(config.clone()).map_err(Failure::failed)?;
    // From the first write on: pages that die during aging count too.
    if args.survival {
        device.untimed(|ftl| ftl.watch_survival());
    }

    let Some(content) = aging else {
        return Ok((device, None));
    };

    let mut writes = Workload::new(WorkloadConfig {
        pattern: Pattern::Random,
        read_percent: 0,
        request_pages: 1,
        content,
        addressable: config.addressable_lpns(),
        // A seed other than the measured run's, so that addresses differ, with the same contents.
        // The number is "aging" in ASCII.
        seed: args.seed ^ 0x6167_696e_6700_0000,
        content_base: 0,
    })
    .map_err(Failure::usage)?;

    // The same arguments and seed give the same state, in any job.
    let options = args.aging().options(config.addressable_lpns(), args.seed);
    let mut writes = Stoppable {
        source: &mut writes,
        watch: bar,
    };

    let report = age(&mut device, &mut writes, &options).map_err(|error| {
        Failure::about(format_args!("scheme {}", config.firmware.scheme), error)
    })?;

    Ok((device, Some(report)))
}

fn measure(
    args: &Args,
    plan: &Plan,
    device: &mut Device,
    threads: u32,
    bar: &dyn Watch,
) -> Result<(RunSummary, Option<u64>), Failure> {
    let config = device.config();
    let (addressable, scheme) = (config.addressable_lpns(), config.firmware.scheme);
    let queue_depth = args.queue_depth().unwrap_or(config.queue_depth);
    let arrivals = args.arrivals;
    let bound = arrivals.and_then(|arrivals| arrivals.bound);
    let open_loop = arrivals.is_some();
    let options = |pages| RunOptions {
        pages,
        queue_depth,
        open_loop,
        bound,
        threads,
        ..RunOptions::default()
    };
    match &plan.feed {
        RequestSource::Synthetic {
            spec,
            content,
            pages,
        } => {
            let mut source = spec
                .source(*content, addressable, args.seed, content_base(content))
                .map_err(Failure::usage)?;
            let mut timed;
            let source: &mut dyn Source = match arrivals {
                Some(arrivals) => {
                    timed = arrivals
                        .over_workload(&mut *source, spec, args.seed)
                        .map_err(Failure::usage)?;
                    &mut timed
                }
                None => &mut *source,
            };
            if args.until_death {
                let options = RunOptions {
                    until_worn_out: true,
                    ..options(Some(pages_of_a_life(device.config())))
                };

                // A run until death has no result if the device survives.
                let summary = measured(device, source, &options, bar)?;
                return if summary.wear_out.read_only {
                    Ok((summary, None))
                } else {
                    Err(Failure::Failed(format!(
                        "scheme {scheme}: this workload does not wear the device out"
                    )))
                };
            }
            let pages = pages.unwrap_or_else(|| pages_default(device.config()));
            let summary = measured(device, source, &options(Some(pages)), bar)?;
            Ok((summary, Some(pages)))
        }
        RequestSource::Trace(facts) => {
            let mut source = facts.replay(trace_options(args, addressable));
            let mut summary = match arrivals {
                Some(arrivals) => measured(
                    device,
                    &mut arrivals.over_trace(&mut source, args.seed),
                    &options(None),
                    bar,
                )?,
                None => measured(device, &mut source, &options(None), bar)?,
            };

            // Records skipped during the replay are known only at the end.
            summary.requests.skipped = source.skipped();

            // Compared with the count from reading the trace: no request is lost silently.
            if summary.requests.submitted == facts.requests() {
                Ok((summary, None))
            } else {
                Err(Failure::about(
                    facts.path.display(),
                    format_args!(
                        "scheme {scheme} was given {} requests and the trace has {}",
                        summary.requests.submitted,
                        facts.requests()
                    ),
                ))
            }
        }
    }
}

fn measured(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
    bar: &dyn Watch,
) -> Result<RunSummary, Failure> {
    bar.set_message("measuring");
    bar.reset_elapsed();

    // With an unknown length the bar is full at once, and never beyond its end.
    let total = options.pages.or(source.len_hint()).unwrap_or(0).max(1);
    let mut tell = |progress: &Progress| {
        bar.set_position((progress.pages * super::BAR_STEPS / total).min(super::BAR_STEPS));
        if bar.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    run(device, source, options, &mut tell).map_err(Failure::failed)
}
