//! Processing of a command capsule: all checks first, then refused, granted its data, or executed.
//!
//! Invariants: no part of a command is executed before all checks have passed; a refused command is
//! answered, unless the host has violated the protocol. Absent: execution (`execute`).

use super::*;

impl Connection {
    pub(super) fn command(
        &mut self,
        pdu: &Pdu<'_>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        let sqe: Sqe = pdu.parse().ok_or(Fault::field(offset::HLEN))?;

        if self.is_full() {
            // The host ignores flow control: the queue has no room for this command.
            return Err(Fault::from(FatalError::Sequence).into());
        }

        let cid = sqe.head().cid();
        if self.queue.is_none() && fabrics_kind(&sqe) != Some(fabrics::CONNECT) {
            self.respond(cid, Status::SEQUENCE, 0, context.out.open());
            return Err(End::Closed);
        }

        if self.must_authenticate() && !authenticate::is_part(&sqe) {
            self.respond(cid, Status::AUTH_REQUIRED, 0, context.out.open());
            return Err(
                self.end_unauthenticated("it sent another command before it had authenticated")
            );
        }

        if let Some(queue) = &mut self.queue {
            queue.head = (queue.head + 1) % queue.entries;
        }

        // Answers to two commands with the same identifier would be indistinguishable.
        if self.is_under_way(cid) {
            return self.refuse(&sqe, Status::ID_CONFLICT, context);
        }
        // Only the data are damaged; the command itself is intact, and the host may send it again.
        if pdu.damaged {
            return self.refuse(&sqe, Status::TRANSIENT_TRANSPORT, context);
        }
        if fabrics_kind(&sqe) == Some(fabrics::DISCONNECT) {
            return self.disconnect(&sqe, context);
        }

        // Borrowed, not moved: copying just after a write in parts stalls processors.
        let checked = self.check(&sqe);
        let (command, transfer) = match &checked {
            Ok((command, transfer)) => (command.as_ref(), *transfer),
            Err(status) => return self.refuse(&sqe, *status, context),
        };
        let bytes = match self.bytes_from_host(&sqe, transfer, pdu.data.len()) {
            Ok(bytes) => bytes,
            Err(status) => return self.refuse(&sqe, status, context),
        };

        // Without memory it is resumed later (`resume`).
        let Some(charged) = self.charge_or_park(&sqe, command, transfer, context) else {
            return Ok(());
        };

        match sqe.sgl.identifier {
            // No part of a command is executed without its data: they are requested as memory
            // allows.
            Sgl::TRANSPORT if matches!(transfer, Transfer::FromHost(_)) => {
                self.transfers
                    .add(sqe, command.copied(), bytes as u32, charged);
                self.grant(context);
                Ok(())
            }
            _ => self.execute(
                &sqe,
                command,
                pdu.data.get(..bytes).unwrap_or_default(),
                context,
            ),
        }
    }

    /// Returns true if every entry of the queue is in use.
    fn is_full(&self) -> bool {
        // Event requests also occupy queue entries for as long as they wait.
        let events = self
            .queue
            .as_ref()
            .filter(|queue| queue.qid == 0)
            .map_or(0, |queue| queue.association.event_requests());
        let under_way = self.transfers.len()
            + self.held.len()
            + self.awaiting_sync.len()
            + self.parked.len()
            + events;

        let entries = self
            .queue
            .as_ref()
            .map_or(QUEUE_ENTRIES_MAX, |queue| queue.entries);
        under_way >= usize::from(entries)
    }

