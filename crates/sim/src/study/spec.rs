//! The description of a run.

use super::error::StudyError;
use super::requests::Requests;
use crate::aging::AgingSpec;
use crate::arrivals::Arrivals;
use crate::precision::Precision;
use crate::timeline::TimelineWindow;
use crate::workload::{ContentModel, NamedWorkload};
use remap_ssd_device::{DeviceConfig, SchemeKind};
use remap_ssd_ftl::Survival;
use std::path::PathBuf;

/// Multiples of the addressed pages after which a warm-up ends, though its load is not steady.
pub const WARM_UP: f64 = 16.0;

/// All parameters that determine a run's result.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The device before the measurement.
    pub start: Start,
    /// The requests that it gets.
    pub requests: Requests,
    /// Arrival times of requests; `None`: a request enters when an earlier one completes.
    pub arrivals: Option<Arrivals>,
    /// Requests in flight without arrival times; `None`: the device's.
    pub queue_depth: Option<u32>,
    /// Maximum pages executed before the measurement, until the firmware is in the steady state of a
    /// workload, in multiples of the pages that it addresses; 0: none. A trace has no warm-up.
    pub warm_up: f64,
    /// Until when the run is measured.
    pub length: Length,
    /// Pages whose lifetimes are tracked.
    pub lifetimes: Lifetimes,
    /// The window in which it is kept what dies do, with the engine `nand`.
    pub timeline: Option<TimelineWindow>,
    /// Seed of all random draws.
    pub seed: u64,
}

/// The device before the measurement.
#[derive(Clone, Debug)]
pub enum Start {
    /// A new device.
    New(Box<NewDevice>),
    /// A saved image.
    Image(PathBuf),
}

/// A new device.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// Its configuration.
    pub config: DeviceConfig,
    /// How it is aged; `None`: it is measured as it is.
    pub aging: Option<AgingSpec>,
    /// The file to save it to before it is measured.
    pub save: Option<PathBuf>,
}

/// Until when a run is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Length {
    /// Twice the pages that a workload addresses; all of a trace or recording.
    #[default]
    Usual,
    /// This many.
    Pages(u64),
    /// As many as a figure needs to be this precise: from half to 32 times the usual number.
    Precise(Precision),
    /// Until the device is worn out and refuses a write.
    UntilWornOut,
}

/// Pages whose lifetimes are tracked, at 12 bytes for each flash page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetimes {
    /// None.
    #[default]
    Untracked,
    /// Those written from the first write on: pages that die during aging count too.
    OfAll,
    /// Those written in the measured part.
    OfRun,
}

impl RunSpec {
    /// A workload with its usual contents, on a new device that is aged as in FAST'21.
    pub fn new(config: DeviceConfig, workload: NamedWorkload) -> Self {
        Self {
            start: Start::New(Box::new(NewDevice {
                config,
                aging: Some(AgingSpec::default()),
                save: None,
            })),
            requests: Requests::Workload {
                workload,
                content: workload.content_default(),
            },
            arrivals: None,
            queue_depth: None,
            warm_up: WARM_UP,
            length: Length::default(),
            lifetimes: Lifetimes::default(),
            timeline: None,
            seed: 1,
        }
    }

    /// The new device; `None` for an image.
    pub fn new_device(&self) -> Option<&NewDevice> {
        match &self.start {
            Start::New(device) => Some(device),
            Start::Image(_) => None,
        }
    }

    /// Maximum number of pages requested on a device; `None` if something else ends the run.
    pub fn pages(&self, config: &DeviceConfig) -> Option<u64> {
        match (self.length, &self.requests) {
            (Length::Pages(pages), _) => Some(pages),
            (Length::Usual, Requests::Workload { workload, .. }) => {
                Some(2 * workload.pages(config.addressable_lpns()))
            }
            (Length::Precise(_), Requests::Workload { workload, .. }) => {
                Some(64 * workload.pages(config.addressable_lpns()))
            }
            (Length::Usual | Length::Precise(_), Requests::Trace(_) | Requests::Recording(_))
            | (Length::UntilWornOut, _) => None,
        }
    }

    /// Checks that the requests make sense for a scheme.
    ///
    /// # Errors
    /// It remaps only pages that were written for a home, and the workload names none.
    pub fn check_scheme(&self, scheme: SchemeKind) -> Result<(), StudyError> {
        if scheme.uses_hints() && !self.requests.names_homes() {
            Err(StudyError::Impossible(format!(
                "scheme {scheme} remaps only pages that were written for a home, and this workload names none: use \
                 --workload journal, or another scheme"
            )))
        } else {
            Ok(())
        }
    }

    /// Checks the requests on a new device. An image is checked when it is loaded.
    ///
    /// # Errors
    /// The workload has no times of its own, or it or its contents are impossible on this device.
    pub fn check_requests(&self) -> Result<(), StudyError> {
        if let Some(arrivals) = &self.arrivals {
            self.requests.check_arrivals(arrivals)?;
        }
        // A trace was read to its end: only drawn requests and contents can be impossible.
        if let (Some(_), Some(device)) = (self.requests.content(), self.new_device()) {
            let addressable = device.config.addressable_lpns();
            self.requests.source(addressable, self.seed)?;
        }
        Ok(())
    }

    /// Upper estimate of its memory, in bytes; `None` for an image, whose size is in the file.
    pub fn memory_bytes(&self) -> Option<u64> {
        /// Memory of a run besides its device.
        const RUN_BYTES: u64 = 4 << 20;

        let config = &self.new_device()?.config;
        let per_page = match self.lifetimes {
            Lifetimes::Untracked => 0,
            Lifetimes::OfAll | Lifetimes::OfRun => Survival::BYTES_PER_PAGE as u64,
        };
        let per_lpn = match (self.requests.content(), &self.requests) {
            // These models store contents by page, and the pages that a trace has written.
            (Some(ContentModel::Plain { .. } | ContentModel::Runs { .. }), requests) => {
                if matches!(requests, Requests::Trace(_)) {
                    18
                } else {
                    8
                }
            }
            (Some(ContentModel::Measured { .. }), _) => 8,
            // The others compute them.
            _ => 0,
        };

        Some(
            RUN_BYTES
                + config.memory_bytes()
                + u64::from(config.geometry.pages()) * per_page
                + config.logical_pages() * per_lpn,
        )
    }
}
