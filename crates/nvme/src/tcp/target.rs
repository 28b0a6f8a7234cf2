//! One connection of the target: bytes in, bytes out.
//!
//! ```text
//! ICReq -> ICResp, Connect -> a queue of an association, then commands:
//! capsule -> checked -> data in the capsule, or R2T and H2CData -> executed -> C2HData and a response, when due
//! ```
//! Invariants: the first PDU is ICReq and the first command Connect; memory is bounded, whatever arrives: transfers are
//! granted up to `GRANTED_BYTES_MAX`, commands up to the queue's size, output up to `OUT_BYTES_MAX` before the caller
//! must send it. Absent: sockets and clocks.

use super::wire::{self, Agreement, Pdu};
use crate::controller::{
    AdminOutcome, Association, IN_CAPSULE_BYTES, InMemory, IoRequest, Job, Latency, Outcome, QUEUE_ENTRIES_MAX,
    Subsystem, Transfer, admin_transfer, fabrics_kind,
};
use crate::spec::command::{Cqe, Sgl, Sqe};
use crate::spec::fabrics::{ConnectCdw11, ConnectData, kind as fabrics};
use crate::spec::pdu::{Data, FatalError, Flags, Ic, kind};
use crate::spec::status::Status;
use remap_ssd_device::Device;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use zerocopy::FromBytes;

/// Data of one H2CData that we accept.
pub const H2C_BYTES_MAX: u32 = 128 << 10;
/// Data that hosts may be sending at once on one connection.
const GRANTED_BYTES_MAX: u64 = 8 << 20;
/// Completions that are not due yet, after which no more is executed.
const LATER_BYTES_MAX: usize = 16 << 20;
/// Output after which no more is executed before it is sent.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Largest PDU that can arrive: its buffer must hold it whole.
pub const PDU_BYTES_MAX: usize =
    1024 + if IN_CAPSULE_BYTES > H2C_BYTES_MAX { IN_CAPSULE_BYTES } else { H2C_BYTES_MAX } as usize;

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Anybody who can reach the address, which is then a loopback one.
    pub anybody: bool,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Host names (NQNs).
    pub names: Vec<String>,
}

impl Allowed {
    /// May this address even talk to us?
    pub fn address(&self, address: IpAddr) -> bool {
        self.anybody || !self.names.is_empty() || self.addresses.contains(&address)
    }
    fn host(&self, address: IpAddr, name: &str) -> bool {
        self.anybody || self.addresses.contains(&address) || self.names.iter().any(|known| known == name)
    }
}

/// What all connections know.
pub struct Port {
    subsystem: Arc<Subsystem>,
    allowed: Allowed,
    associations: Mutex<HashMap<u16, Weak<Association>>>,
}

impl Port {
    /// A port to a subsystem.
    pub fn new(subsystem: Arc<Subsystem>, allowed: Allowed) -> Self {
        Self { subsystem, allowed, associations: Mutex::default() }
    }
    /// The subsystem.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }
    /// Who may connect.
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }
    fn associations(&self) -> MutexGuard<'_, HashMap<u16, Weak<Association>>> {
        self.associations.lock().expect("nothing under this lock can fail")
    }
    fn find(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.associations().get(&cntlid)?.upgrade()
    }
    fn enter(&self, association: &Arc<Association>) {
        let mut all = self.associations();
        all.retain(|_, other| other.strong_count() > 0);
        all.insert(association.cntlid(), Arc::downgrade(association));
    }
}

/// A queue that a host has connected.
struct Queue {
    association: Arc<Association>,
    qid: u16,
    entries: u16,
    head: u16,
    /// The host does not look at the queue head.
    no_flow_control: bool,
}

