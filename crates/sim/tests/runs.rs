//! Runs and aging on small devices: what is counted, how long it takes, and what is an error.

use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::{Media, Page};
use remap_ssd_sim::aging::{AgingError, AgingOptions, Fill, age};
use remap_ssd_sim::run::{RunError, RunOptions, run};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use std::ops::ControlFlow;

/// Some pages, and then no more.
struct Fixed(Vec<HostPage>);

impl Source for Fixed {
    fn fill(&mut self, out: &mut Vec<HostPage>, _want: usize) -> Result<bool, SourceError> {
        let some = !self.0.is_empty();
        out.append(&mut self.0);
        Ok(some)
    }
}

/// The same content to the same page for ever: nothing is programmed.
struct Same;

impl Source for Same {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        out.extend((0..want).map(|_| page(PageKind::Write, 0, true)));
        Ok(true)
    }
}

fn page(kind: PageKind, lpn: u32, last: bool) -> HostPage {
    HostPage {
        at_ns: 0,
        content: u64::from(lpn) + 1,
        lpn: Lpn(lpn),
        kind,
        last,
    }
}

fn writes(lpns: std::ops::Range<u32>) -> Vec<HostPage> {
    lpns.map(|lpn| page(PageKind::Write, lpn, true)).collect()
}

fn small(scheme: SchemeKind) -> DeviceConfig {
    let mut config = DeviceConfig::preset("fast21-32g").unwrap();
    config.firmware.scheme = scheme;
    config.firmware.log_bytes = config
        .firmware
        .log_bytes
        .max(config.firmware.tables_bytes(&config.geometry));
    config.scale(1.0 / 64.0).unwrap()
}

fn device(scheme: SchemeKind) -> Device {
    Device::format(small(scheme)).unwrap()
}

fn workload(device: &Device, content: ContentModel, seed: u64) -> Workload {
    workload_on(device.config().addressable_lpns(), content, seed)
}

fn workload_on(addressable: u32, content: ContentModel, seed: u64) -> Workload {
    Workload::new(WorkloadConfig {
        pattern: Pattern::Random,
        read_percent: 0,
        request_pages: 1,
        content,
        addressable,
        seed,
        content_base: 0,
    })
    .unwrap()
}

const PAPERS: ContentModel = ContentModel::Papers {
    duplicate_ratio: 0.3,
    exponent: 0.2,
};

fn options(pages: u64, queue_depth: u32) -> RunOptions {
    RunOptions {
        pages: Some(pages),
        queue_depth,
        ..RunOptions::default()
    }
}

fn go(
    device: &mut Device,
    source: &mut dyn Source,
    options: &RunOptions,
) -> Result<RunSummary, RunError> {
    run(device, source, options, &mut |_| ControlFlow::Continue(()))
}

// 500 us a program, 16 dies, and about 1 us of link: one at a time is 501 us each.
#[test]
fn a_queue_of_one_waits_for_each_write_and_a_deeper_one_overlaps_them() {
    let one = go(
        &mut device(SchemeKind::None),
        &mut Fixed(writes(0..200)),
        &options(200, 1),
    )
    .unwrap();
    assert!(
        (501.0..504.0).contains(&one.latency_us.p50),
        "{:?}",
        one.latency_us
    );
    assert!(
        (0.100..0.103).contains(&one.seconds_simulated),
        "{}",
        one.seconds_simulated
    );
    let many = go(
        &mut device(SchemeKind::None),
        &mut Fixed(writes(0..1600)),
        &options(1600, 16),
    )
    .unwrap();
    assert!(
        (13.0..16.5).contains(&(many.iops / one.iops)),
        "{} {}",
        many.iops,
        one.iops
    );
}

#[test]
fn a_duplicate_costs_a_hash_and_an_entry() {
    let mut device = device(SchemeKind::RemapSsd);
    let same = |lpn| HostPage {
        content: 7,
        ..page(PageKind::Write, lpn, true)
    };
    go(&mut device, &mut Fixed(vec![same(0)]), &options(1, 1)).unwrap();
    let hits = go(
        &mut device,
        &mut Fixed((1..11).map(same).collect()),
        &options(10, 1),
    )
    .unwrap();
    assert_eq!(
        (
            hits.dedup_hits,
            hits.remaps,
            hits.host_programs,
            hits.flash_pages
        ),
        (10, 10, 0, 0)
    );
    // 1 us command + 1.2 us link + 32 us hash + 125 ns entry.
    assert!(
        (34.3..34.6).contains(&hits.latency_us.p50),
        "{:?}",
        hits.latency_us
    );
    assert_eq!(hits.write_amplification, 0.0);
    assert!(
        hits.bandwidth_mib_s > 100.0,
        "remapped pages count as served: {}",
        hits.bandwidth_mib_s
    );
}

