//! Reservations: hosts over real sockets, one of which keeps the others out.

mod kit;

use kit::raw::{self, Peer, enabled, in_capsule, property_set, transport, with_cid};
use kit::{NQN, Rig, device};
use remap_ssd_nvme::controller::{
    AllReservations, Health, Latency, NamespaceSpec, REGISTRANTS_MAX, ReservationStore, Subsystem,
};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, DsmRange, Sqe};
use remap_ssd_nvme::spec::fabrics::{ConnectData, property};
use remap_ssd_nvme::spec::identify::oncs;
use remap_ssd_nvme::spec::log::lid;
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

/// A host with a name of its own.
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
    Rig::with(device(32 << 20, false), &[spec; 2], Latency::None)
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

/// Generation, type, whether it persists, and registrants: their keys, and whether they hold it.
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

/// A command, the data that go with it, and how many bytes it answers with.
type Sent = (Sqe, Vec<u8>, usize);

/// All commands that touch data, with what they send and receive; reads first.
fn commands() -> (Vec<Sent>, Vec<Sent>) {
    let sqe = |opcode: u8, cdw12: u32| Sqe {
        cdw12,
        ..entry(opcode, 1)
    };
    let page = vec![0x5a; PAGE];
    let mut map = sqe(io::FS_MAP, 1);
    map.cdw10 = 1;
    let reads = vec![
        (sqe(io::READ, 0), vec![], PAGE),
        (sqe(io::COMPARE, 0), page.clone(), 0),
        (sqe(io::VERIFY, 0), vec![], 0),
        (map, vec![], 8),
    ];

    let mut trim = sqe(io::DATASET_MANAGEMENT, 0);
    trim.cdw11 = 4;
    let range = DsmRange {
        blocks: 1,
        ..DsmRange::default()
    };
    let copied = CopyRange::new(5, 0).as_bytes().to_vec();
    let mut remap = sqe(io::REMAP, 0);
    remap.cdw14 = 5;

    let writes = vec![
        (sqe(io::WRITE, 0), page.clone(), 0),
        (sqe(io::WRITE_ZEROES, 0), vec![], 0),
        (trim, range.as_bytes().to_vec(), 0),
        (sqe(io::COPY, 0), copied, 0),
        (remap, vec![], 0),
        (sqe(io::FS_WRITE, 0), page, 0),
        (sqe(io::FS_RESET, 0), vec![], 0),
        (sqe(io::FLUSH, 0), vec![], 0),
        (
            Sqe {
                nsid: u32::MAX,
                ..sqe(io::FLUSH, 0)
            },
            vec![],
            0,
        ),
    ];
    (reads, writes)
}

fn conflicts(client: &mut Client, commands: &[(Sqe, Vec<u8>, usize)]) -> Vec<bool> {
    let status = commands
        .iter()
        .map(|(sqe, send, receive)| ask(client, *sqe, send, *receive).status);
    status.map(|status| status == CONFLICT).collect()
}

#[test]
fn each_type_of_reservation_keeps_out_whom_it_must_from_every_command() {
    let rig = halves();
    let [mut holder, mut registrant, mut stranger] =
        ["holder", "registrant", "stranger"].map(|of| host(&rig, of));
    assert!(holder.controller().oncs & oncs::RESERVATIONS != 0);
    assert_eq!(holder.namespace().rescap, 0xff);
    let (reads, writes) = commands();

    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(register(&mut registrant, 0, 0, 2), SUCCESS);
    for kind in 1..=6 {
        assert_eq!(acquire(&mut holder, 0, kind, 1, 0), SUCCESS, "type {kind}");
        holder.write(0, &[kind; PAGE]).expect("it holds it");

        // Base 2.0 §8.19: types 2, 4 and 6 exclude reads; from 3 on registrants do what the holder
        // does.
        let (excludes_reads, for_registrants) = (kind % 2 == 0, kind >= 3);
        let cases = [
            (&mut stranger, excludes_reads, true),
            (
                &mut registrant,
                excludes_reads && !for_registrants,
                !for_registrants,
            ),
        ];
        for (client, no_reads, no_writes) in cases {
            assert_eq!(
                conflicts(client, &reads),
                vec![no_reads; reads.len()],
                "type {kind}"
            );
            if no_writes {
                assert_eq!(
                    conflicts(client, &writes),
                    vec![true; writes.len()],
                    "type {kind}"
                );
                assert_eq!(holder.read(0, 1).expect("it may"), [kind; PAGE]);
            }
        }
        if for_registrants {
            assert_eq!(
                conflicts(&mut registrant, &writes),
                vec![false; writes.len()]
            );
        }
        assert_eq!(conflicts(&mut holder, &reads), vec![false; reads.len()]);
        assert_eq!(conflicts(&mut holder, &writes), vec![false; writes.len()]);

        assert_eq!(release(&mut holder, 0, kind, 1), SUCCESS);
        assert_eq!(conflicts(&mut stranger, &writes), vec![false; writes.len()]);
    }
    drop((holder, registrant, stranger));
    rig.stop();
}

