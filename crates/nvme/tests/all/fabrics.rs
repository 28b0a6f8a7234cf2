//! Connect and its consequences: answers to refused hosts, creation and end of queues, identifiers.

use crate::kit::raw::{
    Answer, HOSTNQN, Peer, connect, connect_data, enabled, in_capsule, property_get, property_set,
    transport, with_cid,
};
use crate::kit::specified::{fabrics, property, status};
use crate::kit::{self, Lines, NQN, Rig};
use remap_ssd_nvme::controller::{Association, Subsystem};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::{ConnectData, DISCOVERY_NQN, DiscoveryEntry};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options, entry};
use remap_ssd_nvme::tcp::server::{Limits, Server, Stopper};
use remap_ssd_nvme::tcp::target::{Allowed, Port, Who};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// IATTR: the parameter is in the data of Connect.
const IN_DATA: u64 = 1 << 16;

fn refused(rig: &Rig, sqe: Sqe, data: &ConnectData) -> (Status, u64) {
    let mut peer = Peer::open(rig.address, 0);
    let answer = peer.call(sqe, data.as_bytes());
    assert!(peer.next().is_none(), "the connection ends");
    (answer.cqe.status(), answer.cqe.result)
}

/// Returns all log lines of a server, after the end of every connection.
fn logged(rig: Rig) -> Vec<String> {
    let lines = rig.lines.clone();
    rig.stop();
    lines.0.lock().expect("nothing fails here").clone()
}

#[test]
fn a_refused_connect_names_the_parameter() {
    let rig = Rig::new();
    let (_admin, cntlid) = Peer::admin(rig.address);
    let invalid = status::CONNECT_INVALID;
    let data = connect_data(0xffff);
    let named = |subnqn: &str, hostnqn: &str| ConnectData::new([1; 16], 0xffff, subnqn, hostnqn);
    let entry = |cdw10: u32, cdw11: u32| Sqe {
        cdw10,
        cdw11,
        ..connect(0)
    };

    assert_eq!(refused(&rig, entry(1, 31), &data).0, status::CONNECT_FORMAT);
    assert_eq!(refused(&rig, entry(0, 0), &data), (invalid, 44), "SQSIZE");
    assert_eq!(
        refused(&rig, entry(0, 1024), &data),
        (invalid, 44),
        "SQSIZE"
    );
    assert_eq!(
        refused(&rig, connect(0), &named("nqn.2026-11.test:other", HOSTNQN)),
        (invalid, IN_DATA | 256)
    );
    assert_eq!(
        refused(&rig, connect(0), &named(NQN, "none")),
        (invalid, IN_DATA | 512),
        "HOSTNQN"
    );
    assert_eq!(
        refused(&rig, connect(0), &connect_data(7)),
        (invalid, IN_DATA | 16),
        "CNTLID"
    );

    // I/O queues.
    assert_eq!(
        refused(&rig, connect(65), &connect_data(cntlid)),
        (invalid, 42),
        "QID"
    );
    assert_eq!(
        refused(&rig, connect(1), &connect_data(cntlid + 1)),
        (invalid, IN_DATA | 16),
        "CNTLID"
    );
    let other = ConnectData::new([1; 16], cntlid, NQN, "nqn.2026-11.test:another");
    assert_eq!(
        refused(&rig, connect(1), &other),
        (invalid, IN_DATA | 512),
        "another host's controller"
    );
    let _queue = Peer::io(rig.address, cntlid, 1, 0);
    assert_eq!(
        refused(&rig, connect(1), &connect_data(cntlid)).0,
        Status::SEQUENCE,
        "it is connected"
    );

    // The log tells which host requested what, and the reason of refusal.
    drop((_admin, _queue));
    let lines = logged(rig);
    let other =
        "refused: queue 0 of nqn.2026-11.test:other for nqn.2026-11.test:host: no such subsystem ";
    assert!(
        lines.iter().any(|line| line.starts_with(other)),
        "{lines:#?}"
    );
}

