//! The other end of the connection: a host with one admin queue and one I/O queue.
//!
//! Invariants: a command is sent again only if its connection broke before it was answered, and all of ours may be: a
//! write, a copy or a trim done twice is as if done once. A relocation is not, and is reported instead.
//! Absent: caching.

use super::wire::{self, Agreement};
use crate::controller::statistics;
use crate::spec::command::{CopyCdw12, CopyRange, Cqe, DsmCdw10, DsmCdw11, DsmRange, RemapCdw12, RwCdw12, Sgl, Sqe};
use crate::spec::fabrics::{Cc, ConnectData, kind as fabrics, property};
use crate::spec::identify::{Controller, Namespace, cns};
use crate::spec::log::{Smart, lid};
use crate::spec::opcode::{admin, io as opcode};
use crate::spec::pdu::{Data, Flags, Ic, kind};
use crate::spec::status::Status;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection broke, or could not be made.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The device refused.
    #[error("{what}: status {:#05x} ({})", status.number(), describe(*status))]
    Status {
        /// Which command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// What came back is not what the protocol says.
    #[error("the target broke the protocol: {0}")]
    Protocol(&'static str),
}

fn describe(status: Status) -> &'static str {
    match status {
        Status::LBA_RANGE => "LBA out of range",
        Status::INVALID_FIELD => "invalid field in command",
        Status::INVALID_NAMESPACE => "invalid namespace",
        Status::WRITE_PROTECTED => "the device is read-only",
        Status::UNRECOVERED_READ => "unrecovered read error",
        Status::WRITE_FAULT => "write fault",
        Status::COMPARE_FAILURE => "compare failure",
        Status::NOT_ATOMIC => "the command cannot be atomic",
        Status::CONNECT_HOST => "this host is not allowed",
        Status::CONNECT_INVALID => "no such subsystem",
        Status::SIZE_LIMIT => "copy size limit exceeded",
        _ => "see the NVMe specification",
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// The subsystem; found by discovery if not given.
    pub subnqn: Option<String>,
    /// Our name.
    pub hostnqn: String,
    /// Digests of headers and data.
    pub digests: bool,
    /// Entries of the I/O queue.
    pub entries: u16,
    /// The namespace.
    pub nsid: u32,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            subnqn: None,
            hostnqn: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-72656d617073".into(),
            digests: false,
            entries: 128,
            nsid: 1,
            timeout: Duration::from_secs(30),
        }
    }
}

/// One queue's connection.
pub struct Queue {
    stream: TcpStream,
    agreed: Agreement,
    h2c_max: usize,
    in_capsule: usize,
    next_cid: u16,
    out: Vec<u8>,
    input: Vec<u8>,
    used: usize,
}

/// A command and its data.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The entry; identifier and SGL are filled in.
    pub sqe: Sqe,
    /// Data for the controller.
    pub send: &'a [u8],
    /// Bytes expected from it.
    pub receive: usize,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: Status,
    /// Dwords 0 and 1.
    pub result: u64,
    /// Data.
    pub data: Vec<u8>,
}

fn broken(what: &'static str) -> ClientError {
    ClientError::Protocol(what)
}

