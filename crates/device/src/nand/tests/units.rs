//! Program units: exact times, the buffer's room, and units that are never full.

use super::host::{AFTER, BEFORE, link, spec};
use crate::config::Latencies;
use crate::nand::{Cause, CellTimes, Nand, NandSpec};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, ClearId, Geometry, Op, OpKind, Ppn, Purpose, WordLine};

const PAGE: u64 = 4096;

/// A die whose flash pages have 16 KiB.
pub(super) const LARGE: WordLine = WordLine {
    page_bytes: 16_384,
    ..WordLine::SINGLE
};

pub(super) fn nand(dies: u32, word_line: WordLine, spec: NandSpec, latencies: Latencies) -> Nand {
    let shape = Shape {
        channels: 1,
        dies,
        superblocks: 16,
        pages_per_block: 16 * 48,
    };
    let geometry = Geometry::new(shape).unwrap();
    Nand::new(geometry.with_word_line(word_line).unwrap(), spec, latencies)
}

/// MQSim's flash with two planes' cycles, without a protected buffer.
pub(super) fn unprotected(read_ns: u64, program_ns: u64) -> NandSpec {
    NandSpec {
        plane_ns: [650, 816, 700],
        protected: false,
        ..spec(read_ns, program_ns, PAGE)
    }
}

pub(super) fn op(kind: OpKind, purpose: Purpose, page: u32, after: After) -> Op {
    let mut op = Op::new(kind, purpose, after);
    op.page = Ppn(page);
    op
}

/// Submits a request for pages that follow each other, all on one die.
pub(super) fn submit(
    nand: &mut Nand,
    request: u32,
    now: u64,
    kind: OpKind,
    pages: std::ops::Range<u32>,
    die: u16,
) {
    let data = match kind {
        OpKind::Read => DataPath::ToHost,
        _ => DataPath::FromHost,
    };
    nand.open(request);
    for page in pages {
        let op = Op {
            die,
            ..op(kind, Purpose::Host, page, After::NOTHING)
        };
        nand.step(Some(request), now, Step::new(data, false), false, &[op]);
    }
    nand.close(request);
}

/// Latencies of writes of whole units, one after the other.
fn writes_in_turn(word_line: WordLine, spec: NandSpec, count: u32) -> Vec<u64> {
    let unit = word_line.unit_pages();
    let mut nand = nand(1, word_line, spec, link(PAGE));
    let mut now = 0;
    let mut latencies = Vec::new();
    for at in 0..count {
        // The device also fetches the data.
        let begin = now + BEFORE + 8;
        submit(
            &mut nand,
            0,
            begin,
            OpKind::Program,
            at * unit..(at + 1) * unit,
            0,
        );
        let end = nand.next_end().unwrap().at + AFTER;
        latencies.push(end - now);
        now = end;
    }
    latencies
}

// MQSim's writes of a flash page, of two planes at once, and of the two pages of an MLC word line in turn.
#[test]
fn a_unit_is_programmed_at_once() {
    let one = writes_in_turn(LARGE, unprotected(40_000, 400_000), 5);
    assert_eq!(one, [454_573; 5]);

    let planes = WordLine { planes: 2, ..LARGE };
    let two = writes_in_turn(planes, unprotected(40_000, 400_000), 5);
    assert_eq!(two, [509_533; 5]);

    let in_turn = WordLine {
        bits: 2,
        one_shot: false,
        ..LARGE
    };
    let mlc = NandSpec {
        program: CellTimes::new(&[400_000, 1_600_000]).unwrap(),
        ..unprotected(40_000, 0)
    };
    let pairs = writes_in_turn(in_turn, mlc, 4);
    assert_eq!(pairs, [454_573, 1_654_573, 454_573, 1_654_573]);

    // A word line of three bits on two planes: 24 pages, one program.
    let tlc = WordLine {
        bits: 3,
        one_shot: true,
        ..planes
    };
    let whole = writes_in_turn(tlc, unprotected(40_000, 1_000_000), 3);
    assert_eq!(
        whole,
        [57 + 24 * (1248 + 12_288) + 361 + 816 + 1_000_000 + 11; 3]
    );
}