#[test]
fn a_copy_reads_its_source_only_with_the_right_to() {
    let rig = halves();
    let [mut holder, mut other] = ["holder", "other"].map(|of| host(&rig, of));
    holder.write(3, &[7; PAGE]).expect("nobody has reserved it");
    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut holder, 0, 2, 1, 0), SUCCESS);

    // From namespace 1, which is reserved, to namespace 2, which is not: the second of two ranges.
    let ranges = [
        CopyRange::new(0, 0).of_namespace(2),
        CopyRange::new(3, 0).of_namespace(1),
    ];
    let sqe = Sqe {
        cdw10: 9,
        cdw12: CopyCdw12::new().with_nr_z(1).with_format(2).into_bits(),
        ..entry(io::COPY, 2)
    };
    assert_eq!(ask(&mut other, sqe, ranges.as_bytes(), 0).status, CONFLICT);
    assert_eq!(ask(&mut holder, sqe, ranges.as_bytes(), 0).status, SUCCESS);

    // The types that exclude writes alone let it be read.
    assert_eq!(acquire(&mut holder, 1, 1, 1, 1), SUCCESS);
    assert_eq!(ask(&mut other, sqe, ranges.as_bytes(), 0).status, SUCCESS);
    drop((holder, other));
    rig.stop();
}

#[test]
fn what_all_namespaces_share_is_changed_only_where_none_is_reserved() {
    let rig = halves();
    let [mut holder, mut other] = ["holder", "other"].map(|of| host(&rig, of));
    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut holder, 0, 1, 1, 0), SUCCESS);
    // By way of the other namespace: the map of files is the whole device's.
    let reset = entry(io::FS_RESET, 2);
    assert_eq!(ask(&mut other, reset, &[], 0).status, CONFLICT);
    let write = entry(io::WRITE, 2);
    assert_eq!(ask(&mut other, write, &[1; PAGE], 0).status, SUCCESS);
    drop((holder, other));
    rig.stop();
}

