//! What each I/O command does, and what it counts: one function a command.
//!
//! Invariant: a command that must not stay in the volatile cache ends with a sync. Absent: what a
//! command may name (`request`), pages (`io`, `remap`, `file_map`), and waiting until the sync is
//! durable (`durable`).

use super::data::{HostData, InMemory, take_all};
use super::faults::BlockAccess;
use super::io::{ActiveCommand, pieces};
use super::namespaces::Namespace;
use super::record::CommandRecord;
use super::request::{Blocks, CopyPart, IoRequest, dsm_ranges};
use super::reservations::Actor;
use super::rights::HostRights;
use super::subsystem::{Counters, PAGE_SHIFT, Subsystem};
use super::telemetry::CommandKind;
use super::turn::{DeviceTurn, Step};
use crate::spec::command::{CopyRange, DsmRange, RemapResult};
use crate::spec::status::Status;
use remap_ssd_device::Lpn;
use remap_ssd_ftl::{FilePage, FileStatus};
use remap_ssd_media::folder::HistoryPosition;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// A checked command with all it comes with.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Number of the namespace that it is for.
    pub nsid: u32,
    /// Version of the namespace that it was checked against.
    pub version: u32,
    /// The command, checked and taken apart.
    pub request: &'a IoRequest,
    /// When it is executed; completions are due after that.
    pub now: u64,
    /// Whether writes may stay in a volatile cache.
    pub cache_enabled: bool,
    /// What its host may do.
    pub rights: &'a HostRights,
    /// Who wants it: a host, or the service itself.
    pub actor: Actor<'a>,
}

/// How a command ended, and when that may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status that its completion has.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// When the timing model completes it, in the clock of `now`.
    pub done_at: u64,
    /// What must be durable before it is acknowledged (`Subsystem::wait_until_durable`).
    pub sync_to: Option<HistoryPosition>,
    /// The first block that met an error, if the command failed by one.
    pub failed_block: Option<FailedBlock>,
}

/// A block that met an error, as the error log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedBlock {
    /// Its namespace. A copy may read from another one than the command's.
    pub nsid: u32,
    /// Its address in that namespace, in blocks of its format.
    pub lba: u64,
}

struct Failure {
    status: Status,
    /// Dwords 0 and 1 of the completion.
    result: u64,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

impl Subsystem {
    /// How many commands have begun so far: after a power cut it tells which of them had.
    pub fn commands_begun(&self) -> u64 {
        self.commands.load(Relaxed)
    }

    /// Executes a later part of a write (`IoRequest::part`): it counts as one command with those
    /// before it. `began`: how many commands had begun before the first part. A power cut since then
    /// may have taken what that part wrote, so that the write fails.
    pub fn execute_next_part(
        &self,
        device: &mut DeviceTurn<'_>,
        job: &Job<'_>,
        began: u64,
        data: &mut dyn HostData,
    ) -> Outcome {
        // Asked in the turn: a cut has one of its own.
        let is_cut = device
            .cache()
            .is_some_and(|cache| cache.is_cut_since(began));
        if is_cut {
            self.telemetry().failed(CommandKind::of(job.request));
            return Outcome {
                status: Status::POWER_LOSS,
                result: 0,
                done_at: job.now,
                sync_to: None,
                failed_block: None,
            };
        }

        // `execute` counts each part as a command. One is taken back here, so that the whole write
        // is one. A part that is not begun is not counted.
        if device.queue_must_stand().is_ok() {
            self.counters.write_commands.add(device, -1);
        }
        self.execute(device, job, data)
    }

