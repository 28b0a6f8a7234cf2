//! The device of a run before it is measured.

use super::error::StudyError;
use super::spec::{Lifetimes, NewDevice, RunSpec, Start};
use crate::aging::{AgingReport, AgingSpec, FILL_CONTENTS, FillSpec, age};
use crate::run::Progress;
use crate::source::{HostPage, Source, SourceError};
use crate::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use remap_ssd_device::Device;
use remap_ssd_ftl::RecoveryReport;
use remap_ssd_media::image_file;
use std::ops::ControlFlow;

/// Current activity of a run.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// The image is loaded, as after a power cut.
    Recovering,
    /// The device is aged.
    Aging,
    /// The device is saved.
    Saving,
    /// Requests are measured.
    Measuring(Progress),
}

/// Called when a stage begins, and every few thousand pages while it lasts; `Break` stops the run.
pub type Follow<'a> = dyn FnMut(Stage) -> ControlFlow<()> + 'a;

/// A device ready to be measured.
pub struct Staged {
    /// The device.
    pub device: Device,
    /// How it was aged, if it was.
    pub aged: Option<AgingReport>,
    /// How it was recovered, if it came from an image.
    pub recovered: Option<RecoveryReport>,
}

impl RunSpec {
    /// Formats and ages the device, or loads its image. `save` has no effect here.
    ///
    /// # Errors
    /// Why there is no device.
    pub fn stage(&self, follow: &mut Follow<'_>) -> Result<Staged, StudyError> {
        match &self.start {
            Start::New(new) => self.format(new, follow),
            Start::Image(path) => {
                let _ = follow(Stage::Recovering);
                let about =
                    |error: &dyn std::fmt::Display| StudyError::about(path.display(), error);
                let _lock = image_file::lock(path).map_err(|error| about(&error))?;
                let (device, report) = Device::load(path).map_err(|error| about(&error))?;
                Ok(Staged {
                    device,
                    aged: None,
                    recovered: Some(report),
                })
            }
        }
    }

    fn format(&self, new: &NewDevice, follow: &mut Follow<'_>) -> Result<Staged, StudyError> {
        let mut device = Device::format(new.config.clone()).map_err(StudyError::failed)?;
        if self.lifetimes == Lifetimes::OfAll {
            device.untimed(|ftl| ftl.watch_survival());
        }

        let aged = match &new.aging {
            Some(aging) => Some(self.age(&mut device, aging, follow)?),
            None => None,
        };

        Ok(Staged {
            device,
            aged,
            recovered: None,
        })
    }

    fn age(
        &self,
        device: &mut Device,
        aging: &AgingSpec,
        follow: &mut Follow<'_>,
    ) -> Result<AgingReport, StudyError> {
        let addressable = device.config().addressable_lpns();
        // A device filled whole has the pages that the run addresses, and no others.
        let addressable = match aging.fill {
            FillSpec::Whole => self.requests.pages(addressable),
            FillSpec::Random | FillSpec::Sequential | FillSpec::Ordered => addressable,
        };
        // Aging writes whole indirection units.
        let units = addressable.div_ceil(device.config().geometry.host_pages().into());
        let units = u32::try_from(units).expect("a device has fewer than 2^31 units");

        let content = aging.content.unwrap_or(ContentModel::Unique);
        let mut writes = Workload::new(WorkloadConfig {
            pattern: match aging.fill {
                FillSpec::Ordered => Pattern::Sequential,
                FillSpec::Random | FillSpec::Whole | FillSpec::Sequential => Pattern::Random,
            },
            read_percent: 0,
            request_pages: 1,
            content,
            addressable: units.into(),
            // A seed other than the measured part's, so that addresses differ, with the same
            // contents. The number is "aging" in ASCII.
            seed: self.seed ^ 0x6167_696e_6700_0000,
            // The published model writes contents of aging again; those without duplicates occur
            // nowhere else.
            content_base: match content {
                ContentModel::Unique => FILL_CONTENTS,
                _ => 0,
            },
        })
        .map_err(StudyError::impossible)?;

        let scheme = device.config().firmware.scheme;
        let options = aging.options(units, self.seed);
        let mut writes = Followed {
            source: &mut writes,
            follow,
        };
        let aged = age(device, &mut writes, &options)
            .map_err(|error| StudyError::about(format_args!("scheme {scheme}"), error))?;
        Ok(aged.in_pages(device.config().geometry.host_pages()))
    }
}

/// Writes of aging, which has no progress of its own: it is followed, and stopped, at its reads.
struct Followed<'a, 'b> {
    source: &'a mut Workload,
    follow: &'a mut Follow<'b>,
}

impl Source for Followed<'_, '_> {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        if (self.follow)(Stage::Aging).is_break() {
            return Err(SourceError::Unusable {
                file: "aging".into(),
                reason: "stopped".into(),
            });
        }
        self.source.fill(out, want)
    }
}
