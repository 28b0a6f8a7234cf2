//! Reads of large flash pages and of several planes.

use super::host::{AFTER, BEFORE, Noise, link, mean, quantile, spec};
use super::units::{LARGE, nand, op, submit, unprotected};
use crate::config::Latencies;
use crate::nand::{CellTimes, DieState, Nand, NandSpec};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{After, Geometry, OpKind, Purpose, WordLine};

const PAGE: u64 = 4096;
/// The link at 1 GB/s on four lanes.
const LINK: u64 = 1248;
/// Latencies of reads one after the other of `count` pages each, from each unit in turn.
fn reads_in_turn(word_line: WordLine, spec: NandSpec, count: u32) -> Vec<u64> {
    let stride = word_line.planes * word_line.parts();
    // As in MQSim.
    let spec = NandSpec {
        whole_reads: true,
        ..spec
    };
    let mut nand = nand(1, word_line, spec, link(PAGE));
    let mut now = 0;
    let mut latencies = Vec::new();
    for at in 0..4 {
        submit(
            &mut nand,
            0,
            now + BEFORE,
            OpKind::Read,
            at * stride..at * stride + count,
            0,
        );
        let end = nand.next_end().unwrap().at + AFTER;
        latencies.push(end - now);
        now = end;
    }
    latencies
}

#[test]
fn parts_of_a_page_are_read_at_once() {
    for (count, latency) in [(1, 53_906), (2, 67_442), (4, 94_514)] {
        let reads = reads_in_turn(LARGE, unprotected(40_000, 400_000), count);
        assert_eq!(reads, [latency; 4], "{count} pages");
    }
    // MLC: the types of flash pages alternate.
    let mlc = NandSpec {
        read: CellTimes::new(&[40_020, 80_020]).unwrap(),
        ..unprotected(0, 400_000)
    };
    let in_turn = WordLine { bits: 2, ..LARGE };
    for (count, low, high) in [
        (1, 53_906, 93_906),
        (2, 67_442, 107_442),
        (4, 94_514, 134_514),
    ] {
        let reads = reads_in_turn(in_turn, mlc, count);
        assert_eq!(reads, [low, high, low, high], "{count} pages");
    }
}

// The link is faster than the channel, so that only the last page's crossing is not hidden.
#[test]
fn pages_cross_the_link_as_they_come_or_together() {
    let ends = |whole_reads, of_request: &[u32]| {
        let spec = NandSpec {
            whole_reads,
            ..unprotected(40_000, 400_000)
        };
        let mut nand = nand(1, LARGE, spec, link(PAGE));
        for (request, count) in of_request.iter().enumerate() {
            let first = 4 * request as u32;
            submit(
                &mut nand,
                request as u32,
                0,
                OpKind::Read,
                first..first + count,
                0,
            );
        }
        let ends = of_request.iter().map(|_| nand.next_end().unwrap());
        let ends = ends.map(|end| (end.request, end.at)).collect::<Vec<_>>();
        assert_eq!(
            nand.utilisation().link_ns[1],
            u64::from(of_request.iter().sum::<u32>()) * LINK
        );
        ends
    };
    let data = |count: u64| 290 + 40_020 + count * 12_288;
    assert_eq!(ends(false, &[4]), [(0, data(4) + LINK)]);
    assert_eq!(ends(true, &[4]), [(0, data(4) + 4 * LINK)]);
    // Requests do not wait for each other.
    let second = data(3) + data(1) + LINK;
    assert_eq!(ends(true, &[3, 1]), [(0, data(3) + 3 * LINK), (1, second)]);
}

// No page has been programmed yet: all come from the controller's buffer, before the request is closed.
#[test]
fn pages_of_the_buffer_cross_the_link_together() {
    let spec = NandSpec {
        whole_reads: true,
        protected: true,
        ..unprotected(40_000, 400_000)
    };
    let mut nand = nand(1, LARGE, spec, link(PAGE));
    submit(&mut nand, 0, 0, OpKind::Program, 0..3, 0);
    let written = nand.next_end().unwrap().at;
    submit(&mut nand, 1, written, OpKind::Read, 0..3, 0);
    let end = nand.next_end().unwrap();
    assert_eq!((end.request, end.at), (1, written + 3 * LINK));
    assert_eq!(nand.causes(1).total(), 3 * LINK);
    assert_eq!(nand.outstanding(), 0);
}

