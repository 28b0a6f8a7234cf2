//! Format NVM: all blocks of a namespace are deallocated, and read as zeroes (Base 2.0 §5.14).
//!
//! Blocks of the same size: it is a sequence of trims, with what they have: slices between which others go first, and pages
//! that are old or zero if the power is cut meanwhile. It is acknowledged once all of them are
//! durable. Commands of other hosts go on beside it, and what they write meanwhile stays.
//! Invariants: a host that a reservation keeps from writing formats nothing, also if the
//! reservation comes halfway; other namespaces keep all they have. Blocks of another size: nobody uses
//! the namespace meanwhile (`namespaces::change`), since commands under way count in the old ones.
//! Absent: physical erasure, which is garbage collection's, and keys to forget.

use super::association::Association;
use super::execute::Job;
use super::namespaces::{LBA_SHIFTS, Namespace};
use super::request::{Blocks, IoRequest};
use super::reservations::{Actor, Claim, CommandClass};
use super::rights::Need;
use super::subsystem::PAGE_SHIFT;
use super::turn::Weight;
use crate::spec::command::{FormatCdw10, Sqe};
use crate::spec::status::Status;

/// Pages of one of its trims: 1 GiB.
const STEP_PAGES: u32 = 256 << 10;
/// Secure erase: none, and user data.
const ERASES: [u8; 2] = [0, 1];

/// What deallocates every block of a namespace: in steps, so that commands of others go between them.
pub(super) fn deallocations(namespace: &Namespace) -> impl Iterator<Item = IoRequest> + use<> {
    let (end, lba_shift) = (namespace.size_blocks(), namespace.lba_shift);
    let step = u64::from(STEP_PAGES << (PAGE_SHIFT - lba_shift));
    (0..end).step_by(step as usize).map(move |slba| {
        let count = (end - slba).min(step) as u32;
        let blocks = Blocks { slba, count };
        IoRequest::WriteZeroes { blocks, fua: false }
    })
}

impl Association {
    /// Formats a namespace: every one of its blocks is deallocated.
    ///
    /// # Errors
    /// The status to answer. Unless the command itself is wrong, a part may have been formatted.
    pub(super) fn format(&self, sqe: &Sqe) -> Result<(), Status> {
        if self.discovery {
            return Err(Status::INVALID_OPCODE);
        }

        let cdw10 = FormatCdw10::from_bits(sqe.cdw10);
        // All namespaces at once (FNA bit 3 says so), and a key to forget, are not.
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

        // Also if that was begun, and could not be finished.
        if lba_shift != namespace.lba_shift || self.subsystem.is_being_emptied(sqe.nsid) {
            self.rights().check(sqe.nsid, Need::Write)?;
            self.must_not_be_reserved(sqe.nsid)?;
            return self.subsystem.reformat_namespace(sqe.nsid, lba_shift);
        }

        // Each step checks the reservations anew.
        for request in deallocations(&namespace) {
            self.format_step(&namespace, &request)?;
        }

        // What was trimmed is durable before the host is told so.
        self.subsystem.witness_flush();
        self.format_step(&namespace, &IoRequest::Flush)
    }

    /// Whether no other host's reservation keeps its own from writing to a namespace.
    ///
    /// # Errors
    /// Reservation Conflict.
    pub(super) fn must_not_be_reserved(&self, nsid: u32) -> Result<(), Status> {
        let turn = self.subsystem.device();
        turn.reservations().check(&Claim {
            host: self.host(),
            nsid: Some(nsid),
            class: CommandClass::Write,
        })
    }

    fn format_step(&self, namespace: &Namespace, request: &IoRequest) -> Result<(), Status> {
        let job = Job {
            nsid: namespace.nsid,
            version: namespace.version,
            request,
            now: 0,
            cache_enabled: true,
            rights: self.rights(),
            actor: Actor::Host(self.host()),
        };
        let subsystem = &self.subsystem;
        let turn = subsystem.turn_of(Weight::Light, self.standing(None));
        subsystem.execute_in(turn, &job)
    }
}
