//! What a host may do: every command that the controller knows against every right, by hosts that
//! keep to nothing.

mod kit;

use kit::raw::{Answer, Peer, in_capsule, transport, with_cid};
use kit::{Rig, allowed, device, keyring, secret};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::auth::{Credentials, Keys};
use remap_ssd_nvme::controller::{
    Actor, Association, Health, InMemory, IoRequest, Job, Latency, NamespaceSpec, Rights, Subsystem,
};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, DsmRange, RemapCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::property;
use remap_ssd_nvme::spec::identify::{Controller, IndependentNamespace, Namespace, cns};
use remap_ssd_nvme::spec::log::lid;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::{Flags, Ic, kind};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options, entry};
use remap_ssd_nvme::tcp::server::Limits;
use remap_ssd_nvme::tcp::target::{Allowed, AllowedHost, Connection, Output, Port, Who};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const OWNER: &str = "nqn.2026-11.test:owner";
const GUEST: &str = "nqn.2026-11.test:guest";
/// It writes the first of three namespaces, reads the second, and does not see the third.
const GUESTS: &str = "1:rw,2:ro";
const PAGE: usize = 4096;
const HIDDEN: Status = Status::INVALID_NAMESPACE;
const PROTECTED: Status = Status::WRITE_PROTECTED;
const DENIED: Status = Status::OPERATION_DENIED;

const EVENTS: u32 = 0x0b;
const HOST_BEHAVIOR: u32 = 0x16;

fn namespaces() -> [NamespaceSpec; 3] {
    [NamespaceSpec {
        pages: 500,
        lba_shift: 12,
    }; 3]
}

fn rig() -> Rig {
    let hosts = [(OWNER, "all:rw"), (GUEST, GUESTS)];
    Rig::listing(mapped(), &namespaces(), &hosts)
}

/// A device with a map of files.
fn mapped() -> Device {
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let mut config = config.expect("possible");
    (config.firmware.fs_files, config.firmware.fs_blocks) = (64, 64);
    Device::format(config).expect("possible")
}

/// A host with an admin queue and an I/O queue.
struct Host {
    admin: Peer,
    io: Peer,
}

impl Host {
    fn of(rig: &Rig, name: &str) -> Self {
        let (mut admin, cntlid) = Peer::admin_of(rig.address, name);
        let mut behavior = [0; 512];
        behavior[4] = 1 << 2;
        let sqe = Sqe {
            cdw10: HOST_BEHAVIOR,
            ..entry(admin::SET_FEATURES, 0)
        };
        let set = admin.call(in_capsule(sqe, 512), &behavior);
        assert_eq!(set.cqe.status(), Status::SUCCESS, "copies across");
        let io = Peer::io_of(rig.address, name, cntlid, 1, 0);
        Self { admin, io }
    }

    fn read(&mut self, nsid: u32, slba: u32) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: slba,
            ..entry(io::READ, nsid)
        };
        data_of(self.io.call(transport(sqe, PAGE as u32), &[]))
    }

    fn write(&mut self, nsid: u32, slba: u32, byte: u8) -> Status {
        let sqe = Sqe {
            cdw10: slba,
            ..entry(io::WRITE, nsid)
        };
        let data = [byte; PAGE];
        self.io
            .call(in_capsule(sqe, PAGE as u32), &data)
            .cqe
            .status()
    }

    fn identify(&mut self, wanted: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: wanted.into(),
            ..entry(admin::IDENTIFY, nsid)
        };
        data_of(self.admin.call(transport(sqe, PAGE as u32), &[]))
    }

    fn log(&mut self, page: u8, bytes: u32, retain: bool) -> Result<Vec<u8>, Status> {
        let sqe = Sqe {
            cdw10: u32::from(page) | u32::from(retain) << 15 | (bytes / 4 - 1) << 16,
            ..entry(admin::GET_LOG_PAGE, u32::MAX)
        };
        data_of(self.admin.call(transport(sqe, bytes), &[]))
    }

    fn active(&mut self) -> Vec<u32> {
        numbers(&self.identify(cns::ACTIVE_NAMESPACES, 0).expect("a list"))
    }

    fn attributes(&mut self, nsid: u32) -> [u8; 2] {
        let common = self.identify(cns::NAMESPACE, nsid).expect("it is seen");
        let other = self
            .identify(cns::INDEPENDENT_NAMESPACE, nsid)
            .expect("it is seen");
        let common = Namespace::read_from_bytes(&common).expect("its size");
        let other = IndependentNamespace::read_from_bytes(&other).expect("its size");
        [common.nsattr, other.nsattr]
    }
}

