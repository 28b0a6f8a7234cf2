//! One queue's connection, from the host's side: commands go out, and arriving data are passed on
//! in place, without a copy.
//!
//! Invariants: at any time an identifier belongs to one command (the caller's duty); data arrive in
//! order. Absent: the meaning of commands, and reconnection.

use super::Options;
use super::error::{ClientError, broken};
use super::secure::secured;
use super::spin::Spin;
use super::waits::{arrives_within, no_answer, would_block, write_all};
use crate::controller::COPY_FORMAT_NAMESPACES;
use crate::controller::features::{COPY_FORMATS_AT, HOST_BEHAVIOR_BYTES, fid::HOST_BEHAVIOR};
use crate::process::Process;
use crate::spec::auth::ConnectResult;
use crate::spec::command::{Cqe, Sgl, Sqe};
use crate::spec::fabrics::{Cc, ConnectData, DISCOVERY_NQN, kind as fabrics, property};
use crate::spec::opcode::admin;
use crate::spec::pdu::{Data, Flags, Ic, kind};
use crate::spec::status::Status;
use crate::tcp::buffer::Buffer;
use crate::tcp::socket::Socket;
use crate::tcp::wire::{self, Agreement};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Maximum data of one PDU that we accept: those of the largest command.
const DATA_MAX: usize = 1 << 20;
/// Room for the largest PDU, and for bytes that arrive after it.
const BUFFER_BYTES: usize = DATA_MAX + (64 << 10);

/// One queue, which has a connection of its own.
pub struct Queue {
    stream: Socket,
    agreed: Agreement,
    h2c_max: usize,
    pub(super) in_capsule: usize,
    next_cid: u16,
    out: Vec<u8>,
    input: Buffer,
    spin: Spin,
    /// Maximum time for an answer.
    timeout: Duration,
    /// The process that opened the connection: no other one may use the socket.
    process: Process,
}

/// A command and its data.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The entry; identifier and SGL are filled in.
    pub sqe: Sqe,
    /// Data to send with the command.
    pub send: &'a [u8],
    /// Number of bytes expected from the controller.
    pub receive: usize,
}

impl<'a> Call<'a> {
    /// A command without data.
    #[must_use]
    pub const fn new(sqe: Sqe) -> Self {
        Self::receiving(sqe, 0)
    }

    /// A command that sends data.
    #[must_use]
    pub const fn sending(sqe: Sqe, send: &'a [u8]) -> Self {
        let receive = 0;
        Self { sqe, send, receive }
    }

    /// A command that returns this many bytes.
    #[must_use]
    pub const fn receiving(sqe: Sqe, receive: usize) -> Self {
        let send = &[];
        Self { sqe, send, receive }
    }
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of its completion.
    pub status: Status,
    /// Dwords 0 and 1 of its completion.
    pub result: u64,
    /// The data received before it.
    pub data: Vec<u8>,
}

/// Receives everything that arrives for outstanding commands.
pub trait Arrivals {
    /// Data of a command, from `offset` on; `false` if they are not expected.
    fn data(&mut self, cid: u16, offset: usize, bytes: &[u8]) -> bool;
    /// The data of a command, requested by the controller; `None` if there is no such command.
    fn asked(&self, cid: u16) -> Option<&[u8]>;
    /// A command is completed; `false` if there is no such command.
    fn done(&mut self, cid: u16, status: Status, result: u64) -> bool;
}

/// How to wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Poll for a moment first: the caller has nothing else to do.
    Looking,
    Asleep,
}

/// Calls sent together, with their answers.
struct Together<'a> {
    first: u16,
    calls: &'a [Call<'a>],
    answers: Vec<Answer>,
    open: usize,
}

impl Arrivals for Together<'_> {
    fn data(&mut self, cid: u16, offset: usize, bytes: &[u8]) -> bool {
        // Identifiers are consecutive, so the distance to the first is the index.
        let index = usize::from(cid.wrapping_sub(self.first));
        let Some((answer, call)) = self.answers.get_mut(index).zip(self.calls.get(index)) else {
            return false;
        };
        // Data come in order. A gap or excess data violate the protocol.
        let fits = offset == answer.data.len() && offset + bytes.len() <= call.receive;
        if fits {
            answer.data.extend_from_slice(bytes);
        }
        fits
    }
    fn asked(&self, cid: u16) -> Option<&[u8]> {
        self.calls
            .get(usize::from(cid.wrapping_sub(self.first)))
            .map(|call| call.send)
    }
    fn done(&mut self, cid: u16, status: Status, result: u64) -> bool {
        let Some(answer) = self
            .answers
            .get_mut(usize::from(cid.wrapping_sub(self.first)))
        else {
            return false;
        };
        (answer.status, answer.result) = (status, result);
        self.open = self.open.saturating_sub(1);
        true
    }
}

