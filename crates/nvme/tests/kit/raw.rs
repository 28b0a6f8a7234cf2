//! A host controlled by a test PDU by PDU.
//!
//! Only lengths and digests are filled in when sending; received PDUs are returned unchecked.

use super::specified::{fabrics, property};
use remap_ssd_nvme::spec::command::{Cqe, Sgl, Sqe};
use remap_ssd_nvme::spec::fabrics::{Cc, ConnectData};
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::pdu::{Common, Data, Flags, Ic, kind};
use remap_ssd_nvme::tcp::client::entry;
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

pub const HOSTNQN: &str = "nqn.2026-11.test:host";

/// A received PDU.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub common: Common,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

/// The completion of a command, with its data.
#[derive(Clone, Debug)]
pub struct Answer {
    pub cqe: Cqe,
    pub data: Vec<u8>,
}

pub struct Peer {
    pub stream: TcpStream,
    pub agreed: Agreement,
    input: Vec<u8>,
}

/// A command with an SGL of `length` bytes to be transferred.
pub fn transport(sqe: Sqe, length: u32) -> Sqe {
    Sqe {
        sgl: Sgl::new(Sgl::TRANSPORT, 0, length),
        cdw0: sqe.head().with_psdt(1).into_bits(),
        ..sqe
    }
}

/// A command with an SGL of `length` bytes in its capsule.
pub fn in_capsule(sqe: Sqe, length: u32) -> Sqe {
    Sqe {
        sgl: Sgl::new(Sgl::IN_CAPSULE, 0, length),
        cdw0: sqe.head().with_psdt(1).into_bits(),
        ..sqe
    }
}

/// The command with another identifier.
pub fn with_cid(sqe: Sqe, cid: u16) -> Sqe {
    Sqe {
        cdw0: sqe.head().with_cid(cid).into_bits(),
        ..sqe
    }
}

/// Connect for a queue of 32 entries, without flow control.
pub fn connect(qid: u16) -> Sqe {
    let mut sqe = entry(admin::FABRICS, u32::from(fabrics::CONNECT));
    (sqe.cdw10, sqe.cdw11) = (u32::from(qid) << 16, 31 | 1 << 18);
    in_capsule(sqe, 1024)
}

pub fn connect_data(cntlid: u16) -> ConnectData {
    ConnectData::new([1; 16], cntlid, super::NQN, HOSTNQN)
}

pub fn property_set(offset: u32, value: u32) -> Sqe {
    let mut sqe = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
    (sqe.cdw11, sqe.cdw12) = (offset, value);
    transport(sqe, 0)
}

pub fn property_get(offset: u32, wide: bool) -> Sqe {
    let mut sqe = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_GET));
    (sqe.cdw10, sqe.cdw11) = (wide.into(), offset);
    transport(sqe, 0)
}

pub fn enabled() -> u32 {
    Cc::new()
        .with_en(true)
        .with_iosqes(6)
        .with_iocqes(4)
        .into_bits()
}

impl Peer {
    /// A connection with negotiated digests: bit 0 of headers, bit 1 of data.
    pub fn open(address: SocketAddr, digests: u8) -> Self {
        let mut peer = Self::silent(address);
        let mut out = Vec::new();
        wire::put_ic(&mut out, kind::IC_REQ, &Ic::new(0, digests, 0));
        peer.send(&out);
        assert_eq!(peer.next().expect("an answer").common.kind, kind::IC_RESP);
        peer.agreed = Agreement::new(digests, 0);
        peer
    }

