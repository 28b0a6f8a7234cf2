//! Execution and accounting of I/O commands: one function per command.
//!
//! Invariant: a command whose changes must not stay in a volatile cache ends with a sync. Absent:
//! validation of commands (`request`), pages (`io`, `remap`, `file_map`), and waiting until the
//! sync is durable (`durable`).

use super::blocks::{Blocks, Namespace, PAGE_SHIFT, pieces};
use super::copy::copy;
use super::counters::Counters;
use super::data::{HostData, InMemory, take_all};
use super::faults::{BlockAccess, FaultInjector};
use super::io::{ActiveCommand, Failure};
use super::issuer::{FailedBlock, Issuer, Outcome};
use super::record::CommandRecord;
use super::request::{IoCommand, IoRequest, dsm_ranges};
use super::subsystem::Subsystem;
use super::telemetry::CommandKind;
use super::turn::{DeviceTurn, Step};
use crate::spec::command::{DsmRange, RemapResult};
use crate::spec::status::Status;
use remap_ssd_device::Lpn;
use remap_ssd_ftl::{FilePage, FileStatus, Remap};
use remap_ssd_media::geometry::PAGE_BYTES;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

impl Subsystem {
    /// Number of commands begun so far; tells after a power cut which of them had begun.
    pub(crate) fn commands_begun(&self) -> u64 {
        self.commands.load(Relaxed)
    }

    /// Executes a later part of a write (`IoCommand::part`), which counts as one command with
    /// the parts before. `began`: number of commands begun before the first part. A power cut since
    /// then may have lost that part's data, so the write fails.
    pub fn execute_next_part(
        &self,
        device: &mut DeviceTurn<'_>,
        command: &IoCommand,
        issuer: &Issuer<'_>,
        now: u64,
        began: u64,
        data: &mut dyn HostData,
    ) -> Outcome {
        // Checked in the turn: a cut takes a turn of its own.
        if device.is_cut_since(began) {
            self.telemetry().failed(CommandKind::of(&command.request));
            return Outcome::new(Status::POWER_LOSS, now);
        }
        self.execute_part(device, command, issuer, now, false, data)
    }

    /// Executes a checked command. The data it has put are valid only if it succeeds.
    ///
    /// `device` is this subsystem's, for one command or a batch; a long command lets others use it
    /// in between. Before acknowledging, the caller must release the device and wait until
    /// `sync_to` is durable.
    pub fn execute(
        &self,
        device: &mut DeviceTurn<'_>,
        command: &IoCommand,
        issuer: &Issuer<'_>,
        now: u64,
        data: &mut dyn HostData,
    ) -> Outcome {
        self.execute_part(device, command, issuer, now, true, data)
    }

    /// Executes a command, or a part of a write. The first part counts as the command.
    fn execute_part(
        &self,
        device: &mut DeviceTurn<'_>,
        command: &IoCommand,
        issuer: &Issuer<'_>,
        now: u64,
        is_first: bool,
        data: &mut dyn HostData,
    ) -> Outcome {
        // A flush writes back versions of other commands, so it never bypasses the cache.
        let write_through = issuer.write_through.load(Acquire);
        let request = &command.request;
        let is_flush = *request == IoRequest::Flush;

        // Only commands whose changes a power cut may lose need numbers.
        let number = if self.loses_writes() {
            self.commands.fetch_add(1, Relaxed)
        } else {
            0
        };

        let mut active = ActiveCommand {
            device,
            namespaces: &self.namespaces,
            reservations: &self.reservations,
            faults: self.fault_injector(),
            now,
            done_at: now,
            sync_to: None,
            slices: 0,
            command,
            issuer,
            source: None,
            number,
            is_first,
            must_sync: request.must_sync(write_through),
            through: !is_flush && (write_through || request.is_forced()),
            has_buffer: self.has_buffer(),
            untorn_blocks: self.untorn_blocks(command.lba_shift),
            touched: self.observer().map(|_| Vec::new()),
            failed_byte: None,
            copied: RemapResult::new(),
            record: self.recorder().map(|recorder| CommandRecord {
                recorder,
                ops: Vec::new(),
            }),
        };

        // The order counts: check reservations before any change, and sync last, so that it covers
        // everything the command did.
        let executed = active
            .device
            .queue_must_stand()
            .and_then(|()| active.check_reservations())
            .map_err(Failure::from)
            .and_then(|()| dispatch(&mut active, &self.counters, data))
            .and_then(|()| Ok(active.sync_if_needed()?));
        self.end(&mut active, executed)
    }