fn data_of(answer: Answer) -> Result<Vec<u8>, Status> {
    match answer.cqe.status() {
        Status::SUCCESS => Ok(answer.data),
        status => Err(status),
    }
}

/// The numbers of a list that ends with zeroes.
fn numbers(list: &[u8]) -> Vec<u32> {
    let words = list
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes));
    words.take_while(|nsid| *nsid != 0).collect()
}

/// What a command needs, as this test has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Read,
    Write,
    ReadAll,
    WriteAll,
}

impl Needs {
    /// What a host with `GUESTS` is answered for a namespace.
    fn answer(self, nsid: u32) -> Status {
        match (self, nsid) {
            (Self::Read, 1 | 2) | (Self::Write, 1) => Status::SUCCESS,
            (Self::ReadAll, 1 | 2) | (Self::WriteAll, 1) => DENIED,
            (Self::Write | Self::WriteAll, 2) => PROTECTED,
            _ => HIDDEN,
        }
    }
}

/// A command that succeeds for a host that may execute it, and the data that it sends.
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

/// Every I/O command that the controller knows. **A command that is added needs lines here**, and a
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

/// Reservation commands, which leave nothing behind, and all others.
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

/// The same, with its number for messages.
fn named(sample: &Sample, nsid: u32) -> String {
    let opcode = opcode(&sample.sqe);
    format!(
        "{opcode:#04x} on {nsid}, {:?}: {:?}",
        sample.needs, sample.sqe
    )
}

/// A device whose every page of every namespace holds 7s, so that comparisons succeed.
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
        // Whatever a command would move, it is refused before if there is no such command.
        let sqe = transport(entry(code, 1), 0);
        let status = owner.io.call(sqe, &[]).cqe.status();
        let is_known = status != Status::INVALID_OPCODE;
        // 7Fh are commands of Fabrics, which go to the admin queue.
        if code != admin::FABRICS {
            assert_eq!(is_known, listed.contains(&code), "{code:#04x}: {status:?}");
        }
    }
    rig.stop();
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
    // Nothing has changed where the guest may not change anything.
    for slba in 0..24 {
        for nsid in [2, 3] {
            let read = owner.read(nsid, slba).expect("served");
            assert!(read == [7; PAGE], "block {slba} of namespace {nsid}");
        }
    }
    // Each of the commands is one that would have succeeded.
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
    rig.stop();
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
    rig.stop();
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
    // All sources are looked at before the first is copied.
    assert_eq!(copy(&[2, 3], 9), HIDDEN);
    assert_eq!(owner.read(1, 9).expect("served"), [7; PAGE]);
    assert_eq!(copy(&[1, 2], 9), Status::SUCCESS);
    assert_eq!(owner.read(1, 10).expect("served"), [55; PAGE]);
    rig.stop();
}

#[test]
fn blocks_of_a_hidden_namespace_are_not_out_of_range_but_not_there() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    // Of its size nothing is said, whatever block is named.
    for slba in [0, 499, 500, u32::MAX] {
        assert_eq!(guest.read(3, slba), Err(HIDDEN), "{slba}");
        assert_eq!(guest.write(3, slba, 1), HIDDEN, "{slba}");
    }
    assert_eq!(guest.read(2, 500), Err(Status::LBA_RANGE));
    rig.stop();
}

