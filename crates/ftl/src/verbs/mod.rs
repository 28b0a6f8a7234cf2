//! The verbs: what a host or an operator can ask of the device, one file each.
//!
//! Absent: what recovery and garbage collection do on their own.

pub(crate) mod buffer;
mod buffered_remaps;
mod check;
pub mod command;
mod files;
pub(crate) mod glimpse;
pub(crate) mod hybrid;
mod look_ahead;
mod merge;
pub(crate) mod program;
pub(crate) mod relearn;
pub(crate) mod remap;
mod sharing;
pub(crate) mod table;
pub(crate) mod untorn;
