//! Authentication Send and Receive: the payloads of an exchange (`auth`), carried by commands.
//!
//! Invariant: only the exchange decides about a queue. Absent: deadlines (`server`).

use super::{Connection, End, Queue, ReceiveContext};
use crate::auth::{Asker, Exchange, MESSAGE_BYTES_MAX, Proof};
use crate::controller::{Transfer, fabrics_kind};
use crate::spec::auth::SecurityCdw10;
use crate::spec::command::Sqe;
use crate::spec::fabrics::kind as fabrics;
use crate::spec::status::Status;

/// Maximum buffer for an answer; Linux requests 4,096 bytes.
const ROOM_MAX: u32 = 16 << 10;

/// Returns true for commands that authenticate a queue.
pub(super) fn is_part(sqe: &Sqe) -> bool {
    matches!(
        fabrics_kind(sqe),
        Some(fabrics::AUTH_SEND | fabrics::AUTH_RECEIVE)
    )
}

impl Connection {
    /// Returns true if its queue may be used: it is connected and, if hosts must authenticate,
    /// authenticated.
    pub(crate) fn is_admitted(&self) -> bool {
        self.queue.as_ref().is_some_and(Queue::is_admitted)
    }

    /// The proof by its host, if hosts must authenticate.
    pub(crate) fn proof(&self) -> Option<Proof> {
        self.queue.as_ref()?.exchange.as_ref()?.proof()
    }

    /// Number of calculations of its exchange that it has waited for.
    pub(crate) fn calculations(&self) -> u32 {
        let exchange = self.queue.as_ref().and_then(|one| one.exchange.as_ref());
        exchange.map_or(0, Exchange::calculations)
    }

    /// Why the host could not be authenticated, if that ended the connection.
    pub(crate) fn authentication_failure(&self) -> Option<&'static str> {
        self.authentication_failure
    }

    /// Returns true if the queue is connected, and only authentication may follow.
    pub(super) fn must_authenticate(&self) -> bool {
        let exchange = self
            .queue
            .as_ref()
            .and_then(|queue| queue.exchange.as_ref());
        exchange.is_some_and(|exchange| exchange.proof().is_none())
    }

    pub(super) fn end_unauthenticated(&mut self, why: &'static str) -> End {
        self.authentication_failure = Some(why);
        End::Unauthenticated(why)
    }

    /// Data transfer of an authentication command; `None` for other commands.
    pub(super) fn authentication_transfer(&self, sqe: &Sqe) -> Result<Option<Transfer>, Status> {
        if !is_part(sqe) {
            return Ok(None);
        }

        // A host that need not authenticate must not send these.
        let is_asked_for = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.exchange.is_some());
        let protocol = SecurityCdw10::from_bits(sqe.cdw10);
        if !is_asked_for || protocol != SecurityCdw10::DH_HMAC_CHAP {
            return Err(Status::INVALID_FIELD);
        }

        let bytes = sqe.cdw11;
        match fabrics_kind(sqe) {
            Some(fabrics::AUTH_SEND) if (1..=MESSAGE_BYTES_MAX as u32).contains(&bytes) => {
                Ok(Some(Transfer::FromHost(bytes)))
            }
            Some(fabrics::AUTH_RECEIVE) if (1..=ROOM_MAX).contains(&bytes) => {
                Ok(Some(Transfer::ToHost(bytes)))
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Handles Authentication Send. Errors in the payload are reported by the next Authentication
    /// Receive.
    pub(super) fn authentication_send(
        &mut self,
        sqe: &Sqe,
        payload: &[u8],
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        // An admitted host is one of few, and its connection ends in other ways.
        let is_admitted = self.is_admitted();
        let exchange = self
            .queue
            .as_mut()
            .and_then(|queue| queue.exchange.as_mut());
        let Some(exchange) = exchange else {
            return self.refuse(sqe, Status::INVALID_FIELD, context);
        };

        // Success only means that the payload has arrived. The exchange's next payload tells the
        // result.
        let has_ended = self.has_ended.as_deref().filter(|_| !is_admitted);
        let asker = Asker {
            address: self.peer.ip(),
            has_ended: &|| has_ended.is_some_and(|has_ended| has_ended()),
        };
        exchange.receive(payload, &asker);
        self.respond(sqe.head().cid(), Status::SUCCESS, 0, context.out.open());
        self.judge()
    }

    /// Handles Authentication Receive: the exchange's next payload, padded with zeroes.
    pub(super) fn authentication_receive(
        &mut self,
        sqe: &Sqe,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let room = sqe.cdw11 as usize;
        if !self.charge_output(room, context.out) {
            return self.refuse(sqe, Status::INTERRUPTED, context);
        }

        // A host that requests a message when none is due violates the order, which may end the
        // exchange.
        let exchange = self
            .queue
            .as_mut()
            .and_then(|queue| queue.exchange.as_mut());
        let Some(mut page) = exchange.and_then(|exchange| exchange.send(room)) else {
            self.refuse(sqe, Status::SEQUENCE, context)?;
            return self.judge();
        };

        page.resize(room, 0);
        let out = context.out.open();
        self.put_data(sqe.head().cid(), &page, out);
        self.respond(sqe.head().cid(), Status::SUCCESS, 0, out);
        self.judge()
    }

    /// Admits a queue that is now authenticated, and ends one whose exchange has failed.
    fn judge(&mut self) -> Result<(), End> {
        let exchange = self
            .queue
            .as_ref()
            .and_then(|queue| queue.exchange.as_ref());

        // A failure ends the connection only after it was reported to the host: until then the
        // exchange is not over.
        let over = exchange.filter(|exchange| exchange.is_over());
        if let Some(failed) = over.and_then(|exchange| exchange.failed()) {
            return Err(self.end_unauthenticated(failed.why));
        }

        if self.must_authenticate() {
            return Ok(());
        }
        self.admit_queue()
            .map_err(|why| self.end_unauthenticated(why))
    }
}
