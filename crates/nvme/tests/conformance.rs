//! Our client against our target, over real sockets: every command does what it says, and nothing
//! more.

mod kit;

use kit::numbers::Numbers;
use kit::{NQN, Rig, device};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Latency, NamespaceSpec};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, RemapResult, RwCdw12, Sqe};
use remap_ssd_nvme::spec::identify::{self, cns};
use remap_ssd_nvme::spec::log::{ErrorEntry, lid};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, Options, Queue, entry};
use std::time::Instant;
use zerocopy::{FromBytes, IntoBytes};

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| numbers.below(256) as u8).collect()
}

/// Writes, copies, remaps and trims at random against a model in memory.
fn soak(client: &mut Client, blocks: u64, steps: u64, seed: u64) {
    let shift = client.lba_shift();
    let mut model = vec![0u8; (blocks as usize) << shift];
    let mut numbers = Numbers(seed);
    let at = |block: u64| (block as usize) << shift;
    client.trim(0, blocks).expect("served");
    for step in 0..steps {
        let len = 1 + numbers
            .below(if step % 7 == 0 { 300 } else { 20 })
            .min(blocks - 1);
        let start = numbers.below(blocks - len + 1);
        let source = numbers.below(blocks - len + 1);
        match numbers.below(6) {
            0 | 1 => {
                let data = bytes(step, at(len));
                client.write(start, &data).expect("served");
                model[at(start)..at(start + len)].copy_from_slice(&data);
            }
            2 => {
                client.copy(source, start, len).expect("served");
                model.copy_within(at(source)..at(source + len), at(start));
            }
            3 if shift == 12 => {
                client
                    .remap(source, start, len as u32, false, false)
                    .expect("served");
                model.copy_within(at(source)..at(source + len), at(start));
            }
            4 => {
                client.trim(start, len).expect("served");
                // Parts of pages keep what they hold.
                let page = 4096 >> shift;
                let (first, last) = (start.next_multiple_of(page), (start + len) / page * page);
                if first < last {
                    model[at(first)..at(last)].fill(0);
                }
            }
            _ => {
                let read = client.read(start, len).expect("served");
                assert!(
                    read == model[at(start)..at(start + len)],
                    "step {step}: blocks {start}, {len}"
                );
            }
        }
    }
    assert!(client.read(0, blocks).expect("served") == model);
}

#[test]
fn what_is_written_copied_remapped_and_trimmed_reads_back() {
    let rig = Rig::new();
    let mut client = rig.client();
    assert_eq!(client.subnqn(), NQN);
    soak(&mut client, 2000, 400, 1);
    let mut digests = Client::connect(
        rig.address,
        Options {
            digests: true,
            ..Options::default()
        },
    )
    .expect("it listens");
    soak(&mut digests, 1000, 200, 2);
    drop((client, digests));
    rig.stop();
}

/// What a Remap's completion says was copied instead: how many pages, and why.
#[test]
fn a_remap_says_what_it_copied_instead() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(0, &bytes(1, 4096)).expect("served");

    // A page has at most 15 owners: the block that was written, and 14 more.
    let first = client.remap(0, 100, 1, false, false).expect("served");
    assert_eq!(first, RemapResult::new());
    for target in 101..114 {
        let more = client.remap(0, target, 1, false, false).expect("served");
        assert_eq!(more.copied(), 0, "block {target}");
    }
    let full = client.remap(0, 114, 1, false, false).expect("served");
    assert_eq!(
        full,
        RemapResult::new().with_copied(1).with_counter_full(true)
    );

    // Counted over all steps of a long command.
    client.write(2000, &bytes(2, 128 * 4096)).expect("served");
    for target in (2128..).step_by(128).take(14) {
        let more = client
            .remap(2000, target, 128, false, false)
            .expect("served");
        assert_eq!(more, RemapResult::new());
    }
    let long = client.remap(2000, 4000, 128, false, false).expect("served");
    assert_eq!(
        long,
        RemapResult::new().with_copied(128).with_counter_full(true)
    );

    // Where there is nothing, there is nothing to copy.
    let nothing = client.remap(5000, 5100, 50, false, false).expect("served");
    assert_eq!(nothing, RemapResult::new());
    drop(client);
    rig.stop();

    // A scheme that remaps nothing.
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::None, false).expect("possible");
    let rig = Rig::with(
        Device::format(config).expect("possible"),
        &[],
        Latency::None,
    );
    let mut client = rig.client();
    client.write(0, &bytes(3, 4 * 4096)).expect("served");
    let none = client.remap(0, 100, 4, false, false).expect("served");
    assert_eq!(none, RemapResult::new().with_copied(4).with_otherwise(true));
    drop(client);
    rig.stop();
}

