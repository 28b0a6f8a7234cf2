//! Random commands on a device with a volatile cache, and a model of what each block may hold.
//!
//! A command whose durability is not waited for stays under way, as a flush does while the disk is
//! busy: the model keeps what it was to make durable until it is acknowledged.

use crate::kit;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{
    Blocks, CutReport, HostData, InMemory, IoCommand, IoRequest, Issuer, NamespaceSpec, Outcome,
    RemapBlocks, Subsystem,
};
use remap_ssd_nvme::spec::command::{CopyRange, DsmRange};
use remap_ssd_nvme::spec::status::Status;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use tempfile::TempDir;
use zerocopy::IntoBytes;

/// Pages of a namespace: few, so that commands meet.
const PAGES: u32 = 48;

/// Two namespaces of few pages, of blocks of 4 KiB and of 512 bytes.
fn uncached(device: Device) -> Subsystem {
    let namespaces = [12, 9].map(|lba_shift| NamespaceSpec {
        pages: PAGES,
        lba_shift,
    });
    kit::subsystem(device, &namespaces)
}

fn subsystem(device: Device, cache_bytes: u64) -> Subsystem {
    uncached(device).with_cache(cache_bytes)
}

/// A device whose own write buffer is volatile.
pub fn with_buffer(size: u64, buffer_bytes: u64) -> DeviceConfig {
    let mut config =
        DeviceConfig::for_service(size, SchemeKind::RemapSsd, false).expect("possible");
    config.firmware.write_buffer_bytes = buffer_bytes;
    config.firmware.power_loss_protection = false;
    config
}

/// A device in a folder: its syncs take time.
pub fn in_folder(cache_bytes: u64) -> (Subsystem, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let config =
        DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::create_in_folder(&folder.path().join("device"), config, None);
    (
        subsystem(device.expect("there is room"), cache_bytes),
        folder,
    )
}

/// One large namespace, for commands of several slices.
pub fn large(cache_bytes: u64) -> Subsystem {
    let subsystem = kit::subsystem(kit::device(64 << 20, false), &[]);
    subsystem.with_cache(cache_bytes)
}

/// What a block may hold after a power cut: the last is what it holds now.
#[derive(Clone)]
struct Versions {
    stamps: Vec<u64>,
    /// How many older ones there were.
    gone: usize,
}

impl Versions {
    fn now(&self) -> u64 {
        *self.stamps.last().expect("it holds something")
    }

    /// How many there were, with those that are gone.
    fn count(&self) -> usize {
        self.gone + self.stamps.len()
    }

    /// The newest of the first `count` is durable: older ones are gone.
    fn durable(&mut self, count: usize) {
        let gone = count.saturating_sub(self.gone + 1);
        self.stamps.drain(..gone.min(self.stamps.len() - 1));
        self.gone = self.gone.max(count - 1);
    }

    /// How many it had up to this one, which a cut has left.
    fn left(&self, stamp: u64) -> Option<usize> {
        let newest = self.stamps.iter().rposition(|known| *known == stamp)?;
        Some(self.gone + newest + 1)
    }
}

/// A block of a model, and how many versions it had.
#[derive(Clone, Copy)]
struct Promised {
    at: usize,
    block: usize,
    count: usize,
}

/// A command whose durability is not waited for yet, and what it makes durable then.
struct UnderWay {
    outcome: Outcome,
    promised: Vec<Promised>,
}

/// Blocks of one namespace.
struct Model {
    nsid: u32,
    lba_shift: u8,
    blocks: Vec<Versions>,
}

pub struct Bench {
    pub subsystem: Subsystem,
    models: [Model; 2],
    pub random: Xoshiro256PlusPlus,
    stamp: u64,
    /// Is the write cache feature on?
    pub cache_enabled: bool,
    /// Blocks that a cut has left older than they were, and those that it left between two
    /// versions.
    pub older: u64,
    pub between: u64,
    /// What the command that is executed now changes.
    changed: Vec<Promised>,
    under_way: Vec<UnderWay>,
    /// Commands whose durability was waited for in vain, since the power was cut.
    pub cut_off: u64,
    /// The folder of the device, if it has one.
    _folder: Option<TempDir>,
}

