//! Copies of collection as one record of a row, and as records of single pages: all times are the same.

use super::host::{Noise, spec};
use super::units::op;
use crate::config::Latencies;
use crate::nand::{Causes, CellTimes, Nand, NandSpec, RequestEnd, Suspension, Utilisation};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, Op, OpKind, Ppn, Purpose, WordLine};

const DIES: u32 = 4;
const SUPERBLOCK: u32 = DIES * 16 * 48;
const DEPTH: u32 = 12;

const TLC: WordLine = WordLine {
    planes: 4,
    page_bytes: 16_384,
    bits: 3,
    ..WordLine::SINGLE
};

/// A device, what goes on in it, and what the host has seen.
struct Script {
    nand: Nand,
    noise: Noise,
    line: u32,
    as_rows: bool,
    now: u64,
    free: Vec<u32>,
    ends: Vec<(RequestEnd, Causes)>,
    /// The next pages that collection and the host write.
    copied: u32,
    written: u32,
}

impl Script {
    fn new(seed: u64, spec: NandSpec, word_line: WordLine, as_rows: bool) -> Self {
        let shape = Shape {
            channels: 2,
            dies: DIES,
            superblocks: 16,
            pages_per_block: SUPERBLOCK / DIES,
        };
        let geometry = Geometry::new(shape).unwrap();
        let latencies = Latencies {
            link_page_ns: 3000,
            ..Latencies::default()
        };
        Self {
            nand: Nand::new(geometry.with_word_line(word_line).unwrap(), spec, latencies),
            noise: Noise(seed),
            line: word_line.pages(),
            as_rows,
            now: 0,
            free: (0..DEPTH).collect(),
            ends: Vec::new(),
            copied: 4 * SUPERBLOCK,
            written: 10 * SUPERBLOCK,
        }
    }

    fn on_die(&self, kind: OpKind, purpose: Purpose, page: u32) -> Op {
        Op {
            die: (page / self.line % DIES) as u16,
            ..op(kind, purpose, page, After::NOTHING)
        }
    }

    /// Up to a word line's copies, of pages of old superblocks or of recent copies.
    fn copies(&mut self) -> Vec<Op> {
        let base = match self.noise.below(8) {
            0 => self.copied - 16 - self.noise.below(100),
            _ => self.noise.below(4 * SUPERBLOCK - 64),
        };
        let room = self.line - self.copied % self.line;
        let mut sources = self.noise.next() | self.noise.next();
        sources &= u64::MAX >> self.noise.below(64);
        if base >= 4 * SUPERBLOCK - 64 {
            sources &= 0xffff;
        }
        sources |= 1;
        while sources.count_ones() > room {
            sources &= !(1 << sources.ilog2());
        }
        let first = self.copied;
        self.copied += sources.count_ones();
        if self.as_rows {
            let mut row = self.on_die(OpKind::CopyRow, Purpose::Gc, first);
            (row.amount, row.sources) = (base, sources);
            return vec![row];
        }
        let bits = (0..u64::BITS).filter(|bit| sources >> bit & 1 == 1);
        let pairs = bits.zip(first..).flat_map(|(bit, to)| {
            [
                self.on_die(OpKind::Read, Purpose::Gc, base + bit),
                self.on_die(OpKind::Program, Purpose::Gc, to),
            ]
        });
        pairs.collect()
    }

    fn request(&mut self) {
        let request = self.free.pop().unwrap_or_else(|| {
            let end = self.nand.next_end().expect("requests are in flight");
            self.now = end.at;
            self.ends.push((end, self.nand.causes(end.request)));
            end.request
        });
        let recent = self.copied - 1 - self.noise.below(120);
        let (data, ops) = match self.noise.below(8) {
            0 => {
                let after = After::pages(Ppn(recent), 1 + self.noise.below(9) as u16);
                (
                    DataPath::Absent,
                    vec![Op::new(OpKind::Wait, Purpose::Host, after)],
                )
            }
            1 | 2 => (
                DataPath::ToHost,
                vec![self.on_die(OpKind::Read, Purpose::Host, recent)],
            ),
            3 => {
                let page = self.noise.below(4 * SUPERBLOCK);
                (
                    DataPath::ToHost,
                    vec![self.on_die(OpKind::Read, Purpose::Host, page)],
                )
            }
            _ => {
                let mut ops = match self.noise.below(3) {
                    0 => self.copies(),
                    _ => Vec::new(),
                };
                ops.push(self.on_die(OpKind::Program, Purpose::Host, self.written));
                self.written += 1;
                (DataPath::FromHost, ops)
            }
        };
        self.nand.open(request);
        let step = Step::new(data, false);
        self.nand.step(Some(request), self.now, step, false, &ops);
        self.nand.close(request);
    }

    fn run(mut self) -> (Vec<(RequestEnd, Causes)>, u64, Utilisation) {
        self.copied += 200;
        self.copied -= self.copied % self.line;
        for _ in 0..3000 {
            self.request();
        }
        let end = self.nand.settle();
        (self.ends, end, self.nand.utilisation())
    }
}

// Reads find pages on their way, operations wait for single pages, and copies are copied before they are programmed.
#[test]
fn rows_of_copies_take_the_time_of_single_copies() {
    let tlc = NandSpec {
        read: CellTimes::new(&[40_000, 60_000, 80_000]).unwrap(),
        program: CellTimes::flat(500_000),
        transfer_ns: 3000,
        suspension: Suspension {
            begin_ns: [20_000; 2],
            resume_ns: 20_000,
            least_left_ns: 50_000,
            least_progress_ns: 10_000,
            most: [4; 2],
        },
        patience_ns: [10_000_000; 3],
        protected: true,
        ..spec(0, 0, 4096)
    };
    let in_turn = WordLine {
        bits: 2,
        one_shot: false,
        ..TLC
    };
    let variants = [
        (tlc, TLC),
        (
            NandSpec {
                buffer_units: 1,
                data_first: true,
                ..tlc
            },
            TLC,
        ),
        (
            NandSpec {
                cache_read: true,
                cache_program: true,
                cache_busy_ns: 3000,
                ..tlc
            },
            TLC,
        ),
        (
            NandSpec {
                independent_planes: true,
                part_saves_ns: 8000,
                cache_read: true,
                ..tlc
            },
            TLC,
        ),
        (
            NandSpec {
                protected: false,
                ..tlc
            },
            in_turn,
        ),
        (
            NandSpec {
                transfer_ns: 0,
                ..tlc
            },
            TLC,
        ),
        // Events of several channels fall on the same nanosecond.
        (
            NandSpec {
                read: CellTimes::flat(9000),
                command_ns: [0; 3],
                plane_ns: [0; 3],
                program: CellTimes::flat(90_000),
                suspension: Suspension::NEVER,
                buffer_units: 1,
                ..tlc
            },
            TLC,
        ),
    ];
    for (number, (spec, word_line)) in variants.into_iter().enumerate() {
        for seed in 1..4 {
            let [rows, pages] =
                [true, false].map(|as_rows| Script::new(seed, spec, word_line, as_rows).run());
            assert!(rows == pages, "variant {number}, seed {seed}");
        }
    }
}
