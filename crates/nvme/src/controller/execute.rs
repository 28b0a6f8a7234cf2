//! What each I/O command does, and what it counts.
//!
//! Invariant: a command that must not stay in the volatile cache ends with a sync. Absent: pages (`io`), and waiting until
//! the sync is durable (`durable`).

use super::data::{HostData, take_all};
use super::io::{ActiveCommand, pieces};
use super::record::Notes;
use super::request::{Blocks, IoRequest, Transfer, copy_ranges, dsm_ranges};
use super::subsystem::{Namespace, PAGE_SHIFT, Subsystem};
use super::telemetry::CommandKind;
use super::turn::{DeviceTurn, Step};
use crate::spec::status::Status;
use remap_ssd_ftl::{FilePage, FileStatus, Remap};
use remap_ssd_media::folder::Position;
use remap_ssd_media::geometry::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// A checked command with all it comes with.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Namespace.
    pub nsid: u32,
    /// What to do.
    pub request: &'a IoRequest,
    /// The time.
    pub now: u64,
    /// Whether writes may stay in a volatile cache.
    pub cache_enabled: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// When the timing model completes it, in the clock of `now`.
    pub done_at: u64,
    /// What must be durable before it is acknowledged (`Subsystem::settle`).
    pub owes: Option<Position>,
}

/// A status, and dwords 0 and 1 of the completion.
type Failed = (Status, u64);

impl Subsystem {
    /// Executes a later part of a write (`IoRequest::part`): it counts as one command with those before it.
    pub fn go_on(
        &self,
        device: &mut DeviceTurn<'_>,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Outcome {
        self.counters.write_commands.fetch_sub(1, Relaxed);
        self.execute(device, job, data)
    }

    /// Executes a checked command. The data it has put are valid only if it was successful.
    ///
    /// `device` is this subsystem's, for one command or a batch; a long command lets others use it in between. The
    /// caller settles what the outcome owes before the command is acknowledged, after it has released the device.
    pub fn execute(
        &self,
        device: &mut DeviceTurn<'_>,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Outcome {
        let notes = self.recorder().map(|recorder| Notes {
            recorder,
            deeds: Vec::new(),
        });
        // Only the versions in a volatile cache are numbered by their commands.
        let command = if device.has_cache() {
            self.commands.fetch_add(1, Relaxed)
        } else {
            0
        };
        let mut run = ActiveCommand {
            device,
            now: job.now,
            done_at: job.now,
            owes: None,
            slices: 0,
            command,
            through: false,
            notes,
        };
        let (status, result) = match self.run(&mut run, job, data) {
            Ok(()) => (Status::SUCCESS, 0),
            Err(failure) => failure,
        };

        let status = match run.device.ftl().media().broken() {
            Some(_) => Status::WRITE_FAULT,
            None => status,
        };
        if let Some(notes) = run.notes.take().filter(|notes| !notes.deeds.is_empty()) {
            notes.recorder.command(job.now, &notes.deeds);
        }
        if !status.is_success() {
            self.telemetry().failed(CommandKind::of(job.request));
        }
        if status.kind() == 2 {
            self.counters.media_errors.fetch_add(1, Relaxed);
        }
        Outcome {
            status,
            result,
            done_at: run.done_at,
            owes: run.owes,
        }
    }

    fn run(
        &self,
        run: &mut ActiveCommand<'_, '_>,
        job: &Job<'_>,
        data: &mut dyn HostData,
    ) -> Result<(), Failed> {
        let Job {
            nsid,
            request,
            cache_enabled,
            ..
        } = *job;
        if *request == IoRequest::Flush {
            return run.sync().map_err(plain);
        }

        let namespace = self.namespace(nsid).ok_or((Status::INVALID_NAMESPACE, 0))?;
        let list_bytes = match request.transfer(namespace.lba_shift) {
            Transfer::FromHost(bytes) => bytes as usize,
            Transfer::None | Transfer::ToHost(_) => 0,
        };
        let write_through = self.volatile_cache() && !cache_enabled;
        run.through = write_through || request.is_forced();

        // Must all that was executed so far be durable before this is acknowledged?
        let force = match *request {
            IoRequest::Flush => true,
            IoRequest::Read { blocks, fua } => {
                self.count_read(namespace, blocks);
                if fua {
                    run.write_back_blocks(namespace, blocks).map_err(plain)?;
                }
                run.read_all(namespace, blocks, data).map_err(plain)?;
                fua
            }
            IoRequest::Write { blocks, fua } => {
                self.count_write(namespace, blocks);
                run.write_all(namespace, blocks, data).map_err(plain)?;
                fua || write_through
            }
            IoRequest::WriteThrough { blocks } => {
                self.count_write(namespace, blocks);
                run.write_all(namespace, blocks, data).map_err(plain)?;
                false
            }
            IoRequest::Compare { blocks } => {
                self.counters.read_commands.fetch_add(1, Relaxed);
                compare(run, namespace, blocks, data)?;
                false
            }
            IoRequest::Verify { blocks } => {
                verify(run, namespace, blocks)?;
                false
            }
            IoRequest::WriteZeroes { blocks, fua } => {
                run.deallocate(namespace, blocks, true).map_err(plain)?;
                fua || write_through
            }
            IoRequest::DatasetManagement { deallocate, .. } => {
                let ranges = checked_ranges(namespace, &take_all(data, list_bytes))?;
                for blocks in ranges.into_iter().filter(|_| deallocate) {
                    run.deallocate(namespace, blocks, false).map_err(plain)?;
                }
                write_through
            }
            IoRequest::Copy {
                target,
                with_namespaces,
                fua,
                ..
            } => {
                self.copy(
                    run,
                    namespace,
                    target,
                    with_namespaces,
                    &take_all(data, list_bytes),
                )?;
                fua || write_through
            }
            IoRequest::Remap {
                target,
                source,
                relocate,
                atomic,
                fua,
            } => {
                let remap = Remap {
                    relocate,
                    atomic,
                    ..pages_of(namespace, target, source)?
                };
                run.remap(&remap).map_err(plain)?;
                fua || write_through
            }
            IoRequest::FsWrite {
                blocks,
                inode,
                page,
                fua,
            } => {
                self.count_write(namespace, blocks);
                let status = run
                    .fs_write(
                        namespace,
                        blocks,
                        data,
                        FilePage {
                            inode,
                            offset: page,
                        },
                    )
                    .map_err(plain)?;
                let force = fua || write_through;
                // The page was written, and the map does not list it.
                if status != FileStatus::Recorded {
                    if force {
                        run.sync().map_err(plain)?;
                    }
                    // 1 the table of files is full, 2 the lists are, 3 the map is damaged.
                    return Err((Status::NOT_LISTED, status as u64));
                }
                force
            }
            IoRequest::FsMap {
                bytes,
                inode,
                first,
            } => {
                let list = run.fs_list(namespace, inode).map_err(plain)?;
                put_list(&list, first as usize, bytes as usize, data);
                false
            }
            IoRequest::FsReset => {
                run.fs_reset().map_err(plain)?;
                write_through
            }
        };
        if force {
            run.sync().map_err(plain)
        } else {
            Ok(())
        }
    }

