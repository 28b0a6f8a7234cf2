//! Identify, log pages and features of the controller, and the statuses of refused commands.

use super::*;
use crate::kit::specified::status;

#[test]
fn what_cannot_be_is_refused_with_the_right_status() {
    let rig = Rig::new();
    let mut client = rig.client();
    let mut try_one = |sqe: Sqe, send: &[u8], receive| {
        let call = Call { sqe, send, receive };
        status(client.queue(|queue| queue.call("test", &call)))
    };
    let rw = |opcode, slba: u64, blocks: u32| {
        let mut sqe = entry(opcode, 1);
        (sqe.cdw10, sqe.cdw11) = (slba as u32, (slba >> 32) as u32);
        sqe.cdw12 = RwCdw12::new().with_nlb_z((blocks - 1) as u16).into_bits();
        sqe
    };
    assert_eq!(try_one(rw(io::READ, 8191, 1), &[], 4096), Status::SUCCESS);
    assert_eq!(try_one(rw(io::READ, 8192, 1), &[], 4096), Status::LBA_RANGE);
    assert_eq!(
        try_one(rw(io::READ, u64::MAX, 1), &[], 4096),
        Status::LBA_RANGE
    );
    assert_eq!(
        try_one(rw(io::READ, 0, 257), &[], 257 << 12),
        Status::INVALID_FIELD
    );
    assert_eq!(try_one(rw(io::READ, 0, 2), &[], 4096), status::SGL_LENGTH);
    assert_eq!(
        try_one(rw(io::WRITE, 0, 2), &[0; 4096], 0),
        status::SGL_LENGTH
    );
    assert_eq!(
        try_one(rw(io::VERIFY, 0, 65_536), &[], 0),
        Status::LBA_RANGE
    );
    assert_eq!(
        try_one(rw(io::WRITE_ZEROES, 8000, 192), &[], 0),
        Status::SUCCESS
    );
    assert_eq!(
        try_one(
            Sqe {
                nsid: 2,
                ..rw(io::READ, 0, 1)
            },
            &[],
            4096
        ),
        Status::INVALID_NAMESPACE
    );
    assert_eq!(try_one(entry(0x55, 1), &[], 0), Status::INVALID_OPCODE);
    assert_eq!(
        try_one(
            Sqe {
                cdw0: u32::from(io::FLUSH) | 1 << 8,
                ..entry(0, 1)
            },
            &[],
            0
        ),
        Status::INVALID_FIELD
    );
    assert_eq!(
        try_one(
            Sqe {
                nsid: u32::MAX,
                ..entry(io::FLUSH, 0)
            },
            &[],
            0
        ),
        Status::SUCCESS
    );
    assert_eq!(try_one(rw(io::WRITE, 5, 1), &[7; 4096], 0), Status::SUCCESS);
    assert_eq!(
        try_one(rw(io::COMPARE, 5, 1), &[7; 4096], 0),
        Status::SUCCESS
    );
    assert_eq!(
        try_one(rw(io::COMPARE, 5, 1), &[8; 4096], 0),
        Status::COMPARE_FAILURE
    );
    let copy = |ranges: &[CopyRange], format| {
        let mut sqe = rw(io::COPY, 100, 1);
        sqe.cdw12 = CopyCdw12::new()
            .with_nr_z((ranges.len() - 1) as u8)
            .with_format(format)
            .into_bits();
        sqe
    };
    let one = [CopyRange::new(0, 0)];
    assert_eq!(try_one(copy(&one, 0), one.as_bytes(), 0), Status::SUCCESS);
    assert_eq!(
        try_one(copy(&one, 1), one.as_bytes(), 0),
        Status::INVALID_FIELD
    );
    assert_eq!(
        try_one(copy(&one, 2), one.as_bytes(), 0),
        Status::INVALID_FIELD
    );
    let beyond = [CopyRange::new(8191, 1)];
    assert_eq!(
        try_one(copy(&beyond, 0), beyond.as_bytes(), 0),
        Status::LBA_RANGE
    );
    let long = [CopyRange::new(0, u16::MAX)];
    assert_eq!(
        try_one(copy(&long, 0), long.as_bytes(), 0),
        Status::SIZE_LIMIT
    );
    let mut queue = Queue::open(rig.address, &Options::default()).expect("it listens");
    assert_eq!(
        status(queue.call("read", &Call::receiving(rw(io::READ, 0, 1), 4096))),
        Status::SEQUENCE
    );
}

