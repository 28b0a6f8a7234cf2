//! A volatile write cache loses what NVMe lets it lose, and nothing else: a model of each block
//! judges random commands and power cuts.
//!
//! The model keeps, for each block, what it may hold after a cut: its last durable content and
//! everything since. Earlier durability (a full cache) leaves fewer possibilities, and is allowed.
//! Absent: sockets, but for the last tests.

mod kit;

use kit::{NQN, Rig};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_nvme::controller::{
    Actor, Blocks, CutReport, Health, InMemory, IoRequest, Job, LOCAL, Latency, NamespaceSpec,
    RemapBlocks, Subsystem,
};
use remap_ssd_nvme::spec::command::{CopyRange, DsmRange, RwCdw12, Sqe};
use remap_ssd_nvme::spec::opcode::{admin, io};
use remap_ssd_nvme::spec::status::Status;
use remap_ssd_nvme::tcp::client::{Call, Client, entry};
use zerocopy::IntoBytes;

/// Pages of a namespace: few, so that commands meet.
const PAGES: u32 = 48;

fn subsystem(cache_bytes: u64) -> Subsystem {
    let namespaces = [12, 9].map(|lba_shift| NamespaceSpec {
        pages: PAGES,
        lba_shift,
    });
    let device = kit::device(16 << 20, false);
    Subsystem::new(
        device,
        NQN,
        &namespaces,
        Latency::None,
        false,
        Health::default(),
    )
    .expect("possible")
    .with_cache(cache_bytes)
}

/// What a block may hold: the last is what it holds now.
type Versions = Vec<u64>;

/// Blocks of one namespace.
struct Model {
    nsid: u32,
    lba_shift: u8,
    blocks: Vec<Versions>,
}

struct Bench {
    subsystem: Subsystem,
    models: [Model; 2],
    random: Xoshiro256PlusPlus,
    stamp: u64,
    /// Is the write cache feature on?
    cache_enabled: bool,
    /// Blocks that a cut has left older than they were, and those that it left between two
    /// versions.
    older: u64,
    between: u64,
}

/// A block that holds a stamp; 0 is a block of zeroes.
fn block_of(stamp: u64, lba_shift: u8) -> Vec<u8> {
    stamp.to_le_bytes().repeat((1 << lba_shift) / 8)
}

impl Model {
    fn new(nsid: u32, lba_shift: u8) -> Self {
        let blocks = (PAGES as usize) << (12 - lba_shift);
        Self {
            nsid,
            lba_shift,
            blocks: vec![vec![0]; blocks],
        }
    }

    fn now(&self, at: u64) -> u64 {
        *self.blocks[at as usize].last().expect("it holds something")
    }

    fn change(&mut self, at: u64, stamp: u64, durable: bool) {
        let versions = &mut self.blocks[at as usize];
        if durable {
            versions.clear();
        }
        versions.push(stamp);
    }
}

impl Bench {
    fn new(cache_bytes: u64, seed: u64) -> Self {
        Self {
            subsystem: subsystem(cache_bytes),
            models: [Model::new(1, 12), Model::new(2, 9)],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            stamp: 0,
            cache_enabled: true,
            older: 0,
            between: 0,
        }
    }

    fn ask(&self, nsid: u32, request: &IoRequest, data: &[u8]) -> (Status, Vec<u8>) {
        let mut read = Vec::new();
        let job = Job {
            nsid,
            version: self.subsystem.namespace(nsid).map_or(0, |one| one.version),
            request,
            now: 0,
            cache_enabled: self.cache_enabled,
            rights: &LOCAL,
            actor: Actor::Service,
        };
        let mut data = InMemory {
            from_host: data,
            to_host: &mut read,
        };
        let outcome = {
            let mut turn = self.subsystem.device();
            self.subsystem.execute(&mut turn, &job, &mut data)
        };
        (self.subsystem.wait_until_durable(outcome).status, read)
    }

    fn must(&self, nsid: u32, request: &IoRequest, data: &[u8]) -> Vec<u8> {
        let (status, read) = self.ask(nsid, request, data);
        assert_eq!(status, Status::SUCCESS, "{request:?}");
        read
    }