/// Bytes per second of sequential writes of whole units, 16 in flight.
fn sequential(dies: u32, word_line: WordLine, spec: NandSpec) -> f64 {
    let unit = word_line.unit_pages();
    let mut nand = nand(dies, word_line, spec, link(PAGE));
    let (mut now, mut free) = (0, (0..16).collect::<Vec<u32>>());
    let count = 1600;
    let pages = 16 * 48 * dies;
    for at in 0..count {
        let slot = free.pop().unwrap_or_else(|| {
            let end = nand.next_end().unwrap();
            now = end.at + AFTER;
            end.request
        });
        // The superblocks are written over and over.
        let first = at * unit % (16 * pages);
        submit(
            &mut nand,
            slot,
            now,
            OpKind::Program,
            first..first + unit,
            (at % dies) as u16,
        );
    }
    let end = nand.settle();
    f64::from(count * unit) * PAGE as f64 * 1e9 / end as f64
}

// MQSim's rates, which are the bound of the dies. With a protected buffer they are the same.
#[test]
fn sustained_writes_run_at_the_speed_of_flash() {
    let planes = WordLine { planes: 2, ..LARGE };
    for is_protected in [false, true] {
        // Transfers of 4 KiB at 333, 400 and 1000 MT/s.
        for (dies, word_line, transfer_ns, mb_s) in [
            (1, LARGE, 12_288, 36.45),
            (1, planes, 12_288, 65.6),
            (4, LARGE, 12_288, 145.6),
            (4, LARGE, 8192, 151.2),
            (4, LARGE, 4096, 157.2),
        ] {
            let spec = NandSpec {
                transfer_ns,
                protected: is_protected,
                ..unprotected(40_000, 400_000)
            };
            let rate = sequential(dies, word_line, spec) / 1e6;
            assert!((rate / mb_s - 1.0).abs() < 0.005, "{rate} {mb_s}");
        }
    }
}

/// A device with one die, without channels or a link, whose units have 4 pages.
fn plain(buffer_units: u32) -> Nand {
    let flash = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        buffer_units,
        ..spec(50_000 - 20, 400_000, 0)
    };
    nand(1, LARGE, flash, Latencies::default())
}

fn ends(nand: &mut Nand, count: usize) -> Vec<u64> {
    let mut ends = vec![0; count];
    while let Some(end) = nand.next_end() {
        ends[end.request as usize] = end.at;
    }
    ends
}

// Two units find room. The third one waits for the first program, the fourth one for the second.
#[test]
fn a_page_without_room_waits_for_a_program() {
    for (room, expected) in [
        (1, [0, 400_000, 800_000, 1_200_000]),
        (2, [0, 0, 400_000, 800_000]),
    ] {
        let mut nand = plain(room);
        for page in 0..16 {
            submit(&mut nand, page, 0, OpKind::Program, page..page + 1, 0);
        }
        let ends = ends(&mut nand, 16);
        for (page, end) in ends.iter().enumerate() {
            assert_eq!(*end, expected[page / 4], "page {page}, room {room}");
        }
        assert_eq!(nand.settle(), 1_600_000);
    }
}

#[test]
fn pages_of_a_unit_are_read_from_the_buffer_until_it_is_programmed() {
    let mut nand = plain(2);
    submit(&mut nand, 0, 0, OpKind::Program, 0..3, 0);
    submit(&mut nand, 1, 10, OpKind::Read, 0..3, 0);
    submit(&mut nand, 2, 20, OpKind::Program, 3..4, 0);
    submit(&mut nand, 3, 400_019, OpKind::Read, 0..1, 0);
    submit(&mut nand, 4, 400_020, OpKind::Read, 0..1, 0);
    assert_eq!(ends(&mut nand, 5), [0, 10, 20, 400_019, 450_020]);
}