#[test]
fn a_host_finds_its_own_namespaces_by_every_identify_and_no_others() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    let mut guest = Host::of(&rig, GUEST);

    // Every CNS that the controller knows: does it name a namespace? **One that is added needs a
    // line here.**
    let of_namespaces = [
        cns::NAMESPACE,
        cns::NAMESPACE_DESCRIPTORS,
        cns::COMMAND_SET_NAMESPACE,
        cns::INDEPENDENT_NAMESPACE,
    ];
    let lists = [cns::ACTIVE_NAMESPACES, cns::COMMAND_SET_NAMESPACES];
    let of_controllers = [
        cns::CONTROLLER,
        cns::COMMAND_SET_CONTROLLER,
        cns::COMMAND_SETS,
    ];
    for wanted in 0..=u8::MAX {
        let known = owner.identify(wanted, 1).is_ok();
        let is_listed = of_namespaces.contains(&wanted)
            || lists.contains(&wanted)
            || of_controllers.contains(&wanted);
        assert_eq!(known, is_listed, "CNS {wanted:#04x}");
    }

    for wanted in of_namespaces {
        assert!(owner.identify(wanted, 3).is_ok());
        assert_eq!(guest.identify(wanted, 3), Err(HIDDEN), "CNS {wanted:#04x}");
        assert_eq!(guest.identify(wanted, 4), Err(HIDDEN), "CNS {wanted:#04x}");
        assert!(guest.identify(wanted, 2).is_ok(), "CNS {wanted:#04x}");
    }
    for wanted in lists {
        let list = |host: &mut Host, after| numbers(&host.identify(wanted, after).expect("a list"));
        assert_eq!(list(&mut owner, 0), [1, 2, 3]);
        assert_eq!(list(&mut guest, 0), [1, 2]);
        assert_eq!(list(&mut guest, 1), [2]);
        assert!(list(&mut guest, 2).is_empty());
    }

    // Write protected, by both structures that say so.
    assert_eq!((guest.attributes(1), guest.attributes(2)), ([0; 2], [1; 2]));
    assert_eq!(owner.attributes(2), [0; 2]);
    let id = guest.identify(cns::CONTROLLER, 0).expect("a controller");
    let id = Controller::read_from_bytes(&id).expect("its size");
    let oaes = id.oaes;
    assert_eq!(oaes & 1 << 8, 1 << 8, "namespaces may change");
    rig.stop();
}

#[test]
fn every_log_page_is_shown_or_denied_to_a_host_that_does_not_see_everything() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    let mut guest = Host::of(&rig, GUEST);
    // **A log page that is added needs a line here**, and is denied until `Need::of_log` says
    // otherwise.
    let shown = [
        lid::SUPPORTED,
        lid::ERROR,
        lid::SMART,
        lid::FIRMWARE,
        lid::CHANGED_NAMESPACES,
        lid::EFFECTS,
        lid::FEATURES,
        lid::MANAGEMENT,
        // Of the namespaces that it sees, and of what it has registered.
        lid::ANA,
        lid::RESERVATION,
    ];
    // Its hits of deduplication would say what other hosts have written.
    let denied = [lid::STATISTICS];

    for page in 0..=u8::MAX {
        let (to_owner, to_guest) = (owner.log(page, 64, true), guest.log(page, 64, true));
        let known = shown.contains(&page) || denied.contains(&page);
        assert_eq!(to_owner.is_ok(), known, "log page {page:#04x}");
        let expected = if denied.contains(&page) {
            Some(DENIED)
        } else {
            to_owner.err()
        };
        assert_eq!(to_guest.err(), expected, "log page {page:#04x}");
    }

    // SMART of a namespace is not supported: of a hidden one nothing else is said than of none.
    let smart = |host: &mut Host, nsid| {
        let sqe = Sqe {
            cdw10: u32::from(lid::SMART) | 15 << 16,
            ..entry(admin::GET_LOG_PAGE, nsid)
        };
        host.admin.call(transport(sqe, 64), &[]).cqe.status()
    };
    assert_eq!(smart(&mut guest, 2), Status::INVALID_FIELD);
    assert_eq!(smart(&mut guest, 3), HIDDEN);
    assert_eq!(smart(&mut guest, 4), HIDDEN);
    rig.stop();
}