    fn stamps(&self, nsid: u32, fua: bool) -> Vec<u64> {
        let model = &self.models[nsid as usize - 1];
        let blocks = Blocks {
            slba: 0,
            count: model.blocks.len() as u32,
        };
        let read = self.must(nsid, &IoRequest::Read { blocks, fua }, &[]);
        let bytes = 1 << model.lba_shift;
        read.chunks(bytes)
            .map(|block| {
                let stamp = u64::from_le_bytes(*block.first_chunk().expect("a block is longer"));
                assert_eq!(block, block_of(stamp, model.lba_shift), "a torn block");
                stamp
            })
            .collect()
    }

    /// While powered, reads return the newest data.
    fn check_reads(&mut self) {
        for at in 0..self.models.len() {
            let read = self.stamps(at as u32 + 1, false);
            let newest: Vec<u64> = (0..read.len() as u64)
                .map(|block| self.models[at].now(block))
                .collect();
            assert_eq!(read, newest, "namespace {}", at + 1);
        }
        self.subsystem.check_cache();
    }

    fn flush(&mut self) {
        self.must(1, &IoRequest::Flush, &[]);
        for versions in self.models.iter_mut().flat_map(|model| &mut model.blocks) {
            versions.drain(..versions.len() - 1);
        }
    }

    fn cut(&mut self, seed: u64) -> CutReport {
        let report = self
            .subsystem
            .cut_power(seed, |_, report| report)
            .expect("the device takes it");

        for at in 0..self.models.len() {
            let left = self.stamps(at as u32 + 1, false);
            for (versions, stamp) in self.models[at].blocks.iter_mut().zip(left) {
                assert!(
                    versions.contains(&stamp),
                    "cut {seed}, namespace {}: {stamp} is none of {versions:?}",
                    at + 1
                );
                let newest = *versions.last().expect("it holds something");
                self.older += u64::from(stamp != newest);
                self.between += u64::from(stamp != newest && stamp != versions[0]);
                *versions = vec![stamp];
            }
        }
        report
    }

    /// A range of blocks, and often one at the same few places.
    fn range(&mut self, at: usize, count_max: u64) -> Blocks {
        let blocks = self.models[at].blocks.len() as u64;
        let count = self.random.random_range(1..=count_max);
        let slba = self.random.random_range(0..=(blocks - count));
        Blocks {
            slba,
            count: count as u32,
        }
    }

    fn step(&mut self) {
        let at = self.random.random_range(0..2usize);
        let (nsid, lba_shift) = (self.models[at].nsid, self.models[at].lba_shift);
        let per_page = 1u64 << (12 - lba_shift);
        let fua = self.random.random_ratio(1, 6);
        let durable = fua || !self.cache_enabled;
        let blocks = self.range(at, 12);

        match self.random.random_range(0..100) {
            0..55 => {
                let mut data = Vec::new();
                for block in blocks.slba..blocks.slba + u64::from(blocks.count) {
                    self.stamp += 1;
                    data.extend(block_of(self.stamp, lba_shift));
                    self.models[at].change(block, self.stamp, durable);
                }
                self.must(nsid, &IoRequest::Write { blocks, fua }, &data);
            }
            55..63 => {
                self.must(nsid, &IoRequest::WriteZeroes { blocks, fua }, &[]);
                for block in blocks.slba..blocks.slba + u64::from(blocks.count) {
                    self.models[at].change(block, 0, durable);
                }
            }
            63..70 => {
                // Whole pages: parts of pages may keep what they hold.
                let page = blocks.slba / per_page;
                let range = DsmRange {
                    attributes: 0,
                    blocks: per_page as u32,
                    slba: page * per_page,
                };
                let request = IoRequest::DatasetManagement {
                    ranges: 1,
                    deallocate: true,
                };
                self.must(nsid, &request, range.as_bytes());
                for block in page * per_page..(page + 1) * per_page {
                    self.models[at].change(block, 0, !self.cache_enabled);
                }
            }
            70..80 => self.copy(at, blocks, fua),
            80..92 => self.remap(at, fua),
            92..95 => drop(self.stamps(nsid, true)),
            _ => self.flush(),
        }
    }

