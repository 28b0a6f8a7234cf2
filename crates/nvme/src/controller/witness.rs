//! Reports of changes, with submission and completion: everything needed to know what a volatile
//! write cache could lose.
//!
//! After each command its blocks are read back from the device, in the command's own turn, so that
//! a witness sees every command alike: writes, Write Zeroes, Dataset Management, Copy and remaps. A
//! change is completed right before its answer is sent, hence before any reaction of the host.
//! Invariants: changes are reported in the order in which the device has them; a change whose
//! answer was never sent is never completed. Absent: use of the reports; registers, reads, and
//! reservations.

use super::io::{ActiveCommand, pieces_of};
use super::namespaces::Namespace;
use super::request::{Blocks, IoRequest};
use super::subsystem::{PAGE_SHIFT, Subsystem};
use crate::spec::status::Status;
use remap_ssd_ftl::Remap;
use remap_ssd_media::{Lpn, PageView};
use std::ops::Range;

/// Maximum bytes of one reported change; a longer one is split.
const CHANGE_BYTES_MAX: usize = 1 << 20;

/// Identifies a flush or a change until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// New content of a range of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewContent<'a> {
    /// This many zero bytes.
    Zeroes(u64),
    /// The bytes written or copied there.
    Bytes(&'a [u8]),
}

/// Receives the effects of commands. Called with the device held, except for `flush` and
/// `completed`. With a witness, atomic remaps are refused.
pub trait Witness: Send + Sync {
    /// A flush was submitted. It covers changes completed before, so it is reported before it waits
    /// for the device.
    fn flush(&self) -> Ticket;
    /// A command has changed blocks, starting at byte `offset` of the device. `through`: durable
    /// when it is completed (FUA, or its host has switched the cache off).
    fn changed(&self, offset: u64, content: NewContent<'_>, through: bool) -> Ticket;
    /// The answer to a flush or a change is about to be sent.
    fn completed(&self, ticket: Ticket);
}

impl Subsystem {
    /// Makes everything completed so far durable, without a host's flush.
    pub(super) fn witness_flush(&self) {
        if let Some(witness) = self.witness() {
            witness.completed(witness.flush());
        }
    }
}

/// The bytes of the device that hold blocks of a namespace.
pub(super) fn bytes_of(namespace: &Namespace, blocks: Blocks) -> Range<u64> {
    let first = u64::from(namespace.first_lpn.0) << PAGE_SHIFT;
    let start = first + (blocks.slba << namespace.lba_shift);
    start..start + (u64::from(blocks.count) << namespace.lba_shift)
}

impl ActiveCommand<'_, '_> {
    /// Notes that blocks may change from now on.
    #[inline]
    pub fn touch(&mut self, namespace: &Namespace, blocks: Blocks) {
        if let Some(touched) = &mut self.touched {
            touched.push(bytes_of(namespace, blocks));
        }
    }

    /// Notes that the pages of a remap may change from now on.
    ///
    /// # Errors
    /// Not Atomic: changes are reported by block, and each block may survive a power cut
    /// separately.
    pub fn touch_remapped(&mut self, remap: &Remap) -> Result<(), Status> {
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

    /// Reports the content of the command's blocks to the witness, even if the command has failed.
    pub fn tell(&mut self, witness: &dyn Witness) -> Result<(), Status> {
        for range in self.touched.take().unwrap_or_default() {
            self.tell_range(witness, range)?;
        }
        Ok(())
    }

    /// A read with FUA changes nothing, but the data that it returns are durable.
    fn reads_from_medium(&self) -> bool {
        matches!(self.job.request, IoRequest::Read { fua: true, .. })
    }

    fn tell_range(&mut self, witness: &dyn Witness, range: Range<u64>) -> Result<(), Status> {
        let through = self.through || self.reads_from_medium();
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
                start += self.tell_change(witness, start, zeroes, &bytes, through);
                (zeroes, bytes) = (0, rest);
            }
            if is_zeroes {
                zeroes += piece.len as u64;
            }
        }

        self.tell_change(witness, start, zeroes, &bytes, through);
        Ok(())
    }

    /// Reports a change unless it is empty, and returns its length.
    fn tell_change(
        &mut self,
        witness: &dyn Witness,
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
            .push(witness.changed(start, content, through));
        len
    }
}
