//! One connection of the target: bytes in, bytes out.
//!
//! ```text
//! ICReq -> ICResp, Connect -> a queue of an association, then commands:
//! capsule -> checked -> data in the capsule, or R2T and H2CData -> executed -> C2HData and a response, when due
//! ```
//! Invariants: the first PDU is ICReq and the first command Connect; a payload is copied once, between its PDU and the
//! image; memory is bounded, whatever arrives: transfers are granted up to a limit, commands up to the queue's size,
//! output up to `OUT_BYTES_MAX` before the caller must send it. Absent: sockets and clocks.

mod execute;
mod later;
mod output;
mod port;
mod transfers;

pub use output::Output;
pub use port::{Advertised, Allowed, Port};

use super::wire::{self, Agreement, Pdu};
use crate::controller::{
    Association, IN_CAPSULE_BYTES, IoRequest, QUEUE_ENTRIES_MAX, Subsystem, TRANSFER_BYTES_MAX, Transfer,
    admin_transfer, fabrics_kind,
};
use crate::spec::command::{Cqe, Sgl, Sqe};
use crate::spec::fabrics::kind as fabrics;
use crate::spec::pdu::{FatalError, Flags, Ic, kind};
use crate::spec::status::Status;
use later::Later;
use remap_ssd_device::Device;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use transfers::{Arrived, Transfers};

/// Data of one H2CData that we accept.
pub const H2C_BYTES_MAX: u32 = 128 << 10;
/// Completions that are not due yet, after which no more is executed.
const LATER_BYTES_MAX: usize = 16 << 20;
/// Output after which no more is executed before it is sent.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Largest PDU that can arrive: its buffer must hold it whole.
pub const PDU_BYTES_MAX: usize =
    1024 + if IN_CAPSULE_BYTES > H2C_BYTES_MAX { IN_CAPSULE_BYTES } else { H2C_BYTES_MAX } as usize;

/// A queue that a host has connected.
struct Queue {
    association: Arc<Association>,
    qid: u16,
    entries: u16,
    head: u16,
    /// The host does not look at the queue head.
    no_flow_control: bool,
}

/// What will be executed.
#[derive(Clone, Copy)]
enum Want {
    Io(IoRequest),
    Admin,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The host broke the protocol; a termination request has been put out.
    Fatal(FatalError),
    /// The host said so, or its association is dead.
    Closed,
}

/// What one call of `receive` works with.
struct Turn<'a> {
    now: u64,
    subsystem: &'a Subsystem,
    /// Locked from the first I/O command on, until the end of the call or the next admin command.
    device: Option<MutexGuard<'a, Device>>,
    out: &'a mut Output,
}

