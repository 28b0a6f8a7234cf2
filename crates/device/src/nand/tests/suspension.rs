//! Limits of suspension: how often, for programs and erases apart, and with how much progress in between.

use super::host::spec;
use super::units::{nand, op, submit};
use crate::config::Latencies;
use crate::nand::{Nand, NandSpec, Suspension};
use crate::step::{DataPath, Step};
use remap_ssd_media::{After, OpKind, Purpose, WordLine};

/// A die without channels: reads of 50 us, programs of 400 us, erases of 3.5 ms.
fn flash(suspension: Suspension) -> Nand {
    let flash = NandSpec {
        command_ns: [0; 3],
        transfer_ns: 0,
        suspension,
        ..spec(50_000 - 20, 400_000, 0)
    };
    nand(1, WordLine::SINGLE, flash, Latencies::default())
}

const LIMITS: Suspension = Suspension {
    begin_ns: [20_000, 40_000],
    resume_ns: 5_000,
    least_left_ns: 0,
    least_progress_ns: 0,
    most: [2, 1],
};

/// Ends of reads that enter at these times beside a program, or an erase, which begins at 0, and its own end.
fn beside(kind: OpKind, suspension: Suspension, reads: &[u64]) -> (Vec<u64>, u64) {
    let mut nand = flash(suspension);
    let other = op(kind, Purpose::Gc, 768, After::NOTHING);
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &[other]);
    let mut ends = Vec::new();
    for at in reads {
        submit(&mut nand, 0, *at, OpKind::Read, 1..2, 0);
        ends.push(nand.next_end().unwrap().at);
    }
    (ends, nand.settle())
}

#[test]
fn erases_have_limits_of_their_own() {
    // Suspended twice, with 390 us and with 385 us left, then no more.
    let (reads, end) = beside(OpKind::Program, LIMITS, &[10_000, 90_000, 170_000]);
    let resumed = 160_000 + 5_000 + 385_000;
    assert_eq!(reads, [80_000, 160_000, resumed + 50_000]);
    assert_eq!(end, resumed + 50_000);

    let (reads, end) = beside(OpKind::Erase, LIMITS, &[10_000, 200_000]);
    let resumed = 3_500_000 + 40_000 + 50_000 + 5_000;
    assert_eq!(reads, [100_000, resumed + 50_000]);
    assert_eq!(end, resumed + 50_000);
}

#[test]
fn a_resumed_operation_makes_progress_before_it_is_suspended_again() {
    let limits = |least_progress_ns| Suspension {
        least_progress_ns,
        ..LIMITS
    };
    // Resumed at 80 us, it works from 85 us on. Without a limit, also the resumption is cut short.
    let (reads, _) = beside(OpKind::Program, limits(0), &[10_000, 82_000]);
    assert_eq!(reads, [80_000, 152_000]);
    // The second suspension begins at 185 us, with 290 us left.
    let (reads, end) = beside(OpKind::Program, limits(100_000), &[10_000, 90_000]);
    assert_eq!((reads, end), (vec![80_000, 255_000], 260_000 + 290_000));
    // A read that comes later than that does not wait.
    let (reads, _) = beside(OpKind::Program, limits(100_000), &[10_000, 200_000]);
    assert_eq!(reads, [80_000, 270_000]);
    // The program is over before it has worked that long.
    let (reads, end) = beside(OpKind::Program, limits(400_000), &[10_000, 90_000]);
    assert_eq!((reads, end), (vec![80_000, 525_000], 525_000));
    // It need not have worked before the first suspension.
    let (reads, _) = beside(OpKind::Program, limits(400_000), &[1]);
    assert_eq!(reads, [70_001]);
}
