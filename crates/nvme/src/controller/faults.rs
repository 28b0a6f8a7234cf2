//! Injected faults: commands that fail, or whose answers come late, so that a host can be tested.
//!
//! An injector is called once per command for its delay, and once per range of blocks before the
//! command reads or changes it. The call is in the command's turn at the device, so that all hosts
//! see one order. Invariants: a refused range is unchanged; a delay affects one answer, and the
//! device is free in the meantime. Absent: the choice of faults (the injector's), and damage below
//! the firmware (`operate`).

use crate::spec::status::Status;
use std::ops::Range;
use std::time::Duration;

/// How a command accesses blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAccess {
    /// It needs their data: Read, Compare, Verify, sources of Copy and of remaps.
    Read,
    /// It stores data: Write, FS Write, targets of Copy and of remaps.
    Write,
    /// It drops their data: Write Zeroes, Deallocate, Format, sources of relocating remaps.
    Deallocate,
}

/// Chooses commands that fail and answers that are late.
pub trait FaultInjector: Send + Sync {
    /// Additional delay of a command's answer.
    fn delay(&self) -> Duration;
    /// A command is about to access these bytes of the device.
    ///
    /// Reads have no side effect here: after a refused read, its blocks are tried one by one, to
    /// find the first bad one.
    ///
    /// # Errors
    /// The status that ends the command.
    fn access(&self, access: BlockAccess, bytes: Range<u64>) -> Result<(), Status>;
    /// Returns true if the device takes no more writes; SMART reports it.
    fn is_read_only(&self) -> bool;
}
