//! Two portals to one device: reports to hosts, and that an inaccessible portal executes no
//! commands.

use crate::kit::raw::{Peer, connect, enabled, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::{lid, property};
use crate::kit::{self, NQN, Rig};
use remap_ssd_nvme::controller::AnaState;
use remap_ssd_nvme::spec::ana::{AnaGroup, AnaHead};
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::fabrics::{ConnectData, DISCOVERY_NQN, DiscoveryEntry};
use remap_ssd_nvme::spec::identify::Namespace;
use remap_ssd_nvme::spec::management::sel;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, Options, entry};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use zerocopy::{FromBytes, IntoBytes};

const PAGE: u32 = 4096;
/// AER: a notice, asymmetric access has changed, see log page 0Ch.
const CHANGED: u64 = 0x000c_0302;

fn log(lid: u8, specific: u32, bytes: u32, retain: bool) -> Sqe {
    let sqe = Sqe {
        cdw10: u32::from(lid) | specific << 8 | u32::from(retain) << 15 | (bytes / 4 - 1) << 16,
        ..entry(admin::GET_LOG_PAGE, 0)
    };
    transport(sqe, bytes)
}

/// Returns the change count, state and namespaces.
fn ana(peer: &mut Peer, specific: u32, retain: bool) -> (u64, u8, Vec<u32>) {
    let answer = peer.call(log(lid::ANA, specific, 64, retain), &[]);
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    let (head, rest) = AnaHead::read_from_prefix(&answer.data).expect("a head");
    let (group, rest) = AnaGroup::read_from_prefix(rest).expect("a group");
    assert_eq!((head.ngrps, group.anagrpid), (1, 1));
    assert_eq!(head.chgcnt, group.chgcnt);
    let nsids = rest.as_chunks::<4>().0.iter();
    let nsids = nsids.take(group.nnsids as usize);
    let nsids = nsids.map(|nsid| u32::from_le_bytes(*nsid));
    (head.chgcnt, group.state, nsids.collect())
}

fn write(queue: &mut Peer) -> Status {
    let sqe = in_capsule(entry(io::WRITE, 1), PAGE);
    queue.call(sqe, &[7; PAGE as usize]).cqe.status()
}

fn host(at: SocketAddr) -> (Peer, Peer) {
    let (admin, cntlid) = Peer::admin(at);
    let queue = Peer::io(at, cntlid, 1, 0);
    (admin, queue)
}

#[test]
fn an_inaccessible_portal_executes_nothing_and_its_hosts_hear_of_it() {
    let rig = Rig::with_portals(2);
    let portals = rig.addresses.clone();
    let hosts: Vec<(Peer, Peer)> = portals.iter().map(|at| host(*at)).collect();
    let [(mut admin, mut queue), (mut other_admin, mut other)] =
        hosts.try_into().unwrap_or_else(|_| panic!("two"));
    for admin in [&mut admin, &mut other_admin] {
        assert_eq!(ana(admin, 0, false), (0, 1, vec![1]));
        assert_eq!(ana(admin, 1, false), (0, 1, vec![]), "groups only");

        let events = Sqe {
            cdw10: 0x0b,
            cdw11: 1 << 11,
            ..entry(admin::SET_FEATURES, 0)
        };
        let set = admin.call(transport(events, 0), &[]);
        assert_eq!(set.cqe.status(), Status::SUCCESS);
        for cid in [60, 61] {
            let event = with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), cid);
            let bytes = admin.capsule(&event, &[]);
            admin.send(&bytes);
        }
    }
    assert_eq!(
        (write(&mut queue), write(&mut other)),
        (Status::SUCCESS, Status::SUCCESS)
    );

    let set = |at: SocketAddr, state| rig.subsystem.set_ana_state(Some(at), state);
    assert_eq!(set(portals[0], AnaState::Inaccessible), 1);
    assert_eq!(admin.answer().cqe.result, CHANGED);
    assert_eq!(write(&mut queue), Status::ACCESS_INACCESSIBLE);
    assert!(
        !Status::ACCESS_INACCESSIBLE.dnr(),
        "the host is to try again elsewhere"
    );
    for opcode in [io::READ, io::FLUSH, io::REMAP, io::RESERVATION_REGISTER] {
        let status = queue
            .call(transport(entry(opcode, 1), PAGE), &[])
            .cqe
            .status();
        assert_eq!(status, Status::ACCESS_INACCESSIBLE, "{opcode:#x}");
    }
    assert_eq!(write(&mut other), Status::SUCCESS);

    // The page is read with the event retained: no other event until it is read without.
    assert_eq!(ana(&mut admin, 0, true), (1, 3, vec![1]));
    assert_eq!(set(portals[0], AnaState::NonOptimized), 1);
    assert_eq!(ana(&mut admin, 0, false), (2, 2, vec![1]));
    assert_eq!(write(&mut queue), Status::SUCCESS);

    // The same state again is no change; the other portal's hosts have no events so far.
    assert_eq!(set(portals[0], AnaState::NonOptimized), 1);
    assert_eq!(ana(&mut admin, 0, false).0, 2);
    assert_eq!(ana(&mut other_admin, 0, false), (0, 1, vec![1]));
    assert_eq!(rig.subsystem.set_ana_state(None, AnaState::Optimized), 2);
    assert_eq!(admin.answer().cqe.result, CHANGED);
    let nowhere = "127.0.0.1:1".parse().expect("an address");
    assert_eq!(set(nowhere, AnaState::Inaccessible), 0);
}

