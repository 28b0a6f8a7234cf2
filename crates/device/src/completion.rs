//! Completions: when a command is complete, and the firmware's result.
//!
//! Invariant: every completion has `done_at`, even that of a refused command. Absent: data that was
//! read; it is returned separately.

use remap_ssd_ftl::{FileStatus, Refusal};

/// Result of a command, and its completion time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Completion time, in nanoseconds of virtual time.
    pub done_at: u64,
    /// Result of the firmware: a refusal changes nothing.
    pub result: Result<(), Refusal>,
}

/// Result of a remap, its completion time, and how many of its pages are shared with the sources.
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
    /// Completion time, in nanoseconds of virtual time.
    pub done_at: u64,
    /// Result of the firmware. If a remap failed halfway, some pages may have been remapped.
    pub result: Result<(), Refusal>,
    /// Pages remapped without a program.
    pub remapped: u64,
    /// Pages that were copied instead.
    pub copied: CopiedPages,
}

/// Pages of a remap that were copied instead, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedPages {
    /// The page's reference counter was full.
    pub counter_full: u64,
    /// The remapping metadata had no room, or was above the watermark.
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

/// Result of an `fs_write`, and its completion time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCompletion {
    /// Completion time, in nanoseconds of virtual time.
    pub done_at: u64,
    /// If the data is written, whether it is listed; otherwise the refusal.
    pub result: Result<FileStatus, Refusal>,
}
