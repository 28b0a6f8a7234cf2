//! Handling of requested data: parts of a write are executed as they arrive, all other data are
//! gathered; data that arrive damaged, or without memory for them, fail their command.
//!
//! Invariants: a command is answered once, after all its data have arrived; the charge for gathered
//! data is refunded at the end of the command. Absent: when data are requested (`transfers`).

use super::transfers::{Arrived, Incoming};
use super::{Connection, End, ReceiveContext};
use crate::controller::{IoCommand, Outcome};
use crate::spec::status::Status;
use crate::tcp::wire::Pdu;

impl Connection {
    /// Handles requested data. Whole pages of a write go to the device at once; other data wait for
    /// the rest.
    pub(super) fn data(
        &mut self,
        pdu: &Pdu<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let Arrived { tag, last } = self.transfers.arrive(pdu)?;
        let Some(incoming) = self.transfers.get(tag) else {
            return Ok(());
        };

        if incoming.damaged {
            return self.fail_damaged(tag, last, context);
        }
        if incoming.refused {
            return self.skip_refused(tag, last, context);
        }

        // `executed` already counts the data that just arrived, so subtract them for their offset.
        let command = incoming.command;
        let len = pdu.data.len() as u32;
        let at = incoming.executed() - len;

        // Once data are gathered the rest must be gathered too, or pages would be written out of
        // order.
        let part = match (incoming.gathered.is_empty(), command) {
            (true, Some(command)) => self.write_part(&command, at, len, last, context),
            _ => None,
        };

        if let Some(part) = part {
            self.execute_arrived(tag, &part, pdu.data, context);
        } else if !self.gather(tag, at, pdu.data) {
            return self.skip_refused(tag, last, context);
        }

        if !last {
            return Ok(());
        }
        self.execute_rest(tag, context)
    }

    /// Executes the part of a write whose data have arrived.
    fn execute_arrived(
        &mut self,
        tag: u16,
        part: &IoCommand,
        data: &[u8],
        context: &mut ReceiveContext<'_>,
    ) {
        let Some(incoming) = self.transfers.get(tag) else {
            return;
        };
        let sqe = incoming.sqe;
        let before = incoming.outcome.map(|outcome| (outcome, incoming.began));

        let began = match before {
            None => context.subsystem.commands_begun(),
            Some((_, began)) => began,
        };
        let outcome = self.execute_next_part(&sqe, part, before, data, context);
        if let Some(incoming) = self.transfers.get(tag) {
            (incoming.outcome, incoming.began) = (Some(outcome), began);
        }
    }

    /// Gathers data that arrived for offset `at`; returns false if there is no memory for them.
    fn gather(&mut self, tag: u16, at: u32, data: &[u8]) -> bool {
        let Some(incoming) = self.transfers.get(tag) else {
            return true;
        };

        if incoming.gathered.is_empty() {
            // Charged at once for all remaining data: a transfer must not run out of memory
            // halfway. A command that needs all its data was charged before they were requested
            // (`parked`).
            let rest = (incoming.total - at) as usize;
            let missing = rest.saturating_sub(incoming.charged);
            if missing > 0
                && !self
                    .queue
                    .as_mut()
                    .is_none_or(|queue| queue.seat.charge(missing))
            {
                incoming.refused = true;
                return false;
            }
            incoming.gathered.reserve_exact(rest);
            incoming.charged += missing;
        }
        incoming.gathered.extend_from_slice(data);
        true
    }

    /// Executes what is left of a command whose data have all arrived, and answers it.
    fn execute_rest(&mut self, tag: u16, context: &mut ReceiveContext<'_>) -> Result<(), End> {
        let Some(incoming) = self.finish_transfer(tag) else {
            return Ok(());
        };
        let (sqe, command) = (&incoming.sqe, incoming.command.as_ref());

        let (at, len) = (incoming.executed(), incoming.gathered.len() as u32);
        // Data gathered after executed parts are the end of a write, which need not be a whole
        // page.
        let rest = match command {
            Some(command) if at > 0 && len > 0 => self.write_part(command, at, len, true, context),
            _ => None,
        };

        match (incoming.outcome, rest) {
            (None, _) => self.execute(sqe, command, &incoming.gathered, context)?,
            (before, Some(rest)) => {
                let before = before.map(|before| (before, incoming.began));
                let outcome =
                    self.execute_next_part(sqe, &rest, before, &incoming.gathered, context);
                self.complete(sqe, &outcome, context);
            }
            (Some(outcome), None) => self.complete(sqe, &outcome, context),
        }

        self.grant(context);
        Ok(())
    }

    /// Discards data of a command that arrived damaged in part: the command fails once all data
    /// have arrived, and the host may retry.
    fn fail_damaged(
        &mut self,
        tag: u16,
        last: bool,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let Some(incoming) = self.transfers.get(tag) else {
            return Ok(());
        };

        // Release the memory now; the charge is refunded with the last byte.
        incoming.gathered = Vec::new();

        if !last {
            return Ok(());
        }
        let Some(incoming) = self.finish_transfer(tag) else {
            return Ok(());
        };

        let outcome = Outcome::new(Status::TRANSIENT_TRANSPORT, context.now);
        self.complete(&incoming.sqe, &outcome, context);

        self.grant(context);
        Ok(())
    }

    /// Discards data without memory for them: the command fails once all data have arrived, and the
    /// host may retry.
    fn skip_refused(
        &mut self,
        tag: u16,
        last: bool,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        if last && let Some(incoming) = self.finish_transfer(tag) {
            self.refuse(&incoming.sqe, Status::INTERRUPTED, context)?;
            self.grant(context);
        }
        Ok(())
    }

    /// Removes a command whose data have all arrived, and refunds their charge.
    fn finish_transfer(&mut self, tag: u16) -> Option<Incoming> {
        let incoming = self.transfers.finish(tag)?;
        if let Some(queue) = &mut self.queue {
            queue.seat.refund(incoming.charged);
        }
        Some(incoming)
    }

    /// Requests data of waiting commands.
    pub(super) fn grant(&mut self, context: &mut ReceiveContext<'_>) {
        let agreed = self.agreed.unwrap_or_default();
        self.transfers
            .grant(agreed, context.now, context.out.open());
    }
}
