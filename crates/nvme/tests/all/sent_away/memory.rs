//! A read that waits for memory when its host is sent away.

use crate::kit::raw::{Peer, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::property;
use crate::kit::{self, Rig, Setup, allowed, device};
use crate::sent_away::{GUEST, OWNER, PAGE, detach, read};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::pdu::kind;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use remap_ssd_nvme::tcp::server::Limits;
use std::net::Shutdown;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const TAKERS: [&str; 2] = ["nqn.2026-11.test:one", "nqn.2026-11.test:two"];
const LISTED: [(&str, &str); 4] = [
    (OWNER, "all:rw"),
    (TAKERS[0], "all:rw"),
    (TAKERS[1], "all:rw"),
    (GUEST, "all:rw"),
];

struct Case {
    rig: Rig,
    admin: Option<Peer>,
    guest: Peer,
    takers: Vec<Peer>,
}

impl Case {
    /// The guest's read waits for memory, all of which two other hosts have taken.
    fn new() -> Self {
        let device = device(32 << 20, false);
        let subsystem = kit::subsystem(device, &[]);
        let limits = Limits {
            memory_bytes: 16 * MIB,
            // None of the reads waits in vain for so long.
            memory_within: Duration::from_secs(3600),
            ..Limits::default()
        };
        let rig = Setup::of(subsystem).hosts(&LISTED).limits(limits).start();
        let host = |name: &str| {
            let (admin, cntlid) = Peer::admin_of(rig.address, name);
            (admin, Peer::io_of(rig.address, name, cntlid, 1, 0))
        };

        let (admin, mut guest) = host(GUEST);
        let mut takers = Vec::new();
        for name in TAKERS {
            let (admin, mut queue) = host(name);
            takers.push(admin);
            send_and_flush(&mut queue, 8, io::COMPARE);
            takers.push(queue);
        }
        send_and_flush(&mut guest, 1, io::READ);
        assert_eq!(rig.port.waiting_for_memory(), 3);

        Self {
            rig,
            admin: Some(admin),
            guest,
            takers,
        }
    }

    /// Waits until the guest waits no more.
    fn await_its_end(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.rig.port.waiting_for_memory() > 2 {
            assert!(Instant::now() < until, "the guest waits on");
            std::thread::yield_now();
        }
    }

    fn send_away(&mut self, verb: &str) {
        let rig = &self.rig;
        match verb {
            "reset" => {
                let admin = self.admin.as_mut().expect("it is connected");
                let done = admin.call(property_set(property::CC, 0), &[]).cqe;
                assert_eq!(done.status(), Status::SUCCESS);
            }
            "drop" => assert_eq!(rig.roster.drop_hosts(Some(GUEST)), 2),
            "admin ends" => {
                let mut admin = self.admin.take().expect("it is connected");
                admin.stream.shutdown(Shutdown::Write).expect("connected");
                assert!(admin.next().is_none(), "the other end ends too");
            }
            "unlisted" => {
                rig.port.replace_allowed(allowed(&LISTED[..3]));
                rig.port.renew_rights();
            }
            "power cut" => {
                rig.roster.drop_hosts(None);
                rig.subsystem.power_cut_of_all(1).expect("it recovers");
            }
            "disconnect" => {
                let sqe = with_cid(crate::sent_away::disconnect(), 40);
                let done = self.guest.call(sqe, &[]).cqe;
                assert_eq!((done.cid, done.status()), (40, Status::SUCCESS));
            }
            verb => panic!("{verb}"),
        }
    }
}

/// Sends commands of 1 MiB, and waits until the server has looked at all of them: it answers a Flush
/// that comes after them, which needs no memory.
fn send_and_flush(queue: &mut Peer, count: u16, opcode: u8) {
    for cid in 0..count {
        let mut sqe = with_cid(transport(read(0, MIB / PAGE), MIB as u32), cid);
        sqe.cdw0 = sqe.cdw0 & !0xff | u32::from(opcode);
        let bytes = queue.capsule(&sqe, &[]);
        queue.send(&bytes);
    }
    let flush = with_cid(transport(entry(io::FLUSH, 1), 0), count);
    let bytes = queue.capsule(&flush, &[]);
    queue.send(&bytes);
    while queue.next().expect("an answer").common.kind != kind::CAPSULE_RESP {}
}

#[test]
fn a_read_that_waits_for_memory_ends_without_an_answer_when_its_host_is_sent_away() {
    for verb in [
        "reset",
        "drop",
        "admin ends",
        "unlisted",
        "power cut",
        "disconnect",
    ] {
        let mut case = Case::new();
        let before = case.rig.subsystem.health().sectors_read;
        case.send_away(verb);

        // There is memory again, and the read is executed no more.
        case.takers.clear();
        assert!(case.guest.next().is_none(), "{verb}");
        case.await_its_end();
        let read = case.rig.subsystem.health().sectors_read;
        assert_eq!(read, before, "{verb}");
        case.rig.stop();
    }
}

#[test]
fn a_host_that_leaves_while_its_read_waits_for_memory_leaves_its_place_too() {
    let case = Case::new();
    case.guest
        .stream
        .shutdown(Shutdown::Both)
        .expect("connected");
    case.await_its_end();
    case.rig.stop();
}

#[test]
fn a_service_that_ends_does_not_wait_for_memory() {
    let mut case = Case::new();
    case.rig.stop();
    assert!(case.guest.next().is_none());
}

#[test]
fn a_read_that_got_memory_after_its_host_lost_the_namespace_fails() {
    let mut case = Case::new();
    let (mut owner, _) = Peer::admin_of(case.rig.address, OWNER);
    let listed = case.rig.roster.list();
    let guest = listed.iter().find(|one| one.hostnqn == GUEST);
    let (sqe, list) = detach(guest.expect("it is connected").cntlid);
    let done = owner.call(in_capsule(sqe, list.len() as u32), &list).cqe;
    assert_eq!(done.status(), Status::SUCCESS);

    case.takers.clear();
    let answer = case.guest.answer();
    assert_eq!(answer.cqe.status(), Status::INVALID_NAMESPACE);
    assert!(answer.data.is_empty());
    case.rig.stop();
}
