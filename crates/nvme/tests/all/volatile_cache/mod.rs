//! A volatile write cache loses what NVMe lets it lose, and nothing else: a model of each block
//! judges random commands and power cuts. So does the write buffer of a device that is volatile (`buffer`).
//!
//! The model keeps, for each block, what it may hold after a cut: its last durable content and
//! everything since. Earlier durability (a full cache) leaves fewer possibilities, and is allowed.
//! Absent: sockets, but for the last tests.

mod batch;
mod bench;
mod buffer;
mod under_way;

use crate::kit::{self, Rig};
use bench::{Bench, block_of};
use rand::RngExt;
use remap_ssd_nvme::controller::{Blocks, IoRequest, RemapBlocks};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::tcp::client::{Call, Client, entry};

// Random commands and cuts, with a cache that holds everything and with one that is always full.
#[test]
fn a_cut_leaves_each_block_one_of_its_versions_since_it_was_durable() {
    let (mut older, mut between) = (0, 0);
    for (cache_bytes, seed) in [(16 << 20, 1..13), (64 << 10, 13..19)]
        .into_iter()
        .flat_map(|(bytes, seeds): (u64, std::ops::Range<u64>)| {
            seeds.map(move |seed| (bytes, seed))
        })
    {
        let mut bench = Bench::new(cache_bytes, seed);
        for round in 0..12 {
            for _ in 0..bench.random.random_range(1..40) {
                bench.step();
                bench.check_reads();
            }
            let report = bench.cut(seed << 8 | round);
            assert!(report.blocks_lost <= report.blocks_cached);
            assert_eq!(bench.subsystem.cached_bytes(), Some(0));
        }
        older += bench.older;
        between += bench.between;
    }
    assert!(older > 1000 && between > 100, "{older} and {between}");
}

#[test]
fn the_same_seed_loses_the_same_blocks() {
    let cut = || {
        let mut bench = Bench::new(1 << 20, 5);
        (0..60).for_each(|_| bench.step());
        bench.cut(77)
    };
    let report = cut();
    assert_eq!(report, cut());
    assert_eq!(report.seed, 77);
}

// Not the newest and the durable one alone: those in between, too.
#[test]
fn every_version_since_the_durable_one_is_left_by_some_cut() {
    let left: std::collections::BTreeSet<u64> = (0..100)
        .map(|seed| {
            let bench = Bench::new(1 << 20, seed);
            for stamp in 1..=3 {
                let blocks = Blocks { slba: 4, count: 1 };
                let data = block_of(stamp, 12);
                bench.must(1, &IoRequest::Write { blocks, fua: false }, &data);
            }
            bench
                .subsystem
                .cut_power(seed, |_, _| ())
                .expect("the device takes it");
            bench.stamps(1, false)[4]
        })
        .collect();
    assert_eq!(left, (0..=3).collect());
}

// Both have to hold, or FUA could be a flush.
#[test]
fn fua_makes_its_own_write_durable_and_no_other() {
    let mut lost_before = false;
    for seed in 0..24 {
        let bench = Bench::new(1 << 20, seed);
        let write = |slba, fua, stamp| {
            let blocks = Blocks { slba, count: 1 };
            let data = block_of(stamp, 9);
            bench.must(2, &IoRequest::Write { blocks, fua }, &data);
        };
        // All in one page of 512-byte blocks.
        write(0, false, 1);
        write(3, false, 2);
        write(3, true, 3);
        write(5, false, 4);
        bench
            .subsystem
            .cut_power(seed, |_, _| ())
            .expect("the device takes it");
        let left = bench.stamps(2, false);
        assert_eq!(left[3], 3, "seed {seed}");
        lost_before |= left[0] == 0;
    }
    assert!(
        lost_before,
        "what was written before FUA is durable each time"
    );
}

#[test]
fn switched_off_the_cache_keeps_nothing_back() {
    let mut bench = Bench::new(1 << 20, 9);
    (0..40).for_each(|_| bench.step());
    bench.flush();
    bench.cache_enabled = false;
    (0..60).for_each(|_| bench.step());
    let report = bench.cut(1);
    assert_eq!((report.blocks_cached, bench.older), (0, 0));
}