#[test]
fn planes_read_at_once() {
    let planes = WordLine { planes: 2, ..LARGE };
    let reads = reads_in_turn(planes, unprotected(40_000, 400_000), 8);
    assert_eq!(reads, [149_308; 4]);

    // Only what was asked for crosses the channel: 4 KiB of each plane.
    let mut nand = nand(
        1,
        planes,
        unprotected(40_000, 400_000),
        Latencies::default(),
    );
    for (request, page) in [(0, 1), (1, 6)] {
        submit(&mut nand, request, 0, OpKind::Read, page..page + 1, 0);
    }
    let ends = [(); 2].map(|()| nand.next_end().unwrap().at);
    let first = 940 + 40_020 + 12_288;
    assert_eq!(ends, [first, first + 12_288]);
    // The other word line waits for the array.
    submit(&mut nand, 0, 100_000, OpKind::Read, 1..2, 0);
    submit(&mut nand, 1, 100_000, OpKind::Read, 14..15, 0);
    let ends = [(); 2].map(|()| nand.next_end().unwrap().at - 100_000);
    let one = 290 + 40_020 + 12_288;
    assert_eq!(ends, [one, 2 * one]);
}

// Pages of two word lines, of which the third one is on the plane of the first.
#[test]
fn independent_planes_read_different_pages_at_once() {
    let planes = WordLine { planes: 2, ..LARGE };
    let spec = NandSpec {
        independent_planes: true,
        read: CellTimes::new(&[40_020, 60_020]).unwrap(),
        ..unprotected(0, 400_000)
    };
    let mut nand = nand(1, planes, spec, Latencies::default());
    for (request, page) in [(0, 1), (1, 14), (2, 9)] {
        submit(&mut nand, request, 0, OpKind::Read, page..page + 1, 0);
    }
    let ends = [(); 3].map(|()| nand.next_end().unwrap().at);
    let first = 940 + 60_020 + 12_288;
    let last = first + 12_288 + 290 + 60_020 + 12_288;
    assert_eq!(ends, [first, first + 12_288, last]);
}

// Each operation alone: how long the arrays of a die worked, and on how many of its planes.
#[test]
fn planes_are_busy_while_their_arrays_work() {
    let planes = WordLine { planes: 2, ..LARGE };
    let spec = NandSpec {
        independent_planes: true,
        read: CellTimes::new(&[40_020, 60_020]).unwrap(),
        erase_ns: 3_000_000,
        ..unprotected(0, 400_000)
    };
    let mut nand = nand(1, planes, spec, Latencies::default());
    let mut before = nand.utilisation();
    let mut used = |nand: &mut Nand| {
        nand.settle();
        let (now, all) = (nand.utilisation(), std::mem::take(&mut before));
        before = now;
        let since = now.since(&all);
        let states = [
            DieState::Read,
            DieState::Program,
            DieState::Erase,
            DieState::Retry,
        ];
        let array_ns: u64 = states
            .map(|state| since.die_ns[state as usize])
            .iter()
            .sum();
        (array_ns, since.plane_ns)
    };

    // A unit of eight pages, on both planes.
    submit(&mut nand, 0, 0, OpKind::Program, 0..8, 0);
    assert_eq!(used(&mut nand), (400_000, 2 * 400_000));
    // A page, four of one plane, one of each, and two of different word lines.
    for (requests, planes, array_ns) in [
        ([1..2, 0..0], 1, 40_020),
        ([0..4, 0..0], 1, 40_020),
        ([3..5, 0..0], 2, 40_020),
        ([1..2, 14..15], 2, 60_020),
    ] {
        let now = nand.utilisation().at;
        for (request, pages) in (0..).zip(&requests) {
            if !pages.is_empty() {
                submit(&mut nand, request, now, OpKind::Read, pages.clone(), 0);
            }
        }
        let found = used(&mut nand);
        assert_eq!(found, (array_ns, planes * array_ns), "{requests:?}");
    }
    let erase = op(OpKind::Erase, Purpose::Gc, 0, After::NOTHING);
    let now = nand.utilisation().at;
    let step = Step::new(DataPath::Own, false);
    nand.step(None, now, step, false, &[erase]);
    assert_eq!(used(&mut nand), (3_000_000, 2 * 3_000_000));
    assert_eq!(nand.utilisation().planes, 2);
}

/// Bytes per second of reads of whole flash pages in order.
fn sequential(dies: u32, word_line: WordLine, transfer_ns: u64, depth: u32) -> f64 {
    let pages = word_line.unit_pages();
    let spec = NandSpec {
        transfer_ns,
        ..unprotected(40_000, 400_000)
    };
    let mut nand = nand(dies, word_line, spec, link(PAGE));
    let (mut now, mut free) = (0, (0..depth).collect::<Vec<u32>>());
    let count = 2000;
    for at in 0..count {
        let slot = free.pop().unwrap_or_else(|| {
            let end = nand.next_end().unwrap();
            now = end.at + AFTER;
            end.request
        });
        let first = at * pages % (16 * 48 * dies);
        submit(
            &mut nand,
            slot,
            now,
            OpKind::Read,
            first..first + pages,
            (at % dies) as u16,
        );
    }
    f64::from(count * pages) * PAGE as f64 * 1e9 / nand.settle() as f64
}

