//! Commands: from a submission queue entry to its completion.
//!
//! Invariants: a command that must be durable is completed only then; no two outstanding commands
//! of a queue share an identifier. Absent: the order of commands (`worker`), and execution of I/O
//! commands (`nvme`'s controller).

use crate::completions::DelayedCompletion;
use crate::function::{AwaitingSync, FunctionShared, FunctionState};
use crate::memory::{Access, OutOfReach};
use crate::prp::{GuestData, segments};
use remap_ssd_nvme::controller::telemetry::CommandKind;
use remap_ssd_nvme::controller::{AdminOutcome, HostData, Outcome, Transfer, admin_transfer};
use remap_ssd_nvme::spec::bus::QueueCdw10;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::status::Status;
use std::sync::atomic::Ordering;

impl FunctionShared {
    /// Executes a command of a queue, and completes it unless it has to wait.
    pub(crate) fn command(
        &self,
        state: &mut FunctionState,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), OutOfReach> {
        let cid = sqe.head().cid();

        let awaiting_sync = || {
            state
                .awaiting_sync
                .iter()
                .any(|one| (one.sqid, one.sqe.head().cid()) == (sqid, cid))
        };

        let event = || sqid == 0 && state.association.has_event_request(cid);

        // A completion names its command only by the identifier, which must be unique.
        let in_use = state.delayed.has(sqid, cid) || awaiting_sync() || event();

        let outcome = if in_use {
            Some(completed(Status::ID_CONFLICT, 0))
        } else if sqe.head().psdt() != 0 {
            // Only PRPs: Identify reports no support of SGLs.
            Some(completed(Status::INVALID_FIELD, 0))
        } else if sqid == 0 {
            self.admin(state, sqe)
                .map(|(status, result)| completed(status, result))
        } else {
            Some(self.io(state, sqe))
        };

        // An asynchronous event request is completed when there is an event.
        let Some(outcome) = outcome else {
            return Ok(());
        };

        // One sync for the whole burst: `acknowledge_synced` completes these together.
        if outcome.sync_to.is_some() {
            state.awaiting_sync.push(AwaitingSync {
                sqid,
                sqe: *sqe,
                outcome,
            });
            return Ok(());
        }

        self.complete(state, sqid, sqe, outcome)
    }

    /// Makes all waiting commands of a burst durable together, and completes them.
    pub(crate) fn acknowledge_synced(&self, state: &mut FunctionState) -> Result<(), OutOfReach> {
        let Some(wanted) = state
            .awaiting_sync
            .iter()
            .filter_map(|one| one.outcome.sync_to)
            .max()
        else {
            return Ok(());
        };

        // One sync for all of them. Then each is judged by its own position in the device's
        // history: a power cut between two of them takes back the first one, but not the second.
        let subsystem = state.association.subsystem().clone();
        let _ = subsystem.make_durable(wanted);

        let waiting = std::mem::take(&mut state.awaiting_sync);
        for AwaitingSync { sqid, sqe, outcome } in waiting {
            let outcome = subsystem.wait_until_durable(outcome);
            self.complete(state, sqid, &sqe, outcome)?;
        }
        Ok(())
    }

    fn complete(
        &self,
        state: &mut FunctionState,
        sqid: u16,
        sqe: &Sqe,
        outcome: Outcome,
    ) -> Result<(), OutOfReach> {
        let cid = sqe.head().cid();

        let Outcome {
            status,
            result,
            done_at,
            failed_block,
            ..
        } = outcome;

        if !status.is_success() && sqid > 0 {
            state.association.log_error(sqid, sqe, status, failed_block);
        }

        // Complete it at the device's completion time.
        if state.association.subsystem().delays_answers() && done_at > self.now() {
            state.delayed.put(DelayedCompletion::new(
                done_at,
                (sqid, cid),
                status.into_bits(),
                result,
            ));
            return Ok(());
        }

        state
            .queues
            .complete(sqid, cid, status, result, &state.memory)
    }

    fn io(&self, state: &mut FunctionState, sqe: &Sqe) -> Outcome {
        // The guest may change its PRP list at any time: it is read once, before the command
        // begins.
        let checked = state.association.io_command(sqe).and_then(|command| {
            let (len, access) = moved(command.transfer());
            Ok((command, segments(&state.memory, sqe.prps(), len, access)?))
        });

        let (command, found) = match checked {
            Ok(checked) => checked,
            Err(status) => return completed(status, 0),
        };

        let mut data = GuestData::new(&state.memory, &found);
        let subsystem = state.association.subsystem().clone();
        let (issuer, now) = (state.association.issuer(), self.now());

        let mut device = subsystem.turn(state.weight);
        let outcome = subsystem.execute(&mut device, &command, &issuer, now, &mut data);

        // Others wait for the device: release it before the bookkeeping.
        let failed = data.failed();
        state.weight = device.weight();
        drop(device);

        let took_ns = outcome.done_at.max(self.now()).saturating_sub(now);
        subsystem
            .telemetry()
            .observe(CommandKind::of(&command.request), 1, took_ns);

        // The device has executed it, but some data did not reach or leave the guest.
        if outcome.status.is_success() && failed {
            return Outcome {
                status: Status::DATA_TRANSFER,
                ..outcome
            };
        }

        outcome
    }

