//! Features: their effects, scopes, and when they may be set.

use crate::kit::raw::{Peer, enabled, property_set, transport, with_cid};
use crate::kit::specified::{lid, property, status};
use crate::kit::{Rig, device};
use remap_ssd_nvme::controller::NamespaceSpec;
use remap_ssd_nvme::spec::command::Sqe;
use remap_ssd_nvme::spec::opcode::admin;
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use std::time::{Duration, Instant};

const TEMPERATURE: u32 = 0x04;
const ERROR_RECOVERY: u32 = 0x05;
const WRITE_CACHE: u32 = 0x06;
const QUEUES: u32 = 0x07;
const EVENTS: u32 = 0x0b;
const KEEP_ALIVE: u32 = 0x0f;
const ALL: u32 = u32::MAX;

fn set(peer: &mut Peer, nsid: u32, fid: u32, value: u32) -> Status {
    let sqe = Sqe {
        cdw10: fid,
        cdw11: value,
        ..entry(admin::SET_FEATURES, nsid)
    };
    peer.call(transport(sqe, 0), &[]).cqe.status()
}

fn get(peer: &mut Peer, nsid: u32, fid: u32, value: u32) -> Result<u64, Status> {
    let sqe = Sqe {
        cdw10: fid,
        cdw11: value,
        ..entry(admin::GET_FEATURES, nsid)
    };
    let cqe = peer.call(transport(sqe, 0), &[]).cqe;
    if cqe.status().is_success() {
        Ok(cqe.result)
    } else {
        Err(cqe.status())
    }
}

fn log(lid: u8, nsid: u32, bytes: u32, retain: bool) -> Sqe {
    let sqe = entry(admin::GET_LOG_PAGE, nsid);
    transport(
        Sqe {
            cdw10: u32::from(lid) | u32::from(retain) << 15 | (bytes / 4 - 1) << 16,
            ..sqe
        },
        bytes,
    )
}

fn critical_warning(peer: &mut Peer, retain: bool) -> u8 {
    let answer = peer.call(log(lid::SMART, ALL, 512, retain), &[]);
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    answer.data[0]
}

#[test]
fn temperature_thresholds_warn_and_make_an_event() {
    let rig = Rig::new();
    let (mut peer, _) = Peer::admin(rig.address);
    let under = 1 << 20;
    assert_eq!(get(&mut peer, 0, TEMPERATURE, 0), Ok(343));
    assert_eq!(get(&mut peer, 0, TEMPERATURE, under), Ok(0));
    // Its temperature is 300 K.
    assert_eq!(critical_warning(&mut peer, false), 0);
    assert_eq!(set(&mut peer, 0, TEMPERATURE, under | 290), Status::SUCCESS);
    assert_eq!(
        (
            get(&mut peer, 0, TEMPERATURE, 0),
            get(&mut peer, 0, TEMPERATURE, under)
        ),
        (Ok(343), Ok(290))
    );
    assert_eq!(critical_warning(&mut peer, false), 0);

    // The host enables temperature events, and lowers the threshold below the temperature.
    assert_eq!(set(&mut peer, 0, EVENTS, 2), Status::SUCCESS);
    for cid in [70, 71] {
        let event = with_cid(transport(entry(admin::ASYNC_EVENT, 0), 0), cid);
        let bytes = peer.capsule(&event, &[]);
        peer.send(&bytes);
    }
    assert_eq!(set(&mut peer, 0, TEMPERATURE, 300), Status::SUCCESS);
    let event = peer.answer().cqe;
    assert_eq!(
        (event.cid, event.result),
        (70, 0x0002_0101),
        "SMART, temperature, see log page 2"
    );
    assert_eq!(
        critical_warning(&mut peer, true),
        2,
        "read, and the event retained"
    );

    // Crossed again: no second event before the log has been read.
    assert_eq!(set(&mut peer, 0, TEMPERATURE, 343), Status::SUCCESS);
    assert_eq!(critical_warning(&mut peer, true), 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(set(&mut peer, 0, TEMPERATURE, under | 310), Status::SUCCESS);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(
        critical_warning(&mut peer, false),
        2,
        "an answer, and no event before it"
    );
    assert_eq!(peer.answer().cqe.cid, 71, "now there is one");

    // One sensor, two thresholds.
    for impossible in [1 << 16, 8 << 16, 2 << 20, 3 << 20] {
        assert_eq!(
            set(&mut peer, 0, TEMPERATURE, impossible | 300),
            Status::INVALID_FIELD,
            "{impossible:#x}"
        );
        assert_eq!(
            get(&mut peer, 0, TEMPERATURE, impossible),
            Err(Status::INVALID_FIELD)
        );
    }
    assert_eq!(
        set(&mut peer, 0, TEMPERATURE, 15 << 16 | 350),
        Status::SUCCESS,
        "all sensors"
    );
    assert_eq!(get(&mut peer, 0, TEMPERATURE, 0), Ok(350));
}

#[test]
fn the_number_of_queues_is_fixed_once_there_is_one() {
    let rig = Rig::new();
    let (mut peer, cntlid) = Peer::admin(rig.address);
    assert_eq!(set(&mut peer, 0, QUEUES, 0x0003_0003), Status::SUCCESS);
    assert_eq!(get(&mut peer, 0, QUEUES, 0), Ok(0x0003_0003));
    let queue = Peer::io(rig.address, cntlid, 4, 0);
    assert_eq!(set(&mut peer, 0, QUEUES, 0x0007_0007), Status::SEQUENCE);
    drop(queue);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        set(&mut peer, 0, QUEUES, 0x0007_0007),
        Status::SEQUENCE,
        "there was one since the reset"
    );
    for cc in [0, enabled()] {
        assert_eq!(
            peer.call(property_set(property::CC, cc), &[]).cqe.status(),
            Status::SUCCESS
        );
    }
    assert_eq!(set(&mut peer, 0, QUEUES, 0x0007_0007), Status::SUCCESS);
}

