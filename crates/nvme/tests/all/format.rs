//! Format NVM: the namespace reads as zeroes, others are unchanged, and hosts without the right to
//! write cannot format.

use crate::kit::specified::OACS_FORMAT;
use crate::kit::{self, Rig, Setup, device};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{CACHE_BYTES_MIN, NamespaceSpec};
use remap_ssd_nvme::spec::command::{FormatCdw10, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, Options, entry};

const PAGE: usize = 4096;
const PAGES: u64 = 1024;

fn host(rig: &Rig, name: &str, nsid: u32) -> Client {
    let options = Options {
        hostnqn: format!("nqn.2026-11.test:{name}"),
        nsid,
        ..Options::default()
    };
    Client::connect(rig.address, options).expect("it listens")
}

fn format(client: &mut Client, nsid: u32, cdw10: FormatCdw10) -> Status {
    let sqe = Sqe {
        cdw10: cdw10.into_bits(),
        ..entry(admin::FORMAT, nsid)
    };
    let call = Call::new(sqe);
    let mut answers = client
        .admin(|queue| queue.calls(&[call]))
        .expect("connected");
    answers.remove(0).status
}

fn plain() -> FormatCdw10 {
    FormatCdw10::new()
}

/// Two namespaces of 4 MiB, with blocks of 4096 and of 512 bytes; each is full of its number.
fn halves() -> (Rig, [Client; 2]) {
    let specs = [12, 9].map(|lba_shift| NamespaceSpec {
        pages: PAGES as u32,
        lba_shift,
    });
    let rig = Rig::with(device(32 << 20, false), &specs);
    let mut clients = [1, 2].map(|nsid| host(&rig, "a", nsid));
    for (client, number) in clients.iter_mut().zip([1, 2]) {
        client
            .write(0, &vec![number; PAGES as usize * PAGE])
            .expect("served");
    }
    (rig, clients)
}

/// Returns true if a namespace is full of this number.
fn is_full_of(client: &mut Client, number: u8) -> bool {
    let blocks = PAGES << (12 - client.lba_shift());
    let all = client.read(0, blocks).expect("served");
    all.len() == PAGES as usize * PAGE && all.iter().all(|byte| *byte == number)
}

#[test]
fn a_formatted_namespace_reads_as_zeroes_and_its_neighbour_as_before() {
    for formatted in [0, 1] {
        for ses in [0, 1] {
            let (_rig, mut clients) = halves();
            assert!(clients[0].controller().oacs & OACS_FORMAT != 0);
            let nsid = formatted as u32 + 1;
            let same = plain().with_lbafl(formatted as u8);
            let status = format(&mut clients[0], nsid, same.with_ses(ses));
            assert_eq!(status, Status::SUCCESS);
            assert!(is_full_of(&mut clients[formatted], 0));
            assert!(is_full_of(&mut clients[1 - formatted], 2 - formatted as u8));

            // It remains usable.
            clients[formatted].write(0, &[9; PAGE]).expect("served");
            assert_eq!(
                clients[formatted].read(0, 1).expect("served")[..512],
                [9; 512]
            );
        }
    }
}

#[test]
fn what_is_in_a_volatile_cache_is_formatted_too_and_does_not_come_back_with_the_power() {
    for seed in 0..8 {
        let rig =
            Rig::of(kit::subsystem(device(32 << 20, false), &[]).with_cache(64 * CACHE_BYTES_MIN));
        let mut client = rig.client();
        client.write(0, &[1; 8 * PAGE]).expect("served");
        client.flush().expect("served");
        client.write(0, &[2; 8 * PAGE]).expect("served");
        assert_eq!(format(&mut client, 1, plain()), Status::SUCCESS);
        assert_eq!(client.read(0, 8).expect("served"), [0; 8 * PAGE]);
        rig.subsystem.power_cut(seed).expect("it recovers");
        assert_eq!(client.read(0, 8).expect("served"), [0; 8 * PAGE]);
    }
}

#[test]
fn a_format_is_durable_when_it_is_acknowledged() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false);
    let config = config.expect("possible");
    let folder = dir.path().join("device");
    let device = Device::create_in_folder(&folder, config, None).expect("there is room");
    let rig = Rig::with(device, &[]);
    let mut client = rig.client();
    client.write(0, &[1; 8 * PAGE]).expect("served");
    client.flush().expect("served");

    let before = rig.subsystem.commits();
    assert_eq!(format(&mut client, 1, plain()), Status::SUCCESS);
    assert!(rig.subsystem.commits() > before, "it waits for the disk");

    // A flush then has nothing left to make durable.
    let before = rig.subsystem.commits();
    client.flush().expect("served");
    assert_eq!(rig.subsystem.commits() - before, 0);
}

