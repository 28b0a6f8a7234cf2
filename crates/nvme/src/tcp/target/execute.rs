//! Execution of commands whose data have arrived, in full or in part; their answers, held until
//! due.
//!
//! Invariant: the answer of a failed command has no data. Absent: the order of PDUs.

use super::awaiting_sync::AwaitingSync;
use super::parked::HEADERS_BYTES_MAX;
use super::{Connection, End, ReceiveContext};
use crate::controller::telemetry::CommandKind;
use crate::controller::{
    AdminOutcome, FailedBlock, InMemory, IoCommand, Latency, Outcome, Transfer, fabrics_kind,
};
use crate::spec::command::Sqe;
use crate::spec::fabrics::kind as fabrics;
use crate::spec::pdu::{Data, Flags, kind};
use crate::spec::status::Status;
use crate::tcp::wire;

impl Connection {
    /// Executes a command whose data have all arrived, and answers it.
    pub(super) fn execute(
        &mut self,
        sqe: &Sqe,
        command: Option<&IoCommand>,
        data: &[u8],
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let Some(command) = command else {
            // Admin commands lock the device themselves.
            self.weight = context
                .device
                .take()
                .map_or(self.weight, |device| device.weight());
            return self.admin(sqe, data, context);
        };

        if let Transfer::ToHost(bytes) = command.transfer() {
            self.execute_to_host(sqe, command, bytes, context);
        } else {
            let mut nothing = Vec::new();
            let data = InMemory {
                from_host: data,
                to_host: &mut nothing,
            };
            let outcome = self.execute_io(sqe, command, None, data, context);
            self.complete(sqe, &outcome, context);
        }
        Ok(())
    }

    /// The part of a write that consists of `len` bytes of its data from `at` on, if it can be
    /// executed separately.
    pub(super) fn write_part(
        &self,
        command: &IoCommand,
        at: u32,
        len: u32,
        last: bool,
        context: &ReceiveContext<'_>,
    ) -> Option<IoCommand> {
        // Faults apply to whole commands: a write that fails must not have begun.
        if context.subsystem.fault_injector().is_some() {
            return None;
        }
        // Nor may a part of an atomic write be there without the rest.
        let (count, lba_shift) = command.written()?;
        if (2..=context.subsystem.untorn_blocks(lba_shift)).contains(&count) {
            return None;
        }
        command.part(at, len, last)
    }

    /// Executes the next part of a write, unless an earlier one has failed. `before`: the outcome
    /// of the earlier ones, and the number of commands begun before the first.
    pub(super) fn execute_next_part(
        &self,
        sqe: &Sqe,
        part: &IoCommand,
        before: Option<(Outcome, u64)>,
        data: &[u8],
        context: &mut ReceiveContext<'_>,
    ) -> Outcome {
        // Data after a failed part are discarded: the host must be able to send everything.
        if let Some((before, _)) = before.filter(|(before, _)| !before.status.is_success()) {
            return before;
        }

        let mut nothing = Vec::new();
        let data = InMemory {
            from_host: data,
            to_host: &mut nothing,
        };

        let continued = before.map(|(_, began)| began);
        let now = self.execute_io(sqe, part, continued, data, context);
        Outcome {
            // The write is done when its slowest part is.
            done_at: before
                .map_or(0, |(before, _)| before.done_at)
                .max(now.done_at),
            ..now
        }
    }

