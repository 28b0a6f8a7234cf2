//! The verbs: what a host or an operator can ask of the device, one file each.
//!
//! Absent: what recovery and garbage collection do on their own.

mod check;
pub mod command;
mod files;
pub mod glimpse;
pub mod hybrid;
mod look_ahead;
pub mod program;
pub mod relearn;
pub mod remap;
