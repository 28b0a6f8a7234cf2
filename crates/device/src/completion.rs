//! Answers: when a command is complete, and what the firmware said.
//!
//! Invariant: `done_at` is a time in every answer, in that of a refused command, too. Absent: data
//! that was read; it comes beside its time.

use remap_ssd_ftl::{FileStatus, Refusal};

/// How a command ended, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// When it is complete, in nanoseconds of virtual time.
    pub done_at: u64,
    /// What the firmware answered: a refusal changes nothing.
    pub result: Result<(), Refusal>,
}

/// How a remap ended, when, and which of its pages share what the sources hold.
///
/// ```
/// # use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload, Remap};
/// # let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
/// let written = device.write(0, Lpn(0), &Payload::Identity(1));
/// let source = Lpn(0);
/// let onto = |target| Remap { target, source, len: 1, relocate: false, atomic: false };
///
/// // A flash page of this device can have 15 owners: one that wrote it, and 14 more.
/// let ends: Vec<_> = Lpn::range(Lpn(1), 15)
///     .map(|lpn| device.remap(written.done_at, &onto(lpn)))
///     .collect();
/// assert_eq!(ends.iter().map(|end| end.remapped).sum::<u64>(), 14);
/// assert_eq!((ends[14].copied.counter_full, ends[14].copied.total()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapCompletion {
    /// When it is complete, in nanoseconds of virtual time.
    pub done_at: u64,
    /// What the firmware answered. Of a remap that failed halfway, some pages may be done.
    pub result: Result<(), Refusal>,
    /// Pages that were remapped: nothing was programmed for them.
    pub remapped: u64,
    /// Pages that were copied instead.
    pub copied: CopiedPages,
}

/// Pages of a remap that were copied instead, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedPages {
    /// The page's reference counter was full.
    pub counter_full: u64,
    /// The remapping metadata had no room, or was fuller than the watermark.
    pub metadata_full: u64,
    /// The scheme remaps nothing, or not this page.
    pub otherwise: u64,
}

impl CopiedPages {
    /// Pages copied for any cause.
    pub fn total(&self) -> u64 {
        self.counter_full + self.metadata_full + self.otherwise
    }
}

impl From<RemapCompletion> for Completion {
    fn from(completion: RemapCompletion) -> Self {
        let RemapCompletion {
            done_at, result, ..
        } = completion;
        Self { done_at, result }
    }
}

/// How an `fs_write` ended, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCompletion {
    /// When it is complete, in nanoseconds of virtual time.
    pub done_at: u64,
    /// The data is written, and whether it is listed; or why not.
    pub result: Result<FileStatus, Refusal>,
}
