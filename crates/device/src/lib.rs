//! Firmware plus timing: a device takes a command with its submission time and returns its
//! completion time.
//!
//! ```text
//! submit(now, command) -> ftl (takes effect at once, records media operations) -> timing -> done_at
//! ```
//!
//! Invariants: time is passed as an argument and returned, in nanoseconds as `u64`; completion
//! times depend only on the order of submission. Absent: a clock, threads, queues of outstanding
//! commands (the caller's), and any knowledge of how a remap is persisted.
//!
//! ```
//! use remap_ssd_device::{Device, DeviceConfig, Lpn, Payload, Remap};
//!
//! let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
//! // At time 0 LPN 7 gets the content 42.
//! let write = device.write(0, Lpn(7), &Payload::Identity(42));
//! let (target, source) = (Lpn(100), Lpn(7));
//! let remap = Remap { target, source, len: 1, relocate: false, atomic: false };
//! let copy = device.remap(write.done_at, &remap);
//! assert!(copy.result.is_ok());
//! assert_eq!(device.ftl().stats().host_programs, 1); // two LPNs, one flash page
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `disk` is a client of [`Disk`].

#![warn(unreachable_pub)]

mod bit_errors;
mod check;
mod command;
mod completion;
pub mod config;
mod config_errors;
mod config_file;
mod device;
mod device_file;
mod disk;
mod ends;
mod factor;
mod fingerprint_outcome;
mod fingerprints;
mod folder;
mod footprint;
mod halves;
mod host_lpn;
mod indirection;
pub mod inspect;
pub mod keys;
mod lane;
pub mod nand;
mod open_error;
mod preset;
mod problems;
mod queued;
mod ranges;
pub mod reference;
mod saved;
mod scale;
mod service;
mod setting;
mod step;
mod suggest;
pub mod superblocks;
mod timing;
mod units;
mod verbs;

pub use check::FolderCheck;
pub use command::{PageCommand, PageKind};
pub use completion::{Completion, CopiedPages, FileCompletion, RemapCompletion};
pub use config::{DeviceConfig, DeviceConfigError, EnergyConfig};
pub use device::Device;
pub use device_file::DeviceFile;
pub use disk::{
    Disk, DiskFileBlock, DiskRemap, DiskWrite, FileMapError, HoldError, HolderId, LocalDisk,
    LocalDiskError, RemapAllError, SharingError,
};
pub use factor::parse_scale;
pub use fingerprint_outcome::{Fingerprints, SavedFingerprints};
pub use fingerprints::Relearner;
pub use folder::RestingDevice;
pub use halves::{CommandRecord, FirmwareHalf, LOOK_AHEAD_FAR, LOOK_AHEAD_NEAR, TimingHalf};
pub use host_lpn::HostLpn;
pub use indirection::{IndirectionCounts, IndirectionUnits};
pub use open_error::OpenError;
pub use preset::{PRESETS, Preset};
pub use ranges::PageRanges;
// Re-exported so that a program needs only this crate.
pub use remap_ssd_ftl::{FilePage, FileStatus, Refusal, Remap, SchemeKind, Stats};
pub use remap_ssd_media::{Lpn, Page, PageView, Payload};
pub use service::SERVICE_BYTES_MIN;
pub use setting::Setting;
pub use timing::{CommandStart, Timing};

// The Rust code in the READMEs and in the tutorial compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
