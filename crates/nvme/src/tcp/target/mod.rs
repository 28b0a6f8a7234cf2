//! One connection of the target: bytes in, bytes out.
//!
//! ```text
//! ICReq -> ICResp, Connect -> a queue of an association, authentication if there are keys, then commands:
//! capsule -> checked -> data in the capsule, or R2T and H2CData -> executed -> C2HData and a response, when due
//! ```
//! Invariants: the first PDU is ICReq and the first command Connect; a queue that must be
//! authenticated executes nothing before; a payload is copied once, between its PDU and the image;
//! memory is bounded for any input: transfers are granted up to a limit, commands up to the queue's
//! size, output up to `OUT_BYTES_MAX` before the caller must send it, and all of it is charged to
//! the host (`quota`). One call executes as much as fits in a slice of the device, or one command.
//! Absent: sockets and clocks.

mod allowed;
mod authenticate;
mod awaiting_sync;
mod cids;
mod command;
mod completions;
mod connect;
mod execute;
mod incoming;
mod memory;
mod observed;
mod output;
mod parked;
mod port;
mod secure;
mod transfers;

pub use allowed::{Allowed, AllowedHost, Network, Who};
pub use output::Output;
pub(crate) use port::canonical;
pub use port::{Advertised, Port};

use super::quota::Seat;
use super::wire::{self, Agreement, Fault, Pdu};
use crate::auth::Exchange;
use crate::controller::telemetry::Batch;
use crate::controller::{
    Association, ConnectRefusal, DeviceTurn, IN_CAPSULE_BYTES, IoCommand, JoinedQueue,
    QUEUE_ENTRIES_MAX, Standing, Subsystem, TRANSFER_BYTES_MAX, Ticket, Transfer, Weight,
    admin_transfer, fabrics_kind,
};
use crate::spec::command::{Cqe, Sgl, Sqe};
use crate::spec::fabrics::kind as fabrics;
use crate::spec::pdu::{FatalError, Flags, Ic, kind, offset};
use crate::spec::status::Status;
use crate::tls::Proven;
use awaiting_sync::AwaitingSync;
use completions::DelayedCompletions;
use parked::ParkedCommands;
use std::net::SocketAddr;
use std::sync::Arc;
use transfers::Transfers;

/// Maximum data of one H2CData that we accept.
pub(crate) const H2C_BYTES_MAX: u32 = 128 << 10;
/// PSDT of fabrics commands: data by an SGL, metadata by an address (Fabrics 1.1 §2.1).
const PSDT_SGL: u8 = 1;
/// Bytes of delayed completions after which no more commands are executed.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Granularity of charges for output.
const OUTPUT_STEP: usize = 64 << 10;
/// Bytes of output after which no more commands are executed before it is sent.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Maximum size of an arriving PDU, which its buffer must hold whole.
pub const PDU_BYTES_MAX: usize = 1024
    + if IN_CAPSULE_BYTES > H2C_BYTES_MAX {
        IN_CAPSULE_BYTES
    } else {
        H2C_BYTES_MAX
    } as usize;

/// A queue connected by a host.
struct Queue {
    association: Arc<Association>,
    qid: u16,
    /// The association's handle of an I/O queue.
    joined: Option<JoinedQueue>,
    /// Checked whenever an operation of the queue starts or resumes.
    standing: Standing,
    entries: u16,
    head: u16,
    /// True if the host ignores the queue head.
    no_flow_control: bool,
    /// The connection's share of the memory.
    seat: Seat,
    exchange: Option<Exchange>,
}

/// Why a connection ends, for the log and for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The host violated the protocol; a termination request is in the output.
    Fatal(Fault),
    /// Its Connect was refused; see `Connection::refused`.
    Refused,
    /// The host disconnected, or requested termination of the connection.
    Closed,
    /// Its controller was reset: all I/O queues are gone.
    Reset,
    /// Its association has ended.
    Dead,
    /// It did not authenticate, or others have taken its queue; see
    /// `Connection::authentication_failure`.
    Unauthenticated(&'static str),
}

/// A refused Connect, with the host's own data.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The queue requested.
    pub qid: u16,
    /// The host name, with invalid UTF-8 replaced and otherwise unchecked.
    pub host: String,
    /// The subsystem requested.
    pub subsystem: String,
    /// The reason.
    pub refusal: ConnectRefusal,
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fatal(fault)
    }
}

/// Context of one call of `receive`.
struct ReceiveContext<'a> {
    now: u64,
    subsystem: &'a Subsystem,
    /// The turn taken by the first I/O command, until the end of the call or the next admin
    /// command.
    device: Option<DeviceTurn<'a>>,
    /// Reports to the observer, by command identifier.
    reports: Vec<(u16, Ticket)>,
    out: &'a mut Output,
}