#[test]
fn several_namespaces_have_their_own_blocks_and_sizes() {
    let specs = [
        NamespaceSpec {
            pages: 1000,
            lba_shift: 9,
        },
        NamespaceSpec {
            pages: 2000,
            lba_shift: 12,
        },
    ];
    let rig = Rig::with(device(32 << 20, true), &specs, Latency::None);
    let connect = |nsid| {
        Client::connect(
            rig.address,
            Options {
                nsid,
                ..Options::default()
            },
        )
        .expect("it listens")
    };
    let (mut small, mut large) = (connect(1), connect(2));
    assert_eq!((small.lba_shift(), large.lba_shift()), (9, 12));
    large.write(1999, &bytes(7, 4096)).expect("served");
    soak(&mut small, 1500, 300, 3);
    soak(&mut large, 1000, 200, 4);
    // Data in PDUs that end in the middle of pages, of blocks even.
    for (nsid, pdu_bytes_max) in [(1, 5 * 512), (1, 8192), (2, 1000), (2, 12 << 10)] {
        let options = Options {
            nsid,
            pdu_bytes_max,
            ..Options::default()
        };
        let mut client = Client::connect(rig.address, options).expect("it listens");
        soak(&mut client, 1000, 100, pdu_bytes_max as u64);
    }
    large.write(1999, &bytes(7, 4096)).expect("served");
    let beyond = small.read(8000, 1).expect_err("refused");
    assert!(
        matches!(
            beyond,
            ClientError::Status {
                status: Status::LBA_RANGE,
                ..
            }
        ),
        "{beyond}"
    );
    small.trim(0, 8000).expect("served");
    assert!(large.read(1999, 1).expect("served") == bytes(7, 4096));
    assert!(
        Client::connect(
            rig.address,
            Options {
                nsid: 3,
                ..Options::default()
            }
        )
        .is_err()
    );
    // Copy between them: format 2 names the source's namespace; the block sizes differ, so it is
    // refused.
    drop((small, large));
    rig.stop();
    let specs = [
        NamespaceSpec {
            pages: 1000,
            lba_shift: 12,
        },
        NamespaceSpec {
            pages: 1000,
            lba_shift: 12,
        },
    ];
    let rig = Rig::with(device(32 << 20, false), &specs, Latency::None);
    let connect = |nsid| {
        Client::connect(
            rig.address,
            Options {
                nsid,
                ..Options::default()
            },
        )
        .expect("it listens")
    };
    let (mut one, mut two) = (connect(1), connect(2));
    one.write(10, &bytes(8, 8192)).expect("served");
    let mut range = CopyRange::new(10, 1);
    range.snsid = 1;
    let mut sqe = entry(io::COPY, 2);
    sqe.cdw10 = 500;
    sqe.cdw12 = CopyCdw12::new().with_format(2).into_bits();
    let call = Call {
        sqe,
        send: range.as_bytes(),
        receive: 0,
    };
    // Only to a host that has said that it uses the format: CDFE in Host Behavior Support.
    assert_eq!(
        status(two.queue(|queue| queue.call("copy", &call))),
        Status::INVALID_FIELD
    );
    let mut behavior = [0; 512];
    let mut set = |formats: u8| {
        behavior[4] = formats;
        let sqe = Sqe {
            cdw10: 0x16,
            ..entry(admin::SET_FEATURES, 0)
        };
        status(two.admin(|queue| {
            queue.call(
                "set features",
                &Call {
                    sqe,
                    send: &behavior,
                    receive: 0,
                },
            )
        }))
    };
    assert_eq!(
        set(1 << 3),
        Status::INVALID_FIELD,
        "there is no such format"
    );
    assert_eq!(set(1 << 2), Status::SUCCESS);
    two.queue(|queue| queue.call("copy", &call))
        .expect("served");
    assert!(two.read(500, 2).expect("served") == bytes(8, 8192));
    drop((one, two));
    rig.stop();
}