    #[inline]
    fn execute_io(
        &self,
        sqe: &Sqe,
        command: &IoCommand,
        continued: Option<u64>,
        data: InMemory<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Outcome {
        if context.subsystem.observer().is_some() {
            return self.execute_observed(sqe, command, continued, data, context);
        }
        self.execute_in_turn(command, continued, data, context)
    }

    /// Like `execute_io`, without an observer.
    pub(super) fn execute_in_turn(
        &self,
        command: &IoCommand,
        continued: Option<u64>,
        mut data: InMemory<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Outcome {
        let Some(queue) = &self.queue else {
            unreachable!("I/O commands come on connected queues");
        };
        let (issuer, now) = (queue.association.issuer(), context.now);

        // The first I/O command of a call takes the device; later ones reuse the turn.
        let device = context.device.get_or_insert_with(|| {
            let standing = queue.standing.clone();
            context.subsystem.turn_of(self.weight, standing)
        });
        let subsystem = context.subsystem;
        if let Some(began) = continued {
            return subsystem.execute_next_part(device, command, &issuer, now, began, &mut data);
        }

        // Emulated latency tells the duration of a command; otherwise the caller reports it for all
        // commands. Executing is the last operation here, so that the outcome is built in place.
        let kind = CommandKind::of(&command.request);
        if subsystem.latency() == Latency::None {
            self.executed.add(kind);
            return subsystem.execute(device, command, &issuer, now, &mut data);
        }

        let outcome = subsystem.execute(device, command, &issuer, now, &mut data);
        let took_ns = outcome.done_at.saturating_sub(now);
        subsystem.telemetry().observe(kind, 1, took_ns);
        outcome
    }

    /// Executes a command with data for the host, which are copied once, into the output buffer.
    fn execute_to_host(
        &mut self,
        sqe: &Sqe,
        command: &IoCommand,
        bytes: u32,
        context: &mut ReceiveContext<'_>,
    ) {
        let without_response = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.no_flow_control);
        let delayed = context.subsystem.delays_answers();

        if !self.charge_output(bytes as usize + HEADERS_BYTES_MAX, context.out) {
            let refused = Outcome::new(Status::INTERRUPTED, context.now);
            return self.complete(sqe, &refused, context);
        }

        // An answer held until it is due needs its own buffer. Otherwise it is appended to the next
        // output.
        let mut to = if delayed {
            context.out.spare()
        } else {
            std::mem::take(context.out.open())
        };
        let start = to.len();
        let pdu = self.begin_data(sqe.head().cid(), bytes, without_response, &mut to);
        let data = InMemory {
            from_host: &[],
            to_host: &mut to,
        };
        let outcome = self.execute_io(sqe, command, None, data, context);

        // The header is already written. If the command fails it is removed with the data.
        if outcome.status.is_success() {
            pdu.end(&mut to);
        } else {
            to.truncate(start);
        }
        let data_suffice = outcome.status.is_success() && without_response;

        // The answer waits for the disk, separate from output that may be sent at once.
        if outcome.sync_to.is_some() {
            let data = to.split_off(start);
            self.awaiting_sync.push(AwaitingSync {
                sqe: *sqe,
                outcome,
                data,
                data_suffice,
            });
            if !delayed {
                *context.out.open() = to;
            }
            return;
        }

        if !data_suffice {
            self.log_failure(sqe, outcome.status, outcome.failed_block);
            self.respond(sqe.head().cid(), outcome.status, outcome.result, &mut to);
        }
        if delayed {
            self.held.put(outcome.done_at, sqe.head().cid(), to);
        } else {
            *context.out.open() = to;
        }
    }

    /// Answers a command without data for the host.
    pub(super) fn complete(
        &mut self,
        sqe: &Sqe,
        outcome: &Outcome,
        context: &mut ReceiveContext<'_>,
    ) {
        // Logged only when the result is final: the commit may still fail.
        if outcome.sync_to.is_some() {
            let awaiting_sync = AwaitingSync {
                sqe: *sqe,
                outcome: *outcome,
                data: Vec::new(),
                data_suffice: false,
            };
            return self.awaiting_sync.push(awaiting_sync);
        }

        self.log_failure(sqe, outcome.status, outcome.failed_block);
        let cid = sqe.head().cid();

        if context.subsystem.delays_answers() {
            let mut held = context.out.spare();
            self.respond(cid, outcome.status, outcome.result, &mut held);
            self.held.put(outcome.done_at, cid, held);
        } else {
            self.respond(cid, outcome.status, outcome.result, context.out.open());
        }
    }

    /// Puts the header of data for the host, with room for the data.
    fn begin_data(
        &self,
        cid: u16,
        bytes: u32,
        without_response: bool,
        to: &mut Vec<u8>,
    ) -> wire::OpenPdu {
        // Reserve everything at once: growing the buffer would copy the data.
        if to.is_empty() {
            to.reserve_exact(bytes as usize + HEADERS_BYTES_MAX);
        }

        let agreed = self.agreed.unwrap_or_default();
        let header = Data::new(cid, 0, 0, bytes);
        let flags = Flags::new().with_last(true).with_success(without_response);
        wire::begin_data(to, kind::C2H_DATA, flags, &header, agreed, bytes as usize)
    }

    pub(super) fn log_failure(&self, sqe: &Sqe, status: Status, failed_block: Option<FailedBlock>) {
        if let Some(queue) = self.queue.as_ref().filter(|_| !status.is_success()) {
            queue
                .association
                .log_error(queue.qid, sqe, status, failed_block);
        }
    }

    fn admin(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let cid = sqe.head().cid();
        match fabrics_kind(sqe) {
            Some(fabrics::CONNECT) => return self.connect(sqe, data, context),
            Some(fabrics::AUTH_SEND) => return self.authentication_send(sqe, data, context),
            Some(fabrics::AUTH_RECEIVE) => return self.authentication_receive(sqe, context),
            _ => {}
        }

        let Some(queue) = &self.queue else {
            return Err(End::Closed);
        };

        // A separate buffer: the length must be known before room is charged for it.
        let mut page = Vec::new();

        // On an I/O queue only reservation commands are left (`check`). They need no turn at the
        // device before they are in force.
        let association = &queue.association;
        let outcome = if queue.qid > 0 {
            association.reservation(&queue.standing, sqe, data, &mut page)
        } else {
            association.admin(sqe, data, &mut page)
        };
        match outcome {
            AdminOutcome::Waits => {}
            AdminOutcome::Done(..)
                if !self.charge_output(page.len() + HEADERS_BYTES_MAX, context.out) =>
            {
                return self.refuse(sqe, Status::INTERRUPTED, context);
            }
            AdminOutcome::Done(status, result) => {
                let out = context.out.open();
                if status.is_success() && !page.is_empty() {
                    self.put_data(cid, &page, out);
                }
                self.respond(cid, status, result, out);
            }
        }
        Ok(())
    }

    /// Puts the data of a command whose answer is sent in one piece.
    pub(super) fn put_data(&self, cid: u16, page: &[u8], out: &mut Vec<u8>) {
        let agreed = self.agreed.unwrap_or_default();
        let header = Data::new(cid, 0, 0, page.len() as u32);
        let flags = Flags::new().with_last(true);
        wire::put_data(out, kind::C2H_DATA, flags, &header, agreed, page);
    }
}