// Three streams write to one die, each to a block of its own, and none fills its unit.
#[test]
fn units_that_are_never_full_hold_up_nothing() {
    for is_protected in [false, true] {
        let mut nand = plain(1);
        (nand.spec.protected, nand.units.is_protected) = (is_protected, is_protected);
        for request in 0..9 {
            let first = request % 3 * 768 + request / 3;
            submit(&mut nand, request, 0, OpKind::Program, first..first + 1, 0);
        }
        submit(&mut nand, 9, 5, OpKind::Program, 5 * 768..5 * 768 + 4, 0);
        let ends = ends(&mut nand, 10);
        assert_eq!(nand.outstanding(), 0);
        if is_protected {
            assert_eq!(ends[..9], [0; 9]);
            assert_eq!(
                (nand.quiet_since(1_000_000), nand.settle()),
                (Some(400_005), 400_005)
            );
        } else {
            // Nothing else would complete them.
            assert_eq!(nand.settle(), 1_600_005);
        }

        // The block is erased, and its pages are written again.
        let mut erase = op(OpKind::Erase, Purpose::Gc, 0, After::ALL);
        erase.clear_id = ClearId(1);
        let now = nand.now();
        nand.step(None, now, Step::new(DataPath::Own, false), false, &[erase]);
        submit(&mut nand, 0, now, OpKind::Program, 0..4, 0);
        nand.next_end().unwrap();
        // The protected device programs the rest of the old unit first.
        let rest = u64::from(is_protected) * 400_000;
        assert_eq!(nand.settle(), now + rest + 3_500_000 + 400_000);
        assert_eq!(nand.settle(), nand.now());
    }
}

// Collection records each copy as a read and a program. The host reads the source until the copy has been read.
#[test]
fn a_copy_enters_the_buffer_when_it_has_been_read() {
    let mut nand = plain(2);
    for page in 0..4 {
        let read = op(OpKind::Read, Purpose::Gc, 768 + page, After::NOTHING);
        let program = op(OpKind::Program, Purpose::Gc, page, After::NOTHING);
        nand.step(
            None,
            0,
            Step::new(DataPath::Own, false),
            false,
            &[read, program],
        );
    }
    submit(&mut nand, 0, 10, OpKind::Read, 3..4, 0);
    assert_eq!(
        nand.next_end().unwrap().at,
        100_000,
        "after the first read of collection"
    );
    // All four are parts of one flash page.
    assert!(nand.settle() <= 5 * 50_000 + 400_000);
}

/// Pages wait for room in the buffer: by what their die programs meanwhile.
#[test]
fn a_page_that_waits_for_room_says_for_whom_its_die_works() {
    let two_planes = WordLine {
        planes: 2,
        ..WordLine::SINGLE
    };
    let waited = |purpose| {
        let mut nand = nand(1, two_planes, spec(0, 400_000, 0), Latencies::default());
        // Three units: one is programmed, one has room beside it, and one waits for that.
        let pages = 0..6;
        let ops: Vec<Op> = pages
            .map(|page| op(OpKind::Program, purpose, page, After::NOTHING))
            .collect();
        nand.open(0);
        nand.step(Some(0), 0, Step::new(DataPath::Absent, false), false, &ops);
        nand.close(0);
        submit(&mut nand, 1, 100_000, OpKind::Program, 6..8, 0);
        while nand.next_end().is_some_and(|end| end.request != 1) {}
        let causes = nand.causes(1);
        [Cause::Queue, Cause::Collection].map(|cause| causes.of(cause))
    };
    let [queue, none] = waited(Purpose::Host);
    assert!(queue > 600_000 && none == 0, "{queue} {none}");
    assert_eq!(waited(Purpose::Gc), [0, queue]);
}

/// A store that waits for a page of its own request: the page's time is the request's.
#[test]
fn what_waits_for_a_page_of_its_request_has_the_causes_of_that_page() {
    let mut nand = nand(1, LARGE, spec(0, 400_000, 0), link(PAGE));
    let page = op(OpKind::Program, Purpose::Host, 0, After::NOTHING);
    let mut store = Op::new(OpKind::NvWrite, Purpose::Host, After::page(Ppn(0)));
    store.amount = 64;
    nand.open(0);
    let step = |data, goes_on| Step::new(data, goes_on);
    nand.step(Some(0), 0, step(DataPath::FromHost, true), false, &[page]);
    nand.step(Some(0), 0, step(DataPath::Absent, false), false, &[store]);
    nand.close(0);

    let end = nand.next_end().unwrap().at;
    let causes = nand.causes(0);
    assert!(end > 0 && causes.of(Cause::Controller) > 0, "{causes:?}");
    assert_eq!(causes.total(), end);
}
