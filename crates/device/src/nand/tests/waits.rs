//! Random operations with random waits: each begins after all for which it must wait have ended.
//!
//! Every operation is a request of its own, so its end is known; its beginning is that less its duration.

use super::host::Noise;
use crate::config::Latencies;
use crate::nand::{CellTimes, Nand, NandSpec, Suspension};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{After, ClearId, Geometry, Op, OpKind, Ppn, Purpose, WordLine};

const READ: u64 = 50;
const PROGRAM: u64 = 700;
const ERASE: u64 = 3000;
const STORE: u64 = 20;

/// An operation, and when it was submitted and has ended.
struct Done {
    op: Op,
    submitted: u64,
    end: u64,
}

impl Done {
    fn length(&self, word_line: WordLine) -> u64 {
        match self.op.kind {
            // It may be answered from the controller's buffer.
            OpKind::Read | OpKind::Wait => 0,
            OpKind::Program if word_line == WordLine::SINGLE => PROGRAM,
            // It is done once it is in the buffer.
            OpKind::Program => 0,
            OpKind::Erase => ERASE,
            _ => STORE,
        }
    }

    fn is_named(&self) -> bool {
        self.op.kind.is_named()
    }
}

fn geometry(word_line: WordLine) -> Geometry {
    let shape = Shape {
        channels: 2,
        dies: 4,
        superblocks: 16,
        pages_per_block: 16,
    };
    let geometry = Geometry::new(shape).unwrap();
    geometry.with_word_line(word_line).unwrap()
}

fn spec(noise: &mut Noise, word_line: WordLine) -> NandSpec {
    let two_step = word_line.one_shot && word_line.bits > 1 && noise.below(2) == 0;
    NandSpec {
        read: CellTimes::flat(READ),
        program: match two_step {
            true => CellTimes::new(&[PROGRAM, 2 * PROGRAM]).unwrap(),
            false => CellTimes::flat(PROGRAM),
        },
        two_step,
        slc: crate::nand::SlcSpec::NONE,
        erase_ns: ERASE,
        transfer_ns: u64::from(noise.below(2)) * 30,
        command_ns: [noise.below(2).into(); 3],
        plane_ns: [0; 3],
        independent_planes: false,
        part_saves_ns: 0,
        buffer_units: 1 + noise.below(2),
        protected: true,
        data_first: noise.below(2) == 0,
        dies_per_chip: 1 + noise.below(2),
        cache_read: noise.below(2) == 0,
        cache_program: noise.below(2) == 0,
        cache_busy_ns: noise.below(20).into(),
        copybacks: 0,
        suspension: Suspension {
            begin_ns: [0; 2].map(|_| noise.below(30).into()),
            resume_ns: noise.below(30).into(),
            least_left_ns: noise.below(200).into(),
            least_progress_ns: (noise.below(2) * noise.below(200)).into(),
            most: [0; 2].map(|_| noise.below(4)),
        },
        patience_ns: [0; 3].map(|_| 100 * u64::from(noise.below(100))),
        whole_reads: false,
    }
}

/// The next operation: pages of each superblock are programmed in order.
fn draw(
    noise: &mut Noise,
    geometry: Geometry,
    next: &mut [u32; 3],
    names: &mut u64,
    last: Option<&Op>,
) -> Op {
    let after = match noise.below(8) {
        0 => After::ALL,
        1 => After::FENCE,
        2 => After::page(Ppn(noise.below(3 * 64))),
        3 => After::pages(Ppn(noise.below(3) * 64), 64),
        4 if *names > 0 => After::clear(ClearId(1 + noise.next() % *names)),
        _ => After::NOTHING,
    };
    let stream = noise.below(3) as usize;
    let kind = match noise.below(12) {
        0..5 if next[stream] < 64 => OpKind::Program,
        0..8 => OpKind::Read,
        8 => OpKind::NvClear,
        9 => OpKind::Erase,
        10 => OpKind::Wait,
        _ if noise.below(3) == 0 => OpKind::NvMark,
        _ => OpKind::NvWrite,
    };
    // Erases and clearings have the place of a name for their own.
    let after = match kind {
        kind if kind.is_named() && after.named_clear().is_some() => After::NOTHING,
        _ => after,
    };
    let mut op = Op::new(kind, Purpose::Host, after);
    op.amount = 64;
    match kind {
        OpKind::Program => {
            op.page = Ppn(stream as u32 * 64 + next[stream]);
            next[stream] += 1;
        }
        OpKind::Read => op.page = Ppn(noise.below(3 * 64)),
        kind if kind.is_named() => {
            // Those that share a name are recorded one after the other.
            let shares = last.is_some_and(|last| last.kind == kind) && noise.below(2) == 0;
            *names += u64::from(!shares);
            op.clear_id = ClearId(*names);
        }
        _ => {}
    }
    op.die = match op.page {
        NO_PAGE => noise.below(4) as u16,
        page => geometry.slot(page).die as u16,
    };
    op
}