    /// Executes a checked command. The data it has put are valid only if it was successful.
    ///
    /// `device` is this subsystem's, for one command or a batch; a long command lets others use it
    /// in between. The caller waits until what the outcome names is durable before the command is
    /// acknowledged, after it has released the device.
    pub fn execute(
        &self,
        device: &mut DeviceTurn<'_>,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Outcome {
        // A flush writes back what others have left in the cache, so nothing of it passes the cache
        // by.
        let write_through = self.volatile_cache() && !job.cache_enabled;
        let is_flush = *job.request == IoRequest::Flush;
        // Only the versions in a volatile cache are numbered by their commands.
        let number = if device.has_cache() {
            self.commands.fetch_add(1, Relaxed)
        } else {
            0
        };

        let mut command = ActiveCommand {
            device,
            now: job.now,
            done_at: job.now,
            sync_to: None,
            slices: 0,
            job,
            source: None,
            number,
            through: !is_flush && (write_through || job.request.is_forced()),
            touched: self.witness().map(|_| Vec::new()),
            failed_byte: None,
            copied: RemapResult::new(),
            record: self.recorder().map(|recorder| CommandRecord {
                recorder,
                ops: Vec::new(),
            }),
        };

        // The order counts: reservations before anything is touched, and the sync last, so that it
        // covers all that the command did.
        let must_sync = job.request.must_sync(write_through);
        let executed = command
            .device
            .queue_must_stand()
            .and_then(|()| command.check_reservations())
            .map_err(Failure::from)
            .and_then(|()| self.dispatch(&mut command, job, data))
            .and_then(|()| if must_sync { command.sync() } else { Ok(()) }.map_err(Failure::from));
        let (status, result) = match executed {
            Ok(()) => (Status::SUCCESS, command.result()),
            Err(Failure { status, result }) => (status, result),
        };

        // Nothing may be acknowledged once the disk under the device has failed.
        let status = match command.device.ftl().media().broken() {
            Some(_) => Status::WRITE_FAULT,
            None => status,
        };

        // What a command did is recorded although it failed: the device has done it.
        if let Some(record) = command
            .record
            .take()
            .filter(|record| !record.ops.is_empty())
        {
            record.recorder.command(job.now, &record.ops);
        }

        // Before others get the device: what it holds now is this command's.
        let told = match self.witness() {
            Some(witness) => command.tell(witness),
            None => Ok(()),
        };
        let status = told.err().unwrap_or(status);

        // All ways out of a command that was begun pass this place, so none that failed is missed.
        if !status.is_success() {
            self.telemetry().failed(CommandKind::of(job.request));
        }

        // Type 2 is media and data integrity errors, which SMART counts.
        if status.kind() == 2 {
            self.counters.media_errors.add(command.device, 1);
        }

        Outcome {
            status,
            result,
            done_at: command.done_at.saturating_add(self.injected_delay_ns()),
            sync_to: command.sync_to,
            failed_block: command.failed_byte.and_then(|byte| self.block_at(byte)),
        }
    }

    /// Executes a command without data in a turn of its own; what it has to keep is durable when this
    /// returns. The caller must not have the device.
    ///
    /// # Errors
    /// The command's status.
    pub(super) fn execute_alone(&self, job: &Job<'_>) -> Result<(), Status> {
        self.execute_in(self.device(), job)
    }