#[test]
fn keys_are_registered_replaced_and_taken_back_as_the_specification_says() {
    let rig = halves();
    let [mut a, mut b] = ["a", "b"].map(|of| host(&rig, of));
    assert_eq!(report(&mut a), (0, 0, 0, vec![]));

    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    // The same key again is no mistake, another one is.
    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 11), CONFLICT);
    assert_eq!(report(&mut b), (2, 0, 0, vec![(10, 0)]));

    // Replace: with the right key, or whatever it is (IEKEY), even if there is none.
    assert_eq!(register(&mut a, 2, 9, 12), CONFLICT);
    assert_eq!(register(&mut a, 2, 10, 12), SUCCESS);
    assert_eq!(register(&mut a, 2 | 1 << 3, 0, 13), SUCCESS);
    assert_eq!(register(&mut b, 2, 0, 20), CONFLICT);
    assert_eq!(register(&mut b, 2 | 1 << 3, 0, 20), SUCCESS);
    assert_eq!(report(&mut b), (5, 0, 0, vec![(13, 0), (20, 0)]));

    // Only who is registered by this key acquires and releases.
    assert_eq!(acquire(&mut a, 0, 1, 12, 0), CONFLICT);
    assert_eq!(acquire(&mut a, 0, 1, 13, 0), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 13, 0), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 2, 13, 0), CONFLICT);
    assert_eq!(acquire(&mut b, 0, 1, 20, 0), CONFLICT);
    assert_eq!(release(&mut b, 0, 1, 20), SUCCESS);
    assert_eq!(release(&mut a, 0, 2, 13), Status::INVALID_FIELD);
    assert_eq!(release(&mut a, 0, 1, 12), CONFLICT);
    assert_eq!(report(&mut b), (5, 1, 0, vec![(13, 1), (20, 0)]));

    // The reservation goes with its holder's registration.
    assert_eq!(register(&mut a, 1, 12, 0), CONFLICT);
    assert_eq!(register(&mut a, 1, 13, 0), SUCCESS);
    assert_eq!(register(&mut a, 1, 13, 0), CONFLICT);
    assert_eq!(report(&mut b), (6, 0, 0, vec![(20, 0)]));

    // All registrants hold it, until the last one goes.
    assert_eq!(acquire(&mut b, 0, 6, 20, 0), SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 10), SUCCESS);
    assert_eq!(report(&mut a), (7, 6, 0, vec![(20, 1), (10, 1)]));
    assert_eq!(register(&mut b, 1, 20, 0), SUCCESS);
    assert_eq!(report(&mut a), (8, 6, 0, vec![(10, 1)]));
    assert_eq!(register(&mut a, 1 | 1 << 3, 0, 0), SUCCESS);
    assert_eq!(report(&mut a), (9, 0, 0, vec![]));
    drop((a, b));
    rig.stop();
}

#[test]
fn a_preempted_host_loses_its_key_its_reservation_and_its_right_to_write() {
    let rig = halves();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|of| host(&rig, of));
    let all = |client: &mut Client| report(client);
    for (client, key) in [(&mut a, 1), (&mut b, 2), (&mut c, 2)] {
        assert_eq!(register(client, 0, 0, key), SUCCESS);
    }
    assert_eq!(acquire(&mut b, 0, 3, 2, 0), SUCCESS);
    b.write(0, &[2; PAGE]).expect("it holds it");

    // Nobody has key 9; 0 means nothing while one host alone holds it; the own key must be right.
    assert_eq!(acquire(&mut a, 1, 3, 1, 9), CONFLICT);
    assert_eq!(acquire(&mut a, 1, 3, 1, 0), Status::INVALID_FIELD);
    assert_eq!(acquire(&mut a, 1, 3, 7, 2), CONFLICT);
    assert_eq!(all(&mut a).3, vec![(1, 0), (2, 1), (2, 0)]);

    assert_eq!(acquire(&mut a, 2, 1, 1, 2), SUCCESS);
    assert_eq!(all(&mut a), (4, 1, 0, vec![(1, 1)]));
    assert!(b.write(0, &[3; PAGE]).is_err() && c.write(0, &[3; PAGE]).is_err());
    assert_eq!(a.read(0, 1).expect("it holds it"), [2; PAGE]);

    // The holder takes a registrant's key away, and keeps what it holds; and it changes the type.
    assert_eq!(register(&mut b, 0, 0, 5), SUCCESS);
    assert_eq!(acquire(&mut a, 1, 6, 1, 5), SUCCESS);
    assert_eq!(all(&mut a), (6, 1, 0, vec![(1, 1)]));
    assert_eq!(acquire(&mut a, 1, 5, 1, 1), SUCCESS);

    // All registrants hold it: 0 stands for all others.
    assert_eq!(register(&mut b, 0, 0, 5), SUCCESS);
    assert_eq!(register(&mut c, 0, 0, 6), SUCCESS);
    assert_eq!(all(&mut c).3, vec![(1, 1), (5, 1), (6, 1)]);
    assert_eq!(acquire(&mut c, 1, 2, 6, 0), SUCCESS);
    assert_eq!(all(&mut a), (10, 2, 0, vec![(6, 1)]));

    assert_eq!(release(&mut c, 1, 0, 6), SUCCESS);
    assert_eq!(all(&mut a), (11, 0, 0, vec![]));
    a.write(0, &[4; PAGE]).expect("nobody holds anything");
    drop((a, b, c));
    rig.stop();
}

/// A queue of a host that says what a test wants: an admin queue and an I/O queue.
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