    fn count_read(&self, namespace: &Namespace, blocks: Blocks) {
        self.counters.read_commands.fetch_add(1, Relaxed);
        self.counters
            .sectors_read
            .fetch_add(sectors(namespace, blocks), Relaxed);
    }

    fn count_write(&self, namespace: &Namespace, blocks: Blocks) {
        self.counters.write_commands.fetch_add(1, Relaxed);
        self.counters
            .sectors_written
            .fetch_add(sectors(namespace, blocks), Relaxed);
    }

    /// Copies the ranges one after the other. If one fails, the result is how many were copied.
    fn copy(
        &self,
        run: &mut ActiveCommand<'_, '_>,
        namespace: &Namespace,
        target: u64,
        with_namespaces: bool,
        data: &[u8],
    ) -> Result<(), Failed> {
        let ranges = copy_ranges(data, namespace.lba_shift).map_err(plain)?;

        let mut to = target;
        let mut checked = Vec::with_capacity(ranges.len());
        for range in &ranges {
            let from = if with_namespaces {
                self.namespace(range.snsid)
                    .ok_or((Status::INVALID_NAMESPACE, 0))?
            } else {
                namespace
            };
            if from.lba_shift != namespace.lba_shift {
                return Err((Status::INVALID_NAMESPACE, 0));
            }

            let count = u32::from(range.nlb_z) + 1;
            from.blocks(range.slba, count).map_err(plain)?;
            namespace.blocks(to, count).map_err(plain)?;
            checked.push((from, to, range.slba, count));
            to += u64::from(count);
        }

        for (index, (from, to, slba, count)) in checked.into_iter().enumerate() {
            run.copy((namespace, to), (from, slba), count)
                .map_err(|status| (status, index as u64))?;
        }
        Ok(())
    }
}

/// Blocks in units of 512 bytes.
fn sectors(namespace: &Namespace, blocks: Blocks) -> u64 {
    u64::from(blocks.count) << (namespace.lba_shift - 9)
}

fn compare(
    run: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    blocks: Blocks,
    data: &mut dyn HostData,
) -> Result<(), Failed> {
    for piece in pieces(namespace, blocks) {
        run.pause();
        if !run.is_same(&piece, data).map_err(plain)? {
            return Err((Status::COMPARE_FAILURE, 0));
        }
    }
    Ok(())
}

fn verify(
    run: &mut ActiveCommand<'_, '_>,
    namespace: &Namespace,
    blocks: Blocks,
) -> Result<(), Failed> {
    for piece in pieces(namespace, blocks) {
        run.pause();
        run.device.spend(Step::Look);
        run.view(piece.lpn, |_| Ok(())).map_err(plain)?;
    }
    Ok(())
}

/// The ranges that a Dataset Management names, all of them checked before the first is deallocated.
fn checked_ranges(namespace: &Namespace, list: &[u8]) -> Result<Vec<Blocks>, Failed> {
    let ranges = dsm_ranges(list).filter(|range| range.blocks > 0);
    let checked: Result<Vec<Blocks>, Status> = ranges
        .map(|range| namespace.blocks(range.slba, range.blocks))
        .collect();
    checked.map_err(plain)
}

/// The pages that a remap names: it must name whole ones.
fn pages_of(namespace: &Namespace, target: Blocks, source: u64) -> Result<Remap, Failed> {
    let pages = |slba: u64| (slba << namespace.lba_shift).is_multiple_of(PAGE_BYTES as u64);
    if !pages(target.slba) || !pages(source) || !pages(u64::from(target.count)) {
        return Err((Status::INVALID_FIELD, 0));
    }

    let lpn =
        |slba: u64| namespace.first_lpn + ((slba << namespace.lba_shift) >> PAGE_SHIFT) as u32;
    let len = lpn(u64::from(target.count)) - namespace.first_lpn;
    Ok(Remap {
        target: lpn(target.slba),
        source: lpn(source),
        len,
        relocate: false,
        atomic: false,
    })
}

/// How long the whole list is, and its entries from `first` on, as far as `bytes` reach. Zeroes follow.
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

fn plain(status: Status) -> Failed {
    (status, 0)
}
