//! Execution of a run.

use super::error::StudyError;
use super::requests::Requests;
use super::spec::{Length, Lifetimes, RunSpec, Start};
use super::stage::{Follow, Stage, Staged};
use crate::aging::AgingReport;
use crate::cores::{Cores, Loan};
use crate::run::{Progress, RunOptions, run, warm_up};
use crate::source::Source;
use crate::summary::RunSummary;
use crate::timeline::{DieTimeline, TimelineWindow};
use remap_ssd_device::config::TimingEngine;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::{RecoveryReport, Usage};
use remap_ssd_media::ContentMode;
use std::borrow::Cow;

/// Pages between two looks at the state of a warm-up, in multiples of the addressed pages.
const WARM_UP_ROUND: f64 = 0.5;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The device that was measured.
    pub config: DeviceConfig,
    /// How it was aged, if it was.
    pub aged: Option<AgingReport>,
    /// How it was recovered, if it came from an image.
    pub recovered: Option<RecoveryReport>,
    /// Pages requested of a workload; `None` if something else ended it.
    pub pages: Option<u64>,
    /// The measurements.
    pub summary: RunSummary,
    /// What dies did, if that was kept.
    pub timeline: Option<DieTimeline>,
    /// The remapping metadata at the end.
    pub usage: Usage,
}

