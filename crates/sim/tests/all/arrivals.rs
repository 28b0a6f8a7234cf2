//! Requests that arrive at their own times: the counters, and the times of workloads compared with
//! real excerpts.
//!
//! The excerpts are not part of the project; without them their test prints so and passes.

use remap_ssd_device::{Device, DeviceConfig, HostLpn, Setting};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_sim::arrivals::Arrivals;
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::run::{RunOptions, run};
use remap_ssd_sim::source::{HostPage, PageKind, Source, SourceError};
use remap_ssd_sim::study::{Length, RunSpec, WHOLE_DISK};
use remap_ssd_sim::summary::RunSummary;
use remap_ssd_sim::trace::{TraceOptions, TraceReader};
use remap_ssd_sim::workload::NamedWorkload;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A source of the given pages.
struct Fixed(Vec<HostPage>);

impl Source for Fixed {
    fn fill(&mut self, out: &mut Vec<HostPage>, _want: usize) -> Result<bool, SourceError> {
        let some = !self.0.is_empty();
        out.append(&mut self.0);
        Ok(some)
    }
}

fn measured(source: &mut dyn Source, bound: Option<u32>) -> RunSummary {
    let mut config = DeviceConfig::preset("fast21-32g").unwrap();
    config.firmware.scheme = SchemeKind::None;
    let mut device = Device::format(config.scale(1.0 / 64.0).unwrap()).unwrap();
    let options = RunOptions {
        open_loop: true,
        bound,
        ..RunOptions::default()
    };
    run(&mut device, source, &options, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// Writes of one page each, one per microsecond.
fn writes(count: u32) -> Fixed {
    let page = |lpn: HostLpn| HostPage {
        at_ns: 1000 * lpn.get(),
        content: lpn.get() + 1,
        lpn,
        kind: PageKind::Write,
        last: true,
    };
    Fixed(HostLpn::range(HostLpn::ZERO, count).map(page).collect())
}

/// Pages in SLC mode are folded in the pauses, which programs them again. A warm-up without pauses would end in a state that
/// the measured run leaves.
#[test]
fn a_load_with_pauses_is_warmed_up_with_its_pauses() {
    let settings = [
        "geometry.channels=4",
        "geometry.dies=8",
        "geometry.superblocks=64",
        "geometry.pages_per_block=384",
        "addressable=1",
        "firmware.scheme=none",
        "firmware.lpns=120000",
        "firmware.log_bytes=4MiB",
        "firmware.gc_free=0.05",
        "firmware.slc_share=0.05",
    ];
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
    let config = DeviceConfig::preset("tlc-2t").unwrap();
    let config = config.with(&settings).unwrap();
    let mut spec = RunSpec::new(config, "randwrite".parse().unwrap());
    spec.arrivals = Some("burst:2048:1,bound=32".parse().unwrap());
    spec.length = Length::Pages(240_000);
    let perform = |spec: &RunSpec| {
        let run = spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()));
        run.unwrap().summary
    };

    let short = perform(&spec);
    assert!(short.steady.warm_up_pages >= 300_000, "five rounds");
    assert_eq!(short.steady.is_steady, Some(true));

    spec.length = Length::Pages(720_000);
    let ratio = short.write_amplification / perform(&spec).write_amplification;
    // Every second pause programs more than the others, so the figure of a run depends on which kind it begins and ends with.
    assert!((ratio - 1.0).abs() < 0.005, "{ratio}");
}

/// In a pause the device programs again what the burst before it has written. So parts of a run are alike only if each has as many pauses
/// as bursts.
#[test]
fn a_run_in_bursts_consists_of_whole_bursts_and_so_do_its_rounds() {
    let settings = [
        "geometry.channels=4",
        "geometry.dies=8",
        "geometry.superblocks=64",
        "geometry.pages_per_block=384",
        "addressable=0.5",
        "firmware.scheme=none",
        "firmware.lpns=120000",
        "firmware.log_bytes=4MiB",
        "firmware.gc_free=0.05",
        "firmware.slc_share=0.2",
    ];
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
    let config = DeviceConfig::preset("tlc-2t").unwrap();
    let config = config.with(&settings).unwrap();
    let mut spec = RunSpec::new(config, "seqwrite,pages=4".parse().unwrap());
    // 10,000 pages, a sixth of those addressed.
    spec.arrivals = Some("burst:2500:2,bound=32".parse().unwrap());
    spec.length = Length::Pages(205_000);
    let run = spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()));
    let run = run.unwrap().summary;

    assert_eq!(run.requests.submitted, 21 * 2500);
    assert_eq!(run.steady.warm_up_pages % 10_000, 0);
    assert_eq!(run.steady.is_steady, Some(true));
    assert!(run.ci95.write_amplification < 0.01 * run.write_amplification);
}