/// One connection.
pub struct Connection {
    port: Arc<Port>,
    peer: SocketAddr,
    local: SocketAddr,
    agreed: Option<Agreement>,
    queue: Option<Queue>,
    transfers: Transfers,
    later: Later,
    event_requests: usize,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(port: Arc<Port>, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            port,
            peer,
            local,
            agreed: None,
            queue: None,
            transfers: Transfers::default(),
            later: Later::default(),
            event_requests: 0,
        }
    }

    /// The association and queue, once connected.
    pub fn connected(&self) -> Option<(&Association, u16)> {
        self.queue.as_ref().map(|queue| (&*queue.association, queue.qid))
    }

    /// When the next completion is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.later.next()
    }

    /// Is nothing under way?
    pub fn is_idle(&self) -> bool {
        self.later.len() == 0 && self.transfers.len() == 0
    }

    /// Appends what is due.
    pub fn due(&mut self, now: u64, out: &mut Output) {
        while out.len() < OUT_BYTES_MAX
            && let Some(bytes) = self.later.take(now)
        {
            out.push(bytes);
        }
    }

    /// Looks after what depends on time alone: keep-alive and events.
    ///
    /// # Errors
    /// The association is dead.
    pub fn tick(&mut self, now: u64, out: &mut Output) -> Result<(), End> {
        let Some(queue) = &self.queue else { return Ok(()) };
        if queue.association.is_dead(now) {
            return Err(End::Closed);
        }
        if queue.qid == 0
            && let Some((cid, result)) = queue.association.event()
        {
            self.event_requests -= 1;
            self.respond(cid, Status::SUCCESS, result, out.open());
        }
        Ok(())
    }

    /// Handles the whole PDUs at the beginning of `input`; how many bytes that were. Stops early when there is much to
    /// send.
    ///
    /// # Errors
    /// The connection has to end, after `out` has been sent.
    pub fn receive(&mut self, now: u64, input: &[u8], out: &mut Output) -> Result<usize, End> {
        let port = self.port.clone();
        let mut turn = Turn { now, subsystem: &port.subsystem, device: None, out };
        let mut at = 0;
        let result = loop {
            if turn.out.len() >= OUT_BYTES_MAX || self.later.bytes() >= LATER_BYTES_MAX {
                break Ok(());
            }
            let data_max = IN_CAPSULE_BYTES.max(H2C_BYTES_MAX) as usize;
            match wire::cut(&input[at..], self.agreed.unwrap_or_default(), data_max) {
                Ok(None) => break Ok(()),
                Ok(Some((pdu, len))) => {
                    at += len;
                    if let Err(end) = self.pdu(&pdu, &mut turn) {
                        break Err(end);
                    }
                }
                Err(error) => break Err(End::Fatal(error)),
            }
        };
        drop(turn);
        if at > 0
            && let Some(queue) = &self.queue
        {
            queue.association.heard(now);
        }
        if let Err(End::Fatal(error)) = result {
            wire::put_term(out.open(), kind::C2H_TERM, error);
        }
        result.map(|()| at)
    }

    fn pdu(&mut self, pdu: &Pdu<'_>, turn: &mut Turn<'_>) -> Result<(), End> {
        match (pdu.common.kind, self.agreed) {
            (kind::IC_REQ, None) => self.initialize(pdu, turn),
            (kind::CAPSULE_CMD, Some(_)) => self.command(pdu, turn),
            (kind::H2C_DATA, Some(_)) => self.data(pdu, turn),
            (kind::H2C_TERM, Some(_)) => Err(End::Closed),
            _ => Err(End::Fatal(FatalError::Sequence)),
        }
    }

    fn initialize(&mut self, pdu: &Pdu<'_>, turn: &mut Turn<'_>) -> Result<(), End> {
        let ic: Ic = pdu.parse().ok_or(End::Fatal(FatalError::HeaderField))?;
        if ic.pfv != 0 || ic.pda > 31 {
            return Err(End::Fatal(FatalError::Unsupported));
        }
        let digest = ic.digest & 3;
        self.agreed = Some(Agreement::new(digest, ic.pda));
        // Hosts may put data where they like: no alignment is asked for.
        wire::put_ic(turn.out.open(), kind::IC_RESP, &Ic::new(0, digest, H2C_BYTES_MAX));
        Ok(())
    }

    fn command(&mut self, pdu: &Pdu<'_>, turn: &mut Turn<'_>) -> Result<(), End> {
        let sqe: Sqe = pdu.parse().ok_or(End::Fatal(FatalError::HeaderField))?;
        let under_way = self.transfers.len() + self.later.len() + self.event_requests;
        if under_way >= usize::from(self.queue.as_ref().map_or(QUEUE_ENTRIES_MAX, |queue| queue.entries)) {
            return Err(End::Fatal(FatalError::LimitExceeded));
        }
        let cid = sqe.head().cid();
        if self.queue.is_none() && fabrics_kind(&sqe) != Some(fabrics::CONNECT) {
            self.respond(cid, Status::SEQUENCE, 0, turn.out.open());
            return Err(End::Closed);
        }
        if let Some(queue) = &mut self.queue {
            queue.head = (queue.head + 1) % queue.entries;
        }
        let (want, transfer) = match self.check(&sqe) {
            Ok(checked) => checked,
            Err(status) => return self.refuse(&sqe, status, turn),
        };
        let bytes = match self.transfer(&sqe, transfer, pdu.data.len()) {
            Ok(bytes) => bytes,
            Err(status) => return self.refuse(&sqe, status, turn),
        };
        match sqe.sgl.identifier {
            Sgl::TRANSPORT if matches!(transfer, Transfer::FromHost(_)) => {
                self.transfers.add(sqe, want, bytes as u32);
                self.transfers.grant(self.agreed.unwrap_or_default(), turn.out.open());
                Ok(())
            }
            _ => self.execute(&sqe, want, pdu.data.get(..bytes).unwrap_or_default(), turn),
        }
    }

    /// Checks a command's SGL against the data it moves; how many bytes the host sends.
    ///
    /// An SGL may be longer than the data (SGLS bit 18): only their first bytes are taken. Linux sends 4,096 bytes with
    /// Dataset Management, whatever its number of ranges says.
    fn transfer(&self, sqe: &Sqe, transfer: Transfer, in_capsule: usize) -> Result<usize, Status> {
        let Sgl { identifier, address, length, .. } = sqe.sgl;
        let (Transfer::FromHost(needed) | Transfer::ToHost(needed)) = transfer else { return Ok(0) };
        let from_host = matches!(transfer, Transfer::FromHost(_));
        match identifier {
            Sgl::TRANSPORT => {}
            Sgl::IN_CAPSULE if from_host => {}
            _ => return Err(Status::SGL_TYPE),
        }
        if length < needed {
            return Err(Status::SGL_LENGTH);
        }
        if length > TRANSFER_BYTES_MAX {
            return Err(Status::INVALID_FIELD);
        }
        if identifier == Sgl::IN_CAPSULE && (address != 0 || in_capsule != length as usize) {
            return Err(Status::DATA_TRANSFER);
        }
        Ok(if from_host { needed as usize } else { 0 })
    }

    /// What a command wants, and the data it moves.
    fn check(&self, sqe: &Sqe) -> Result<(Want, Transfer), Status> {
        match &self.queue {
            Some(queue) if queue.qid > 0 => {
                if !queue.association.is_enabled() {
                    return Err(Status::SEQUENCE);
                }
                let subsystem = queue.association.subsystem();
                let flush_all = sqe.head().opcode() == crate::spec::opcode::io::FLUSH && sqe.nsid == u32::MAX;
                if flush_all {
                    return Ok((Want::Io(IoRequest::Flush), Transfer::None));
                }
                let namespace = subsystem.namespace(sqe.nsid).ok_or(Status::INVALID_NAMESPACE)?;
                let request = IoRequest::parse(sqe, namespace, subsystem.namespaces().len() > 1)?;
                let transfer = request.transfer(namespace.lba_shift);
                Ok((Want::Io(request), transfer))
            }
            _ => Ok((Want::Admin, admin_transfer(sqe)?)),
        }
    }

    fn refuse(&self, sqe: &Sqe, status: Status, turn: &mut Turn<'_>) -> Result<(), End> {
        if let Some(queue) = &self.queue {
            queue.association.log_error(queue.qid, sqe, status);
        }
        self.respond(sqe.head().cid(), status, 0, turn.out.open());
        Ok(())
    }

    /// Data that were asked for. Whole pages of a write go to the device at once; all else waits for the rest.
    fn data(&mut self, pdu: &Pdu<'_>, turn: &mut Turn<'_>) -> Result<(), End> {
        let Arrived { tag, last } = self.transfers.arrive(pdu).map_err(End::Fatal)?;
        let Some(incoming) = self.transfers.get(tag) else { return Ok(()) };
        let (sqe, want, before) = (incoming.sqe, incoming.want, incoming.outcome);
        let at = incoming.executed() - pdu.data.len() as u32;
        let part = match (incoming.gathered.is_empty(), want) {
            (true, Want::Io(request)) => self.part(&sqe, &request, at, pdu.data.len() as u32, last, turn),
            _ => None,
        };
        if let Some(part) = part {
            let outcome = self.go_on(&sqe, &part, before, pdu.data, turn);
            if let Some(incoming) = self.transfers.get(tag) {
                incoming.outcome = Some(outcome);
            }
        } else if let Some(incoming) = self.transfers.get(tag) {
            if incoming.gathered.is_empty() {
                incoming.gathered.reserve_exact((incoming.total - at) as usize);
            }
            incoming.gathered.extend_from_slice(pdu.data);
        }
        if !last {
            return Ok(());
        }
        let Some(incoming) = self.transfers.finish(tag) else { return Ok(()) };
        let (at, len) = (incoming.executed(), incoming.gathered.len() as u32);
        let rest = match want {
            Want::Io(request) if at > 0 && len > 0 => self.part(&sqe, &request, at, len, true, turn),
            _ => None,
        };
        match (incoming.outcome, rest) {
            (None, _) => self.execute(&sqe, want, &incoming.gathered, turn)?,
            (before, Some(rest)) => {
                let outcome = self.go_on(&sqe, &rest, before, &incoming.gathered, turn);
                self.complete(&sqe, &outcome, turn);
            }
            (Some(outcome), None) => self.complete(&sqe, &outcome, turn),
        }
        self.transfers.grant(self.agreed.unwrap_or_default(), turn.out.open());
        Ok(())
    }

    fn respond(&self, cid: u16, status: Status, result: u64, out: &mut Vec<u8>) {
        let agreed = self.agreed.unwrap_or_default();
        let status = status.into_bits() << 1;
        let cqe = match &self.queue {
            Some(queue) => {
                let sqhd = if queue.no_flow_control { 0xffff } else { queue.head };
                Cqe { result, sqhd, sqid: queue.qid, cid, status }
            }
            None => Cqe { result, cid, status, ..Cqe::default() },
        };
        wire::put(out, kind::CAPSULE_RESP, Flags::new(), &cqe, agreed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            match queue.qid {
                0 => queue.association.close(),
                qid => queue.association.leave(qid),
            }
        }
    }
}
