//! A queue that is busy when its host is sent away: 64 KiB writes, 32 at once.
//!
//! `SENT_AWAY_ROUNDS` says how many rounds there are of each (3 unless it is set).

use crate::kit::raw::{Peer, connect, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::property;
use crate::kit::{self, NQN, Rig, Setup, allowed, device};
use crate::sent_away::{GUEST, HOSTS, write};
use remap_ssd_nvme::spec::command::Cqe;
use remap_ssd_nvme::spec::fabrics::ConnectData;
use remap_ssd_nvme::spec::pdu::{Data, kind};
use remap_ssd_nvme::spec::status::Status;
use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const DEPTH: u16 = 32;
const PAGES: usize = 16;
const BYTES: usize = 64 << 10;

fn rounds() -> usize {
    let given = std::env::var("SENT_AWAY_ROUNDS").ok();
    given.map_or(3, |given| given.parse().expect("a number"))
}

fn rig() -> Rig {
    let device = device(64 << 20, false);
    Setup::of(kit::subsystem(device, &[])).hosts(&HOSTS).start()
}

/// An I/O queue with room for all of the commands.
fn queue(rig: &Rig, cntlid: u16) -> Peer {
    let mut peer = Peer::open(rig.address, 0);
    let mut sqe = connect(1);
    sqe.cdw11 = sqe.cdw11 & !0xffff | u32::from(2 * DEPTH);
    let data = ConnectData::new([1; 16], cntlid, NQN, GUEST);
    let answer = peer.call(sqe, data.as_bytes());
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    peer
}

/// Writes as long as the connection lives, by data in capsules or by data that are asked for.
fn write_on(peer: &mut Peer, asked_for: bool) {
    let data = vec![1; BYTES];
    let begin = |peer: &mut Peer, cid: u16| {
        let sqe = with_cid(write(u32::from(cid) * PAGES as u32, PAGES, false), cid);
        let bytes = if asked_for {
            peer.capsule(&transport(sqe, BYTES as u32), &[])
        } else {
            peer.capsule(&in_capsule(sqe, BYTES as u32), &data)
        };
        peer.stream.write_all(&bytes)
    };

    for cid in 0..DEPTH {
        if begin(peer, cid).is_err() {
            return;
        }
    }
    while let Some(arrived) = peer.next() {
        let sent = match arrived.common.kind {
            kind::R2T => {
                let header = Data::read_from_bytes(&arrived.header).expect("a header");
                let bytes = peer.h2c(&header, &data, true);
                peer.stream.write_all(&bytes)
            }
            kind::CAPSULE_RESP => {
                let cqe = Cqe::read_from_bytes(&arrived.header).expect("a header");
                assert_eq!(cqe.status(), Status::SUCCESS);
                begin(peer, cqe.cid)
            }
            other => panic!("a PDU of type {other:#x}"),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// One round; `away` sends the guest away, and has the acknowledgement when it returns.
fn round(rig: &Rig, asked_for: bool, away: impl FnOnce(&Rig, Peer) -> Option<Peer>) {
    // Threads of the round before may still be about to leave the list.
    while rig.roster.list().iter().any(|one| one.hostnqn == GUEST) {
        std::thread::yield_now();
    }
    let (admin, cntlid) = Peer::admin_of(rig.address, GUEST);
    let mut io = queue(rig, cntlid);
    let written = || rig.subsystem.health().sectors_written;

    std::thread::scope(|scope| {
        let before = written();
        let writer = scope.spawn(move || write_on(&mut io, asked_for));
        let until = Instant::now() + Duration::from_secs(120);
        while written() - before < (DEPTH as u64) * (BYTES as u64 / 512) {
            assert!(Instant::now() < until, "it is busy");
            std::thread::yield_now();
        }

        let _admin = away(rig, admin);
        let acknowledged = written();
        writer.join().expect("no panic");
        assert_eq!(written(), acknowledged, "sectors written afterwards");
    });
}

fn rounds_of(away: impl Fn(&Rig, Peer) -> Option<Peer>) {
    let rig = rig();
    for _ in 0..rounds() {
        for asked_for in [false, true] {
            rig.port.replace_allowed(allowed(&HOSTS));
            round(&rig, asked_for, &away);
        }
    }
}

#[test]
fn a_busy_queue_writes_nothing_after_its_controller_was_reset() {
    rounds_of(|_, mut admin| {
        let done = admin.call(property_set(property::CC, 0), &[]).cqe;
        assert_eq!(done.status(), Status::SUCCESS);
        Some(admin)
    });
}

#[test]
fn a_busy_queue_writes_nothing_after_its_host_was_dropped() {
    rounds_of(|rig, admin| {
        assert_eq!(rig.roster.drop_hosts(Some(GUEST)), 2);
        Some(admin)
    });
}

#[test]
fn a_busy_queue_writes_nothing_after_its_host_has_lost_its_line() {
    rounds_of(|rig, admin| {
        rig.port.replace_allowed(allowed(&HOSTS[..1]));
        assert_eq!(rig.port.renew_rights(), [GUEST.to_owned()].into());
        Some(admin)
    });
}

#[test]
fn a_busy_queue_writes_nothing_after_its_admin_connection_has_ended() {
    rounds_of(|_, mut admin| {
        let ended = admin.stream.shutdown(Shutdown::Write);
        ended.expect("it is connected");
        assert!(admin.next().is_none(), "the other end ends too");
        None
    });
}

#[test]
fn a_busy_queue_writes_nothing_after_the_power_was_cut() {
    rounds_of(|rig, admin| {
        rig.roster.drop_hosts(None);
        rig.subsystem.power_cut_of_all(1).expect("it recovers");
        Some(admin)
    });
}