#[test]
fn features_are_the_controllers_except_error_recovery() {
    let specs = [NamespaceSpec {
        pages: 1000,
        lba_shift: 12,
    }; 2];
    let rig = Rig::with(device(32 << 20, false), &specs);
    let (mut peer, _) = Peer::admin(rig.address);
    assert_eq!(
        set(&mut peer, 1, WRITE_CACHE, 0),
        status::NOT_NAMESPACE_SPECIFIC
    );
    assert_eq!(get(&mut peer, 0, WRITE_CACHE, 0), Ok(1), "it is as it was");
    assert_eq!(set(&mut peer, 3, WRITE_CACHE, 0), Status::INVALID_NAMESPACE);
    assert_eq!(set(&mut peer, ALL, WRITE_CACHE, 0), Status::SUCCESS);
    assert_eq!(get(&mut peer, 0, WRITE_CACHE, 0), Ok(0));

    assert_eq!(set(&mut peer, 1, ERROR_RECOVERY, 5), Status::SUCCESS);
    assert_eq!(
        (
            get(&mut peer, 1, ERROR_RECOVERY, 0),
            get(&mut peer, 2, ERROR_RECOVERY, 0)
        ),
        (Ok(5), Ok(0))
    );
    assert_eq!(set(&mut peer, ALL, ERROR_RECOVERY, 6), Status::SUCCESS);
    assert_eq!(
        (
            get(&mut peer, 1, ERROR_RECOVERY, 0),
            get(&mut peer, 2, ERROR_RECOVERY, 0)
        ),
        (Ok(6), Ok(6))
    );
    assert_eq!(
        set(&mut peer, 1, ERROR_RECOVERY, 1 << 16),
        Status::INVALID_FIELD,
        "no errors for deallocated blocks"
    );
    for nsid in [0, 3, ALL] {
        assert_eq!(
            get(&mut peer, nsid, ERROR_RECOVERY, 0),
            Err(Status::INVALID_NAMESPACE),
            "{nsid:#x}"
        );
    }
    assert_eq!(set(&mut peer, 0, 0x70, 0), Status::INVALID_FIELD);
}

