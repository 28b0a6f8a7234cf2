//! A host with a fixed number of requests in flight, and flash without firmware.

use crate::config::Latencies;
use crate::nand::{CellTimes, Nand, NandSpec, RequestEnd, SlcSpec, Suspension};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{After, Geometry, Op, OpKind, Purpose};

/// Operations of a workload: the die, and true for a read.
pub(super) type Next<'a> = dyn FnMut(&mut Noise) -> (u32, bool) + 'a;

/// SplitMix64.
pub(super) struct Noise(pub u64);

impl Noise {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    /// Exponentially distributed with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> u64 {
        let uniform = ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-uniform.ln() * mean).round() as u64
    }
}

/// Flash of one latency, on an 8-bit channel at 333 MT/s, with MQSim's command cycles.
pub(super) fn spec(read_ns: u64, program_ns: u64, page_bytes: u64) -> NandSpec {
    NandSpec {
        // The ready signal is seen 20 ns after the array has read.
        read: CellTimes::flat(read_ns + 20),
        program: CellTimes::flat(program_ns),
        two_step: false,
        slc: SlcSpec::NONE,
        erase_ns: 3_500_000,
        transfer_ns: page_bytes / 2 * 6,
        command_ns: [290, 361, 220],
        plane_ns: [0; 3],
        independent_planes: false,
        part_saves_ns: 0,
        buffer_units: 2,
        protected: true,
        data_first: true,
        whole_reads: false,
        dies_per_chip: 1,
        cache_read: false,
        cache_program: false,
        cache_busy_ns: 0,
        copybacks: 0,
        suspension: Suspension::NEVER,
        patience_ns: [u64::MAX; 3],
    }
}

/// The link of four lanes at 1 GB/s: a page of this size.
pub(super) fn link(page_bytes: u64) -> Latencies {
    Latencies {
        link_page_ns: page_bytes / 128 * 156 / 4,
        ..Latencies::default()
    }
}

/// Before the command of a request is in the device, and after its data are in the host.
pub(super) const BEFORE: u64 = 8 + 8 + 8 + 25;
pub(super) const AFTER: u64 = 11;

pub(super) struct Host {
    pub nand: Nand,
    entered: Vec<(u64, bool)>,
    /// When each request has entered the device.
    watched: Vec<u64>,
    pub reads: Vec<u64>,
    pub writes: Vec<u64>,
    begin: u64,
    end: u64,
}

impl Host {
    pub(super) fn new(channels: u32, dies: u32, spec: NandSpec, latencies: Latencies) -> Self {
        let shape = Shape {
            channels,
            dies,
            superblocks: 16,
            pages_per_block: 16,
        };
        let geometry = Geometry::new(shape).unwrap();
        Self {
            nand: Nand::new(geometry, spec, latencies),
            entered: Vec::new(),
            watched: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            begin: 0,
            end: 0,
        }
    }

    fn submit(&mut self, request: u32, now: u64, (die, is_read): (u32, bool)) {
        let mut op = Op::new(
            if is_read {
                OpKind::Read
            } else {
                OpKind::Program
            },
            Purpose::Host,
            After::NOTHING,
        );
        (op.die, op.page) = (die as u16, NO_PAGE);
        let at = request as usize;
        if self.entered.len() <= at {
            self.entered.resize(at + 1, (0, false));
            self.watched.resize(at + 1, 0);
        }
        self.entered[at] = (now, is_read);
        let data = if is_read {
            DataPath::ToHost
        } else {
            DataPath::FromHost
        };
        self.nand.open(request);
        // Data fetched from the host pass a request of 8 ns first.
        let fetched = now + BEFORE + if is_read { 0 } else { 8 };
        self.nand
            .step(Some(request), fetched, Step::new(data, false), false, &[op]);
        self.watched[at] = self.nand.now();
        self.nand.close(request);
    }

    fn ended(&mut self, RequestEnd { request, at }: RequestEnd) {
        let (entered, is_read) = self.entered[request as usize];
        let causes = self.nand.causes(request);
        assert_eq!(causes.total(), at - self.watched[request as usize]);
        let latency = at + AFTER - entered;
        if is_read {
            self.reads.push(latency);
        } else {
            self.writes.push(latency);
        }
        self.end = at + AFTER;
    }

    /// `count` requests, of which `depth` are in flight.
    pub(super) fn closed(&mut self, depth: u32, count: usize, next: &mut Next<'_>) {
        let mut noise = Noise(depth.into());
        // A little apart, so that they do not act as one.
        let mut free: Vec<(u64, u32)> = (0..depth).map(|slot| (0, slot)).collect();
        free.reverse();
        for _ in 0..count {
            let (now, slot) = free.pop().unwrap_or_else(|| {
                let end = self.nand.next_end().expect("all are in flight");
                self.ended(end);
                (end.at + AFTER, end.request)
            });
            self.submit(slot, now, next(&mut noise));
        }
        while let Some(end) = self.nand.next_end() {
            self.ended(end);
        }
    }

    /// `count` requests that arrive with exponential distances.
    pub(super) fn open(&mut self, mean_ns: f64, count: u32, next: &mut Next<'_>) {
        let mut noise = Noise(7);
        let mut now = 0;
        for request in 0..count {
            now += noise.exponential(mean_ns);
            self.submit(request, now, next(&mut noise));
        }
        while let Some(end) = self.nand.next_end() {
            self.ended(end);
        }
    }

    pub(super) fn per_s(&self) -> f64 {
        let requests = self.reads.len() + self.writes.len();
        requests as f64 * 1e9 / (self.end - self.begin) as f64
    }
}

pub(super) fn mean(latencies: &[u64]) -> f64 {
    latencies.iter().sum::<u64>() as f64 / latencies.len() as f64
}

/// The latency that a share of requests does not exceed.
pub(super) fn quantile(latencies: &[u64], share: f64) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share).round() as usize] as f64
}