/// A command whose data the host is to send.
struct Incoming {
    sqe: Sqe,
    want: Want,
    data: Vec<u8>,
    total: u32,
    granted: bool,
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

/// One connection.
pub struct Connection {
    port: Arc<Port>,
    peer: SocketAddr,
    local: SocketAddr,
    agreed: Option<Agreement>,
    queue: Option<Queue>,
    incoming: BTreeMap<u16, Incoming>,
    next_tag: u16,
    granted_bytes: u64,
    /// Transfers that wait to be granted.
    waiting: VecDeque<u16>,
    /// Completions that are not due yet: when, in which order, and their bytes.
    later: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    later_bytes: usize,
    order: u64,
    event_requests: usize,
    scratch: Vec<u8>,
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
            incoming: BTreeMap::new(),
            next_tag: 0,
            granted_bytes: 0,
            waiting: VecDeque::new(),
            later: BinaryHeap::new(),
            later_bytes: 0,
            order: 0,
            event_requests: 0,
            scratch: Vec::new(),
        }
    }

    /// The association and queue, once connected.
    pub fn connected(&self) -> Option<(&Association, u16)> {
        self.queue.as_ref().map(|queue| (&*queue.association, queue.qid))
    }

    /// When the next completion is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.later.peek().map(|Reverse((at, ..))| *at)
    }

    /// Is anything under way?
    pub fn is_idle(&self) -> bool {
        self.later.is_empty() && self.incoming.is_empty()
    }

    /// Appends what is due.
    pub fn due(&mut self, now: u64, out: &mut Vec<u8>) {
        while self.next_deadline().is_some_and(|at| at <= now) && out.len() < OUT_BYTES_MAX {
            let Some(Reverse((_, _, bytes))) = self.later.pop() else { return };
            self.later_bytes -= bytes.len();
            out.extend_from_slice(&bytes);
        }
    }

    /// Looks after what depends on time alone: keep-alive and events.
    ///
    /// # Errors
    /// The association is dead.
    pub fn tick(&mut self, now: u64, out: &mut Vec<u8>) -> Result<(), End> {
        let Some(queue) = &self.queue else { return Ok(()) };
        if queue.association.is_dead(now) {
            return Err(End::Closed);
        }
        if queue.qid == 0
            && let Some((cid, result)) = queue.association.event()
        {
            self.event_requests -= 1;
            self.respond(cid, Status::SUCCESS, result, out);
        }
        Ok(())
    }

    /// Handles the whole PDUs at the beginning of `input`; how many bytes that were. Stops early when there is much to
    /// send.
    ///
    /// # Errors
    /// The connection has to end, after `out` has been sent.
    pub fn receive(&mut self, now: u64, input: &[u8], out: &mut Vec<u8>) -> Result<usize, End> {
        let port = self.port.clone();
        let mut device = None;
        let mut at = 0;
        let result = loop {
            if out.len() >= OUT_BYTES_MAX || self.later_bytes >= LATER_BYTES_MAX {
                break Ok(());
            }
            let data_max = IN_CAPSULE_BYTES.max(H2C_BYTES_MAX) as usize;
            match wire::cut(&input[at..], self.agreed.unwrap_or_default(), data_max) {
                Ok(None) => break Ok(()),
                Ok(Some((pdu, len))) => {
                    at += len;
                    if let Err(end) = self.pdu(now, &pdu, &port.subsystem, &mut device, out) {
                        break Err(end);
                    }
                }
                Err(error) => break Err(End::Fatal(error)),
            }
        };
        drop(device);
        if at > 0
            && let Some(queue) = &self.queue
        {
            queue.association.heard(now);
        }
        if let Err(End::Fatal(error)) = result {
            wire::put_term(out, kind::C2H_TERM, error);
        }
        result.map(|()| at)
    }

    fn pdu<'a>(
        &mut self,
        now: u64,
        pdu: &Pdu<'_>,
        subsystem: &'a Subsystem,
        device: &mut Option<MutexGuard<'a, Device>>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        match (pdu.common.kind, self.agreed) {
            (kind::IC_REQ, None) => self.initialize(pdu, out),
            (kind::CAPSULE_CMD, Some(_)) => self.command(now, pdu, subsystem, device, out),
            (kind::H2C_DATA, Some(_)) => self.data(now, pdu, subsystem, device, out),
            (kind::H2C_TERM, Some(_)) => Err(End::Closed),
            _ => Err(End::Fatal(FatalError::Sequence)),
        }
    }

    fn initialize(&mut self, pdu: &Pdu<'_>, out: &mut Vec<u8>) -> Result<(), End> {
        let ic: Ic = pdu.parse().ok_or(End::Fatal(FatalError::HeaderField))?;
        if ic.pfv != 0 || ic.pda > 31 {
            return Err(End::Fatal(FatalError::Unsupported));
        }
        let digest = ic.digest & 3;
        self.agreed = Some(Agreement::new(digest, ic.pda));
        // Hosts may put data where they like: no alignment is asked for.
        wire::put_ic(out, kind::IC_RESP, &Ic::new(0, digest, H2C_BYTES_MAX));
        Ok(())
    }

    fn command<'a>(
        &mut self,
        now: u64,
        pdu: &Pdu<'_>,
        subsystem: &'a Subsystem,
        device: &mut Option<MutexGuard<'a, Device>>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        let sqe: Sqe = pdu.parse().ok_or(End::Fatal(FatalError::HeaderField))?;
        let under_way = self.incoming.len() + self.later.len() + self.event_requests;
        if under_way >= usize::from(self.queue.as_ref().map_or(QUEUE_ENTRIES_MAX, |queue| queue.entries)) {
            return Err(End::Fatal(FatalError::LimitExceeded));
        }
        let cid = sqe.head().cid();
        if self.queue.is_none() && fabrics_kind(&sqe) != Some(fabrics::CONNECT) {
            self.respond(cid, Status::SEQUENCE, 0, out);
            return Err(End::Closed);
        }
        if let Some(queue) = &mut self.queue {
            queue.head = (queue.head + 1) % queue.entries;
        }
        let (want, transfer) = match self.check(&sqe) {
            Ok(checked) => checked,
            Err(status) => {
                self.refused(&sqe, status);
                self.respond(cid, status, 0, out);
                return Ok(());
            }
        };
        let Sgl { identifier, address, length, .. } = sqe.sgl;
        let status = match (transfer, identifier) {
            (Transfer::None, _) => None,
            (Transfer::ToHost(bytes), Sgl::TRANSPORT) => (length < bytes).then_some(Status::SGL_LENGTH),
            (Transfer::FromHost(bytes), Sgl::TRANSPORT | Sgl::IN_CAPSULE) if length != bytes => {
                Some(Status::SGL_LENGTH)
            }
            (Transfer::FromHost(bytes), Sgl::TRANSPORT) => {
                self.ask_for(sqe, want, bytes, out);
                return Ok(());
            }
            (Transfer::FromHost(_), Sgl::IN_CAPSULE) if address != 0 || pdu.data.len() != length as usize => {
                Some(Status::DATA_TRANSFER)
            }
            (Transfer::FromHost(_), Sgl::IN_CAPSULE) => None,
            _ => Some(Status::SGL_TYPE),
        };
        match status {
            Some(status) => {
                self.refused(&sqe, status);
                self.respond(cid, status, 0, out);
                Ok(())
            }
            None => self.execute(now, &sqe, want, pdu.data, subsystem, device, out),
        }
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

    fn refused(&self, sqe: &Sqe, status: Status) {
        if let Some(queue) = &self.queue {
            queue.association.log_error(queue.qid, sqe, status);
        }
    }

    fn ask_for(&mut self, sqe: Sqe, want: Want, total: u32, out: &mut Vec<u8>) {
        while self.incoming.contains_key(&self.next_tag) {
            self.next_tag = self.next_tag.wrapping_add(1);
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        self.incoming.insert(tag, Incoming { sqe, want, data: Vec::new(), total, granted: false });
        self.waiting.push_back(tag);
        self.grant(out);
    }

    /// Asks for the data of waiting commands, as far as memory goes.
    fn grant(&mut self, out: &mut Vec<u8>) {
        let agreed = self.agreed.unwrap_or_default();
        while let Some(tag) = self.waiting.front().copied()
            && let Some(incoming) = self.incoming.get_mut(&tag)
            && (self.granted_bytes == 0 || self.granted_bytes + u64::from(incoming.total) <= GRANTED_BYTES_MAX)
        {
            self.waiting.pop_front();
            self.granted_bytes += u64::from(incoming.total);
            incoming.granted = true;
            let data = Data::new(incoming.sqe.head().cid(), tag, 0, incoming.total);
            wire::put(out, kind::R2T, Flags::new(), &data, agreed);
        }
    }

    fn data<'a>(
        &mut self,
        now: u64,
        pdu: &Pdu<'_>,
        subsystem: &'a Subsystem,
        device: &mut Option<MutexGuard<'a, Device>>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        let header = wire::data_header(pdu).map_err(End::Fatal)?;
        let incoming = self.incoming.get_mut(&header.ttag).filter(|incoming| incoming.granted);
        let incoming = incoming.ok_or(End::Fatal(FatalError::HeaderField))?;
        let fits = header.cid == incoming.sqe.head().cid()
            && header.offset as usize == incoming.data.len()
            && header.length as usize == pdu.data.len()
            && !pdu.data.is_empty();
        if !fits || header.offset + header.length > incoming.total {
            return Err(End::Fatal(FatalError::OutOfRange));
        }
        if incoming.data.is_empty() {
            incoming.data.reserve_exact(incoming.total as usize);
        }
        incoming.data.extend_from_slice(pdu.data);
        let complete = incoming.data.len() == incoming.total as usize;
        if complete != pdu.common.flags.last() {
            return Err(End::Fatal(FatalError::HeaderField));
        }
        if !complete {
            return Ok(());
        }
        let Some(incoming) = self.incoming.remove(&header.ttag) else { return Ok(()) };
        self.granted_bytes -= u64::from(incoming.total);
        self.execute(now, &incoming.sqe, incoming.want, &incoming.data, subsystem, device, out)?;
        self.grant(out);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one command's way through, each of another kind")]
    fn execute<'a>(
        &mut self,
        now: u64,
        sqe: &Sqe,
        want: Want,
        data: &[u8],
        subsystem: &'a Subsystem,
        device: &mut Option<MutexGuard<'a, Device>>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        let Want::Io(request) = want else {
            // Admin commands lock the device themselves.
            *device = None;
            return self.admin(now, sqe, data, out);
        };
        let Some(queue) = &self.queue else { return Err(End::Closed) };
        let namespace = subsystem.namespace(sqe.nsid);
        let transfer = namespace.map_or(Transfer::None, |namespace| request.transfer(namespace.lba_shift));
        let cache_enabled = queue.association.cache_enabled();
        let job = Job { nsid: sqe.nsid, request: &request, now, cache_enabled };
        let device = device.get_or_insert_with(|| subsystem.device());
        let later = subsystem.latency() == Latency::Emulated;
        let mut held = std::mem::take(&mut self.scratch);
        held.clear();
        let to = if later { &mut held } else { &mut *out };
        let start = to.len();
        let outcome = match transfer {
            Transfer::ToHost(bytes) => {
                let (agreed, cid) = (self.agreed.unwrap_or_default(), sqe.head().cid());
                let flags = Flags::new().with_last(true).with_success(queue.no_flow_control);
                let header = Data::new(cid, 0, 0, bytes);
                wire::put_data(to, kind::C2H_DATA, flags, &header, agreed, bytes as usize, |to| {
                    let start = to.len();
                    let outcome = subsystem.execute(device, &job, &mut InMemory { from_host: &[], to_host: to });
                    if !outcome.status.is_success() {
                        to.truncate(start);
                    }
                    outcome
                })
            }
            _ => subsystem.execute(device, &job, &mut InMemory { from_host: data, to_host: &mut Vec::new() }),
        };
        let Outcome { status, result, done_at } = outcome;
        let sent = matches!(transfer, Transfer::ToHost(_)) && status.is_success();
        if !sent {
            to.truncate(start);
        }
        if !(sent && queue.no_flow_control) {
            put_response(to, queue, sqe.head().cid(), status, result, self.agreed.unwrap_or_default());
        }
        if !status.is_success() {
            queue.association.log_error(queue.qid, sqe, status);
        }
        if later {
            self.order += 1;
            self.later_bytes += held.len();
            self.later.push(Reverse((done_at, self.order, held)));
        } else {
            self.scratch = held;
        }
        Ok(())
    }

    fn admin(&mut self, now: u64, sqe: &Sqe, data: &[u8], out: &mut Vec<u8>) -> Result<(), End> {
        let cid = sqe.head().cid();
        if fabrics_kind(sqe) == Some(fabrics::CONNECT) {
            return self.connect(now, sqe, data, out);
        }
        let Some(queue) = &self.queue else { return Err(End::Closed) };
        let mut page = Vec::new();
        match queue.association.admin(sqe, data, &mut page) {
            AdminOutcome::Waits => self.event_requests += 1,
            AdminOutcome::Done(status, result) => {
                if status.is_success() && !page.is_empty() {
                    let agreed = self.agreed.unwrap_or_default();
                    let header = Data::new(cid, 0, 0, page.len() as u32);
                    let flags = Flags::new().with_last(true);
                    wire::put_data(out, kind::C2H_DATA, flags, &header, agreed, page.len(), |out| {
                        out.extend_from_slice(&page);
                    });
                }
                self.respond(cid, status, result, out);
            }
        }
        Ok(())
    }

    fn connect(&mut self, now: u64, sqe: &Sqe, data: &[u8], out: &mut Vec<u8>) -> Result<(), End> {
        let cid = sqe.head().cid();
        match self.connected_queue(now, sqe, data) {
            Ok(queue) => {
                let cntlid = queue.association.cntlid();
                self.queue = Some(queue);
                self.respond(cid, Status::SUCCESS, cntlid.into(), out);
                Ok(())
            }
            Err(status) => {
                self.respond(cid, status, 0, out);
                Err(End::Closed)
            }
        }
    }

    fn connected_queue(&self, now: u64, sqe: &Sqe, data: &[u8]) -> Result<Queue, Status> {
        if self.queue.is_some() {
            return Err(Status::SEQUENCE);
        }
        let data = ConnectData::read_from_bytes(data).map_err(|_| Status::CONNECT_INVALID)?;
        let no_flow_control = ConnectCdw11::from_bits(sqe.cdw11).cattr() & 4 != 0;
        let admin = (sqe.cdw10 >> 16) == 0;
        let allowed = |association: &Association| {
            let allowed = self.port.allowed.host(self.peer.ip(), association.hostnqn());
            if allowed { Ok(()) } else { Err(Status::CONNECT_HOST) }
        };
        let (association, qid, entries) = if admin {
            let (association, entries) = Association::connect(&self.port.subsystem, sqe, &data, self.local, now)?;
            allowed(&association)?;
            self.port.enter(&association);
            (association, 0, entries)
        } else {
            let association = self.port.find(data.cntlid).ok_or(Status::CONNECT_INVALID)?;
            allowed(&association)?;
            let (qid, entries) = association.join(sqe, &data)?;
            (association, qid, entries)
        };
        // Connect itself was the first entry.
        Ok(Queue { association, qid, entries, head: 1 % entries, no_flow_control })
    }

    fn respond(&self, cid: u16, status: Status, result: u64, out: &mut Vec<u8>) {
        let agreed = self.agreed.unwrap_or_default();
        match &self.queue {
            Some(queue) => put_response(out, queue, cid, status, result, agreed),
            None => {
                let cqe = Cqe { result, cid, status: status.into_bits() << 1, ..Cqe::default() };
                wire::put(out, kind::CAPSULE_RESP, Flags::new(), &cqe, agreed);
            }
        }
    }
}

fn put_response(out: &mut Vec<u8>, queue: &Queue, cid: u16, status: Status, result: u64, agreed: Agreement) {
    let sqhd = if queue.no_flow_control { 0xffff } else { queue.head };
    let cqe = Cqe { result, sqhd, sqid: queue.qid, cid, status: status.into_bits() << 1 };
    wire::put(out, kind::CAPSULE_RESP, Flags::new(), &cqe, agreed);
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
