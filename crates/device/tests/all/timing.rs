//! Exact completion times of small cases: occupancy of dies and lanes, and dependencies.

use crate::kit::bench::{Bench, ERASE, PROGRAM, READ, geometry, latencies};
use remap_ssd_device::Timing;
use remap_ssd_device::config::Latencies;
use remap_ssd_media::op::NO_PAGE;
use remap_ssd_media::{After, ClearId, Op, OpKind, Ppn, Purpose, SbId};

#[test]
fn programs_on_different_dies_overlap_and_on_one_die_queue() {
    let mut bench = Bench::new();
    let pages = [0, 1, 2, 3, 4].map(|page| bench.program(Purpose::Host, page));
    for page in &pages[..4] {
        assert_eq!(bench.at(100, &[*page]), 100 + PROGRAM);
    }
    assert_eq!(bench.at(100, &[pages[4]]), 100 + 2 * PROGRAM);
}

#[test]
fn a_read_queues_behind_a_program_of_its_die() {
    let mut bench = Bench::new();
    let (program, read) = (
        bench.program(Purpose::Host, 0),
        bench.read(Purpose::Host, 4),
    );
    bench.at(0, &[program]);
    assert_eq!(bench.at(10, &[read]), PROGRAM + READ);
    let elsewhere = bench.read(Purpose::Host, 1);
    assert_eq!(bench.at(10, &[elsewhere]), 10 + READ);
}

#[test]
fn garbage_collection_delays_what_queues_behind_it_but_not_its_own_command() {
    let mut bench = Bench::new();
    let ops = [
        bench.read(Purpose::Gc, 0),
        bench.program(Purpose::Gc, 1),
        bench.program(Purpose::Host, 2),
    ];
    assert_eq!(
        bench.at(0, &ops),
        PROGRAM,
        "the command's own program is on an idle die"
    );
    let behind = bench.program(Purpose::Host, 5);
    assert_eq!(bench.at(0, &[behind]), 2 * PROGRAM);
    assert_eq!(bench.timing.busy_until(), 2 * PROGRAM);
}

#[test]
fn a_command_that_copies_programs_after_its_read() {
    let mut bench = Bench::new();
    let ops = [
        bench.read(Purpose::Host, 0),
        bench.program(Purpose::Host, 1),
    ];
    assert_eq!(bench.at(0, &ops), READ + PROGRAM);
}

#[test]
fn the_nvram_port_is_paid_by_the_byte() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.at(0, &[Bench::store(Purpose::Host, After::NOTHING)]),
        125
    );
    assert_eq!(
        bench.at(
            0,
            &[Bench::bytes(
                OpKind::NvWrite,
                Purpose::Host,
                64,
                After::NOTHING
            )]
        ),
        625
    );

    assert_eq!(
        bench.at(
            0,
            &[Bench::bytes(
                OpKind::NvWrite,
                Purpose::Host,
                8,
                After::NOTHING
            )]
        ),
        688,
        "rounded up"
    );
}

#[test]
fn an_entry_waits_for_the_page_it_names_without_blocking_the_port() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Host, 7);
    bench.at(0, &[program]);
    assert_eq!(
        bench.at(1000, &[Bench::store(Purpose::Host, After::page(Ppn(7)))]),
        PROGRAM + 125
    );
    assert_eq!(
        bench.at(1000, &[Bench::store(Purpose::Host, After::page(Ppn(8)))]),
        1000 + 250
    );
    assert_eq!(
        bench.at(PROGRAM, &[Bench::store(Purpose::Host, After::page(Ppn(7)))]),
        PROGRAM + 125
    );
}

#[test]
fn a_wait_takes_no_time_itself() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Gc, 7);
    bench.at(0, &[program, Bench::store(Purpose::Meta, After::NOTHING)]);
    let wait = |after| Op::new(OpKind::Wait, Purpose::Host, after);
    assert_eq!(bench.at(10, &[wait(After::page(Ppn(7)))]), PROGRAM);
    assert_eq!(bench.at(10, &[wait(After::FENCE)]), 125);
    assert_eq!(bench.at(10, &[wait(After::ALL)]), PROGRAM);
    assert_eq!(bench.at(10, &[wait(After::NOTHING)]), 10);
    assert_eq!(bench.at(2 * PROGRAM, &[wait(After::ALL)]), 2 * PROGRAM);
}