    /// Reports and counts a command that has been executed, before others get the device.
    #[inline(always)]
    fn end(&self, active: &mut ActiveCommand<'_, '_>, executed: Result<(), Failure>) -> Outcome {
        let (status, result) = match executed {
            Ok(()) => (Status::SUCCESS, active.result()),
            Err(Failure { status, result }) => (status, result),
        };

        // Once the disk under the device has failed, no command may be acknowledged.
        let status = match active.device.ftl().media().broken() {
            Some(_) => Status::WRITE_FAULT,
            None => status,
        };

        // A failed command is recorded too: the device has executed its steps.
        let record = active.record.take();
        if let Some(record) = record.filter(|record| !record.ops.is_empty()) {
            record.recorder.command(active.now, &record.ops);
        }

        // Before others get the device: its content is still this command's.
        let reported = match self.observer() {
            Some(observer) => active.report(observer),
            None => Ok(()),
        };
        let status = reported.err().unwrap_or(status);

        // All paths of a begun command pass here, so every failure is counted.
        if !status.is_success() {
            let kind = CommandKind::of(&active.command.request);
            self.telemetry().failed(kind);
        }

        // Type 2 is media and data integrity errors, which SMART counts.
        if status.kind() == 2 {
            self.counters.media_errors.add(active.device, 1);
        }

        Outcome {
            status,
            result,
            done_at: active
                .done_at
                .saturating_add(delay_ns(self.fault_injector())),
            sync_to: active.sync_to,
            failed_block: active.failed_byte.and_then(|byte| self.block_at(byte)),
        }
    }

    /// Executes a command without data in a turn of its own; on return its effect is as durable as
    /// it must be. The caller must not have the device.
    ///
    /// # Errors
    /// The command's status.
    pub(super) fn execute_alone(
        &self,
        command: &IoCommand,
        issuer: &Issuer<'_>,
    ) -> Result<(), Status> {
        self.execute_in(self.device(), command, issuer)
    }