impl Queue {
    /// Connects a socket and agrees on the protocol.
    ///
    /// # Errors
    /// Nobody listens there, or not an NVMe/TCP target.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&address, options.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.timeout))?;
        stream.set_write_timeout(Some(options.timeout))?;
        let mut queue = Self {
            stream,
            agreed: Agreement::default(),
            h2c_max: 0,
            in_capsule: 1024,
            next_cid: 0,
            out: Vec::new(),
            input: Vec::new(),
            used: 0,
        };
        let digest = if options.digests { 3 } else { 0 };
        wire::put_ic(&mut queue.out, kind::IC_REQ, &Ic::new(0, digest, 0));
        queue.send()?;
        let (ic, digest) = queue.next(|pdu| {
            let ic = pdu.parse::<Ic>().filter(|_| pdu.common.kind == kind::IC_RESP);
            let ic = ic.ok_or(broken("no ICResp"))?;
            Ok((ic, ic.digest))
        })?;
        if ic.pda > 31 || ic.max < 4096 {
            return Err(broken("limits of ICResp"));
        }
        (queue.agreed, queue.h2c_max) = (Agreement::new(digest, ic.pda), ic.max as usize);
        Ok(queue)
    }

    fn send(&mut self) -> Result<(), ClientError> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Waits for a PDU and has it read.
    fn next<R>(&mut self, read: impl FnOnce(&wire::Pdu<'_>) -> Result<R, ClientError>) -> Result<R, ClientError> {
        loop {
            let cut = wire::cut(&self.input[self.used..], self.agreed, 2 << 20);
            if let Some((pdu, len)) = cut.map_err(|_| broken("a PDU that cannot be"))? {
                if pdu.common.kind == kind::C2H_TERM {
                    return Err(broken("it terminated the connection"));
                }
                let result = read(&pdu);
                self.used += len;
                if self.used == self.input.len() {
                    self.input.clear();
                    self.used = 0;
                }
                return result;
            }
            self.input.drain(..self.used);
            self.used = 0;
            let have = self.input.len();
            self.input.resize(have + (256 << 10), 0);
            let read = self.stream.read(&mut self.input[have..]);
            self.input.truncate(have + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Sends commands, all of them under way at once, and waits for all answers. They are in the order of the calls.
    ///
    /// # Errors
    /// The connection broke; some may have been executed.
    pub fn calls(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, ClientError> {
        let first = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(calls.len() as u16);
        for (index, call) in calls.iter().enumerate() {
            self.put_call(first.wrapping_add(index as u16), call);
        }
        self.send()?;
        let blank = Answer { status: Status::SUCCESS, result: 0, data: Vec::new() };
        let mut answers = vec![blank; calls.len()];
        let mut open = calls.len();
        while open > 0 {
            let mut asked = None;
            self.next(|pdu| match pdu.common.kind {
                kind::CAPSULE_RESP => {
                    let cqe: Cqe = pdu.parse().ok_or(broken("a response"))?;
                    let answer = answers.get_mut(usize::from(cqe.cid.wrapping_sub(first)));
                    let answer = answer.ok_or(broken("a response to nothing"))?;
                    (answer.status, answer.result) = (cqe.status(), cqe.result);
                    open -= 1;
                    Ok(())
                }
                kind::C2H_DATA => {
                    let data = pdu.parse::<Data>().ok_or(broken("data"))?;
                    let index = usize::from(data.cid.wrapping_sub(first));
                    let (answer, call) = (answers.get_mut(index), calls.get(index));
                    let (answer, call) = answer.zip(call).ok_or(broken("data for nothing"))?;
                    if data.offset as usize != answer.data.len() || answer.data.len() + pdu.data.len() > call.receive {
                        return Err(broken("data in another place"));
                    }
                    answer.data.extend_from_slice(pdu.data);
                    open -= usize::from(pdu.common.flags.success());
                    Ok(())
                }
                kind::R2T => {
                    asked = Some(pdu.parse::<Data>().ok_or(broken("R2T"))?);
                    Ok(())
                }
                _ => Err(broken("a PDU out of place")),
            })?;
            if let Some(data) = asked {
                let call = calls.get(usize::from(data.cid.wrapping_sub(first))).ok_or(broken("R2T for nothing"))?;
                self.put_data(&data, call)?;
                self.send()?;
            }
        }
        Ok(answers)
    }

    /// Sends a command and leaves its answer unread: for those who want to see what becomes of that.
    ///
    /// # Errors
    /// The connection.
    pub fn send_only(&mut self, call: &Call<'_>) -> Result<(), ClientError> {
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        self.put_call(cid, call);
        self.send()
    }

    fn put_call(&mut self, cid: u16, call: &Call<'_>) {
        let mut sqe = call.sqe;
        sqe.cdw0 = sqe.head().with_cid(cid).with_psdt(1).into_bits();
        let capsule = !call.send.is_empty() && call.send.len() <= self.in_capsule;
        let length = call.send.len().max(call.receive) as u32;
        sqe.sgl = Sgl::new(if capsule { Sgl::IN_CAPSULE } else { Sgl::TRANSPORT }, 0, length);
        if capsule {
            let fill = |out: &mut Vec<u8>| out.extend_from_slice(call.send);
            wire::put_data(&mut self.out, kind::CAPSULE_CMD, Flags::new(), &sqe, self.agreed, call.send.len(), fill);
        } else {
            wire::put(&mut self.out, kind::CAPSULE_CMD, Flags::new(), &sqe, self.agreed);
        }
    }

    fn put_data(&mut self, asked: &Data, call: &Call<'_>) -> Result<(), ClientError> {
        let (start, end) = (asked.offset as usize, asked.offset as usize + asked.length as usize);
        let wanted = call.send.get(start..end).ok_or(broken("R2T beyond the data"))?;
        let mut offset = asked.offset;
        let pieces = wanted.chunks(self.h2c_max);
        let count = pieces.len();
        for (index, piece) in pieces.enumerate() {
            let header = Data::new(asked.cid, asked.ttag, offset, piece.len() as u32);
            let flags = Flags::new().with_last(index + 1 == count);
            let fill = |out: &mut Vec<u8>| out.extend_from_slice(piece);
            wire::put_data(&mut self.out, kind::H2C_DATA, flags, &header, self.agreed, piece.len(), fill);
            offset += piece.len() as u32;
        }
        Ok(())
    }

    /// One command; its data and dword 0.
    ///
    /// # Errors
    /// The connection broke, or the status says why not.
    pub fn call(&mut self, what: &'static str, call: &Call<'_>) -> Result<Answer, ClientError> {
        let answer = self.calls(std::slice::from_ref(call))?.pop().ok_or(broken("no answer"))?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            status => Err(ClientError::Status { what, status }),
        }
    }

    /// Breaks the connection, as a network would.
    ///
    /// # Errors
    /// The system's reason.
    pub fn abandon(&mut self) -> Result<(), ClientError> {
        Ok(self.stream.shutdown(std::net::Shutdown::Both)?)
    }

    /// Connect (fabrics).
    fn connect(
        &mut self,
        qid: u16,
        entries: u16,
        cntlid: u16,
        options: &Options,
        subnqn: &str,
    ) -> Result<u16, ClientError> {
        let data = ConnectData::new([0x72; 16], cntlid, subnqn, &options.hostnqn);
        let mut sqe = entry(admin::FABRICS, u32::from(fabrics::CONNECT));
        sqe.cdw10 = u32::from(qid) << 16;
        // Bit 18: no flow control of the submission queue.
        sqe.cdw11 = u32::from(entries - 1) | 1 << 18;
        sqe.cdw12 = if qid == 0 { 60_000 } else { 0 };
        let answer = self.call("connect", &Call { sqe, send: data.as_bytes(), receive: 0 })?;
        Ok(answer.result as u16)
    }

    fn enable(&mut self) -> Result<(), ClientError> {
        let mut sqe = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
        sqe.cdw11 = property::CC;
        sqe.cdw12 = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4).into_bits();
        self.call("enable", &Call { sqe, send: &[], receive: 0 }).map(drop)
    }

    fn identify(&mut self, wanted: u8, nsid: u32) -> Result<Vec<u8>, ClientError> {
        let sqe = Sqe { cdw10: wanted.into(), ..entry(admin::IDENTIFY, nsid) };
        Ok(self.call("identify", &Call { sqe, send: &[], receive: 4096 })?.data)
    }

    fn log(&mut self, lid: u8, bytes: usize) -> Result<Vec<u8>, ClientError> {
        let dwords_z = bytes as u32 / 4 - 1;
        let mut sqe = entry(admin::GET_LOG_PAGE, u32::MAX);
        (sqe.cdw10, sqe.cdw11) = (u32::from(lid) | dwords_z << 16, dwords_z >> 16);
        Ok(self.call("get log page", &Call { sqe, send: &[], receive: bytes })?.data)
    }
}

/// An entry of an opcode and a namespace (or, for fabrics commands, their type).
pub fn entry(opcode: u8, nsid: u32) -> Sqe {
    Sqe { cdw0: opcode.into(), nsid, ..Sqe::default() }
}

/// A connected host.
pub struct Client {
    address: SocketAddr,
    options: Options,
    subnqn: String,
    queues: Option<(Queue, Queue)>,
    controller: Controller,
    namespace: Namespace,
}

impl Client {
    /// Connects to the subsystem at an address.
    ///
    /// # Errors
    /// Nobody listens there, it is no such target, or it does not want us.
    pub fn connect(address: impl ToSocketAddrs, options: Options) -> Result<Self, ClientError> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let subnqn = match &options.subnqn {
            Some(subnqn) => subnqn.clone(),
            None => discover(address, &options)?,
        };
        let (queues, controller, namespace) = connect(address, &options, &subnqn)?;
        Ok(Self { address, options, subnqn, queues: Some(queues), controller, namespace })
    }

    /// The subsystem's name.
    pub fn subnqn(&self) -> &str {
        &self.subnqn
    }
    /// Identify Controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }
    /// Identify Namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
    /// log2 of the block size.
    pub fn lba_shift(&self) -> u8 {
        self.namespace.lbaf[usize::from(self.namespace.flbas & 15)].lbads
    }

    /// Runs with the queues, once more on a new connection if the old one broke and `again`.
    fn with<R>(
        &mut self,
        again: bool,
        mut work: impl FnMut(&mut Queue, &mut Queue) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        for attempt in 0..2 {
            let (admin, io) = match &mut self.queues {
                Some(queues) => queues,
                None => {
                    let (queues, controller, namespace) = connect(self.address, &self.options, &self.subnqn)?;
                    (self.controller, self.namespace) = (controller, namespace);
                    self.queues.insert(queues)
                }
            };
            match work(admin, io) {
                Err(ClientError::Io(_)) if again && attempt == 0 => self.queues = None,
                Err(error @ (ClientError::Io(_) | ClientError::Protocol(_))) => {
                    self.queues = None;
                    return Err(error);
                }
                result => return result,
            }
        }
        Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())
    }

    fn io(&mut self, what: &'static str, again: bool, call: &Call<'_>) -> Result<Answer, ClientError> {
        self.with(again, |_, io| io.call(what, call))
    }

    fn rw(&self, opcode: u8, slba: u64, nlb_z: u16) -> Sqe {
        let mut sqe = entry(opcode, self.options.nsid);
        (sqe.cdw10, sqe.cdw11) = (slba as u32, (slba >> 32) as u32);
        sqe.cdw12 = RwCdw12::new().with_nlb_z(nlb_z).into_bits();
        sqe
    }

    /// Bytes that one command moves at most.
    pub fn transfer_bytes_max(&self) -> usize {
        match self.controller.mdts {
            0 => 1 << 20,
            mdts => (4096usize << mdts.min(16)).min(1 << 20),
        }
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The connection or the device.
    pub fn read(&mut self, slba: u64, blocks: u64) -> Result<Vec<u8>, ClientError> {
        let step = (self.transfer_bytes_max() >> self.lba_shift()) as u64;
        let mut data = Vec::new();
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(step);
            let sqe = self.rw(opcode::READ, slba + done, (count - 1) as u16);
            let receive = (count as usize) << self.lba_shift();
            let answer = self.io("read", true, &Call { sqe, send: &[], receive })?;
            if answer.data.len() != receive {
                return Err(broken("less data than asked for"));
            }
            data.extend_from_slice(&answer.data);
            done += count;
        }
        Ok(data)
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// The connection or the device.
    pub fn write(&mut self, slba: u64, data: &[u8]) -> Result<(), ClientError> {
        let mut slba = slba;
        for piece in data.chunks(self.transfer_bytes_max()) {
            let count = piece.len() >> self.lba_shift();
            let sqe = self.rw(opcode::WRITE, slba, (count - 1) as u16);
            self.io("write", true, &Call { sqe, send: piece, receive: 0 })?;
            slba += count as u64;
        }
        Ok(())
    }

    /// Copies blocks by the standard Copy command.
    ///
    /// # Errors
    /// The connection or the device.
    pub fn copy(&mut self, from: u64, to: u64, blocks: u64) -> Result<(), ClientError> {
        let longest = u64::from(self.namespace.mssrl.max(1));
        let per_command = u64::from(self.namespace.msrc_z) + 1;
        let mut done = 0;
        while done < blocks {
            let mut ranges = Vec::new();
            let mut taken = 0;
            while done + taken < blocks && (ranges.len() as u64) < per_command && taken < u64::from(self.namespace.mcl)
            {
                let count = (blocks - done - taken).min(longest).min(u64::from(self.namespace.mcl) - taken);
                ranges.push(CopyRange::new(from + done + taken, (count - 1) as u16));
                taken += count;
            }
            let mut sqe = self.rw(opcode::COPY, to + done, 0);
            sqe.cdw12 = CopyCdw12::new().with_nr_z((ranges.len() - 1) as u8).into_bits();
            self.io("copy", true, &Call { sqe, send: ranges.as_bytes(), receive: 0 })?;
            done += taken;
        }
        Ok(())
    }

    /// Remaps blocks by our vendor command, to copy or to relocate.
    ///
    /// # Errors
    /// The connection or the device. A relocation whose connection broke may have been done.
    pub fn remap(&mut self, from: u64, to: u64, blocks: u32, relocate: bool, atomic: bool) -> Result<(), ClientError> {
        let mut sqe = self.rw(opcode::REMAP, to, 0);
        sqe.cdw12 = RemapCdw12::new().with_nlb_z(blocks - 1).with_relocate(relocate).with_atomic(atomic).into_bits();
        (sqe.cdw14, sqe.cdw15) = (from as u32, (from >> 32) as u32);
        self.io("remap", !relocate, &Call { sqe, send: &[], receive: 0 }).map(drop)
    }

    /// Deallocates blocks.
    ///
    /// # Errors
    /// The connection or the device.
    pub fn trim(&mut self, slba: u64, blocks: u64) -> Result<(), ClientError> {
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(u64::from(u32::MAX));
            let range = DsmRange { attributes: 0, blocks: count as u32, slba: slba + done };
            let mut sqe = entry(opcode::DATASET_MANAGEMENT, self.options.nsid);
            sqe.cdw10 = DsmCdw10::new().with_nr_z(0).into_bits();
            sqe.cdw11 = DsmCdw11::new().with_ad(true).into_bits();
            self.io("trim", true, &Call { sqe, send: range.as_bytes(), receive: 0 })?;
            done += count;
        }
        Ok(())
    }

    /// Makes everything acknowledged durable.
    ///
    /// # Errors
    /// The connection or the device.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let sqe = entry(opcode::FLUSH, self.options.nsid);
        self.io("flush", true, &Call { sqe, send: &[], receive: 0 }).map(drop)
    }

    /// Statistics of the translation layer.
    ///
    /// # Errors
    /// The connection, or a device that has none.
    pub fn statistics(&mut self) -> Result<Vec<(&'static str, u64)>, ClientError> {
        let page = self.with(true, |admin, _| admin.log(lid::STATISTICS, statistics::PAGE_BYTES))?;
        statistics::parse(&page).ok_or(broken("statistics"))
    }

    /// SMART.
    ///
    /// # Errors
    /// The connection.
    pub fn smart(&mut self) -> Result<Smart, ClientError> {
        let page = self.with(true, |admin, _| admin.log(lid::SMART, size_of::<Smart>()))?;
        Smart::read_from_bytes(&page).map_err(|_| broken("SMART"))
    }

    /// Keeps the association alive while nothing else is to be done.
    ///
    /// # Errors
    /// The connection.
    pub fn keep_alive(&mut self) -> Result<(), ClientError> {
        let call = Call { sqe: entry(admin::KEEP_ALIVE, 0), send: &[], receive: 0 };
        self.with(true, |admin, _| admin.call("keep alive", &call).map(drop))
    }

    /// The admin queue, for commands that are made by hand.
    ///
    /// # Errors
    /// The connection.
    pub fn admin<R>(&mut self, mut work: impl FnMut(&mut Queue) -> Result<R, ClientError>) -> Result<R, ClientError> {
        self.with(false, |admin, _| work(admin))
    }

    /// The I/O queue, for commands that are made by hand.
    ///
    /// # Errors
    /// The connection.
    pub fn queue<R>(&mut self, mut work: impl FnMut(&mut Queue) -> Result<R, ClientError>) -> Result<R, ClientError> {
        self.with(false, |_, io| work(io))
    }
}