/// Sends an admin command with dword 10 by one portal.
fn status(peer: &mut Peer, opcode: u8, nsid: u32, cdw10: u32, data: &[u8]) -> Status {
    let sqe = Sqe {
        cdw10,
        ..entry(opcode, nsid)
    };
    let sqe = match data.len() as u32 {
        0 => transport(sqe, 0),
        bytes => in_capsule(sqe, bytes),
    };
    peer.call(sqe, data).cqe.status()
}

/// NUSE and NVMCAP of the namespace, and its size.
fn capacity(peer: &mut Peer) -> (u64, u64, u64) {
    let answer = peer.call(transport(entry(admin::IDENTIFY, 1), PAGE), &[]);
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    let id = Namespace::read_from_bytes(&answer.data).expect("whole");
    let bytes = u128::from_le_bytes(id.nvmcap) as u64;
    (id.nuse, bytes, id.nsze)
}

/// Base 2.2 §8.1.1.6, §8.1.1.10.
#[test]
fn an_inaccessible_portal_executes_no_admin_command_that_names_a_namespace_and_all_others() {
    let rig = Rig::with_portals(2);
    let portals = rig.addresses.clone();
    let (mut admin, mut queue) = host(portals[0]);
    let (mut other_admin, _other) = host(portals[1]);
    assert_eq!(write(&mut queue), Status::SUCCESS);
    let before = capacity(&mut admin);
    rig.subsystem
        .set_ana_state(Some(portals[0]), AnaState::Inaccessible);

    // A controller list of one; the features Error Recovery, those of reservations, and Events,
    // which belongs to the controller.
    let mut list = [0; PAGE as usize];
    list[..4].copy_from_slice(&[1, 0, 1, 0]);
    let create = [0; PAGE as usize];
    let (all, events) = (u32::MAX, 0x0b);
    let concerned: [(u8, u32, u32, &[u8]); 12] = [
        (admin::FORMAT, 1, 0, &[]),
        (admin::NAMESPACE_MANAGEMENT, 1, sel::DELETE.into(), &[]),
        (admin::NAMESPACE_MANAGEMENT, all, sel::DELETE.into(), &[]),
        (admin::NAMESPACE_ATTACHMENT, 1, sel::DETACH.into(), &list),
        (admin::NAMESPACE_ATTACHMENT, 1, sel::ATTACH.into(), &list),
        (admin::GET_FEATURES, 1, 0x05, &[]),
        (admin::GET_FEATURES, 1, 0x82, &[]),
        (admin::GET_FEATURES, 1, 0x83, &[]),
        (admin::SET_FEATURES, 1, 0x05, &[]),
        (admin::SET_FEATURES, 1, 0x82, &[]),
        (admin::SET_FEATURES, 1, 0x83, &[]),
        (admin::SET_FEATURES, all, events, &[]),
    ];
    for (opcode, nsid, cdw10, data) in concerned {
        let status = status(&mut admin, opcode, nsid, cdw10, data);
        assert_eq!(
            status,
            Status::ACCESS_INACCESSIBLE,
            "{opcode:#x} {cdw10:#x}"
        );
    }

    // Nothing was executed; commands without a namespace are executed as by the other portal.
    let mut client = Client::connect(portals[1], Options::default()).expect("it listens");
    assert_eq!(client.read(0, 1).expect("served"), [7; PAGE as usize]);
    for (opcode, cdw10, data) in [
        (admin::GET_FEATURES, events, &[][..]),
        (admin::SET_FEATURES, events, &[]),
        (admin::KEEP_ALIVE, 0, &[]),
        (admin::NAMESPACE_MANAGEMENT, sel::CREATE.into(), &create),
    ] {
        let here = status(&mut admin, opcode, 0, cdw10, data);
        let there = status(&mut other_admin, opcode, 0, cdw10, data);
        assert_eq!(here, there, "{opcode:#x}");
        assert_ne!(here, Status::ACCESS_INACCESSIBLE, "{opcode:#x}");
    }
    assert_eq!(capacity(&mut admin), (0, 0, before.2));
    assert_eq!(capacity(&mut other_admin), before);

    rig.subsystem.set_ana_state(None, AnaState::Optimized);
    assert_eq!(capacity(&mut admin), before);
    assert_eq!(
        status(&mut admin, admin::FORMAT, 1, 0, &[]),
        Status::SUCCESS
    );
    assert_eq!(client.read(0, 1).expect("served"), [0; PAGE as usize]);
}

