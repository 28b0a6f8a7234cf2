//! The results as text, in a window of `room` columns, if there is one.
//!
//! Absent: printing.

use crate::service::{self, Compared, ServingFigures};
use crate::{Results, Runs};
use remap_ssd_device::DeviceConfig;
use remap_ssd_nvme::controller::COPY_BYTES_MAX;
use remap_ssd_sim::report::format::{bytes, exact, number, seconds, si};
use remap_ssd_sim::report::layout::{columns, pairs};

/// Measurements of the simulator.
pub fn simulator(config: &DeviceConfig, results: &Results, room: Option<usize>) -> String {
    let about = format!(
        "{}: {} flash pages, {} of NVRAM, random 4 KiB writes over {} pages, 30 % duplicates\n\
         Medians of {} rounds of {} pages, after {} pages of warming up. Commands and arrays on one thread.\n",
        config.name,
        exact(results.flash_pages),
        bytes(results.nvram_bytes),
        exact(config.addressable_lpns()),
        results.rounds,
        exact(results.pages_per_round),
        exact(results.warm_up_pages),
    );
    [
        about,
        operations(results, room),
        whole_runs(results, room),
        facts(results),
        EXPLAINED.to_owned(),
    ]
    .join("\n")
}

const EXPLAINED: &str = "\
Page operations are host pages and pages moved by garbage collection. Bytes per flash page are the growth of
the process's resident memory since before the device was made, less the NVRAM image; with deduplication off
no contents are stored. The engine nand has TLC flash of 4 planes, whose programs and erases reads may suspend.
The bare arrays (L2P, P2L, reference counts, greedy collection) do nothing else. Whole runs also draw
the pages and record latencies; their ns are processor time, which busy neighbours disturb less.
";

/// The row of the other engine.
const NAND: &str = "off, engine nand";

fn rate(value: f64) -> String {
    let (divisor, prefix) = si(value);
    format!("{:.2} {prefix}", value / divisor)
}

/// Speed of the firmware, and of arrays without one.
fn operations(r: &Results, room: Option<usize>) -> String {
    let row = |name: &str, rates: [f64; 3], moved: f64, memory: Option<f64>| {
        let [operations, programs, host] = rates.map(rate);
        let memory = memory.map_or("-".into(), number);
        vec![
            name.to_owned(),
            operations,
            programs,
            host,
            format!("{moved:.2}"),
            memory,
        ]
    };
    let with = [r.page_ops_per_s, r.programs_per_s, r.host_pages_per_s];
    let without = [
        r.page_ops_per_s_no_dedup,
        r.programs_per_s_no_dedup,
        r.host_pages_per_s_no_dedup,
    ];
    // They program nothing else, so the first two rates are equal.
    let bare = [
        r.bare_page_ops_per_s,
        r.bare_page_ops_per_s,
        r.bare_host_pages_per_s,
    ];
    let (moved, moved_without) = (r.gc_pages_per_host_page, r.gc_pages_per_host_page_no_dedup);

    let head = [
        "",
        "page ops/s",
        "programs/s",
        "host pages/s",
        "GC moves/host page",
        "bytes/page",
    ];
    let mut rows = vec![
        row("deduplication on", with, moved, r.bytes_per_page),
        row(
            "deduplication off",
            without,
            moved_without,
            r.bytes_per_page_no_dedup,
        ),
    ];
    if let Some(nand) = &r.nand {
        let rates = [
            nand.page_ops_per_s,
            nand.programs_per_s,
            nand.host_pages_per_s,
        ];
        rows.push(row(NAND, rates, nand.gc_pages_per_host_page, None));
    }
    rows.push(row(
        "bare arrays",
        bare,
        r.gc_pages_per_host_page_bare,
        None,
    ));
    columns(&head, &rows, room)
}

fn whole_runs(results: &Results, room: Option<usize>) -> String {
    let row = |name: &str, runs: &Runs| {
        let speeds = [runs.page_ops_per_s, runs.page_ops_per_s_two_threads].map(rate);
        let numbers = [
            runs.speedup,
            runs.ns_per_host_page,
            runs.firmware_ns_per_host_page,
            runs.times_ns_per_host_page,
            runs.speedup_by_processor_time,
        ];
        [name.to_owned()]
            .into_iter()
            .chain(speeds)
            .chain(numbers.map(number))
            .collect()
    };
    let head = [
        "whole runs",
        "page ops/s, one thread",
        "two threads",
        "times",
        "ns/host page, one thread",
        "firmware's",
        "the other",
        "times on cores of their own",
    ];
    let mut rows = vec![
        row("deduplication on", &results.run),
        row("deduplication off", &results.run_no_dedup),
    ];
    rows.extend(results.nand.as_ref().map(|nand| row(NAND, &nand.run)));
    columns(&head, &rows, room)
}