#[test]
fn a_client_copies_from_another_namespace_on_a_new_connection_too() {
    let specs = [
        NamespaceSpec {
            pages: 1000,
            lba_shift: 12,
        },
        NamespaceSpec {
            pages: 1000,
            lba_shift: 12,
        },
    ];
    let rig = Rig::with(device(32 << 20, false), &specs, Latency::None);
    let options = |nsid| Options {
        nsid,
        copy_across: true,
        ..Options::default()
    };
    let connect = |nsid| Client::connect(rig.address, options(nsid)).expect("it listens");
    let (mut one, mut two) = (connect(1), connect(2));
    assert!(two.can_copy(true) && two.can_copy(false));
    one.write(10, &bytes(8, 8192)).expect("served");
    two.copy_from(Some(1), 10, 500, 2).expect("served");
    assert!(two.read(500, 2).expect("served") == bytes(8, 8192));

    // The features of a controller end with its connection.
    two.queue(|queue| queue.abandon()).expect("it was open");
    two.copy_from(Some(1), 11, 700, 1).expect("served");
    assert!(two.read(700, 1).expect("served") == bytes(8, 8192)[4096..]);
    assert!(
        two.copy_from(Some(3), 10, 500, 2).is_err(),
        "there is no such namespace"
    );
    assert!(
        two.copy_from(Some(1), 999, 500, 2).is_err(),
        "it ends before"
    );

    let single = Rig::with(device(32 << 20, false), &[], Latency::None);
    let client = Client::connect(single.address, options(1)).expect("it listens");
    assert!(!client.can_copy(true) && client.can_copy(false));
    drop((one, two, client));
    rig.stop();
    single.stop();
}

#[test]
fn a_copy_of_many_pages_programs_none_and_either_side_changes_alone() {
    let rig = Rig::with(device(256 << 20, false), &[], Latency::None);
    let mut client = rig.client();
    let blocks = 20_000;
    for start in (0..blocks).step_by(1000) {
        client
            .write(start, &bytes(start, 1000 << 12))
            .expect("served");
    }
    let value = |client: &mut Client, name| {
        let all = client.statistics().expect("served");
        all.iter()
            .find(|(known, _)| *known == name)
            .expect("a name")
            .1
    };
    let (before, remaps) = (
        value(&mut client, "flash_pages"),
        value(&mut client, "remaps"),
    );
    client.copy(0, 30_000, blocks).expect("served");
    assert_eq!(
        value(&mut client, "flash_pages"),
        before,
        "a copy programs nothing"
    );
    assert_eq!(value(&mut client, "remaps"), remaps + blocks);
    client.write(30_000, &bytes(5, 4096)).expect("served");
    client.write(1, &bytes(6, 4096)).expect("served");
    assert!(client.read(0, 1).expect("served") == bytes(0, 1000 << 12)[..4096]);
    assert!(client.read(30_001, 1).expect("served") == bytes(0, 1000 << 12)[4096..8192]);
    assert!(client.read(49_000, 1000).expect("served") == bytes(19_000, 1000 << 12));
    client.flush().expect("served");
    assert_eq!(client.smart().expect("served").critical_warning, 0);
    drop(client);
    rig.stop();
}

fn status(result: Result<impl Sized, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

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
    assert_eq!(try_one(rw(io::READ, 0, 2), &[], 4096), Status::SGL_LENGTH);
    assert_eq!(
        try_one(rw(io::WRITE, 0, 2), &[0; 4096], 0),
        Status::SGL_LENGTH
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
        status(queue.call(
            "read",
            &Call {
                sqe: rw(io::READ, 0, 1),
                send: &[],
                receive: 4096
            }
        )),
        Status::SEQUENCE
    );
    drop(client);
    rig.stop();
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

    // Every structure and log page that Linux or nvme-cli reads, by hand, on an admin queue of its
    // own.
    let mut admin_queue = |sqe: Sqe, receive| {
        let call = Call {
            sqe,
            send: &[],
            receive,
        };
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
        Status::INVALID_LOG_PAGE
    );

    let errors = admin_queue(log(lid::ERROR, 64), 64).expect("served").data;
    let newest = ErrorEntry::read_from_bytes(&errors).expect("64 bytes");
    assert_eq!({ newest.status } >> 1, Status::INVALID_LOG_PAGE.into_bits());

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

    drop(client);
    rig.stop();
}

