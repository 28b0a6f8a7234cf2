//! Runs on the engine whose dies choose: the same on two threads, all requests end, reads go first.

use crate::pipeline::{self, PAPERS};
use remap_ssd_device::nand::{Activity, CellTimes, DieInterval};
use remap_ssd_device::{Device, DeviceConfig, HostLpn, PageCommand, PageKind};
use remap_ssd_ftl::{EntrySize, GcPolicy, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, WordLine};
use remap_ssd_sim::aging::{AgingOptions, Fill, age};
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::run::{RunOptions, run};
use remap_ssd_sim::study::{Length, RunSpec};
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::workload::{Endless, NamedWorkload};
use std::ops::ControlFlow;

/// The device of the published engine's tests, with this engine.
fn config(scheme: SchemeKind, dedup: bool, engine: &str) -> DeviceConfig {
    let set = [
        "background.lookup_stalls_dies=false",
        &format!("timing.engine={engine}"),
    ];
    let set = set.map(|text| text.parse().unwrap());
    pipeline::config(scheme, dedup).with(&set).unwrap()
}

/// A TLC part whose programs may be suspended, on channels that take time.
fn tlc(config: &mut DeviceConfig) {
    config.flash.read_ns = CellTimes::new(&[40_000, 60_000, 80_000]).unwrap();
    config.flash.program_ns = CellTimes::new(&[400_000, 900_000, 1_600_000]).unwrap();
    config.flash.transfer_ns = 5_000;
    config.timing.read_command_ns = 300;
    config.timing.program_command_ns = 300;
    config.timing.suspend_ns = 20_000;
    config.timing.suspend_least_ns = 100_000;
    config.timing.suspensions = 4;
}

fn measured(config: &DeviceConfig, workload: &str, options: &RunOptions) -> (RunSummary, Device) {
    let mut device = Device::format(config.clone()).unwrap();
    let aging = AgingOptions {
        fill: Fill::Sequential,
        ..AgingOptions::default()
    };
    age(&mut device, &mut *source(config, workload, 1), &aging).unwrap();
    run_on(device, workload, options)
}

fn source(config: &DeviceConfig, workload: &str, seed: u64) -> Box<dyn Endless + Send> {
    let workload: NamedWorkload = workload.parse().unwrap();
    workload
        .source(PAPERS, config.addressable_lpns(), seed, seed << 40)
        .unwrap()
}

fn run_on(mut device: Device, workload: &str, options: &RunOptions) -> (RunSummary, Device) {
    let config = device.config().clone();
    let mut go_on = |_: &_| ControlFlow::Continue(());
    let mut source = source(&config, workload, 2);
    let summary = run(&mut device, &mut *source, options, &mut go_on);
    let mut summary = summary.unwrap_or_else(|error| panic!("{config:?}: {error}"));
    summary.wall_s = 0.0;
    (summary, device)
}

fn options(pages: u64, queue_depth: u32, threads: u32) -> RunOptions {
    RunOptions {
        pages: Some(pages),
        queue_depth,
        threads,
        ..RunOptions::default()
    }
}

fn are_the_same(config: &DeviceConfig, workload: &str, pages: u64, depth: u32) {
    let [one, two] = [1, 2].map(|threads| {
        let (summary, device) = measured(config, workload, &options(pages, depth, threads));
        let times = (device.busy_until(), device.lookup_total_ns());
        format!("{} {times:?}", serde_json::to_string(&summary).unwrap())
    });
    assert!(one == two, "{workload}: {one}\nwith two threads {two}");
}

#[test]
fn every_scheme_gives_the_same_on_two_threads() {
    for (index, scheme) in SchemeKind::ALL.into_iter().enumerate() {
        let mut config = config(scheme, true, "nand");
        tlc(&mut config);
        config.controller.firmware_ns = 3_000;
        config.flash.flush_ns = 50_000;
        let workload = if scheme.uses_hints() {
            "journal"
        } else {
            "randrw:70"
        };
        are_the_same(&config, workload, 20_000, 1 + 21 * (index as u32 % 3));
    }
}

#[test]
fn workloads_and_policies_give_the_same_on_two_threads() {
    for (policy, workload) in GcPolicy::ALL.into_iter().cycle().zip([
        "zipf:0.99",
        "fileserver",
        "oltp",
        "sysbench",
        "fiu-mail",
        "snapshot",
        // These write parts of pages.
        "fileserver,direct",
        "oltp,direct",
    ]) {
        let mut config = config(SchemeKind::RemapSsd, true, "nand");
        tlc(&mut config);
        config.firmware.gc_policy = policy;
        are_the_same(&config, workload, 20_000, 32);
    }
}