#[test]
fn a_write_whose_data_come_after_its_host_was_preempted_writes_nothing() {
    let rig = halves();
    let mut a = host(&rig, "a");
    a.write(0, &[1; 2 * PAGE]).expect("nobody holds anything");
    let (admin, mut b) = raw_host(&rig, [9; 16], "b");
    let call =
        |b: &mut Peer, sqe: Sqe, data: [u8; 16]| b.call(in_capsule(sqe, 16), &data).cqe.status();
    let first = with_cdw10(io::RESERVATION_REGISTER, 0);
    assert_eq!(call(&mut b, first, keys(0, 2)), SUCCESS);
    let second = with_cdw10(io::RESERVATION_ACQUIRE, 1 << 8);
    assert_eq!(call(&mut b, second, keys(2, 0)), SUCCESS);

    let write = Sqe {
        cdw12: 1,
        ..entry(io::WRITE, 1)
    };
    let bytes = b.capsule(&with_cid(transport(write, 2 * PAGE as u32), 77), &[]);
    b.send(&bytes);
    let asked = b.asked();

    // The first page comes in time, the second one too late.
    let part = |at: usize, last: bool, b: &mut Peer| {
        let header = Data::new(77, asked.ttag, at as u32, PAGE as u32);
        let bytes = b.h2c(&header, &[2; PAGE], last);
        b.send(&bytes);
    };
    part(0, false, &mut b);
    let until = Instant::now() + Duration::from_secs(20);
    while a.read(0, 1).expect("reads are free") != [2; PAGE] {
        assert!(Instant::now() < until, "the first page did not arrive");
    }
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 1, 1, 1, 2), SUCCESS);
    part(PAGE, true, &mut b);
    assert_eq!(b.answer().cqe.status(), CONFLICT);
    assert_eq!(a.read(1, 1).expect("it holds it"), [1; PAGE]);
    drop((a, admin, b));
    rig.stop();
}

// A copy that is not aligned to pages moves 16 MiB in some fifty slices. Once a preemption has been
// acknowledged not a byte of it may follow.
#[test]
fn a_long_command_of_a_preempted_host_ends_where_it_is() {
    const BLOCKS: u64 = 8000;
    let spec = NamespaceSpec {
        pages: 8 << 10,
        lba_shift: 9,
    };
    let rig = Rig::with(device(32 << 20, false), &[spec], Latency::None);
    let [mut a, mut b] = ["a", "b"].map(|of| host(&rig, of));
    a.write(1, &vec![1; BLOCKS as usize * 512]).expect("free");
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);

    let until = Instant::now() + Duration::from_secs(120);
    let mut cut_short = 0;
    for attempt in 0u64.. {
        a.trim(10_000, BLOCKS).expect("it may");
        assert_eq!(register(&mut b, 0, 0, 2), SUCCESS);
        assert_eq!(acquire(&mut b, 0, 1, 2, 0), SUCCESS);
        let began = Arc::new(AtomicBool::new(false));
        let copying = std::thread::spawn({
            let began = began.clone();
            move || {
                began.store(true, Ordering::SeqCst);
                let range = CopyRange::new(1, BLOCKS as u16 - 1);
                let sqe = Sqe {
                    cdw10: 10_000,
                    ..entry(io::COPY, 1)
                };
                let status = ask(&mut b, sqe, range.as_bytes(), 0).status;
                (b, status)
            }
        });
        while !began.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(attempt % 40 * 100));

        assert_eq!(acquire(&mut a, 2, 1, 1, 2), SUCCESS);
        let at_once = a.read(10_000, BLOCKS).expect("it holds it");
        let (back, status) = copying.join().expect("no panic");
        b = back;
        assert!(a.read(10_000, BLOCKS).expect("it holds it") == at_once);

        assert!(matches!(status, SUCCESS | CONFLICT), "{status:?}");
        let copied = at_once.iter().filter(|byte| **byte == 1).count();
        cut_short += u32::from(status == CONFLICT && copied > 0);
        assert_eq!(release(&mut a, 0, 1, 1), SUCCESS);
        if cut_short >= 3 {
            break;
        }
        assert!(Instant::now() < until, "no copy was ever under way");
    }
    drop((a, b));
    rig.stop();
}