// A program takes half a millisecond. One at a time, the eighth write waits for seven others.
#[test]
fn a_response_counts_the_wait_for_a_place_and_a_latency_does_not() {
    let (free, bound) = (
        measured(&mut writes(8), None),
        measured(&mut writes(8), Some(1)),
    );
    let (free_open, bound_open) = (free.arrivals.unwrap(), bound.arrivals.unwrap());
    assert!(free_open.response_us.max < 1100.0, "{free_open:?}");
    assert!(
        (free_open.response_us.max - free.latency_us.max).abs() < 2.0,
        "{free_open:?}"
    );

    assert!(
        bound.latency_us.max < 1100.0 && bound.latency_us.p50 < 510.0,
        "{:?}",
        bound.latency_us
    );
    assert!(bound_open.response_us.max > 7.0 * 500.0, "{bound_open:?}");
    assert_eq!(
        (
            bound_open.bound,
            bound_open.backlog_max,
            bound_open.backlog_end
        ),
        (Some(1), 8, 8)
    );
    assert_eq!(free_open.backlog_max, 8);

    // Little's law: total response time divided by the duration.
    let together = 8.0 * bound_open.response_us.mean / 1e6;
    assert!(
        (bound_open.backlog_mean / (together / bound.seconds_simulated) - 1.0).abs() < 0.01,
        "{bound_open:?}"
    );
}

#[test]
fn a_place_that_is_free_costs_nothing() {
    let spread = |bound| {
        let mut pages = writes(100);
        pages.0.iter_mut().for_each(|page| page.at_ns *= 2000);
        measured(&mut pages, bound)
    };
    let (free, bound) = (spread(None), spread(Some(1)));
    let text = |run: &RunSummary| {
        format!(
            "{:?} {:?}",
            run.latency_us,
            run.arrivals.as_ref().unwrap().response_us
        )
    };
    assert_eq!(text(&free), text(&bound));
    assert_eq!(bound.arrivals.unwrap().backlog_max, 1);
}

#[test]
fn a_device_that_cannot_keep_up_ends_with_a_backlog() {
    // Sixteen dies program 32,000 pages per second.
    let workload: NamedWorkload = "randwrite".parse().unwrap();
    let at = |rate: &str| {
        let mut source = workload
            .source(workload.content_default(), 10_000, 1, 0)
            .unwrap();
        let arrivals: Arrivals = rate.parse().unwrap();
        let mut timed = arrivals.over_workload(&mut *source, &workload, 1).unwrap();
        let mut pages = Vec::new();
        timed.fill(&mut pages, 20_000).unwrap();
        measured(&mut Fixed(pages), None).arrivals.unwrap()
    };
    let (slow, fast) = (at("rate:5000"), at("rate:200000"));
    assert!((slow.offered_per_s / 5000.0 - 1.0).abs() < 0.03, "{slow:?}");
    assert!(
        (fast.offered_per_s / 200_000.0 - 1.0).abs() < 0.03,
        "{fast:?}"
    );
    assert!(
        slow.backlog_end < 100 && fast.backlog_end > 5000,
        "{slow:?} {fast:?}"
    );
    assert!(
        fast.response_us.mean > 20.0 * slow.response_us.mean,
        "{slow:?} {fast:?}"
    );
}

#[test]
fn times_change_nothing_of_what_is_asked_and_belong_to_whole_requests() {
    let workload: NamedWorkload = "fiu-webvm".parse().unwrap();
    let source = || {
        workload
            .source(workload.content_default(), 1 << 22, 7, 0)
            .unwrap()
    };
    let (mut plain, mut timed) = (Vec::new(), Vec::new());
    source().fill(&mut plain, 10_000).unwrap();
    let mut inner = source();
    let mut clock = Arrivals::OWN
        .over_workload(&mut *inner, &workload, 7)
        .unwrap();
    while timed.len() < plain.len() {
        clock.fill(&mut timed, 64).unwrap();
    }
    for (before, after) in plain.iter().zip(&timed) {
        assert_eq!(*before, HostPage { at_ns: 0, ..*after });
    }
    assert!(timed.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));

    let pages: NamedWorkload = "randwrite,pages=4".parse().unwrap();
    let mut inner = pages.source(pages.content_default(), 4000, 1, 0).unwrap();
    let mut timed = Vec::new();
    "rate:100"
        .parse::<Arrivals>()
        .unwrap()
        .over_workload(&mut *inner, &pages, 1)
        .unwrap()
        .fill(&mut timed, 400)
        .unwrap();
    assert!(
        timed
            .chunks(4)
            .all(|request| request.iter().all(|page| page.at_ns == request[0].at_ns))
    );
    assert_ne!(timed[0].at_ns, timed[4].at_ns);
}

