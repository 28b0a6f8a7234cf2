//! Every I/O command, by hosts with and without the right to execute it.

use super::*;
use crate::kit;

/// The right that a command needs, as decided for this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Read,
    Write,
    ReadAll,
    WriteAll,
}

impl Needs {
    /// The expected status for a host with `GUESTS`, by namespace.
    fn answer(self, nsid: u32) -> Status {
        match (self, nsid) {
            (Self::Read, 1 | 2) | (Self::Write, 1) => Status::SUCCESS,
            (Self::ReadAll, 1 | 2) | (Self::WriteAll, 1) => DENIED,
            (Self::Write | Self::WriteAll, 2) => PROTECTED,
            _ => HIDDEN,
        }
    }
}

/// A command that succeeds for a host with the rights, with its data.
struct Sample {
    needs: Needs,
    sqe: Sqe,
    data: Vec<u8>,
    receives: u32,
}

fn sample(needs: Needs, sqe: Sqe, data: Vec<u8>, receives: u32) -> Sample {
    Sample {
        needs,
        sqe,
        data,
        receives,
    }
}

/// Every I/O command supported by the controller. **Add lines here for a new command**, and a
/// decision in `controller::rights::Need`.
fn samples(nsid: u32) -> Vec<Sample> {
    let of = |opcode| entry(opcode, nsid);
    let page = || vec![7; PAGE];
    let dsm = |attributes| {
        let sqe = Sqe {
            cdw11: attributes,
            ..of(io::DATASET_MANAGEMENT)
        };
        let range = DsmRange {
            attributes: 0,
            blocks: 1,
            slba: 0,
        };
        (sqe, range.as_bytes().to_vec())
    };
    let (trim, hint) = (dsm(1 << 2), dsm(1));
    let copy = |format, from: u32| {
        let sqe = Sqe {
            cdw10: 9,
            cdw12: CopyCdw12::new().with_format(format).into_bits(),
            ..of(io::COPY)
        };
        let range = CopyRange::new(1, 0).of_namespace(from);
        (sqe, range.as_bytes().to_vec())
    };
    let (inside, across) = (copy(0, 0), copy(2, 1));
    let remap = |flags: RemapCdw12| Sqe {
        cdw10: 5,
        cdw12: flags.into_bits(),
        cdw14: 3,
        ..of(io::REMAP)
    };
    // One page of a file.
    let fs_write = Sqe {
        cdw10: 20,
        cdw13: 77,
        ..of(io::FS_WRITE)
    };
    let fs_map = Sqe {
        cdw10: 15,
        cdw13: 77,
        ..of(io::FS_MAP)
    };
    let fs_list = Sqe { cdw12: 1, ..fs_map };

    use Needs::{Read, ReadAll, Write, WriteAll};
    vec![
        sample(Read, of(io::FLUSH), vec![], 0),
        sample(Read, of(io::READ), vec![], PAGE as u32),
        sample(Read, of(io::VERIFY), vec![], 0),
        sample(Read, hint.0, hint.1, 0),
        sample(Write, of(io::WRITE), page(), 0),
        sample(Read, of(io::COMPARE), page(), 0),
        sample(Write, of(io::WRITE_ZEROES), vec![], 0),
        sample(Write, trim.0, trim.1, 0),
        sample(Write, inside.0, inside.1, 0),
        sample(Write, across.0, across.1, 0),
        sample(Write, remap(RemapCdw12::new()), vec![], 0),
        sample(
            Write,
            remap(RemapCdw12::new().with_relocate(true)),
            vec![],
            0,
        ),
        sample(Write, remap(RemapCdw12::new().with_atomic(true)), vec![], 0),
        sample(Write, remap(RemapCdw12::new().with_fua(true)), vec![], 0),
        sample(WriteAll, fs_write, page(), 0),
        sample(ReadAll, fs_map, vec![], 64),
        sample(ReadAll, fs_list, vec![], 64),
        sample(WriteAll, of(io::FS_RESET), vec![], 0),
    ]
}