    /// A connection on which nothing was sent.
    pub fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time");
        Self {
            stream,
            agreed: Agreement::default(),
            input: Vec::new(),
        }
    }

    /// An admin queue whose controller is enabled, and the controller's ID.
    pub fn admin(address: SocketAddr) -> (Self, u16) {
        Self::admin_of(address, HOSTNQN)
    }

    /// Like `admin`, for another host.
    pub fn admin_of(address: SocketAddr, host: &str) -> (Self, u16) {
        let mut peer = Self::open(address, 0);
        let data = ConnectData::new([1; 16], 0xffff, super::NQN, host);
        let answer = peer.call(connect(0), data.as_bytes());
        assert!(
            answer.cqe.status().is_success(),
            "{:?}",
            answer.cqe.status()
        );
        let cntlid = answer.cqe.result as u16;
        assert!(
            peer.call(property_set(property::CC, enabled()), &[])
                .cqe
                .status()
                .is_success()
        );
        (peer, cntlid)
    }

    /// An I/O queue of a controller.
    pub fn io(address: SocketAddr, cntlid: u16, qid: u16, digests: u8) -> Self {
        Self::io_of(address, HOSTNQN, cntlid, qid, digests)
    }

    /// Like `io`, for another host.
    pub fn io_of(address: SocketAddr, host: &str, cntlid: u16, qid: u16, digests: u8) -> Self {
        let mut peer = Self::open(address, digests);
        let data = ConnectData::new([1; 16], cntlid, super::NQN, host);
        let answer = peer.call(connect(qid), data.as_bytes());
        assert!(
            answer.cqe.status().is_success(),
            "{:?}",
            answer.cqe.status()
        );
        peer
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it takes what is sent");
    }

    /// A command capsule as bytes, with or without data.
    pub fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if data.is_empty() {
            wire::put(&mut out, kind::CAPSULE_CMD, Flags::new(), sqe, self.agreed);
        } else {
            wire::put_data(
                &mut out,
                kind::CAPSULE_CMD,
                Flags::new(),
                sqe,
                self.agreed,
                data,
            );
        }
        out
    }

    /// An H2CData PDU as bytes.
    pub fn h2c(&self, header: &Data, data: &[u8], last: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let flags = Flags::new().with_last(last);
        wire::put_data(&mut out, kind::H2C_DATA, flags, header, self.agreed, data);
        out
    }

    /// The next PDU; `None` if the connection has ended.
    pub fn next(&mut self) -> Option<Arrived> {
        loop {
            let next =
                wire::next_pdu(&self.input, self.agreed, 1 << 20).expect("a PDU that can be");
            if let Some((pdu, len)) = next {
                let arrived = Arrived {
                    common: pdu.common,
                    header: pdu.header.to_vec(),
                    data: pdu.data.to_vec(),
                };
                self.input.drain(..len);
                return Some(arrived);
            }
            let mut piece = vec![0; 1 << 16];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(len) => self.input.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// The next answer, with the data before it.
    pub fn answer(&mut self) -> Answer {
        let mut data = Vec::new();
        loop {
            let arrived = self.next().expect("an answer");
            match arrived.common.kind {
                kind::C2H_DATA => {
                    data.extend_from_slice(&arrived.data);
                    if arrived.common.flags.success() {
                        let header = Data::read_from_bytes(&arrived.header).expect("a header");
                        return Answer {
                            cqe: Cqe {
                                cid: header.cid,
                                ..Cqe::default()
                            },
                            data,
                        };
                    }
                }
                kind::CAPSULE_RESP => {
                    let cqe = Cqe::read_from_bytes(&arrived.header).expect("a header");
                    return Answer { cqe, data };
                }
                other => panic!("a PDU of type {other:#x}"),
            }
        }
    }

    /// The next R2T of the controller.
    pub fn asked(&mut self) -> Data {
        let arrived = self.next().expect("R2T");
        assert_eq!(arrived.common.kind, kind::R2T);
        Data::read_from_bytes(&arrived.header).expect("a header")
    }

    /// Sends a command with in-capsule data, and waits for its answer.
    pub fn call(&mut self, sqe: Sqe, data: &[u8]) -> Answer {
        let bytes = self.capsule(&sqe, data);
        self.send(&bytes);
        self.answer()
    }

    /// Like `call`, for a command whose data the controller requests.
    pub fn call_asked(&mut self, sqe: Sqe, data: &[u8]) -> Answer {
        let bytes = self.capsule(&sqe, &[]);
        self.send(&bytes);
        let asked = self.asked();
        let (start, end) = (
            asked.offset as usize,
            (asked.offset + asked.length) as usize,
        );
        let bytes = self.h2c(&asked, &data[start..end], true);
        self.send(&bytes);
        self.answer()
    }

    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
