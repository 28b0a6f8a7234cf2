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
        let commands = self.copy_commands(namespace, from, to, blocks, overlap && from < to);

        if overlap {
            // A retry would copy what the first try has changed.
            for command in &commands {
                self.io("copy", false, &command.call())?;
            }
            return Ok(());
        }

        // All at once: a device with a low limit would cost a round trip for each command.
        for wave in commands.chunks(self.commands_at_once()) {
            let calls: Vec<Call<'_>> = wave.iter().map(CopyCommand::call).collect();
            let answers = self.with(true, |_, io| io.calls(&calls))?;
            if let Some(refused) = answers.iter().find(|answer| !answer.status.is_success()) {
                return Err(ClientError::Status {
                    what: "copy",
                    status: refused.status,
                });
            }
        }
        Ok(())
    }

    /// The commands of a copy within the device's limits, in the order in which they are sent.
    fn copy_commands(
        &self,
        namespace: Option<u32>,
        from: u64,
        to: u64,
        blocks: u64,
        backwards: bool,
    ) -> Vec<CopyCommand> {
        // A device that states no limit of its own is asked for a block at a time.
        let longest = u64::from(self.namespace.mssrl).max(1);
        let most = u64::from(self.namespace.mcl).max(1);
        let ranges_max = u64::from(self.namespace.msrc_z) + 1;

        // The ranges of one command are copied in ascending order. To copy from the end, each range
        // is a command of its own.
        let step = if backwards {
            longest.min(most)
        } else {
            most.min(longest.saturating_mul(ranges_max))
        };

        (0..blocks)
            .step_by(step as usize)
            .map(|done| {
                let count = (blocks - done).min(step);
                let first = if backwards {
                    blocks - done - count
                } else {
                    done
                };

                let ranges: Vec<_> = (0..count)
                    .step_by(longest as usize)
                    .map(|at| {
                        let source = from.saturating_add(first + at);
                        CopyRange::new(source, ((count - at).min(longest) - 1) as u16)
                            .of_namespace(namespace.unwrap_or(0))
                    })
                    .collect();
                self.copy_command(namespace, to.saturating_add(first), ranges)
            })
            .collect()
    }

    fn copy_command(&self, namespace: Option<u32>, to: u64, ranges: Vec<CopyRange>) -> CopyCommand {
        let format = if namespace.is_some() {
            COPY_FORMAT_NAMESPACES
        } else {
            0
        };
        let mut sqe = self.rw(opcode::COPY, to, 0);
        sqe.cdw12 = CopyCdw12::new()
            .with_nr_z((ranges.len() - 1) as u8)
            .with_format(format)
            .into_bits();
        CopyCommand { sqe, ranges }
    }
}