/// A block that holds a stamp; 0 is a block of zeroes.
pub fn block_of(stamp: u64, lba_shift: u8) -> Vec<u8> {
    stamp.to_le_bytes().repeat((1 << lba_shift) / 8)
}

impl Model {
    fn new(nsid: u32, lba_shift: u8) -> Self {
        let blocks = (PAGES as usize) << (12 - lba_shift);
        Self {
            nsid,
            lba_shift,
            blocks: vec![
                Versions {
                    stamps: vec![0],
                    gone: 0
                };
                blocks
            ],
        }
    }

    fn now(&self, at: u64) -> u64 {
        self.blocks[at as usize].now()
    }
}

impl Bench {
    /// A device in memory.
    pub fn new(cache_bytes: u64, seed: u64) -> Self {
        let subsystem = subsystem(kit::device(16 << 20, false), cache_bytes);
        Self::of(subsystem, None, seed)
    }

    /// A device in a folder: its syncs take time.
    pub fn in_folder(cache_bytes: u64, seed: u64) -> Self {
        let (subsystem, folder) = in_folder(cache_bytes);
        Self::of(subsystem, Some(folder), seed)
    }

    /// A device in memory whose own write buffer is volatile.
    pub fn buffering(buffer_bytes: u64, seed: u64) -> Self {
        let device = Device::in_memory(with_buffer(16 << 20, buffer_bytes));
        Self::of(uncached(device.expect("possible")), None, seed)
    }

    /// The same in a folder.
    pub fn buffering_in_folder(buffer_bytes: u64, seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = with_buffer(16 << 20, buffer_bytes);
        let device = Device::create_in_folder(&folder.path().join("device"), config, None);
        Self::of(uncached(device.expect("possible")), Some(folder), seed)
    }

    fn of(subsystem: Subsystem, folder: Option<TempDir>, seed: u64) -> Self {
        Self {
            subsystem,
            models: [Model::new(1, 12), Model::new(2, 9)],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            stamp: 0,
            cache_enabled: true,
            older: 0,
            between: 0,
            changed: Vec::new(),
            under_way: Vec::new(),
            cut_off: 0,
            _folder: folder,
        }
    }

    /// Executes a command, and does not wait until what it did is durable.
    pub fn begin(&self, nsid: u32, request: &IoRequest, data: &[u8]) -> (Outcome, Vec<u8>) {
        let mut read = Vec::new();
        let namespace = self.subsystem.namespace(nsid).expect("it exists");
        let command = IoCommand::new(*request, &namespace);
        let issuer = Issuer {
            write_through: &AtomicBool::new(!self.cache_enabled),
            ..Issuer::service()
        };
        let mut data = InMemory {
            from_host: data,
            to_host: &mut read,
        };
        let outcome = {
            let mut turn = self.subsystem.device();
            self.subsystem
                .execute(&mut turn, &command, &issuer, 0, &mut data)
        };
        (outcome, read)
    }

    fn ask(&self, nsid: u32, request: &IoRequest, data: &[u8]) -> (Status, Vec<u8>) {
        let (outcome, read) = self.begin(nsid, request, data);
        (self.subsystem.wait_until_durable(outcome).status, read)
    }

    pub fn must(&self, nsid: u32, request: &IoRequest, data: &[u8]) -> Vec<u8> {
        let (status, read) = self.ask(nsid, request, data);
        assert_eq!(status, Status::SUCCESS, "{request:?}");
        read
    }