#[test]
fn the_latency_of_a_request_is_that_of_its_last_page() {
    let mut device = device(SchemeKind::None);
    // 33 pages on 16 dies: one die gets three.
    let mut pages = writes(0..33);
    pages
        .iter_mut()
        .for_each(|page| page.last = page.lpn == Lpn(32));
    let summary = go(&mut device, &mut Fixed(pages), &options(33, 1)).unwrap();
    assert_eq!(summary.requests.submitted, 1);
    assert!(summary.latency_us.max >= 1500.0, "{:?}", summary.latency_us);
    assert_eq!(summary.host_pages, 33);
}

#[test]
fn every_request_is_accounted_for() {
    let mut device = device(SchemeKind::RemapSsd);
    let outside = device.config().firmware.lpns;
    let mut pages = writes(0..100);
    pages.extend((0..50).map(|lpn| page(PageKind::Read, lpn, true)));
    pages.extend((0..30).map(|lpn| HostPage {
        content: 1000 + u64::from(lpn),
        ..page(PageKind::ReadModifyWrite, lpn, true)
    }));
    pages.extend((0..20).map(|lpn| page(PageKind::Trim, lpn, true)));
    pages.push(page(PageKind::Read, outside, true));
    let summary = go(&mut device, &mut Fixed(pages), &RunOptions::default()).unwrap();
    let requests = &summary.requests;
    assert_eq!(
        (requests.submitted, requests.writes, requests.reads),
        (201, 100, 50)
    );
    assert_eq!((requests.read_modify_writes, requests.trims), (30, 20));
    assert_eq!(requests.refused.values().sum::<u64>(), 1);
    assert_eq!(summary.host_pages, 130);
}

/// Pages of one request: the last one ends it.
fn request(kind: PageKind, lpns: std::ops::Range<u32>) -> Vec<HostPage> {
    let last = lpns.end - 1;
    lpns.map(|lpn| page(kind, lpn, lpn == last)).collect()
}

#[test]
fn a_request_that_deallocates_adjacent_pages_is_one_command_and_one_record() {
    let mut device = device(SchemeKind::None);
    go(
        &mut device,
        &mut Fixed(writes(0..1000)),
        &RunOptions::default(),
    )
    .unwrap();
    let before = device.ftl().stats();
    let mut pages = request(PageKind::Trim, 0..500);
    pages.extend(request(PageKind::Trim, 600..900));
    // Not adjacent: two records.
    pages.extend([
        page(PageKind::Trim, 950, false),
        page(PageKind::Trim, 949, true),
    ]);
    let summary = go(&mut device, &mut Fixed(pages), &RunOptions::default()).unwrap();
    assert_eq!(summary.requests.trims, 3);
    assert_eq!((device.ftl().stats() - before).host_deallocations, 802);
    assert_eq!(summary.nvram_bytes_written, 4 * 16);
}

#[test]
fn a_run_that_has_enough_pages_still_ends_the_request_it_is_in() {
    let mut device = device(SchemeKind::None);
    let pages: Vec<HostPage> = (0..10)
        .flat_map(|_| request(PageKind::Write, 0..5000))
        .collect();
    let summary = go(&mut device, &mut Fixed(pages), &options(100, 4)).unwrap();
    assert_eq!((summary.requests.submitted, summary.host_pages), (1, 5000));
}

#[test]
fn a_read_modify_write_reads_before_it_writes() {
    let mut device = device(SchemeKind::None);
    go(&mut device, &mut Fixed(writes(0..16)), &options(16, 16)).unwrap();
    let change = HostPage {
        content: 99,
        ..page(PageKind::ReadModifyWrite, 3, true)
    };
    let summary = go(&mut device, &mut Fixed(vec![change]), &options(1, 1)).unwrap();
    assert!(
        (551.0..555.0).contains(&summary.latency_us.max),
        "{:?}",
        summary.latency_us
    );
}

#[test]
fn an_unmapped_read_costs_only_the_link() {
    let mut device = device(SchemeKind::None);
    let summary = go(
        &mut device,
        &mut Fixed(vec![page(PageKind::Read, 5, true)]),
        &options(1, 1),
    )
    .unwrap();
    assert!(
        summary.read_latency_us.max < 3.0,
        "{:?}",
        summary.read_latency_us
    );
}

