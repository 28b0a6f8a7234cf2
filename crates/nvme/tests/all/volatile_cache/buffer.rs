//! A device whose own write buffer is volatile: hosts have the contract of a volatile write cache, and the same model judges
//! it. Other than the cache, a cut loses the whole buffer, and nothing that has left it.

use super::bench::{self, Bench, block_of, with_buffer};
use crate::kit::specified::property;
use crate::kit::{self, Rig, raw};
use rand::RngExt;
use remap_ssd_device::{Device, Lpn};
use remap_ssd_nvme::controller::{
    Blocks, HostData, IoCommand, IoRequest, Issuer, RemapBlocks, Subsystem,
};
use remap_ssd_nvme::spec::command::{RwCdw12, Sqe};
use remap_ssd_nvme::spec::fabrics::Cc;
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, entry};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

fn buffered(subsystem: &Subsystem) -> u32 {
    subsystem.device().ftl().buffered_pages()
}

// A buffer that holds everything, and one that is always full.
#[test]
fn a_cut_leaves_each_block_one_of_its_versions_since_it_was_durable() {
    let mut older = 0;
    for (pages, in_folder, seed) in [
        (256, false, 1),
        (256, true, 2),
        (16, false, 3),
        (16, true, 4),
        (64, true, 5),
    ] {
        let mut bench = if in_folder {
            Bench::buffering_in_folder(pages << 12, seed)
        } else {
            Bench::buffering(pages << 12, seed)
        };
        for round in 0..20 {
            for _ in 0..bench.random.random_range(1..40) {
                bench.step();
                bench.check_reads();
            }
            bench.cut_device(seed << 8 | round);
            assert_eq!(buffered(&bench.subsystem), 0);
            let turn = bench.subsystem.device();
            assert_eq!(turn.ftl().check(), Ok(()));
        }
        older += bench.older;
    }
    assert!(older > 500, "{older}");
}

// Both have to hold, or FUA could be a flush.
#[test]
fn fua_makes_its_own_blocks_durable_and_no_other_page() {
    let bench = Bench::buffering(1 << 20, 1);
    let write = |slba, count, fua, stamp| {
        let blocks = Blocks { slba, count };
        let data = block_of(stamp, 9).repeat(count as usize);
        bench.must(2, &IoRequest::Write { blocks, fua }, &data);
    };
    write(0, 1, false, 1);
    write(3, 20, false, 2);
    // The last block of page 0, pages 1 and 2, and the first block of page 3, which had no data.
    write(7, 18, true, 3);
    write(40, 1, false, 4);
    assert_eq!(buffered(&bench.subsystem), 1);

    let blocks = Blocks { slba: 40, count: 1 };
    let content = block_of(4, 9);
    for (request, data) in [
        (IoRequest::Read { blocks, fua: true }, &[][..]),
        (IoRequest::Verify { blocks, fua: true }, &[]),
        (IoRequest::Compare { blocks, fua: true }, &content),
    ] {
        write(40, 1, false, 4);
        assert_eq!(buffered(&bench.subsystem), 1);
        bench.must(2, &request, data);
        assert_eq!(
            buffered(&bench.subsystem),
            0,
            "{request:?} is of the medium"
        );
    }
    write(48, 1, false, 5);
    let blocks = Blocks {
        slba: 50,
        count: 12,
    };
    bench.must(2, &IoRequest::WriteZeroes { blocks, fua: true }, &[]);
    assert_eq!(
        buffered(&bench.subsystem),
        0,
        "a part of the page is written"
    );

    write(56, 1, false, 6);
    bench.subsystem.power_cut(1).expect("it recovers");
    let left = bench.stamps(2, false);
    assert_eq!(left[7..25], [3; 18]);
    assert_eq!((left[0], left[3]), (1, 2), "they share a page with those");
    assert_eq!((left[40], left[48], left[56]), (4, 5, 0));
}

#[test]
fn switched_off_the_buffer_keeps_nothing_back() {
    for in_folder in [false, true] {
        let mut bench = match in_folder {
            true => Bench::buffering_in_folder(1 << 20, 9),
            false => Bench::buffering(1 << 20, 9),
        };
        bench.cache_enabled = false;
        for _ in 0..120 {
            bench.step();
            assert_eq!(buffered(&bench.subsystem), 0);
        }
        bench.cut_device(1);
        assert_eq!(bench.older, 0);
    }
}

