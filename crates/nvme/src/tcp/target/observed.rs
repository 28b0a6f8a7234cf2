//! Reports to an observer about a connection's commands: arrival of flushes, sending of answers.
//!
//! Invariant: all reports of a command are completed after its answer exists and before it is sent.
//! Absent: changes by commands (`controller::announce`).

use super::{Connection, ReceiveContext};
use crate::controller::{InMemory, IoCommand, IoRequest, Outcome};
use crate::spec::command::Sqe;

impl Connection {
    /// Executes a command, or a part of one, and keeps its reports to the observer.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_observed(
        &self,
        sqe: &Sqe,
        command: &IoCommand,
        continued: Option<u64>,
        data: InMemory<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Outcome {
        let cid = sqe.head().cid();
        // Before it waits for the device: later completions are not covered.
        if let (IoRequest::Flush, Some(observer)) = (command.request, context.subsystem.observer())
        {
            context.reports.push((cid, observer.begun()));
        }

        let outcome = self.execute_in_turn(command, continued, data, context);

        if let Some(device) = &mut context.device {
            let tickets = device.take_tickets();
            context.reports.extend(tickets.map(|ticket| (cid, ticket)));
        }
        outcome
    }

    /// Completes the reports of answered commands: their answers are sent next.
    #[inline]
    pub(super) fn end_reports(&mut self) {
        if !self.reports.is_empty() {
            self.end_answered();
        }
    }

    #[cold]
    fn end_answered(&mut self) {
        // Parts of a write wait for the rest of its data, others until they are due or durable.
        let (open, answered): (Vec<_>, Vec<_>) = std::mem::take(&mut self.reports)
            .into_iter()
            .partition(|(cid, _)| self.is_under_way(*cid));
        self.reports = open;

        if let Some(observer) = self.port.subsystem.observer() {
            let tickets = answered.into_iter().map(|(_, ticket)| ticket);
            tickets.for_each(|ticket| observer.ended(ticket));
        }
    }
}
