//! What an acknowledgement promises: a device with a volatile write buffer acknowledges writes that a cut may undo.
//!
//! Such a write stays in flight in the models until a flush is acknowledged that was submitted after it. Invariant: a
//! command that is no plain write is durable when it is acknowledged. Absent: the models.

use crate::oracle::CommandId;
use crate::script::ScriptCommand;
use crate::steps::Acknowledged;
use remap_ssd_ftl::Config;
use remap_ssd_media::AckSet;

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The command is durable.
    Durable,
    /// Nothing: a write in a volatile buffer.
    Nothing,
    /// All commands submitted before are durable.
    Flush,
}

impl Promise {
    /// The promise of a command's acknowledgement on a device of this configuration.
    pub(crate) fn of(command: &ScriptCommand, config: &Config, has_units: bool) -> Self {
        match *command {
            ScriptCommand::Flush => Self::Flush,
            ScriptCommand::Write { .. } | ScriptCommand::WriteMany { .. }
                if config.has_volatile_buffer() =>
            {
                Self::Nothing
            }
            // A scheme that uses the hint programs the page at once. Of a unit's part it does not.
            ScriptCommand::WriteFor { lpn, home, .. }
                if config.has_volatile_buffer()
                    && (!config.scheme.uses_hints() || lpn == home || has_units) =>
            {
                Self::Nothing
            }
            _ => Self::Durable,
        }
    }
}

/// A command that was submitted and not acknowledged.
pub(crate) struct CommandInFlight {
    pub id: CommandId,
    /// The operations that its acknowledgement waits for.
    pub ack: AckSet,
    pub promise: Promise,
    /// What its acknowledgement says in terms of the model, if steps are traced.
    pub said: Option<Acknowledged>,
}

/// Acknowledged writes that are not known to be durable.
#[derive(Default)]
pub(crate) struct UnflushedWrites {
    writes: Vec<CommandId>,
    /// The newest flush that was acknowledged.
    flushed: CommandId,
}

impl UnflushedWrites {
    /// A command was acknowledged; returns the commands that are durable because of it.
    pub(crate) fn acknowledge(&mut self, id: CommandId, promise: Promise) -> Vec<CommandId> {
        match promise {
            // A later flush may be acknowledged before the write.
            Promise::Nothing if id > self.flushed => {
                self.writes.push(id);
                Vec::new()
            }
            Promise::Durable | Promise::Nothing => vec![id],
            Promise::Flush => {
                self.flushed = self.flushed.max(id);
                let mut durable = vec![id];
                durable.extend(self.writes.extract_if(.., |write| *write < id));
                durable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Promise, UnflushedWrites};

    #[test]
    fn a_flush_makes_the_writes_before_it_durable() {
        let mut unflushed = UnflushedWrites::default();
        assert!(unflushed.acknowledge(1, Promise::Nothing).is_empty());
        assert!(unflushed.acknowledge(4, Promise::Nothing).is_empty());
        assert_eq!(unflushed.acknowledge(2, Promise::Durable), [2]);
        assert_eq!(unflushed.acknowledge(3, Promise::Flush), [3, 1]);

        // One that was submitted before that flush, and is acknowledged later.
        assert_eq!(unflushed.acknowledge(0, Promise::Nothing), [0]);
        assert_eq!(unflushed.acknowledge(5, Promise::Flush), [5, 4]);
    }
}
