//! Lists of remaps: a list becomes a few commands, which run concurrently.
//!
//! The remaps of a list take effect in order, but concurrent commands are executed in any order. So
//! the list is cut into *waves*: within a wave no remap changes a page that another one reads or
//! changes. A wave is sorted by target, and neighbours become the ranges of one Copy command: a
//! checkpoint, which writes a database's pages in order from all over a log, takes a handful of
//! commands. Relocations and atomic remaps, which Copy cannot express, are commands of their own.
//!
//! Invariants: there are never more outstanding commands than the queue holds; a wave begins after
//! all responses of the previous one. Absent: state between lists.

use super::{Call, Client, ClientError};
use crate::spec::command::{CopyCdw12, CopyRange, RemapCdw12, Sqe};
use crate::spec::identify::oncs;
use crate::spec::opcode::io as opcode;
use crate::spec::status::Status;
use remap_ssd_device::{DiskRemap, PageRanges, RemapAllError};
use zerocopy::IntoBytes;

/// A command of a wave.
struct RemapCommand {
    sqe: Sqe,
    /// Source ranges, if it is a Copy.
    ranges: Vec<CopyRange>,
    /// Its first remap in the list.
    index: usize,
    /// True if it may be retried after the connection broke.
    again: bool,
}

fn ranges_of(remap: &DiskRemap) -> ((u64, u64), (u64, u64)) {
    let pages = u64::from(remap.pages);
    (
        (remap.source, remap.source + pages),
        (remap.target, remap.target + pages),
    )
}

/// Returns true if source and target have pages in common.
fn overlaps_itself(remap: &DiskRemap) -> bool {
    remap.source.abs_diff(remap.target) < u64::from(remap.pages)
}

/// Length of the first wave: the number of remaps that may be executed in any order. Their ranges
/// must have been checked.
fn independent(remaps: &[DiskRemap]) -> usize {
    let (mut named, mut changed) = (PageRanges::default(), PageRanges::default());
    // Two sets: pages read or changed, and pages changed.
    for (index, remap) in remaps.iter().enumerate() {
        let (source, target) = ranges_of(remap);
        let meets = |ranges: &PageRanges, (first, end): (u64, u64)| ranges.meets(first, end);
        let source_conflicts = meets(&changed, source) || remap.relocate && meets(&named, source);
        if source_conflicts || meets(&changed, target) || meets(&named, target) {
            return index;
        }
        named.add(source.0, source.1);
        changed.add(target.0, target.1);
        if remap.relocate {
            changed.add(source.0, source.1);
        }
    }
    remaps.len()
}

impl Client {
    /// First block of a range of pages, after a check that it lies on the disk.
    pub(super) fn checked_blocks(
        &self,
        what: &'static str,
        page: u64,
        pages: u64,
    ) -> Result<u64, ClientError> {
        match page.checked_add(pages) {
            Some(end) if end <= remap_ssd_device::Disk::pages(self) => Ok(self.blocks(page)),
            _ => Err(ClientError::Status {
                what,
                status: Status::LBA_RANGE,
            }),
        }
    }

    /// Executes a list of remaps, wave by wave.
    pub(super) fn remap_list(
        &mut self,
        remaps: &[DiskRemap],
    ) -> Result<(), RemapAllError<ClientError>> {
        // Check all ranges first: a list with an error changes nothing.
        for (index, remap) in remaps.iter().enumerate() {
            for page in [remap.target, remap.source] {
                self.checked_blocks("remap", page, remap.pages.into())
                    .map_err(|error| RemapAllError { index, error })?;
            }
        }

        let mut done = 0;
        while done < remaps.len() {
            let count = independent(&remaps[done..]);
            // A single remap has no conflict, so every wave has at least one.
            let commands = self.commands(done, &remaps[done..done + count])?;
            self.send_wave(&commands)?;
            done += count;
        }
        Ok(())
    }

    /// The commands of a wave whose first remap is number `first` of the list.
    fn commands(
        &self,
        first: usize,
        wave: &[DiskRemap],
    ) -> Result<Vec<RemapCommand>, RemapAllError<ClientError>> {
        let can_copy = self.controller().oncs & oncs::COPY != 0;
        let mut commands = Vec::new();
        let mut copies = Vec::new();
        for (index, remap) in (first..).zip(wave).filter(|(_, remap)| remap.pages > 0) {
            // Copy executes ranges in ascending order, and supports neither relocation nor
            // atomicity.
            if remap.relocate || remap.atomic || overlaps_itself(remap) || !can_copy {
                commands.push(self.single_remap(index, remap)?);
            } else {
                copies.push((index, *remap));
            }
        }

        // By target, so that neighbours are adjacent and fit into one command.
        copies.sort_by_key(|(_, remap)| remap.target);
        self.merge(&copies, &mut commands);
        Ok(commands)
    }

