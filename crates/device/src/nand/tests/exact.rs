//! Cases that have a formula: the model gives the same nanosecond.

use super::host::{Host, link, spec};
use crate::nand::{CellTimes, NandSpec};

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
    let times: Vec<u64> = (0..14).map(|row| cells.of_row(row)).collect();
    let slow_start = [40, 40, 40, 40, 40, 40, 60, 60];
    assert_eq!(times, [&slow_start[..], &[40, 40, 60, 60, 80, 80]].concat());

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