// The firmware does not know time, so both engines program the same pages.
#[test]
fn both_engines_write_the_same_and_writes_alone_take_the_same() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::NLog] {
        let [published, nand] = ["published", "nand"].map(|engine| {
            let config = config(scheme, true, engine);
            measured(&config, "randwrite", &options(60_000, 32, 1)).0
        });
        assert_eq!(published.flash_pages, nand.flash_pages, "{scheme}");
        assert_eq!(published.erases, nand.erases, "{scheme}");
        // Without reads there is little to choose: dies are as busy.
        let ratio = nand.bandwidth_mib_s / published.bandwidth_mib_s;
        assert!((0.9..1.1).contains(&ratio), "{scheme}: {ratio}");
    }
}

#[test]
fn reads_are_faster_and_faster_still_if_programs_are_suspended() {
    let read = |engine, suspensions| {
        let mut config = config(SchemeKind::None, false, engine);
        config.timing.suspensions = suspensions;
        // A third of the device, so that nothing is collected.
        config.addressable = 0.3;
        let mut device = Device::format(config.clone()).unwrap();
        for lpn in HostLpn::range(HostLpn::ZERO, config.addressable_units()) {
            let (content, kind) = (1, PageKind::Write);
            device
                .execute(&PageCommand { content, lpn, kind }, false)
                .unwrap();
        }
        let (summary, _) = run_on(device, "randrw:70", &options(30_000, 16, 1));
        assert_eq!(summary.gc_pages, 0);
        summary.read_latency_us
    };
    let (fifo, first, suspended) = (read("published", 0), read("nand", 0), read("nand", 1 << 20));
    assert!(first.mean < 0.95 * fifo.mean, "{first:?} {fifo:?}");
    assert!(suspended.mean < 0.6 * first.mean, "{suspended:?} {first:?}");
    assert!(suspended.p99 < 0.5 * first.p99, "{suspended:?} {first:?}");
}

/// Two planes with pages of 16 KiB, and three bits a cell that one operation programs.
fn word_lines(config: &mut DeviceConfig) {
    let word_line = WordLine {
        planes: 2,
        page_bytes: 16_384,
        bits: 3,
        ..WordLine::SINGLE
    };
    let geometry = config.geometry.with_pages_per_block(8 * 24).unwrap();
    config.geometry = geometry.with_word_line(word_line).unwrap();
    config.firmware.lpns = config.geometry.pages() / 9 * 6;
    config.flash.program_ns = CellTimes::flat(1_000_000);
    config.flash.transfer_ns = 5_000;
    config.timing.program_plane_ns = 800;
    let tables = config.firmware.tables_bytes(&config.geometry);
    config.firmware.log_bytes = config.firmware.log_bytes.max(tables);
}

#[test]
fn word_lines_give_the_same_on_two_threads() {
    for (scheme, workload) in [
        (SchemeKind::None, "randrw:70"),
        (SchemeKind::RemapSsd, "journal"),
        (SchemeKind::FLog, "fileserver,direct"),
    ] {
        let mut config = config(scheme, true, "nand");
        word_lines(&mut config);
        are_the_same(&config, workload, 20_000, 32);
    }
}

/// Reads alone begin refreshes and go on with them: under both engines, and on two threads, the same ones.
#[test]
fn reads_refresh_the_same_superblocks_under_both_engines() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd] {
        let refreshed = ["published", "nand"].map(|engine| {
            let mut config = config(scheme, true, engine);
            let still = measured(&config, "randrw:100", &options(20_000, 16, 1)).0;
            assert_eq!((still.flash_pages, still.refresh_runs), (0, 0), "{scheme}");

            config.firmware.refresh_reads = 5;
            are_the_same(&config, "randrw:100", 20_000, 16);
            let read = measured(&config, "randrw:100", &options(20_000, 16, 1)).0;
            (read.refresh_runs, read.refresh_pages, read.flash_pages)
        });
        assert_eq!(refreshed[0], refreshed[1], "{scheme}");
        let (runs, pages, programs) = refreshed[0];
        assert!(
            runs > 1 && pages > runs && programs >= pages,
            "{refreshed:?}"
        );
    }
}

