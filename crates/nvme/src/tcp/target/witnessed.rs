//! Reports to a witness about a connection's commands: arrival of flushes, sending of answers.
//!
//! Invariant: all reports of a command are completed after its answer exists and before it is sent.
//! Absent: changes by commands (`controller::announce`).

use super::{Connection, ReceiveContext};
use crate::controller::{InMemory, IoCommand, IoRequest, Outcome};
use crate::spec::command::Sqe;

impl Connection {
    /// Executes a command, or a part of one, and keeps its reports to the witness.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_witnessed(
        &self,
        sqe: &Sqe,
        command: &IoCommand,
        continued: Option<u64>,
        data: InMemory<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Outcome {
        let cid = sqe.head().cid();
        // Before it waits for the device: later completions are not covered.
        if let (IoRequest::Flush, Some(witness)) = (command.request, context.subsystem.witness()) {
            context.told.push((cid, witness.flush()));
        }

        let outcome = self.execute_unwitnessed(command, continued, data, context);

        if let Some(device) = &mut context.device {
            let tickets = device.take_tickets();
            context.told.extend(tickets.map(|ticket| (cid, ticket)));
        }
        outcome
    }

    /// Completes the reports of answered commands: their answers are sent next.
    #[inline]
    pub(super) fn tell_completed(&mut self) {
        if !self.told.is_empty() {
            self.tell_answered();
        }
    }

    #[cold]
    fn tell_answered(&mut self) {
        // Parts of a write wait for the rest of its data, others until they are due or durable.
        let (open, answered): (Vec<_>, Vec<_>) = std::mem::take(&mut self.told)
            .into_iter()
            .partition(|(cid, _)| self.is_under_way(*cid));
        self.told = open;

        if let Some(witness) = self.port.subsystem.witness() {
            let tickets = answered.into_iter().map(|(_, ticket)| ticket);
            tickets.for_each(|ticket| witness.completed(ticket));
        }
    }
}
