//! The events from the blank device to a failure.
//!
//! A fork pushes its own events on top of the main line's; they are removed when the fork is
//! dropped. So the events listed always led to the device under test. Absent: anything needed for a
//! run; the history only explains.

use crate::oracle::CommandId;
use crate::script::ScriptCommand;
use remap_ssd_media::Lpn;
use std::fmt::Write;

/// An event in the life of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceEvent {
    /// A command was submitted and executed by the firmware.
    Submitted(CommandId, ScriptCommand),
    /// A command was refused, perhaps executed in part: the flash is worn out.
    WornOut(CommandId, ScriptCommand),
    /// A command is being submitted: if the history ends here, it did not return.
    Submitting(ScriptCommand),
    /// Background work was done between commands.
    Idled,
    /// The host saw an acknowledgement.
    Acknowledged(CommandId),
    /// All operations in flight became durable.
    Settled,
    /// All operations in flight completed and were acknowledged.
    CaughtUp,
    /// A block with this number fails from now on: programs from a row on, or erases.
    Planted(u32, Option<u32>),
    /// This flash page cannot be read from now on.
    PageDamaged(u32),
    /// This word of NVRAM cannot be read until it is stored again.
    WordDamaged(u32),
    /// A power cut, with the outcome of the operations in flight.
    Cut {
        /// Operations in flight.
        pending: u32,
        /// Of those, operations whose effect landed.
        whole: u32,
        /// Of those, operations that left a torn page or word.
        torn: u32,
    },
    /// Recovery began after the cut.
    Recovering,
    /// The host read everything after a recovery.
    Seen,
}

/// Events of a script, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<DeviceEvent>);

/// Events shown for a failure.
const SHOWN: usize = 40;
/// Commands on one LPN shown for a failure.
const SHOWN_OF_LPN: usize = 16;

impl History {
    /// Adds an event at the end.
    pub(crate) fn push(&mut self, event: DeviceEvent) {
        // The entry stands for the command until it returns, and is then replaced by the result.
        let has_returned = matches!(
            event,
            DeviceEvent::Submitted(..) | DeviceEvent::WornOut(..) | DeviceEvent::Idled
        );
        if has_returned && matches!(self.0.last(), Some(DeviceEvent::Submitting(_))) {
            self.0.pop();
        }
        self.0.push(event);
    }

    /// Number of events so far.
    pub(crate) fn mark(&self) -> usize {
        self.0.len()
    }

    /// Removes all events since `mark`.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    /// The last events, and all commands that touched `lpn`.
    pub(crate) fn explain(&self, lpn: Option<Lpn>) -> String {
        let mut text = String::new();
        if let Some(lpn) = lpn {
            // Commands only: no other event concerns an LPN.
            let of_lpn = |event: &&DeviceEvent| match event {
                DeviceEvent::Submitted(_, command) | DeviceEvent::WornOut(_, command) => {
                    touches(command, lpn)
                }
                _ => false,
            };
            let all: Vec<&DeviceEvent> = self.0.iter().filter(of_lpn).collect();
            let _ = writeln!(text, "  commands on LPN {lpn}:");
            for event in &all[all.len().saturating_sub(SHOWN_OF_LPN)..] {
                let _ = writeln!(text, "    {}", line(event));
            }
        }

        // Damage may show much later; other old events explain nothing.
        let recent = self.0.len().saturating_sub(SHOWN);
        for event in self.0[..recent].iter().filter(is_damage) {
            let _ = writeln!(text, "  long before: {}", line(event));
        }
        let _ = writeln!(text, "  last events:");
        for event in &self.0[recent..] {
            let _ = writeln!(text, "    {}", line(event));
        }

        text
    }
}

fn is_damage(event: &&DeviceEvent) -> bool {
    matches!(
        event,
        DeviceEvent::Planted(..) | DeviceEvent::PageDamaged(_) | DeviceEvent::WordDamaged(_)
    )
}

fn touches(command: &ScriptCommand, at: Lpn) -> bool {
    match *command {
        ScriptCommand::Write { lpn, .. }
        | ScriptCommand::WriteFor { lpn, .. }
        | ScriptCommand::FileWrite { lpn, .. } => lpn == at,
        ScriptCommand::Deallocate { lpn, len } | ScriptCommand::WriteMany { lpn, len, .. } => {
            (lpn..lpn.offset(len)).contains(&at)
        }
        ScriptCommand::Remap(remap) => [remap.target, remap.source]
            .iter()
            .any(|lpn| (*lpn..lpn.offset(remap.len)).contains(&at)),
        ScriptCommand::Flush | ScriptCommand::FileReset | ScriptCommand::Background { .. } => false,
    }
}

fn line(event: &DeviceEvent) -> String {
    match event {
        DeviceEvent::Submitted(id, command) => format!("#{id} {command}"),
        DeviceEvent::WornOut(id, command) => {
            format!("refused, the flash is worn out: #{id} {command}")
        }
        DeviceEvent::Submitting(command) => format!("under way: {command}"),
        DeviceEvent::Idled => "background work".to_owned(),
        DeviceEvent::Acknowledged(id) => format!("acknowledged #{id}"),
        DeviceEvent::Settled => "everything under way ended".to_owned(),
        DeviceEvent::CaughtUp => "everything under way ended and was acknowledged".to_owned(),
        DeviceEvent::Planted(block, Some(row)) => {
            format!("programs of block {block} fail from row {row} on")
        }
        DeviceEvent::Planted(block, None) => format!("erases of block {block} fail"),
        DeviceEvent::PageDamaged(page) => format!("flash page {page} cannot be read"),
        DeviceEvent::WordDamaged(word) => format!("word {word} of NVRAM cannot be read"),
        DeviceEvent::Cut {
            pending,
            whole,
            torn,
        } => {
            format!("power cut: of {pending} operations under way {whole} whole, {torn} torn")
        }
        DeviceEvent::Recovering => "recovery".to_owned(),
        DeviceEvent::Seen => "everything was read".to_owned(),
    }
}

#[cfg(test)]
mod tests;