/// Reservation commands, which leave no state, and all others.
fn all_samples(nsid: u32) -> Vec<Sample> {
    let of = |opcode, cdw10| Sqe {
        cdw10,
        ..entry(opcode, nsid)
    };
    let keys = |current: u64, other: u64| [current, other].map(u64::to_le_bytes).concat();
    let report = Sqe {
        cdw11: 1,
        ..of(io::RESERVATION_REPORT, 15)
    };

    use Needs::{Read, Write};
    let mut all = vec![
        sample(Write, of(io::RESERVATION_REGISTER, 0), keys(0, 9), 0),
        sample(Write, of(io::RESERVATION_ACQUIRE, 1 << 8), keys(9, 0), 0),
        sample(Read, report, vec![], 64),
        sample(
            Write,
            of(io::RESERVATION_RELEASE, 1),
            keys(9, 0)[..8].to_vec(),
            0,
        ),
    ];
    all.extend(samples(nsid));
    all
}

fn ask(peer: &mut Peer, sample: &Sample) -> Status {
    let sqe = if sample.data.is_empty() {
        transport(sample.sqe, sample.receives)
    } else {
        in_capsule(sample.sqe, sample.data.len() as u32)
    };
    peer.call(sqe, &sample.data).cqe.status()
}

fn opcode(sqe: &Sqe) -> u8 {
    sqe.head().opcode()
}

/// A description of the command, for messages.
fn named(sample: &Sample, nsid: u32) -> String {
    let opcode = opcode(&sample.sqe);
    format!(
        "{opcode:#04x} on {nsid}, {:?}: {:?}",
        sample.needs, sample.sqe
    )
}

/// Fills every page used of every namespace with 7s, so that comparisons succeed.
fn filled(rig: &Rig) -> Host {
    let mut owner = Host::of(rig, OWNER);
    for nsid in 1..=3 {
        for slba in 0..24 {
            assert_eq!(owner.write(nsid, slba, 7), Status::SUCCESS);
        }
    }
    owner
}

#[test]
fn every_io_command_that_the_controller_knows_has_a_line_and_no_other() {
    let rig = rig();
    let mut owner = filled(&rig);
    let listed: Vec<u8> = all_samples(1).iter().map(|one| opcode(&one.sqe)).collect();

    for code in 0..=u8::MAX {
        // Unknown commands are refused before their data matter.
        let sqe = transport(entry(code, 1), 0);
        let status = owner.io.call(sqe, &[]).cqe.status();
        let is_known = status != Status::INVALID_OPCODE;
        // 7Fh are fabrics commands, which belong to the admin queue.
        if code != admin::FABRICS {
            assert_eq!(is_known, listed.contains(&code), "{code:#04x}: {status:?}");
        }
    }
}

#[test]
fn every_io_command_is_executed_or_refused_as_its_hosts_rights_are() {
    let rig = rig();
    let mut owner = filled(&rig);
    let mut guest = Host::of(&rig, GUEST);

    for nsid in 1..=4 {
        for one in all_samples(nsid) {
            let answer = ask(&mut guest.io, &one);
            assert_eq!(answer, one.needs.answer(nsid), "{}", named(&one, nsid));
        }
    }
    // No change where the guest may not change anything.
    for slba in 0..24 {
        for nsid in [2, 3] {
            let read = owner.read(nsid, slba).expect("served");
            assert!(read == [7; PAGE], "block {slba} of namespace {nsid}");
        }
    }
    // Each of the commands succeeds with the rights.
    for nsid in 1..=3 {
        filled(&rig);
        for one in all_samples(nsid) {
            assert_eq!(
                ask(&mut owner.io, &one),
                Status::SUCCESS,
                "{}",
                named(&one, nsid)
            );
        }
    }
}

#[test]
fn a_flush_of_all_namespaces_is_for_everybody() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    let flush = |nsid| transport(entry(io::FLUSH, nsid), 0);
    for (nsid, expected) in [(u32::MAX, Status::SUCCESS), (3, HIDDEN), (0, HIDDEN)] {
        let answer = guest.io.call(flush(nsid), &[]);
        assert_eq!(answer.cqe.status(), expected, "{nsid}");
    }
}