#[test]
fn pages_that_a_remap_names_leave_the_buffer_and_zeroes_are_durable() {
    let bench = Bench::buffering(1 << 20, 1);
    let write = |slba, stamp| {
        let blocks = Blocks { slba, count: 1 };
        bench.must(
            1,
            &IoRequest::Write { blocks, fua: false },
            &block_of(stamp, 12),
        );
    };
    (0..8).for_each(|slba| write(slba, slba + 1));
    write(20, 50);
    for (source, target, atomic) in [(0, 20, false), (2, 30, true)] {
        let blocks = RemapBlocks {
            target: Blocks {
                slba: target,
                count: 2,
            },
            source,
            relocate: false,
            atomic,
        };
        let namespace = bench.subsystem.namespace(1).expect("there");
        let request = IoRequest::remap(&namespace, &blocks, false).expect("whole pages");
        bench.must(1, &request, &[]);
    }
    assert_eq!(buffered(&bench.subsystem), 4);

    let blocks = Blocks { slba: 4, count: 2 };
    bench.must(1, &IoRequest::WriteZeroes { blocks, fua: false }, &[]);
    bench.must(1, &IoRequest::Verify { blocks, fua: false }, &[]);
    let blocks = Blocks { slba: 6, count: 1 };
    bench.must(
        1,
        &IoRequest::Compare { blocks, fua: false },
        &block_of(7, 12),
    );
    assert_eq!(buffered(&bench.subsystem), 2);

    bench.subsystem.power_cut(1).expect("it recovers");
    let left = bench.stamps(1, false);
    assert_eq!(left[..8], [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!((&left[20..22], &left[30..32]), (&[1, 2][..], &[3, 4][..]));
}

/// One large namespace, for commands of several slices. The buffer alone makes it a volatile write cache.
fn large(buffer_bytes: u64) -> Subsystem {
    let device = Device::in_memory(with_buffer(64 << 20, buffer_bytes)).expect("possible");
    kit::subsystem(device, &[]).in_memory()
}

fn network(buffer_bytes: u64) -> Rig {
    Rig::of(large(buffer_bytes))
}

// Its first pages leave the buffer to make room, and its parts are executed as they arrive.
#[test]
fn a_large_write_with_fua_from_the_network_is_durable_as_a_whole() {
    let rig = network(256 << 10);
    let mut client = rig.client();
    let data: Vec<u8> = (0..1 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    let mut sqe = client.rw(io::WRITE, 0, 255);
    sqe.cdw12 |= RwCdw12::new().with_fua(true).into_bits();
    let call = Call::sending(sqe, &data);
    client
        .queue(|queue| queue.call("write", &call))
        .expect("written");
    assert_eq!(buffered(&rig.subsystem), 0);

    rig.subsystem.power_cut(0).expect("it recovers");
    assert!(client.read(0, 256).expect("read") == data);
}

// As nvme-cli does it: id-ctrl, get-feature and set-feature 6. What was written before is durable,
// too.
#[test]
fn a_host_sees_the_buffer_as_a_cache_and_switches_it_off_and_on() {
    let rig = network(1 << 20);
    let mut client = rig.client();
    assert_eq!(client.controller().vwc, 3 << 1 | 1);

    let set = |client: &mut Client, value| {
        let sqe = Sqe {
            cdw10: 6,
            cdw11: value,
            ..entry(admin::SET_FEATURES, 0)
        };
        let call = Call::new(sqe);
        client
            .admin(|queue| queue.call("feature", &call))
            .expect("it is supported");
    };
    let data = vec![7; 64 << 10];
    client.write(0, &data).expect("written");
    assert_eq!(buffered(&rig.subsystem), 16);
    set(&mut client, 0);
    assert_eq!(buffered(&rig.subsystem), 0);
    client.write(64, &data).expect("written");
    assert_eq!(buffered(&rig.subsystem), 0);

    set(&mut client, 1);
    client.write(128, &data).expect("written");
    assert_eq!(buffered(&rig.subsystem), 16);
    client.flush().expect("flushed");
    assert_eq!(buffered(&rig.subsystem), 0);

    // A host that shuts its controller down loses nothing.
    client.write(128, &data).expect("written");
    drop(client);
    let (mut admin, _) = raw::Peer::admin(rig.address);
    let shuts_down = Cc::from_bits(raw::enabled()).with_shn(1).into_bits();
    let ended = admin.call(raw::property_set(property::CC, shuts_down), &[]);
    assert_eq!(ended.cqe.status(), Status::SUCCESS);
    assert_eq!(buffered(&rig.subsystem), 0);
}

/// The data of a write whose host switches the cache off when half of it has been taken.
struct SwitchingOff<'a> {
    left: usize,
    write_through: &'a AtomicBool,
}

impl HostData for SwitchingOff<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        self.left -= 1;
        if self.left == 4 {
            self.write_through.store(true, Relaxed);
        }
        &[7; 4096][..len]
    }
    fn put(&mut self, _: &[u8]) {}
    fn put_zeroes(&mut self, _: usize) {}
}