fn facts(r: &Results) -> String {
    let [recovery, with_store, aging, aging_without] = [
        r.recovery_s,
        r.recovery_with_store_s,
        r.aging_s,
        r.aging_s_no_dedup,
    ]
    .map(seconds);
    let pages = rate(r.recovery_pages_per_s);
    let mut facts = vec![
        (
            "recovery".to_owned(),
            format!("{recovery}: {pages}pages/s; {with_store} with the fingerprint store"),
        ),
        (
            "aging".to_owned(),
            format!("{aging} with deduplication, {aging_without} without"),
        ),
    ];
    for scaled in &r.scales {
        let [operation, host] = [scaled.ns_per_page_op, scaled.ns_per_host_page].map(number);
        facts.push((
            format!("{} device", bytes(scaled.logical_bytes)),
            format!("{operation} ns a page operation, {host} ns a host page"),
        ));
    }
    pairs(&facts)
}

/// Measurements of a served device.
pub fn service(results: &service::Results, room: Option<usize>) -> String {
    let place = match &results.image {
        Some(dir) => format!("an image in {}", dir.display()),
        None => "memory".into(),
    };

    // The conditions of a figure are stated above it.
    let mut text = format!(
        "NVMe/TCP on the loopback, both ends on this machine, the device in {place}; medians of {} rounds.\n\
         Random: 4 KiB, {} queues of {}; sequential: 128 KiB, {} queues of {}; {:.0} % of the writes repeat a content.\n\
         Copy is commands of {}, one after the other; Remap is one command.\n\n",
        results.rounds,
        results.queues,
        results.queue_depth_random,
        results.queues,
        results.queue_depth_sequential,
        results.duplicates * 100.0,
        bytes(COPY_BYTES_MAX),
    );

    let row = |name: &str, speed: &service::Speed| {
        vec![
            name.to_owned(),
            format!("{:.1} k", speed.random_reads_per_s / 1e3),
            format!("{:.1} k", speed.random_writes_per_s / 1e3),
            format!("{:.2}", speed.sequential_read_gib_per_s),
            format!("{:.2}", speed.sequential_write_gib_per_s),
            format!("{:.1}", speed.copy_ms),
            format!("{:.1}", speed.remap_ms),
            speed.copy_data_pages.to_string(),
        ]
    };

    let (copy, remap) = (
        format!("Copy {} ms", bytes(results.copy_bytes)),
        format!("Remap {} ms", bytes(results.copy_bytes)),
    );
    let head = [
        "",
        "reads/s",
        "writes/s",
        "GiB/s read",
        "GiB/s written",
        copy.as_str(),
        remap.as_str(),
        "pages programmed by these",
    ];

    let rows = [
        row("deduplication off", &results.dedup_off),
        row("deduplication on", &results.dedup_on),
    ];
    text.push_str(&columns(&head, &rows, room));

    // Both latency modes, compared with the model of the flash.
    let e = &results.emulated;
    text.push_str(&format!(
        "\nOne read at a time, µs: the model says {:.1}. Median {:.1} emulated, {:.1} without: {:+.1} from the model.\n\
         99th percentile {:.1} emulated, {:.1} without: {:+.1} from the model.\n",
        e.model_us,
        e.emulated_p50_us,
        e.none_p50_us,
        e.deviation_p50_us,
        e.emulated_p99_us,
        e.none_p99_us,
        e.deviation_p99_us,
    ));
    text
}

/// A comparison of ways to serve a device.
pub fn compared(compared: &Compared, room: Option<usize>) -> String {
    format!(
        "NVMe/TCP on the loopback, both ends on this machine; medians of {} rounds in which all take turns, and in brackets \
         the ratio to neither.\n\n{}\nOf both ends together, for a command:\n\n{}",
        compared.rounds,
        rates(compared, room),
        processor_times(compared, room)
    )
}

fn rates(compared: &Compared, room: Option<usize>) -> String {
    let head = [
        "",
        "reads/s",
        "writes/s",
        "GiB/s read",
        "GiB/s written",
        "connect ms",
    ];
    let thousands = |rate: f64, ratio| format!("{:.1} k ({ratio:.2})", rate / 1e3);
    let gib = |rate: f64, ratio| format!("{rate:.2} ({ratio:.2})");

    let row = |way: &ServingFigures| {
        let [reads, writes, reads_in_order, writes_in_order] = way.ratios;
        vec![
            way.name.to_owned(),
            thousands(way.random_reads_per_s, reads),
            thousands(way.random_writes_per_s, writes),
            gib(way.sequential_read_gib_per_s, reads_in_order),
            gib(way.sequential_write_gib_per_s, writes_in_order),
            format!("{:.2}", way.connect_ms),
        ]
    };
    let rows: Vec<_> = compared.ways.iter().map(row).collect();
    columns(&head, &rows, room)
}

fn processor_times(compared: &Compared, room: Option<usize>) -> String {
    let head = [
        "processor time, µs",
        "read",
        "write",
        "128 KiB read",
        "128 KiB written",
    ];

    let row = |way: &ServingFigures| {
        let times = way.processor_us.iter().map(|time| format!("{time:.1}"));
        std::iter::once(way.name.to_owned()).chain(times).collect()
    };
    let rows: Vec<_> = compared.ways.iter().map(row).collect();
    columns(&head, &rows, room)
}
