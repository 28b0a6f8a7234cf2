//! Queueing: closed forms, and figures measured with MQSim (commit 7ec40e3, no cache, no collection) or
//! computed by an event model that agrees with it.

use super::host::{Host, Noise, link, mean, quantile, spec};
use crate::config::{DeviceConfig, Latencies};
use crate::nand::{DieState, Nand, NandSpec, Suspension};
use crate::step::{DataPath, Step};
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{After, Op, OpKind, Purpose};

const KIB: u64 = 1024;

#[track_caller]
fn near(what: &str, ours: f64, theirs: f64, within: f64) {
    let off = ours / theirs - 1.0;
    assert!(
        off.abs() <= within,
        "{what}: {ours:.0} against {theirs:.0}, {:+.2} %",
        off * 100.0
    );
}

// 8 channels of 8 dies, random reads of 4 KiB, 60 us: requests per second by queue depth. Data first is MQSim's
// run of 20,000 requests, commands first the event model.
#[test]
fn random_reads_agree_in_both_orders_of_a_channel() {
    for (data_first, depth, count, per_s) in [
        (true, 1, 20_000, 13_531.0),
        (true, 4, 20_000, 51_887.0),
        (true, 16, 20_000, 175_572.0),
        (true, 256, 20_000, 374_617.0),
        (false, 16, 200_000, 182_646.0),
        (false, 256, 200_000, 619_205.0),
    ] {
        let spec = NandSpec {
            data_first,
            ..spec(60_000, 600_000, 4 * KIB)
        };
        let mut host = Host::new(8, 64, spec, link(4 * KIB));
        host.closed(depth, count, &mut |noise| (noise.below(64), true));
        near(
            &format!("depth {depth}, {data_first}"),
            host.per_s(),
            per_s,
            0.01,
        );
    }
}

// Reads of all dies in turn: with enough of them in flight the scarcest resource decides, and no run is faster than it.
#[test]
fn reads_reach_the_bound_of_dies_of_channels_or_of_the_link() {
    let (transfer, link_page) = (4 * KIB / 2 * 6, link(4 * KIB).link_page_ns);
    let bounds = |channels: u32| {
        let [dies, channels] = [64, channels].map(f64::from);
        [
            dies * 1e9 / (290 + 60_020 + transfer) as f64,
            channels * 1e9 / (290 + transfer) as f64,
            1e9 / link_page as f64,
        ]
    };
    let [dies, few, link_rate] = bounds(8);
    assert!((dies - 882e3).abs() < 1e3 && (few - 636e3).abs() < 1e3);

    for (channels, latencies, bound) in [
        (64, Latencies::default(), dies),
        (8, Latencies::default(), few),
        (8, link(4 * KIB), few),
        (64, link(4 * KIB), link_rate),
    ] {
        for (depth, least) in [(64, 0.5), (1024, 0.995)] {
            let spec = NandSpec {
                data_first: false,
                ..spec(60_000, 600_000, 4 * KIB)
            };
            let mut host = Host::new(channels, 64, spec, latencies);
            let mut die = 0;
            host.closed(depth, 200_000, &mut |_| {
                die = (die + 1) % 64;
                (die, true)
            });
            let share = host.per_s() / bound;
            assert!(
                (least..=1.0).contains(&share),
                "{channels} channels, depth {depth}: {share} of the bound"
            );
        }
    }
}

/// Reads and writes 70 to 30 on 2 channels of 4 dies, 16 in flight, on the die of a random page. Programs are the
/// bound, so the share of reads is that of the run to which it is compared: 17,801 of 25,564 requests a second.
fn mixed(suspension: Suspension, count: usize) -> Host {
    let spec = NandSpec {
        suspension,
        ..spec(60_000, 600_000, 4 * KIB)
    };
    let mut host = Host::new(2, 8, spec, link(4 * KIB));
    host.closed(16, count, &mut |noise| {
        (noise.below(8), noise.below(25_564) < 17_801)
    });
    host
}

#[test]
fn reads_go_before_programs() {
    let host = mixed(Suspension::NEVER, 100_000);
    near("mean of reads", mean(&host.reads), 290_464.0, 0.03);
    near("p99 of reads", quantile(&host.reads, 0.99), 697_511.0, 0.03);
    near("mean of writes", mean(&host.writes), 1_405_213.0, 0.03);
    near("per second", host.per_s(), 25_529.0, 0.01);
}

