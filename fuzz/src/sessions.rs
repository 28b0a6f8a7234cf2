//! The part of the corpus that hosts send: entries, streams and sessions, as a well-behaved host
//! would.
//!
//! Absent: anything recorded.

use crate::nvme::NQN;
use remap_ssd_nvme::spec::command::{
    CopyCdw12, CopyRange, DsmCdw10, DsmCdw11, DsmRange, RemapCdw12, RwCdw12, Sgl, Sqe,
};
use remap_ssd_nvme::spec::fabrics::{Cc, ConnectData, kind as fabrics, property};
use remap_ssd_nvme::spec::identify::cns;
use remap_ssd_nvme::spec::management::{MANAGEMENT_BYTES, NewNamespace, put_controller_list, sel};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::pdu::{Data, Flags, Ic, kind};
use remap_ssd_nvme::tcp::wire::{self, Agreement};
use zerocopy::{FromZeros, IntoBytes};

/// All of it: names and bytes.
pub fn make() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();

    for (name, digests) in [("plain", 0u8), ("digests", 3)] {
        let stream = admin_stream(Agreement::new(digests, 0), digests);
        files.push((
            format!("pdu/{name}"),
            [vec![digests], stream[128..].to_vec()].concat(),
        ));
    }

    files.push((
        "pdu/ic".into(),
        [
            vec![0],
            admin_stream(Agreement::new(0, 0), 0)[..128].to_vec(),
        ]
        .concat(),
    ));

    for (name, which) in [("plain", 0u8), ("dedup-through", 3)] {
        let mut bytes = vec![which];
        for (sqe, data) in commands() {
            bytes.extend(sqe.as_bytes());
            bytes.extend(data);
        }
        files.push((format!("command/{name}"), bytes));
    }

    for (name, which, digests) in [("dedup-digests", 1, 3), ("emulated", 2, 0)] {
        files.push((format!("session/{name}"), session(which, digests)));
    }

    files.push(("session/namespaces".into(), managing_session()));

    files
}

fn entry(opcode: u8, nsid: u32) -> Sqe {
    Sqe {
        cdw0: opcode.into(),
        nsid,
        ..Sqe::default()
    }
}

fn blocks(opcode: u8, nsid: u32, slba: u32, count: u16) -> Sqe {
    Sqe {
        cdw10: slba,
        cdw12: RwCdw12::new().with_nlb_z(count - 1).into_bits(),
        ..entry(opcode, nsid)
    }
}

/// Each I/O command, with the data it sends.
fn commands() -> Vec<(Sqe, Vec<u8>)> {
    let page = |byte: u8, count: usize| vec![byte; count * 4096];
    let copies = [CopyRange::new(0, 3), CopyRange::new(20, 0)];

    let mut copy = entry(io::COPY, 1);
    (copy.cdw10, copy.cdw12) = (30, CopyCdw12::new().with_nr_z(1).into_bits());

    let mut across = entry(io::COPY, 1);
    (across.cdw10, across.cdw12) = (40, CopyCdw12::new().with_format(2).into_bits());

    let trims = [
        DsmRange {
            attributes: 0,
            blocks: 3,
            slba: 2,
        },
        DsmRange {
            attributes: 0,
            blocks: 1,
            slba: 9,
        },
    ];

    let mut trim = entry(io::DATASET_MANAGEMENT, 1);
    (trim.cdw10, trim.cdw11) = (
        DsmCdw10::new().with_nr_z(1).into_bits(),
        DsmCdw11::new().with_ad(true).into_bits(),
    );

    let mut remap = entry(io::REMAP, 1);
    (remap.cdw10, remap.cdw14) = (10, 30);
    remap.cdw12 = RemapCdw12::new()
        .with_nlb_z(3)
        .with_relocate(true)
        .with_atomic(true)
        .into_bits();

    let mut file = blocks(io::FS_WRITE, 1, 25, 1);
    (file.cdw13, file.cdw14) = (7, 1);

    let mut list = entry(io::FS_MAP, 1);
    (list.cdw10, list.cdw13) = (15, 7);
    let mut files = list;
    files.cdw12 = 1;

    vec![
        (blocks(io::WRITE, 1, 0, 2), page(1, 2)),
        (blocks(io::WRITE, 1, 20, 1), page(1, 1)),
        (blocks(io::WRITE, 2, 3, 7), vec![3; 7 * 512]),
        (blocks(io::READ, 1, 0, 4), vec![]),
        (blocks(io::READ, 2, 1, 9), vec![]),
        (blocks(io::COMPARE, 2, 4, 1), vec![3; 512]),
        (blocks(io::VERIFY, 1, 0, 50), vec![]),
        (copy, copies.as_bytes().to_vec()),
        (
            across,
            CopyRange::new(0, 0).of_namespace(1).as_bytes().to_vec(),
        ),
        (remap, vec![]),
        (trim, trims.as_bytes().to_vec()),
        (blocks(io::WRITE_ZEROES, 2, 5, 30), vec![]),
        (file, page(9, 1)),
        (list, vec![]),
        (files, vec![]),
        (entry(io::FS_RESET, 1), vec![]),
        (entry(io::FLUSH, u32::MAX), vec![]),
    ]
}