#[test]
fn a_copy_takes_nothing_from_a_namespace_that_its_host_does_not_see() {
    let rig = rig();
    let mut owner = filled(&rig);
    let mut guest = Host::of(&rig, GUEST);
    assert_eq!(owner.write(3, 1, 99), Status::SUCCESS);
    assert_eq!(owner.write(2, 1, 55), Status::SUCCESS);

    let mut copy = |sources: &[u32], target| {
        let ranges = sources
            .iter()
            .map(|nsid| CopyRange::new(1, 0).of_namespace(*nsid));
        let data: Vec<u8> = ranges.flat_map(|range| range.as_bytes().to_vec()).collect();
        let format = CopyCdw12::new()
            .with_format(2)
            .with_nr_z(sources.len() as u8 - 1);
        let sqe = Sqe {
            cdw10: target,
            cdw12: format.into_bits(),
            ..entry(io::COPY, 1)
        };
        guest
            .io
            .call(in_capsule(sqe, data.len() as u32), &data)
            .cqe
            .status()
    };
    assert_eq!(copy(&[3], 9), HIDDEN);
    assert_eq!(copy(&[4], 9), HIDDEN, "as one that is not there");
    // All sources are checked before the first is copied.
    assert_eq!(copy(&[2, 3], 9), HIDDEN);
    assert_eq!(owner.read(1, 9).expect("served"), [7; PAGE]);
    assert_eq!(copy(&[1, 2], 9), Status::SUCCESS);
    assert_eq!(owner.read(1, 10).expect("served"), [55; PAGE]);
}

#[test]
fn blocks_of_a_hidden_namespace_are_not_out_of_range_but_not_there() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    // Its size is not revealed, for any block.
    for slba in [0, 499, 500, u32::MAX] {
        assert_eq!(guest.read(3, slba), Err(HIDDEN), "{slba}");
        assert_eq!(guest.write(3, slba, 1), HIDDEN, "{slba}");
    }
    assert_eq!(guest.read(2, 500), Err(Status::LBA_RANGE));
}

#[test]
fn a_write_that_is_refused_is_refused_before_its_data_are_asked_for() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    for (nsid, expected) in [(2, PROTECTED), (3, HIDDEN)] {
        // `call` accepts no R2T.
        let write = transport(entry(io::WRITE, nsid), PAGE as u32);
        assert_eq!(guest.io.call(write, &[]).cqe.status(), expected);
    }
}

#[test]
fn a_command_that_was_parsed_before_is_checked_again_when_it_is_executed() {
    let subsystem = Arc::new(kit::subsystem(mapped(), &namespaces()));
    let data = kit::raw::connect_data(0xffff);
    let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
    let (association, _) =
        Association::connect(&subsystem, &kit::raw::connect(0), &data, address, 0)
            .expect("it may connect");
    let execute = |nsid, request: &IoRequest, from_host: &[u8]| {
        let namespace = subsystem.namespace(nsid).expect("it is there");
        let command = IoCommand::new(*request, &namespace);
        let issuer = association.issuer();
        let mut to_host = Vec::new();
        let mut data = InMemory {
            from_host,
            to_host: &mut to_host,
        };
        let outcome = subsystem.execute(&mut subsystem.device(), &command, &issuer, 0, &mut data);
        assert!(outcome.status.is_success() || to_host.is_empty());
        outcome.status
    };

    let each = |nsid: u32| {
        let namespace = subsystem.namespace(nsid).expect("it is there");
        let parsed = move |one: Sample| {
            let parsed = IoRequest::parse(&one.sqe, &namespace, 0b101);
            (parsed.expect("a sample"), one.data, one.needs)
        };
        samples(nsid).into_iter().map(parsed)
    };
    // A host without granted rights has none.
    for (request, data, _) in each(1).filter(|(request, ..)| *request != IoRequest::Flush) {
        assert_eq!(execute(1, &request, &data), HIDDEN, "{request:?}");
    }
    association.grant(Rights::parse(GUESTS).expect("rights"));
    for nsid in 1..=3 {
        for (request, data, needs) in each(nsid) {
            let expected = match request {
                // It names no namespace at this point.
                IoRequest::Flush => Status::SUCCESS,
                // The data compared were never written there.
                IoRequest::Compare { .. } if nsid == 2 => Status::COMPARE_FAILURE,
                _ => needs.answer(nsid),
            };
            assert_eq!(
                execute(nsid, &request, &data),
                expected,
                "{nsid}: {request:?}"
            );
        }
    }
}