// MQSim's rates; with four dies on a channel at 333, 400 and 1000 MT/s.
#[test]
fn sequential_reads_run_at_the_speed_of_flash() {
    let planes = WordLine { planes: 2, ..LARGE };
    for (dies, word_line, transfer_ns, depth, mb_s) in [
        (1, LARGE, 12_288, 8, 183.1),
        (1, planes, 12_288, 8, 235.2),
        (4, LARGE, 12_288, 16, 276.6),
        (4, LARGE, 8192, 16, 382.4),
        (4, LARGE, 4096, 16, 619.0),
    ] {
        let rate = sequential(dies, word_line, transfer_ns, depth) / 1e6;
        assert!((rate / mb_s - 1.0).abs() < 0.005, "{rate} {mb_s}");
    }
}

// Collection's reads of one flash page, with their copies: one array time.
#[test]
fn collection_reads_a_flash_page_once() {
    let flash = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        ..spec(50_000 - 20, 400_000, 0)
    };
    let mut nand = nand(1, LARGE, flash, Latencies::default());
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
    assert_eq!(nand.settle(), 450_000);
}

/// NVMeVirt's 970 Pro: 16 dies on 8 channels, MLC, flash pages of 32 KiB.
fn pro(depth: u32, count: usize) -> (f64, Vec<u64>) {
    let shape = Shape {
        channels: 8,
        dies: 16,
        superblocks: 16,
        pages_per_block: 16 * 16,
    };
    let word_line = WordLine {
        page_bytes: 32_768,
        bits: 2,
        ..WordLine::SINGLE
    };
    let geometry = Geometry::new(shape)
        .unwrap()
        .with_word_line(word_line)
        .unwrap();
    let flash = NandSpec {
        read: CellTimes::new(&[30_013, 42_013]).unwrap(),
        part_saves_ns: 253,
        command_ns: [0; 3],
        transfer_ns: 4864,
        data_first: false,
        ..spec(0, 185_000, PAGE)
    };
    let latencies = Latencies {
        link_page_ns: 1152,
        link_command_ns: 21_500,
        ..Latencies::default()
    };
    let mut nand = Nand::new(geometry, flash, latencies);
    let mut noise = Noise(u64::from(depth));
    let mut free: Vec<u32> = (0..depth).collect();
    let mut entered = vec![0; depth as usize];
    let (mut now, mut times) = (0, Vec::new());
    for _ in 0..count {
        let slot = free.pop().unwrap_or_else(|| {
            let end = nand.next_end().unwrap();
            times.push(end.at - entered[end.request as usize]);
            now = end.at;
            end.request
        });
        let page = noise.below(geometry.pages());
        let offset = geometry.offset(remap_ssd_media::Ppn(page));
        entered[slot as usize] = now;
        submit(
            &mut nand,
            slot,
            now,
            OpKind::Read,
            page..page + 1,
            geometry.die_of_offset(offset) as u16,
        );
    }
    (times.len() as f64 * 1e9 / now as f64, times)
}

#[test]
fn random_reads_of_a_970_pro() {
    let (_, alone) = pro(1, 400);
    assert!(
        alone.iter().all(|time| [57_276, 69_276].contains(time)),
        "{alone:?}"
    );
    // NVMeVirt's channels also move at most 26 units of 128 bytes in 4 us, which counts once dies are never idle.
    for (depth, thousands, within) in [
        (4, 60.6, 0.02),
        (16, 195.0, 0.02),
        (32, 284.0, 0.02),
        (64, 341.0, 0.02),
        (128, 368.0, 0.05),
        (256, 378.0, 0.05),
    ] {
        let (per_s, times) = pro(depth, 40_000);
        let off = per_s / thousands / 1000.0 - 1.0;
        assert!(off.abs() < within, "depth {depth}: {per_s} {off}");
        if depth == 32 {
            let [mean, p99] = [mean(&times) / 112_600.0, quantile(&times, 0.99) / 313_000.0];
            assert!(
                (mean - 1.0).abs() < 0.02 && (p99 - 1.0).abs() < 0.05,
                "{mean} {p99}"
            );
        }
    }
}