    pub fn stamps(&self, nsid: u32, fua: bool) -> Vec<u64> {
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
    pub fn check_reads(&mut self) {
        for at in 0..self.models.len() {
            let read = self.stamps(at as u32 + 1, false);
            let newest: Vec<u64> = (0..read.len() as u64)
                .map(|block| self.models[at].now(block))
                .collect();
            assert_eq!(read, newest, "namespace {}", at + 1);
        }
        self.subsystem.check_cache();
    }

    fn versions(&mut self, Promised { at, block, .. }: Promised) -> &mut Versions {
        &mut self.models[at].blocks[block]
    }

    /// A block has a new version.
    fn change(&mut self, at: usize, block: u64, stamp: u64) {
        let block = block as usize;
        let versions = &mut self.models[at].blocks[block];
        versions.stamps.push(stamp);
        let count = versions.count();
        self.changed.push(Promised { at, block, count });
    }

    /// A command has ended: what it has changed is durable, if it was asked for that.
    fn end(&mut self, outcome: Outcome, durable: bool) {
        assert_eq!(outcome.status, Status::SUCCESS);
        let promised = std::mem::take(&mut self.changed);
        if !durable {
            return;
        }
        let command = UnderWay { outcome, promised };
        // A device in memory has nothing to wait for.
        if command.outcome.sync_to.is_some() && self.random.random_bool(0.6) {
            self.under_way.push(command);
        } else {
            self.acknowledge(command);
        }
    }

    /// Waits for one command.
    fn acknowledge(&mut self, UnderWay { outcome, promised }: UnderWay) {
        let ended = self.subsystem.wait_until_durable(outcome).status;
        assert_eq!(ended, Status::SUCCESS);
        for promise in promised {
            self.versions(promise).durable(promise.count);
        }
    }

    /// Waits for one of the commands under way, which is acknowledged then.
    fn acknowledge_one(&mut self) {
        if !self.under_way.is_empty() {
            let at = self.random.random_range(0..self.under_way.len());
            let command = self.under_way.swap_remove(at);
            self.acknowledge(command);
        }
    }

    pub fn flush(&mut self) {
        let (outcome, _) = self.begin(1, &IoRequest::Flush, &[]);
        let all = self.models.iter().enumerate().flat_map(|(at, model)| {
            let blocks = model.blocks.iter().enumerate();
            blocks.map(move |(block, versions)| Promised {
                at,
                block,
                count: versions.count(),
            })
        });
        self.changed = all.collect();
        self.end(outcome, true);
    }

    /// Commands that were under way end after the power cut. One that is acknowledged has lost
    /// nothing.
    fn end_after_cut(&mut self, left: &[Vec<usize>]) {
        for UnderWay { outcome, promised } in std::mem::take(&mut self.under_way) {
            match self.subsystem.wait_until_durable(outcome).status {
                Status::POWER_LOSS => self.cut_off += 1,
                status => {
                    assert_eq!(status, Status::SUCCESS);
                    for Promised { at, block, count } in promised {
                        let left = left[at][block];
                        assert!(
                            left >= count,
                            "block {block} has {left} of {count} versions"
                        );
                    }
                }
            }
        }
    }

    pub fn cut(&mut self, seed: u64) -> CutReport {
        let report = self
            .subsystem
            .cut_power(seed, |_, report| report)
            .expect("the device takes it");
        self.check_left(seed);
        report
    }

    /// Cuts the power of the device, whose own write buffer is lost.
    pub fn cut_device(&mut self, seed: u64) {
        self.subsystem.power_cut(seed).expect("it recovers");
        self.check_left(seed);
    }

    fn check_left(&mut self, seed: u64) {
        let left = [1, 2].map(|nsid| self.stamps(nsid, false));
        let mut counts = Vec::new();
        for (model, left) in self.models.iter_mut().zip(left) {
            let blocks = model.blocks.iter_mut().zip(left);
            let counts_of = blocks.map(|(versions, stamp)| {
                let count = versions.left(stamp).unwrap_or_else(|| {
                    let (nsid, stamps) = (model.nsid, &versions.stamps);
                    panic!("cut {seed}, namespace {nsid}: {stamp} is none of {stamps:?}")
                });
                self.older += u64::from(stamp != versions.now());
                self.between += u64::from(stamp != versions.now() && stamp != versions.stamps[0]);
                *versions = Versions {
                    stamps: vec![stamp],
                    gone: count - 1,
                };
                count
            });
            counts.push(counts_of.collect());
        }
        self.end_after_cut(&counts);
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

    pub fn step(&mut self) {
        assert!(self.changed.is_empty(), "the last command has ended");
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
                    self.change(at, block, self.stamp);
                }
                let (outcome, _) = self.begin(nsid, &IoRequest::Write { blocks, fua }, &data);
                self.end(outcome, durable);
            }
            55..63 => {
                let (outcome, _) = self.begin(nsid, &IoRequest::WriteZeroes { blocks, fua }, &[]);
                for block in blocks.slba..blocks.slba + u64::from(blocks.count) {
                    self.change(at, block, 0);
                }
                self.end(outcome, durable);
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
                let (outcome, _) = self.begin(nsid, &request, range.as_bytes());
                for block in page * per_page..(page + 1) * per_page {
                    self.change(at, block, 0);
                }
                self.end(outcome, !self.cache_enabled);
            }
            70..80 => self.copy(at, blocks, fua),
            80..92 => self.remap(at, fua),
            92..94 => drop(self.stamps(nsid, true)),
            94..96 => self.acknowledge_one(),
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
        let (outcome, _) = self.begin(nsid, &request, range.as_bytes());

        let durable = fua || !self.cache_enabled;
        let read: Vec<u64> = (from.slba..from.slba + u64::from(to.count))
            .map(|block| self.models[at].now(block))
            .collect();
        for (block, stamp) in (to.slba..).zip(read) {
            self.change(at, block, stamp);
        }
        self.end(outcome, durable);
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
        let (outcome, _) = self.begin(nsid, &request, &[]);
        if outcome.status != Status::SUCCESS {
            // Overlapping or unsupported: nothing has changed.
            return;
        }

        let durable = fua || !self.cache_enabled;
        let (from, to) = (source * per_page, target * per_page);
        let read: Vec<u64> = (from..from + u64::from(count))
            .map(|block| self.models[at].now(block))
            .collect();
        let targets = to..to + u64::from(count);
        for (block, stamp) in targets.clone().zip(read) {
            self.change(at, block, stamp);
        }
        for block in (from..from + u64::from(count)).filter(|block| !targets.contains(block)) {
            if relocate {
                self.change(at, block, 0);
            }
        }
        self.end(outcome, durable);
    }
}