#[test]
fn another_name_with_the_same_identifier_is_another_host() {
    let rig = halves();
    let (_admin, mut owner) = raw_host(&rig, [5; 16], "owner");
    let (_admin_2, mut thief) = raw_host(&rig, [5; 16], "thief");
    let register = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
    let acquire = in_capsule(with_cdw10(io::RESERVATION_ACQUIRE, 1 << 8), 16);
    let write = in_capsule(entry(io::WRITE, 1), PAGE as u32);
    assert_eq!(owner.call(register, &keys(0, 1)).cqe.status(), SUCCESS);
    assert_eq!(owner.call(acquire, &keys(1, 0)).cqe.status(), SUCCESS);
    assert_eq!(thief.call(write, &[1; PAGE]).cqe.status(), CONFLICT);
    assert_eq!(thief.call(acquire, &keys(1, 0)).cqe.status(), CONFLICT);
    assert_eq!(owner.call(write, &[1; PAGE]).cqe.status(), SUCCESS);
    drop((owner, thief, _admin, _admin_2));
    rig.stop();
}

fn page_of(peer: &mut Peer, retain: bool) -> (u64, u8, u8, u32) {
    let sqe = Sqe {
        cdw10: u32::from(lid::RESERVATION) | u32::from(retain) << 15 | 15 << 16,
        ..entry(admin::GET_LOG_PAGE, 0)
    };
    let answer = peer.call(transport(sqe, 64), &[]);
    assert_eq!(answer.cqe.status(), SUCCESS);
    let page = Notification::read_from_bytes(&answer.data).expect("whole");
    (page.count, page.kind, page.available, page.nsid)
}

#[test]
fn registrants_are_told_that_they_were_preempted_and_that_a_reservation_is_free() {
    let rig = halves();
    let mut a = host(&rig, "a");
    let (mut admin, mut b) = raw_host(&rig, [3; 16], "b");
    let register_b = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);

    let event = with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), 500);
    let bytes = admin.capsule(&event, &[]);
    admin.send(&bytes);

    // Released, of a type for registrants: b hears of it; of a type for one alone: it does not.
    for kind in [3, 1] {
        assert_eq!(acquire(&mut a, 0, kind, 1, 0), SUCCESS);
        assert_eq!(release(&mut a, 0, kind, 1), SUCCESS);
    }
    let answer = admin.answer();
    assert_eq!((answer.cqe.cid, answer.cqe.result), (500, 6 | 0x80 << 16));

    // Preempted meanwhile: one page after the other.
    assert_eq!(acquire(&mut a, 1, 1, 1, 2), SUCCESS);
    assert_eq!(page_of(&mut admin, true), (1, 2, 1, 1));
    assert_eq!(page_of(&mut admin, false), (1, 2, 1, 1));
    let bytes = admin.capsule(&event, &[]);
    admin.send(&bytes);
    assert_eq!(admin.answer().cqe.result, 6 | 0x80 << 16);
    assert_eq!(page_of(&mut admin, false), (2, 1, 0, 1));
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));

    // Cleared, and what b does not want to hear.
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);
    assert_eq!(release(&mut a, 1, 0, 1), SUCCESS);
    assert_eq!(page_of(&mut admin, false), (3, 3, 0, 1));
    let mask = |nsid: u32, value: u32| {
        let sqe = Sqe {
            cdw10: 0x82,
            cdw11: value,
            ..entry(admin::SET_FEATURES, nsid)
        };
        transport(sqe, 0)
    };
    let masked = admin.call(mask(u32::MAX, 1 << 3), &[]).cqe.status();
    assert_eq!(masked, SUCCESS);
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(b.call(register_b, &keys(0, 2)).cqe.status(), SUCCESS);
    assert_eq!(release(&mut a, 1, 0, 1), SUCCESS);
    assert_eq!(page_of(&mut admin, false), (0, 0, 0, 0));
    drop((a, b, admin));
    rig.stop();
}

/// A store that remembers, and fails on demand.
#[derive(Clone, Default)]
struct Shelf(Arc<(Mutex<AllReservations>, AtomicBool)>);

