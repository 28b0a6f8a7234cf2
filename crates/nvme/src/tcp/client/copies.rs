//! Copies: a long one is split into commands within the device's limits.
//!
//! Invariant: of a copy that overlaps itself, only one command is outstanding at a time, and it
//! runs backwards if the target is above the source, so that no block is read after it was
//! overwritten. Absent: remaps, and lists of copies (`remaps`).

use super::{Call, Client, ClientError};
use crate::controller::COPY_FORMAT_NAMESPACES;
use crate::spec::command::{CopyCdw12, CopyRange, Sqe};
use crate::spec::identify::oncs;
use crate::spec::opcode::io as opcode;
use zerocopy::IntoBytes;

/// A command with its ranges.
struct CopyCommand {
    sqe: Sqe,
    ranges: Vec<CopyRange>,
}

impl CopyCommand {
    fn call(&self) -> Call<'_> {
        Call::sending(self.sqe, self.ranges.as_bytes())
    }
}

/// The commands of a copy, in the order in which they are sent. Generated lazily: a device with low
/// limits needs millions of commands for a long copy.
struct CopyPlan {
    /// The command without its target and ranges.
    sqe: Sqe,
    /// The source namespace, if it is another one.
    namespace: Option<u32>,
    from: u64,
    to: u64,
    blocks: u64,
    /// Blocks already covered by commands: the last ones if it goes backwards, else the first.
    done: u64,
    backwards: bool,
    /// Maximum blocks of a command, and of one of its ranges.
    command_max: u64,
    range_max: u64,
}

impl Iterator for CopyPlan {
    type Item = CopyCommand;

    fn next(&mut self) -> Option<CopyCommand> {
        let count = (self.blocks - self.done).min(self.command_max);
        if count == 0 {
            return None;
        }

        self.done += count;
        let first = if self.backwards {
            self.blocks - self.done
        } else {
            self.done - count
        };

        let ranges: Vec<_> = (0..count)
            .step_by(self.range_max as usize)
            .map(|at| {
                // A range beyond the maximum block address saturates, and the device refuses it.
                let source = self.from.saturating_add(first + at);
                CopyRange::new(source, ((count - at).min(self.range_max) - 1) as u16)
                    .of_namespace(self.namespace.unwrap_or(0))
            })
            .collect();

        let to = self.to.saturating_add(first);
        let mut sqe = self.sqe;
        (sqe.cdw10, sqe.cdw11) = (to as u32, (to >> 32) as u32);
        sqe.cdw12 = CopyCdw12::new()
            .with_nr_z((ranges.len() - 1) as u8)
            .with_format(match self.namespace {
                Some(_) => COPY_FORMAT_NAMESPACES,
                None => 0,
            })
            .into_bits();
        Some(CopyCommand { sqe, ranges })
    }
}

impl Client {
    /// Copies blocks with as many Copy commands as the device's limits require. The ranges may
    /// overlap: the target gets the old content of the source.
    ///
    /// # Errors
    /// The connection or the device failed; a part may have been copied.
    pub fn copy(&mut self, from: u64, to: u64, blocks: u64) -> Result<(), ClientError> {
        self.copy_from(None, from, to, blocks)
    }

    /// Returns true if the device can copy, or copy across namespaces. (For the latter the
    /// connection must have been made with `copy_across`.)
    pub fn can_copy(&self, across: bool) -> bool {
        let formats = if across {
            1 << COPY_FORMAT_NAMESPACES
        } else {
            1
        };
        self.controller.oncs & oncs::COPY != 0 && self.controller.ocfs & formats == formats
    }

    /// Like `copy`, from another namespace if one is given; then nothing overlaps.
    ///
    /// # Errors
    /// As `copy`.
    pub fn copy_from(
        &mut self,
        namespace: Option<u32>,
        from: u64,
        to: u64,
        blocks: u64,
    ) -> Result<(), ClientError> {
        // Blocks of another namespace cannot be overwritten by this copy.
        let overlap = namespace.is_none() && from.abs_diff(to) < blocks;
        let mut plan = self.plan_copy(namespace, from, to, blocks, overlap && from < to);

        if overlap {
            // A retry would copy blocks changed by the first try.
            for command in plan {
                self.io("copy", false, &command.call())?;
            }
            return Ok(());
        }

        // As many as the queue holds: with a low limit each command would otherwise cost a round
        // trip.
        loop {
            let wave: Vec<_> = plan.by_ref().take(self.commands_at_once()).collect();
            if wave.is_empty() {
                return Ok(());
            }

            let calls: Vec<Call<'_>> = wave.iter().map(CopyCommand::call).collect();
            let answers = self.with(true, |_, io| io.calls(&calls))?;
            if let Some(refused) = answers.iter().find(|answer| !answer.status.is_success()) {
                return Err(self.exclusive.note(ClientError::Status {
                    what: "copy",
                    status: refused.status,
                }));
            }
        }
    }

    /// The commands of a copy within the device's limits.
    fn plan_copy(
        &self,
        namespace: Option<u32>,
        from: u64,
        to: u64,
        blocks: u64,
        backwards: bool,
    ) -> CopyPlan {
        // If the device states no limit, copy one block at a time.
        let range_max = u64::from(self.namespace.mssrl).max(1);
        let most = u64::from(self.namespace.mcl).max(1);
        let ranges_max = u64::from(self.namespace.msrc_z) + 1;

        // The ranges of one command are copied in ascending order. To copy backwards, each range is
        // a command of its own.
        let command_max = if backwards {
            range_max.min(most)
        } else {
            most.min(range_max.saturating_mul(ranges_max))
        };

        CopyPlan {
            sqe: self.rw(opcode::COPY, 0, 0),
            namespace,
            from,
            to,
            blocks,
            done: 0,
            backwards,
            command_max,
            range_max,
        }
    }
}
