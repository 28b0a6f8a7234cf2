//! Connect: creates a queue of an association, or refuses with a reason.
//!
//! Invariants: a host that must authenticate holds no resources of its own before it has: neither
//! the number of an I/O queue nor a share of its host's connections and memory, so that a stranger
//! who knows a host's name cannot keep the host out. The resources that it does hold are bounded as
//! for half-open connections (`server`). Absent: the exchange (`authenticate`).

use super::{Connection, End, PDU_BYTES_MAX, Queue, ReceiveContext, Refused};
use crate::controller::{Association, ConnectRefusal, JoinedQueue, Reached};
use crate::spec::auth::ConnectResult;
use crate::spec::command::Sqe;
use crate::spec::fabrics::{ConnectCdw11, ConnectData};
use crate::spec::status::Status;
use crate::tcp::quota::Full;
use std::net::IpAddr;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Charge of an unauthenticated queue: its small buffer.
const UNPROVEN_BYTES: usize = 4096;
/// Charge of a queue in use: its buffer holds two maximum PDUs.
const QUEUE_BYTES: usize = 2 * PDU_BYTES_MAX;

impl Connection {
    pub(super) fn connect(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let cid = sqe.head().cid();
        match self.connected_queue(context.now, sqe, data) {
            Ok(queue) => {
                let result = ConnectResult::new()
                    .with_cntlid(queue.association.cntlid())
                    .with_authentication(queue.exchange.is_some());
                self.queue = Some(queue);

                let result = result.into_bits().into();
                self.respond(cid, Status::SUCCESS, result, context.out.open());
                Ok(())
            }
            Err(refusal) => {
                self.respond(cid, refusal.status, refusal.result, context.out.open());

                // The host's data are kept for the log. They are not trusted: they may not even be
                // text.
                let data = ConnectData::read_from_bytes(data).ok();
                let (host, subsystem) = data
                    .map(|data| (lossy_text(&data.hostnqn), lossy_text(&data.subnqn)))
                    .unwrap_or_default();
                self.refused = Some(Refused {
                    qid: (sqe.cdw10 >> 16) as u16,
                    host,
                    subsystem,
                    refusal,
                });
                Err(End::Refused)
            }
        }
    }

    fn connected_queue(&self, now: u64, sqe: &Sqe, data: &[u8]) -> Result<Queue, ConnectRefusal> {
        let (association, joined, entries) = self.join(now, sqe, data)?;
        let qid = joined.map_or(0, |joined| joined.qid);

        // Bit 2 of the attributes: the host ignores the queue head in responses.
        let no_flow_control = ConnectCdw11::from_bits(sqe.cdw11).cattr() & 4 != 0;

        let exchange = self.exchange_of(&association);

        // A host at its limit of connections learns so before it authenticates.
        let of_host = self.port.seat(
            association.hostnqn(),
            self.peer.ip(),
            QUEUE_BYTES + self.tls_bytes(),
        );
        let seat = match &exchange {
            None => of_host,
            Some(_) => of_host.and_then(|of_host| {
                drop(of_host);
                self.port.unproven_seat(self.peer.ip(), UNPROVEN_BYTES)
            }),
        };
        let seat = seat.map_err(|full| ConnectRefusal::full(full.reason()))?;

        let mut queue = Queue {
            standing: association.standing(joined.as_ref()),
            association,
            qid,
            joined,
            // Connect itself was the first entry.
            head: 1 % entries,
            entries,
            no_flow_control,
            seat,
            exchange,
        };

        // Only now, because a host without a seat must not be listed with its rights.
        if qid == 0 {
            self.port.enter(&queue.association, self.peer.ip());
        }

        // A queue that must be authenticated takes its number afterwards (`admit_queue`).
        if queue.exchange.is_none() {
            queue.take_number()?;
        }
        Ok(queue)
    }

    /// Creates or joins the association of a Connect; returns it with the queue.
    fn join(
        &self,
        now: u64,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<(Arc<Association>, Option<JoinedQueue>, u16), ConnectRefusal> {
        if self.queue.is_some() {
            return Err(ConnectRefusal::AGAIN);
        }

        let data = ConnectData::read_from_bytes(data).map_err(|_| ConnectRefusal::NO_DATA)?;
        let is_admin = (sqe.cdw10 >> 16) == 0;
        if is_admin {
            let reached = Reached {
                address: self.port.address(self.local),
                portal: self.port.subsystem.portal_of(self.local),
            };
            let (association, entries) =
                Association::connect(&self.port.subsystem, sqe, &data, reached, now)?;
            self.check_host(&association)?;

            // Discovery then tells the host to use TLS.
            if self.proven().is_some() {
                association.note_tls();
            }
            return Ok((association, None, entries));
        }

        let (association, from) = self
            .port
            .find(data.cntlid)
            .ok_or(ConnectRefusal::CONTROLLER)?;
        self.check_host(&association)?;
        self.check_address(&association, from)?;
        let joined = association.join(sqe, &data)?;
        Ok((association, Some(joined), joined.entries))
    }

    /// Checks that a host may join a controller whose admin queue came from another address: both
    /// addresses must have the same rights.
    fn check_address(&self, association: &Association, from: IpAddr) -> Result<(), ConnectRefusal> {
        let host = association.hostnqn();
        let is_same = from == self.peer.ip()
            // The list is consulted only if the address differs.
            || self.port.rights(from, host) == self.port.rights(self.peer.ip(), host);
        if is_same {
            Ok(())
        } else {
            Err(ConnectRefusal::OTHER_RIGHTS)
        }
    }

    /// Checks that the host may connect: by its address or name, and by its key if there are keys.
    fn check_host(&self, association: &Association) -> Result<(), ConnectRefusal> {
        let host = association.hostnqn();
        if self.port.allowed().rights(self.peer.ip(), host).is_none() {
            return Err(ConnectRefusal::NOT_ALLOWED);
        }

        self.check_key(association)
    }

    /// After authentication the queue takes its number, and its share of its host's resources.
    ///
    /// # Errors
    /// Others have taken them in the meantime.
    pub(super) fn admit_queue(&mut self) -> Result<(), &'static str> {
        let tls_bytes = self.tls_bytes();
        let Some(queue) = self.queue.as_mut() else {
            return Ok(());
        };
        if queue.is_admitted() {
            return Ok(());
        }

        // The new seat takes over the charge for output.
        let host = queue.association.hostnqn();
        let bytes = QUEUE_BYTES + tls_bytes + self.output_bytes;
        let seat = self.port.seat(host, self.peer.ip(), bytes);
        let seat = seat.map_err(Full::reason)?;

        // The number first: without it the seat is returned, and the old one stays.
        queue.take_number().map_err(|refusal| refusal.why)?;
        queue.seat = seat;
        Ok(())
    }
}

impl Queue {
    /// Returns true if it has a share of its host's resources.
    pub(super) fn is_admitted(&self) -> bool {
        self.seat.is_counted()
    }

    /// Takes the number of an I/O queue, unless another connection has taken it.
    fn take_number(&mut self) -> Result<(), ConnectRefusal> {
        match &mut self.joined {
            Some(joined) => self.association.take_queue(joined),
            None => Ok(()),
        }
    }
}

/// The text of a fixed-size field, with invalid bytes replaced.
fn lossy_text(field: &[u8; 256]) -> String {
    let len = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    String::from_utf8_lossy(&field[..len]).into_owned()
}