impl ReservationStore for Shelf {
    fn save(&self, all: &AllReservations) -> std_io::Result<()> {
        if self.0.1.load(Ordering::SeqCst) {
            return Err(std_io::Error::other("the disk is full"));
        }
        *self.0.0.lock().expect("nothing fails here") = all.clone();
        Ok(())
    }
}

#[test]
fn what_is_to_persist_is_kept_before_it_is_acknowledged_and_survives_a_power_cut() {
    let shelf = Shelf::default();
    let kept = |shelf: &Shelf| shelf.0.0.lock().expect("nothing fails here").clone();
    let subsystem = |all: AllReservations| {
        let device = device(32 << 20, false);
        Subsystem::new(device, NQN, &[], Latency::None, true, Health::default())
            .expect("possible")
            .with_reservations(all, Box::new(shelf.clone()))
    };
    let rig = Rig::of(subsystem(AllReservations::new()));
    let [mut a, mut b] = ["a", "b"].map(|of| host(&rig, of));

    // Not asked for: gone with the power.
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 1, 0), SUCCESS);
    assert!(kept(&shelf).is_empty());
    rig.subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report(&mut a), (0, 0, 0, vec![]));

    // Asked for (CPTPL 3): kept, and in force after a cut and after a restart.
    assert_eq!(register(&mut a, 3 << 30, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 1, 0), SUCCESS);
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    rig.subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    assert!(b.write(0, &[1; PAGE]).is_err());

    let restarted = Rig::of(subsystem(kept(&shelf)));
    let mut again = host(&restarted, "b");
    assert!(again.write(0, &[1; PAGE]).is_err());
    assert_eq!(report(&mut again), (1, 1, 1, vec![(1, 1)]));
    drop(again);
    restarted.stop();

    // It cannot be kept: nothing has changed.
    shelf.0.1.store(true, Ordering::SeqCst);
    assert_eq!(register(&mut b, 0, 0, 2), Status::INTERNAL);
    assert_eq!(release(&mut a, 1, 0, 1), Status::INTERNAL);
    assert_eq!(report(&mut a), (1, 1, 1, vec![(1, 1)]));
    assert!(b.write(0, &[1; PAGE]).is_err());
    shelf.0.1.store(false, Ordering::SeqCst);

    // No longer (CPTPL 2): nothing is kept any more.
    assert_eq!(register(&mut a, 2 << 30, 0, 1), SUCCESS);
    assert!(kept(&shelf).is_empty());
    rig.subsystem.power_cut(1).expect("it recovers");
    b.write(0, &[1; PAGE]).expect("nobody holds anything");
    drop((a, b));
    rig.stop();
}