    /// Like `execute_alone`, in a turn that has just begun.
    pub(super) fn execute_in(
        &self,
        mut turn: DeviceTurn<'_>,
        command: &IoCommand,
        issuer: &Issuer<'_>,
    ) -> Result<(), Status> {
        let mut data = InMemory {
            from_host: &[],
            to_host: &mut Vec::new(),
        };

        // The turn ends before the wait, since a commit needs the device.
        let outcome = self.execute(&mut turn, command, issuer, 0, &mut data);
        drop(turn);
        match self.wait_until_durable(outcome).status {
            Status::SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// The block of a namespace that contains a byte of the device.
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
}

/// Executes a command, except for its sync. Inlined, for it has one caller. The rarer commands are
/// not, so that reads and writes do not touch their larger stack frames.
#[inline(always)]
fn dispatch(
    command: &mut ActiveCommand<'_, '_>,
    counters: &Counters,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    let IoCommand { request, nsid, .. } = command.command;

    // A flush may name no namespace.
    if *request == IoRequest::Flush {
        return Ok(());
    }

    let namespace = &command.namespace()?;

    // Checked when the command was parsed, and again: rights may have been revoked while its data
    // were in transit.
    command.issuer.rights.check_request(*nsid, request)?;

    match *request {
        IoRequest::Flush => Ok(()),
        IoRequest::Read { blocks, .. } => read(command, counters, namespace, blocks, data),
        IoRequest::Write { blocks, .. } | IoRequest::WriteThrough { blocks } => {
            write(command, counters, namespace, blocks, data)
        }
        IoRequest::Compare { blocks, .. } => compare(command, counters, namespace, blocks, data),
        IoRequest::Verify { blocks, .. } => verify(command, namespace, blocks),
        IoRequest::WriteZeroes { blocks, .. } => write_zeroes(command, namespace, blocks),
        IoRequest::DatasetManagement { ranges, deallocate } => {
            dataset_management(command, namespace, ranges, deallocate, data)
        }
        IoRequest::Copy {
            target,
            ranges,
            with_namespaces,
            ..
        } => copy(command, namespace, target, ranges, with_namespaces, data),
        IoRequest::Remap { pages, .. } => remap(command, &pages),
        IoRequest::FsWrite { blocks, page, .. } => {
            fs_write(command, counters, namespace, blocks, page, data)
        }
        IoRequest::FsMap {
            bytes,
            inode,
            first,
        } => fs_map(command, namespace, bytes, inode, first, data),
        IoRequest::FsReset => fs_reset(command),
    }
}

fn read(
    command: &mut ActiveCommand<'_, '_>,
    counters: &Counters,
    namespace: &Namespace,
    blocks: Blocks,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    counters.read_commands.add(command.device, 1);
    let sectors = sectors(namespace, blocks);
    counters.sectors_read.add(command.device, sectors);
    command.access(BlockAccess::Read, namespace, blocks)?;
    from_medium(command, namespace, blocks, |command| {
        Ok(command.read_all(namespace, blocks, data)?)
    })
}

/// Reads; with FUA, from the medium (NVM 1.0 §3.2.4).
#[inline(always)]
fn from_medium<'a, 'd>(
    command: &mut ActiveCommand<'a, 'd>,
    namespace: &Namespace,
    blocks: Blocks,
    read: impl FnOnce(&mut ActiveCommand<'a, 'd>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !command.command.request.reads_from_medium() {
        return read(command);
    }
    command.touch(namespace, blocks);
    command.write_back_blocks(namespace, blocks)?;
    read(command)?;

    // Only now: other hosts may have written pages since the command began. What it has read, or something newer, must be durable.
    command.write_back_blocks(namespace, blocks)?;
    Ok(command.force_blocks(namespace, blocks)?)
}

fn write(
    command: &mut ActiveCommand<'_, '_>,
    counters: &Counters,
    namespace: &Namespace,
    blocks: Blocks,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    count_write(command, counters, namespace, blocks);
    command.access(BlockAccess::Write, namespace, blocks)?;
    Ok(command.write_all(namespace, blocks, data)?)
}

#[inline(never)]
fn compare(
    command: &mut ActiveCommand<'_, '_>,
    counters: &Counters,
    namespace: &Namespace,
    blocks: Blocks,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    counters.read_commands.add(command.device, 1);
    command.access(BlockAccess::Read, namespace, blocks)?;
    from_medium(command, namespace, blocks, |command| {
        // One page at a time, with pauses between: others need not wait for the whole range.
        for piece in pieces(namespace, blocks) {
            command.pause()?;
            if !command.is_same(&piece, data)? {
                return Err(Status::COMPARE_FAILURE.into());
            }
        }
        Ok(())
    })
}

#[inline(never)]
fn write_zeroes(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    blocks: Blocks,
) -> Result<(), Failure> {
    command.access(BlockAccess::Deallocate, namespace, blocks)?;
    Ok(command.deallocate(namespace, blocks, true)?)
}

#[inline(never)]
fn remap(command: &mut ActiveCommand<'_, '_>, pages: &Remap) -> Result<(), Failure> {
    command.access_remapped(pages)?;
    Ok(command.remap(pages)?)
}

#[inline(never)]
fn fs_write(
    command: &mut ActiveCommand<'_, '_>,
    counters: &Counters,
    namespace: &Namespace,
    blocks: Blocks,
    page: FilePage,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    count_write(command, counters, namespace, blocks);
    command.access(BlockAccess::Write, namespace, blocks)?;
    let status = command.fs_write(namespace, blocks, data, page)?;
    if status == FileStatus::Recorded {
        return Ok(());
    }

    // The page was written, but the map does not list it. It must still be durable if requested.
    command.sync_if_needed()?;
    // 1: the table of files is full, 2: the lists are full, 3: the map is damaged.
    Err(Failure {
        status: Status::NOT_LISTED,
        result: status as u64,
    })
}

#[inline(never)]
fn fs_map(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    bytes: u32,
    inode: Option<u32>,
    first: u32,
    data: &mut dyn HostData,
) -> Result<(), Failure> {
    let list = command.fs_list(namespace, inode)?;
    put_list(&list, first as usize, bytes as usize, data);
    Ok(())
}

#[inline(never)]
fn fs_reset(command: &mut ActiveCommand<'_, '_>) -> Result<(), Failure> {
    command.access_lists()?;
    Ok(command.fs_reset()?)
}

fn count_write(
    command: &ActiveCommand<'_, '_>,
    counters: &Counters,
    namespace: &Namespace,
    blocks: Blocks,
) {
    if command.is_first {
        counters.write_commands.add(command.device, 1);
    }
    let sectors = sectors(namespace, blocks);
    counters.sectors_written.add(command.device, sectors);
}

/// Additional delay of a command's answer, in nanoseconds.
#[inline]
fn delay_ns(injector: Option<&dyn FaultInjector>) -> u64 {
    let delay = injector.map_or(Duration::ZERO, FaultInjector::delay);
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// Blocks in units of 512 bytes.
fn sectors(namespace: &Namespace, blocks: Blocks) -> u64 {
    u64::from(blocks.count) << (namespace.lba_shift - 9)
}

#[inline(never)]
fn verify(
    command: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    blocks: Blocks,
) -> Result<(), Failure> {
    command.access(BlockAccess::Read, namespace, blocks)?;
    from_medium(command, namespace, blocks, |command| {
        for piece in pieces(namespace, blocks) {
            command.pause()?;
            // No data moves to the host, so it costs only a look; `view_piece` fails if the page cannot
            // be read.
            command.device.spend(Step::Look);
            command.view_piece(&piece, |_| Ok(()))?;
        }
        Ok(())
    })
}

#[inline(never)]
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

/// Puts the length of the whole list and its entries from `first` on, cut or padded with zeroes to
/// `bytes`.
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