/// Data of a write that tells a thread when its first page is taken.
struct Striking<'a> {
    tells: Option<Sender<()>>,
    page: &'a [u8],
}

impl HostData for Striking<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        if let Some(tells) = self.tells.take() {
            tells.send(()).expect("a thread waits for it");
        }
        // The other thread has to get to the device's queue before the command ends.
        std::thread::yield_now();
        &self.page[..len]
    }
    fn put(&mut self, _: &[u8]) {}
    fn put_zeroes(&mut self, _: usize) {}
}

/// Executes a long write, which another thread cuts in a pause: its status, or `None` if the cut came too late.
pub fn write_through(
    subsystem: &Subsystem,
    fua: bool,
    cut: impl FnOnce() + Send,
    was_cut: impl Fn() -> bool,
) -> Option<Status> {
    let blocks = Blocks {
        slba: 0,
        count: 2048,
    };
    let request = IoRequest::Write { blocks, fua };
    let command = IoCommand::new(request, &subsystem.namespace(1).expect("it exists"));
    let issuer = Issuer::service();
    let (tells, told) = std::sync::mpsc::channel();

    std::thread::scope(|scope| {
        scope.spawn(move || {
            told.recv().expect("the write begins");
            cut();
        });

        let mut data = Striking {
            tells: Some(tells),
            page: &block_of(1, 12),
        };
        let mut turn = subsystem.device();
        let outcome = subsystem.execute(&mut turn, &command, &issuer, 0, &mut data);
        // Asked before the turn ends: a cut that comes later is none of this command's.
        was_cut().then_some(outcome.status)
    })
}