/// The first subsystem that the discovery service at an address names.
fn discover(address: SocketAddr, options: &Options) -> Result<String, ClientError> {
    let mut queue = Queue::open(address, options)?;
    queue.connect(0, 32, 0xffff, options, crate::spec::fabrics::DISCOVERY_NQN)?;
    queue.enable()?;
    let page = queue.log(lid::DISCOVERY, 2048)?;
    let entry = crate::spec::fabrics::DiscoveryEntry::read_from_bytes(page.get(1024..2048).unwrap_or_default());
    let entry = entry.map_err(|_| broken("a discovery log"))?;
    let len = entry.subnqn.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8(entry.subnqn[..len].to_vec()).map_err(|_| broken("a name in the discovery log"))
}

type Connected = ((Queue, Queue), Controller, Namespace);

fn connect(address: SocketAddr, options: &Options, subnqn: &str) -> Result<Connected, ClientError> {
    let mut admin = Queue::open(address, options)?;
    let cntlid = admin.connect(0, 32, 0xffff, options, subnqn)?;
    admin.enable()?;
    let controller = admin.identify(cns::CONTROLLER, 0)?;
    let controller = Controller::read_from_bytes(&controller).map_err(|_| broken("a controller"))?;
    let namespace = admin.identify(cns::NAMESPACE, options.nsid)?;
    let namespace = Namespace::read_from_bytes(&namespace).map_err(|_| broken("a namespace"))?;
    let mut io = Queue::open(address, options)?;
    io.connect(1, options.entries, cntlid, options, subnqn)?;
    io.in_capsule = (controller.ioccsz as usize * 16).saturating_sub(64);
    Ok(((admin, io), controller, namespace))
}