// The admin queue reaches the old process, and the I/O queue the new one, which knows no such controller.
#[test]
fn a_server_started_again_between_two_queues_looks_like_a_reset() {
    let (old, new) = (Rig::new(), Rig::new());
    let between = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = between.local_addr().expect("bound");
    let forwarder = std::thread::spawn(move || {
        for server in [old.address, new.address] {
            let (mut host, _) = between.accept().expect("a queue");
            let mut target = TcpStream::connect(server).expect("it listens");
            let copy = |stream: &TcpStream| stream.try_clone().expect("possible");
            let (mut from_host, mut to_target) = (copy(&host), copy(&target));
            std::thread::spawn(move || std::io::copy(&mut from_host, &mut to_target));
            std::thread::spawn(move || std::io::copy(&mut target, &mut host));
        }
        (old, new)
    });

    let options = Options {
        subnqn: Some(NQN.into()),
        ..Options::default()
    };
    let error = Client::connect(address, options).err();
    let Some(ClientError::Io(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    let (_, new) = forwarder.join().expect("two queues came");
    assert!(new.client().flush().is_ok(), "the next one connects");
}

#[test]
fn a_name_cannot_forge_a_line_of_the_log() {
    let rig = Rig::new();
    let forged = "nqn.2026-11.test:x\n127.0.0.1 queue 9 connected by nqn.friend\u{1b}[2J";
    let mut peer = Peer::open(rig.address, 0);
    let data = ConnectData::new([1; 16], 0xffff, NQN, forged);
    assert_eq!(
        peer.call(connect(0), data.as_bytes()).cqe.status(),
        Status::SUCCESS
    );
    drop(peer);
    let data = ConnectData::new([1; 16], 0xffff, forged, forged);
    assert_eq!(refused(&rig, connect(0), &data).0, status::CONNECT_INVALID);
    let lines = logged(rig);
    let about: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("nqn.2026-11.test:x"))
        .collect();
    assert!(
        about.iter().all(|line| !line.chars().any(char::is_control)),
        "{about:#?}"
    );
    for what in [
        "queue 0 connected by nqn.2026-11.test:x\\n127",
        "queue 0 of nqn.2026-11.test:x\\n127",
        "refused: ",
    ] {
        assert!(
            about.iter().any(|line| line.starts_with(what)),
            "{what}: {about:#?}"
        );
    }
    assert!(
        about.iter().any(|line| line.contains(" ended after ")),
        "its end has its name, too: {about:#?}"
    );
}

/// Numbers are assigned in order of acceptance, also to connections that never identify themselves.
#[test]
fn every_line_about_a_connection_has_its_number_and_its_host_once_that_is_known() {
    let rig = Rig::new();
    let (admin, cntlid) = Peer::admin(rig.address);
    let queue = Peer::io(rig.address, cntlid, 1, 0);
    let other = ConnectData::new([1; 16], 0xffff, "nqn.2026-11.test:other", HOSTNQN);
    assert_eq!(refused(&rig, connect(0), &other).0, status::CONNECT_INVALID);
    drop(Peer::open(rig.address, 0));
    drop((queue, admin));

    let lines = logged(rig);
    let label = |number: u32, host: &str| format!(" connection={number}{host}");
    let host = format!(" host={HOSTNQN}");
    for (text, label) in [
        ("queue 0 connected", label(1, &host)),
        ("queue 1 connected", label(2, &host)),
        ("refused: queue 0", label(3, &host)),
        ("ended without a queue", label(4, "")),
        ("queue 1 of", label(2, &host)),
        ("queue 0 of", label(1, &host)),
    ] {
        let is_it = |line: &&String| line.starts_with(text) && line.ends_with(&label);
        let found = lines.iter().filter(is_it).count();
        assert_eq!(found, 1, "`{text}` and `{label}` in {lines:#?}");
    }
    assert_eq!(lines.len(), 6, "there is no other line: {lines:#?}");
}

#[test]
fn a_flood_of_refusals_is_a_few_lines() {
    let rig = Rig::new();
    let data = ConnectData::new([1; 16], 0xffff, "nqn.2026-11.test:other", HOSTNQN);
    for _ in 0..60 {
        refused(&rig, connect(0), &data);
    }
    let count = logged(rig)
        .iter()
        .filter(|line| line.contains("refused"))
        .count();
    assert!((10..20).contains(&count), "{count}");
}

fn flush() -> Sqe {
    transport(entry(io::FLUSH, 1), 0)
}

#[test]
fn a_reset_takes_the_io_queues_and_they_can_be_connected_again() {
    let rig = Rig::new();
    let (mut admin_queue, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    assert!(queue.call(flush(), &[]).cqe.status().is_success());
    assert!(
        admin_queue
            .call(property_set(property::CC, 0), &[])
            .cqe
            .status()
            .is_success()
    );
    assert!(
        admin_queue
            .call(property_set(property::CC, enabled()), &[])
            .cqe
            .status()
            .is_success()
    );
    // The old queue ends, whether or not it sends anything.
    let mut again = Peer::io(rig.address, cntlid, 1, 0);
    assert!(queue.next().is_none(), "a queue from before the reset");
    drop(queue);
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        again.call(flush(), &[]).cqe.status().is_success(),
        "its end took nothing from the new one"
    );
    assert_eq!(
        refused(&rig, connect(1), &connect_data(cntlid)).0,
        Status::SEQUENCE
    );
}

#[test]
fn disconnect_ends_an_io_queue_and_no_other() {
    let rig = Rig::new();
    let (mut admin_queue, cntlid) = Peer::admin(rig.address);
    let disconnect = transport(entry(admin::FABRICS, fabrics::DISCONNECT.into()), 0);
    assert_eq!(
        admin_queue.call(disconnect, &[]).cqe.status(),
        status::QUEUE_TYPE
    );
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    assert_eq!(
        queue
            .call(
                Sqe {
                    cdw10: 1,
                    ..disconnect
                },
                &[]
            )
            .cqe
            .status(),
        status::CONNECT_FORMAT
    );
    assert_eq!(queue.call(disconnect, &[]).cqe.status(), Status::SUCCESS);
    assert!(queue.next().is_none(), "nothing comes after it");
    drop(queue);
    std::thread::sleep(Duration::from_millis(50));
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    assert!(queue.call(flush(), &[]).cqe.status().is_success());
    let id = admin_queue
        .call(
            transport(
                Sqe {
                    cdw10: 1,
                    ..entry(admin::IDENTIFY, 0)
                },
                4096,
            ),
            &[],
        )
        .data;
    assert_eq!(id[1804] & 1, 1, "OFCS says so");
}

#[test]
fn commands_need_sgls_and_data_where_these_say() {
    let rig = Rig::new();
    let (mut admin_queue, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    for psdt in [0, 2, 3] {
        let sqe = flush();
        let sqe = Sqe {
            cdw0: sqe.head().with_psdt(psdt).into_bits(),
            ..sqe
        };
        assert_eq!(
            queue.call(sqe, &[]).cqe.status(),
            Status::INVALID_FIELD,
            "PSDT {psdt}"
        );
        let sqe = transport(entry(admin::KEEP_ALIVE, 0), 0);
        let sqe = Sqe {
            cdw0: sqe.head().with_psdt(psdt).into_bits(),
            ..sqe
        };
        assert_eq!(
            admin_queue.call(sqe, &[]).cqe.status(),
            Status::INVALID_FIELD,
            "PSDT {psdt}"
        );
    }
    let mut write = entry(io::WRITE, 1);
    write.cdw12 = RwCdw12::new().with_nlb_z(0).into_bits();
    let mut elsewhere = in_capsule(write, 4096);
    elsewhere.sgl.address = 8;
    assert_eq!(
        queue.call(elsewhere, &[1; 4096]).cqe.status(),
        status::SGL_OFFSET
    );
    assert_eq!(
        queue.call(in_capsule(write, 8192), &[1; 4096]).cqe.status(),
        Status::DATA_TRANSFER
    );
    let mut read = in_capsule(entry(io::READ, 1), 4096);
    assert_eq!(
        queue.call(read, &[]).cqe.status(),
        status::SGL_TYPE,
        "data for the host are in no capsule of its"
    );
    read.sgl.identifier = 0x30;
    assert_eq!(queue.call(read, &[]).cqe.status(), status::SGL_TYPE);
    // Fabrics commands of the admin queue.
    assert!(
        !queue
            .call(property_get(property::VS, false), &[])
            .cqe
            .status()
            .is_success()
    );
}

#[test]
fn an_identifier_that_is_in_use_is_refused_until_it_is_free() {
    let rig = Rig::new();
    let (mut admin_queue, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    let status = |answer: Answer| answer.cqe.status();

    // A write waiting for its data.
    let mut write = entry(io::WRITE, 1);
    write.cdw12 = RwCdw12::new().with_nlb_z(0).into_bits();
    let bytes = queue.capsule(&with_cid(transport(write, 4096), 7), &[]);
    queue.send(&bytes);
    let asked = queue.asked();
    assert_eq!(
        status(queue.call(with_cid(flush(), 7), &[])),
        Status::ID_CONFLICT
    );
    assert_eq!(
        status(queue.call(with_cid(flush(), 8), &[])),
        Status::SUCCESS
    );
    let bytes = queue.h2c(&asked, &[5; 4096], true);
    queue.send(&bytes);
    assert_eq!(status(queue.answer()), Status::SUCCESS);
    assert_eq!(
        status(queue.call(with_cid(flush(), 7), &[])),
        Status::SUCCESS
    );

    // A waiting asynchronous event request.
    let event = with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), 9);
    let bytes = admin_queue.capsule(&event, &[]);
    admin_queue.send(&bytes);
    assert_eq!(status(admin_queue.call(event, &[])), Status::ID_CONFLICT);
    let alive = transport(entry(admin::KEEP_ALIVE, 0), 0);
    assert_eq!(
        status(admin_queue.call(with_cid(alive, 9), &[])),
        Status::ID_CONFLICT
    );
    assert_eq!(
        status(admin_queue.call(with_cid(alive, 10), &[])),
        Status::SUCCESS
    );
}

#[test]
fn a_queue_takes_as_many_commands_as_it_has_entries() {
    let rig = Rig::new();
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    let mut write = entry(io::WRITE, 1);
    write.cdw12 = RwCdw12::new().with_nlb_z(0).into_bits();
    for cid in 0..32 {
        let bytes = queue.capsule(&with_cid(transport(write, 4096), cid), &[]);
        queue.send(&bytes);
        assert_eq!(queue.asked().cid, cid);
    }
    let bytes = queue.capsule(&with_cid(flush(), 32), &[]);
    queue.send(&bytes);
    let last = queue.next().expect("a termination request");
    assert_eq!(
        (last.common.kind, last.header[0]),
        (3, 2),
        "a PDU out of sequence"
    );
    assert!(queue.next().is_none());
}

fn subsystem() -> Arc<Subsystem> {
    let device = kit::device(32 << 20, false);
    Arc::new(kit::subsystem(device, &[]))
}

#[test]
fn what_a_queue_read_before_it_waited_makes_its_host_no_more_silent() {
    const SECOND: u64 = 1_000_000_000;
    let sqe = Sqe {
        cdw12: 2000,
        ..connect(0)
    };
    let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
    let connected = Association::connect(&subsystem(), &sqe, &connect_data(0xffff), address, 0);
    let (association, _) = connected.expect("a keep-alive time of 2 s");

    // The admin queue is heard at 10 s; a command of an I/O queue was read at 1 s, but completes
    // only now.
    association.heard(10 * SECOND);
    association.heard(SECOND);
    assert!(!association.is_silent(11 * SECOND));
    assert!(association.is_silent(13 * SECOND));
}

#[test]
fn numbers_of_controllers_are_not_given_twice() {
    let subsystem = subsystem();
    let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
    let data = connect_data(0xffff);
    let connect = || {
        Association::connect(&subsystem, &connect(0), &data, address, 0)
            .expect("there is a number")
            .0
    };
    // Once around; IDs still in use are skipped.
    let kept: Vec<_> = (0..3).map(|_| connect()).collect();
    for _ in 0..70_000 {
        let other = connect().cntlid();
        assert!(
            (1..0xfff0).contains(&other) && kept.iter().all(|kept| kept.cntlid() != other),
            "{other}"
        );
    }
}

/// A server at `listen` for hosts at 127.0.0.1, with its log.
fn for_ipv4_hosts(
    listen: &str,
    hosts: &[&str],
) -> Option<(SocketAddr, Stopper, JoinHandle<()>, Lines)> {
    let device = kit::device(32 << 20, false);
    let subsystem = kit::subsystem(device, &[]);
    let addresses = hosts
        .iter()
        .map(|host| Who::Address(host.parse().expect("an address")).into())
        .collect();
    let port = Port::new(
        Arc::new(subsystem),
        Allowed {
            hosts: addresses,
            anybody: false,
        },
    );
    let lines = Lines::default();
    let server = Server::bind(
        listen.parse().expect("an address"),
        port,
        Box::new(lines.clone()),
    )
    .ok()?;
    let (address, stopper) = (
        server.address().expect("bound"),
        server.stopper().expect("bound"),
    );
    let thread = std::thread::spawn(|| server.run().expect("the device works"));
    Some((
        SocketAddr::from(([127, 0, 0, 1], address.port())),
        stopper,
        thread,
        lines,
    ))
}

#[test]
fn a_host_of_ipv4_is_known_behind_a_socket_of_ipv6_and_a_stranger_is_logged() {
    for hosts in [&["127.0.0.1"], &["::ffff:127.0.0.1"]] {
        // Without IPv6 there is no such socket.
        let Some((address, stopper, thread, _)) = for_ipv4_hosts("[::]:0", hosts) else {
            return;
        };
        let client = Client::connect(address, Options::default()).expect("it is on the list");
        assert_eq!(client.subnqn(), NQN);
        // Discovery reports the address by which this host reached it.
        let mut peer = Peer::open(address, 0);
        let data = ConnectData::new([1; 16], 0xffff, DISCOVERY_NQN, HOSTNQN);
        assert!(
            peer.call(connect(0), data.as_bytes())
                .cqe
                .status()
                .is_success()
        );
        assert!(
            peer.call(property_set(property::CC, enabled()), &[])
                .cqe
                .status()
                .is_success()
        );
        let log = Sqe {
            cdw10: 0x70 | 511 << 16,
            ..entry(admin::GET_LOG_PAGE, 0)
        };
        let page = peer.call(transport(log, 2048), &[]).data;
        let record = DiscoveryEntry::read_from_bytes(&page[1024..2048]).expect("a record");
        assert_eq!(
            (record.adrfam, &record.traddr[..10]),
            (1, &b"127.0.0.1\0"[..])
        );
        drop((client, peer));
        stopper.stop();
        thread.join().expect("no panic");
    }
    let (address, stopper, thread, lines) =
        for_ipv4_hosts("127.0.0.1:0", &["192.0.2.1"]).expect("a free port");
    assert!(
        Client::connect(address, Options::default()).is_err(),
        "it is not on the list"
    );
    stopper.stop();
    thread.join().expect("no panic");
    let lines = lines.0.lock().expect("nothing fails here").clone();
    assert!(
        lines
            .iter()
            .any(|line| line == "refused: this address is not allowed connection=1"),
        "{lines:#?}"
    );
}

#[test]
fn a_connection_past_the_limit_is_logged() {
    let limits = Limits {
        connected: 1,
        ..Limits::default()
    };
    let rig = Rig::limited(limits);
    let (first, _) = Peer::admin(rig.address);
    let mut second = Peer::open(rig.address, 0);
    let refused = second
        .call(
            connect(0),
            ConnectData::new([1; 16], 0xffff, NQN, HOSTNQN).as_bytes(),
        )
        .cqe;
    assert_eq!(refused.status(), status::CONNECT_BUSY);
    drop(first);
    let lines = logged(rig);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("the server has all the connections that it takes")),
        "{lines:#?}"
    );
}

#[test]
fn a_controller_of_version_2_says_when_it_is_ready() {
    let rig = Rig::new();
    let (mut admin_queue, _) = Peer::admin(rig.address);
    let mut property = |offset, wide| {
        let answer = admin_queue.call(property_get(offset, wide), &[]);
        assert!(answer.cqe.status().is_success());
        answer.cqe.result
    };
    assert_eq!(property(property::VS, false), 0x0002_0000);
    let cap = property(property::CAP, true);
    assert_eq!(cap >> 59 & 3, 1, "CRMS: with media");
    let crto = property(property::CRTO, false);
    assert!(
        crto & 0xffff >= cap >> 24 & 0xff,
        "CRTO.CRWMT is not less than CAP.TO"
    );
}