impl Queue {
    /// Connects a socket and negotiates the protocol. With a TLS key, it is for the subsystem in
    /// the options, or for discovery.
    ///
    /// # Errors
    /// The target is not listening, or it is not an NVMe/TCP target.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Self, ClientError> {
        let subnqn = options.subnqn.as_deref().unwrap_or(DISCOVERY_NQN);
        Self::open_for(address, options, subnqn)
    }

    /// Like `open`, for a given subsystem.
    pub(super) fn open_for(
        address: SocketAddr,
        options: &Options,
        subnqn: &str,
    ) -> Result<Self, ClientError> {
        // A target that does not answer must not block the caller forever, at any step.
        let stream = TcpStream::connect_timeout(&address, options.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.timeout))?;
        stream.set_write_timeout(Some(options.timeout))?;

        let mut queue = Self {
            stream: secured(stream, options, subnqn)?,
            agreed: Agreement::default(),
            h2c_max: 0,
            // Room for the data of Connect, until the controller's limit is known.
            in_capsule: 1024,
            next_cid: 0,
            out: Vec::new(),
            input: Buffer::new(BUFFER_BYTES),
            spin: Spin::new(),
            timeout: options.timeout,
            process: Process::current(),
        };

        // Nothing is negotiated yet: the first PDU has no digests.
        let digest = if options.digests { 3 } else { 0 };
        wire::put_ic(&mut queue.out, kind::IC_REQ, &Ic::new(0, digest, 0));
        queue.send()?;

        let (ic, len) = loop {
            let next = wire::next_pdu(queue.input.filled(), queue.agreed, 0)
                .map_err(|_| broken("a PDU that cannot be"))?;
            if let Some((pdu, len)) = next {
                break (
                    pdu.parse::<Ic>()
                        .filter(|_| pdu.common.kind == kind::IC_RESP),
                    len,
                );
            }
            queue.read(Wait::Asleep)?;
        };
        queue.input.consume(len);

        let ic = ic.ok_or(broken("no ICResp"))?;
        // With a lower limit a block would not fit in one PDU.
        if ic.pda > 31 || ic.max < 4096 {
            return Err(broken("limits of ICResp"));
        }

        queue.agreed = Agreement::new(ic.digest, ic.pda);
        // Larger PDUs than the target accepts would end the connection; smaller ones are allowed.
        queue.h2c_max = (ic.max as usize).min(options.pdu_bytes_max.max(1));
        Ok(queue)
    }

    /// Sends everything put so far.
    ///
    /// # Errors
    /// The connection failed, or belongs to a parent process.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.check_process()?;
        write_all(&mut self.stream, &self.out, self.timeout)?;
        self.out.clear();
        Ok(())
    }

    fn read(&mut self, wait: Wait) -> Result<(), ClientError> {
        self.check_process()?;

        // Decrypted plaintext in our buffer does not show in the socket.
        if wait == Wait::Looking && !self.stream.has_buffered() {
            self.spin.look(self.stream.tcp());
        }

        let began = Instant::now();
        loop {
            match self.input.read(&mut self.stream) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(_) => return Ok(()),
                // A partial TLS record yields nothing yet, and a signal ends a wait early. The rest
                // of the time is waited for without a read.
                Err(error) if would_block(&error) => {
                    if !arrives_within(self.stream.tcp(), began, self.timeout)? {
                        return Err(no_answer("no answer", self.timeout).into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A child of `fork` has its parent's socket, and must not use it.
    fn check_process(&self) -> Result<(), ClientError> {
        if self.process.is_current() {
            Ok(())
        } else {
            Err(ClientError::Forked)
        }
    }

    /// Passes on everything that has arrived, waiting if nothing has; sends data that the
    /// controller requests.
    ///
    /// For hosts that send more as soon as a command completes: it sleeps, so that several answers
    /// arrive at once.
    ///
    /// # Errors
    /// The connection failed, or the target violated the protocol.
    pub fn receive(&mut self, host: &mut impl Arrivals) -> Result<(), ClientError> {
        self.receive_by(Wait::Asleep, host)
    }

    fn receive_by(&mut self, wait: Wait, host: &mut impl Arrivals) -> Result<(), ClientError> {
        let mut handled = false;
        loop {
            let next = wire::next_pdu(self.input.filled(), self.agreed, DATA_MAX);
            let Some((pdu, len)) = next.map_err(|_| broken("a PDU that cannot be"))? else {
                // Nothing more has arrived. Send everything put so far, including requested data,
                // before waiting.
                if !self.out.is_empty() {
                    self.send()?;
                }
                if handled {
                    return Ok(());
                }
                self.read(wait)?;
                continue;
            };

            if pdu.damaged {
                return Err(broken("data were damaged on their way"));
            }
            match pdu.common.kind {
                kind::CAPSULE_RESP => {
                    let cqe: Cqe = pdu.parse().ok_or(broken("a response"))?;
                    if !host.done(cqe.cid, cqe.status(), cqe.result) {
                        return Err(broken("a response to nothing"));
                    }
                }
                kind::C2H_DATA => {
                    let data = pdu.parse::<Data>().ok_or(broken("data"))?;
                    if !host.data(data.cid, data.offset as usize, pdu.data) {
                        return Err(broken("data in another place"));
                    }

                    // The success flag replaces the response.
                    if pdu.common.flags.success() && !host.done(data.cid, Status::SUCCESS, 0) {
                        return Err(broken("data for nothing"));
                    }
                }
                kind::R2T => {
                    let asked = pdu.parse::<Data>().ok_or(broken("R2T"))?;
                    let all = host.asked(asked.cid).ok_or(broken("R2T for nothing"))?;
                    put_data(&mut self.out, self.agreed, self.h2c_max, &asked, all)?;
                }
                kind::C2H_TERM => return Err(broken("it terminated the connection")),
                _ => return Err(broken("a PDU out of place")),
            }

            self.input.consume(len);
            handled = true;
        }
    }

    /// Sends commands, all outstanding at once, and waits for all answers. They are in the order of
    /// the calls.
    ///
    /// # Errors
    /// The connection failed; some commands may have been executed.
    pub fn calls(&mut self, calls: &[Call<'_>]) -> Result<Vec<Answer>, ClientError> {
        // Consecutive identifiers, so that answers are matched without a search.
        let first = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(calls.len() as u16);
        for (index, call) in calls.iter().enumerate() {
            self.put(first.wrapping_add(index as u16), call);
        }
        self.send()?;

        let blank = Answer {
            status: Status::SUCCESS,
            result: 0,
            data: Vec::new(),
        };
        let mut together = Together {
            first,
            calls,
            answers: vec![blank; calls.len()],
            open: calls.len(),
        };

        while together.open > 0 {
            self.receive_by(Wait::Looking, &mut together)?;
        }
        Ok(together.answers)
    }

    /// Sends a command without reading its answer, to test what the target does then.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_only(&mut self, call: &Call<'_>) -> Result<(), ClientError> {
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        self.put(cid, call);
        self.send()
    }

    /// Queues a command for `send`, under an identifier not used by another outstanding command.
    pub fn put(&mut self, cid: u16, call: &Call<'_>) {
        let mut sqe = call.sqe;
        sqe.cdw0 = sqe.head().with_cid(cid).with_psdt(1).into_bits();

        // Data that fit into the capsule are sent with it; the target requests the rest.
        let capsule = !call.send.is_empty() && call.send.len() <= self.in_capsule;
        let length = call.send.len().max(call.receive) as u32;
        sqe.sgl = Sgl::new(
            if capsule {
                Sgl::IN_CAPSULE
            } else {
                Sgl::TRANSPORT
            },
            0,
            length,
        );

        if capsule {
            wire::put_data(
                &mut self.out,
                kind::CAPSULE_CMD,
                Flags::new(),
                &sqe,
                self.agreed,
                call.send,
            );
        } else {
            wire::put(
                &mut self.out,
                kind::CAPSULE_CMD,
                Flags::new(),
                &sqe,
                self.agreed,
            );
        }
    }

    /// Executes one command; returns its answer.
    ///
    /// # Errors
    /// The connection failed, or the device refused the command.
    pub fn call(&mut self, what: &'static str, call: &Call<'_>) -> Result<Answer, ClientError> {
        let answer = self
            .calls(std::slice::from_ref(call))?
            .pop()
            .ok_or(broken("no answer"))?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            status => Err(ClientError::Status { what, status }),
        }
    }

    /// Returns true if the target is known to have ended the connection. No command may be
    /// outstanding.
    pub(super) fn has_ended(&self) -> bool {
        let events = PollFlags::IN | PollFlags::RDHUP;
        let mut polled = [PollFd::new(&self.stream, events)];
        let found = poll(&mut polled, Some(&Timespec::default()));
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        matches!(found, Ok(count) if count > 0) && polled[0].revents().intersects(ends)
    }

    /// Breaks the connection, as a network would.
    ///
    /// # Errors
    /// The system's reason.
    pub fn abandon(&mut self) -> Result<(), ClientError> {
        self.check_process()?;
        Ok(self.stream.tcp().shutdown(std::net::Shutdown::Both)?)
    }

    pub(super) fn connect(
        &mut self,
        qid: u16,
        entries: u16,
        cntlid: u16,
        options: &Options,
        subnqn: &str,
    ) -> Result<u16, ClientError> {
        // All queues use one host identifier, as required.
        let data = ConnectData::new(options.hostid, cntlid, subnqn, &options.hostnqn);
        let mut sqe = entry(admin::FABRICS, u32::from(fabrics::CONNECT));
        sqe.cdw10 = u32::from(qid) << 16;
        // Bit 18: no flow control of the submission queue.
        sqe.cdw11 = u32::from(entries - 1) | 1 << 18;

        // Keep-alive time in milliseconds, for the admin queue only.
        sqe.cdw12 = if qid == 0 { options.keep_alive_ms } else { 0 };

        let answer = self.call("connect", &Call::sending(sqe, data.as_bytes()))?;

        let result = ConnectResult::from_bits(answer.result as u32);
        self.authenticate_if_asked(result, options, subnqn)?;
        Ok(result.cntlid())
    }

    pub(super) fn enable(&mut self) -> Result<(), ClientError> {
        let mut sqe = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
        sqe.cdw11 = property::CC;

        // Only entries of 2^6 and 2^4 bytes exist.
        sqe.cdw12 = Cc::new()
            .with_en(true)
            .with_iosqes(6)
            .with_iocqes(4)
            .into_bits();
        self.call("enable", &Call::new(sqe)).map(drop)
    }

    pub(super) fn identify(&mut self, wanted: u8, nsid: u32) -> Result<Vec<u8>, ClientError> {
        let sqe = Sqe {
            cdw10: wanted.into(),
            ..entry(admin::IDENTIFY, nsid)
        };
        Ok(self.call("identify", &Call::receiving(sqe, 4096))?.data)
    }

    /// Enables Copy from other namespaces: CDFE in Host Behavior Support.
    pub(super) fn enable_copy_across(&mut self) -> Result<(), ClientError> {
        let mut behavior = [0; HOST_BEHAVIOR_BYTES as usize];
        behavior[COPY_FORMATS_AT..COPY_FORMATS_AT + 2]
            .copy_from_slice(&(1u16 << COPY_FORMAT_NAMESPACES).to_le_bytes());
        let sqe = Sqe {
            cdw10: HOST_BEHAVIOR.into(),
            ..entry(admin::SET_FEATURES, 0)
        };
        self.call("set features", &Call::sending(sqe, &behavior))
            .map(drop)
    }

    pub(super) fn log(&mut self, lid: u8, bytes: usize) -> Result<Vec<u8>, ClientError> {
        let dwords_z = bytes as u32 / 4 - 1;

        // All pages read here cover all namespaces. The number of dwords is split in two halves.
        let mut sqe = entry(admin::GET_LOG_PAGE, u32::MAX);
        (sqe.cdw10, sqe.cdw11) = (u32::from(lid) | dwords_z << 16, dwords_z >> 16);
        Ok(self
            .call("get log page", &Call::receiving(sqe, bytes))?
            .data)
    }
}

/// Puts the data requested by an R2T, in as many PDUs as needed.
fn put_data(
    out: &mut Vec<u8>,
    agreed: Agreement,
    h2c_max: usize,
    asked: &Data,
    all: &[u8],
) -> Result<(), ClientError> {
    let (start, end) = (
        asked.offset as usize,
        asked.offset as usize + asked.length as usize,
    );

    // The target may request the same data twice, but never more than there are.
    let wanted = all.get(start..end).ok_or(broken("R2T beyond the data"))?;

    let mut offset = asked.offset;
    let pieces = wanted.chunks(h2c_max);
    let count = pieces.len();
    for (index, piece) in pieces.enumerate() {
        let header = Data::new(asked.cid, asked.ttag, offset, piece.len() as u32);
        let flags = Flags::new().with_last(index + 1 == count);
        wire::put_data(out, kind::H2C_DATA, flags, &header, agreed, piece);
        offset += piece.len() as u32;
    }
    Ok(())
}

/// An entry with an opcode and a namespace (or, for fabrics commands, their type).
pub fn entry(opcode: u8, nsid: u32) -> Sqe {
    Sqe {
        cdw0: opcode.into(),
        nsid,
        ..Sqe::default()
    }
}
