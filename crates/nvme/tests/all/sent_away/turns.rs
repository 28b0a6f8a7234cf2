//! Commands that wait for the device itself, for their turn or between two slices, when their host
//! is sent away.

use crate::kit::raw::{Peer, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::property;
use crate::kit::{self, Rig, Setup, allowed, device};
use crate::sent_away::line::data_for;
use crate::sent_away::shut_down::shut_down;
use crate::sent_away::{GUEST, HOSTS, OWNER, PAGE, detach, disconnect, read, write};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, Sqe};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use std::net::Shutdown;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const VERBS: [&str; 5] = ["reset", "drop", "admin ends", "unlisted", "power cut"];

/// Pages of the copy, and of the writes that fill its source.
const PAGES: u32 = 4096;
const STEP: usize = 32;
/// The page that is copied last: a copy to higher blocks of its own namespace begins at its end.
const LAST_COPIED: u32 = PAGES;

/// Waits until this number of threads wait for the device, which this one holds.
fn await_waiting(rig: &Rig, count: usize) {
    await_waiting_while(rig, count, || true);
}

/// Waits until a verb waits for the device, after the guest's command. Until then it must not be
/// acknowledged: the command may be executed still.
fn await_verb<T>(rig: &Rig, away: &ScopedJoinHandle<'_, T>) {
    await_waiting_while(rig, 2, || !away.is_finished());
}

fn await_waiting_while(rig: &Rig, count: usize, is_unacknowledged: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while rig.subsystem.waiting() < count {
        assert!(
            is_unacknowledged(),
            "it is acknowledged while a command may be executed"
        );
        assert!(
            Instant::now() < until,
            "{count} threads wait for the device"
        );
        std::thread::yield_now();
    }
}

fn rig() -> Rig {
    let device = device(64 << 20, false);
    Setup::of(kit::subsystem(device, &[])).hosts(&HOSTS).start()
}

/// Sends the guest away; it is acknowledged when this returns.
fn send_away(rig: &Rig, verb: &str, mut admin: Peer) -> Option<Peer> {
    match verb {
        "reset" => {
            let done = admin.call(property_set(property::CC, 0), &[]).cqe;
            assert_eq!(done.status(), Status::SUCCESS);
        }
        "drop" => assert_eq!(rig.roster.drop_hosts(Some(GUEST)), 2),
        "admin ends" => {
            let ended = admin.stream.shutdown(Shutdown::Write);
            ended.expect("it is connected");
            assert!(admin.next().is_none(), "the other end ends too");
        }
        "unlisted" => {
            rig.port.replace_allowed(allowed(&HOSTS[..1]));
            rig.port.renew_rights();
        }
        "power cut" => {
            rig.roster.drop_hosts(None);
            rig.subsystem.power_cut_of_all(1).expect("it recovers");
        }
        "read only" => {
            rig.port
                .replace_allowed(allowed(&[HOSTS[0], (GUEST, "all:ro")]));
            rig.port.renew_rights();
        }
        "detached" => {
            let (mut owner, _) = Peer::admin_of(rig.address, OWNER);
            let listed = rig.roster.list();
            let guest = listed.iter().find(|one| one.hostnqn == GUEST);
            let (sqe, list) = detach(guest.expect("it is connected").cntlid);
            let done = owner.call(in_capsule(sqe, list.len() as u32), &list).cqe;
            assert_eq!(done.status(), Status::SUCCESS);
        }
        "shut down" => {
            let done = admin.call(property_set(property::CC, shut_down()), &[]).cqe;
            assert_eq!(done.status(), Status::SUCCESS);
        }
        verb => panic!("{verb}"),
    }
    Some(admin)
}

/// A host by an I/O queue.
fn host(rig: &Rig, name: &str) -> (Peer, Peer) {
    let (admin, cntlid) = Peer::admin_of(rig.address, name);
    let queue = Peer::io_of(rig.address, name, cntlid, 1, 0);
    (admin, queue)
}

#[test]
fn a_write_that_waits_for_its_turn_while_its_host_is_sent_away_is_not_executed() {
    for verb in VERBS {
        let rig = rig();
        let (admin, mut guest) = host(&rig, GUEST);

        // The write waits for the device, and then the verb does.
        let held = rig.subsystem.device();
        let bytes = guest.capsule(&in_capsule(write(8, 1, false), PAGE as u32), &[1; PAGE]);
        guest.send(&bytes);
        await_waiting(&rig, 1);
        std::thread::scope(|scope| {
            let away = scope.spawn(|| send_away(&rig, verb, admin));
            await_verb(&rig, &away);
            drop(held);
            away.join().expect("no panic")
        });

        assert!(
            guest.next().is_none(),
            "{verb}: its queue ends without an answer"
        );
        page_was_not_written(rig, 8, verb);
    }
}