    fn copy(&mut self, at: usize, from: Blocks, fua: bool) {
        let to = self.range(at, from.count.into());
        let range = CopyRange::new(from.slba, (to.count - 1) as u16);
        let request = IoRequest::Copy {
            target: to.slba,
            ranges: 1,
            with_namespaces: false,
            fua,
        };
        let nsid = self.models[at].nsid;
        self.must(nsid, &request, range.as_bytes());

        let durable = fua || !self.cache_enabled;
        let read: Vec<u64> = (from.slba..from.slba + u64::from(to.count))
            .map(|block| self.models[at].now(block))
            .collect();
        for (block, stamp) in (to.slba..).zip(read) {
            self.models[at].change(block, stamp, durable);
        }
    }

    fn remap(&mut self, at: usize, fua: bool) {
        let per_page = 1u64 << (12 - self.models[at].lba_shift);
        let pages = self.random.random_range(1..=6u64);
        let [target, source] =
            [0, 0].map(|_| self.random.random_range(0..=u64::from(PAGES) - pages));
        let (relocate, atomic) = (self.random.random(), self.random.random_ratio(1, 4));
        let count = (pages * per_page) as u32;
        let blocks = RemapBlocks {
            target: Blocks {
                slba: target * per_page,
                count,
            },
            source: source * per_page,
            relocate,
            atomic,
        };
        let nsid = self.models[at].nsid;
        let namespace = self.subsystem.namespace(nsid).expect("there");
        let request = IoRequest::remap(&namespace, &blocks, fua).expect("whole pages");
        match self.ask(nsid, &request, &[]).0 {
            Status::SUCCESS => {}
            // Overlapping or unsupported: nothing has changed.
            _ => return,
        }

        let durable = fua || !self.cache_enabled;
        let model = &mut self.models[at];
        let (from, to) = (source * per_page, target * per_page);
        let read: Vec<u64> = (from..from + u64::from(count))
            .map(|block| model.now(block))
            .collect();
        let targets = to..to + u64::from(count);
        for (block, stamp) in targets.clone().zip(read) {
            model.change(block, stamp, durable);
        }
        for block in (from..from + u64::from(count)).filter(|block| !targets.contains(block)) {
            if relocate {
                model.change(block, 0, durable);
            }
        }
    }
}

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
    let rig = Rig::caching(kit::device(16 << 20, false), 4 << 20);
    let mut client = rig.client();
    let data: Vec<u8> = (0..1 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    let mut sqe = client.rw(io::WRITE, 0, 255);
    sqe.cdw12 |= RwCdw12::new().with_fua(true).into_bits();
    let call = Call {
        sqe,
        send: &data,
        receive: 0,
    };
    client
        .queue(|queue| queue.call("write", &call))
        .expect("written");

    let cached = rig
        .subsystem
        .cut_power(0, |_, report| report.blocks_cached)
        .expect("the device takes it");
    assert_eq!(cached, 0);
    assert!(client.read(0, 256).expect("read") == data);
    drop(client);
    rig.stop();
}

// As nvme-cli does it: id-ctrl, get-feature and set-feature 6. What was written before is durable,
// too.
#[test]
fn a_host_sees_the_cache_and_switches_it_off_and_on() {
    let rig = Rig::caching(kit::device(16 << 20, false), 4 << 20);
    let mut client = rig.client();
    assert_eq!(client.controller().vwc & 1, 1);

    let feature = |client: &mut Client, opcode, value| {
        let sqe = Sqe {
            cdw10: 6,
            cdw11: value,
            ..entry(opcode, 0)
        };
        let call = Call {
            sqe,
            send: &[],
            receive: 0,
        };
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
    drop(client);
    rig.stop();
}

// A shutdown in good order loses nothing.
#[test]
fn draining_makes_everything_durable() {
    let mut bench = Bench::new(1 << 20, 3);
    (0..60).for_each(|_| bench.step());
    bench.subsystem.drain().expect("the device takes it");
    let report = bench.cut(1);
    assert_eq!((report.blocks_cached, bench.older), (0, 0));
}