#[test]
fn an_open_loop_keeps_the_times_of_its_requests() {
    let mut device = device(SchemeKind::None);
    let pages = (0..100).map(|n| HostPage {
        at_ns: u64::from(n) * 1_000_000,
        ..page(PageKind::Write, n, true)
    });
    let options = RunOptions {
        open_loop: true,
        ..RunOptions::default()
    };
    let summary = go(&mut device, &mut Fixed(pages.collect()), &options).unwrap();
    assert!(
        (0.0994..0.0997).contains(&summary.seconds_simulated),
        "{}",
        summary.seconds_simulated
    );
    assert!(summary.latency_us.p50 < 505.0, "{:?}", summary.latency_us);
}

#[test]
fn a_flush_waits_for_what_came_before_it_and_what_follows_waits_for_it() {
    let seconds = |pages: Vec<HostPage>| {
        let summary = go(
            &mut device(SchemeKind::None),
            &mut Fixed(pages),
            &options(1000, 32),
        )
        .unwrap();
        (summary.seconds_simulated, summary.requests.flushes)
    };
    let flushed: Vec<HostPage> = (0..3)
        .flat_map(|n| [writes(n..n + 1), vec![page(PageKind::Flush, 0, true)]].concat())
        .collect();
    // A program takes half a millisecond, and three dies are as fast as one; the superblock's head
    // comes before the first.
    let (together, one_by_one) = (seconds(writes(0..3)), seconds(flushed));
    assert!((0.0010..0.0011).contains(&together.0), "{together:?}");
    assert!((0.0020..0.0021).contains(&one_by_one.0), "{one_by_one:?}");
    assert_eq!((together.1, one_by_one.1), (0, 3));
}

#[test]
fn a_run_stops_at_a_limit_between_requests() {
    let mut pages = writes(0..100);
    pages
        .iter_mut()
        .for_each(|page| page.last = page.lpn.0 % 10 == 9);
    let summary = go(
        &mut device(SchemeKind::None),
        &mut Fixed(pages),
        &options(25, 4),
    )
    .unwrap();
    assert_eq!((summary.host_pages, summary.requests.submitted), (30, 3));
}

#[test]
fn a_run_without_requests_or_with_half_a_request_is_an_error() {
    let nothing = go(
        &mut device(SchemeKind::None),
        &mut Fixed(vec![]),
        &RunOptions::default(),
    );
    assert!(matches!(nothing, Err(RunError::Nothing)));
    let half = vec![page(PageKind::Write, 1, false)];
    let unfinished = go(
        &mut device(SchemeKind::None),
        &mut Fixed(half),
        &RunOptions::default(),
    );
    assert!(matches!(unfinished, Err(RunError::Unfinished)));
}