#[test]
fn a_keep_alive_time_is_rounded_up_and_kept_to() {
    let rig = Rig::new();
    let (mut peer, _) = Peer::admin(rig.address);
    for (asked, granted) in [
        (1, 1000),
        (1000, 1000),
        (1001, 2000),
        (0, 0),
        (u32::MAX, 4_294_967_000),
    ] {
        assert_eq!(set(&mut peer, 0, KEEP_ALIVE, asked), Status::SUCCESS);
        assert_eq!(get(&mut peer, 0, KEEP_ALIVE, 0), Ok(granted));
    }
    let id = peer
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
    assert_eq!(
        u16::from_le_bytes([id[320], id[321]]),
        10,
        "KAS: in steps of 1 s"
    );
    assert_eq!(id[96] >> 6 & 1, 1, "TBKAS: any command keeps it alive");

    // Any command does, beyond that time; then silence ends it, but not before that time.
    assert_eq!(set(&mut peer, 0, KEEP_ALIVE, 1900), Status::SUCCESS);
    for _ in 0..7 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(get(&mut peer, 0, KEEP_ALIVE, 0), Ok(2000));
    }
    let began = Instant::now();
    assert!(peer.next().is_none(), "it ends");
    let silent = began.elapsed();
    assert!(silent >= Duration::from_millis(1950), "{silent:?}");
}

#[test]
fn logs_and_structures_are_those_of_version_2() {
    let rig = Rig::new();
    let (mut peer, _) = Peer::admin(rig.address);
    let mut read = |lid, nsid, bytes| {
        let answer = peer.call(log(lid, nsid, bytes, false), &[]);
        (answer.cqe.status(), answer.data)
    };
    let dword = |page: &[u8], at: usize| {
        u32::from_le_bytes(page[at * 4..at * 4 + 4].try_into().expect("four bytes"))
    };

    let (status, supported) = read(lid::SUPPORTED, 0, 1024);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(
        (
            dword(&supported, 0x12),
            dword(&supported, 0x13),
            dword(&supported, 0x14)
        ),
        (1, 1, 0)
    );
    let (status, features) = read(lid::FEATURES, 0, 1024);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(
        dword(&features, WRITE_CACHE as usize),
        1 | 1 << 21,
        "supported, the controller's"
    );
    assert_eq!(
        dword(&features, ERROR_RECOVERY as usize),
        1 | 1 << 20,
        "supported, a namespace's"
    );
    assert_eq!((dword(&features, 0x16) & 1, dword(&features, 0x0c)), (1, 0));
    let (status, management) = read(lid::MANAGEMENT, 0, 4096);
    assert_eq!(
        (status, management),
        (Status::SUCCESS, vec![0; 4096]),
        "there is no management interface"
    );

    assert_eq!(read(lid::SMART, 0, 512).0, Status::SUCCESS);
    assert_eq!(read(lid::SMART, ALL, 512).0, Status::SUCCESS);
    assert_eq!(
        read(lid::SMART, 1, 512).0,
        Status::INVALID_FIELD,
        "no namespace has a SMART of its own"
    );
    assert_eq!(read(lid::SMART, 2, 512).0, Status::INVALID_NAMESPACE);

    let mut identify = |cns: u32, nsid| {
        let answer = peer.call(
            transport(
                Sqe {
                    cdw10: cns,
                    ..entry(admin::IDENTIFY, nsid)
                },
                4096,
            ),
            &[],
        );
        (answer.cqe.status(), answer.data)
    };
    // Properties common to all namespaces: two formats, and no size.
    let (status, common) = identify(0, ALL);
    assert_eq!(
        (status, common[25], &common[..8]),
        (Status::SUCCESS, 1, &[0; 8][..])
    );
    assert_eq!(identify(0, 0).0, Status::INVALID_NAMESPACE);
    let (status, list) = identify(3, 1);
    assert_eq!(status, Status::SUCCESS);
    let mut found = Vec::new();
    let mut at = 0;
    while list[at] != 0 {
        let len = usize::from(list[at + 1]);
        found.push((list[at], list[at + 4..at + 4 + len].to_vec()));
        at += 4 + len;
    }
    assert_eq!(
        found
            .iter()
            .map(|(kind, id)| (*kind, id.len()))
            .collect::<Vec<_>>(),
        [(1, 8), (2, 16), (3, 16), (4, 1)]
    );
    let uuid = &found[2].1;
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2), "RFC 9562, version 8");
}