#[test]
fn a_fence_waits_for_stores_that_wait() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Host, 7);
    bench.at(
        0,
        &[program, Bench::store(Purpose::Host, After::page(Ppn(7)))],
    );
    assert_eq!(
        bench.at(10, &[Bench::store(Purpose::Host, After::FENCE)]),
        PROGRAM + 125 + 125
    );
}

#[test]
fn erases_wait_for_everything_before_but_not_for_each_other() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Gc, 0);
    let erases = [0, 1, 2, 3].map(|die| bench.erase(die, 1, After::ALL));
    bench.at(0, &[program]);
    bench.at(0, &erases);
    assert_eq!(bench.timing.busy_until(), PROGRAM + ERASE);
    let clean = Op::new(OpKind::Wait, Purpose::Host, After::clear(ClearId(1)));
    assert_eq!(bench.at(0, &[clean]), PROGRAM + ERASE);
}

#[test]
fn host_operations_use_the_time_an_erase_waits() {
    let mut bench = Bench::new();
    let long = [0, 4, 8, 12].map(|page| bench.program(Purpose::Gc, page));
    bench.at(0, &long);
    let erase = bench.erase(1, 1, After::ALL);

    bench.at(0, &[erase]);

    // Die 1 would be idle until 4 programs of die 0 have ended: 4 fit, the fifth comes after the
    // erase.
    let ends = [1, 5, 9, 13, 17].map(|page| {
        let program = bench.program(Purpose::Host, page);
        bench.at(0, &[program])
    });

    assert_eq!(
        ends,
        [
            PROGRAM,
            2 * PROGRAM,
            3 * PROGRAM,
            4 * PROGRAM,
            4 * PROGRAM + ERASE + PROGRAM
        ]
    );
}

#[test]
fn other_operations_do_not_overtake_a_waiting_erase() {
    let mut bench = Bench::new();
    let ops = [
        bench.program(Purpose::Gc, 0),
        bench.program(Purpose::Gc, 4),
        bench.erase(1, 1, After::ALL),
    ];
    bench.at(0, &ops);
    let copy = bench.program(Purpose::Gc, 1);
    bench.at(0, &[copy]);
    assert_eq!(bench.timing.busy_until(), 2 * PROGRAM + ERASE + PROGRAM);
}

#[test]
fn a_store_waits_for_the_clearing_it_names() {
    let mut bench = Bench::new();
    let mut clear = Bench::bytes(OpKind::NvClear, Purpose::Gc, 1024, After::NOTHING);
    clear.clear_id = ClearId(9);
    bench.at(0, &[clear]);
    assert_eq!(
        bench.at(100, &[Bench::store(Purpose::Host, After::NOTHING)]),
        225,
        "clearings run beside the stores"
    );

    assert_eq!(
        bench.at(
            100,
            &[Bench::store(Purpose::Host, After::clear(ClearId(9)))]
        ),
        8000 + 125
    );
    assert_eq!(
        bench.at(
            100,
            &[Bench::store(Purpose::Host, After::clear(ClearId(8)))]
        ),
        100 + 375
    );
}

#[test]
fn a_lookup_stalls_every_die_where_the_model_says_so() {
    let mut bench = Bench::new();
    bench.at(0, &Bench::scan(OpKind::NvRead, 64_000));
    assert_eq!(bench.timing.lookup_total_ns(), 50_000);
    let program = bench.program(Purpose::Host, 3);
    assert_eq!(bench.at(0, &[program]), 50_000 + PROGRAM);
}

#[test]
fn without_stalls_a_lookup_delays_garbage_collection_only() {
    let mut bench = Bench::with(Latencies {
        lookup_stalls_dies: false,
        ..latencies()
    });
    bench.at(0, &Bench::scan(OpKind::NvRead, 64_000));
    let (host, copy) = (
        bench.program(Purpose::Host, 3),
        bench.program(Purpose::Gc, 0),
    );
    assert_eq!(bench.at(0, &[host]), PROGRAM);
    bench.at(0, &[copy]);
    assert_eq!(bench.timing.busy_until(), 50_000 + PROGRAM);
}