#[test]
fn bursts_come_at_once_and_at_regular_times_after_a_pause() {
    let pages: NamedWorkload = "randwrite,pages=2".parse().unwrap();
    let mut inner = pages.source(pages.content_default(), 4000, 1, 0).unwrap();
    let arrivals: Arrivals = "burst:3:0.5,bound=2".parse().unwrap();
    let mut timed = arrivals.over_workload(&mut *inner, &pages, 1).unwrap();
    let mut drawn = Vec::new();
    timed.fill(&mut drawn, 24).unwrap();

    let times: Vec<u64> = drawn.iter().map(|page| page.at_ns).collect();
    let expected = (1..=4).flat_map(|burst| [burst * 500_000_000; 6]);
    assert_eq!(times, expected.collect::<Vec<_>>());

    let run = measured(&mut Fixed(drawn), arrivals.bound);
    let open = run.arrivals.unwrap();
    // All of a burst has ended when the next one comes.
    assert_eq!((open.backlog_max, open.backlog_end), (3, 3));
    assert!(run.seconds_simulated > 2.0, "{}", run.seconds_simulated);
}

#[test]
fn a_workload_without_times_says_which_have_some() {
    let workload: NamedWorkload = "oltp".parse().unwrap();
    let error = Arrivals::OWN.check(&workload).unwrap_err().to_string();
    assert!(
        error.contains("rate:R") && error.contains("fiu-homes"),
        "{error}"
    );
}

// ---- real excerpts ----

/// Bursts of a stream: mean number of requests per burst, mean length of the burst that contains a
/// request, and requests per second.
fn bursts(times: &[u64]) -> [f64; 3] {
    const PAUSE_NS: u64 = 1_000_000;
    let mut lengths = vec![1.0];
    for pair in times.windows(2) {
        if pair[1] - pair[0] > PAUSE_NS {
            lengths.push(1.0)
        } else {
            *lengths.last_mut().unwrap() += 1.0
        }
    }
    let requests = times.len() as f64;
    let squares: f64 = lengths.iter().map(|length| length * length).sum();
    let seconds = (times[times.len() - 1] - times[0]) as f64 / 1e9;
    [
        requests / lengths.len() as f64,
        squares / requests,
        requests / seconds,
    ]
}

fn excerpt(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/traces/fiu-sample")
        .join(name);
    if !path.exists() {
        println!("skipped: the trace excerpt {name} is not here");
    }
    path.exists().then_some(path)
}

#[test]
fn fiu_generators_have_the_bursts_and_the_rate_of_the_excerpts() {
    for (name, file) in [
        ("fiu-homes", "ld-homes-sample.1.blkparse"),
        ("fiu-webvm", "ld-web-vm-sample.blkparse"),
    ] {
        let Some(path) = excerpt(file) else { continue };
        let mut real = Vec::new();
        let mut reader = TraceReader::open(path, None, TraceOptions::new(WHOLE_DISK)).unwrap();
        while reader.fill(&mut real, 1000).unwrap() {}

        let workload: NamedWorkload = name.parse().unwrap();
        let mut inner = workload
            .source(workload.content_default(), 1 << 22, 3, 0)
            .unwrap();
        let mut drawn = Vec::new();
        Arrivals::OWN
            .over_workload(&mut *inner, &workload, 3)
            .unwrap()
            .fill(&mut drawn, 300_000)
            .unwrap();

        let of =
            |pages: &[HostPage]| bursts(&pages.iter().map(|page| page.at_ns).collect::<Vec<_>>());
        let (real, drawn) = (of(&real), of(&drawn));
        println!("{name}: {real:?} and {drawn:?}");
        for (real, drawn) in real.iter().zip(drawn) {
            assert!(
                (drawn / real - 1.0).abs() < 0.1,
                "{name}: {real} and {drawn}"
            );
        }
    }
}

#[test]
fn a_time_beyond_146_years_is_refused() {
    let workload: NamedWorkload = "randwrite".parse().unwrap();
    for (text, fits) in [("rate:1e-7", 100), ("rate:1e-30", 0)] {
        let arrivals: Arrivals = text.parse().unwrap();
        let mut inner = workload
            .source(workload.content_default(), 1 << 12, 3, 0)
            .unwrap();
        let mut timed = arrivals.over_workload(&mut *inner, &workload, 3).unwrap();

        let mut pages = Vec::new();
        if fits > 0 {
            timed.fill(&mut pages, fits).unwrap();
        }
        let error = timed.fill(&mut pages, 1000).unwrap_err().to_string();
        assert!(error.contains("after 146 years"), "{text}: {error}");
    }
}
