//! Injected faults: commands that fail, or whose answers come late, so that a host can be tested.
//!
//! An injector is asked once a command for its delay, and once for each range of blocks before the
//! command reads or changes it. It is asked in the command's turn at the device, so that all hosts
//! see one order. Invariants: a range that is refused is left as it was; a delay is one answer's,
//! and the device is free meanwhile. Absent: which commands fail (the injector decides), and damage
//! below the firmware (`operate`).

use super::io::ActiveCommand;
use super::request::Blocks;
use super::subsystem::{Namespace, PAGE_SHIFT, Subsystem};
use super::witness::bytes_of;
use crate::spec::status::Status;
use remap_ssd_ftl::Remap;
use remap_ssd_media::Lpn;
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
        &self,
        access: BlockAccess,
        namespace: &Namespace,
        blocks: Blocks,
    ) -> Result<(), Status> {
        match self.device.fault_injector() {
            Some(injector) => injector.access(access, bytes_of(namespace, blocks)),
            None => Ok(()),
        }
    }

    /// The pages of a remap are about to be accessed.
    ///
    /// # Errors
    /// The fault that was injected.
    pub fn access_remapped(&self, remap: &Remap) -> Result<(), Status> {
        let Some(injector) = self.device.fault_injector() else {
            return Ok(());
        };
        let bytes = |Lpn(first): Lpn| {
            let start = u64::from(first) << PAGE_SHIFT;
            start..start + (u64::from(remap.len) << PAGE_SHIFT)
        };

        injector.access(BlockAccess::Read, bytes(remap.source))?;
        if remap.relocate {
            injector.access(BlockAccess::Deallocate, bytes(remap.source))?;
        }
        injector.access(BlockAccess::Write, bytes(remap.target))
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