/// A capsule with its data in it, or none.
fn capsule(
    out: &mut Vec<u8>,
    mut sqe: Sqe,
    cid: u16,
    data: &[u8],
    receive: u32,
    agreed: Agreement,
) {
    sqe.cdw0 = sqe.head().with_cid(cid).with_psdt(1).into_bits();

    if data.is_empty() {
        sqe.sgl = Sgl::new(Sgl::TRANSPORT, 0, receive);
        return wire::put(out, kind::CAPSULE_CMD, Flags::new(), &sqe, agreed);
    }

    sqe.sgl = Sgl::new(Sgl::IN_CAPSULE, 0, data.len() as u32);

    wire::put_data(out, kind::CAPSULE_CMD, Flags::new(), &sqe, agreed, data);
}

fn connect(out: &mut Vec<u8>, qid: u16, cntlid: u16, agreed: Agreement, digests: u8) {
    wire::put_ic(out, kind::IC_REQ, &Ic::new(0, digests, 0));
    let mut sqe = entry(admin::FABRICS, u32::from(fabrics::CONNECT));
    // 32 entries; queue 1 without flow control.
    (sqe.cdw10, sqe.cdw11) = (u32::from(qid) << 16, 31 | u32::from(qid == 1) << 18);
    let data = ConnectData::new([7; 16], cntlid, NQN, "nqn.2026-11.fuzz:host");
    capsule(out, sqe, 0, data.as_bytes(), 0, agreed);
}

/// ICReq, Connect, and what a host asks an admin queue.
fn admin_stream(agreed: Agreement, digests: u8) -> Vec<u8> {
    let mut out = Vec::new();
    connect(&mut out, 0, 0xffff, agreed, digests);

    let mut enable = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
    enable.cdw11 = property::CC;
    enable.cdw12 = Cc::new()
        .with_en(true)
        .with_iosqes(6)
        .with_iocqes(4)
        .into_bits();

    capsule(&mut out, enable, 1, &[], 0, agreed);
    questions(&mut out, agreed);

    let queues = Sqe {
        cdw10: 7,
        cdw11: 3 | 3 << 16,
        ..entry(admin::SET_FEATURES, 0)
    };
    capsule(&mut out, queues, 1, &[], 0, agreed);

    let behavior = Sqe {
        cdw10: 0x16,
        ..entry(admin::SET_FEATURES, 0)
    };

    // Copy's format 2 is used below.
    let mut formats = [0; 512];
    formats[4] = 1 << 2;
    capsule(&mut out, behavior, 2, &formats, 0, agreed);

    let threshold = Sqe {
        cdw10: 4,
        cdw11: 1 << 20 | 310,
        ..entry(admin::SET_FEATURES, 0)
    };
    capsule(&mut out, threshold, 3, &[], 0, agreed);

    for opcode in [admin::ASYNC_EVENT, admin::ABORT, admin::KEEP_ALIVE] {
        capsule(
            &mut out,
            entry(opcode, 0),
            u16::from(opcode),
            &[],
            0,
            agreed,
        );
    }

    out
}

/// Identify, log pages and features.
fn questions(out: &mut Vec<u8>, agreed: Agreement) {
    for (cid, cns) in [0u8, 1, 2, 3, 5, 6, 7, 8, 0x1c].into_iter().enumerate() {
        let sqe = Sqe {
            cdw10: cns.into(),
            ..entry(admin::IDENTIFY, 1)
        };
        capsule(out, sqe, cid as u16, &[], 4096, agreed);
    }

    for (cid, lid) in [0u32, 1, 2, 3, 4, 5, 0x12, 0x13, 0xc0]
        .into_iter()
        .enumerate()
    {
        let sqe = Sqe {
            cdw10: lid | 127 << 16,
            ..entry(admin::GET_LOG_PAGE, u32::MAX)
        };
        capsule(out, sqe, cid as u16, &[], 512, agreed);
    }

    for (cid, feature) in [1u32, 2, 4, 5, 6, 7, 0x0a, 0x0b, 0x0f, 0x16]
        .into_iter()
        .enumerate()
    {
        let sqe = Sqe {
            cdw10: feature,
            ..entry(admin::GET_FEATURES, 1)
        };
        capsule(out, sqe, cid as u16, &[], 512, agreed);
    }
}

