//! Format NVM: deallocates all blocks of a namespace, which then read as zeroes (Base 2.0 §5.14).
//!
//! With the same block size it is a sequence of trims, and behaves like them: others go first
//! between slices, and pages are old or zero if the power is cut in between. It is acknowledged
//! once all of them are durable. Commands of other hosts continue, and data written by them in the
//! meantime stay. Invariants: a host that a reservation excludes from writing formats nothing, even
//! if the reservation comes halfway; other namespaces are unaffected. With another block size the
//! namespace is not usable in the meantime (`namespaces::change`), since commands in progress count
//! in old blocks. Absent: physical erasure, which is left to garbage collection, and cryptographic
//! erase.

use super::association::Association;
use super::blocks::{Blocks, LBA_SHIFTS, Namespace, PAGE_SHIFT};
use super::issuer::{Actor, Issuer};
use super::request::{IoCommand, IoRequest};
use super::reservations::{Claim, CommandClass};
use super::rights::Need;
use super::turnstile::Weight;
use crate::spec::command::{FormatCdw10, Sqe};
use crate::spec::status::Status;

/// Pages per trim: 1 GiB.
const STEP_PAGES: u32 = 256 << 10;
/// Supported secure erase settings: none, and user data.
const ERASES: [u8; 2] = [0, 1];

/// Requests that deallocate every block of a namespace: in steps, so that others' commands go
/// between.
///
/// The rest of its last unit of `unit` pages is in no namespace, and is deallocated too: a part of a unit that cannot be read
/// could not be.
pub(super) fn deallocations(
    namespace: &Namespace,
    unit: u32,
) -> impl Iterator<Item = IoRequest> + use<> {
    let shift = PAGE_SHIFT - namespace.lba_shift;
    let end = u64::from(namespace.pages.next_multiple_of(unit)) << shift;
    let step = u64::from(STEP_PAGES << shift);
    (0..end).step_by(step as usize).map(move |slba| {
        let count = (end - slba).min(step) as u32;
        let blocks = Blocks { slba, count };
        IoRequest::WriteZeroes { blocks, fua: false }
    })
}

impl Association {
    /// Formats a namespace: deallocates all its blocks.
    ///
    /// # Errors
    /// The status to answer. Unless the command is invalid, a part may have been formatted.
    pub(super) fn format(&self, sqe: &Sqe) -> Result<(), Status> {
        if self.discovery {
            return Err(Status::INVALID_OPCODE);
        }

        let cdw10 = FormatCdw10::from_bits(sqe.cdw10);
        // Not supported: all namespaces at once (see FNA bit 3), and cryptographic erase.
        if sqe.nsid == u32::MAX || !ERASES.contains(&cdw10.ses()) {
            return Err(Status::INVALID_FIELD);
        }
        let namespace = self.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
        // All formats are without metadata and protection.
        let has_metadata = cdw10.mset() || cdw10.pi() != 0;
        let format = usize::from(cdw10.lbafu()) << 4 | usize::from(cdw10.lbafl());
        let lba_shift = *LBA_SHIFTS.get(format).ok_or(Status::INVALID_FORMAT)?;
        if has_metadata {
            return Err(Status::INVALID_FORMAT);
        }

        // Also if a previous change of the block size could not be finished.
        if lba_shift != namespace.lba_shift || self.subsystem.namespaces.is_being_emptied(sqe.nsid)
        {
            self.rights().check(sqe.nsid, Need::Write)?;
            self.must_not_be_reserved(sqe.nsid)?;
            return self.subsystem.reformat_namespace(sqe.nsid, lba_shift);
        }

        // Each step checks the reservations again.
        for request in deallocations(&namespace, self.subsystem.unit_pages) {
            self.format_step(&namespace, request)?;
        }

        // The trims must be durable before the acknowledgement.
        self.subsystem.device.observe_flush();
        self.format_step(&namespace, IoRequest::Flush)
    }

    /// Checks that no other host's reservation excludes its host from writing to a namespace.
    ///
    /// # Errors
    /// Reservation Conflict.
    pub(super) fn must_not_be_reserved(&self, nsid: u32) -> Result<(), Status> {
        let _turn = self.subsystem.device();
        self.subsystem.reservations.check(&Claim {
            host: self.host(),
            nsid: Some(nsid),
            class: CommandClass::Write,
        })
    }

    fn format_step(&self, namespace: &Namespace, request: IoRequest) -> Result<(), Status> {
        let command = IoCommand::new(request, namespace);
        let issuer = Issuer {
            actor: Actor::Host(self.host()),
            rights: self.rights(),
            ..Issuer::service()
        };
        let subsystem = &self.subsystem;
        let turn = subsystem.turn_of(Weight::Light, self.standing(None));
        subsystem.execute_in(turn, &command, &issuer)
    }
}
