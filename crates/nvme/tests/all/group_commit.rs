//! Number of syncs of the disk: one for all waiting commands.

use crate::kit::Rig;
use crate::kit::specified::{fabrics, property};
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::Cc;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::{Call, Client, entry};
use tempfile::TempDir;

const PAGE: usize = 4096;

/// A served device in a folder.
fn rig(dir: &TempDir) -> Rig {
    let config =
        DeviceConfig::for_service(64 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device =
        Device::create_in_folder(&dir.path().join("device"), config, None).expect("there is room");
    Rig::with(device, &[])
}

fn forced(lba: u32) -> Sqe {
    let mut sqe = entry(io::WRITE, 1);
    sqe.cdw10 = lba;
    sqe.cdw12 = RwCdw12::new().with_nlb_z(0).with_fua(true).into_bits();
    sqe
}

fn write_together(client: &mut Client, first: u32, count: u32) {
    let data = vec![first as u8 | 1; PAGE];
    let calls: Vec<Call<'_>> = (first..first + count)
        .map(|lba| Call::sending(forced(lba), &data))
        .collect();
    let answers = client.queue(|queue| queue.calls(&calls)).expect("served");
    assert!(answers.iter().all(|answer| answer.status.is_success()));
}

#[test]
fn writes_with_fua_that_are_under_way_together_share_a_sync() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    let before = rig.subsystem.commits();
    for round in 0..10 {
        write_together(&mut client, round * 32, 32);
    }
    let commits = rig.subsystem.commits() - before;
    assert!(
        (10..=60).contains(&commits),
        "{commits} syncs for 320 writes, 32 at a time"
    );
}

#[test]
fn writes_with_fua_of_several_connections_share_syncs() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let before = rig.subsystem.commits();
    std::thread::scope(|scope| {
        for index in 0..8 {
            let mut client = rig.client();
            scope.spawn(move || {
                (0..20).for_each(|round| write_together(&mut client, index * 100 + round * 4, 4))
            });
        }
    });
    let commits = rig.subsystem.commits() - before;
    assert!(
        commits <= 160,
        "{commits} syncs for 640 writes, 4 at a time on 8 connections"
    );
}

#[test]
fn a_flush_behind_which_nothing_was_written_asks_for_no_sync() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    client.write(0, &[1; PAGE]).expect("served");
    let mut flush = || {
        let before = rig.subsystem.commits();
        client.flush().expect("served");
        rig.subsystem.commits() - before
    };
    assert_eq!([flush(), flush(), flush()], [1, 0, 0]);
    client.write(0, &[2; PAGE]).expect("served");
    let before = rig.subsystem.commits();
    client.flush().expect("served");
    assert_eq!(rig.subsystem.commits() - before, 1);
}

/// A long command that programs much waits for the disk, so that no host has to wait for it before
/// an erase. One that programs nothing need not wait for data of others.
#[test]
fn a_copy_waits_for_the_disk_only_if_it_programs() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    let longest = 4096;
    let numbered: Vec<u8> = (1..=longest as u32)
        .flat_map(|page| page.to_le_bytes().repeat(PAGE / 4))
        .collect();
    client.write(0, &numbered).expect("served");
    let before = rig.subsystem.commits();
    client.copy(0, longest, longest).expect("served");
    assert_eq!(
        rig.subsystem.commits(),
        before,
        "16 MiB of writes are not durable, and the copy need not wait for them"
    );

    // One page reaches the maximum of owners: the copy programs.
    client.write(0, &[7; PAGE]).expect("served");
    let mut have = 1;
    while have < longest {
        client.copy(0, have, have).expect("served");
        have *= 2;
    }
    client.copy(0, longest, longest).expect("served");
    assert!(
        rig.subsystem.commits() > before,
        "long, and pages were programmed"
    );
}

/// A commit needs the device to begin, and does not get it before all of them wait.
#[test]
fn threads_that_wait_for_the_same_moment_share_one_sync() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    client.write(0, &[1; PAGE]).expect("served");
    let before = rig.subsystem.commits();
    std::thread::scope(|scope| {
        let rig = &rig;
        let device = rig.subsystem.device();
        let wanted = device.ftl().media().position().expect("it is in a folder");
        for _ in 0..8 {
            scope.spawn(move || rig.subsystem.make_durable(wanted).expect("the disk works"));
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
        drop(device);
    });
    assert_eq!(rig.subsystem.commits() - before, 1);
    drop(client);
    rig.stop();
}

#[test]
fn a_host_that_shuts_its_controller_down_finds_kept_what_it_wrote() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    client.write(0, &[1; PAGE]).expect("served");
    let before = rig.subsystem.commits();
    let mut set = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_SET));
    set.cdw11 = property::CC;
    set.cdw12 = Cc::new()
        .with_en(true)
        .with_iosqes(6)
        .with_iocqes(4)
        .with_shn(1)
        .into_bits();
    let mut get = entry(admin::FABRICS, u32::from(fabrics::PROPERTY_GET));
    get.cdw11 = property::CSTS;
    let [set, get] = [set, get].map(Call::new);
    let csts = client.admin(|queue| {
        queue.call("shut down", &set)?;
        queue.call("status", &get)
    });
    assert_eq!(
        csts.expect("served").result >> 2 & 3,
        2,
        "shutdown is complete"
    );
    assert_eq!(rig.subsystem.commits() - before, 1);
}

#[test]
fn reads_with_fua_return_what_is_durable() {
    let dir = tempfile::tempdir().expect("a folder");
    let rig = rig(&dir);
    let mut client = rig.client();
    client.write(5, &[5; PAGE]).expect("served");
    let before = rig.subsystem.commits();
    let sqe = Sqe {
        cdw0: io::READ.into(),
        ..forced(5)
    };
    let answer = client
        .queue(|queue| queue.call("read", &Call::receiving(sqe, PAGE)))
        .expect("served");
    assert_eq!(answer.data, vec![5; PAGE]);
    assert_eq!(rig.subsystem.commits() - before, 1);
}