#[test]
fn every_admin_command_has_been_thought_about() {
    let rig = rig();
    let mut owner = Host::of(&rig, OWNER);
    // **A command that is added needs a line here**: does it show or change what is another
    // host's? None of these does, but for Identify, Get Log Page and Format (`tests/format.rs`), which
    // have tests of their own.
    let known = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
        admin::KEEP_ALIVE,
        admin::FORMAT,
        admin::FABRICS,
    ];
    for code in (0..=u8::MAX).filter(|code| *code != admin::ASYNC_EVENT) {
        let mut sqe = entry(code, 0);
        // A type of Fabrics commands that there is not.
        if code == admin::FABRICS {
            sqe.nsid = 0xff;
        }
        let answer = owner.admin.call(transport(sqe, PAGE as u32), &[]);
        let is_known = answer.cqe.status() != Status::INVALID_OPCODE;
        assert_eq!(is_known, known.contains(&code), "{code:#04x}");
    }
    rig.stop();
}

#[test]
fn a_feature_of_a_hidden_namespace_is_neither_read_nor_set() {
    let rig = rig();
    let (mut owner, mut guest) = (Host::of(&rig, OWNER), Host::of(&rig, GUEST));
    for code in [admin::GET_FEATURES, admin::SET_FEATURES] {
        for fid in 0..=u8::MAX {
            let ask = |nsid, host: &mut Host| {
                let sqe = Sqe {
                    cdw10: fid.into(),
                    ..entry(code, nsid)
                };
                if u32::from(fid) == HOST_BEHAVIOR {
                    return Status::SUCCESS;
                }
                host.admin.call(transport(sqe, 0), &[]).cqe.status()
            };
            // As of a namespace that is not there, whatever feature it is.
            let none = ask(4, &mut owner);
            assert_eq!(ask(3, &mut guest), none, "feature {fid:#04x}, {code:#04x}");
        }
    }
    // Error Recovery is a namespace's.
    let sqe = |nsid| Sqe {
        cdw10: 5,
        ..entry(admin::GET_FEATURES, nsid)
    };
    let mut get = |nsid| guest.admin.call(transport(sqe(nsid), 0), &[]).cqe.status();
    assert_eq!((get(2), get(3)), (Status::SUCCESS, HIDDEN));
    rig.stop();
}

#[test]
fn a_write_that_is_refused_is_refused_before_its_data_are_asked_for() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    for (nsid, expected) in [(2, PROTECTED), (3, HIDDEN)] {
        // `call` takes no request for data.
        let write = transport(entry(io::WRITE, nsid), PAGE as u32);
        assert_eq!(guest.io.call(write, &[]).cqe.status(), expected);
    }
    rig.stop();
}

/// What a connection answers to a PDU.
fn says(connection: &mut Connection, kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut sent, mut out) = (Vec::new(), Output::default());
    put(&mut sent);
    let received = connection.receive(0, &sent, &mut out);
    assert!(
        received.is_ok() || connection.refused().is_some(),
        "PDU {kind}"
    );
    let mut answer = Vec::new();
    out.write_to(&mut answer).expect("memory");
    answer
}

