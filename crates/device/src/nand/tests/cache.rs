//! Cache registers: exact times of reads and programs that overlap transfers, and the rates of their bounds.

use super::host::{AFTER, Host, link, spec};
use super::units::{LARGE, nand, op, submit, unprotected};
use crate::config::Latencies;
use crate::nand::{Cause, CellTimes, Nand, NandSpec, Suspension};
use crate::step::{DataPath, Step};
use remap_ssd_media::{After, OpKind, Purpose, WordLine};

const PAGE: u64 = 4096;
/// Command cycles of a read and of a program, and moving data between the registers.
const READ_COMMAND: u64 = 290;
const PROGRAM_COMMAND: u64 = 361;
const BUSY: u64 = 3_000;
/// The array reads.
const READ: u64 = 40_020;

fn cached(spec: NandSpec) -> NandSpec {
    NandSpec {
        cache_read: true,
        cache_program: true,
        cache_busy_ns: BUSY,
        ..spec
    }
}

/// A die with pages of 4 KiB.
fn die(transfer_ns: u64, suspension: Suspension) -> Nand {
    let flash = NandSpec {
        transfer_ns,
        suspension,
        ..unprotected(40_000, 400_000)
    };
    nand(1, WordLine::SINGLE, cached(flash), Latencies::default())
}

fn ends(nand: &mut Nand, count: usize) -> Vec<u64> {
    let mut ends = vec![0; count];
    while let Some(end) = nand.next_end() {
        ends[end.request as usize] = end.at;
    }
    ends
}

/// Ends of requests for single pages that enter at the same time.
fn of_pages(nand: &mut Nand, kind: OpKind, count: u32) -> Vec<u64> {
    for request in 0..count {
        submit(nand, request, 0, kind, request..request + 1, 0);
    }
    ends(nand, count as usize)
}

#[test]
fn the_next_read_begins_before_the_data_of_the_last_one_leave() {
    // Command and array of the first read, and the second command; then the first data leave beside the second array.
    let second_array = READ_COMMAND + READ + READ_COMMAND + BUSY;
    assert_eq!(second_array, 43_600);
    // The array decides. Nothing follows the last read, so its data leave at once.
    let fast = of_pages(&mut die(12_288, Suspension::NEVER), OpKind::Read, 4);
    let fourth_array = second_array + 2 * (READ_COMMAND + BUSY + READ);
    assert_eq!(fast[..3], [55_888, 55_888 + 43_310, 55_888 + 2 * 43_310]);
    assert_eq!(fast[3], fourth_array + READ + 12_288);
    // The channel decides: the die that has read waits until its cache register is empty.
    let slow = of_pages(&mut die(100_000, Suspension::NEVER), OpKind::Read, 4);
    assert_eq!(slow, [143_600, 246_890, 350_180, 450_180]);
}

// The second read comes while the data of the first wait for the channel: another die uses it.
#[test]
fn a_read_may_begin_while_data_wait_for_the_channel() {
    let flash = NandSpec {
        transfer_ns: 100_000,
        data_first: false,
        ..unprotected(40_000, 400_000)
    };
    let mut nand = nand(2, WordLine::SINGLE, cached(flash), Latencies::default());
    submit(&mut nand, 0, 0, OpKind::Read, 0..1, 0);
    submit(&mut nand, 1, 0, OpKind::Read, 1..2, 1);
    submit(&mut nand, 2, 60_000, OpKind::Read, 2..3, 1);
    let first = READ_COMMAND + READ + 100_000;
    // Its command goes before the data. Those of the second read have the channel next.
    let second = first + READ_COMMAND + 100_000;
    assert_eq!(ends(&mut nand, 3), [first, second, second + 100_000]);
}

#[test]
fn the_next_program_crosses_the_channel_while_the_last_one_works() {
    // Command and data take 12,649.
    let fast = of_pages(&mut die(12_288, Suspension::NEVER), OpKind::Program, 3);
    let cycle = BUSY + 400_000;
    assert_eq!(fast, [412_649, 412_649 + cycle, 412_649 + 2 * cycle]);
    // The channel decides. Data that arrive at an idle array need no move.
    let slow = of_pages(&mut die(500_000, Suspension::NEVER), OpKind::Program, 3);
    let cross = PROGRAM_COMMAND + 500_000;
    assert_eq!(slow, [1, 2, 3].map(|count| count * cross + 400_000));
}

#[test]
fn a_read_waits_for_the_program_in_the_cache_register_unless_it_may_suspend() {
    let read_ns = READ_COMMAND + READ + 12_288;
    for (most, expected) in [
        (0, [412_649, 815_649, 815_649 + read_ns]),
        // Suspended from 100 us on, with 312,649 left.
        (1, [485_247, 888_247, 120_000 + read_ns]),
    ] {
        let suspension = Suspension {
            begin_ns: [20_000; 2],
            most: [most; 2],
            ..Suspension::NEVER
        };
        let mut nand = die(12_288, suspension);
        submit(&mut nand, 0, 0, OpKind::Program, 0..1, 0);
        submit(&mut nand, 1, 0, OpKind::Program, 1..2, 0);
        submit(&mut nand, 2, 100_000, OpKind::Read, 800..801, 0);
        assert_eq!(ends(&mut nand, 3), expected);
    }
}

