//! What a command announces about the blocks that it touches: accesses to the injector of faults,
//! changes to the observer.
//!
//! After each command its blocks are read back from the device, in the command's own turn, so that
//! an observer sees every command alike: writes, Write Zeroes, Dataset Management, Copy and remaps.
//! Invariant: changes are reported in the order in which the device has them. Absent: what others
//! do with it (`faults`, `observer`).

use super::blocks::{Blocks, Namespace, PAGE_SHIFT, bytes_of, pieces_of};
use super::faults::{BlockAccess, FaultInjector};
use super::io::ActiveCommand;
use super::observer::{NewContent, Observer};
use crate::spec::status::Status;
use remap_ssd_ftl::Remap;
use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_media::{Lpn, PageView};
use std::ops::Range;

/// Maximum bytes of one reported change; a longer one is split.
const CHANGE_BYTES_MAX: usize = 1 << 20;

impl ActiveCommand<'_, '_> {
    /// Announces an access to blocks.
    ///
    /// # Errors
    /// The injected fault.
    #[inline]
    pub(super) fn access(
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
        let Some(injector) = self.faults else {
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
    pub(super) fn access_remapped(&mut self, remap: &Remap) -> Result<(), Status> {
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
    pub(super) fn access_lists(&self) -> Result<(), Status> {
        match self.faults {
            Some(injector) => injector.access(BlockAccess::Deallocate, 0..0),
            None => Ok(()),
        }
    }

    /// Notes that blocks may change from now on.
    #[inline]
    pub(super) fn touch(&mut self, namespace: &Namespace, blocks: Blocks) {
        if let Some(touched) = &mut self.touched {
            touched.push(bytes_of(namespace, blocks));
        }
    }

    /// Notes that the pages of a remap may change from now on.
    ///
    /// # Errors
    /// Not Atomic: changes are reported by block, and each block may survive a power cut
    /// separately.
    pub(super) fn touch_remapped(&mut self, remap: &Remap) -> Result<(), Status> {
        if let Some(touched) = &mut self.touched {
            if remap.atomic {
                return Err(Status::NOT_ATOMIC);
            }
            let bytes = |first: u32| {
                let start = u64::from(first) << PAGE_SHIFT;
                start..start + (u64::from(remap.len) << PAGE_SHIFT)
            };
            touched.push(bytes(remap.target.0));
            // A relocated source reads as zeroes afterwards.
            if remap.relocate {
                touched.push(bytes(remap.source.0));
            }
        }
        Ok(())
    }

    /// Reports the content of the command's blocks to the observer, even if the command has failed.
    pub(super) fn report(&mut self, observer: &dyn Observer) -> Result<(), Status> {
        for range in self.touched.take().unwrap_or_default() {
            self.report_range(observer, range)?;
        }
        Ok(())
    }

    fn report_range(&mut self, observer: &dyn Observer, range: Range<u64>) -> Result<(), Status> {
        let through = self.through || self.command.request.reads_from_medium();
        let mut bytes = Vec::new();
        let mut zeroes = 0;
        let mut start = range.start;

        // Consecutive pages of zeroes are one change, and so are consecutive pages with bytes.
        for piece in pieces_of(Lpn::ZERO, range) {
            let was = bytes.len();
            let part = piece.start..piece.start + piece.len;

            // Read the device, not the command's data: a copy or a remap has none.
            self.view(piece.lpn, |page| match page {
                PageView::Zeroes => Ok(()),
                PageView::Bytes(page) => {
                    bytes.extend_from_slice(&page[part.clone()]);
                    Ok(())
                }

                // A device with hosts stores bytes.
                PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
            })?;
            let is_zeroes = bytes.len() == was;

            // A change ends where zeroes begin or end, or at the maximum length.
            let ends = if is_zeroes {
                was > 0
            } else {
                zeroes > 0 || was >= CHANGE_BYTES_MAX
            };
            if ends {
                let rest = bytes.split_off(was);
                start += self.report_change(observer, start, zeroes, &bytes, through);
                (zeroes, bytes) = (0, rest);
            }
            if is_zeroes {
                zeroes += piece.len as u64;
            }
        }

        self.report_change(observer, start, zeroes, &bytes, through);
        Ok(())
    }

    /// Reports a change unless it is empty, and returns its length.
    fn report_change(
        &mut self,
        observer: &dyn Observer,
        start: u64,
        zeroes: u64,
        bytes: &[u8],
        through: bool,
    ) -> u64 {
        let (content, len) = match (zeroes, bytes.len()) {
            (0, 0) => return 0,
            (0, len) => (NewContent::Bytes(bytes), len as u64),
            (zeroes, _) => (NewContent::Zeroes(zeroes), zeroes),
        };
        self.device
            .tickets
            .push(observer.changed(start, content, through));
        len
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