/// The operations of one sequence, with their ends.
fn sequence(seed: u64, word_line: WordLine) -> Vec<Done> {
    let geometry = geometry(word_line);
    let mut noise = Noise(seed);
    let latencies = Latencies {
        nvram_write_ns: STORE,
        ..Latencies::default()
    };
    let mut nand = Nand::new(geometry, spec(&mut noise, word_line), latencies);
    let (mut next, mut names, mut now) = ([0; 3], 0, 0);
    let mut all = Vec::new();
    for request in 0..300 {
        let op = draw(
            &mut noise,
            geometry,
            &mut next,
            &mut names,
            all.last().map(|done: &Done| &done.op),
        );
        now += u64::from(noise.below(3) * noise.below(300));
        nand.open(request);
        let step = Step::new(DataPath::Absent, false);
        nand.step(Some(request), now, step, false, &[op]);
        nand.close(request);
        all.push(Done {
            op,
            submitted: now,
            end: 0,
        });
    }
    while let Some(end) = nand.next_end() {
        all[end.request as usize].end = end.at;
    }
    assert_eq!(nand.outstanding(), 0, "seed {seed}");
    nand.settle();
    all
}

/// True if the operation must wait for an earlier one.
fn waits(op: &Op, before: &Done, row_begins: bool, word_line: WordLine) -> bool {
    let pages = op.after_page.0..op.after_page.0.saturating_add(op.after_pages.into());
    let is_program = before.op.kind == OpKind::Program;
    let named = !op.kind.is_named()
        && op.clear_id != ClearId(0)
        && before.is_named()
        && before.op.clear_id == op.clear_id;
    let in_order = op.kind == OpKind::Program
        && is_program
        && word_line == WordLine::SINGLE
        && before.op.page.0 / 64 == op.page.0 / 64
        && before.op.page.0 + geometry(word_line).dies() == op.page.0;
    op.after_all && row_begins
        || op.after_fence && matches!(before.op.kind, OpKind::NvWrite | OpKind::NvMark)
        || op.after_pages > 0 && is_program && pages.contains(&before.op.page.0)
        || named
        || in_order
}

#[test]
fn every_operation_begins_after_those_for_which_it_waits() {
    check(WordLine::SINGLE, 300);
}

// Units of 2 pages in a protected buffer, word lines of 4 pages on 2 planes, and units of 8 pages.
#[test]
fn with_program_units_as_well() {
    let pairs = WordLine {
        planes: 2,
        bits: 2,
        one_shot: false,
        ..WordLine::SINGLE
    };
    check(pairs, 300);
    let large = WordLine {
        page_bytes: 16_384,
        one_shot: true,
        ..pairs
    };
    check(WordLine { planes: 1, ..large }, 300);
}

fn check(word_line: WordLine, seeds: u64) {
    let (mut checked, mut late) = (0, 0);
    for seed in 0..seeds {
        let all = sequence(seed, word_line);
        for (at, done) in all.iter().enumerate() {
            // Erases and programs in a row that wait for everything wait for what was before the row.
            let in_row = |done: &Done| {
                done.op.after_all && matches!(done.op.kind, OpKind::Erase | OpKind::Program)
            };
            let mut row = at;
            if in_row(done) {
                while row > 0 && all[row - 1].op.after_all {
                    row -= 1;
                }
            }
            for (earlier, before) in all[..at].iter().enumerate() {
                if waits(&done.op, before, earlier < row, word_line) {
                    let begin = done.end - done.length(word_line);
                    assert!(
                        begin >= before.end,
                        "seed {seed}: {:?} {:?}",
                        done.op,
                        before.op
                    );
                    checked += 1;
                    late += usize::from(before.end > done.submitted);
                }
            }
        }
    }
    assert!(checked > 100_000 && late > 10_000, "{checked} {late}");
}
