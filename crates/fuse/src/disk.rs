//! A namespace addressed by bytes.
//!
//! Partial blocks are read, modified and written whole in one turn at the device, so that
//! neighbouring bytes are never lost. Between the pages of any other request, other hosts may go
//! first. Waiting for durability comes after the turn, together with all other waiters. Invariants:
//! an answer includes its completion time, in the common clock of the device's services; ranges
//! past the end are cut or refused here. Absent: the kernel.

use remap_ssd_media::geometry::PAGE_BYTES;
use remap_ssd_nvme::controller::telemetry::CommandKind;
use remap_ssd_nvme::controller::{
    DeviceTurn, Gate, InMemory, IoCommand, IoRequest, Issuer, Namespace, Outcome, Subsystem,
    Weight, copy_range_blocks_max,
};
use remap_ssd_nvme::spec::command::CopyRange;
use remap_ssd_nvme::spec::status::Status;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

/// Why an operation of a disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The range ends beyond the disk.
    #[error("the range ends beyond the disk")]
    Range,
    /// The copy is not of whole blocks.
    #[error("copies are of whole blocks")]
    Alignment,
    /// The device refused the command.
    #[error("the device answered with status {:#x}", .0.number())]
    Device(Status),
    /// A disk of host software failed, and reported the reason.
    #[error("the disk has failed")]
    Failed,
    /// The service, and with it the device, has ended.
    #[error("the service has ended")]
    Gone,
}

impl From<Status> for DiskError {
    fn from(status: Status) -> Self {
        Self::Device(status)
    }
}

/// A namespace addressed by bytes.
#[derive(Clone)]
pub(crate) struct Disk {
    gate: Arc<Gate>,
    epoch: Instant,
    /// As of the start: the block size may have changed since, but not the pages.
    first: Namespace,
    delays_answers: bool,
}

/// Access to the device for one operation of several commands.
struct DiskAccess<'a> {
    subsystem: &'a Subsystem,
    device: DeviceTurn<'a>,
    namespace: &'a Namespace,
    now: u64,
    /// Origin of the clock.
    epoch: Instant,
    /// Combined outcome of all commands.
    outcome: Outcome,
}

impl DiskAccess<'_> {
    fn execute(
        &mut self,
        request: &IoRequest,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DiskError> {
        // Files have a volatile cache like disks: for durability, flush or open them for
        // synchronous writes.
        let command = IoCommand::new(*request, self.namespace);
        let issuer = Issuer::local();
        let mut data = InMemory {
            from_host: data,
            to_host: out,
        };
        let outcome =
            self.subsystem
                .execute(&mut self.device, &command, &issuer, self.now, &mut data);

        // Several commands of one operation are done when the last of them is.
        self.outcome.done_at = self.outcome.done_at.max(outcome.done_at);
        self.outcome.sync_to = self.outcome.sync_to.max(outcome.sync_to);

        // Telemetry counts the time that a host sees: the model's time, or the wall clock's if
        // longer.
        let done_ns = outcome.done_at.max(self.epoch.elapsed().as_nanos() as u64);
        let took_ns = done_ns.saturating_sub(self.now);
        self.subsystem
            .telemetry()
            .observe(CommandKind::of(request), 1, took_ns);
        if outcome.status.is_success() {
            Ok(())
        } else {
            Err(outcome.status.into())
        }
    }

    fn read(&mut self, slba: u64, count: u32) -> Result<Vec<u8>, DiskError> {
        let blocks = self.namespace.blocks(slba, count)?;
        let mut out = Vec::with_capacity((count as usize) << self.namespace.lba_shift);
        self.execute(&IoRequest::Read { blocks, fua: false }, &[], &mut out)?;
        Ok(out)
    }

    fn write(&mut self, slba: u64, data: &[u8], through: bool) -> Result<(), DiskError> {
        let blocks = self
            .namespace
            .blocks(slba, (data.len() >> self.namespace.lba_shift) as u32)?;
        self.execute(
            &IoRequest::Write {
                blocks,
                fua: through,
            },
            data,
            &mut Vec::new(),
        )
    }

    /// Writes bytes anywhere: partly covered blocks at the ends are read first.
    fn write_bytes(&mut self, offset: u64, data: &[u8], through: bool) -> Result<(), DiskError> {
        let Cover {
            slba,
            count,
            before,
            after,
        } = Cover::of(self.namespace, offset, data.len() as u64);

        if before == 0 && after == 0 {
            return self.write(slba, data, through);
        }

        let block = 1 << self.namespace.lba_shift;
        let mut whole = vec![0; (count as usize) * block];

        if before > 0 {
            whole[..block].copy_from_slice(&self.read(slba, 1)?);
        }

        // A range within a single block has already read it.
        if after > 0 && !(before > 0 && count == 1) {
            let last = whole.len() - block;
            whole[last..].copy_from_slice(&self.read(slba + u64::from(count) - 1, 1)?);
        }

        whole[before..before + data.len()].copy_from_slice(data);
        self.write(slba, &whole, through)
    }
}

