//! Cases that have a formula: the model gives the same nanosecond.

use super::host::{Host, link, spec};
use crate::config::Latencies;
use crate::nand::{CellTimes, Nand, NandSpec, RequestEnd};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, ClearId, Geometry, Op, OpKind, Ppn, Purpose};

const KIB: u64 = 1024;

fn alone(spec: NandSpec, bytes: u64, is_read: bool) -> Vec<u64> {
    let mut host = Host::new(1, 1, spec, link(bytes));
    host.closed(1, 5, &mut |_| (0, is_read));
    [host.reads, host.writes].concat()
}

// MQSim's read: doorbells and fetch, command, array, data-out, link, completion.
#[test]
fn a_read_alone_takes_the_sum_of_its_phases() {
    for (bytes, latency) in [(4, 53_906), (8, 67_442), (16, 94_514)] {
        let times = alone(spec(40_000, 400_000, bytes * KIB), bytes * KIB, true);
        assert_eq!(times, [latency; 5], "{bytes} KiB");
    }
}

#[test]
fn a_write_alone_takes_the_sum_of_its_phases() {
    let times = alone(spec(40_000, 400_000, 16 * KIB), 16 * KIB, false);
    assert_eq!(times, [454_573; 5]);
}

#[test]
fn pages_of_a_word_line_have_times_of_their_own() {
    let cells = CellTimes::new(&[40, 60, 80]).unwrap();
    let times: Vec<u64> = (0..7).map(|row| cells.of_row(row)).collect();
    assert_eq!(times, [40, 60, 80, 40, 60, 80, 40]);

    let pairs = CellTimes::new(&[400, 1600]).unwrap();
    assert_eq!(
        [0, 1, 2, 3].map(|row| pairs.of_row(row)),
        [400, 1600, 400, 1600]
    );
    assert_eq!((pairs.mean(), CellTimes::flat(7).of_row(9)), (1000, 7));
    assert_eq!(
        CellTimes::new(&[2, 1]),
        None,
        "a slower page after a faster one"
    );
    assert_eq!((CellTimes::new(&[]), CellTimes::new(&[1; 5])), (None, None));
}

// Four dies on one channel, 16 requests of 16 KiB in flight: with data first the dies fall in step.
#[test]
fn dies_that_share_a_channel_fall_in_step_when_data_go_first() {
    let transfer = 16 * KIB / 2 * 6;
    let mut host = Host::new(1, 4, spec(40_000, 400_000, 16 * KIB), link(16 * KIB));
    let mut at = 0;
    host.closed(16, 4000, &mut |_| {
        at += 1;
        (at % 4, true)
    });
    let expected = 4e9 / (290 + 40_020 + 4 * transfer) as f64;
    assert!((host.per_s() / expected - 1.0).abs() < 0.002);
}

// The bound of the dies: command, data and program of each follow each other.
#[test]
fn programs_are_bound_by_their_dies() {
    let transfer = 16 * KIB / 2 * 6;
    let mut host = Host::new(1, 4, spec(40_000, 400_000, 16 * KIB), link(16 * KIB));
    let mut at = 0;
    host.closed(16, 4000, &mut |_| {
        at += 1;
        (at % 4, false)
    });
    let expected = 4e9 / (361 + transfer + 400_000) as f64;
    assert!((host.per_s() / expected - 1.0).abs() < 0.002);
}

// Two dies of a chip take turns, like one die.
#[test]
fn dies_of_one_timeline_do_not_overlap() {
    let rate = |dies, dies_per_chip| {
        let spec = NandSpec {
            dies_per_chip,
            ..spec(60_000, 400_000, 4 * KIB)
        };
        let mut host = Host::new(1, dies, spec, link(4 * KIB));
        host.closed(4, 4000, &mut |noise| (noise.below(dies), true));
        host.per_s()
    };
    let (one, chip, two) = (rate(1, 1), rate(2, 2), rate(2, 1));
    assert!((chip / one - 1.0).abs() < 0.001, "{chip} {one}");
    assert!(two > 1.5 * one, "{two} {one}");
}

/// A device of 4 dies and 16 pages a block, without channels, and an operation on its first die.
fn bare(kind: OpKind, page: u32, after: After) -> (Nand, Op) {
    let shape = Shape {
        channels: 1,
        dies: 4,
        superblocks: 16,
        pages_per_block: 16,
    };
    let flash = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        ..spec(50_000 - 20, 400_000, 0)
    };
    let latencies = Latencies {
        nvram_write_ns: 1_000_000,
        ..Latencies::default()
    };
    let nand = Nand::new(Geometry::new(shape).unwrap(), flash, latencies);
    (nand, operation(kind, page, after))
}

fn operation(kind: OpKind, page: u32, after: After) -> Op {
    let mut op = Op::new(kind, Purpose::Host, after);
    op.page = Ppn(page);
    op.amount = 64;
    op
}

// The firmware lets the head of a superblock follow the erase of its block by the die's order alone.
#[test]
fn the_first_program_of_a_block_follows_its_erase() {
    let (mut nand, store) = bare(OpKind::NvWrite, u32::MAX, After::NOTHING);
    let mut erase = operation(OpKind::Erase, 64, After::FENCE);
    erase.clear_id = ClearId(1);
    let program = operation(OpKind::Program, 64, After::NOTHING);
    for (request, op) in [(0, store), (1, erase), (2, program)] {
        nand.open(request);
        let step = Step::new(DataPath::Absent, false);
        nand.step(Some(request), 0, step, false, &[op]);
        nand.close(request);
    }
    let ends = [(); 3].map(|()| nand.next_end().unwrap().at);
    assert_eq!(ends, [1_000_000, 4_500_000, 4_900_000]);
}

// Two writes of a part of a page: each is read, merged and written, in its own time.
#[test]
fn pages_are_merged_when_they_have_been_read() {
    let (mut nand, read) = bare(OpKind::Read, 64, After::NOTHING);
    for request in 0..2 {
        nand.open(request);
        let step = Step::new(DataPath::ToMerge, true);
        nand.step(Some(request), 0, step, false, &[read]);
        let write = operation(OpKind::Program, 128 + request, After::NOTHING);
        let step = Step::new(DataPath::Merged, false);
        nand.step(Some(request), 0, step, false, &[write]);
        nand.close(request);
    }
    let ends = [(); 2].map(|()| nand.next_end());
    // Both reads and both programs are of the first die.
    let end = |request, at| Some(RequestEnd { request, at });
    assert_eq!(ends, [end(0, 500_000), end(1, 900_000)]);
    assert_eq!((nand.settle(), nand.outstanding()), (900_000, 0));
}
