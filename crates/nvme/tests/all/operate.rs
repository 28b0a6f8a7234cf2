//! What an operator switches holds for the next command.

use crate::kit::{Rig, device};
use remap_ssd_nvme::controller::Latency;
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
    let rig = Rig::with(device(32 << 20, true), &[], Latency::None);
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

    drop(client);
    rig.stop();
}

#[test]
fn a_device_without_deduplication_says_so() {
    let rig = Rig::with(device(32 << 20, false), &[], Latency::None);
    for on in [true, false] {
        let refused = rig.subsystem.set_dedup(on).expect_err("it has none");
        assert!(refused.to_string().contains("--dedup on"), "{refused}");
    }
    rig.stop();
}