#[test]
fn the_caller_can_stop_a_run() {
    let mut device = device(SchemeKind::None);
    let mut source = workload(&device, ContentModel::Unique, 1);
    let mut told = 0;
    let stopped = run(
        &mut device,
        &mut source,
        &RunOptions::default(),
        &mut |progress| {
            told += 1;
            assert!(progress.pages > 0 && progress.pages_total.is_none());
            if told < 3 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    );
    assert!(matches!(stopped, Err(RunError::Stopped)));
    assert_eq!(told, 3);
}

fn aged_run(scheme: SchemeKind, seed: u64) -> RunSummary {
    let mut device = device(scheme);
    let mut fill = workload(&device, PAPERS, seed);
    age(
        &mut device,
        &mut fill,
        &AgingOptions {
            seed,
            ..AgingOptions::default()
        },
    )
    .unwrap();
    let mut source = workload(&device, PAPERS, seed + 1);
    go(&mut device, &mut source, &options(100_000, 32)).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_summary_under_every_scheme() {
    for scheme in SchemeKind::ALL {
        let text = |seed| {
            let mut summary = aged_run(scheme, seed);
            summary.wall_s = 0.0;
            serde_json::to_string(&summary).unwrap()
        };
        let first = text(1);
        assert_eq!(first, text(1), "{scheme}");
        assert_ne!(first, text(2), "{scheme}");
    }
}

#[test]
fn the_parts_of_a_summary_add_up() {
    for scheme in SchemeKind::ALL {
        let summary = aged_run(scheme, 3);
        assert_eq!(summary.scheme, scheme.name());
        assert_eq!(summary.host_pages, 100_000);
        assert_eq!(
            summary.flash_pages,
            summary.host_programs + summary.gc_pages + summary.metadata_pages,
            "{scheme}"
        );
        assert!(
            (summary.write_amplification - summary.flash_pages as f64 / 100_000.0).abs() < 1e-12
        );
        assert!(
            summary.gc_runs > 0 && summary.erases > 0 && summary.gc_pages > 0,
            "{scheme}"
        );
        assert!((summary.iops * summary.seconds_simulated - 100_000.0).abs() < 1.0);
        assert!((summary.bandwidth_mib_s * 256.0 - summary.iops).abs() < 1e-3);
        let latency = &summary.latency_us;
        assert!(
            latency.p50 <= latency.p90
                && latency.p90 <= latency.p99
                && latency.p9999 <= latency.max
        );
        let samples = &summary.samples;
        assert!(
            samples.windows(2).all(|pair| pair[0].at_s < pair[1].at_s),
            "{scheme}"
        );
        assert!(
            samples.len() > 10 && samples.len() <= 400,
            "{}",
            samples.len()
        );
        assert!((samples.last().unwrap().at_s - summary.seconds_simulated).abs() < 1e-6);
        assert!((summary.latency_cdf.last().unwrap().1 - 1.0).abs() < 1e-9);
        assert!(summary.lifetime_years > 0.0 && summary.nvram_life_years > 0.0);
    }
}

#[test]
fn a_device_filled_whole_has_every_page_mapped_and_no_other() {
    let mut device = device(SchemeKind::None);
    let pages = device.config().addressable_lpns() * 9 / 10;
    let options = AgingOptions {
        fill: Fill::Whole(pages),
        ..AgingOptions::default()
    };
    let mut fill = workload_on(pages, ContentModel::Unique, 1);
    let report = age(&mut device, &mut fill, &options).unwrap();
    assert!(
        report.filled > u64::from(pages) && device.ftl().stats().gc_runs > 0,
        "{report:?}"
    );
    let lpns = device.config().firmware.lpns;
    let mapped = (0..lpns)
        .filter(|lpn| device.untimed(|ftl| !matches!(ftl.read(Lpn(*lpn)), Ok(Page::Zeroes))));
    assert!(mapped.eq(0..pages));
}

#[test]
fn aging_reaches_the_wanted_state_under_every_scheme() {
    for scheme in SchemeKind::ALL {
        let mut device = device(scheme);
        let mut fill = workload(&device, ContentModel::Unique, 1);
        let report = age(&mut device, &mut fill, &AgingOptions::default()).unwrap();
        assert!(device.ftl().stats().gc_runs > 0, "{scheme}");
        assert_eq!(device.timing().busy_until(), 0, "aging takes no time");
        match scheme {
            SchemeKind::None | SchemeKind::Pebble | SchemeKind::WalSsd => {
                assert_eq!(report.remapped, 0)
            }
            SchemeKind::Opt | SchemeKind::Unsafe => assert!(report.remapped > 0),
            // Its pages are partly empty: they are used before 70 % of their room is valid.
            SchemeKind::LocalFlash => assert!(
                (0.88..=1.0).contains(&report.nvram_used),
                "{scheme}: {report:?}"
            ),
            _ => {
                assert!(
                    (0.88..=1.0).contains(&report.nvram_used),
                    "{scheme}: {report:?}"
                );
                assert!(
                    (0.6..=0.8).contains(&report.nvram_valid),
                    "{scheme}: {report:?}"
                );
            }
        }
    }
}

#[test]
fn aging_that_gets_nowhere_says_why() {
    let mut one = device(SchemeKind::RemapSsd);
    let error = age(&mut one, &mut Same, &AgingOptions::default()).unwrap_err();
    assert!(matches!(error, AgingError::NeverFull { .. }), "{error}");
    let mut other = device(SchemeKind::None);
    let error = age(
        &mut other,
        &mut Fixed(writes(0..100)),
        &AgingOptions::default(),
    )
    .unwrap_err();
    assert!(matches!(error, AgingError::Ended(_)), "{error}");
}

// 64 pages are copied in at least 4 rounds of 16 dies, or remapped by 64 entries of 16 bytes.
#[test]
fn a_remap_command_is_one_request_of_many_pages() {
    let latency = |scheme, len| {
        let remap = PageKind::Remap {
            source: Lpn(0),
            len,
            relocate: false,
            atomic: false,
        };
        let pages = [
            writes(0..64),
            vec![page(remap, 1000, true), page(PageKind::Read, 1063, true)],
        ]
        .concat();
        let mut device = device(scheme);
        let summary = go(
            &mut device,
            &mut Fixed(pages),
            &RunOptions {
                queue_depth: 1,
                ..RunOptions::default()
            },
        )
        .unwrap();
        let requests = &summary.requests;
        assert_eq!(
            (
                requests.submitted,
                requests.writes,
                requests.reads,
                requests.remaps
            ),
            (66, 64, 1, 1)
        );
        assert_eq!(
            (summary.host_pages, summary.remaps + summary.host_programs),
            (64 + u64::from(len), 64 + u64::from(len))
        );
        assert!((summary.iops * summary.seconds_simulated - f64::from(65 + len)).abs() < 1e-6);
        assert_eq!(
            device.read(u64::MAX / 4, Lpn(1000)).1,
            device.read(u64::MAX / 4, Lpn(0)).1
        );
        summary.remap_latency_us.max
    };
    let (one, many) = (
        latency(SchemeKind::RemapSsd, 1),
        latency(SchemeKind::RemapSsd, 64),
    );
    // The port's turns are taken at submission: some of the stores pass while the command is on the
    // link.
    assert!(
        one < 2.0 && (64.0 * 0.125..12.0).contains(&many),
        "{one} {many}"
    );
    let copied = latency(SchemeKind::None, 64);
    assert!((2200.0..5000.0).contains(&copied), "{copied}");
}

#[test]
fn a_remap_past_the_end_is_refused_and_accounted_for() {
    let mut device = device(SchemeKind::RemapSsd);
    let remap = PageKind::Remap {
        source: Lpn(u32::MAX),
        len: 2,
        relocate: true,
        atomic: false,
    };
    let summary = go(
        &mut device,
        &mut Fixed(vec![page(remap, 0, true)]),
        &RunOptions::default(),
    )
    .unwrap();
    assert_eq!(
        (
            summary.requests.remaps,
            &summary.requests.refused["LBA out of range"]
        ),
        (0, &1)
    );
}

#[test]
fn overwriting_makes_the_state_steady() {
    let mut device = device(SchemeKind::None);
    let mut fill = workload(&device, ContentModel::Unique, 1);
    let options = AgingOptions {
        overwrite: 0.5,
        ..AgingOptions::default()
    };
    let report = age(&mut device, &mut fill, &options).unwrap();
    assert_eq!(
        report.overwritten,
        u64::from(device.config().addressable_lpns()) / 2
    );
}

// What a comparison from a saved device is for: it shows what a comparison shows that ages the
// device itself.
#[test]
fn a_run_from_a_saved_device_shows_what_a_run_without_the_saving_shows() {
    for (scheme, content) in [
        (SchemeKind::RemapSsd, PAPERS),
        (
            SchemeKind::RemapSsd,
            ContentModel::Papers {
                duplicate_ratio: 0.1,
                exponent: 0.2,
            },
        ),
        (SchemeKind::NLog, PAPERS),
    ] {
        let mut aged = device(scheme);
        let mut source = workload(&aged, content, 5);
        age(&mut aged, &mut source, &AgingOptions::default()).unwrap();
        let (mut loaded, _) = Device::recover(
            Media::from_image(&aged.ftl().media().to_image()),
            aged.config().clone(),
        )
        .unwrap();

        let [direct, saved] = [&mut aged, &mut loaded].map(|device| {
            let mut source = workload(device, content, 77);
            go(device, &mut source, &options(200_000, 32)).unwrap()
        });

        let alike = |name: &str, a: f64, b: f64| {
            assert!(
                (a / b - 1.0).abs() < 0.02,
                "{scheme}, {content}: {name} is {a} and {b}"
            );
        };
        assert!(direct.dedup_hits > 50_000, "{}", direct.dedup_hits);
        alike("bandwidth", direct.bandwidth_mib_s, saved.bandwidth_mib_s);
        alike(
            "duplicates found",
            direct.dedup_hits as f64,
            saved.dedup_hits as f64,
        );
        alike(
            "flash programs",
            direct.flash_pages as f64,
            saved.flash_pages as f64,
        );
        println!(
            "{} {} {} {} {} {}",
            direct.bandwidth_mib_s,
            saved.bandwidth_mib_s,
            direct.dedup_hits,
            saved.dedup_hits,
            direct.dedup_missed,
            saved.dedup_missed
        );
    }
}
