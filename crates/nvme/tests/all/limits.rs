//! Limits of a single command, to the block: Identify reports them, longer commands are refused as
//! a whole, and our client stays within them.

use crate::kit::raw::{Peer, transport, with_cid};
use crate::kit::specified::cns;
use crate::kit::{Rig, device};
use remap_ssd_nvme::controller::NamespaceSpec;
use remap_ssd_nvme::spec::command::{CopyCdw12, CopyRange, Sqe};
use remap_ssd_nvme::spec::identify::NvmController;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, ClientError, entry};
use remap_ssd_nvme::tcp::server::Limits;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const PAGE: usize = 4096;
/// Pages of the device: three of the longest commands.
const PAGES: usize = 12 << 10;
/// Maximum of one Copy and of one Verify.
const LONGEST: usize = 16 << 20;

/// A device with a distinct number in each 512 bytes.
fn filled(lba_shift: u8) -> (Rig, Client, Vec<u8>) {
    let spec = NamespaceSpec {
        pages: PAGES as u32,
        lba_shift,
    };
    let rig = Rig::with(device((PAGES * PAGE) as u64, false), &[spec]);
    let mut client = rig.client();
    let bytes: Vec<u8> = (1..=(PAGES * 8) as u32)
        .flat_map(|number| number.to_le_bytes().repeat(128))
        .collect();
    client.write(0, &bytes).expect("served");
    (rig, client, bytes)
}

fn holds(client: &mut Client, bytes: &[u8]) -> bool {
    let blocks = (bytes.len() >> client.lba_shift()) as u64;
    client.read(0, blocks).expect("served") == bytes
}

fn status(client: &mut Client, sqe: Sqe, send: &[u8]) -> Status {
    match client.queue(|queue| queue.call("test", &Call::sending(sqe, send))) {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

/// A Copy of consecutive ranges of these lengths, from block 0 on, to a block.
fn copy(client: &mut Client, to: u32, lengths: &[u32]) -> Status {
    let starts = lengths.iter().scan(0, |end, len| {
        Some(std::mem::replace(end, *end + u64::from(*len)))
    });
    let ranges: Vec<CopyRange> = starts
        .zip(lengths)
        .map(|(at, len)| CopyRange::new(at, (len - 1) as u16))
        .collect();
    let mut sqe = entry(io::COPY, 1);
    sqe.cdw10 = to;
    sqe.cdw12 = CopyCdw12::new()
        .with_nr_z((ranges.len() - 1) as u8)
        .into_bits();
    status(client, sqe, ranges.as_bytes())
}

#[test]
fn one_copy_is_16_mib_in_one_range_or_in_256_and_not_a_block_more() {
    for lba_shift in [9, 12] {
        let (_rig, mut client, mut bytes) = filled(lba_shift);
        let most = (LONGEST >> lba_shift) as u32;
        let namespace = client.namespace().clone();
        assert_eq!(
            (
                { namespace.mcl },
                u32::from(namespace.mssrl),
                namespace.msrc_z
            ),
            (most, most, 255)
        );

        // One range too long, and two and 256 ranges too long together: refused before anything is
        // copied.
        let to = most * 2;
        let mut many = vec![most / 256; 256];
        many[255] += 1;
        for lengths in [
            &[most + 1][..],
            &[most / 2, most / 2 + 1],
            &[most, 1],
            &many,
        ] {
            assert_eq!(
                copy(&mut client, to - 1, lengths),
                Status::SIZE_LIMIT,
                "{} ranges",
                lengths.len()
            );
        }
        assert!(holds(&mut client, &bytes));

        many[255] -= 1;
        bytes.copy_within(..LONGEST, 2 * LONGEST);
        for lengths in [&[most][..], &[most / 2, most / 2], &many] {
            client.trim(to.into(), most.into()).expect("served");
            assert_eq!(
                copy(&mut client, to, lengths),
                Status::SUCCESS,
                "{} ranges",
                lengths.len()
            );
            assert!(holds(&mut client, &bytes));
        }
    }
}

#[test]
fn one_verify_is_16_mib_and_not_a_block_more() {
    for lba_shift in [9, 12] {
        let (_rig, mut client, _) = filled(lba_shift);
        let sqe = Sqe {
            cdw10: cns::COMMAND_SET_CONTROLLER.into(),
            ..entry(admin::IDENTIFY, 0)
        };
        let answer = client.admin(|queue| queue.call("identify", &Call::receiving(sqe, 4096)));
        let limits =
            NvmController::read_from_bytes(&answer.expect("served").data).expect("4096 bytes");
        assert_eq!(4096 << limits.vsl, LONGEST);

        let most = LONGEST >> lba_shift;
        let verify = |client: &Client, blocks: usize| client.rw(io::VERIFY, 0, (blocks - 1) as u16);
        let (longest, longer) = (verify(&client, most), verify(&client, most + 1));
        assert_eq!(status(&mut client, longest, &[]), Status::SUCCESS);
        assert_eq!(status(&mut client, longer, &[]), Status::INVALID_FIELD);
    }
}

/// Unaligned blocks are moved, others are remapped; either takes several commands.
#[test]
fn our_client_copies_any_length_in_either_direction_over_itself_too() {
    for (lba_shift, from, to, len) in [
        (12, 0, 4100, LONGEST / PAGE * 2 - 77),
        (12, 100, 0, PAGES - 100),
        (12, 0, 100, PAGES - 100),
        (12, 3, 6000, 5999),
        (9, 8, 0, PAGES * 8 - 8),
        (9, 3, 40, LONGEST / 512 + 500),
        (9, 40, 3, LONGEST / 512 + 500),
    ] {
        let (_rig, mut client, mut bytes) = filled(lba_shift);
        client
            .copy(from as u64, to as u64, len as u64)
            .expect("within the limits, command by command");
        bytes.copy_within(
            from << lba_shift..(from + len) << lba_shift,
            to << lba_shift,
        );
        assert!(
            holds(&mut client, &bytes),
            "{len} blocks of {} bytes from {from} to {to}",
            1 << lba_shift
        );

        let beyond = client
            .copy(from as u64, u64::MAX - 3, len as u64)
            .expect_err("refused");
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
    }
}

/// The host requests more than sockets hold, and reads none of it.
#[test]
fn a_host_that_does_not_read_its_answers_keeps_no_thread_of_a_service_that_ends() {
    let limits = Limits {
        send_within: Duration::from_secs(3600),
        ..Limits::default()
    };
    let rig = Rig::limited(limits);
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut deaf = Peer::io(rig.address, cntlid, 1, 0);
    let mut sqe = entry(io::READ, 1);
    sqe.cdw12 = 255;
    for cid in 0..24 {
        let bytes = deaf.capsule(&with_cid(transport(sqe, 1 << 20), cid), &[]);
        deaf.send(&bytes);
    }
    // The first answer has begun to arrive, and the rest has no room.
    deaf.stream.peek(&mut [0]).expect("it is answered");

    let subsystem = Arc::downgrade(&rig.subsystem);
    rig.stop();
    assert!(subsystem.upgrade().is_none(), "all threads have ended");
}
