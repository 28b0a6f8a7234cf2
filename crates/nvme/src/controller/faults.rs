//! Injected faults: commands that fail, or whose answers come late, so that a host can be tested.
//!
//! An injector is asked once a command for its delay, and once for each range of blocks before the
//! command reads or changes it. It is asked in the command's turn at the device, so that all hosts
//! see one order. Invariants: a range that is refused is left as it was; a delay is one answer's,
//! and the device is free meanwhile. Absent: which commands fail (the injector decides), and damage
//! below the firmware (`operate`).

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

/// What a command does to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAccess {
    /// Their data are needed: Read, Compare, Verify, sources of Copy and of remaps.
    Read,
    /// They get data: Write, FS Write, targets of Copy and of remaps.
    Write,
    /// They lose their data: Write Zeroes, Deallocate, Format, sources that a remap gives up.
    Deallocate,
}

/// Decides which commands fail, and which answers are late.
pub trait FaultInjector: Send + Sync {
    /// How much later than otherwise a command is answered.
    fn delay(&self) -> Duration;
    /// A command is about to access these bytes of the device.
    ///
    /// A read changes nothing here: when one is refused, its blocks are asked for one by one, to
    /// find the first that is bad.
    ///
    /// # Errors
    /// The status that ends the command.
    fn access(&self, access: BlockAccess, bytes: Range<u64>) -> Result<(), Status>;
    /// Whether the device takes no more writes: SMART says so.
    fn is_read_only(&self) -> bool;
}

impl Subsystem {
    /// How much later a command is answered, in nanoseconds.
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
    /// Blocks are about to be accessed.
    ///
    /// # Errors
    /// The fault that was injected.
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

    /// A range of bytes is about to be accessed. If it is refused, its first bad block is noted.
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

    /// The pages of a remap are about to be accessed.
    ///
    /// # Errors
    /// The fault that was injected.
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

    /// What the device keeps beside its blocks is about to be dropped.
    ///
    /// # Errors
    /// The fault that was injected.
    pub fn access_lists(&self) -> Result<(), Status> {
        match self.device.fault_injector() {
            Some(injector) => injector.access(BlockAccess::Deallocate, 0..0),
            None => Ok(()),
        }
    }
}

/// Where the first block of a refused range begins that is bad by itself.
#[cold]
fn first_bad_byte(
    injector: &dyn FaultInjector,
    access: BlockAccess,
    bytes: Range<u64>,
    block_bytes: usize,
) -> u64 {
    // Only a read may be asked for again. A write is refused as a whole, from its first block on.
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