#[test]
fn a_scan_of_flash_is_shared_by_the_dies() {
    for stalls in [true, false] {
        let mut bench = Bench::with(Latencies {
            lookup_stalls_dies: stalls,
            ..latencies()
        });
        bench.at(0, &Bench::scan(OpKind::ScanFlash, 9));
        assert_eq!(
            bench.timing.lookup_total_ns(),
            3 * READ,
            "9 pages on 4 dies: one of them reads 3"
        );
        let program = bench.program(Purpose::Host, 3);
        assert_eq!(
            bench.at(0, &[program]),
            PROGRAM + READ * if stalls { 3 } else { 2 }
        );
    }
}

#[test]
fn scans_of_one_lookup_run_one_after_another() {
    let mut bench = Bench::new();
    let [begin, scan, end] = Bench::scan(OpKind::NvRead, 64_000);
    let [_, flash, _] = Bench::scan(OpKind::ScanFlash, 4);
    bench.at(0, &[begin, scan, flash, scan, end]);
    assert_eq!(bench.timing.lookup_total_ns(), 50_000 + READ + 50_000);
}

#[test]
fn a_channel_carries_one_page_at_a_time() {
    let mut bench = Bench::with(Latencies {
        transfer_ns: 10_000,
        ..latencies()
    });
    // Pages 0 and 2 are on channel 0, page 1 on channel 1.
    let pages = [0, 2, 1].map(|page| bench.program(Purpose::Host, page));
    assert_eq!(bench.at(0, &[pages[0]]), 10_000 + PROGRAM);
    assert_eq!(bench.at(0, &[pages[1]]), 20_000 + PROGRAM);
    assert_eq!(bench.at(0, &[pages[2]]), 10_000 + PROGRAM);
}

#[test]
fn a_row_of_copies_takes_what_its_reads_and_programs_take() {
    for (transfer_ns, superblock_dies) in [(0, 4), (10_000, 4), (10_000, 2)] {
        let with = || {
            let latencies = Latencies {
                transfer_ns,
                ..latencies()
            };
            let geometry = geometry().with_superblock_dies(superblock_dies).unwrap();
            Bench {
                timing: Timing::new(geometry, latencies),
                geometry,
            }
        };

        let (mut one, mut two) = (with(), with());
        let (mut now, mut random) = (0, 1u32);
        let mut draw = |range: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % range
        };

        for row in 0..500 {
            now += u64::from(draw(1 << 18));
            let host = one.program(Purpose::Host, draw(1024));
            assert_eq!(one.at(now, &[host]), two.at(now, &[host]));
            // Up to a row of pages of superblock 5, programmed to row `row` of another one.
            let (first, begin) = (one.geometry.page(SbId(5), draw(8)).0, draw(superblock_dies));
            let to = row % 256 * superblock_dies + begin;
            let after = [
                After::NOTHING,
                After::page(Ppn(to / 2)),
                After::clear(ClearId(1)),
            ][draw(3) as usize];
            let mut copies = one.op(OpKind::CopyRow, Purpose::Gc, to, after);
            (copies.amount, copies.sources) = (first, 1);
            let mut apart = Vec::new();
            let mut from = first;
            for page in to..row % 256 * superblock_dies + superblock_dies {
                copies.sources |= 1 << (from - first);
                apart.push(one.read(Purpose::Gc, from));
                apart.push(one.op(OpKind::Program, Purpose::Gc, page, after));
                from += 1 + draw(6);
            }
            one.at(now, &[copies]);
            two.at(now, &apart);
            assert_eq!(
                one.timing.busy_until(),
                two.timing.busy_until(),
                "row {row}"
            );
            let next = one.op(OpKind::Program, Purpose::Host, 1000, After::page(Ppn(to)));
            assert_eq!(one.at(now, &[next]), two.at(now, &[next]), "row {row}");
        }
    }
}

#[test]
fn nothing_is_named_by_the_absent_page() {
    let bench = Bench::new();
    assert_eq!(bench.program(Purpose::Host, 0).after_page, NO_PAGE);
}
