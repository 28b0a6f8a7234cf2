//! The error log names the first block with an error, which is not always the first block of the
//! command.

use crate::kit::specified::lid;
use crate::kit::{self, Rig, device};
use remap_ssd_device::Device;
use remap_ssd_media::{Lpn, Payload};
use remap_ssd_nvme::controller::{BlockAccess, FaultInjector, NamespaceSpec};
use remap_ssd_nvme::spec::log::ErrorEntry;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, entry};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromBytes;

/// Refuses reads of one byte, and all writes.
struct BadByte(u64);

impl FaultInjector for BadByte {
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    fn access(&self, access: BlockAccess, bytes: Range<u64>) -> Result<(), Status> {
        match access {
            BlockAccess::Read if bytes.contains(&self.0) => Err(Status::UNRECOVERED_READ),
            BlockAccess::Read => Ok(()),
            BlockAccess::Write | BlockAccess::Deallocate => Err(Status::WRITE_PROTECTED),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

/// Namespaces of `pages` each, in blocks of 512 bytes.
fn served(device: Device, pages: &[u32], injector: Option<BadByte>) -> (Rig, Client) {
    let specs: Vec<NamespaceSpec> = pages
        .iter()
        .map(|pages| NamespaceSpec {
            pages: *pages,
            lba_shift: 9,
        })
        .collect();
    let subsystem = kit::subsystem(device, &specs);
    let subsystem = match injector {
        Some(injector) => subsystem.with_faults(Arc::new(injector)),
        None => subsystem,
    };

    let rig = Rig::of(subsystem);
    let client = rig.client();
    (rig, client)
}

/// Status, namespace and block of the newest entry of the error log.
fn newest_entry(client: &mut Client) -> (u16, u32, u64) {
    let call = Call::receiving(
        remap_ssd_nvme::spec::command::Sqe {
            cdw10: u32::from(lid::ERROR) | (64 / 4 - 1) << 16,
            ..entry(admin::GET_LOG_PAGE, 0)
        },
        64,
    );
    let page = client
        .admin(|queue| queue.call("get log page", &call))
        .expect("served")
        .data;

    let entry = ErrorEntry::read_from_bytes(&page).expect("64 bytes");
    (entry.status >> 1, entry.nsid, entry.lba)
}

// Block 13 is in the middle of a page; reads begin before it, and in its page.
#[test]
fn an_injected_fault_is_logged_with_the_block_that_is_bad() {
    let (_rig, mut client) = served(
        device(32 << 20, false),
        &[64, 64],
        Some(BadByte(13 * 512 + 7)),
    );
    let bad = (Status::UNRECOVERED_READ.into_bits(), 1, 13);

    for (slba, blocks) in [(0, 64), (9, 5), (13, 1)] {
        assert!(client.read(slba, blocks).is_err());
        assert_eq!(newest_entry(&mut client), bad, "read of {slba}");
    }

    let verify = Call::new(client.rw(io::VERIFY, 2, 30));
    assert!(client.queue(|queue| queue.call("verify", &verify)).is_err());
    assert_eq!(newest_entry(&mut client), bad);

    // The source of the copy is bad, not the target that the command names first.
    assert!(client.copy(8, 128, 16).is_err());
    assert_eq!(newest_entry(&mut client), bad);

    // Another fault refuses a write as a whole, from its first block on.
    assert!(client.write(21, &[1; 1024]).is_err());
    let protected = (Status::WRITE_PROTECTED.into_bits(), 1, 21);
    assert_eq!(newest_entry(&mut client), protected);
}

// The bad page is the third of the second namespace.
#[test]
fn a_page_that_the_flash_cannot_read_is_logged_with_its_first_block_of_the_command() {
    let mut device = device(32 << 20, false);
    for page in 0..8 {
        let written = device.write(0, Lpn(page), &Payload::Bytes(&[page as u8 + 1; 4096]));
        assert!(written.result.is_ok());
    }
    device.end_write(0);
    device.flush(0);
    device.untimed(|ftl| {
        let place = ftl.place(Lpn(6)).expect("written above");
        ftl.media_mut().plant(|faults| {
            faults.read.insert(place);
        });
    });

    let (rig, mut client) = served(device, &[4, 16], None);
    client
        .read(0, 32)
        .expect("all of the first namespace is good");
    drop(client);

    let options = remap_ssd_nvme::tcp::client::Options {
        nsid: 2,
        ..Default::default()
    };
    let mut client = Client::connect(rig.address, options).expect("it listens");

    // (first block, count, block logged): from before the page, and from within it.
    for (slba, blocks, wanted) in [(0, 32, 16), (19, 9, 19)] {
        assert!(client.read(slba, blocks).is_err());
        let bad = (Status::UNRECOVERED_READ.into_bits(), 2, wanted);
        assert_eq!(newest_entry(&mut client), bad, "read of {slba}");
    }

    // A write of a part of the page must read the rest of it.
    assert!(client.write(18, &[1; 512]).is_err());
    assert_eq!(newest_entry(&mut client).2, 18);
}