#[test]
fn a_queue_from_an_address_with_other_rights_does_not_join() {
    let subsystem = Subsystem::new(
        device(32 << 20, false),
        kit::NQN,
        &namespaces(),
        Latency::None,
        true,
        Health::default(),
    );
    let entry_of = |address: &str, rights: &str| AllowedHost {
        who: Who::Address(address.parse().expect("an address")),
        rights: Rights::parse(rights).expect("rights"),
    };
    let list = Allowed {
        anybody: false,
        hosts: vec![
            entry_of("192.0.2.1", "all:rw"),
            entry_of("192.0.2.2", "all:ro"),
            entry_of("192.0.2.3", "all:rw"),
        ],
    };
    let port = Arc::new(Port::new(Arc::new(subsystem.expect("possible")), list));

    let agreed = Agreement::default();
    let opened = |from: &str| {
        let (peer, local) = (format!("{from}:5000"), "192.0.2.9:4420");
        let [peer, local] = [peer.as_str(), local].map(|text| text.parse().expect("an address"));
        let mut connection = Connection::new(port.clone(), peer, local);
        says(&mut connection, kind::IC_REQ, |to| {
            wire::put_ic(to, kind::IC_REQ, &Ic::new(0, 0, 0));
        });
        connection
    };
    let connect = |connection: &mut Connection, qid, cntlid| {
        let data = kit::raw::connect_data(cntlid);
        says(connection, kind::CAPSULE_CMD, |to| {
            let sqe = kit::raw::connect(qid);
            let (flags, data) = (Flags::new(), data.as_bytes());
            wire::put_data(to, kind::CAPSULE_CMD, flags, &sqe, agreed, data);
        });
    };

    let mut admin = opened("192.0.2.1");
    connect(&mut admin, 0, 0xffff);
    let cntlid = admin.association().expect("connected").cntlid();
    let enable = kit::raw::property_set(property::CC, kit::raw::enabled());
    says(&mut admin, kind::CAPSULE_CMD, |to| {
        wire::put(to, kind::CAPSULE_CMD, Flags::new(), &enable, agreed);
    });

    for (from, qid, why) in [
        (
            "192.0.2.2",
            1,
            Some("its address has other rights than that of its admin queue"),
        ),
        ("192.0.2.3", 1, None),
        ("192.0.2.1", 2, None),
    ] {
        let mut queue = opened(from);
        connect(&mut queue, qid, cntlid);
        assert_eq!(
            queue.refused().map(|refused| refused.refusal.why),
            why,
            "{from}"
        );
        assert_eq!(queue.connected().is_some(), why.is_none(), "{from}");
    }
}

#[test]
fn rights_that_are_taken_away_stop_a_write_whose_data_are_on_their_way() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    assert_eq!(guest.write(1, 4, 1), Status::SUCCESS);

    for (rights, expected) in [
        ("1:ro", PROTECTED),
        ("2:ro", HIDDEN),
        ("1:rw", Status::SUCCESS),
    ] {
        rig.port.replace_allowed(allowed(&[(GUEST, "all:rw")]));
        rig.port.renew_rights();
        let sqe = Sqe {
            cdw10: 4,
            ..entry(io::WRITE, 1)
        };
        let bytes = guest.io.capsule(&transport(sqe, PAGE as u32), &[]);
        guest.io.send(&bytes);
        let asked = guest.io.asked();

        rig.port.replace_allowed(allowed(&[(GUEST, rights)]));
        rig.port.renew_rights();
        let bytes = guest.io.h2c(&asked, &[2; PAGE], true);
        guest.io.send(&bytes);
        assert_eq!(guest.io.answer().cqe.status(), expected, "{rights}");
    }
    assert_eq!(guest.read(1, 4).expect("served"), [2; PAGE]);
    rig.stop();
}

