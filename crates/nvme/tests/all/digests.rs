//! Bytes damaged in transit, and invalid PDUs: which commands fail, which connections go on, and
//! what the host learns.

use crate::kit::Rig;
use crate::kit::raw::{Peer, connect, connect_data, in_capsule, transport, with_cid};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::pdu::{Data, Flags, Ic, kind};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::entry;
use remap_ssd_nvme::tcp::server::{Limits, MEMORY_BYTES_MIN};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use zerocopy::IntoBytes;

const BOTH: u8 = 3;

fn write(slba: u32, blocks: u16) -> Sqe {
    let mut sqe = entry(io::WRITE, 1);
    (sqe.cdw10, sqe.cdw12) = (slba, RwCdw12::new().with_nlb_z(blocks - 1).into_bits());
    sqe
}

#[test]
fn damaged_data_fail_their_command_and_the_connection_goes_on() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, BOTH);

    // In the capsule.
    let mut bytes = queue.capsule(&in_capsule(write(5, 1), 4096), &[7; 4096]);
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    queue.send(&bytes);
    let status = queue.answer().cqe.status();
    assert_eq!(
        (status, status.dnr()),
        (Status::TRANSIENT_TRANSPORT, false),
        "the host may send it again"
    );
    assert_eq!(
        client.read(5, 1).expect("served"),
        [0; 4096],
        "nothing was written"
    );
    assert_eq!(
        queue
            .call(in_capsule(write(5, 1), 4096), &[7; 4096])
            .cqe
            .status(),
        Status::SUCCESS
    );

    // In one of several PDUs: the rest is received, and then the command fails.
    let begin = |queue: &mut Peer| {
        let bytes = queue.capsule(&transport(write(20, 3), 3 * 4096), &[]);
        queue.send(&bytes);
        queue.asked()
    };
    for damaged in 0..3 {
        let asked = begin(&mut queue);
        for piece in 0..3 {
            let header = Data::new(asked.cid, asked.ttag, piece * 4096, 4096);
            let mut bytes = queue.h2c(&header, &[9; 4096], piece == 2);
            if piece == damaged {
                let at = bytes.len() - 1;
                bytes[at] ^= 0x80;
            }
            queue.send(&bytes);
        }
        assert_eq!(
            queue.answer().cqe.status(),
            Status::TRANSIENT_TRANSPORT,
            "PDU {damaged}"
        );
        assert_eq!(
            client.read(22, 1).expect("served"),
            [0; 4096],
            "the last page is not written"
        );
    }
    assert_eq!(
        queue
            .call_asked(transport(write(20, 3), 3 * 4096), &[9; 3 * 4096])
            .cqe
            .status(),
        Status::SUCCESS
    );
    assert_eq!(client.read(20, 3).expect("served"), [9; 3 * 4096]);
}

#[test]
fn commands_whose_data_arrive_damaged_keep_no_memory() {
    const PIECE: u32 = 128 << 10;
    let limits = Limits {
        memory_bytes: MEMORY_BYTES_MIN,
        ..Limits::default()
    };
    let rig = Rig::limited(limits);
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, BOTH);

    // A Compare gathers all its data first. Together these exceed the host's share of memory.
    let mut compare = write(0, (2 * PIECE / 4096) as u16);
    compare.cdw0 = u32::from(io::COMPARE);
    let mut compared = |is_damaged: bool| {
        let bytes = queue.capsule(&transport(compare, 2 * PIECE), &[]);
        queue.send(&bytes);
        let asked = queue.asked();

        for piece in 0..2 {
            let header = Data::new(asked.cid, asked.ttag, piece * PIECE, PIECE);
            let mut bytes = queue.h2c(&header, &[0; PIECE as usize], piece == 1);
            if is_damaged && piece == 1 {
                let at = bytes.len() - 1;
                bytes[at] ^= 0x80;
            }
            queue.send(&bytes);
        }
        queue.answer().cqe.status()
    };
    for round in 0..2 * MEMORY_BYTES_MIN as u32 / (2 * PIECE) {
        let status = compared(true);
        assert_eq!(status, Status::TRANSIENT_TRANSPORT, "round {round}");
    }

    assert_eq!(compared(false), Status::SUCCESS);
}