#[test]
fn a_write_under_way_is_finished_when_its_portal_becomes_inaccessible() {
    let rig = Rig::with_portals(1);
    let (_admin, mut queue) = host(rig.address);
    let sqe = with_cid(transport(entry(io::WRITE, 1), PAGE), 9);
    let bytes = queue.capsule(&sqe, &[]);
    queue.send(&bytes);
    let asked = queue.asked();
    rig.subsystem.set_ana_state(None, AnaState::Inaccessible);
    let bytes = queue.h2c(&asked, &[3; PAGE as usize], true);
    queue.send(&bytes);
    assert_eq!(queue.answer().cqe.status(), Status::SUCCESS);

    rig.subsystem.set_ana_state(None, AnaState::Optimized);
    let mut client = Client::connect(rig.address, Options::default()).expect("it listens");
    assert_eq!(client.read(0, 1).expect("served"), [3; PAGE as usize]);
}

#[test]
fn discovery_names_all_portals_the_one_that_was_reached_first() {
    let rig = Rig::with_portals(3);
    for at in &rig.addresses {
        let mut peer = Peer::open(*at, 0);
        let data = ConnectData::new([1; 16], 0xffff, DISCOVERY_NQN, kit::raw::HOSTNQN);
        let connected = peer.call(connect(0), data.as_bytes());
        assert!(connected.cqe.status().is_success());
        peer.call(property_set(property::CC, enabled()), &[]);

        let answer = peer.call(log(lid::DISCOVERY, 0, 4096, false), &[]);
        assert_eq!(answer.data[8..16], 3u64.to_le_bytes());
        let entries: Vec<DiscoveryEntry> = answer.data[1024..]
            .chunks(1024)
            .map(|bytes| DiscoveryEntry::read_from_bytes(bytes).expect("whole"))
            .collect();
        let port = |entry: &DiscoveryEntry| {
            let text = String::from_utf8_lossy(&entry.trsvcid).into_owned();
            text.trim_end_matches('\0')
                .parse::<u16>()
                .expect("a number")
        };
        let named: BTreeSet<u16> = entries.iter().map(port).collect();
        let expected: BTreeSet<u16> = rig.addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(named, expected);
        assert_eq!(port(&entries[0]), at.port());
        let ids: BTreeSet<u16> = entries.iter().map(|entry| entry.portid).collect();
        assert_eq!(ids.len(), 3);
        assert!(
            entries
                .iter()
                .all(|entry| entry.subnqn.starts_with(NQN.as_bytes()))
        );
    }
}

#[test]
fn hosts_of_all_portals_share_controllers_numbers_and_limits() {
    let rig = Rig::with_portals(2);
    let (_admin, first) = Peer::admin(rig.addresses[0]);
    let (_other, second) = Peer::admin(rig.addresses[1]);
    assert_ne!(first, second);
    // An I/O queue finds its controller by any portal.
    let mut queue = Peer::io(rig.addresses[1], first, 1, 0);
    assert_eq!(write(&mut queue), Status::SUCCESS);
}