    /// The same in a turn that has just begun.
    pub(super) fn execute_in(&self, mut turn: DeviceTurn<'_>, job: &Job<'_>) -> Result<(), Status> {
        let mut data = InMemory {
            from_host: &[],
            to_host: &mut Vec::new(),
        };

        // The turn ends before the wait: a commit needs the device.
        let outcome = self.execute(&mut turn, job, &mut data);
        drop(turn);
        match self.wait_until_durable(outcome).status {
            Status::SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// The block of a namespace that a byte of the device is in.
    #[cold]
    fn block_at(&self, byte: u64) -> Option<FailedBlock> {
        let page = u32::try_from(byte >> PAGE_SHIFT).ok()?;
        let mut all = self.namespaces().into_iter();
        let namespace = all.find(|namespace| namespace.has_page(Lpn(page)))?;

        let start = u64::from(namespace.first_lpn.0) << PAGE_SHIFT;
        Some(FailedBlock {
            nsid: namespace.nsid,
            lba: (byte - start) >> namespace.lba_shift,
        })
    }

    /// Does what a command asks for, but for its sync.
    fn dispatch(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        // A flush may name no namespace.
        let namespace = match *job.request {
            IoRequest::Flush => return Ok(()),
            _ => &self.namespace_of(job)?,
        };

        // Checked when the command was parsed, and again: rights may have been taken away while its
        // data were on their way.
        job.rights.check_request(job.nsid, job.request)?;

        match *job.request {
            IoRequest::Flush => Ok(()),
            IoRequest::Read { blocks, fua } => self.read(command, namespace, blocks, fua, data),
            IoRequest::Write { blocks, .. } | IoRequest::WriteThrough { blocks } => {
                self.write(command, namespace, blocks, data)
            }
            _ => self.dispatch_rare(command, namespace, job, data),
        }
    }

    /// Commands that are not reads or writes. Apart, so that what they need of the stack is not
    /// touched by those.
    #[inline(never)]
    fn dispatch_rare(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        match *job.request {
            IoRequest::Flush
            | IoRequest::Read { .. }
            | IoRequest::Write { .. }
            | IoRequest::WriteThrough { .. } => unreachable!("`dispatch` executes these"),
            IoRequest::Compare { blocks } => self.compare(command, namespace, blocks, data),
            IoRequest::Verify { blocks } => verify(command, namespace, blocks),
            IoRequest::WriteZeroes { blocks, .. } => {
                command.access(BlockAccess::Deallocate, namespace, blocks)?;
                Ok(command.deallocate(namespace, blocks, true)?)
            }
            IoRequest::DatasetManagement { ranges, deallocate } => {
                dataset_management(command, namespace, ranges, deallocate, data)
            }
            IoRequest::Copy {
                target,
                ranges,
                with_namespaces,
                ..
            } => {
                // The whole list is taken first. Every range is checked before the first is copied.
                let list = take_all(data, ranges as usize * size_of::<CopyRange>());
                let parts =
                    self.copy_parts(namespace, target, with_namespaces, &list, job.rights)?;
                copy(command, namespace, &parts)
            }
            IoRequest::Remap { pages, .. } => {
                command.access_remapped(&pages)?;
                Ok(command.remap(&pages)?)
            }
            IoRequest::FsWrite { blocks, page, .. } => {
                self.fs_write(command, namespace, blocks, page, job, data)
            }
            IoRequest::FsMap {
                bytes,
                inode,
                first,
            } => {
                let list = command.fs_list(namespace, inode)?;
                put_list(&list, first as usize, bytes as usize, data);
                Ok(())
            }
            IoRequest::FsReset => {
                command.access_lists()?;
                Ok(command.fs_reset()?)
            }
        }
    }

    fn read(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        blocks: Blocks,
        fua: bool,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        let Counters {
            read_commands,
            sectors_read,
            ..
        } = &self.counters;
        read_commands.add(command.device, 1);
        sectors_read.add(command.device, sectors(namespace, blocks));
        command.access(BlockAccess::Read, namespace, blocks)?;

        // FUA reads what is on the device (NVM 1.0 §3.2.4).
        if fua {
            command.touch(namespace, blocks);
            command.write_back_blocks(namespace, blocks)?;
        }
        Ok(command.read_all(namespace, blocks, data)?)
    }

    fn write(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        self.count_write(command, namespace, blocks);
        command.access(BlockAccess::Write, namespace, blocks)?;
        Ok(command.write_all(namespace, blocks, data)?)
    }

    fn compare(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        blocks: Blocks,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        self.counters.read_commands.add(command.device, 1);
        command.access(BlockAccess::Read, namespace, blocks)?;
        // A page at a time, with pauses between: others need not wait for the whole range.
        for piece in pieces(namespace, blocks) {
            command.pause()?;
            if !command.is_same(&piece, data)? {
                return Err(Status::COMPARE_FAILURE.into());
            }
        }
        Ok(())
    }

    fn fs_write(
        &self,
        command: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        blocks: Blocks,
        page: FilePage,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Result<(), Failure> {
        self.count_write(command, namespace, blocks);
        command.access(BlockAccess::Write, namespace, blocks)?;
        let status = command.fs_write(namespace, blocks, data, page)?;
        if status == FileStatus::Recorded {
            return Ok(());
        }

        // The page was written, and the map does not list it: durable all the same, if that was
        // asked for.
        if job
            .request
            .must_sync(self.volatile_cache() && !job.cache_enabled)
        {
            command.sync()?;
        }
        // 1 the table of files is full, 2 the lists are, 3 the map is damaged.
        Err(Failure {
            status: Status::NOT_LISTED,
            result: status as u64,
        })
    }

    fn count_write(&self, command: &ActiveCommand<'_, '_>, namespace: &Namespace, blocks: Blocks) {
        let Counters {
            write_commands,
            sectors_written,
            ..
        } = &self.counters;
        write_commands.add(command.device, 1);
        sectors_written.add(command.device, sectors(namespace, blocks));
    }
}

/// Blocks in units of 512 bytes.
fn sectors(namespace: &Namespace, blocks: Blocks) -> i64 {
    i64::from(blocks.count) << (namespace.lba_shift - 9)
}

/// Copies the ranges one after the other. If one fails, the result is how many were copied.
fn copy(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    parts: &[CopyPart],
) -> Result<(), Failure> {
    // All sources may be read before the first block is copied, and each when it is its turn.
    for part in parts {
        command.read_from(&part.source)?;
    }

    for (index, part) in parts.iter().enumerate() {
        let from = (&part.source, part.slba);
        command
            .read_from(&part.source)
            .and_then(|()| access_copied(command, namespace, part))
            .and_then(|()| command.copy((namespace, part.target), from, part.count))
            .map_err(|status| Failure {
                status,
                result: index as u64,
            })?;
    }

    Ok(())
}

/// The blocks of a part of a copy are about to be read, and those that it goes to written.
fn access_copied(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    part: &CopyPart,
) -> Result<(), Status> {
    let blocks = |slba| Blocks {
        slba,
        count: part.count,
    };
    command.access(BlockAccess::Read, &part.source, blocks(part.slba))?;
    command.access(BlockAccess::Write, namespace, blocks(part.target))
}

fn verify(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    blocks: Blocks,
) -> Result<(), Failure> {
    command.access(BlockAccess::Read, namespace, blocks)?;
    for piece in pieces(namespace, blocks) {
        command.pause()?;
        // Nothing is moved to the host, so a look is all it costs; `view_piece` fails where
        // the page cannot be read.
        command.device.spend(Step::Look);
        command.view_piece(&piece, |_| Ok(()))?;
    }
    Ok(())
}

fn dataset_management(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    ranges: u32,
    deallocate: bool,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    let list = take_all(data, ranges as usize * size_of::<DsmRange>());
    // All ranges are checked before the first is deallocated: a command with a bad range changes
    // nothing.
    let ranges = dsm_ranges(namespace, &list)?;

    // The other attributes are hints about later accesses.
    for blocks in ranges.into_iter().filter(|_| deallocate) {
        command.access(BlockAccess::Deallocate, namespace, blocks)?;
        command.deallocate(namespace, blocks, false)?;
    }
    Ok(())
}

/// How long the whole list is, and its entries from `first` on, as far as `bytes` reach. Zeroes
/// follow.
fn put_list(list: &[[u32; 2]], first: usize, bytes: usize, data: &mut dyn HostData) {
    let head = u64::from(list.len() as u32).to_le_bytes().into_iter();
    let entries = list
        .iter()
        .skip(first)
        .flat_map(|entry| entry.map(u32::to_le_bytes))
        .flatten();
    let listed: Vec<u8> = head.chain(entries).take(bytes).collect();

    listed.chunks(PAGE_BYTES).for_each(|piece| data.put(piece));
    data.put_zeroes(bytes - listed.len());
}
