//! Speed and memory of the simulator itself, and of a served device.
//!
//! ```text
//! simulator   random writes in steady state of garbage collection, whole runs, recovery
//! subject     the things measured: a device, and the bare arrays, with the same input
//! bare        an FTL that consists only of arrays
//! memory      the resident memory of this process
//! service     the device as hosts see it, over NVMe/TCP on the loopback
//! text        the results as text
//! ```
//! Invariants: everything is measured in this process, one after the other; each number is the
//! median of several rounds. Absent: virtual time, which runs show; printing.

#![warn(unreachable_pub)]

mod bare;
mod error;
mod memory;
pub mod service;
mod simulator;
mod subject;
pub mod text;

pub use error::BenchError;
pub use simulator::{BenchSize, NandResults, Results, Runs, Scaled, SimulatorBench};

/// Called with what is measured next.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(String);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    // The number of rounds is odd, so there is a middle one.
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
