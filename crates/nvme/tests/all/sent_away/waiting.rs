//! Each way to send a host away, at each place where a command waits outside of the device.

use crate::kit::raw::{Arrived, in_capsule, property_set, transport, with_cid};
use crate::kit::specified::property;
use crate::kit::{self, allowed};
use crate::sent_away::line::{Line, asked, capsule, completion, data_for};
use crate::sent_away::shut_down::shut_down;
use crate::sent_away::{GUEST, HOSTS, OWNER, PAGE, detach, make_again, read, write};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Association, Subsystem};
use remap_ssd_nvme::spec::pdu::kind;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::target::{End, Port};
use std::sync::Arc;
use tempfile::TempDir;

/// Pages of the write that waits, and its first block.
const PAGES: usize = 16;
const SLBA: u32 = 64;

/// How a host is sent away. Each is acknowledged when `Case::send_away` returns.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    /// CC.EN = 0.
    Reset,
    /// An operator drops it.
    Drop,
    /// Its admin connection ends.
    AdminEnds,
    /// It is on no list any more.
    Unlisted,
    /// An operator cuts the power.
    PowerCut,
    /// It may only read.
    ReadOnly,
    /// The namespace is detached from it.
    Detached,
    /// The namespace is deleted, and another one with its number and its pages is attached.
    Deleted,
    /// It shuts its controller down.
    ShutDown,
}

const VERBS: [Verb; 9] = [
    Verb::Reset,
    Verb::Drop,
    Verb::AdminEnds,
    Verb::Unlisted,
    Verb::PowerCut,
    Verb::ReadOnly,
    Verb::Detached,
    Verb::Deleted,
    Verb::ShutDown,
];

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waits {
    /// All the data that it was asked for.
    Data,
    /// The second half of them. The first has been written.
    Rest,
    /// It has arrived whole, and was not looked at.
    Unread,
    /// It is executed, and waits until it is durable.
    Sync,
}

struct Case {
    subsystem: Arc<Subsystem>,
    port: Arc<Port>,
    admin: Option<Line>,
    cntlid: u16,
    io: Line,
    _folder: TempDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false);
        let path = folder.path().join("device");
        let device = Device::create_in_folder(&path, config.expect("possible"), None);
        let device = device.expect("there is room");
        let subsystem = Arc::new(kit::subsystem(device, &[]));
        let port = Arc::new(Port::new(subsystem.clone(), allowed(&HOSTS)));
        let (admin, cntlid) = Line::admin(&port, GUEST);
        Self {
            io: Line::io(&port, GUEST, cntlid),
            subsystem,
            admin: Some(admin),
            cntlid,
            port,
            _folder: folder,
        }
    }

    /// A write of the guest's comes as far as this; what it sends afterwards.
    fn begin(&mut self, waits: Waits) -> Vec<u8> {
        let (bytes, data) = (PAGES * PAGE, vec![1; PAGES * PAGE]);
        let sqe = with_cid(write(SLBA, PAGES, waits == Waits::Sync), 7);
        let whole = capsule(&in_capsule(sqe, bytes as u32), &data);
        let mut ask = || {
            asked(
                &self
                    .io
                    .says(&capsule(&transport(sqe, bytes as u32), &[]))
                    .expect("asked"),
            )
        };
        match waits {
            Waits::Unread => whole,
            Waits::Data => data_for(&ask(), 0, &data, true),
            Waits::Rest => {
                let (asked, half) = (ask(), bytes / 2);
                let first = self.io.says(&data_for(&asked, 0, &data[..half], false));
                assert!(first.expect("taken").is_empty());
                data_for(&asked, half, &data[half..], true)
            }
            Waits::Sync => {
                assert!(self.io.says(&whole).expect("executed").is_empty());
                assert!(self.io.connection.is_awaiting_sync());
                Vec::new()
            }
        }
    }

    fn send_away(&mut self, verb: Verb) {
        let relist = |hosts: &[(&str, &str)]| {
            self.port.replace_allowed(allowed(hosts));
            self.port.renew_rights()
        };
        match verb {
            Verb::Reset => {
                let admin = self.admin.as_mut().expect("it is connected");
                let done = admin.calls(&property_set(property::CC, 0), &[]);
                assert_eq!(done.status(), Status::SUCCESS);
            }
            Verb::Drop => {
                let association = self.io.connection.association().expect("connected");
                Association::end_all(std::slice::from_ref(association));
            }
            Verb::AdminEnds => {
                let mut admin = self.admin.take().expect("it is connected");
                admin.connection.end();
            }
            Verb::Unlisted => assert_eq!(relist(&HOSTS[..1]), [GUEST.to_owned()].into()),
            Verb::PowerCut => {
                self.subsystem.power_cut_of_all(1).expect("it recovers");
            }
            Verb::ReadOnly => assert!(relist(&[HOSTS[0], (GUEST, "all:ro")]).is_empty()),
            Verb::Detached => {
                let (mut owner, _) = Line::admin(&self.port, OWNER);
                let (sqe, list) = detach(self.cntlid);
                assert_eq!(owner.calls(&sqe, &list).status(), Status::SUCCESS);
            }
            Verb::Deleted => {
                let (mut owner, cntlid) = Line::admin(&self.port, OWNER);
                let mut both = [self.cntlid, cntlid];
                both.sort_unstable();
                for (sqe, data) in make_again(&both) {
                    assert_eq!(owner.calls(&sqe, &data).status(), Status::SUCCESS);
                }
            }
            Verb::ShutDown => {
                let admin = self.admin.as_mut().expect("it is connected");
                let done = admin.calls(&property_set(property::CC, shut_down()), &[]);
                assert_eq!(done.status(), Status::SUCCESS);
            }
        }
    }

    /// The guest sends the rest; what it is answered.
    fn go_on(&mut self, rest: &[u8]) -> Result<Vec<Arrived>, End> {
        if self.io.connection.is_awaiting_sync() {
            self.io.syncs();
            let answers = self.io.answers();
            let end = self.io.says(&[]).err();
            if let Some(end) = end {
                assert!(answers.is_empty(), "a queue that is gone is not answered");
                return Err(end);
            }
            return Ok(answers);
        }
        self.io.says(rest)
    }
}