/// An I/O queue: every command, on the first queue with its data in the capsule, on others with
/// data that are asked for.
fn io_stream(qid: u16, agreed: Agreement, digests: u8) -> Vec<Vec<u8>> {
    let mut first = Vec::new();

    // The first controller of a subsystem is number 1.
    connect(&mut first, qid, 1, agreed, digests);

    let mut pieces = vec![first];
    let mut tag = 0;

    for (cid, (sqe, data)) in commands().into_iter().enumerate() {
        let mut out = Vec::new();

        if qid == 1 || data.is_empty() {
            capsule(&mut out, sqe, cid as u16, &data, 1 << 20, agreed);
        } else {
            let mut asked = sqe;
            // As Linux does it: an SGL of a page, whatever the number of ranges. No more is asked
            // for than there are.
            let longer = sqe.head().opcode() == io::DATASET_MANAGEMENT;
            asked.sgl = Sgl::new(
                Sgl::TRANSPORT,
                0,
                if longer { 4096 } else { data.len() as u32 },
            );
            asked.cdw0 = asked
                .head()
                .with_cid(100 + cid as u16)
                .with_psdt(1)
                .into_bits();
            wire::put(&mut out, kind::CAPSULE_CMD, Flags::new(), &asked, agreed);

            let half = (data.len() / 2).next_multiple_of(4);
            for (offset, piece) in [(0, &data[..half]), (half, &data[half..])] {
                let header = Data::new(100 + cid as u16, tag, offset as u32, piece.len() as u32);
                let flags = Flags::new().with_last(offset > 0);
                wire::put_data(&mut out, kind::H2C_DATA, flags, &header, agreed, piece);
            }

            tag += 1;
        }

        pieces.push(out);
    }

    pieces
}

/// What a connection says next, as a session has it.
fn frame(out: &mut Vec<u8>, peer: u8, bytes: &[u8]) {
    for piece in bytes.chunks(60_000) {
        out.push(peer);
        out.extend((piece.len() as u16).to_le_bytes());
        out.extend(piece);
    }
}

fn session(which: u8, digests: u8) -> Vec<u8> {
    let agreed = Agreement::new(digests, 0);
    let mut out = vec![which];
    frame(&mut out, 0, &admin_stream(agreed, digests));
    let (one, two) = (io_stream(1, agreed, digests), io_stream(2, agreed, digests));
    for (one, two) in one.iter().zip(&two) {
        frame(&mut out, 1, one);
        frame(&mut out, 2, two);
    }
    out
}

/// Namespaces are formatted with other blocks, deleted, created, attached and detached, while an
/// I/O queue uses them.
fn managing_session() -> Vec<u8> {
    let agreed = Agreement::new(0, 0);
    let mut out = vec![1];
    frame(&mut out, 0, &admin_stream(agreed, 0));

    let io = io_stream(1, agreed, 0);
    let managing = managing_stream(agreed);
    // A few commands of the queue before and after each step; those with little data.
    let small: Vec<_> = io.iter().filter(|piece| piece.len() < 3000).collect();
    for (index, step) in managing.iter().enumerate() {
        frame(&mut out, 1, small[index % small.len()]);
        frame(&mut out, 0, step);
    }
    out
}

/// Steps of a host that manages namespaces.
fn managing_stream(agreed: Agreement) -> Vec<Vec<u8>> {
    let with = |opcode, nsid, cdw10, data: &[u8], receive| {
        let sqe = Sqe {
            cdw10,
            ..entry(opcode, nsid)
        };
        let mut out = Vec::new();
        capsule(&mut out, sqe, 9, data, receive, agreed);
        out
    };
    let new = |blocks: u64, format| {
        let mut new = NewNamespace::new_zeroed();
        (new.nsze, new.ncap, new.flbas) = (blocks, blocks, format);
        let create = u32::from(sel::CREATE);
        with(admin::NAMESPACE_MANAGEMENT, 0, create, new.as_bytes(), 0)
    };
    // The first controller of a subsystem is number 1.
    let attached = |nsid, selected: u8| {
        let mut list = put_controller_list(std::iter::once(1));
        list.resize(MANAGEMENT_BYTES, 0);
        with(admin::NAMESPACE_ATTACHMENT, nsid, selected.into(), &list, 0)
    };
    let delete = |nsid| {
        with(
            admin::NAMESPACE_MANAGEMENT,
            nsid,
            sel::DELETE.into(),
            &[],
            0,
        )
    };
    let identify = |cns: u8, nsid| with(admin::IDENTIFY, nsid, cns.into(), &[], 4096);

    vec![
        with(admin::FORMAT, 1, 1, &[], 0),
        delete(2),
        new(20, 0),
        new(240, 1),
        attached(2, sel::ATTACH),
        attached(3, sel::ATTACH),
        identify(cns::ALLOCATED_NAMESPACES, 0),
        identify(cns::ALLOCATED_NAMESPACE, 3),
        identify(cns::ATTACHED_CONTROLLERS, 3),
        identify(cns::CONTROLLERS, 0),
        identify(cns::NAMESPACE, u32::MAX),
        attached(3, sel::DETACH),
        delete(u32::MAX),
    ]
}
