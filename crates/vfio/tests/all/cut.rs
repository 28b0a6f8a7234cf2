//! The power of the volatile cache is cut between two commands that the function executes together.

use crate::driver::*;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{NamespaceSpec, Subsystem};
use remap_ssd_nvme::spec::command::{CopyRange, RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::io;
use remap_ssd_nvme::spec::status::Status;
use std::collections::BTreeMap;
use std::time::Instant;
use zerocopy::IntoBytes;

const SEEDS: u64 = 8;
/// Blocks of 4 KiB that the flush has to make durable, from block 0 on.
const BLOCKS: u64 = 8;
/// Blocks of the copy. It takes many slices: a thread that waits for the device gets it at the end
/// of the first one at the latest.
const COPIED: u32 = 2048;
/// The block that is written after the cut.
const LATER: u32 = 8000;
/// Room for everything: nothing is written back before a flush.
const CACHE_BYTES: u64 = 64 << 20;

/// A device whose syncs take time, with a volatile cache.
fn rig() -> Rig {
    let dir = tempfile::tempdir().expect("a folder");
    let config = DeviceConfig::for_service(48 << 20, SchemeKind::RemapSsd, false);
    let config = config.expect("possible");
    let device = Device::create_in_folder(&dir.path().join("device"), config, None);
    let namespaces = [NamespaceSpec {
        pages: LATER + 1,
        lba_shift: 12,
    }];
    let subsystem = Subsystem::new(device.expect("there is room"), NQN, &namespaces);
    Rig::of(subsystem.expect("possible").with_cache(CACHE_BYTES), dir)
}

/// Waits until this number of threads wait for the device, which this one holds.
fn await_waiting(rig: &Rig, count: usize) {
    let until = Instant::now() + PATIENCE;
    while rig.subsystem.waiting() < count {
        assert!(
            Instant::now() < until,
            "fewer than {count} threads wait for the device"
        );
        std::thread::yield_now();
    }
}

/// PRPs of `BLOCKS` pages at `DATA`.
fn pages(guest: &Guest) -> [u64; 2] {
    let list: Vec<u8> = (1..BLOCKS)
        .flat_map(|page| (DATA + page * 4096).to_le_bytes())
        .collect();
    guest.put(BASE + 0x8000, &list);
    [DATA, BASE + 0x8000]
}

/// Writes all blocks, each with a byte of its own.
fn write_all(guest: &mut Guest, round: u8) {
    for of in 0..BLOCKS {
        guest.put(DATA + of * 4096, &page(of, round));
    }
    let prps = pages(guest);
    let write = command(io::WRITE, [0, 0, BLOCKS as u32 - 1], prps);
    assert_eq!(guest.io(write), Status::SUCCESS);
}

fn write_with_fua(slba: u32, data: u64) -> Sqe {
    let cdw12 = RwCdw12::new().with_fua(true).into_bits();
    command(io::WRITE, [slba, 0, cdw12], [data, 0])
}

/// A flush, a long copy and a write with FUA are rung for while this thread holds the device, so
/// that the function executes them in one burst. The power is cut when the flush has been executed
/// and before the write is: the copy gives the device away in between. Returns what became of each
/// command by its identifier, and how many blocks the cut took of those that the flush waits for.
fn cut_in_a_burst(rig: &Rig, guest: &mut Guest, seed: u64) -> (BTreeMap<u16, Status>, u64) {
    guest.put(
        BASE + 0x9000,
        CopyRange::new(100, COPIED as u16 - 1).as_bytes(),
    );
    guest.put(DATA + 0x10_0000, &page(u64::from(LATER), 3));

    let held = rig.subsystem.device();
    guest.submit(1, command(io::FLUSH, [0; 3], [0; 2]));
    guest.submit(1, command(io::COPY, [4000, 0, 0], [BASE + 0x9000, 0]));
    guest.submit(1, write_with_fua(LATER, DATA + 0x10_0000));
    await_waiting(rig, 1);

    let lost = std::thread::scope(|scope| {
        let cut = scope.spawn(|| {
            let report = rig.subsystem.cut_power(seed, |_, report| report);
            report.expect("the device takes it")
        });
        await_waiting(rig, 2);
        drop(held);
        cut.join().expect("no panic").blocks_lost_awaiting_sync
    });

    let statuses = (0..3)
        .map(|_| guest.completion(1).expect("it completes"))
        .map(|cqe| (cqe.cid, cqe.status()))
        .collect();
    (statuses, lost)
}

#[test]
fn a_flush_whose_data_were_cut_fails_although_a_later_command_of_its_burst_is_durable() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        let rig = rig();
        let mut guest = rig.guest();
        guest.enable();
        guest.create_queues();
        write_all(&mut guest, 1);
        assert_eq!(
            guest.io(command(io::FLUSH, [0; 3], [0; 2])),
            Status::SUCCESS
        );
        write_all(&mut guest, 2);

        let first = guest.cid + 1;
        let (statuses, lost) = cut_in_a_burst(&rig, &mut guest, seed);
        let flushed = match lost {
            0 => Status::SUCCESS,
            _ => Status::POWER_LOSS,
        };
        assert_eq!(statuses[&first], flushed, "seed {seed}: the flush");
        assert_eq!(statuses[&(first + 2)], Status::SUCCESS, "seed {seed}: FUA");
        failed += u64::from(lost > 0);

        // The flush fails for a reason: some blocks are as they were before.
        let prps = pages(&guest);
        let read = command(io::READ, [0, 0, BLOCKS as u32 - 1], prps);
        assert_eq!(guest.io(read), Status::SUCCESS);
        let old = |of: &u64| guest.get(DATA + of * 4096, 4096) == page(*of, 1);
        assert_eq!((0..BLOCKS).filter(old).count() as u64, lost, "seed {seed}");

        // What was written after the cut is durable: another one does not take it.
        let again = rig.subsystem.cut_power(seed, |_, _| ());
        again.expect("the device takes it");
        let read = command(io::READ, [LATER, 0, 0], [DATA, 0]);
        assert_eq!(guest.io(read), Status::SUCCESS);
        assert!(guest.get(DATA, 4096) == page(u64::from(LATER), 3));
        drop(guest);
        rig.stop();
    }
    assert!(failed > 0, "no cut has lost anything");
}