/// Few entries of the mapping table are in DRAM: misses, evictions and collections of translation pages are the same ones
/// under both engines, and on two threads.
#[test]
fn a_mapping_cache_does_the_same_under_both_engines() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd, SchemeKind::Opt] {
        let counted = ["published", "nand"].map(|engine| {
            let mut config = config(scheme, true, engine);
            config.firmware.mapping_cache_bytes = 4096;
            are_the_same(&config, "randrw:50", 20_000, 16);
            let run = measured(&config, "randrw:50", &options(20_000, 16, 1)).0;
            (run.mapping, run.metadata_pages, run.flash_pages)
        });
        assert_eq!(counted[0], counted[1], "{scheme}");
        let (mapping, metadata, flash) = &counted[0];
        assert!(mapping.cache_misses > 10_000 && mapping.table_reads > 5_000);
        assert!(mapping.table_pages > 1_000 && *metadata >= mapping.table_pages);
        assert!(flash > metadata && mapping.cache_peak_bytes >= mapping.cache_bytes);
    }
}

/// Without protection commands fill word lines up, under every scheme that permits it; no wait goes round in a circle.
#[test]
fn unprotected_word_lines_are_filled_up_and_end() {
    for scheme in SchemeKind::ALL {
        if scheme.keeps_entries_on_flash() || scheme.uses_hints() {
            continue;
        }
        let mut config = config(scheme, true, "nand");
        word_lines(&mut config);
        config.firmware.power_loss_protection = false;
        // Each command fills a word line, so a small device suffices.
        let small = Shape {
            superblocks: 24,
            ..config.geometry.shape()
        };
        let small = Geometry::new(small)
            .and_then(|small| small.with_word_line(config.geometry.word_line()));
        config.geometry = small.unwrap();
        config.firmware.lpns = 10_000;
        for workload in ["randrw:70", "snapshot", "fiu-mail"] {
            are_the_same(&config, workload, 2_000, 8);
        }

        // Pages in turn, and copies of collection that wait for all stores.
        let in_turn = WordLine {
            one_shot: false,
            ..config.geometry.word_line()
        };
        config.geometry = config.geometry.with_word_line(in_turn).unwrap();
        config.firmware.entry = EntrySize::Bytes24;
        are_the_same(&config, "fiu-mail", 2_000, 8);
    }
}

// Coarse and fine steps, cache registers, and limits of suspension, on a device that collects garbage.
#[test]
fn two_steps_and_cache_registers_give_the_same_on_two_threads() {
    for (scheme, workload) in [
        (SchemeKind::None, "randrw:70"),
        (SchemeKind::RemapSsd, "fileserver"),
    ] {
        let mut config = config(scheme, true, "nand");
        word_lines(&mut config);
        config.flash.program_ns = CellTimes::new(&[400_000, 900_000]).unwrap();
        let timing = &mut config.timing;
        (timing.two_step, timing.buffer_units) = (true, 4);
        (timing.cache_read, timing.cache_program) = (true, true);
        timing.cache_busy_ns = 3_000;
        (timing.suspend_ns, timing.suspensions) = (20_000, 4);
        timing.resume_to_suspend_ns = 100_000;
        timing.erase_suspensions = Some(1);
        config.check().unwrap();
        are_the_same(&config, workload, 20_000, 32);
    }
}

/// A die programs 24 pages in 1 ms, of which it needs the data first.
#[test]
fn writes_in_order_run_at_the_speed_of_word_lines() {
    let mut config = config(SchemeKind::None, false, "nand");
    word_lines(&mut config);
    config.link.mib_s = 0;
    let device = Device::format(config.clone()).unwrap();
    let (summary, _) = run_on(device, "seqwrite", &options(20_000, 64, 1));
    let dies = f64::from(config.geometry.dies_total());
    // Four dies share a channel, and the first two units of each die find room in the buffer.
    let unit_ns = 24.0 * 5_000.0 + 800.0 + 1_000_000.0;
    let bound = dies * 24.0 * 4096.0 / 1_048_576.0 * 1e9 / unit_ns;
    let share = summary.bandwidth_mib_s / bound;
    assert!((0.9..1.1).contains(&share), "{share}");
}

