//! Runs and aging on small devices: counters, durations, and errors.

mod aged;
mod requests;

use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_media::{Media, Page};
use remap_ssd_sim::aging::{AgingError, AgingOptions, Fill, age};
use remap_ssd_sim::run::{RunError, RunOptions, run};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::workload::{ContentModel, Pattern, Workload, WorkloadConfig};
use std::ops::ControlFlow;

/// A source of the given pages.
struct Fixed(Vec<HostPage>);

impl Source for Fixed {
    fn fill(&mut self, out: &mut Vec<HostPage>, _want: usize) -> Result<bool, SourceError> {
        let some = !self.0.is_empty();
        out.append(&mut self.0);
        Ok(some)
    }
}

fn page(kind: PageKind, lpn: u32, last: bool) -> HostPage {
    HostPage {
        at_ns: 0,
        content: u64::from(lpn) + 1,
        lpn: Lpn(lpn).into(),
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

fn workload_on(addressable: u64, content: ContentModel, seed: u64) -> Workload {
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

// 500 us per program, 16 dies, and about 1 us of link: one at a time is 501 us each.
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

/// Pages of one request: the last one ends it.
fn request(kind: PageKind, lpns: std::ops::Range<u32>) -> Vec<HostPage> {
    let last = lpns.end - 1;
    lpns.map(|lpn| page(kind, lpn, lpn == last)).collect()
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
fn a_run_stops_at_a_limit_between_requests() {
    let mut pages = writes(0..100);
    pages
        .iter_mut()
        .for_each(|page| page.last = page.lpn.get() % 10 == 9);
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
