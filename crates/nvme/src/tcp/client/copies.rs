//! Copies: a long one is as many commands as the device's limits ask for.
//!
//! Invariant: of a copy that overlaps itself, one command is under way at a time, from the end if
//! it goes up, so that no block is read after it was overwritten. Absent: remaps, and lists of
//! copies (`remaps`).

use super::{Call, Client, ClientError};
use crate::controller::COPY_FORMAT_NAMESPACES;
use crate::spec::command::{CopyCdw12, CopyRange, Sqe};
use crate::spec::identify::oncs;
use crate::spec::opcode::io as opcode;
use zerocopy::IntoBytes;

/// A command and the ranges that it sends.
struct CopyCommand {
    sqe: Sqe,
    ranges: Vec<CopyRange>,
}

impl CopyCommand {
    fn call(&self) -> Call<'_> {
        Call {
            sqe: self.sqe,
            send: self.ranges.as_bytes(),
            receive: 0,
        }
    }
}

/// The commands of a copy, one after the other, in the order in which they are sent. They are made
/// as they are needed: a device with low limits makes millions of a long copy.
struct CopyPlan {
    /// The command but for its place and ranges.
    sqe: Sqe,
    /// Where the blocks come from, if not from the same namespace.
    namespace: Option<u32>,
    from: u64,
    to: u64,
    blocks: u64,
    /// Blocks that have a command already: the last ones if it goes backwards, else the first.
    done: u64,
    backwards: bool,
    /// Blocks of a command, and of one of its ranges.
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
                // A range past all blocks saturates, and the device refuses it.
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

    /// Can the device copy; across namespaces? (For these the connection must have been made with
    /// `copy_across`.)
    pub fn can_copy(&self, across: bool) -> bool {
        let formats = if across {
            1 << COPY_FORMAT_NAMESPACES
        } else {
            1
        };
        self.controller.oncs & oncs::COPY != 0 && self.controller.ocfs & formats == formats
    }

    /// The same from another namespace, if one is given; nothing overlaps then.
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
            // A retry would copy what the first try has changed.
            for command in plan {
                self.io("copy", false, &command.call())?;
            }
            return Ok(());
        }

        // All that the queue takes at once: a device with a low limit would cost a round trip for
        // each command.
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
        // A device that states no limit of its own is asked for a block at a time.
        let range_max = u64::from(self.namespace.mssrl).max(1);
        let most = u64::from(self.namespace.mcl).max(1);
        let ranges_max = u64::from(self.namespace.msrc_z) + 1;

        // The ranges of one command are copied in ascending order. To copy from the end, each range
        // is a command of its own.
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