#[test]
fn an_open_loop_works_for_itself_between_requests() {
    let open_loop = |engine: &str, bound, rate: &str, host_ns| {
        let mut config = config(SchemeKind::None, false, engine);
        config.host_ns = host_ns;
        let source: NamedWorkload = "randwrite".parse().unwrap();
        let mut device = Device::format(config.clone()).unwrap();
        age(
            &mut device,
            &mut *source
                .source(PAPERS, config.addressable_lpns(), 1, 0)
                .unwrap(),
            &AgingOptions::default(),
        )
        .unwrap();
        let mut pages = source
            .source(PAPERS, config.addressable_lpns(), 2, 1 << 40)
            .unwrap();
        let arrivals: Arrivals = rate.parse().unwrap();
        let mut pages = arrivals.over_workload(&mut *pages, &source, 3).unwrap();
        let options = RunOptions {
            open_loop: true,
            bound,
            host_ns,
            ..options(20_000, 1, 1)
        };
        let mut go_on = |_: &_| ControlFlow::Continue(());
        run(&mut device, &mut pages, &options, &mut go_on).unwrap()
    };
    let engines = ["published", "nand"];
    let [published, nand] = engines.map(|engine| open_loop(engine, None, "rate:2000", 0));
    assert_eq!(published.requests.submitted, nand.requests.submitted);
    let of = |summary: &RunSummary| summary.arrivals.clone().unwrap();
    assert!(of(&nand).backlog_mean <= 1.1 * of(&published).backlog_mean);
    assert!(nand.gc_pages > 0);

    // More arrive than it can do: the backlog grows, with a bound on those in the device too.
    let [published, nand] = engines.map(|engine| open_loop(engine, Some(4), "rate:100000", 0));
    for (ours, other) in [
        (of(&nand).backlog_mean, of(&published).backlog_mean),
        (
            of(&nand).backlog_max as f64,
            of(&published).backlog_max as f64,
        ),
        (
            of(&nand).backlog_end as f64,
            of(&published).backlog_end as f64,
        ),
    ] {
        assert!((0.9..1.1).contains(&(ours / other)), "{ours} for {other}");
    }
    // Requests that arrive do not wait for the host.
    let late = open_loop("nand", Some(4), "rate:100000", 1_000_000);
    assert_eq!(late.requests_per_s, nand.requests_per_s);
}

#[test]
fn a_run_says_what_its_requests_waited_for_and_what_was_busy() {
    let mut config = config(SchemeKind::None, false, "nand");
    tlc(&mut config);
    let (summary, _) = measured(&config, "randrw:70", &options(40_000, 32, 2));
    let is_near = |a: f64, b: f64, by: f64| (a / b - 1.0).abs() < by;

    for (causes, latency) in [
        (&summary.latency_causes_us, &summary.latency_us),
        (&summary.read_latency_causes_us, &summary.read_latency_us),
    ] {
        let Some(causes) = causes else {
            panic!("{summary:?}")
        };
        let sum = causes.queue
            + causes.collection
            + causes.array
            + causes.transfer
            + causes.channel
            + causes.suspension
            + causes.ordering
            + causes.nvram
            + causes.controller
            + causes.retry;
        assert!(is_near(sum, causes.total, 1e-9), "{causes:?}");
        // The distribution has three digits.
        assert!(
            is_near(causes.total, latency.mean, 1e-3),
            "{causes:?} {latency:?}"
        );
        assert!(causes.collection > 0.0 && causes.suspension > 0.0);
    }

    let used = summary.utilisation.expect("this engine knows it");
    let states = used.dies_reading
        + used.dies_programming
        + used.dies_erasing
        + used.dies_suspending
        + used.dies_transferring
        + used.dies_waiting;
    let purposes = used.dies_for_host
        + used.dies_for_collection
        + used.dies_for_metadata
        + used.dies_suspending;
    assert!(is_near(states, used.dies, 1e-9), "{used:?}");
    assert!(is_near(purposes, used.dies, 1e-9), "{used:?}");
    // Planes work while their die does; one read uses a plane.
    let arrays = used.dies_reading + used.dies_programming + used.dies_erasing;
    assert!(used.planes > 0.0 && used.planes <= arrays, "{used:?}");
    assert!(used.dies < 1.0 && used.channels < 1.0 && used.channels > 0.0);
    assert!(used.program_suspensions > 0 && used.erase_suspensions > 0);

    let (summary, _) = measured(
        &self::config(SchemeKind::None, false, "published"),
        "randrw:70",
        &options(4_000, 32, 1),
    );
    assert!(summary.utilisation.is_none() && summary.latency_causes_us.is_none());
    assert!(summary.read_errors.is_none());
}

// Every page needs one retry: what the reads of the run have in common. The same again: counts are of each run alone.
#[test]
fn a_run_says_what_its_bit_errors_needed() {
    let mut config = config(SchemeKind::None, false, "nand");
    tlc(&mut config);
    let few = options(4_000, 8, 1);
    let (summary, _) = measured(&config, "randread", &few);
    assert!(summary.read_errors.is_none(), "flash has no errors");

    config.errors.rate = 0.01;
    config.errors.retry_rates = vec![0.02, 0.04];
    config.errors.retry_ns = 70_000;
    let (_, device) = measured(&config, "randread", &few);
    let (summary, _) = run_on(device, "randread", &options(4_000, 8, 2));
    let found = summary.read_errors.expect("flash has errors");
    assert_eq!(found.by_retries, [0, 4_000, 0]);
    assert_eq!((found.soft, found.uncorrectable), (0, 0));
    assert_eq!(found.retries_per_read, 1.0);
    let causes = summary.read_latency_causes_us.unwrap();
    assert!((70.0..71.0).contains(&causes.retry), "{causes:?}");
}