/// The queue's own end: what comes after Disconnect on its connection is not executed.
#[test]
fn a_write_that_goes_on_after_its_queue_was_disconnected_is_not_executed() {
    let whole = |guest: &mut Peer| {
        let data = [1; 2 * PAGE];
        guest.capsule(&in_capsule(write(8, 2, false), data.len() as u32), &data)
    };
    let all_data = |guest: &mut Peer| {
        let sqe = with_cid(transport(write(8, 2, false), 2 * PAGE as u32), 7);
        let bytes = guest.capsule(&sqe, &[]);
        guest.send(&bytes);
        let asked = guest.asked();
        data_for(&asked, 0, &[1; 2 * PAGE], true)
    };
    let rest = |guest: &mut Peer| {
        let sqe = with_cid(transport(write(7, 2, false), 2 * PAGE as u32), 7);
        let bytes = guest.capsule(&sqe, &[]);
        guest.send(&bytes);
        let asked = guest.asked();
        guest.send(&data_for(&asked, 0, &[0; PAGE], false));
        data_for(&asked, PAGE, &[1; PAGE], true)
    };

    type Begin = fn(&mut Peer) -> Vec<u8>;
    let ways: [(&str, Begin); 3] = [("whole", whole), ("all data", all_data), ("rest", rest)];
    for (what, begin) in ways {
        let rig = rig();
        let (_admin, mut guest) = host(&rig, GUEST);
        let left = begin(&mut guest);
        // In one piece: the server has it when it looks at the Disconnect.
        let disconnect = guest.capsule(&with_cid(disconnect(), 40), &[]);
        guest.send(&[disconnect, left].concat());
        let done = guest.answer().cqe;
        assert_eq!((done.cid, done.status()), (40, Status::SUCCESS), "{what}");
        assert!(guest.next().is_none(), "{what}");

        page_was_not_written(rig, 8, what);
    }
}

#[test]
fn a_write_that_waits_for_its_turn_while_its_controller_is_shut_down_fails() {
    let rig = rig();
    let (admin, mut guest) = host(&rig, GUEST);
    let held = rig.subsystem.device();
    let bytes = guest.capsule(&in_capsule(write(8, 1, false), PAGE as u32), &[1; PAGE]);
    guest.send(&bytes);
    await_waiting(&rig, 1);
    let _admin_of_guest = std::thread::scope(|scope| {
        let away = scope.spawn(|| send_away(&rig, "shut down", admin));
        await_verb(&rig, &away);
        drop(held);
        away.join().expect("no panic")
    });

    assert_eq!(guest.answer().cqe.status(), Status::SEQUENCE);
    page_was_not_written(rig, 8, "shut down");
}

#[test]
fn a_long_command_ends_at_its_next_pause_when_its_host_is_sent_away() {
    for verb in VERBS {
        let (rig, mut guest, _admin) = away_in_the_middle_of_a_copy(verb);
        assert!(
            guest.next().is_none(),
            "{verb}: its queue ends without an answer"
        );
        page_was_not_written(rig, LAST_COPIED, verb);
    }
}

#[test]
fn a_long_command_fails_at_its_next_pause_when_its_host_loses_the_namespace_or_the_right() {
    for (verb, status) in [
        ("read only", Status::WRITE_PROTECTED),
        ("detached", Status::INVALID_NAMESPACE),
        ("shut down", Status::SEQUENCE),
    ] {
        let (rig, mut guest, _admin) = away_in_the_middle_of_a_copy(verb);
        assert_eq!(guest.answer().cqe.status(), status, "{verb}");
        page_was_not_written(rig, LAST_COPIED, verb);
    }
}

/// The end of the test: another host reads zeroes.
fn page_was_not_written(rig: Rig, page: u32, what: &str) {
    let (_admin, mut owner) = host(&rig, OWNER);
    let answer = owner.call(transport(read(page, 1), PAGE as u32), &[]);
    assert!(answer.data == [0; PAGE], "{what}: page {page}");
    rig.stop();
}

/// A host copies 16 MiB, and is sent away at the copy's first pause. Its admin connection, if it has
/// not ended, stays open: with it the queue would end.
fn away_in_the_middle_of_a_copy(verb: &'static str) -> (Rig, Peer, Option<Peer>) {
    let rig = rig();
    let (admin, mut guest) = host(&rig, GUEST);
    for slba in (0..PAGES).step_by(STEP) {
        let sqe = in_capsule(write(slba, STEP, false), (STEP * PAGE) as u32);
        let done = guest.call(sqe, &[1; STEP * PAGE]).cqe;
        assert_eq!(done.status(), Status::SUCCESS);
    }

    // After a short command its next one waits among those that came last, and not after them.
    let done = guest.call(transport(read(0, 1), PAGE as u32), &[]).cqe;
    assert_eq!(done.status(), Status::SUCCESS);

    // A copy of 16 MiB waits for the device, and after it another one does.
    let held = rig.subsystem.device();
    let range = CopyRange::new(0, (PAGES - 1) as u16);
    let sqe = Sqe {
        cdw10: PAGES,
        cdw12: CopyCdw12::new().into_bits(),
        ..entry(io::COPY, 1)
    };
    let range = range.as_bytes();
    let bytes = guest.capsule(&in_capsule(sqe, range.len() as u32), range);
    guest.send(&bytes);
    await_waiting(&rig, 1);

    let admin = std::thread::scope(|scope| {
        let rig = &rig;
        // It gets the device at the copy's first pause, and keeps it until the verb waits.
        let other = scope.spawn(move || {
            let held = rig.subsystem.device();
            let written = held.ftl().stats().host_writes;
            assert!(written > u64::from(PAGES), "the copy has begun");
            let away = scope.spawn(move || send_away(rig, verb, admin));
            await_verb(rig, &away);
            drop(held);
            away.join().expect("no panic")
        });
        await_waiting(rig, 2);
        drop(held);
        other.join().expect("no panic")
    });
    (rig, guest, admin)
}
