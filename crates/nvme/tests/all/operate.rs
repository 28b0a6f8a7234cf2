//! What an operator switches holds for the next command.

use crate::kit::{Rig, device};
use remap_ssd_nvme::controller::operate::Damage;
use remap_ssd_nvme::controller::{Blocks, InMemory, IoCommand, IoRequest, Issuer};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::Client;

const PAGE: usize = 4096;

/// Writes pages with the same content to two places; returns how many were found as duplicates.
fn duplicates_found(rig: &Rig, client: &mut Client, content: u8) -> u64 {
    let hits = || rig.subsystem.device().ftl().stats().dedup_hits;
    let before = hits();
    for page in [0, 8] {
        client.write(page, &[content; PAGE]).expect("written");
    }
    hits() - before
}

#[test]
fn duplicates_are_found_unless_deduplication_is_off() {
    let rig = Rig::with(device(32 << 20, true), &[]);
    let mut client = rig.client();
    assert_eq!(duplicates_found(&rig, &mut client, 1), 1);

    rig.subsystem.set_dedup(false).expect("it has it");
    assert_eq!(duplicates_found(&rig, &mut client, 2), 0);
    rig.subsystem.set_dedup(true).expect("it has it");
    assert_eq!(duplicates_found(&rig, &mut client, 3), 1);

    // Both pages of content 2 were written while it was off: it is not found.
    client.write(16, &[2; PAGE]).expect("written");
    let hits = rig.subsystem.device().ftl().stats().dedup_hits;
    assert_eq!(hits, 2);
}

#[test]
fn a_device_without_deduplication_says_so() {
    let rig = Rig::with(device(32 << 20, false), &[]);
    for on in [true, false] {
        let refused = rig.subsystem.set_dedup(on).expect_err("it has none");
        assert!(refused.to_string().contains("--dedup on"), "{refused}");
    }
}

// The placeholder that stands for the device during the cut has zeroes to read, and takes every write.
#[test]
fn a_device_that_does_not_recover_from_a_cut_answers_no_command() {
    let rig = Rig::with(device(32 << 20, false), &[]);
    let subsystem = &rig.subsystem;
    let namespace = subsystem.namespace(1).expect("there");
    let blocks = Blocks {
        slba: 0,
        count: (PAGE >> namespace.lba_shift) as u32,
    };
    let execute = |request| {
        let mut data = InMemory {
            from_host: &[1; PAGE],
            to_host: &mut Vec::new(),
        };
        let command = IoCommand::new(request, &namespace);
        let issuer = Issuer::service();
        let outcome = subsystem.execute(&mut subsystem.device(), &command, &issuer, 0, &mut data);
        subsystem.wait_until_durable(outcome).status
    };
    let [write, read] = [
        IoRequest::Write { blocks, fua: false },
        IoRequest::Read { blocks, fua: false },
    ];
    for request in [write, read, IoRequest::Flush] {
        assert_eq!(execute(request), Status::SUCCESS);
    }

    // Two bits of each word are more than its check corrects.
    let words = subsystem.device().ftl().media().nvram_words();
    for flip in (0..words).flat_map(|word| [5, 9].map(|bit| Damage::Flip { word, bit })) {
        subsystem.damage(flip).expect("it has the bit");
    }
    let error = subsystem.power_cut(1).expect_err("all NVRAM is damaged");
    assert!(error.to_string().contains("does not recover"), "{error}");

    assert!(subsystem.is_broken());
    for request in [write, read, IoRequest::Flush] {
        assert_eq!(execute(request), Status::WRITE_FAULT, "{request:?}");
    }
    let why = rig.failed().to_string();
    assert!(why.contains("has failed"), "{why}");
}
