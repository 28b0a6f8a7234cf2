//! Our client against our target, over real sockets: every command has exactly its specified
//! effect.

mod answers;
mod copies;
mod file_map;

use crate::kit::numbers::Numbers;
use crate::kit::specified::{cns, lid};
use crate::kit::{NQN, Rig, device};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Latency, NamespaceSpec};
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, RemapResult, RwCdw12, Sqe};
use remap_ssd_nvme::spec::identify;
use remap_ssd_nvme::spec::log::ErrorEntry;
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
                // Partial pages keep their content.
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
}

/// The completion of Remap reports the pages copied instead, and why.
#[test]
fn a_remap_says_what_it_copied_instead() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(0, &bytes(1, 4096)).expect("served");

    // A page has at most 15 owners: the block written, and 14 more.
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

    // Unmapped pages need no copy.
    let nothing = client.remap(5000, 5100, 50, false, false).expect("served");
    assert_eq!(nothing, RemapResult::new());
    drop(client);
    rig.stop();

    // A scheme without remapping.
    let config = DeviceConfig::for_service(32 << 20, SchemeKind::None, false).expect("possible");
    let rig = Rig::with(Device::format(config).expect("possible"), &[]);
    let mut client = rig.client();
    client.write(0, &bytes(3, 4 * 4096)).expect("served");
    let none = client.remap(0, 100, 4, false, false).expect("served");
    assert_eq!(none, RemapResult::new().with_copied(4).with_otherwise(true));
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
    let rig = Rig::with(device(32 << 20, true), &specs);
    let (mut small, mut large) = (rig.client_of(1), rig.client_of(2));
    assert_eq!((small.lba_shift(), large.lba_shift()), (9, 12));
    large.write(1999, &bytes(7, 4096)).expect("served");
    soak(&mut small, 1500, 300, 3);
    soak(&mut large, 1000, 200, 4);
    // Data in PDUs that end within pages, or even within blocks.
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
}

// Format 2 names the source's namespace.
#[test]
fn a_copy_from_another_namespace_needs_a_host_that_has_enabled_the_format() {
    let spec = NamespaceSpec {
        pages: 1000,
        lba_shift: 12,
    };
    let rig = Rig::with(device(32 << 20, false), &[spec; 2]);
    let (mut one, mut two) = (rig.client_of(1), rig.client_of(2));
    one.write(10, &bytes(8, 8192)).expect("served");
    let mut range = CopyRange::new(10, 1);
    range.snsid = 1;
    let mut sqe = entry(io::COPY, 2);
    sqe.cdw10 = 500;
    sqe.cdw12 = CopyCdw12::new().with_format(2).into_bits();
    let call = Call::sending(sqe, range.as_bytes());
    // CDFE in Host Behavior Support.
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
        status(two.admin(|queue| queue.call("set features", &Call::sending(sqe, &behavior))))
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
}

fn status(result: Result<impl Sized, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn emulated_completions_come_when_the_model_says() {
    let rig = Rig::new();
    rig.subsystem.set_latency(Latency::Emulated);
    let mut client = rig.client();
    client.write(0, &bytes(1, 4096)).expect("served");
    let began = Instant::now();
    for _ in 0..20 {
        client.read(0, 1).expect("served");
    }
    // At least 50 µs of flash each; how much more depends on the machine.
    assert!(began.elapsed().as_micros() > 20 * 50);
    soak(&mut client, 300, 40, 5);
}

#[test]
fn a_client_connects_again_when_its_connection_breaks() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(3, &bytes(3, 4096)).expect("served");
    let broken = client.queue(|queue| queue.abandon());
    assert!(broken.is_ok());
    assert!(client.read(3, 1).expect("served again") == bytes(3, 4096));
}