    /// Creates or deletes a queue, and resets its doorbell; `None` for other commands.
    fn queue_command(&self, state: &mut FunctionState, sqe: &Sqe) -> Option<Status> {
        let qids = state.association.io_queues();
        let made = match sqe.head().opcode() {
            admin::CREATE_CQ => state
                .queues
                .create_cq(sqe, qids)
                .map(|qid| usize::from(qid) * 2 + 1),
            admin::CREATE_SQ => state
                .queues
                .create_sq(sqe, qids)
                .map(|qid| usize::from(qid) * 2),
            admin::DELETE_CQ => state
                .queues
                .delete_cq(sqe)
                .map(|qid| usize::from(qid) * 2 + 1),
            admin::DELETE_SQ => {
                // Unreachable guest memory is detected again at the next command.
                let _ = self.acknowledge_synced(state);
                self.complete_all(state, sqe);
                state.queues.delete_sq(sqe).map(|qid| usize::from(qid) * 2)
            }
            // For networks only.
            admin::FABRICS => Err(Status::INVALID_OPCODE),
            _ => return None,
        };

        Some(match made {
            Ok(doorbell) => {
                state.association.queue_made();

                // The next queue with this number begins at position 0.
                self.doorbells[doorbell].store(0, Ordering::Release);
                Status::SUCCESS
            }
            Err(status) => {
                state.association.log_error(0, sqe, status, None);
                status
            }
        })
    }

    /// Executes an admin command; `None` if it waits.
    fn admin(&self, state: &mut FunctionState, sqe: &Sqe) -> Option<(Status, u64)> {
        if let Some(status) = self.queue_command(state, sqe) {
            return Some((status, 0));
        }

        let transfer = admin_transfer(sqe).and_then(|transfer| {
            let (len, access) = moved(transfer);
            Ok((
                transfer,
                len,
                segments(&state.memory, sqe.prps(), len, access)?,
            ))
        });
        let (transfer, len, found) = match transfer {
            Ok(transfer) => transfer,
            Err(status) => return Some((status, 0)),
        };

        let mut guest = GuestData::new(&state.memory, &found);

        // Admin data are short: they are gathered first, so that the command sees one copy.
        let mut sent = Vec::new();
        while matches!(transfer, Transfer::FromHost(_)) && sent.len() < len {
            match guest.take(len - sent.len()) {
                [] => return Some((Status::DATA_TRANSFER, 0)),
                taken => sent.extend_from_slice(taken),
            }
        }

        let mut page = Vec::new();
        match state.association.admin(sqe, &sent, &mut page) {
            AdminOutcome::Waits => {
                // It may wait without limit, and must not block other commands from being fetched.
                state.queues.release_slot(0);
                None
            }
            AdminOutcome::Done(status, result) => {
                if status.is_success() {
                    guest.put(&page);
                }
                let status = if guest.failed() {
                    Status::DATA_TRANSFER
                } else {
                    status
                };
                Some((status, result))
            }
        }
    }

    /// Completes the delayed commands of a deleted queue at once.
    fn complete_all(&self, state: &mut FunctionState, sqe: &Sqe) {
        let qid = QueueCdw10::from_bits(sqe.cdw10).qid();
        for due in state.delayed.take_queue(qid) {
            let status = Status::from_bits(due.status);
            // Unreachable guest memory is detected again at the next command.
            let _ = state
                .queues
                .complete(due.sqid, due.cid, status, due.result, &state.memory);
        }
    }
}

/// An outcome with nothing to wait for.
fn completed(status: Status, result: u64) -> Outcome {
    Outcome {
        result,
        ..Outcome::new(status, 0)
    }
}

/// Number of bytes, and the access to guest memory.
fn moved(transfer: Transfer) -> (usize, Access) {
    match transfer {
        Transfer::None => (0, Access::Read),
        Transfer::FromHost(bytes) => (bytes as usize, Access::Read),
        Transfer::ToHost(bytes) => (bytes as usize, Access::Write),
    }
}
