//! Virtual time: workloads, trace readers, runs, metrics and reports.
//!
//! A [`source::Source`] yields page operations in batches; a run submits them to a device, whose
//! completions become a [`summary::RunSummary`]; the report lays several summaries side by side.
//! [`study`] describes and executes a whole run: a device, its aging, its requests. Absent: how a
//! remap is persisted; that is the firmware's.
//!
//! ```
//! use remap_ssd_sim::aging::{AgingOptions, age};
//! use remap_ssd_sim::device::{Device, DeviceConfig};
//! use remap_ssd_sim::run::{RunOptions, run};
//! use remap_ssd_sim::workload::{ContentModel, Workload, WorkloadSpec};
//!
//! let mut device = Device::format(DeviceConfig::preset("fast21-32g")?.scale(1.0 / 256.0)?)?;
//! let spec: WorkloadSpec = "randwrite".parse()?;
//! let content: ContentModel = "papers:0.3".parse()?;
//! let mut requests = Workload::new(spec.config(content, device.config().addressable_lpns(), 1))?;
//!
//! age(&mut device, &mut requests, &AgingOptions::default())?;
//! let options = RunOptions { pages: Some(10_000), ..RunOptions::default() };
//! let summary = run(&mut device, &mut requests, &options, &mut |_| std::ops::ControlFlow::Continue(()))?;
//! assert!(summary.write_amplification < 1.0); // most of the duplicates were remapped
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `simulate` compares schemes.

#![warn(unreachable_pub)]

pub mod aging;
pub mod arrivals;
pub mod cores;
mod energy;
mod flash_time;
mod inflight;
pub mod interval;
mod latencies;
mod metrics;
pub mod micro;
mod open;
pub mod plot;
pub mod precision;
pub mod report;
pub mod run;
pub mod source;
mod steady;
pub mod study;
pub mod summary;
pub mod theory;
pub mod timeline;
mod times;
pub mod trace;
pub mod workload;

pub use remap_ssd_device as device;
