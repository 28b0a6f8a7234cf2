//! One run, described completely, and its execution.
//!
//! ```text
//! RunSpec { device, aging, requests, arrivals, length, measures, seed }
//!    stage: the device is formatted and aged, or loaded from its image
//!    perform: staged, saved if requested, warmed up, measured -> RunResult
//! ```
//! Everything that compares runs has a list of [`RunSpec`]s, and its own way to show their results.
//!
//! ```
//! use remap_ssd_sim::cores::Cores;
//! use remap_ssd_sim::device::{DeviceConfig, SchemeKind};
//! use remap_ssd_sim::study::{Length, RunSpec};
//!
//! let mut config = DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?;
//! config.firmware.scheme = SchemeKind::NLog;
//! let mut spec = RunSpec::new(config, "randwrite,span=0.5".parse()?);
//! spec.length = Length::Pages(10_000);
//!
//! let result = spec.perform(&Cores::default(), &mut |_| std::ops::ControlFlow::Continue(()))?;
//! assert_eq!(result.summary.requests.writes, 10_000);
//! assert!(result.aged.is_some_and(|aged| aged.nvram_used > 0.8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: a result depends on the description alone, not on threads or on other runs; every
//! request of a trace was served, refused with a reason, or the run has failed. Absent: lists of
//! runs, their threads, and showing results.

mod error;
mod perform;
mod replay;
mod requests;
mod spec;
mod stage;

pub use error::StudyError;
pub use perform::RunResult;
pub use replay::{Recorded, TraceReplay, WHOLE_DISK};
pub use requests::Requests;
pub use spec::{Length, Lifetimes, NewDevice, RunSpec, Start, WARM_UP};
pub use stage::{Follow, Stage, Staged};