// It is acknowledged after the host knows that the cache is off.
#[test]
fn a_write_whose_host_switches_the_cache_off_meanwhile_is_durable_when_it_is_acknowledged() {
    for cached in [false, true] {
        let bench = if cached {
            Bench::new(1 << 20, 1)
        } else {
            Bench::buffering(1 << 20, 1)
        };
        let subsystem = &bench.subsystem;
        let write_through = AtomicBool::new(false);
        let issuer = Issuer {
            write_through: &write_through,
            ..Issuer::service()
        };
        let namespace = subsystem.namespace(1).expect("there");
        let blocks = Blocks { slba: 0, count: 8 };
        let command = IoCommand::new(IoRequest::Write { blocks, fua: false }, &namespace);
        let mut data = SwitchingOff {
            left: 8,
            write_through: &write_through,
        };
        let outcome = subsystem.execute(&mut subsystem.device(), &command, &issuer, 0, &mut data);
        assert_eq!(
            subsystem.wait_until_durable(outcome).status,
            Status::SUCCESS
        );
        assert_eq!(data.left, 0);

        if cached {
            subsystem
                .cut_power(1, |_, _| ())
                .expect("the device takes it");
        } else {
            subsystem.power_cut(1).expect("it recovers");
        }
        let (_, read) = bench.begin(1, &IoRequest::Read { blocks, fua: false }, &[]);
        assert!(read == [7; 8 << 12], "cached: {cached}");
    }
}

/// Executes a long write, and cuts the power in a pause of it; `None` if the cut came too late.
fn write_through_cut(fua: bool) -> Option<Status> {
    let subsystem = large(32 << 20);
    let cut = || {
        subsystem.power_cut(1).expect("it recovers");
    };
    bench::write_through(&subsystem, fua, cut, || subsystem.power_cuts() > 0)
}

// It would be acknowledged, and half of it is gone: a flush after it would promise what is lost.
#[test]
fn a_command_that_was_paused_while_the_power_was_cut_fails() {
    for fua in [false, true] {
        let status = loop {
            if let Some(status) = write_through_cut(fua) {
                break status;
            }
        };
        assert_eq!(status, Status::POWER_LOSS);
    }
}

// Hosts that go on writing do not prolong it, and it lets them go first between its steps.
#[test]
fn a_flush_writes_back_in_steps_what_was_written_before_it() {
    let subsystem = large(8 << 20);
    let write = |lpn: u32| {
        let mut turn = subsystem.device();
        let page = block_of(u64::from(lpn) + 1, 12);
        let payload = remap_ssd_media::Payload::Bytes(&page);
        turn.write(0, Lpn(lpn), &payload)
            .result
            .expect("there is room");
    };
    (0..1500).for_each(write);
    let before = subsystem.slices();
    subsystem.drain().expect("there is room");
    assert_eq!(buffered(&subsystem), 0);
    assert!(
        subsystem.slices() - before > 10,
        "{}",
        subsystem.slices() - before
    );
    let report = subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report.mapped, 1500);
}

// The older version of such a page is acknowledged, and the newer one has taken its place in the buffer.
#[test]
fn a_flush_loses_no_page_that_is_written_again_between_its_steps() {
    let subsystem = large(8 << 20);
    let write = |lpn: u32, stamp: u64| {
        let page = block_of(stamp, 12);
        let payload = remap_ssd_media::Payload::Bytes(&page);
        let written = subsystem.device().write(0, Lpn(lpn), &payload);
        written.result.expect("there is room");
    };
    (0..1500).for_each(|lpn| write(lpn, 1));
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| subsystem.drain().expect("there is room"));
        // From the youngest on, which the flush writes last.
        let mut again = (0..1500).rev().cycle();
        while !flush.is_finished() {
            write(again.next().expect("endless"), 2);
        }
    });
    let report = subsystem.power_cut(1).expect("it recovers");
    assert_eq!(report.mapped, 1500);
}