#[test]
fn the_controller_says_what_linux_needs_to_hear() {
    let rig = Rig::new();
    let mut client = rig.client();
    let id = client.controller().clone();
    assert_eq!({ id.ver }, 0x0002_0000);
    assert!(
        { id.kas } > 0
            && { id.sgls } & 1 == 1
            && { id.ioccsz } >= 4
            && id.vwc & 1 == 1
            && id.cntrltype == 1
    );

    let namespace = client.namespace().clone();
    assert_eq!({ namespace.nsze }, 8192);

    // All structures and log pages that Linux or nvme-cli reads, on the admin queue.
    let mut admin_queue = |sqe: Sqe, receive| {
        let call = Call::receiving(sqe, receive);
        client.queue(|_| Ok(())).expect("connected");
        client.admin(|queue| queue.call("admin", &call))
    };

    for wanted in [
        cns::NAMESPACE,
        cns::CONTROLLER,
        cns::ACTIVE_NAMESPACES,
        cns::NAMESPACE_DESCRIPTORS,
        cns::COMMAND_SET_NAMESPACE,
        cns::COMMAND_SET_CONTROLLER,
        cns::COMMAND_SET_NAMESPACES,
        cns::INDEPENDENT_NAMESPACE,
        cns::COMMAND_SETS,
    ] {
        let nsid = u32::from(!matches!(
            wanted,
            cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_NAMESPACES
        ));
        let answer = admin_queue(
            Sqe {
                cdw10: wanted.into(),
                ..entry(admin::IDENTIFY, nsid)
            },
            4096,
        )
        .expect("served");
        assert_eq!(answer.data.len(), 4096, "CNS {wanted:#x}");
        let may_be_zero = matches!(wanted, cns::COMMAND_SET_NAMESPACE);
        assert_ne!(
            may_be_zero,
            answer.data.iter().any(|byte| *byte != 0),
            "CNS {wanted:#x}"
        );
    }

    let unknown = admin_queue(
        Sqe {
            cdw10: 0x44,
            ..entry(admin::IDENTIFY, 1)
        },
        4096,
    );
    assert_eq!(status(unknown), Status::INVALID_FIELD);

    let log = |lid: u8, bytes: u32| Sqe {
        cdw10: u32::from(lid) | (bytes / 4 - 1) << 16,
        ..entry(admin::GET_LOG_PAGE, 0)
    };
    for page in [
        lid::SUPPORTED,
        lid::ERROR,
        lid::SMART,
        lid::FIRMWARE,
        lid::CHANGED_NAMESPACES,
        lid::EFFECTS,
        lid::FEATURES,
        lid::MANAGEMENT,
        lid::STATISTICS,
    ] {
        assert_eq!(
            admin_queue(log(page, 512), 512).expect("served").data.len(),
            512,
            "log page {page:#x}"
        );
    }
    assert_eq!(
        status(admin_queue(log(0x33, 512), 512)),
        status::INVALID_LOG_PAGE
    );

    let errors = admin_queue(log(lid::ERROR, 64), 64).expect("served").data;
    let newest = ErrorEntry::read_from_bytes(&errors).expect("64 bytes");
    assert_eq!({ newest.status } >> 1, status::INVALID_LOG_PAGE.into_bits());

    let features = |opcode, fid: u32, value: u32| Sqe {
        cdw10: fid,
        cdw11: value,
        ..entry(opcode, 0)
    };
    assert_eq!(
        admin_queue(features(admin::GET_FEATURES, 6, 0), 0)
            .expect("served")
            .result,
        1,
        "the cache is on"
    );
    admin_queue(features(admin::SET_FEATURES, 6, 0), 0).expect("served");
    assert_eq!(
        admin_queue(features(admin::GET_FEATURES, 6, 0), 0)
            .expect("served")
            .result,
        0
    );
    assert_eq!(
        status(admin_queue(features(admin::GET_FEATURES, 0x70, 0), 0)),
        Status::INVALID_FIELD
    );
    assert_eq!(
        admin_queue(entry(admin::ABORT, 0), 0)
            .expect("served")
            .result,
        1
    );
    assert_eq!(size_of::<identify::Controller>(), 4096);
}
