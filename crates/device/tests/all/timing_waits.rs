//! Exact dependencies between concurrent operations: gaps, stalls, rows, fences, runs of pages,
//! clearings, scans.

use crate::kit::bench::{Bench, ERASE, PROGRAM, READ, latencies};
use remap_ssd_device::config::Latencies;
use remap_ssd_media::{After, ClearId, Op, OpKind, Ppn, Purpose};

/// A gap that began before a lookup is not idle time while the lookup stalls the die.
#[test]
fn nothing_overtakes_on_a_die_that_a_lookup_stalls() {
    let mut bench = Bench::new();
    let (copy, erase) = (bench.program(Purpose::Gc, 0), bench.erase(1, 1, After::ALL));
    bench.at(0, &[copy]);
    bench.at(0, &[erase]);
    bench.at(0, &Bench::scan(OpKind::NvRead, 64_000));
    let program = bench.program(Purpose::Host, 1);
    assert_eq!(
        bench.at(0, &[program]),
        PROGRAM + ERASE + 50_000 + PROGRAM,
        "the time before the erase is not free"
    );
}

#[test]
fn a_lookup_stalls_a_die_from_when_it_begins() {
    let mut bench = Bench::new();
    bench.at(PROGRAM, &Bench::scan(OpKind::NvRead, 64_000));
    let program = bench.program(Purpose::Host, 3);
    assert_eq!(
        bench.at(PROGRAM, &[program]),
        PROGRAM + 50_000 + PROGRAM,
        "the die was idle before"
    );
}

/// The latest one, which need not be the last one issued.
#[test]
fn a_fence_waits_for_the_store_that_ends_last() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Host, 7);
    let waits = Bench::store(Purpose::Host, After::page(Ppn(7)));
    bench.at(
        0,
        &[program, waits, Bench::store(Purpose::Host, After::NOTHING)],
    );
    let wait = Op::new(OpKind::Wait, Purpose::Host, After::FENCE);
    assert_eq!(bench.at(10, &[wait]), PROGRAM + 125);
}

#[test]
fn an_operation_waits_for_all_that_it_names() {
    let mut bench = Bench::new();
    // Pages 6 and 7 of dies 2 and 3, the second of which is busy, and a store after both.
    let ops = [
        bench.program(Purpose::Host, 3),
        bench.program(Purpose::Host, 6),
        bench.program(Purpose::Host, 7),
    ];
    bench.at(0, &ops);
    let wait = |after| Op::new(OpKind::Wait, Purpose::Host, after);
    let both = After::pages(Ppn(6), 2);
    assert_eq!(bench.at(10, &[wait(After::page(Ppn(6)))]), PROGRAM);
    assert_eq!(bench.at(10, &[wait(both)]), 2 * PROGRAM);

    // First the fence is later than the page, then the page later than the fence.
    bench.at(10, &[Bench::store(Purpose::Host, both)]);
    let early = After::page(Ppn(6)).and(After::FENCE);
    assert_eq!(bench.at(20, &[wait(early)]), 2 * PROGRAM + 125);
    let long = [0, 0, 0, 8].map(|page| bench.program(Purpose::Host, page));
    bench.at(20, &long);
    let late = After::page(Ppn(8)).and(After::FENCE);
    assert_eq!(bench.at(30, &[wait(late)]), 20 + 4 * PROGRAM);
}

/// A superblock's erases do not wait for each other, but those of the next one wait for them.
#[test]
fn a_row_of_erases_ends_with_whatever_is_no_erase() {
    let mut bench = Bench::new();
    let store = |after| Bench::store(Purpose::Gc, after);
    let (first, second) = (bench.erase(0, 1, After::ALL), bench.erase(1, 2, After::ALL));
    bench.at(0, &[first, store(After::ALL)]);
    assert_eq!(
        bench.timing.busy_until(),
        ERASE + 125,
        "a store after all is after the erase"
    );
    bench.at(0, &[store(After::NOTHING), second]);
    assert_eq!(bench.timing.busy_until(), ERASE + 125 + ERASE);
}

#[test]
fn an_operation_in_a_gap_begins_when_it_is_there() {
    let mut bench = Bench::new();
    let ops = [0, 4].map(|page| bench.program(Purpose::Gc, page));
    bench.at(0, &ops);
    let erase = bench.erase(1, 1, After::ALL);
    bench.at(0, &[erase]);
    let program = bench.program(Purpose::Host, 1);
    assert_eq!(bench.at(100_000, &[program]), 100_000 + PROGRAM);
}

#[test]
fn metadata_delays_a_command_only_where_it_is_in_its_way() {
    let mut bench = Bench::new();
    let ops = [
        bench.program(Purpose::Meta, 0),
        bench.program(Purpose::Meta, 4),
        bench.program(Purpose::Host, 1),
    ];
    assert_eq!(bench.at(0, &ops), PROGRAM);
    assert_eq!(bench.timing.busy_until(), 2 * PROGRAM);
}

#[test]
fn clearings_are_done_in_their_order() {
    let mut bench = Bench::new();
    let clear = |id, after: After| {
        let mut op = Bench::bytes(OpKind::NvClear, Purpose::Gc, 1024, after);
        op.clear_id = ClearId(id);
        op
    };
    let program = bench.program(Purpose::Gc, 7);
    bench.at(0, &[program, clear(1, After::ALL)]);
    bench.at(0, &[clear(2, After::NOTHING)]);
    let wait = |id| Op::new(OpKind::Wait, Purpose::Host, After::clear(ClearId(id)));
    assert_eq!(bench.at(0, &[wait(1)]), PROGRAM + 8000);
    assert_eq!(bench.at(0, &[wait(2)]), PROGRAM + 16_000);
}

/// The first dies have one more page each if the pages cannot be divided evenly.
#[test]
fn a_scan_of_flash_holds_each_die_for_its_own_pages() {
    for (pages, reads) in [(9, [3, 2, 2, 2]), (8, [2; 4]), (3, [1, 1, 1, 0])] {
        let stalls = [false, true].map(|lookup_stalls_dies| Latencies {
            lookup_stalls_dies,
            ..latencies()
        });
        let [without, outside] = stalls.map(|latencies| {
            let mut bench = Bench::with(latencies);
            let scan = Bench::scan(OpKind::ScanFlash, pages);
            // Outside of a lookup nothing is stalled, even if the model stalls lookups.
            bench.at(
                0,
                if latencies.lookup_stalls_dies {
                    &scan[1..2]
                } else {
                    &scan
                },
            );
            [0, 1, 2, 3].map(|page| {
                let program = bench.program(Purpose::Host, page);
                bench.at(0, &[program]) - PROGRAM
            })
        });
        assert_eq!(without, reads.map(|pages| pages * READ), "{pages}");
        assert_eq!(outside, without, "{pages}");
    }
}

#[test]
fn a_read_of_a_lookup_waits_for_the_page_it_reads() {
    let mut bench = Bench::new();
    let program = bench.program(Purpose::Gc, 7);
    bench.at(0, &[program]);
    let [begin, _, end] = Bench::scan(OpKind::NvRead, 0);
    let read = bench.op(OpKind::Read, Purpose::Gc, 7, After::page(Ppn(7)));
    bench.at(0, &[begin, read, end]);
    assert_eq!(bench.timing.lookup_total_ns(), PROGRAM + READ);
}