// A remap that went through the cache shares its page in the end, and does not program it.
#[test]
fn a_cached_remap_is_written_back_as_a_remap() {
    let bench = Bench::new(4 << 20, 1);
    let blocks = Blocks { slba: 0, count: 8 };
    let data: Vec<u8> = (1..=8).flat_map(|stamp| block_of(stamp, 12)).collect();
    bench.must(1, &IoRequest::Write { blocks, fua: false }, &data);
    let blocks = RemapBlocks {
        target: Blocks { slba: 20, count: 8 },
        source: 0,
        relocate: false,
        atomic: false,
    };
    let namespace = bench.subsystem.namespace(1).expect("there");
    let request = IoRequest::remap(&namespace, &blocks, false).expect("whole pages");
    bench.must(1, &IoRequest::Flush, &[]);
    let programs = || bench.subsystem.device().ftl().media().counts.programs;
    let before = programs();
    bench.must(1, &request, &[]);
    bench.must(1, &IoRequest::Flush, &[]);
    assert_eq!(programs() - before, 0);
    assert_eq!(bench.stamps(1, false)[20..28], [1, 2, 3, 4, 5, 6, 7, 8]);
}

// The parts of a large write are executed as they arrive. All of them must be durable, not only the
// last one.
#[test]
fn a_large_write_with_fua_from_the_network_is_durable_as_a_whole() {
    let rig = Rig::of(kit::subsystem(kit::device(16 << 20, false), &[]).with_cache(4 << 20));
    let mut client = rig.client();
    let data: Vec<u8> = (0..1 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    let mut sqe = client.rw(io::WRITE, 0, 255);
    sqe.cdw12 |= RwCdw12::new().with_fua(true).into_bits();
    let call = Call::sending(sqe, &data);
    client
        .queue(|queue| queue.call("write", &call))
        .expect("written");

    let cached = rig
        .subsystem
        .cut_power(0, |_, report| report.blocks_cached)
        .expect("the device takes it");
    assert_eq!(cached, 0);
    assert!(client.read(0, 256).expect("read") == data);
}

// As nvme-cli does it: id-ctrl, get-feature and set-feature 6. What was written before is durable,
// too.
#[test]
fn a_host_sees_the_cache_and_switches_it_off_and_on() {
    let rig = Rig::of(kit::subsystem(kit::device(16 << 20, false), &[]).with_cache(4 << 20));
    let mut client = rig.client();
    assert_eq!(client.controller().vwc & 1, 1);

    let feature = |client: &mut Client, opcode, value| {
        let sqe = Sqe {
            cdw10: 6,
            cdw11: value,
            ..entry(opcode, 0)
        };
        let call = Call::new(sqe);
        let answer = client.admin(|queue| queue.call("feature", &call));
        answer.expect("it is supported").result & 1
    };
    let cached = |rig: &Rig| rig.subsystem.cached_bytes().expect("it has a cache");
    let data = vec![7; 64 << 10];

    assert_eq!(feature(&mut client, admin::GET_FEATURES, 0), 1);
    client.write(0, &data).expect("written");
    assert!(cached(&rig) > 64 << 10);

    feature(&mut client, admin::SET_FEATURES, 0);
    assert_eq!(feature(&mut client, admin::GET_FEATURES, 0), 0);
    assert_eq!(cached(&rig), 0);
    client.write(64, &data).expect("written");
    assert_eq!(cached(&rig), 0);

    feature(&mut client, admin::SET_FEATURES, 1);
    client.write(128, &data).expect("written");
    assert!(cached(&rig) > 0);
    client.flush().expect("flushed");
    assert_eq!(cached(&rig), 0);
}

// A clean shutdown loses nothing.
#[test]
fn draining_makes_everything_durable() {
    let mut bench = Bench::new(1 << 20, 3);
    (0..60).for_each(|_| bench.step());
    bench.subsystem.drain().expect("the device takes it");
    let report = bench.cut(1);
    assert_eq!((report.blocks_cached, bench.older), (0, 0));
}
