//! Trims as sent by hosts. Linux sends 4,096 bytes with every Dataset Management, for any number of
//! ranges.

use crate::kit::Rig;
use crate::kit::raw::{Answer, Peer, in_capsule, transport};
use crate::kit::specified::status;
use remap_ssd_nvme::spec::command::{
    CopyCdw12, CopyRange, DsmCdw10, DsmCdw11, DsmRange, RwCdw12, Sqe,
};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Client, entry};
use zerocopy::IntoBytes;

/// Size that Linux allocates for 256 ranges, and sends even for one.
const LINUX_BYTES: usize = 4096;

fn dsm(ranges: usize) -> Sqe {
    let mut sqe = entry(io::DATASET_MANAGEMENT, 1);
    sqe.cdw10 = DsmCdw10::new().with_nr_z((ranges - 1) as u8).into_bits();
    sqe.cdw11 = DsmCdw11::new().with_ad(true).into_bits();
    sqe
}

/// Ranges of two blocks, one every four blocks, followed by other content of the host's page.
fn ranges(first: u64, count: usize, bytes: usize) -> Vec<u8> {
    let ranges: Vec<DsmRange> = (0..count as u64)
        .map(|index| DsmRange {
            attributes: 0,
            blocks: 2,
            slba: first + 4 * index,
        })
        .collect();
    let mut data = ranges.as_bytes().to_vec();
    // Invalid as ranges: outside the namespace.
    data.resize(bytes, 0xff);
    data
}

fn deallocations(client: &mut Client) -> u64 {
    let all = client.statistics().expect("served");
    all.iter()
        .find(|(name, _)| *name == "host_deallocations")
        .expect("a name")
        .1
}

fn is_zero(client: &mut Client, block: u64) -> bool {
    client
        .read(block, 1)
        .expect("served")
        .iter()
        .all(|byte| *byte == 0)
}

#[test]
fn a_trim_of_one_range_in_a_page_of_4096_bytes_trims_that_range() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(0, &[7; 16 << 12]).expect("served");
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    let data = ranges(4, 1, LINUX_BYTES);

    // In the capsule, as Linux does with this target.
    let before = deallocations(&mut client);
    let answer = queue.call(in_capsule(dsm(1), LINUX_BYTES as u32), &data);
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    assert_eq!(deallocations(&mut client), before + 2);
    assert!(!is_zero(&mut client, 3) && is_zero(&mut client, 4) && is_zero(&mut client, 5));
    assert!(
        !is_zero(&mut client, 6) && !is_zero(&mut client, 15),
        "nothing else"
    );

    // By R2T, as with targets with a lower in-capsule limit: no more is requested than needed.
    let data = ranges(8, 1, LINUX_BYTES);
    let bytes = queue.capsule(&transport(dsm(1), LINUX_BYTES as u32), &[]);
    queue.send(&bytes);
    let asked = queue.asked();
    assert_eq!((asked.offset, asked.length), (0, 16));
    let bytes = queue.h2c(&asked, &data[..16], true);
    queue.send(&bytes);
    assert_eq!(queue.answer().cqe.status(), Status::SUCCESS);
    assert_eq!(deallocations(&mut client), before + 4);
    assert!(is_zero(&mut client, 8) && is_zero(&mut client, 9) && !is_zero(&mut client, 10));
}

#[test]
fn a_trim_of_256_ranges_trims_them_all() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(0, &vec![7; 1024 << 12]).expect("served");
    let (_admin, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    let before = deallocations(&mut client);
    let data = ranges(0, 256, LINUX_BYTES);
    assert_eq!(
        queue
            .call(in_capsule(dsm(256), LINUX_BYTES as u32), &data)
            .cqe
            .status(),
        Status::SUCCESS
    );
    assert_eq!(deallocations(&mut client), before + 512);
    for block in [0, 1, 1020, 1021] {
        assert!(is_zero(&mut client, block), "block {block}");
    }
    assert!(!is_zero(&mut client, 2) && !is_zero(&mut client, 1023));
}

#[test]
fn a_transfer_may_be_longer_than_its_command_needs_and_not_shorter() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (mut admin_queue, cntlid) = Peer::admin(rig.address);
    let mut queue = Peer::io(rig.address, cntlid, 1, 0);
    let id = admin_queue
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
    let sgls = u32::from_le_bytes(id[536..540].try_into().expect("four bytes"));
    assert_eq!(
        sgls >> 18 & 1,
        1,
        "SGLs may be longer than the data, says Identify"
    );

    let too_short = |answer: Answer| assert_eq!(answer.cqe.status(), status::SGL_LENGTH);
    too_short(queue.call(in_capsule(dsm(2), 16), &ranges(0, 1, 16)));
    too_short(queue.call(transport(dsm(2), 16), &[]));

    // A write takes its own blocks from the front.
    let mut write = entry(io::WRITE, 1);
    (write.cdw10, write.cdw12) = (20, RwCdw12::new().with_nlb_z(0).into_bits());
    too_short(queue.call(in_capsule(write, 4095), &[1; 4095]));
    assert_eq!(
        queue
            .call(in_capsule(write, 8192), &[[1; 4096], [2; 4096]].concat())
            .cqe
            .status(),
        Status::SUCCESS
    );
    assert_eq!(
        client.read(20, 2).expect("served"),
        [[1; 4096], [0; 4096]].concat()
    );
    assert_eq!(
        queue
            .call_asked(transport(write, 8192), &[3; 8192])
            .cqe
            .status(),
        Status::SUCCESS
    );
    assert_eq!(
        client.read(20, 2).expect("served"),
        [[3; 4096], [0; 4096]].concat()
    );

    // So does Copy with its ranges.
    let mut copy = entry(io::COPY, 1);
    (copy.cdw10, copy.cdw12) = (40, CopyCdw12::new().with_nr_z(0).into_bits());
    let mut list = CopyRange::new(20, 0).as_bytes().to_vec();
    list.resize(LINUX_BYTES, 0xff);
    assert_eq!(
        queue
            .call(in_capsule(copy, LINUX_BYTES as u32), &list)
            .cqe
            .status(),
        Status::SUCCESS
    );
    assert_eq!(
        client.read(40, 2).expect("served"),
        [[3; 4096], [0; 4096]].concat()
    );

    // Longer than the maximum transfer.
    assert_eq!(
        queue
            .call(transport(dsm(1), (1 << 20) + 1), &[])
            .cqe
            .status(),
        Status::INVALID_FIELD
    );
}