/// The blocks that a range of bytes touches, and their bytes before and after it.
struct Cover {
    slba: u64,
    count: u32,
    before: usize,
    after: usize,
}

impl Cover {
    /// `len` is at least one, and below 2^32 blocks.
    fn of(namespace: &Namespace, offset: u64, len: u64) -> Self {
        let block = 1u64 << namespace.lba_shift;
        let (slba, end) = (offset / block, offset + len);
        let blocks_end = end.div_ceil(block);
        Self {
            slba,
            count: (blocks_end - slba) as u32,
            before: (offset % block) as usize,
            after: (blocks_end * block - end) as usize,
        }
    }
}

impl Disk {
    /// A disk over a namespace; `None` if the namespace or the subsystem does not exist. Times
    /// count from `epoch`.
    pub(crate) fn new(gate: Arc<Gate>, nsid: u32, epoch: Instant) -> Option<Self> {
        // `None` in two cases: the gate is closed, or there is no such namespace.
        let (first, delays_answers) =
            gate.with(|subsystem| Some((subsystem.namespace(nsid)?, subsystem.delays_answers())))??;
        Some(Self {
            gate,
            epoch,
            first,
            delays_answers,
        })
    }

    /// Size of the disk in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.first.pages) * PAGE_BYTES as u64
    }
    /// Number of its namespace, from 1.
    pub(crate) fn nsid(&self) -> u32 {
        self.first.nsid
    }
    /// Returns true if answers must be delayed until their completion times.
    pub(crate) fn delays_answers(&self) -> bool {
        self.delays_answers
    }
    /// The wall clock, in nanoseconds since the epoch.
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The current state of the namespace.
    ///
    /// # Errors
    /// It was deleted, even if another one now has its number, or the device is gone.
    fn namespace(&self) -> Result<Namespace, DiskError> {
        let now = self.gate.with(|subsystem| subsystem.namespace(self.nsid()));
        let now = now.ok_or(DiskError::Gone)?;
        let same = now.filter(|now| now.serial == self.first.serial);
        same.ok_or(DiskError::Device(Status::INVALID_NAMESPACE))
    }

    /// Runs commands in one turn. The turn may be interrupted between pages, unless the commands
    /// are `together`.
    fn turn<R>(
        &self,
        namespace: &Namespace,
        together: bool,
        work: impl FnOnce(&mut DiskAccess<'_>) -> Result<R, DiskError>,
    ) -> Result<(R, u64), DiskError> {
        let result = self.gate.with(|subsystem| {
            let device = subsystem.turn(Weight::Light);

            // Otherwise another host's write between reading and writing a partial block would be
            // undone.
            let device = if together { device.undivided() } else { device };
            let now = self.now();
            let outcome = Outcome::new(Status::SUCCESS, now);
            let mut turn = DiskAccess {
                subsystem,
                device,
                namespace,
                now,
                epoch: self.epoch,
                outcome,
            };
            let result = work(&mut turn)?;

            // Release the device before waiting for the disk.
            let DiskAccess {
                device, outcome, ..
            } = turn;
            drop(device);
            let Outcome {
                status, done_at, ..
            } = subsystem.wait_until_durable(outcome);
            if status.is_success() {
                Ok((result, done_at))
            } else {
                Err(status.into())
            }
        });
        result.unwrap_or(Err(DiskError::Gone))
    }

    /// Length of the part of a range that lies on the disk.
    fn fitting(&self, offset: u64, len: u64) -> u64 {
        len.min(self.bytes().saturating_sub(offset))
    }

    /// Reads the part of the range on the disk; also returns the completion time.
    ///
    /// # Errors
    /// The device refused, or is gone.
    pub(crate) fn read(&self, offset: u64, len: u32) -> Result<(Vec<u8>, u64), DiskError> {
        let len = self.fitting(offset, len.into());
        if len == 0 {
            return Ok((Vec::new(), self.now()));
        }
        let namespace = self.namespace()?;
        let Cover {
            slba,
            count,
            before,
            ..
        } = Cover::of(&namespace, offset, len);
        let (mut data, done_at) = self.turn(&namespace, false, |turn| turn.read(slba, count))?;

        // The device reads whole blocks; cut off the ends outside the range.
        if before > 0 {
            data.drain(..before);
        }
        data.truncate(len as usize);
        Ok((data, done_at))
    }

    /// Writes the part of the range on the disk; returns the number of bytes and the completion
    /// time. `through`: not only to a cache.
    ///
    /// # Errors
    /// No part of it is on the disk, or the device refused, or is gone.
    pub(crate) fn write(
        &self,
        offset: u64,
        data: &[u8],
        through: bool,
    ) -> Result<(u32, u64), DiskError> {
        let len = self.fitting(offset, data.len() as u64) as usize;

        // An empty write succeeds anywhere; one entirely past the end does not.
        match (data.len(), len) {
            (0, _) => return Ok((0, self.now())),
            (_, 0) => return Err(DiskError::Range),
            _ => {}
        }
        let namespace = self.namespace()?;
        let ends = [offset, offset + len as u64];
        let whole_blocks = ends
            .iter()
            .all(|end| end.is_multiple_of(1 << namespace.lba_shift));
        // Only partial blocks are read first, and must exclude other hosts.
        let ((), done_at) = self.turn(&namespace, !whole_blocks, |turn| {
            turn.write_bytes(offset, &data[..len], through)
        })?;
        Ok((len as u32, done_at))
    }

    /// Zeroes a range: whole pages are deallocated. The part past the end of the disk is ignored.
    ///
    /// # Errors
    /// The device refused, or is gone.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> Result<u64, DiskError> {
        let namespace = self.namespace()?;
        let end = offset + self.fitting(offset, len);

        // Partial blocks at the ends are written.
        let block = 1u64 << namespace.lba_shift;
        let (first, last) = (
            offset.next_multiple_of(block).min(end),
            (end - end % block).max(offset),
        );

        // A range without a whole block is written in one piece.
        let parts = if first < last {
            [(offset, first), (last, end)]
        } else {
            [(offset, end), (end, end)]
        };

        let mut done_at = self.now();
        for (start, end) in parts.into_iter().filter(|(start, end)| start < end) {
            let zeroes = vec![0; (end - start) as usize];
            let ((), part_done_at) = self.turn(&namespace, true, |turn| {
                turn.write_bytes(start, &zeroes, false)
            })?;
            done_at = done_at.max(part_done_at);
        }

        let ((), whole_done_at) = self.turn(&namespace, false, |turn| {
            let mut at = first / block;
            while first < last && at < last / block {
                // The number of blocks of a request has 32 bits: a long range takes several.
                let count = (last / block - at).min(1 << 31) as u32;
                let blocks = turn.namespace.blocks(at, count)?;

                turn.execute(
                    &IoRequest::WriteZeroes { blocks, fua: false },
                    &[],
                    &mut Vec::new(),
                )?;

                at += u64::from(count);
            }
            Ok(())
        })?;

        Ok(done_at.max(whole_done_at))
    }

    /// Makes all written data survive a crash of this machine; returns the completion time.
    ///
    /// # Errors
    /// It failed, or the device is gone.
    pub(crate) fn flush(&self) -> Result<u64, DiskError> {
        let ((), done_at) = self.turn(&self.namespace()?, false, |turn| {
            turn.execute(&IoRequest::Flush, &[], &mut Vec::new())
        })?;
        Ok(done_at)
    }

    /// Copies bytes from another disk of the device, or from this one, by Copy: whole pages are
    /// remapped. A long copy takes several Copy commands. Returns the number of bytes copied, which
    /// may be fewer than requested, and the completion time.
    ///
    /// # Errors
    /// The range is not whole blocks, or past the end; the device refused, or is gone. If it
    /// refused after some Copy commands, their bytes are returned instead.
    pub(crate) fn copy(
        &self,
        offset: u64,
        from: &Self,
        from_offset: u64,
        len: u64,
    ) -> Result<(u64, u64), DiskError> {
        let (namespace, from_namespace) = (self.namespace()?, from.namespace()?);
        let shift = namespace.lba_shift;
        let len = self.fitting(offset, from.fitting(from_offset, len));
        let count = len >> shift;
        let blocks = |offset: u64| offset.is_multiple_of(1 << shift).then_some(offset >> shift);
        let (Some(target), Some(source)) = (blocks(offset), blocks(from_offset)) else {
            return Err(DiskError::Alignment);
        };

        // Copy takes whole blocks, of the same size on both sides. If no byte is left to copy, the
        // range is past the end.
        if count == 0 || from_namespace.lba_shift != shift {
            return Err(if len == 0 {
                DiskError::Range
            } else {
                DiskError::Alignment
            });
        }

        // Whole pages per Copy, so that only the last one may end within a page.
        let step = u64::from(copy_range_blocks_max(shift)) / (PAGE_BYTES as u64 >> shift)
            * (PAGE_BYTES as u64 >> shift);

        let (copied, done_at) = self.turn(&namespace, false, |turn| {
            let mut copied = 0;
            while copied < count {
                let blocks = (count - copied).min(step);
                let range = CopyRange::new(source + copied, (blocks - 1) as u16)
                    .of_namespace(from_namespace.nsid);
                let target = target + copied;
                let request = IoRequest::Copy {
                    target,
                    ranges: 1,
                    with_namespaces: true,
                    fua: false,
                };
                match turn.execute(&request, range.as_bytes(), &mut Vec::new()) {
                    Ok(()) => copied += blocks,
                    Err(error) if copied == 0 => return Err(error),
                    // Copied bytes are reported; the caller repeats the call for the rest and gets
                    // the error.
                    Err(_) => break,
                }
            }
            Ok(copied)
        })?;
        Ok((copied << shift, done_at))
    }
}

#[cfg(test)]
mod tests;
