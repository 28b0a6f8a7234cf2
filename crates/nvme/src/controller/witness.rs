//! What commands change, and when they are submitted and completed: all that must be known to say
//! what a volatile write cache could lose.
//!
//! The device is asked what a command has left in its blocks, in the command's own turn, so that a
//! witness sees every command alike: writes, Write Zeroes, Dataset Management, Copy and remaps. A
//! change is completed right before its answer is sent: a host that acts on the answer comes later.
//! Invariants: changes are told in the order in which the device has them; a change whose answer
//! was never sent is never completed. Absent: what is made of it; registers, reads, and reservations.

use super::io::{ActiveCommand, pieces_of};
use super::namespaces::Namespace;
use super::request::{Blocks, IoRequest};
use super::subsystem::{PAGE_SHIFT, Subsystem};
use crate::spec::status::Status;
use remap_ssd_ftl::Remap;
use remap_ssd_media::{Lpn, PageView};
use std::ops::Range;

/// Bytes of one change: a longer one is told in parts.
const CHANGE_BYTES_MAX: usize = 1 << 20;

/// Names a flush or a change until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// What a range of the device reads as from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewContent<'a> {
    /// Zeroes, and how many bytes of them.
    Zeroes(u64),
    /// The bytes that were written or copied there.
    Bytes(&'a [u8]),
}

/// Is told what commands do. Called with the device held, but for `flush` and `completed`. Remaps
/// that are to be atomic are refused where there is one.
pub trait Witness: Send + Sync {
    /// A flush was submitted. It covers what was completed before, so that it is told before it
    /// waits for the device.
    fn flush(&self) -> Ticket;
    /// A command has changed blocks, from this byte of the device on. `through`: durable when it is
    /// completed (FUA, or its host has switched the cache off).
    fn changed(&self, offset: u64, content: NewContent<'_>, through: bool) -> Ticket;
    /// The answer to a flush or a change is about to be sent.
    fn completed(&self, ticket: Ticket);
}

impl Subsystem {
    /// Everything that was completed before becomes durable now, without a host's flush.
    pub(super) fn witness_flush(&self) {
        if let Some(witness) = self.witness() {
            witness.completed(witness.flush());
        }
    }
}

/// Bytes of the device that blocks of a namespace are.
pub(super) fn bytes_of(namespace: &Namespace, blocks: Blocks) -> Range<u64> {
    let first = u64::from(namespace.first_lpn.0) << PAGE_SHIFT;
    let start = first + (blocks.slba << namespace.lba_shift);
    start..start + (u64::from(blocks.count) << namespace.lba_shift)
}

impl ActiveCommand<'_, '_> {
    /// These blocks may be changed from now on.
    #[inline]
    pub fn touch(&mut self, namespace: &Namespace, blocks: Blocks) {
        if let Some(touched) = &mut self.touched {
            touched.push(bytes_of(namespace, blocks));
        }
    }

    /// The pages of a remap may be changed from now on.
    ///
    /// # Errors
    /// Not Atomic: a witness is told of blocks, each of which may survive a power cut on its own.
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
            // A source that is given up reads as zeroes.
            if remap.relocate {
                touched.push(bytes(remap.source.0));
            }
        }
        Ok(())
    }

    /// Tells the witness what the command has left in its blocks, whether it has failed or not.
    pub fn tell(&mut self, witness: &dyn Witness) -> Result<(), Status> {
        for range in self.touched.take().unwrap_or_default() {
            self.tell_range(witness, range)?;
        }
        Ok(())
    }

    /// A read with FUA changes nothing, but what it returns is durable.
    fn reads_from_medium(&self) -> bool {
        matches!(self.job.request, IoRequest::Read { fua: true, .. })
    }

    fn tell_range(&mut self, witness: &dyn Witness, range: Range<u64>) -> Result<(), Status> {
        let through = self.through || self.reads_from_medium();
        let mut bytes = Vec::new();
        let mut zeroes = 0;
        let mut start = range.start;

        // Pages of zeroes that follow one another are one change, as are those with bytes.
        for piece in pieces_of(Lpn::ZERO, range) {
            let was = bytes.len();
            let part = piece.start..piece.start + piece.len;

            // The device is asked, not the command: a copy or a remap brings no bytes.
            self.view(piece.lpn, |page| match page {
                PageView::Zeroes => Ok(()),
                PageView::Bytes(page) => {
                    bytes.extend_from_slice(&page[part.clone()]);
                    Ok(())
                }

                // A device that hosts use stores bytes.
                PageView::Unknown | PageView::Identity(_) => Err(Status::INTERNAL),
            })?;
            let is_zeroes = bytes.len() == was;

            // A change ends where zeroes begin or end, and at its longest.
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

    /// Tells one change, if it is one; how long it is.
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
