//! Executed commands that are acknowledged only once they are durable.
//!
//! Commands received together are synced together: one commit for a queue full of FUA writes.
//! Invariants: if the disk has failed none of them is acknowledged; each is judged by its own
//! position in the device's history, since a power cut may have come between two of them. Absent:
//! the commit (`controller::durable`).

use super::{Connection, Output};
use crate::controller::Outcome;
use crate::spec::command::Sqe;

/// A command that waits until it is durable.
pub(super) struct AwaitingSync {
    pub sqe: Sqe,
    pub outcome: Outcome,
    /// Data for the host, as a PDU; empty if there are none.
    pub data: Vec<u8>,
    /// True if the last data PDU carries the success flag, so that no response follows.
    pub(crate) data_suffice: bool,
}

impl Connection {
    /// Returns true if there are commands to acknowledge by `acknowledge_synced`.
    pub fn is_awaiting_sync(&self) -> bool {
        !self.awaiting_sync.is_empty()
    }

    /// Waits until everything executed is durable, and acknowledges it.
    pub fn acknowledge_synced(&mut self, out: &mut Output) {
        // Positions are ordered: durability up to the last one covers all. Still the last one may
        // have lost its changes while an earlier one has not.
        let Some(wanted) = self
            .awaiting_sync
            .iter()
            .filter_map(|one| one.outcome.sync_to)
            .max()
        else {
            return;
        };
        let port = self.port.clone();
        let all_synced = port.subsystem().make_durable(wanted);
        let delayed = port.subsystem().delays_answers();

        // Its host has learned in the meantime that the queue is gone: it gets no more answers.
        if self.must_go_on().is_err() {
            self.awaiting_sync.clear();
            return;
        }

        for AwaitingSync {
            sqe,
            outcome,
            data,
            data_suffice,
        } in std::mem::take(&mut self.awaiting_sync)
        {
            // A power cut between two commands may have undone this one, but not the last one.
            let synced = match outcome.sync_to {
                Some(own) if own != wanted => port.subsystem().make_durable(own),
                _ => all_synced,
            };

            // If the commit failed, no command keeps its effect: neither its status, nor its
            // result, nor data.
            let status = synced.err().unwrap_or(outcome.status);
            let result = if synced.is_ok() { outcome.result } else { 0 };
            let mut answer = if synced.is_ok() { data } else { Vec::new() };

            // The success flag in a data PDU would acknowledge the command, so if the data are not
            // sent, a response is needed.
            if synced.is_err() || !data_suffice {
                let failed_block = outcome.failed_block.filter(|_| synced.is_ok());
                self.log_failure(&sqe, status, failed_block);
                self.respond(sqe.head().cid(), status, result, &mut answer);
            }

            if delayed {
                self.held.put(outcome.done_at, sqe.head().cid(), answer);
            } else {
                out.open().extend_from_slice(&answer);
            }
        }
        self.end_reports();
    }
}