/// One connection: a queue of a host, from its first byte on.
pub struct Connection {
    port: Arc<Port>,
    /// Its number, as in the log.
    number: u64,
    peer: SocketAddr,
    local: SocketAddr,
    agreed: Option<Agreement>,
    /// The proof of a TLS handshake, if there was one.
    proven: Option<Proven>,
    queue: Option<Queue>,
    transfers: Transfers,
    held: DelayedCompletions,
    refused: Option<Refused>,
    /// Why it was not authenticated.
    authentication_failure: Option<&'static str>,
    /// Returns true if its socket has ended before it was admitted.
    has_ended: Option<Box<dyn Fn() -> bool + Send>>,
    /// Commands checked, but waiting for memory.
    parked: ParkedCommands,
    /// Commands executed, but not durable and so not acknowledged.
    awaiting_sync: Vec<AwaitingSync>,
    /// Reports to the observer that are not completed, by command identifier.
    reports: Vec<(u16, Ticket)>,
    output_bytes: usize,
    /// Weight of the last turn.
    weight: Weight,
    /// Commands executed whose duration is not reported yet; unused with emulated latency.
    executed: Batch,
}

impl Connection {
    /// A newly accepted connection.
    pub fn new(port: Arc<Port>, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            port,
            number: 0,
            peer,
            local,
            agreed: None,
            proven: None,
            queue: None,
            transfers: Transfers::default(),
            held: DelayedCompletions::default(),
            refused: None,
            authentication_failure: None,
            has_ended: None,
            parked: ParkedCommands::default(),
            awaiting_sync: Vec::new(),
            reports: Vec::new(),
            output_bytes: 0,
            weight: Weight::default(),
            executed: Batch::default(),
        }
    }

    /// Sets its number, as in the log.
    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Sets a check, used while it waits to be authenticated, whether its socket has ended.
    pub(crate) fn ending_when(mut self, has_ended: impl Fn() -> bool + Send + 'static) -> Self {
        self.has_ended = Some(Box::new(has_ended));
        self
    }

    /// The refused Connect, if that ended the connection.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// The association and queue, once connected.
    pub fn connected(&self) -> Option<(&Association, u16)> {
        self.queue
            .as_ref()
            .map(|queue| (&*queue.association, queue.qid))
    }

    /// Its controller, once connected.
    pub fn association(&self) -> Option<&Arc<Association>> {
        self.queue.as_ref().map(|queue| &queue.association)
    }

    /// Commands executed whose duration is not reported yet; none with emulated latency.
    #[inline]
    pub(crate) fn executed(&self) -> &Batch {
        &self.executed
    }

    /// Time at which the next completion is due.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.held.next()
    }

    /// Returns true if no command is in progress. A command that waits for memory has not begun.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.len() == 0 && self.transfers.len() == 0 && self.awaiting_sync.is_empty()
    }

    /// Appends due completions and their data, unless the queue may not go on.
    pub fn due(&mut self, now: u64, out: &mut Output) {
        if self.must_go_on().is_err() {
            return;
        }
        while out.len() < OUT_BYTES_MAX
            && let Some(bytes) = self.held.take(now)
        {
            out.push(bytes);
        }
        self.end_reports();
    }

    /// Handles time-dependent work: keep-alive and events. Call it after processing everything that
    /// the host has sent, since that counts as heard.
    ///
    /// # Errors
    /// The association has ended, or has been reset.
    pub fn tick(&mut self, now: u64, out: &mut Output) -> Result<(), End> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };

        self.must_go_on()?;

        // Only the admin queue's thread knows that everything from its host was processed.
        // Keep-alive starts once the queue is authenticated: a host may calculate for a long time.
        let judges_silence = queue.qid == 0 && !self.must_authenticate();
        if judges_silence && queue.association.is_silent(now) {
            return Err(End::Dead);
        }

        // Events are answers on the admin queue; only it has requests for them.
        if queue.qid == 0
            && let Some((cid, result)) = queue.association.event()
        {
            self.respond(cid, Status::SUCCESS, result, out.open());
        }
        Ok(())
    }

    /// Checks that the queue, if there is one, may go on.
    ///
    /// # Errors
    /// Its controller was reset, or has ended: an operator has dropped the host, or its admin queue
    /// has ended.
    #[inline]
    pub(crate) fn must_go_on(&self) -> Result<(), End> {
        match &self.queue {
            Some(queue) if queue.standing.is_over() => Err(queue.end()),
            _ => Ok(()),
        }
    }

    /// Ends the connection. An admin queue also ends its controller: when this returns, none of its
    /// commands has an effect any more.
    pub fn end(&mut self) {
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.qid == 0) {
            queue.association.end();
        }
    }

    /// Handles the complete PDUs at the beginning of `input`; returns the number of bytes consumed.
    /// Stops early when there is much to send.
    ///
    /// # Errors
    /// The connection must end, after `out` has been sent.
    pub fn receive(&mut self, now: u64, input: &[u8], out: &mut Output) -> Result<usize, End> {
        let port = self.port.clone();
        let mut context = ReceiveContext {
            now,
            subsystem: &port.subsystem,
            device: None,
            reports: Vec::new(),
            out,
        };
        let mut at = 0;

        // Start of the current PDU.
        let mut start;
        let result = loop {
            start = at;
            // Three reasons to stop: enough to send, enough delayed, or no memory for more answers.
            if context.out.len() >= OUT_BYTES_MAX
                || self.held.bytes() >= HELD_BYTES_MAX
                || self.waits_for_memory(context.out)
            {
                break Ok(());
            }
            // The slice is used up: others get the device before the next command, and pending
            // output is sent.
            if context.device.as_ref().is_some_and(DeviceTurn::is_used_up) {
                break Ok(());
            }

            if !self.parked.is_empty() {
                match self.resume(&mut context) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(end) => break Err(end),
                }
            }

            let data_max = IN_CAPSULE_BYTES.max(H2C_BYTES_MAX) as usize;
            match wire::next_pdu(&input[at..], self.agreed.unwrap_or_default(), data_max) {
                Ok(None) => break Ok(()),
                Ok(Some((pdu, len))) => {
                    at += len;
                    if let Err(end) = self.pdu(&pdu, &mut context) {
                        break Err(end);
                    }
                }
                Err(fault) => break Err(End::Fatal(fault)),
            }
        };

        // Kept for the next call: long turns queue after short ones.
        if let Some(device) = &context.device {
            self.weight = device.weight();
        }

        // End the turn before sending anything: others need the device.
        let mut reports = std::mem::take(&mut context.reports);
        drop(context);
        self.reports.append(&mut reports);

        // Commands of a queue that is gone get no answers, whether they were executed or not
        // (`DeviceTurn::queue_must_stand`).
        if let Err(end) = self.must_go_on() {
            out.clear();
            return Err(end);
        }
        self.end_reports();

        if at > 0
            && let Some(queue) = &self.queue
        {
            queue.association.heard(now);
        }

        // The host gets the header in error back, so that its log can tell the cause.
        if let Err(End::Fatal(fault)) = result {
            wire::put_term(out.open(), kind::C2H_TERM, fault, &input[start..]);
        }
        result.map(|()| at)
    }

    fn pdu(&mut self, pdu: &Pdu<'_>, context: &mut ReceiveContext<'_>) -> Result<(), End> {
        match (pdu.common.kind, self.agreed) {
            (kind::IC_REQ, None) => self.initialize(pdu, context),
            (kind::CAPSULE_CMD, Some(_)) => self.command(pdu, context),
            (kind::H2C_DATA, Some(_)) => self.data(pdu, context),
            (kind::H2C_TERM, Some(_)) => Err(End::Closed),
            _ => Err(End::Fatal(FatalError::Sequence.into())),
        }
    }

    fn initialize(&mut self, pdu: &Pdu<'_>, context: &mut ReceiveContext<'_>) -> Result<(), End> {
        let ic: Ic = pdu.parse().ok_or(Fault::field(offset::HLEN))?;
        if ic.pfv != 0 {
            return Err(Fault::unsupported(offset::PFV).into());
        }
        if ic.pda > 31 {
            return Err(Fault::field(offset::HPDA).into());
        }
        let digest = ic.digest & 3;
        self.agreed = Some(Agreement::new(digest, ic.pda));
        // Hosts may place data as they like: we request no alignment.
        wire::put_ic(
            context.out.open(),
            kind::IC_RESP,
            &Ic::new(0, digest, H2C_BYTES_MAX),
        );
        Ok(())
    }

    /// The process was paused until now: no earlier wait counts against the host.
    pub(crate) fn begin_anew(&mut self, now: u64) {
        self.transfers.begin_anew(now);
        self.parked.begin_anew(now);
        if let Some(queue) = &self.queue {
            queue.association.heard(now);
        }
    }

    /// Time at which the oldest outstanding data were requested.
    pub(crate) fn waits_for_data_since(&self) -> Option<u64> {
        self.transfers.oldest_grant()
    }

    fn respond(&self, cid: u16, status: Status, result: u64, out: &mut Vec<u8>) {
        // Commands come after ICReq, so parameters are negotiated.
        let agreed = self.agreed.unwrap_or_default();
        let status = status.into_bits() << 1;

        let cqe = match &self.queue {
            // Without flow control the queue head is unused, which 0xffff indicates.
            Some(queue) => {
                let sqhd = if queue.no_flow_control {
                    0xffff
                } else {
                    queue.head
                };
                Cqe {
                    result,
                    sqhd,
                    sqid: queue.qid,
                    cid,
                    status,
                }
            }
            None => Cqe {
                result,
                cid,
                status,
                ..Cqe::default()
            },
        };

        wire::put(out, kind::CAPSULE_RESP, Flags::new(), &cqe, agreed);
    }
}

impl Queue {
    /// Why it may not go on.
    #[cold]
    fn end(&self) -> End {
        if self.association.is_closed() {
            End::Closed
        } else {
            End::Reset
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            // An admin queue ends its association; an I/O queue only releases its number.
            match &queue.joined {
                None => queue.association.close(),
                Some(joined) => queue.association.leave(joined),
            }
        }
    }
}