#[test]
fn suspended_programs_let_reads_pass() {
    let suspension = |least_left_ns, begin_ns, most| Suspension {
        begin_ns: [begin_ns; 2],
        least_left_ns,
        most: [most; 2],
        ..Suspension::NEVER
    };
    for (suspension, read, p99, write, per_s, suspends) in [
        (
            suspension(100_000, 20_000, u32::MAX),
            102_312.0,
            192_302.0,
            1_791_493.0,
            26_147.0,
            36_005.0,
        ),
        (
            suspension(100_000, 20_000, 1),
            171_459.0,
            646_166.0,
            1_638_354.0,
            26_058.0,
            19_761.0,
        ),
        (
            suspension(0, 0, u32::MAX),
            85_039.0,
            169_772.0,
            1_762_410.0,
            27_068.0,
            43_897.0,
        ),
    ] {
        let host = mixed(suspension, 100_000);
        let what = |what| format!("{what}, {suspension:?}");
        near(&what("mean of reads"), mean(&host.reads), read, 0.03);
        near(
            &what("p99 of reads"),
            quantile(&host.reads, 0.99),
            p99,
            0.03,
        );
        near(&what("mean of writes"), mean(&host.writes), write, 0.03);
        near(&what("per second"), host.per_s(), per_s, 0.01);
        near(
            &what("suspensions"),
            host.nand.utilisation().program_suspensions as f64,
            suspends,
            0.03,
        );
    }
}

// M/D/1: a fixed service time and Poisson arrivals.
#[test]
fn waits_at_a_die_follow_the_closed_form() {
    let service = 50_000;
    let mut flash = spec(service - 20, 600_000, 0);
    flash.command_ns = [0; 3];
    for (load, wait, p99) in [(0.3, 0.2143, 1.88), (0.5, 0.5, 3.33), (0.8, 2.0, 10.3)] {
        let mut host = Host::new(1, 1, flash, Latencies::default());
        host.open(service as f64 / load, 400_000, &mut |_| (0, true));
        let fixed = super::host::BEFORE + super::host::AFTER + service;
        let waits = host
            .reads
            .iter()
            .map(|read| read - fixed)
            .collect::<Vec<_>>();
        near(
            &format!("mean at {load}"),
            mean(&waits) / service as f64,
            wait,
            0.03,
        );
        near(
            &format!("p99 at {load}"),
            quantile(&waits, 0.99) / service as f64,
            p99,
            0.04,
        );
    }
}

// 19 reads for each program, 64 in flight on one die: reads alone would keep it busy.
#[test]
fn a_program_waits_no_longer_than_its_patience() {
    let patience = 2_000_000;
    let mut worst = Vec::new();
    for patience_ns in [[u64::MAX; 3], [patience; 3]] {
        let spec = NandSpec {
            patience_ns,
            suspension: Suspension {
                most: [u32::MAX; 2],
                ..Suspension::NEVER
            },
            ..spec(60_000, 600_000, 4 * KIB)
        };
        let mut host = Host::new(1, 1, spec, link(4 * KIB));
        host.closed(64, 20_000, &mut |noise| (0, noise.below(20) < 19));
        worst.push(quantile(&host.writes, 1.0));
    }
    // The programs that were ready before, of which there are a few, come first.
    assert!(
        worst[1] < (8 * patience) as f64 && worst[0] > 2.0 * worst[1],
        "{worst:?}"
    );
}

// FEMU's formula of a die, `max(now, die is free) + t`, gives the end of each operation to the nanosecond.
#[test]
fn operations_of_femu_s_flash_end_when_its_formula_says() {
    let config = DeviceConfig::preset("femu-16g").unwrap();
    let spec = config.nand().expect("it has this engine");
    let mut nand = Nand::new(config.geometry, spec, config.latencies());
    let mut noise = Noise(1);
    let (mut now, mut free, mut theirs) = (0, [0; 64], Vec::new());
    for request in 0..20_000 {
        now += 1 + u64::from(noise.below(2_500));
        let die = noise.below(64) as u16;
        let (kind, time) = match noise.below(10) {
            0 => (OpKind::Program, 200_000),
            _ => (OpKind::Read, 40_000),
        };
        let end = now.max(free[usize::from(die)]) + time;
        free[usize::from(die)] = end;
        theirs.push((end, request));

        let mut op = Op::new(kind, Purpose::Host, After::NOTHING);
        (op.die, op.page) = (die, NO_PAGE);
        nand.open(request);
        let step = Step::new(DataPath::Absent, false);
        nand.step(Some(request), now, step, false, &[op]);
        nand.close(request);
    }

    let ends = theirs.iter().map(|_| nand.next_end().unwrap());
    let mut ours: Vec<_> = ends.map(|end| (end.at, end.request)).collect();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert!(
        ours == theirs,
        "{:?}",
        ours.iter()
            .zip(&theirs)
            .find(|(ours, theirs)| ours != theirs)
    );

    // Most of them waited for a die.
    let used = nand.utilisation();
    let idle = used.die_ns[DieState::Idle as usize];
    assert!(idle < 64 * used.at / 2, "dies are idle for {idle} ns");
}