#[test]
fn a_host_hears_of_namespaces_whose_rights_have_changed() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    let events = Sqe {
        cdw10: EVENTS,
        cdw11: 1 << 8,
        ..entry(admin::SET_FEATURES, 0)
    };
    let set = guest.admin.call(transport(events, 0), &[]);
    assert_eq!(set.cqe.status(), Status::SUCCESS);
    let request = |cid| with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), cid);
    let send = |guest: &mut Host, cid| {
        let bytes = guest.admin.capsule(&request(cid), &[]);
        guest.admin.send(&bytes);
    };
    send(&mut guest, 501);
    send(&mut guest, 502);

    // What it had is gone, what it read may be changed, and one has come.
    rig.port.replace_allowed(allowed(&[(GUEST, "2:rw,3:ro")]));
    rig.port.renew_rights();
    let event = guest.admin.answer().cqe;
    assert_eq!(event.cid, 501);
    // A notice, 0: the namespaces; the log page.
    assert_eq!(event.result, 2 | u64::from(lid::CHANGED_NAMESPACES) << 16);
    assert_eq!(guest.active(), [2, 3]);
    assert_eq!((guest.attributes(2), guest.attributes(3)), ([0; 2], [1; 2]));
    assert_eq!(guest.write(1, 0, 1), HIDDEN);
    assert_eq!(guest.write(2, 0, 1), Status::SUCCESS);
    assert_eq!(guest.write(3, 0, 1), PROTECTED);

    // Until it reads the page there is no other event, and the page grows.
    rig.port
        .replace_allowed(allowed(&[(GUEST, "1:rw,2:rw,3:ro")]));
    rig.port.renew_rights();
    std::thread::sleep(Duration::from_millis(600));
    let page = |guest: &mut Host, retain| {
        numbers(
            &guest
                .log(lid::CHANGED_NAMESPACES, 4096, retain)
                .expect("a page"),
        )
    };
    assert_eq!(page(&mut guest, true), [1, 2, 3]);
    assert_eq!(page(&mut guest, false), [1, 2, 3]);
    assert!(page(&mut guest, false).is_empty());

    // Rights that stay as they are are no event: the next one is for the next change.
    rig.port.renew_rights();
    rig.port
        .replace_allowed(allowed(&[(GUEST, "1:rw,2:rw,3:rw")]));
    rig.port.renew_rights();
    let event = guest.admin.answer().cqe;
    assert_eq!((event.cid, page(&mut guest, false)), (502, vec![3]));
    rig.stop();
}

#[test]
fn a_host_that_nothing_names_any_more_keeps_its_rights_until_it_connects_again() {
    let rig = rig();
    let mut guest = Host::of(&rig, GUEST);
    rig.port.replace_allowed(allowed(&[(OWNER, "all:rw")]));
    rig.port.renew_rights();
    assert_eq!(guest.active(), [1, 2]);
    assert_eq!(guest.write(1, 0, 1), Status::SUCCESS);
    assert_eq!(guest.write(2, 0, 1), PROTECTED);

    let options = Options {
        hostnqn: GUEST.into(),
        ..Options::default()
    };
    let again = Client::connect(rig.address, options);
    let Some(ClientError::Status { status, .. }) = again.err() else {
        panic!("it may not connect");
    };
    assert_eq!(status, Status::CONNECT_HOST);
    rig.stop();
}

/// The line of a host that authenticates, with options.
fn line(name: &str, first: u8, options: &str) -> String {
    format!("{name} {} {options}\n", &*secret(first).reveal())
}

