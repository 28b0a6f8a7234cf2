//! Commands that have all their data, or a part of them: executed, answered, held until due.
//!
//! Invariant: whatever fails, the answer has no data. Absent: what PDUs may arrive when.

use super::unsettled::Unsettled;
use super::{Connection, End, Turn, Want};
use crate::controller::telemetry::CommandKind;
use crate::controller::{
    AdminOutcome, InMemory, IoRequest, Job, Latency, Outcome, Transfer, fabrics_kind,
};
use crate::spec::command::Sqe;
use crate::spec::fabrics::kind as fabrics;
use crate::spec::pdu::{Data, Flags, kind};
use crate::spec::status::Status;
use crate::tcp::wire;

/// Headers, padding and digests of a data PDU, and its response.
const HEADERS_BYTES_MAX: usize = 512;

impl Connection {
    /// Executes a command whose data have all arrived, and answers it.
    pub(super) fn execute(
        &mut self,
        sqe: &Sqe,
        want: Want,
        data: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), End> {
        let Want::Io(request) = want else {
            // Admin commands lock the device themselves.
            self.weight = turn
                .device
                .take()
                .map_or(self.weight, |device| device.weight());
            return self.admin(sqe, data, turn);
        };
        let namespace = turn.subsystem.namespace(sqe.nsid);
        match namespace.map(|namespace| request.transfer(namespace.lba_shift)) {
            Some(Transfer::ToHost(bytes)) => self.send(sqe, &request, bytes, turn),
            _ => {
                let mut nothing = Vec::new();
                let outcome = self.perform(
                    sqe,
                    &request,
                    false,
                    InMemory {
                        from_host: data,
                        to_host: &mut nothing,
                    },
                    turn,
                );
                self.complete(sqe, &outcome, turn);
            }
        }
        Ok(())
    }

    /// The part of a write that `len` bytes of its data from `at` on are, if it can be executed by itself.
    pub(super) fn part(
        &self,
        sqe: &Sqe,
        request: &IoRequest,
        at: u32,
        len: u32,
        last: bool,
        turn: &Turn<'_>,
    ) -> Option<IoRequest> {
        request.part(at, len, last, turn.subsystem.namespace(sqe.nsid)?.lba_shift)
    }

    /// Executes the next part of a write, unless an earlier one has failed.
    pub(super) fn go_on(
        &self,
        sqe: &Sqe,
        part: &IoRequest,
        before: Option<Outcome>,
        data: &[u8],
        turn: &mut Turn<'_>,
    ) -> Outcome {
        if let Some(before) = before.filter(|before| !before.status.is_success()) {
            return before;
        }
        let mut nothing = Vec::new();
        let data = InMemory {
            from_host: data,
            to_host: &mut nothing,
        };
        let now = self.perform(sqe, part, before.is_some(), data, turn);
        Outcome {
            done_at: before.map_or(0, |before| before.done_at).max(now.done_at),
            ..now
        }
    }

    fn perform(
        &self,
        sqe: &Sqe,
        request: &IoRequest,
        continued: bool,
        mut data: InMemory<'_>,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let cache_enabled = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.association.cache_enabled());
        let job = Job {
            nsid: sqe.nsid,
            request,
            now: turn.now,
            cache_enabled,
        };
        let device = turn
            .device
            .get_or_insert_with(|| turn.subsystem.turn(self.weight));
        if continued {
            return turn.subsystem.go_on(device, &job, &mut data);
        }
        let outcome = turn.subsystem.execute(device, &job, &mut data);
        self.note_time(request, &outcome, turn);
        outcome
    }

    /// Counts a command. How long it took is known if that is emulated; else the caller says it, for all of them.
    #[inline]
    fn note_time(&self, request: &IoRequest, outcome: &Outcome, turn: &Turn<'_>) {
        let kind = CommandKind::of(request);
        match turn.subsystem.latency() {
            Latency::Emulated => {
                let took_ns = outcome.done_at.saturating_sub(turn.now);
                turn.subsystem.telemetry().observe(kind, 1, took_ns);
            }
            Latency::None => {
                self.executed.add(kind);
            }
        }
    }

    /// A command with data for the host: they go from the image to where they are sent from.
    fn send(&mut self, sqe: &Sqe, request: &IoRequest, bytes: u32, turn: &mut Turn<'_>) {
        let agreed = self.agreed.unwrap_or_default();
        let without_response = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.no_flow_control);
        let emulated = turn.subsystem.latency() == Latency::Emulated;

