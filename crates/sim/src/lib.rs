//! Virtual time: workloads, trace readers, runs, metrics and reports.
//!
//! A [`source::Source`] yields page operations in batches; a run submits them to a device, whose
//! completions become a [`summary::RunSummary`]; the report lays several summaries side by side.
//! Absent: any knowledge of how a remap is persisted; that is the firmware's.

pub mod aging;
pub mod arrivals;
pub mod cores;
mod inflight;
pub mod metrics;
pub mod micro;
mod open;
mod pipeline;
pub mod report;
pub mod run;
pub mod source;
pub mod summary;
mod times;
pub mod trace;
pub mod workload;

pub use remap_ssd_device as device;
