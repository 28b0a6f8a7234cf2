//! What requests waited for, and how busy dies were, against scripts computed by hand.

use super::host::{Host, spec};
use crate::config::Latencies;
use crate::nand::{Activity, Cause, CellTimes, DieState, Nand, NandSpec, Suspension, Timeline};
use crate::step::{DataPath, Step};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{After, Geometry, Op, OpKind, Purpose};

/// Dies on one channel: reads of 50 us, programs of 400 us, erases of 3 ms, commands of 1 us, data of 10 us.
fn flash(dies: u32) -> Nand {
    let shape = Shape {
        channels: 1,
        dies,
        superblocks: 16,
        pages_per_block: 16,
    };
    let spec = NandSpec {
        read: CellTimes::flat(50_000),
        erase_ns: 3_000_000,
        transfer_ns: 10_000,
        command_ns: [1_000; 3],
        suspension: Suspension {
            begin_ns: [20_000; 2],
            resume_ns: 5_000,
            most: [2; 2],
            ..Suspension::NEVER
        },
        ..spec(0, 400_000, 0)
    };
    let latencies = Latencies {
        link_command_ns: 700,
        nvram_write_ns: 9_000,
        ..Latencies::default()
    };
    Nand::new(Geometry::new(shape).unwrap(), spec, latencies)
}

fn op(kind: OpKind, purpose: Purpose, die: u16) -> Op {
    let mut op = Op::new(kind, purpose, After::NOTHING);
    (op.die, op.page) = (die, NO_PAGE);
    // Bytes of NVRAM.
    op.amount = if kind == OpKind::Read { 0 } else { 64 };
    op
}

fn submit(nand: &mut Nand, request: u32, at: u64, ops: &[Op]) {
    nand.open(request);
    let step = Step::new(DataPath::Absent, false);
    nand.step(Some(request), at, step, false, ops);
    nand.close(request);
}

/// The causes of a request that take time.
fn causes(nand: &Nand, request: u32) -> Vec<(Cause, u64)> {
    let found = nand.causes(request);
    let all = Cause::ALL.into_iter().map(|cause| (cause, found.of(cause)));
    all.filter(|(_, time)| *time > 0).collect()
}

#[test]
fn a_read_suspends_a_program_and_both_know_why_they_took_so_long() {
    let mut nand = flash(1);
    let [program, read] = [OpKind::Program, OpKind::Read].map(|kind| op(kind, Purpose::Host, 0));
    submit(&mut nand, 0, 0, &[program]);
    submit(&mut nand, 1, 100_000, &[read]);
    let ends = [(); 2].map(|()| nand.next_end().unwrap());
    // Suspended from 100.7 to 120.7 us, and resumed from 181.7 to 186.7 us.
    assert_eq!(
        ends.map(|end| (end.request, end.at)),
        [(1, 181_700), (0, 497_700)]
    );

    assert_eq!(
        causes(&nand, 1),
        [
            (Cause::Array, 50_000),
            (Cause::Transfer, 11_000),
            (Cause::Suspension, 20_000),
            (Cause::Controller, 700)
        ]
    );
    assert_eq!(
        causes(&nand, 0),
        [
            (Cause::Array, 400_000),
            (Cause::Transfer, 11_000),
            (Cause::Suspension, 86_000),
            (Cause::Controller, 700)
        ]
    );

    let used = nand.utilisation();
    let of = |state: DieState| used.die_ns[state as usize];
    assert_eq!(
        [
            of(DieState::Read),
            of(DieState::Program),
            of(DieState::Suspension)
        ],
        [50_000, 400_000, 25_000]
    );
    // On the die's one plane, without the time of the suspension.
    assert_eq!((used.planes, used.plane_ns), (1, 450_000));
    assert_eq!([of(DieState::Transfer), of(DieState::Idle)], [22_000, 700]);
    assert_eq!(
        (used.channel_ns, used.host_ns, used.at),
        (22_000, 472_000, 497_700)
    );
    assert_eq!((used.program_suspensions, used.erase_suspensions), (1, 0));
}

#[test]
fn a_read_behind_a_read_and_an_erase_of_collection_counts_both() {
    let mut nand = flash(2);
    nand.step(
        None,
        0,
        Step::new(DataPath::Own, false),
        false,
        &[op(OpKind::Erase, Purpose::Gc, 0)],
    );
    let read = |die| op(OpKind::Read, Purpose::Host, die);
    // Both are ready at 1.7 us, and the erase is suspended until 21.7 us for the first.
    submit(&mut nand, 0, 1_000, &[read(0)]);
    submit(&mut nand, 1, 1_000, &[read(0)]);
    nand.next_end();
    nand.next_end();
    assert_eq!(
        causes(&nand, 1),
        [
            (Cause::Queue, 61_000),
            (Cause::Array, 50_000),
            (Cause::Transfer, 11_000),
            (Cause::Suspension, 20_000),
            (Cause::Controller, 700)
        ]
    );
    assert_eq!(nand.utilisation().erase_suspensions, 1);

    // The erase has 2 999.3 us left, and a program does not suspend it.
    let now = nand.now();
    submit(&mut nand, 2, now, &[op(OpKind::Program, Purpose::Host, 0)]);
    nand.next_end();
    assert_eq!(
        causes(&nand, 2),
        [
            (Cause::Collection, 2_999_300),
            (Cause::Array, 400_000),
            (Cause::Transfer, 11_000),
            (Cause::Suspension, 4_300),
            (Cause::Controller, 700)
        ]
    );
}