#[test]
fn a_host_that_authenticates_has_the_rights_of_its_line() {
    let lines = |options: &str| line(OWNER, 1, "") + &line(GUEST, 40, options);
    let ring = keyring(&lines("namespaces=1:ro"));
    let rig = Rig::guarded(&ring, Limits::default());
    let client = |name: &str, first| {
        let credentials = Credentials {
            host: secret(first),
            controller: None,
        };
        let options = Options {
            hostnqn: name.into(),
            subnqn: Some(kit::NQN.into()),
            credentials: Some(Arc::new(credentials)),
            ..Options::default()
        };
        Client::connect(rig.address, options).expect("it may connect")
    };
    let (mut owner, mut guest) = (client(OWNER, 1), client(GUEST, 40));
    let status = |result: Result<(), ClientError>| match result {
        Ok(()) => Status::SUCCESS,
        Err(ClientError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    };

    assert_eq!(status(owner.write(0, &[3; PAGE])), Status::SUCCESS);
    assert_eq!(guest.read(0, 1).expect("it may read"), [3; PAGE]);
    assert_eq!(status(guest.write(0, &[4; PAGE])), PROTECTED);
    assert_eq!(status(guest.remap(0, 1, 1, false, false)), PROTECTED);
    assert_eq!(status(guest.statistics().map(drop)), DENIED);

    // Another file: it takes the host that is connected along.
    ring.replace(Keys::parse(&lines("namespaces=all:rw")).expect("lines"));
    assert_eq!(status(guest.write(0, &[4; PAGE])), PROTECTED, "not before");
    rig.port.renew_rights();
    assert_eq!(status(guest.write(0, &[4; PAGE])), Status::SUCCESS);
    drop((owner, guest));
    rig.stop();
}

#[test]
fn with_keys_and_a_list_a_host_has_what_both_allow() {
    // By name, without a network between: what `Port` makes of the two.
    let subsystem = Subsystem::new(
        device(32 << 20, false),
        kit::NQN,
        &namespaces(),
        Latency::None,
        true,
        Health::default(),
    );
    let subsystem = Arc::new(subsystem.expect("possible"));
    let ring = keyring(&line(GUEST, 40, "namespaces=1:rw,2:rw,3:ro"));
    let list = allowed(&[(GUEST, "1:ro,2:rw")]);
    let port = Port::new(subsystem, list).authenticated(Some(ring));
    let from = "192.0.2.1".parse().expect("an address");
    let rights = port.rights(from, GUEST).map(|rights| rights.to_string());
    assert_eq!(rights.as_deref(), Some("1:ro,2:rw"));
    assert_eq!(port.rights(from, OWNER), None);
}

#[test]
fn a_command_that_was_parsed_before_is_checked_again_when_it_is_executed() {
    let subsystem = Subsystem::new(
        mapped(),
        kit::NQN,
        &namespaces(),
        Latency::None,
        true,
        Health::default(),
    );
    let subsystem = Arc::new(subsystem.expect("possible"));
    let data = kit::raw::connect_data(0xffff);
    let address: SocketAddr = "127.0.0.1:4420".parse().expect("an address");
    let (association, _) =
        Association::connect(&subsystem, &kit::raw::connect(0), &data, address, 0)
            .expect("it may connect");
    let execute = |nsid, request: &IoRequest, from_host: &[u8]| {
        let job = Job {
            nsid,
            request,
            now: 0,
            cache_enabled: true,
            rights: association.rights(),
            actor: Actor::Host(association.host()),
        };
        let mut to_host = Vec::new();
        let mut data = InMemory {
            from_host,
            to_host: &mut to_host,
        };
        let outcome = subsystem.execute(&mut subsystem.device(), &job, &mut data);
        assert!(outcome.status.is_success() || to_host.is_empty());
        outcome.status
    };

    let each = |nsid: u32| {
        let namespace = *subsystem.namespace(nsid).expect("it is there");
        let parsed = move |one: Sample| {
            let parsed = IoRequest::parse(&one.sqe, &namespace, 0b101);
            (parsed.expect("a sample"), one.data, one.needs)
        };
        samples(nsid).into_iter().map(parsed)
    };
    // Before a host has been given any rights it has none.
    for (request, data, _) in each(1).filter(|(request, ..)| *request != IoRequest::Flush) {
        assert_eq!(execute(1, &request, &data), HIDDEN, "{request:?}");
    }
    association.grant(Rights::parse(GUESTS).expect("rights"));
    for nsid in 1..=3 {
        for (request, data, needs) in each(nsid) {
            let expected = match request {
                // It names no namespace by now.
                IoRequest::Flush => Status::SUCCESS,
                // What is compared was not written there.
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