/// Returns the termination request of a connection: fatal error status, its information, and the
/// header returned with it.
fn terminated(peer: &mut Peer) -> (u16, u32, Vec<u8>) {
    loop {
        let arrived = peer.next().expect("a termination request");
        if arrived.common.kind == kind::C2H_TERM {
            let fes = u16::from_le_bytes([arrived.header[0], arrived.header[1]]);
            let fei = u32::from_le_bytes(arrived.header[2..6].try_into().expect("four bytes"));
            assert!(peer.next().is_none(), "and nothing after it");
            return (fes, fei, arrived.data);
        }
    }
}

#[test]
fn a_termination_names_the_field_and_returns_the_header() {
    let rig = Rig::new();

    // ICReq with an unsupported version or alignment.
    for (ic, expected) in [
        (
            {
                let mut ic = Ic::new(0, 0, 0);
                ic.pfv = 1;
                ic
            },
            (6, 8),
        ),
        (Ic::new(32, 0, 0), (1, 10)),
    ] {
        let mut peer = Peer::silent(rig.address);
        let mut bytes = Vec::new();
        wire::put_ic(&mut bytes, kind::IC_REQ, &ic);
        peer.send(&bytes);
        let (fes, fei, header) = terminated(&mut peer);
        assert_eq!((fes, fei), expected);
        assert_eq!(header, bytes, "128 bytes of header");
    }

    // Invalid common headers. An ICReq precedes each.
    let mut capsule = Vec::new();
    wire::put(
        &mut capsule,
        kind::CAPSULE_CMD,
        Flags::new(),
        &connect(0),
        Agreement::default(),
    );
    for (at, value, expected) in [
        (0, 0x55, (1, 0)),
        (2, 71, (1, 2)),
        (1, 1, (1, 1)),
        (4, 71, (1, 4)),
        (0, 5, (1, 2)),
    ] {
        let mut peer = Peer::open(rig.address, 0);
        let mut bytes = capsule.clone();
        bytes[at] = value;
        peer.send(&bytes);
        let (fes, fei, header) = terminated(&mut peer);
        assert_eq!((fes, fei), expected, "byte {at} is {value:#x}");
        assert_eq!(header, bytes[..usize::from(bytes[2]).min(bytes.len())]);
    }

    // A PDU out of place, which is not the fault of a field.
    let mut peer = Peer::open(rig.address, 0);
    let mut bytes = Vec::new();
    wire::put_ic(&mut bytes, kind::IC_REQ, &Ic::new(0, 0, 0));
    peer.send(&bytes);
    assert_eq!(terminated(&mut peer), (2, 0, bytes));

    // A wrong header digest: the PDU cannot be attributed any more.
    let mut peer = Peer::open(rig.address, BOTH);
    let mut bytes = peer.capsule(&connect(0), connect_data(0xffff).as_bytes());
    bytes[60] ^= 1;
    peer.send(&bytes);
    let (fes, _, header) = terminated(&mut peer);
    assert_eq!((fes, header), (3, bytes[..72].to_vec()));
}

#[test]
fn data_that_were_not_asked_for_end_the_connection_and_are_named() {
    let rig = Rig::new();
    let (_admin, cntlid) = Peer::admin(rig.address);
    for (change, expected) in [
        (
            (|data| data.ttag = data.ttag.wrapping_add(1)) as fn(&mut Data),
            (1, 10),
        ),
        (|data| data.cid = 99, (1, 8)),
        (|data| data.offset = 4096, (4, 0)),
    ] {
        let mut queue = Peer::io(rig.address, cntlid, 1, 0);
        let bytes = queue.capsule(&with_cid(transport(write(0, 2), 8192), 3), &[]);
        queue.send(&bytes);
        let mut asked = queue.asked();
        change(&mut asked);
        let bytes = queue.h2c(&asked, &[1; 4096], false);
        queue.send(&bytes);
        let (fes, fei, header) = terminated(&mut queue);
        assert_eq!((fes, fei), expected);
        assert_eq!(header, bytes[..24]);
        queue.close();
        // The queue is free once the target has noticed its end.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
