//! Injected faults: commands that fail, or whose answers come late, so that a host can be tested.
//!
//! An injector is called once per command for its delay, and once per range of blocks before the
//! command reads or changes it. The call is in the command's turn at the device, so that all hosts
//! see one order. Invariants: a refused range is unchanged; a delay affects one answer, and the
//! device is free in the meantime. Absent: the choice of faults (the injector's), and damage below
//! the firmware (`operate`).

use super::io::ActiveCommand;
use super::namespaces::Namespace;
use super::request::Blocks;
use super::subsystem::{PAGE_SHIFT, Subsystem};
use super::witness::bytes_of;
use crate::spec::status::Status;
use remap_ssd_ftl::Remap;
use remap_ssd_media::Lpn;
use remap_ssd_media::geometry::PAGE_BYTES;
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

impl Subsystem {
    /// Additional delay of a command's answer, in nanoseconds.
    #[inline]
    pub(super) fn injected_delay_ns(&self) -> u64 {
        let Some(injector) = self.fault_injector() else {
            return 0;
        };
        let delay = injector.delay();
        u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl ActiveCommand<'_, '_> {
    /// Announces an access to blocks.
    ///
    /// # Errors
    /// The injected fault.
    #[inline]
    pub fn access(
        &mut self,
        access: BlockAccess,
        namespace: &Namespace,
        blocks: Blocks,
    ) -> Result<(), Status> {
        self.access_bytes(
            access,
            bytes_of(namespace, blocks),
            1 << namespace.lba_shift,
        )
    }

    /// Announces an access to a range of bytes. If it is refused, notes the first bad block.
    #[inline]
    fn access_bytes(
        &mut self,
        access: BlockAccess,
        bytes: Range<u64>,
        block_bytes: usize,
    ) -> Result<(), Status> {
        let Some(injector) = self.device.fault_injector() else {
            return Ok(());
        };

        let refused = injector.access(access, bytes.clone());
        if refused.is_err() {
            let first_byte = first_bad_byte(injector, access, bytes, block_bytes);
            self.note_failed_byte(first_byte);
        }
        refused
    }

    /// Announces the accesses of a remap.
    ///
    /// # Errors
    /// The injected fault.
    pub fn access_remapped(&mut self, remap: &Remap) -> Result<(), Status> {
        let bytes = |Lpn(first): Lpn| {
            let start = u64::from(first) << PAGE_SHIFT;
            start..start + (u64::from(remap.len) << PAGE_SHIFT)
        };

        self.access_bytes(BlockAccess::Read, bytes(remap.source), PAGE_BYTES)?;
        if remap.relocate {
            self.access_bytes(BlockAccess::Deallocate, bytes(remap.source), PAGE_BYTES)?;
        }
        self.access_bytes(BlockAccess::Write, bytes(remap.target), PAGE_BYTES)
    }

    /// Announces that data of the device outside its blocks will be dropped.
    ///
    /// # Errors
    /// The injected fault.
    pub fn access_lists(&self) -> Result<(), Status> {
        match self.device.fault_injector() {
            Some(injector) => injector.access(BlockAccess::Deallocate, 0..0),
            None => Ok(()),
        }
    }
}

/// Start of the first block of a refused range that is bad on its own.
#[cold]
fn first_bad_byte(
    injector: &dyn FaultInjector,
    access: BlockAccess,
    bytes: Range<u64>,
    block_bytes: usize,
) -> u64 {
    // Only a read may be tried again. A write is refused as a whole, from its first block on.
    let is_bad = |start: &u64| {
        let block = *start..*start + block_bytes as u64;
        injector.access(BlockAccess::Read, block).is_err()
    };

    match access {
        BlockAccess::Read => bytes.clone().step_by(block_bytes).find(is_bad),
        BlockAccess::Write | BlockAccess::Deallocate => None,
    }
    .unwrap_or(bytes.start)
}