/// Megabytes per second of flash pages of 16 KiB in order.
fn sequential(dies: u32, kind: OpKind, spec: NandSpec) -> f64 {
    let mut nand = nand(dies, LARGE, cached(spec), link(PAGE));
    let (mut now, mut free) = (0, (0..8 * dies).collect::<Vec<u32>>());
    let count = 2000;
    for at in 0..count {
        let slot = free.pop().unwrap_or_else(|| {
            let end = nand.next_end().unwrap();
            now = end.at + AFTER;
            end.request
        });
        let first = at * 4 % (16 * 48 * dies);
        let die = (at % dies) as u16;
        submit(&mut nand, slot, now, kind, first..first + 4, die);
    }
    f64::from(count * 4) * PAGE as f64 * 1e3 / nand.settle() as f64
}

// The bounds of the channel and of the dies.
#[test]
fn sequential_accesses_run_at_the_speed_of_the_channel_or_of_the_arrays() {
    let page = 4.0 * PAGE as f64 * 1e3;
    for data_first in [false, true] {
        for (dies, transfer_ns) in [(1, 4096), (1, 12_288), (2, 4096), (4, 4096), (4, 8192)] {
            let spec = NandSpec {
                transfer_ns,
                data_first,
                ..unprotected(40_000, 400_000)
            };
            let data = 4 * transfer_ns;
            let of_channel = page / (READ_COMMAND + data) as f64;
            let die = READ_COMMAND + BUSY + READ.max(data);
            let bound = of_channel.min(f64::from(dies) * page / die as f64);
            let rate = sequential(dies, OpKind::Read, spec);
            // If data go first, dies fall in step, and may all move their data at the same time.
            let round = f64::from(dies) * page / bound;
            let least = match data_first {
                true => bound * round / (round + BUSY as f64),
                false => bound,
            };
            assert!(
                rate > 0.995 * least && rate < 1.005 * bound,
                "{rate} {bound}"
            );
        }
    }
    for (dies, transfer_ns, program_ns) in [
        (1, 12_288, 400_000),
        (1, 12_288, 40_000),
        (4, 12_288, 400_000),
        (4, 12_288, 100_000),
    ] {
        let spec = NandSpec {
            transfer_ns,
            program: CellTimes::flat(program_ns),
            ..unprotected(40_000, 0)
        };
        let cross = PROGRAM_COMMAND + 4 * transfer_ns;
        let die = (BUSY + program_ns).max(cross);
        let bound = (page / cross as f64).min(f64::from(dies) * page / die as f64);
        let rate = sequential(dies, OpKind::Program, spec);
        assert!((rate / bound - 1.0).abs() < 0.005, "{rate} {bound}");
    }
}

/// The parts of a request's latency that are not 0.
fn causes(nand: &Nand, request: u32) -> Vec<(Cause, u64)> {
    let causes = nand.causes(request);
    let parts = Cause::ALL.map(|cause| (cause, causes.of(cause)));
    parts.into_iter().filter(|(_, time)| *time > 0).collect()
}

#[test]
fn data_that_move_to_the_cache_register_do_not_wait_for_the_channel() {
    let mut nand = die(12_288, Suspension::NEVER);
    of_pages(&mut nand, OpKind::Read, 2);
    let expected = [
        (Cause::Array, READ + READ_COMMAND + BUSY),
        (Cause::Transfer, READ_COMMAND + 12_288),
    ];
    assert_eq!(causes(&nand, 0), expected);
}

#[test]
fn a_program_in_the_cache_register_waits_for_what_its_die_does() {
    let mut nand = die(12_288, Suspension::NEVER);
    let own = op(OpKind::Program, Purpose::Gc, 800, After::NOTHING);
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &[own]);
    submit(&mut nand, 0, 100_000, OpKind::Program, 0..1, 0);
    assert_eq!(ends(&mut nand, 1), [412_649 + BUSY + 400_000]);
    let expected = [
        (Cause::Collection, 300_000),
        (Cause::Array, BUSY + 400_000),
        (Cause::Transfer, 12_649),
    ];
    assert_eq!(causes(&nand, 0), expected);
}

// `Host` compares the causes of each request with its latency.
#[test]
fn the_causes_of_each_request_still_add_up_to_its_latency() {
    let suspension = Suspension {
        begin_ns: [20_000; 2],
        resume_ns: 7_000,
        most: [3; 2],
        ..Suspension::NEVER
    };
    let flash = NandSpec {
        suspension,
        patience_ns: [2_000_000; 3],
        ..spec(40_000, 400_000, 16_384)
    };
    let mut host = Host::new(2, 4, cached(flash), link(16_384));
    host.closed(32, 20_000, &mut |noise| {
        (noise.below(4), noise.below(10) < 7)
    });
    let used = host.nand.utilisation();
    assert!(used.program_suspensions > 1_000);
    assert_eq!(used.die_ns.iter().sum::<u64>(), 4 * used.at);
}