// A third of the pages of old data cannot be read. Those that collection moves are lost, and new data can be read.
#[test]
fn what_nothing_corrects_fails_alike_on_two_threads() {
    let mut config = config(SchemeKind::RemapSsd, true, "nand");
    tlc(&mut config);
    config.errors.rate = 0.002;
    config.errors.retention = 1.0;
    config.errors.age_days = 2.0;
    config.errors.spread = 0.5;
    config.errors.retry_rates = vec![0.01, 0.012];
    config.errors.retry_ns = 70_000;
    are_the_same(&config, "randrw:50", 20_000, 16);

    let (summary, device) = measured(&config, "randrw:50", &options(20_000, 16, 1));
    let refused = summary.requests.refused["unrecovered read error"];
    let found = summary.read_errors.expect("flash has errors");
    assert!(refused > 100 && found.by_retries[0] > refused, "{found:?}");
    assert!(
        found.uncorrectable > found.lost && found.lost > 0 && found.by_retries[2] > 0,
        "{found:?}"
    );
    device.ftl().check().unwrap();

    // A page that cannot be read is not served.
    config.errors.rate = 0.5;
    let (summary, _) = measured(&config, "randread", &options(1_000, 16, 1));
    let refused: u64 = summary.requests.refused.values().sum();
    assert_eq!(refused, summary.requests.submitted);
    assert_eq!((summary.bandwidth_mib_s, summary.iops), (0.0, 0.0));
    let remarks = remap_ssd_sim::report::remarks(&[summary]);
    assert!(remarks[0].contains("1,000 of 1,000"), "{remarks:?}");
}

// The firmware deals pages to dies in turn, so one copy in as many as there are dies stays where it was.
#[test]
fn few_copies_stay_on_their_dies() {
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd] {
        let mut config = config(scheme, false, "nand");
        tlc(&mut config);
        config.timing.copybacks = 2;
        are_the_same(&config, "randrw:30", 10_000, 16);
        let (summary, _) = measured(&config, "randwrite", &options(40_000, 16, 2));
        let copybacks = summary.utilisation.unwrap().copybacks.unwrap();
        let copies = summary.gc_pages as f64;
        let dies = f64::from(config.geometry.dies_total());
        let share = copybacks as f64 * dies / copies;
        assert!((0.5..1.5).contains(&share), "{copybacks} of {copies}");
    }
}

#[test]
fn a_timeline_has_reads_inside_a_suspended_erase() {
    let mut config = config(SchemeKind::None, false, "nand");
    tlc(&mut config);
    let mut spec = RunSpec::new(config.clone(), "randrw:70".parse().unwrap());
    spec.length = Length::Pages(20_000);
    spec.warm_up = 0.0;
    spec.timeline = Some("100ms+500ms".parse().unwrap());
    let perform =
        |spec: &RunSpec| spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()));
    let timeline = perform(&spec).unwrap().timeline.unwrap();

    assert_eq!((timeline.from, timeline.until), (100_000_000, 600_000_000));
    let erase = Some(Activity::Erase);
    let is_inside =
        |one: &&DieInterval| one.suspended == erase && one.activity == Activity::HostRead;
    let read = timeline.intervals.iter().find(is_inside).unwrap();
    let of_die = timeline.intervals.iter().filter(|one| one.die == read.die);
    let (before, after): (Vec<_>, Vec<_>) = of_die.partition(|one| one.until <= read.from);
    let is_erase = |one: &&&DieInterval| one.activity == Activity::Erase;
    let erased = (
        before.iter().rev().find(is_erase),
        after.iter().find(is_erase),
    );
    assert!(
        matches!(erased, (Some(_), Some(_))),
        "it goes on afterwards: {read:?}"
    );

    config.timing = Default::default();
    config.flash.read_ns = CellTimes::flat(50_000);
    config.flash.program_ns = CellTimes::flat(500_000);
    spec = RunSpec {
        timeline: Some(Default::default()),
        ..RunSpec::new(config, "randrw:70".parse().unwrap())
    };
    let refused = perform(&spec).unwrap_err().to_string();
    assert!(refused.contains("timing.engine"), "{refused}");
}