    /// A remap as a vendor command of its own.
    fn single_remap(
        &self,
        index: usize,
        remap: &DiskRemap,
    ) -> Result<RemapCommand, RemapAllError<ClientError>> {
        let blocks = u32::try_from(self.blocks(remap.pages.into()))
            .ok()
            .filter(|blocks| *blocks < 1 << 28);
        let too_long = RemapAllError {
            index,
            error: ClientError::TooLong(remap.pages),
        };
        let nlb_z = blocks.ok_or(too_long)? - 1;

        let mut sqe = self.rw(opcode::REMAP, self.blocks(remap.target), 0);
        let cdw12 = RemapCdw12::new()
            .with_nlb_z(nlb_z)
            .with_relocate(remap.relocate)
            .with_atomic(remap.atomic);
        sqe.cdw12 = cdw12.into_bits();
        let source = self.blocks(remap.source);
        (sqe.cdw14, sqe.cdw15) = (source as u32, (source >> 32) as u32);
        Ok(RemapCommand {
            sqe,
            ranges: Vec::new(),
            index,
            // The second time an overlapping remap would read pages that it has changed.
            again: !remap.relocate && !overlaps_itself(remap),
        })
    }

    /// Turns remaps, sorted by target, into Copy commands, merging neighbours.
    fn merge(&self, copies: &[(usize, DiskRemap)], commands: &mut Vec<RemapCommand>) {
        let namespace = self.namespace();
        // Maximum blocks of a range, blocks of a command (NVM 1.0 §4.1.5.2: the largest allowed),
        // and ranges of a command. Limits are rounded to whole pages, so that no page is copied in
        // parts.
        let unit = self.blocks(1);
        let whole = |blocks: u64| {
            if blocks >= unit {
                blocks - blocks % unit
            } else {
                blocks.max(1)
            }
        };
        let range_max = whole(namespace.mssrl.into());
        let command_max = whole(namespace.mcl.into());
        let ranges_max = usize::from(namespace.msrc_z) + 1;

        let mut taken = 0;
        let mut next_target = None;

        for (index, remap) in copies {
            let (mut source, mut target) = (self.blocks(remap.source), self.blocks(remap.target));
            let end = target + self.blocks(remap.pages.into());
            while target < end {
                // A range joins the last command if it continues that one's target and there is
                // room in it.
                let open = commands.last_mut().filter(|open| {
                    next_target == Some(target)
                        && open.ranges.len() < ranges_max
                        && taken < command_max
                });
                let room = if open.is_some() {
                    command_max - taken
                } else {
                    command_max
                };
                let count = (end - target).min(range_max).min(room);
                let range = CopyRange::new(source, (count - 1) as u16);

                match open {
                    Some(open) => {
                        open.ranges.push(range);
                        open.index = open.index.min(*index);
                        taken += count;
                    }
                    None => {
                        let sqe = self.rw(opcode::COPY, target, 0);
                        commands.push(RemapCommand {
                            sqe,
                            ranges: vec![range],
                            index: *index,
                            again: true,
                        });
                        taken = count;
                    }
                }

                (source, target) = (source + count, target + count);
                next_target = Some(target);
            }
        }

        // Only now is the number of ranges of each command known.
        for command in commands
            .iter_mut()
            .filter(|command| !command.ranges.is_empty())
        {
            command.sqe.cdw12 = CopyCdw12::new()
                .with_nr_z((command.ranges.len() - 1) as u8)
                .into_bits();
        }
    }

    /// Sends commands, at most as many at a time as the queue holds.
    fn send_wave(&mut self, commands: &[RemapCommand]) -> Result<(), RemapAllError<ClientError>> {
        let depth = self.commands_at_once();
        for together in commands.chunks(depth) {
            let calls: Vec<Call<'_>> = together
                .iter()
                .map(|command| Call::sending(command.sqe, command.ranges.as_bytes()))
                .collect();

            // If one of them must not be sent twice, none is: it is unknown which were executed.
            let again = together.iter().all(|command| command.again);
            let first = together
                .iter()
                .map(|command| command.index)
                .min()
                .unwrap_or(0);

            let answers = self.with(again, |_, io| io.calls(&calls));
            let answers = answers.map_err(|error| RemapAllError {
                index: first,
                error,
            })?;

            let failed = together
                .iter()
                .zip(&answers)
                .filter(|(_, answer)| !answer.status.is_success());

            // The first failed remap of the list, regardless of the order of answers.
            if let Some((command, answer)) = failed.min_by_key(|(command, _)| command.index) {
                let what = if command.ranges.is_empty() {
                    "remap"
                } else {
                    "copy"
                };
                let error = self.exclusive.note(ClientError::Status {
                    what,
                    status: answer.status,
                });
                return Err(RemapAllError {
                    index: command.index,
                    error,
                });
            }
        }
        Ok(())
    }
}
