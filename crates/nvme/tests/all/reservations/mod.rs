//! Reservations: hosts over real sockets, one of which excludes the others.

mod excluded;
mod registered;
mod told;

use crate::kit::raw::{self, Peer, enabled, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::{ONCS_RESERVATIONS, lid, property};
use crate::kit::{NQN, Rig, device};
use remap_ssd_nvme::controller::{
    AllReservations, NamespaceSpec, REGISTRANTS_MAX, ReservationStore,
};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, DsmRange, Sqe};
use remap_ssd_nvme::spec::fabrics::ConnectData;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::Data;
use remap_ssd_nvme::spec::reservation::{Notification, ReportEntry, ReportHead};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Answer, Call, Client, Options, entry};
use std::io as std_io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const PAGE: usize = 4096;
const CONFLICT: Status = Status::RESERVATION_CONFLICT;
const SUCCESS: Status = Status::SUCCESS;

fn name(of: &str) -> String {
    format!("nqn.2026-11.test:{of}")
}

/// A host with its own name.
fn host(rig: &Rig, of: &str) -> Client {
    let options = Options {
        hostnqn: name(of),
        copy_across: true,
        ..Options::default()
    };
    Client::connect(rig.address, options).expect("it listens")
}

/// Two namespaces of 4 MiB each.
fn halves() -> Rig {
    let spec = NamespaceSpec {
        pages: 1024,
        lba_shift: 12,
    };
    Rig::with(device(32 << 20, false), &[spec; 2])
}

fn ask(client: &mut Client, sqe: Sqe, send: &[u8], receive: usize) -> Answer {
    let call = Call { sqe, send, receive };
    let mut answers = client
        .queue(|queue| queue.calls(&[call]))
        .expect("connected");
    answers.remove(0)
}

fn with_cdw10(opcode: u8, cdw10: u32) -> Sqe {
    Sqe {
        cdw10,
        ..entry(opcode, 1)
    }
}

fn keys(current: u64, other: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&current.to_le_bytes());
    bytes[8..].copy_from_slice(&other.to_le_bytes());
    bytes
}

fn register(client: &mut Client, cdw10: u32, current: u64, other: u64) -> Status {
    let sqe = with_cdw10(io::RESERVATION_REGISTER, cdw10);
    ask(client, sqe, &keys(current, other), 0).status
}

fn acquire(client: &mut Client, action: u32, kind: u8, current: u64, other: u64) -> Status {
    let sqe = with_cdw10(io::RESERVATION_ACQUIRE, action | u32::from(kind) << 8);
    ask(client, sqe, &keys(current, other), 0).status
}

fn release(client: &mut Client, action: u32, kind: u8, key: u64) -> Status {
    let sqe = with_cdw10(io::RESERVATION_RELEASE, action | u32::from(kind) << 8);
    ask(client, sqe, &key.to_le_bytes(), 0).status
}

/// Returns generation, type, persistence, and registrants: their keys, and whether they hold it.
fn report(client: &mut Client) -> (u32, u8, u8, Vec<(u64, u8)>) {
    let sqe = Sqe {
        cdw10: 1023,
        cdw11: 1,
        ..entry(io::RESERVATION_REPORT, 1)
    };
    let answer = ask(client, sqe, &[], 4096);
    assert_eq!(answer.status, SUCCESS);

    let (head, rest) = ReportHead::read_from_prefix(&answer.data).expect("a head");
    let entries = rest.chunks(64).take(head.regctl.into()).map(|bytes| {
        let entry = ReportEntry::read_from_bytes(bytes).expect("whole");
        assert_eq!({ entry.cntlid }, 0xffff);
        assert_eq!(entry.hostid, [0x72; 16]);
        (entry.rkey, entry.rcsts)
    });
    (head.generation, head.rtype, head.ptpls, entries.collect())
}

/// A scripted host: an admin queue and an I/O queue.
fn raw_host(rig: &Rig, id: [u8; 16], of: &str) -> (Peer, Peer) {
    let data = |cntlid| ConnectData::new(id, cntlid, NQN, &name(of));
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(raw::connect(0), data(0xffff).as_bytes());
    let cntlid = answer.cqe.result as u16;
    let set = peer.call(property_set(property::CC, enabled()), &[]);
    assert!(set.cqe.status().is_success());

    let mut queue = Peer::open(rig.address, 0);
    let joined = queue.call(raw::connect(1), data(cntlid).as_bytes());
    assert!(joined.cqe.status().is_success());
    (peer, queue)
}