#[test]
fn a_format_that_cannot_be_changes_nothing() {
    let (_rig, mut clients) = halves();
    let field = [plain().with_ses(2), plain().with_ses(7)];
    let formats = [
        plain().with_lbafl(2),
        plain().with_lbafl(15),
        plain().with_lbafu(1),
        plain().with_pi(1),
        plain().with_mset(true),
    ];
    for cdw10 in field {
        assert_eq!(format(&mut clients[0], 1, cdw10), Status::INVALID_FIELD);
    }
    for cdw10 in formats {
        assert_eq!(format(&mut clients[0], 1, cdw10), Status::INVALID_FORMAT);
    }
    assert_eq!(
        format(&mut clients[0], u32::MAX, plain()),
        Status::INVALID_FIELD
    );
    for nsid in [0, 3] {
        let status = format(&mut clients[0], nsid, plain());
        assert_eq!(status, Status::INVALID_NAMESPACE);
    }
    assert!(is_full_of(&mut clients[0], 1) && is_full_of(&mut clients[1], 2));
}

#[test]
fn a_host_that_a_reservation_keeps_out_formats_nothing() {
    let (rig, mut clients) = halves();
    let mut holder = host(&rig, "holder", 1);
    for (opcode, cdw10, keys) in [
        (io::RESERVATION_REGISTER, 0, [0u64, 1]),
        (io::RESERVATION_ACQUIRE, 1 << 8, [1, 0]),
    ] {
        let send = keys.map(u64::to_le_bytes).concat();
        let sqe = Sqe {
            cdw10,
            ..entry(opcode, 1)
        };
        let call = Call::sending(sqe, &send);
        let answers = holder.queue(|queue| queue.calls(&[call]));
        assert_eq!(answers.expect("connected")[0].status, Status::SUCCESS);
    }
    let status = format(&mut clients[0], 1, plain());
    assert_eq!(status, Status::RESERVATION_CONFLICT);
    assert!(is_full_of(&mut clients[0], 1));

    // Nor with another block size.
    let status = format(&mut clients[0], 1, plain().with_lbafl(1));
    assert_eq!(status, Status::RESERVATION_CONFLICT);
    assert!(is_full_of(&mut clients[0], 1));

    // The other namespace is not reserved; and the holder may format.
    let status = format(&mut clients[0], 2, plain().with_lbafl(1));
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(format(&mut holder, 1, plain()), Status::SUCCESS);
    assert!(is_full_of(&mut clients[0], 0) && is_full_of(&mut clients[1], 0));
}

#[test]
fn a_host_that_only_reads_formats_nothing() {
    let spec = NamespaceSpec {
        pages: PAGES as u32,
        lba_shift: 12,
    };
    let hosts = [
        ("nqn.2026-11.test:owner", "all:rw"),
        ("nqn.2026-11.test:guest", "1:rw,2:ro"),
    ];
    let rig = Setup::of(kit::subsystem(device(32 << 20, false), &[spec; 3]))
        .hosts(&hosts)
        .start();
    let mut owner = host(&rig, "owner", 2);
    owner
        .write(0, &vec![2; PAGES as usize * PAGE])
        .expect("served");

    let mut guest = host(&rig, "guest", 2);
    let statuses = [1, 2, 3].map(|nsid| format(&mut guest, nsid, plain()));
    let expected = [
        Status::SUCCESS,
        Status::WRITE_PROTECTED,
        Status::INVALID_NAMESPACE,
    ];
    assert_eq!(statuses, expected);
    assert!(is_full_of(&mut owner, 2));
}

#[test]
fn others_go_first_between_its_slices() {
    let rig = Rig::with(device(256 << 20, false), &[]);
    let mut client = rig.client();
    let before = rig.subsystem.slices();
    assert_eq!(format(&mut client, 1, plain()), Status::SUCCESS);
    // 65,536 pages at 16 per unit are four slices of 1,000.
    assert!(rig.subsystem.slices() >= before + 4);
}
