//! A timing model on a bench: operations issued by hand, and their completion times.

use remap_ssd_device::config::Latencies;
use remap_ssd_device::{CommandStart, Timing};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, ClearId, Geometry, Op, OpKind, Ppn, Purpose};

pub const READ: u64 = 50_000;
pub const PROGRAM: u64 = 500_000;
pub const ERASE: u64 = 5_000_000;

pub fn latencies() -> Latencies {
    Latencies {
        flash_read_ns: READ,
        flash_program_ns: PROGRAM,
        erase_ns: ERASE,
        nvram_read_ns: 50,
        nvram_write_ns: 500,
        hash_ns: 32_000,
        hash_interval_ns: 1000,
        lookup_stalls_dies: true,
        ..Latencies::default()
    }
}

/// 4 dies on 2 channels, 16 superblocks of 64 pages.
pub fn geometry() -> Geometry {
    Geometry::new(Shape {
        channels: 2,
        dies: 4,
        superblocks: 16,
        pages_per_block: 16,
    })
    .unwrap()
}

pub struct Bench {
    pub timing: Timing,
    pub geometry: Geometry,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(latencies())
    }
    pub fn with(latencies: Latencies) -> Self {
        Self {
            timing: Timing::new(geometry(), latencies),
            geometry: geometry(),
        }
    }
    pub fn at(&mut self, now: u64, ops: &[Op]) -> u64 {
        self.timing.charge(ops, CommandStart { now, ready: now })
    }
    pub fn op(&self, kind: OpKind, purpose: Purpose, page: u32, after: After) -> Op {
        let mut op = Op::new(kind, purpose, after);
        op.page = Ppn(page);
        let slot = self.geometry.slot(Ppn(page));
        op.die = self
            .geometry
            .die_of(self.geometry.superblock(slot.ppn), slot.die) as u16;
        op
    }
    pub fn program(&self, purpose: Purpose, page: u32) -> Op {
        self.op(OpKind::Program, purpose, page, After::NOTHING)
    }
    pub fn read(&self, purpose: Purpose, page: u32) -> Op {
        self.op(OpKind::Read, purpose, page, After::NOTHING)
    }
    pub fn erase(&self, die: u16, id: u64, after: After) -> Op {
        let mut op = Op::new(OpKind::Erase, Purpose::Gc, after);
        (op.die, op.clear_id) = (die, ClearId(id));
        op
    }
    pub fn bytes(kind: OpKind, purpose: Purpose, amount: u32, after: After) -> Op {
        let mut op = Op::new(kind, purpose, after);
        op.amount = amount;
        op
    }
    pub fn store(purpose: Purpose, after: After) -> Op {
        Self::bytes(OpKind::NvWrite, purpose, 16, after)
    }
    pub fn scan(kind: OpKind, amount: u32) -> [Op; 3] {
        let mark = |kind| Op::new(kind, Purpose::Gc, After::NOTHING);
        [
            mark(OpKind::LookupBegin),
            Self::bytes(kind, Purpose::Gc, amount, After::NOTHING),
            mark(OpKind::LookupEnd),
        ]
    }
}
