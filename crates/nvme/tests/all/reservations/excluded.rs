//! Exclusion by reservations: every command of every host, including those in progress.

use super::*;
use crate::kit::specified::status;

/// A command, its data, and the size of its answer.
type Sent = (Sqe, Vec<u8>, usize);

/// All commands that access data, with the data sent and received; reads first.
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
    assert!(holder.controller().oncs & ONCS_RESERVATIONS != 0);
    assert_eq!(holder.namespace().rescap, 0xff);
    let (reads, writes) = commands();

    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(register(&mut registrant, 0, 0, 2), SUCCESS);
    for kind in 1..=6 {
        assert_eq!(acquire(&mut holder, 0, kind, 1, 0), SUCCESS, "type {kind}");
        holder.write(0, &[kind; PAGE]).expect("it holds it");

        // Base 2.0 §8.19: types 2, 4 and 6 exclude reads; from 3 on registrants have the holder's
        // rights.
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
}

#[test]
fn a_copy_reads_its_source_only_with_the_right_to() {
    let rig = halves();
    let [mut holder, mut other] = ["holder", "other"].map(|of| host(&rig, of));
    holder.write(3, &[7; PAGE]).expect("it is not reserved");
    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut holder, 0, 2, 1, 0), SUCCESS);

    // From reserved namespace 1 to namespace 2, which is not reserved: the second of two ranges.
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

    // Types that only exclude writes allow reading it.
    assert_eq!(acquire(&mut holder, 1, 1, 1, 1), SUCCESS);
    assert_eq!(ask(&mut other, sqe, ranges.as_bytes(), 0).status, SUCCESS);
}

#[test]
fn what_all_namespaces_share_is_changed_only_where_none_is_reserved() {
    let rig = halves();
    let [mut holder, mut other] = ["holder", "other"].map(|of| host(&rig, of));
    assert_eq!(register(&mut holder, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut holder, 0, 1, 1, 0), SUCCESS);
    // Through the other namespace: the map of files belongs to the whole device.
    let reset = entry(io::FS_RESET, 2);
    assert_eq!(ask(&mut other, reset, &[], 0).status, CONFLICT);
    let write = entry(io::WRITE, 2);
    assert_eq!(ask(&mut other, write, &[1; PAGE], 0).status, SUCCESS);
}

#[test]
fn a_write_whose_data_come_after_its_host_was_preempted_writes_nothing() {
    let rig = halves();
    let mut a = host(&rig, "a");
    a.write(0, &[1; 2 * PAGE]).expect("nothing is reserved");
    let (_admin, mut b) = raw_host(&rig, [9; 16], "b");
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

    // The first page is sent in time, the second one too late; the write is whole or absent.
    let part = |at: usize, last: bool, b: &mut Peer| {
        let header = Data::new(77, asked.ttag, at as u32, PAGE as u32);
        let bytes = b.h2c(&header, &[2; PAGE], last);
        b.send(&bytes);
    };
    part(0, false, &mut b);
    assert_eq!(register(&mut a, 0, 0, 1), SUCCESS);
    assert_eq!(acquire(&mut a, 1, 1, 1, 2), SUCCESS);
    part(PAGE, true, &mut b);
    assert_eq!(b.answer().cqe.status(), CONFLICT);
    assert_eq!(a.read(0, 2).expect("it holds it"), [1; 2 * PAGE]);
}

// A copy not aligned to pages moves 16 MiB in some fifty slices. Once a preemption has been
// acknowledged, not a byte of it may follow.
#[test]
fn a_long_command_of_a_preempted_host_ends_where_it_is() {
    const BLOCKS: u64 = 8000;
    let spec = NamespaceSpec {
        pages: 8 << 10,
        lba_shift: 9,
    };
    let rig = Rig::with(device(32 << 20, false), &[spec]);
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
    // CPTPL 1 is reserved; only Register may ignore the current key (IEKEY).
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
        assert_eq!(short, status::SGL_LENGTH);
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
    assert_eq!(short_ids, status::HOST_ID_FORMAT);
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

    // A host without an identifier cannot register.
    let (_admin, mut nobody) = raw_host(&rig, [0; 16], "nobody");
    let register = in_capsule(with_cdw10(io::RESERVATION_REGISTER, 0), 16);
    let status = nobody.call(register, &keys(0, 1)).cqe.status();
    assert_eq!(status, Status::INVALID_FIELD);
}