/// The stamps of the pages that a read returns.
#[derive(Default)]
struct Stamps(Vec<u64>);

impl HostData for Stamps {
    fn take(&mut self, _: usize) -> &[u8] {
        unreachable!("a read")
    }
    fn put(&mut self, page: &[u8]) {
        let stamp = u64::from_le_bytes(*page.first_chunk().expect("a page"));
        self.0.push(stamp);
        // The other thread has to get to the device's queue before the command ends.
        std::thread::yield_now();
    }
    fn put_zeroes(&mut self, _: usize) {
        self.0.push(0);
        std::thread::yield_now();
    }
}

// Pages that are written again after the first step of the read are returned, and must not be lost.
#[test]
fn a_read_with_fua_returns_nothing_that_a_cut_takes_back() {
    let subsystem = large(8 << 20);
    let count = 512;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let write = |lpn: u32, stamp: u64| {
        let page = block_of(stamp, 12);
        let payload = remap_ssd_media::Payload::Bytes(&page);
        let written = subsystem.device().write(0, Lpn(lpn), &payload);
        written.result.expect("there is room");
    };
    (0..count).for_each(|lpn| write(lpn, 1));

    let mut read = Stamps::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stamp = 1;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                stamp += 1;
                (0..count).rev().for_each(|lpn| write(lpn, stamp));
            }
        });
        let blocks = Blocks { slba: 0, count };
        let request = IoRequest::Read { blocks, fua: true };
        let command = IoCommand::new(request, &subsystem.namespace(1).expect("it exists"));
        let mut turn = subsystem.device();
        let outcome = subsystem.execute(&mut turn, &command, &Issuer::service(), 0, &mut read);
        assert_eq!(outcome.status, Status::SUCCESS);
        // In the turn: what is written later may stay in the buffer.
        drop(turn);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });

    subsystem.power_cut(1).expect("it recovers");
    let mut turn = subsystem.device();
    for (lpn, returned) in (0..count).zip(&read.0) {
        let (_, left) = turn.view(0, Lpn(lpn), |page| match page {
            remap_ssd_media::PageView::Bytes(bytes) => {
                u64::from_le_bytes(*bytes.first_chunk().expect("a page"))
            }
            _ => 0,
        });
        let left = left.expect("readable");
        assert!(
            left >= *returned,
            "page {lpn}: {returned} was read, {left} is left"
        );
    }
}

/// A program that relies on the order of its writes: record `n` is written to block `n`, and nothing is flushed. Returns
/// true if the cut leaves a record without an earlier one.
fn finds_a_gap(bench: &Bench, cut: impl FnOnce(&Subsystem)) -> bool {
    for slba in 0..40 {
        let blocks = Blocks { slba, count: 1 };
        let record = block_of(slba + 1, 12);
        bench.must(1, &IoRequest::Write { blocks, fua: false }, &record);
    }
    cut(&bench.subsystem);
    let left = bench.stamps(1, false);
    let records = left[..40].iter().take_while(|stamp| **stamp != 0).count();
    left[records..].iter().any(|stamp| *stamp != 0)
}

// Pages leave the buffer in the order of their writes, so a cut of this drive leaves the first records and no others. NVMe
// promises no order, and the cache takes it at its word: this is why both exist.
#[test]
fn a_missing_flush_is_found_by_the_cache_and_not_by_the_buffer() {
    let in_buffer = |seed: &u64| {
        let bench = Bench::buffering(65536 + 4096 * seed, *seed);
        finds_a_gap(&bench, |subsystem| {
            subsystem.power_cut(*seed).expect("it recovers");
        })
    };
    let in_cache = |seed: &u64| {
        let bench = Bench::new(1 << 20, *seed);
        finds_a_gap(&bench, |subsystem| {
            let cut = subsystem.cut_power(*seed, |_, _| ());
            cut.expect("the device takes it");
        })
    };
    let found = (
        (0..60).filter(in_buffer).count(),
        (0..60).filter(in_cache).count(),
    );
    println!("gaps in 60 cuts: {found:?} with the buffer and with the cache");
    assert!(found.0 == 0 && found.1 > 20, "{found:?}");
}