#[test]
fn emulated_completions_come_when_the_model_says() {
    let rig = Rig::with(device(32 << 20, false), &[], Latency::Emulated);
    let mut client = rig.client();
    client.write(0, &bytes(1, 4096)).expect("served");
    let began = Instant::now();
    for _ in 0..20 {
        client.read(0, 1).expect("served");
    }
    // 50 us of flash each at the least; how much more depends on the machine.
    assert!(began.elapsed().as_micros() > 20 * 50);
    soak(&mut client, 300, 40, 5);
    drop(client);
    rig.stop();
}

#[test]
fn a_client_connects_again_when_its_connection_breaks() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(3, &bytes(3, 4096)).expect("served");
    let broken = client.queue(|queue| queue.abandon());
    assert!(broken.is_ok());
    assert!(client.read(3, 1).expect("served again") == bytes(3, 4096));
    drop(client);
    rig.stop();
}

#[test]
fn the_file_map_lists_what_was_written_until_it_is_reset() {
    let mut config =
        DeviceConfig::for_service(32 << 20, SchemeKind::RemapSsd, false).expect("possible");
    (config.firmware.fs_files, config.firmware.fs_blocks) = (2, 5);
    let rig = Rig::with(
        Device::format(config).expect("possible"),
        &[],
        Latency::None,
    );
    let mut client = rig.client();
    let mut write = |inode, page, lba: u32| {
        let mut sqe = entry(io::FS_WRITE, 1);
        (sqe.cdw10, sqe.cdw13, sqe.cdw14) = (lba, inode, page);
        let data = bytes(lba.into(), 4096);
        let call = Call {
            sqe,
            send: &data,
            receive: 0,
        };
        client
            .queue(|queue| Ok(queue.calls(&[call])?.remove(0)))
            .expect("answered")
    };
    for (inode, page, lba) in [(7, 0, 100), (9, 3, 101), (7, 1, 102), (7, 0, 103)] {
        assert!(write(inode, page, lba).status.is_success());
    }
    let full = write(11, 0, 104);
    assert_eq!(
        (full.status, full.result),
        (Status::NOT_LISTED, 1),
        "a third file"
    );
    assert!(write(9, 4, 105).status.is_success());
    let full = write(9, 5, 106);
    assert_eq!(
        (full.status, full.result),
        (Status::NOT_LISTED, 2),
        "a sixth page"
    );
    assert!(
        client.read(106, 1).expect("served") == bytes(106, 4096),
        "the data are written"
    );
    let list = |client: &mut Client, inode: Option<u32>| {
        let mut sqe = entry(io::FS_MAP, 1);
        (sqe.cdw10, sqe.cdw12, sqe.cdw13) = (15, u32::from(inode.is_none()), inode.unwrap_or(0));
        let call = Call {
            sqe,
            send: &[],
            receive: 64,
        };
        let data = client
            .queue(|queue| queue.call("map", &call))
            .expect("served")
            .data;
        let words: Vec<u32> = data
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        words[2..2 + 2 * words[0] as usize]
            .as_chunks::<2>()
            .0
            .to_vec()
    };
    assert_eq!(list(&mut client, Some(7)), [[0, 100], [1, 102], [0, 103]]);
    assert_eq!(list(&mut client, Some(9)), [[3, 101], [4, 105]]);
    assert_eq!(list(&mut client, None), [[7, 0], [9, 0]]);
    let reset = Call {
        sqe: entry(io::FS_RESET, 1),
        send: &[],
        receive: 0,
    };
    client
        .queue(|queue| queue.call("reset", &reset))
        .expect("served");
    assert!(list(&mut client, Some(7)).is_empty());
    drop(client);
    rig.stop();
    let rig = Rig::new();
    let none = rig.client().queue(|queue| queue.call("reset", &reset));
    assert_eq!(status(none), Status::NO_FILE_MAP);
    rig.stop();
}
