//! A connection without a socket: bytes in, PDUs out, and nothing happens in between.

use crate::kit::NQN;
use crate::kit::raw::{Arrived, connect, enabled, in_capsule, property_set};
use crate::kit::specified::property;
use remap_ssd_nvme::spec::command::{Cqe, Sqe};
use remap_ssd_nvme::spec::fabrics::ConnectData;
use remap_ssd_nvme::spec::pdu::{Data, Flags, Ic, kind};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::target::{Connection, End, Output, Port};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

pub struct Line {
    pub connection: Connection,
    out: Output,
}

/// A capsule as bytes.
pub fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let (mut out, agreed) = (Vec::new(), Agreement::default());
    match data {
        [] => wire::put(&mut out, kind::CAPSULE_CMD, Flags::new(), sqe, agreed),
        data => wire::put_data(&mut out, kind::CAPSULE_CMD, Flags::new(), sqe, agreed, data),
    }
    out
}

/// A part of the data that were asked for, as bytes.
pub fn data_for(asked: &Data, from: usize, data: &[u8], last: bool) -> Vec<u8> {
    let header = Data::new(asked.cid, asked.ttag, from as u32, data.len() as u32);
    let (mut out, flags) = (Vec::new(), Flags::new().with_last(last));
    wire::put_data(
        &mut out,
        kind::H2C_DATA,
        flags,
        &header,
        Agreement::default(),
        data,
    );
    out
}

impl Line {
    fn open(port: &Arc<Port>) -> Self {
        let address = "127.0.0.1:4420".parse().expect("an address");
        let mut line = Self {
            connection: Connection::new(port.clone(), address, address),
            out: Output::default(),
        };
        let mut bytes = Vec::new();
        wire::put_ic(&mut bytes, kind::IC_REQ, &Ic::new(0, 0, 0));
        assert_eq!(line.says(&bytes).expect("agreed").len(), 1);
        line
    }

    fn connected(port: &Arc<Port>, host: &str, cntlid: u16, qid: u16) -> (Self, u16) {
        let mut line = Self::open(port);
        let data = ConnectData::new([1; 16], cntlid, NQN, host);
        let answer = line.calls(&connect(qid), data.as_bytes());
        assert!(answer.status().is_success(), "{:?}", answer.status());
        (line, answer.result as u16)
    }

    /// An admin queue whose controller is enabled, and the controller's number.
    pub fn admin(port: &Arc<Port>, host: &str) -> (Self, u16) {
        let (mut line, cntlid) = Self::connected(port, host, 0xffff, 0);
        let answer = line.calls(&property_set(property::CC, enabled()), &[]);
        assert_eq!(answer.status(), Status::SUCCESS);
        (line, cntlid)
    }

    /// An I/O queue.
    pub fn io(port: &Arc<Port>, host: &str, cntlid: u16) -> Self {
        Self::connected(port, host, cntlid, 1).0
    }

    /// What is answered to these bytes.
    pub fn says(&mut self, mut bytes: &[u8]) -> Result<Vec<Arrived>, End> {
        loop {
            let taken = self.connection.receive(0, bytes, &mut self.out)?;
            bytes = &bytes[taken..];
            if bytes.is_empty() {
                return Ok(self.answers());
            }
        }
    }

    /// Waits for the disk, as commands that must be durable do.
    pub fn syncs(&mut self) {
        self.connection.acknowledge_synced(&mut self.out);
    }

    /// All that was put out since it was looked at last.
    pub fn answers(&mut self) -> Vec<Arrived> {
        let mut bytes = Vec::new();
        self.out.write_to(&mut bytes).expect("memory takes it");
        let (mut at, mut all) = (0, Vec::new());
        while let Some((pdu, len)) =
            wire::next_pdu(&bytes[at..], Agreement::default(), 1 << 20).expect("in order")
        {
            all.push(Arrived {
                common: pdu.common,
                header: pdu.header.to_vec(),
                data: pdu.data.to_vec(),
            });
            at += len;
        }
        all
    }

    /// The completion of a command with its data in the capsule.
    pub fn calls(&mut self, sqe: &Sqe, data: &[u8]) -> Cqe {
        let sqe = if data.is_empty() {
            *sqe
        } else {
            in_capsule(*sqe, data.len() as u32)
        };
        let answers = self.says(&capsule(&sqe, data)).expect("it goes on");
        completion(&answers).expect("an answer")
    }
}

/// The completion among these PDUs.
pub fn completion(answers: &[Arrived]) -> Option<Cqe> {
    let is_response = |one: &&Arrived| one.common.kind == kind::CAPSULE_RESP;
    let response = answers.iter().find(is_response)?;
    Some(Cqe::read_from_bytes(&response.header).expect("a header"))
}

/// The data that are asked for by these PDUs.
pub fn asked(answers: &[Arrived]) -> Data {
    let [one] = answers else {
        panic!("one R2T: {answers:?}");
    };
    assert_eq!(one.common.kind, kind::R2T);
    Data::read_from_bytes(&one.header).expect("a header")
}