/// One verb while a write waits for one thing: another host writes the same blocks after the
/// acknowledgement, and then the write goes on.
fn check(verb: Verb, waits: Waits) {
    let what = format!("{verb:?} while a write waits: {waits:?}");
    let mut case = Case::new();
    let rest = case.begin(waits);
    case.send_away(verb);

    let (_admin, cntlid) = Line::admin(&case.port, OWNER);
    let mut owner = Line::io(&case.port, OWNER, cntlid);
    let theirs = vec![2; PAGES * PAGE];
    let done = owner.calls(&write(SLBA, PAGES, false), &theirs);
    assert_eq!(done.status(), Status::SUCCESS, "{what}");

    let answer = case.go_on(&rest);
    assert!(
        case.io.answers().is_empty(),
        "{what}: nothing is left to be sent"
    );
    match verb {
        Verb::Reset => assert_eq!(answer.err(), Some(End::Reset), "{what}"),
        Verb::ReadOnly | Verb::Detached | Verb::Deleted | Verb::ShutDown
            if waits != Waits::Sync =>
        {
            let done = completion(&answer.expect("it stays connected")).expect(&what);
            let expected = match verb {
                Verb::ReadOnly => Status::WRITE_PROTECTED,
                Verb::ShutDown => Status::SEQUENCE,
                // It is another namespace, though its number is the same: a command that was checked
                // before may not touch it.
                Verb::Deleted if waits == Waits::Unread => Status::SUCCESS,
                _ => Status::INVALID_NAMESPACE,
            };
            assert_eq!(done.status(), expected, "{what}");
            if expected == Status::SUCCESS {
                return;
            }
        }
        // It was executed before its host lost the right.
        Verb::ReadOnly | Verb::Detached | Verb::Deleted | Verb::ShutDown => {
            assert!(answer.is_ok(), "{what}")
        }
        _ => assert_eq!(answer.err(), Some(End::Closed), "{what}"),
    }

    let sqe = transport(read(SLBA, PAGES), theirs.len() as u32);
    let answers = owner.says(&capsule(&sqe, &[])).expect("it goes on");
    let data = answers
        .iter()
        .filter(|one| one.common.kind == kind::C2H_DATA);
    let data: Vec<u8> = data.flat_map(|one| one.data.clone()).collect();
    assert!(
        data == theirs,
        "{what}: the medium has what was written last"
    );
}

#[test]
fn a_write_whose_data_come_after_its_host_was_sent_away_is_not_executed() {
    VERBS.into_iter().for_each(|verb| check(verb, Waits::Data));
}

#[test]
fn the_rest_of_a_write_that_comes_after_its_host_was_sent_away_is_not_executed() {
    VERBS.into_iter().for_each(|verb| check(verb, Waits::Rest));
}

#[test]
fn a_write_that_is_read_after_its_host_was_sent_away_is_not_executed() {
    VERBS
        .into_iter()
        .for_each(|verb| check(verb, Waits::Unread));
}

#[test]
fn a_write_that_becomes_durable_after_its_host_was_sent_away_is_not_acknowledged() {
    VERBS.into_iter().for_each(|verb| check(verb, Waits::Sync));
}

/// Commands without a turn at the device: a namespace is created, its data come too late.
#[test]
fn an_admin_command_whose_data_come_after_its_host_was_sent_away_changes_nothing() {
    for verb in [Verb::Drop, Verb::Unlisted, Verb::PowerCut] {
        let mut case = Case::new();
        let (sqe, list) = detach(case.cntlid);
        let admin = case.admin.as_mut().expect("it is connected");
        let answers = admin.says(&capsule(&transport(sqe, 4096), &[]));
        let asked = asked(&answers.expect("asked"));

        case.send_away(verb);
        let admin = case.admin.as_mut().expect("it is connected");
        let end = admin.says(&data_for(&asked, 0, &list, true)).err();
        assert_eq!(end, Some(End::Closed), "{verb:?}");
        let attachment = case.subsystem.attachment(1).expect("it is there");
        assert!(attachment.includes(Some(GUEST)), "{verb:?}");
    }
}