    /// Checks a command's SGL against its data; returns the number of bytes that the host sends.
    ///
    /// An SGL may be longer than the data (SGLS bit 18): only the first bytes are used. Linux sends
    /// 4,096 bytes with Dataset Management, for any number of ranges.
    fn bytes_from_host(
        &self,
        sqe: &Sqe,
        transfer: Transfer,
        in_capsule: usize,
    ) -> Result<usize, Status> {
        let Sgl {
            identifier,
            address,
            length,
            ..
        } = sqe.sgl;
        let (Transfer::FromHost(needed) | Transfer::ToHost(needed)) = transfer else {
            return Ok(0);
        };

        let from_host = matches!(transfer, Transfer::FromHost(_));
        match identifier {
            Sgl::TRANSPORT => {}
            // A capsule from the host cannot carry data to it.
            Sgl::IN_CAPSULE if from_host => {}
            _ => return Err(Status::SGL_TYPE),
        }

        if length < needed {
            return Err(Status::SGL_LENGTH);
        }
        if length > TRANSFER_BYTES_MAX {
            return Err(Status::INVALID_FIELD);
        }

        // In-capsule data must be complete, and start at offset 0 (Fabrics 1.1 §2.2).
        if identifier == Sgl::IN_CAPSULE && address != 0 {
            return Err(Status::SGL_OFFSET);
        }
        if identifier == Sgl::IN_CAPSULE && in_capsule != length as usize {
            return Err(Status::DATA_TRANSFER);
        }

        Ok(if from_host { needed as usize } else { 0 })
    }

    /// Returns true if a command with this identifier is outstanding.
    pub(super) fn is_under_way(&self, cid: u16) -> bool {
        // An event request, and thus its identifier, may be outstanding without limit.
        let event = |queue: &Queue| queue.qid == 0 && queue.association.has_event_request(cid);
        let awaiting_sync = || {
            self.awaiting_sync
                .iter()
                .any(|one| one.sqe.head().cid() == cid)
        };
        self.transfers.has(cid)
            || self.held.has(cid)
            || self.parked.has(cid)
            || awaiting_sync()
            || self.queue.as_ref().is_some_and(event)
    }

    /// Checks a command; returns it decoded if it is an I/O command, and its data transfer. Admin,
    /// fabrics and reservation commands are decoded when they are executed. Inlined with its
    /// callees: results of this size cost more to return than to build.
    #[inline(always)]
    fn check(&self, sqe: &Sqe) -> Result<(Option<IoCommand>, Transfer), Status> {
        if sqe.head().psdt() != PSDT_SGL {
            return Err(Status::INVALID_FIELD);
        }

        // Every queue may authenticate, so check for that before distinguishing queues.
        if let Some(transfer) = self.authentication_transfer(sqe)? {
            return Ok((None, transfer));
        }

        match &self.queue {
            Some(queue) if queue.qid > 0 && fabrics_kind(sqe) != Some(fabrics::CONNECT) => {
                if let Some(transfer) = queue.association.reservation_transfer(sqe) {
                    return Ok((None, transfer?));
                }
                let command = queue.association.io_command(sqe)?;
                Ok((Some(command), command.transfer()))
            }
            _ => Ok((None, admin_transfer(sqe)?)),
        }
    }

    /// Handles Disconnect: an I/O queue ends after this answer (Base 2.0 §6.4).
    fn disconnect(&mut self, sqe: &Sqe, context: &mut ReceiveContext<'_>) -> Result<(), End> {
        let on_io_queue = self.queue.as_ref().is_some_and(|queue| queue.qid > 0);
        // The record format is in bits 15:0 of dword 10.
        let status = match (on_io_queue, sqe.cdw10 as u16) {
            (false, _) => Status::QUEUE_TYPE,
            (true, 0) => Status::SUCCESS,
            (true, _) => Status::CONNECT_FORMAT,
        };
        if !status.is_success() {
            return self.refuse(sqe, status, context);
        }
        self.respond(sqe.head().cid(), status, 0, context.out.open());
        Err(End::Closed)
    }

    pub(super) fn refuse(
        &self,
        sqe: &Sqe,
        status: Status,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), End> {
        if let Some(queue) = &self.queue {
            queue.association.log_error(queue.qid, sqe, status, None);
        }
        self.respond(sqe.head().cid(), status, 0, context.out.open());
        Ok(())
    }
}