#[test]
fn commands_that_cannot_be_change_nothing() {
    let rig = halves();
    let mut a = host(&rig, "a");
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 0, 1, 1, 0), SUCCESS);
    let before = report(&mut a);

    for action in 3..8 {
        assert_eq!(register(&mut a, action, 1, 2), Status::INVALID_FIELD);
        assert_eq!(acquire(&mut a, action, 1, 1, 1), Status::INVALID_FIELD);
    }
    for action in 2..8 {
        assert_eq!(release(&mut a, action, 1, 1), Status::INVALID_FIELD);
    }
    for kind in [0, 7, 255] {
        assert_eq!(acquire(&mut a, 0, kind, 1, 0), Status::INVALID_FIELD);
        assert_eq!(acquire(&mut a, 1, kind, 1, 1), Status::INVALID_FIELD);
        assert_eq!(release(&mut a, 0, kind, 1), Status::INVALID_FIELD);
    }
    // CPTPL 1 is reserved; the current key must be compared (IEKEY) but by Register.
    assert_eq!(register(&mut a, 2 | 1 << 30, 1, 2), Status::INVALID_FIELD);
    assert_eq!(acquire(&mut a, 1 | 1 << 3, 2, 1, 1), Status::INVALID_FIELD);
    assert_eq!(release(&mut a, 1 | 1 << 3, 1, 1), Status::INVALID_FIELD);

    for opcode in [
        io::RESERVATION_REGISTER,
        io::RESERVATION_ACQUIRE,
        io::RESERVATION_RELEASE,
    ] {
        for nsid in [0, 3, u32::MAX] {
            let status = ask(&mut a, entry(opcode, nsid), &keys(1, 1), 0).status;
            assert_eq!(status, Status::INVALID_NAMESPACE);
        }
        let short = ask(&mut a, entry(opcode, 1), &[1; 4], 0).status;
        assert_eq!(short, Status::SGL_LENGTH);
        let mut fused = entry(opcode, 1);
        fused.cdw0 |= 1 << 8;
        let status = ask(&mut a, fused, &keys(1, 1), 0).status;
        assert_eq!(status, Status::INVALID_FIELD);
    }

    // A report with identifiers of 8 bytes, one that is too long, and short ones.
    let sqe = |cdw10: u32, cdw11: u32| Sqe {
        cdw10,
        cdw11,
        ..entry(io::RESERVATION_REPORT, 1)
    };
    let short_ids = ask(&mut a, sqe(15, 0), &[], 64).status;
    assert_eq!(short_ids, Status::HOST_ID_FORMAT);
    for dwords_z in [u32::MAX, (1 << 18)] {
        let status = ask(&mut a, sqe(dwords_z, 1), &[], 64).status;
        assert_eq!(status, Status::INVALID_FIELD);
    }
    for dwords in [1, 15, 17, 31] {
        let answer = ask(&mut a, sqe(dwords - 1, 1), &[], dwords as usize * 4);
        assert_eq!(
            (answer.status, answer.data.len()),
            (SUCCESS, dwords as usize * 4)
        );
        assert_eq!(answer.data[..4], before.0.to_le_bytes());
    }
    assert_eq!(report(&mut a), before);

    // A host without an identifier is nobody.
    let (_admin, mut nobody) = raw_host(&rig, [0; 16], "nobody");
    let register = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
    let status = nobody.call(register, &keys(0, 1)).cqe.status();
    assert_eq!(status, Status::INVALID_FIELD);
    drop((a, nobody, _admin));
    rig.stop();
}

#[test]
fn the_number_of_registrants_is_bounded() {
    let rig = halves();
    let status = |number: usize| {
        let (_admin, mut queue) = raw_host(&rig, [1; 16], &format!("host-{number}"));
        let register = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
        queue.call(register, &keys(0, 1)).cqe.status()
    };
    for number in 0..REGISTRANTS_MAX {
        assert_eq!(status(number), SUCCESS);
    }
    assert_eq!(status(REGISTRANTS_MAX), Status::INTERNAL.with_dnr(true));
    let cleared = rig
        .subsystem
        .release_reservations(1)
        .expect("an operator may");
    assert_eq!(cleared, REGISTRANTS_MAX);
    assert_eq!(status(REGISTRANTS_MAX), SUCCESS);
    rig.stop();
}

#[test]
fn a_host_reads_its_identifier_and_may_not_change_it() {
    let rig = halves();
    let (mut admin, _queue) = raw_host(&rig, [0x21; 16], "a");
    let feature = |opcode: u8, nsid: u32, fid: u32, cdw11: u32| Sqe {
        cdw10: fid,
        cdw11,
        ..entry(opcode, nsid)
    };
    let get = admin.call(transport(feature(admin::GET_FEATURES, 0, 0x81, 1), 16), &[]);
    assert_eq!((get.cqe.status(), get.data), (SUCCESS, vec![0x21; 16]));
    let get = admin.call(transport(feature(admin::GET_FEATURES, 0, 0x81, 0), 8), &[]);
    assert_eq!(get.cqe.status(), Status::INVALID_FIELD);
    let set = admin.call(transport(feature(admin::SET_FEATURES, 0, 0x81, 1), 0), &[]);
    assert_eq!(set.cqe.status(), Status::SEQUENCE);

    // Persistence is a namespace's, and all hosts see it.
    let set = admin.call(transport(feature(admin::SET_FEATURES, 2, 0x83, 1), 0), &[]);
    assert_eq!(set.cqe.status(), SUCCESS);
    let (mut other, _queue_2) = raw_host(&rig, [0x22; 16], "b");
    for (nsid, persists) in [(1, 0), (2, 1)] {
        let sqe = feature(admin::GET_FEATURES, nsid, 0x83, 0);
        assert_eq!(other.call(transport(sqe, 0), &[]).cqe.result, persists);
    }
    drop((admin, other, _queue, _queue_2));
    rig.stop();
}