        if !self.hold_output(bytes as usize + HEADERS_BYTES_MAX, turn.out) {
            let refused = Outcome {
                status: Status::INTERRUPTED,
                result: 0,
                done_at: turn.now,
                owes: None,
            };
            return self.complete(sqe, &refused, turn);
        }

        let mut to = if emulated {
            turn.out.spare()
        } else {
            std::mem::take(turn.out.open())
        };
        let start = to.len();
        if start == 0 {
            to.reserve_exact(bytes as usize + HEADERS_BYTES_MAX);
        }

        let header = Data::new(sqe.head().cid(), 0, 0, bytes);
        let flags = Flags::new().with_last(true).with_success(without_response);
        let outcome = wire::put_data(
            &mut to,
            kind::C2H_DATA,
            flags,
            &header,
            agreed,
            bytes as usize,
            |to| {
                let start = to.len();
                let outcome = self.perform(
                    sqe,
                    request,
                    false,
                    InMemory {
                        from_host: &[],
                        to_host: to,
                    },
                    turn,
                );

                if !outcome.status.is_success() {
                    to.truncate(start);
                }
                outcome
            },
        );
        if !outcome.status.is_success() {
            to.truncate(start);
        }
        let data_suffice = outcome.status.is_success() && without_response;

        if outcome.owes.is_some() {
            let data = to.split_off(start);
            self.unsettled.push(Unsettled {
                sqe: *sqe,
                outcome,
                data,
                data_suffice,
            });
            if !emulated {
                *turn.out.open() = to;
            }
            return;
        }

        if !data_suffice {
            self.note(sqe, outcome.status);
            self.respond(sqe.head().cid(), outcome.status, outcome.result, &mut to);
        }
        if emulated {
            self.held.put(outcome.done_at, sqe.head().cid(), to);
        } else {
            *turn.out.open() = to;
        }
    }

    /// Answers a command without data for the host.
    pub(super) fn complete(&mut self, sqe: &Sqe, outcome: &Outcome, turn: &mut Turn<'_>) {
        if outcome.owes.is_some() {
            let unsettled = Unsettled {
                sqe: *sqe,
                outcome: *outcome,
                data: Vec::new(),
                data_suffice: false,
            };
            return self.unsettled.push(unsettled);
        }
        self.note(sqe, outcome.status);
        let cid = sqe.head().cid();
        match turn.subsystem.latency() {
            Latency::Emulated => {
                let mut held = turn.out.spare();
                self.respond(cid, outcome.status, outcome.result, &mut held);
                self.held.put(outcome.done_at, cid, held);
            }
            Latency::None => self.respond(cid, outcome.status, outcome.result, turn.out.open()),
        }
    }

    pub(super) fn note(&self, sqe: &Sqe, status: Status) {
        if let Some(queue) = self.queue.as_ref().filter(|_| !status.is_success()) {
            queue.association.log_error(queue.qid, sqe, status);
        }
    }

    fn admin(&mut self, sqe: &Sqe, data: &[u8], turn: &mut Turn<'_>) -> Result<(), End> {
        let cid = sqe.head().cid();
        match fabrics_kind(sqe) {
            Some(fabrics::CONNECT) => return self.connect(sqe, data, turn),
            Some(fabrics::AUTH_SEND) => return self.hear_proof(sqe, data, turn),
            Some(fabrics::AUTH_RECEIVE) => return self.answer_proof(sqe, turn),
            _ => {}
        }

        let Some(queue) = &self.queue else {
            return Err(End::Closed);
        };
        let mut page = Vec::new();

        match queue.association.admin(sqe, data, &mut page) {
            AdminOutcome::Waits => {}
            AdminOutcome::Done(..)
                if !self.hold_output(page.len() + HEADERS_BYTES_MAX, turn.out) =>
            {
                return self.refuse(sqe, Status::INTERRUPTED, turn);
            }
            AdminOutcome::Done(status, result) => {
                let out = turn.out.open();
                if status.is_success() && !page.is_empty() {
                    self.put_page(cid, &page, out);
                }
                self.respond(cid, status, result, out);
            }
        }
        Ok(())
    }

    /// Puts the data of a command that answers with all of them at once.
    pub(super) fn put_page(&self, cid: u16, page: &[u8], out: &mut Vec<u8>) {
        let agreed = self.agreed.unwrap_or_default();
        let header = Data::new(cid, 0, 0, page.len() as u32);
        let flags = Flags::new().with_last(true);
        let fill = |out: &mut Vec<u8>| out.extend_from_slice(page);
        wire::put_data(
            out,
            kind::C2H_DATA,
            flags,
            &header,
            agreed,
            page.len(),
            fill,
        );
    }
}