#[test]
fn two_dies_wait_for_their_channel_and_a_fence_for_the_nvram() {
    let mut nand = flash(2);
    let program = |die| op(OpKind::Program, Purpose::Host, die);
    submit(&mut nand, 0, 0, &[program(0)]);
    submit(&mut nand, 1, 0, &[program(1)]);
    while nand.next_end().is_some() {}
    assert_eq!(
        causes(&nand, 1),
        [
            (Cause::Array, 400_000),
            (Cause::Transfer, 11_000),
            (Cause::Channel, 11_000),
            (Cause::Controller, 700)
        ]
    );

    let now = nand.now();
    let store = op(OpKind::NvWrite, Purpose::Host, 0);
    let mut fenced = program(0);
    fenced.after_fence = true;
    submit(&mut nand, 2, now, &[store]);
    submit(&mut nand, 3, now, &[fenced]);
    while nand.next_end().is_some() {}
    assert_eq!(
        causes(&nand, 2),
        [(Cause::Nvram, 9_000), (Cause::Controller, 700)]
    );
    // Its command came meanwhile, so that is not on its path.
    assert_eq!(
        causes(&nand, 3),
        [
            (Cause::Array, 400_000),
            (Cause::Transfer, 11_000),
            (Cause::Nvram, 9_700)
        ]
    );
    assert_eq!(nand.utilisation().nvram_ns, [9_000, 0, 0]);
}

// `Host` compares the causes of each request with its latency.
#[test]
fn the_causes_of_each_request_add_up_to_its_latency() {
    let suspension = Suspension {
        begin_ns: [20_000; 2],
        resume_ns: 7_000,
        least_left_ns: 30_000,
        least_progress_ns: 0,
        most: [3; 2],
    };
    let spec = NandSpec {
        suspension,
        patience_ns: [2_000_000; 3],
        ..spec(40_000, 400_000, 4096)
    };
    let mut host = Host::new(2, 4, spec, super::host::link(4096));
    host.closed(32, 20_000, &mut |noise| {
        (noise.below(4), noise.below(10) < 7)
    });
    let used = host.nand.utilisation();
    assert!(used.program_suspensions > 1_000);
    assert_eq!(
        used.die_ns.iter().sum::<u64>(),
        4 * used.at,
        "all time is in a state"
    );
}

#[test]
fn a_timeline_shows_reads_inside_a_suspended_erase() {
    let mut nand = flash(1);
    nand.keep_timeline(Some(Timeline::of_end(100)));
    let erase = op(OpKind::Erase, Purpose::Gc, 0);
    nand.step(None, 0, Step::new(DataPath::Own, false), false, &[erase]);
    submit(&mut nand, 0, 1_000, &[op(OpKind::Read, Purpose::Host, 0)]);
    assert_eq!(nand.settle(), 3_087_000);

    let kept = nand.take_timeline().unwrap();
    let shown: Vec<_> = kept
        .intervals()
        .map(|interval| {
            (
                interval.activity,
                interval.suspended.is_some(),
                interval.until,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (Activity::Transfer, false, 1_000),
            (Activity::Erase, false, 1_700),
            (Activity::Suspension, true, 21_700),
            (Activity::Transfer, true, 22_700),
            (Activity::HostRead, true, 72_700),
            (Activity::Transfer, true, 82_700),
            (Activity::Suspension, false, 87_700),
            (Activity::Erase, false, 3_087_000)
        ]
    );

    // The latest are kept, or those of a window.
    let read_and_transfer = [Activity::HostRead, Activity::Transfer];
    for (timeline, expected) in [
        (Timeline::of_end(2), &read_and_transfer[..]),
        (
            Timeline::of_window(100_000, 101_000, 9),
            &read_and_transfer[..1],
        ),
        (
            Timeline::of_window(100_000, 112_000, 1),
            &read_and_transfer[..1],
        ),
    ] {
        let mut nand = flash(1);
        nand.keep_timeline(Some(timeline));
        // Ready at 50 us: its command ends at 51 us, its array at 101, and its data at 111.
        submit(&mut nand, 0, 49_300, &[op(OpKind::Read, Purpose::Host, 0)]);
        nand.settle();
        let kept = nand.take_timeline().unwrap();
        let shown: Vec<_> = kept.intervals().map(|interval| interval.activity).collect();
        assert_eq!(shown, expected);
    }
}