impl RunSpec {
    /// Executes the run, with a second thread where one can be borrowed and changes no result.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn perform(&self, cores: &Cores, follow: &mut Follow<'_>) -> Result<RunResult, StudyError> {
        let (result, _) = self.perform_on(&self.lean(), cores, follow)?;
        Ok(result)
    }

    /// The same, and the device after it, with its contents.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn perform_keeping(
        &self,
        cores: &Cores,
        follow: &mut Follow<'_>,
    ) -> Result<(RunResult, Device), StudyError> {
        self.perform_on(self, cores, follow)
    }

    /// Executes the run on the device that `staged` describes.
    fn perform_on(
        &self,
        staged: &Self,
        cores: &Cores,
        follow: &mut Follow<'_>,
    ) -> Result<(RunResult, Device), StudyError> {
        if let Some(new) = self.new_device() {
            self.check_scheme(new.config.firmware.scheme)?;
            self.check_timeline(new.config.timing.engine)?;
        }
        let Staged {
            mut device,
            aged,
            recovered,
        } = staged.stage(follow)?;
        // Known only now for an image, which has its own scheme.
        self.check_scheme(device.config().firmware.scheme)?;

        if let Some(path) = self.new_device().and_then(|new| new.save.as_ref()) {
            let _ = follow(Stage::Saving);
            device
                .save(path)
                .map_err(|error| StudyError::about(path.display(), error))?;
        }
        // Only now, since aging cannot use a second thread.
        let loan = cores.borrow();
        let threads = Loan::threads(loan.as_ref());
        let (summary, timeline, pages) = self.measure(&mut device, threads, follow)?;

        let result = RunResult {
            config: match self.new_device() {
                Some(new) => new.config.clone(),
                None => device.config().clone(),
            },
            aged,
            recovered,
            pages,
            summary,
            timeline,
            usage: device.ftl().usage(),
        };
        Ok((result, device))
    }

    /// The same run without contents, where nothing depends on them: deduplication needs them, and
    /// a saved device has them.
    fn lean(&self) -> Cow<'_, Self> {
        match &self.start {
            Start::New(new)
                if !new.config.firmware.dedup
                    && new.config.content == ContentMode::Identity
                    && new.save.is_none() =>
            {
                let mut lean = new.clone();
                lean.config.content = ContentMode::None;
                Cow::Owned(Self {
                    start: Start::New(lean),
                    ..self.clone()
                })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// Executes requests until the firmware is in their steady state. Returns the number of pages.
    fn warm_up(
        &self,
        device: &mut Device,
        source: &mut dyn Source,
        follow: &mut Follow<'_>,
    ) -> Result<u64, StudyError> {
        let addressable = device.config().addressable_lpns();
        let Requests::Workload { workload, .. } = &self.requests else {
            return Ok(0);
        };
        if self.warm_up <= 0.0 {
            return Ok(0);
        }

        let addressed = workload.pages(addressable) as f64;
        let max = (addressed * self.warm_up) as u64;
        let round = (addressed * WARM_UP_ROUND) as u64;
        let mut tell = |_: &Progress| follow(Stage::Aging);

        let pages = match &self.arrivals {
            None => warm_up(device, source, round, max, &mut tell).map_err(StudyError::failed)?,
            Some(arrivals) => {
                // Not the arrivals of the measured run again.
                let timed = arrivals.over_workload(source, workload, !self.seed);
                let mut timed = timed.map_err(StudyError::impossible)?;
                let options = RunOptions {
                    pages: Some(max),
                    warm_up_round: Some(round),
                    open_loop: true,
                    bound: arrivals.bound,
                    bursts: arrivals.bursts(),
                    ..RunOptions::default()
                };
                let mut pages = 0;
                let mut tell = |progress: &Progress| {
                    pages = progress.pages;
                    tell(progress)
                };
                run(device, &mut timed, &options, &mut tell).map_err(StudyError::failed)?;
                pages
            }
        };

        if device.ftl().is_read_only() {
            return Err(StudyError::Failed(format!(
                "scheme {}: the device was worn out before the measurement",
                device.config().firmware.scheme
            )));
        }
        Ok(pages)
    }

    /// The options of a run of `pages` on a device with this configuration.
    fn options(&self, config: &DeviceConfig, pages: Option<u64>, threads: u32) -> RunOptions {
        RunOptions {
            pages: match self.length {
                // A hundred times the endurance of all blocks.
                Length::UntilWornOut => Some(100 * config.flash.endurance * config.flash_pages()),
                Length::Usual | Length::Pages(_) | Length::Precise(_) => pages,
            },
            precision: match self.length {
                Length::Precise(precision) => {
                    let addressed = self.requests.pages(config.addressable_lpns());
                    Some((precision, addressed))
                }
                Length::Usual | Length::Pages(_) | Length::UntilWornOut => None,
            },
            until_worn_out: self.length == Length::UntilWornOut,
            queue_depth: self.queue_depth.unwrap_or(config.queue_depth),
            host_ns: config.host_ns,
            open_loop: self.arrivals.is_some(),
            bound: self.arrivals.and_then(|arrivals| arrivals.bound),
            bursts: self.arrivals.and_then(|arrivals| arrivals.bursts()),
            threads,
            ..RunOptions::default()
        }
    }

    fn measure(
        &self,
        device: &mut Device,
        threads: u32,
        follow: &mut Follow<'_>,
    ) -> Result<(RunSummary, Option<DieTimeline>, Option<u64>), StudyError> {
        let config = device.config();
        let (addressable, scheme) = (config.addressable_lpns(), config.firmware.scheme);
        let pages = self.pages(config);
        let options = self.options(config, pages, threads);

        let mut source = self.requests.source(addressable, self.seed)?;
        let warm_up_pages = self.warm_up(device, &mut *source, follow)?;
        if self.lifetimes == Lifetimes::OfRun {
            device.untimed(|ftl| ftl.watch_survival());
        }
        let mut tell = |progress: &Progress| follow(Stage::Measuring(*progress));
        let start = self.keep_timeline(device)?;

        let summary = match (&self.arrivals, &self.requests) {
            (None, _) => run(device, &mut *source, &options, &mut tell),
            (Some(arrivals), Requests::Workload { workload, .. }) => {
                let timed = arrivals.over_workload(&mut *source, workload, self.seed);
                let mut timed = timed.map_err(StudyError::impossible)?;
                run(device, &mut timed, &options, &mut tell)
            }
            (Some(arrivals), Requests::Trace(_) | Requests::Recording(_)) => {
                let mut timed = arrivals.over_trace(&mut *source, self.seed);
                run(device, &mut timed, &options, &mut tell)
            }
        };
        let mut summary = summary.map_err(StudyError::failed)?;
        summary.steady.warm_up_pages = warm_up_pages;
        summary.steady.is_precise = options
            .precision
            .map(|(wanted, _)| wanted.is_reached(&summary));

        // A run until death has no result if the device survives.
        if self.length == Length::UntilWornOut && !summary.wear_out.read_only {
            return Err(StudyError::Failed(format!(
                "scheme {scheme}: this workload does not wear the device out"
            )));
        }

        // Compared with the count from reading the trace: no request is lost silently.
        if let (Requests::Trace(trace), Length::Usual) = (&self.requests, self.length)
            && summary.requests.submitted != trace.requests()
        {
            return Err(StudyError::about(
                trace.decoded.path().display(),
                format_args!(
                    "scheme {scheme} was given {} requests and the trace has {}",
                    summary.requests.submitted,
                    trace.requests()
                ),
            ));
        }

        Ok((summary, self.timeline_since(device, start), pages))
    }

    /// Begins to keep what dies do, if that is wanted. Returns the beginning of the run.
    fn keep_timeline(&self, device: &mut Device) -> Result<u64, StudyError> {
        let Some(window) = self.timeline else {
            return Ok(0);
        };
        self.check_timeline(device.config().timing.engine)?;
        let nand = device.nand().expect("the device has this engine");
        let start = nand.settle();
        nand.keep_timeline(Some(window.keep(start)));
        Ok(start)
    }

    fn check_timeline(&self, engine: TimingEngine) -> Result<(), StudyError> {
        match (self.timeline, engine) {
            (Some(_), TimingEngine::Published) => Err(StudyError::impossible(
                "what dies do is known with timing.engine = \"nand\" alone",
            )),
            _ => Ok(()),
        }
    }

    /// `None` too if the window begins after the last request has entered.
    fn timeline_since(&self, device: &mut Device, start: u64) -> Option<DieTimeline> {
        let (window, nand) = (self.timeline?, device.nand()?);
        let used = nand.utilisation();
        let kept = nand.take_timeline()?;
        let end = kept.until().min(used.at);
        let length = end - start;
        let is_within = !matches!(window, TimelineWindow::From(from, _) if from >= length);
        is_within.then(|| DieTimeline::new(window, &kept, used.dies, (start, end)))
    }
}
