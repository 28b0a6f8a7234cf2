//! Confidence intervals, steady states and equal starts of whole runs.

use remap_ssd_device::{DeviceConfig, SchemeKind};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::precision::Precision;
use remap_ssd_sim::study::{Length, RunResult, RunSpec, Start};
use remap_ssd_sim::summary::RunSummary;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn spec(scheme: SchemeKind, workload: &str, seed: u64) -> RunSpec {
    let mut config = DeviceConfig::preset("fast21-32g")
        .unwrap()
        .scale(1.0 / 256.0)
        .unwrap();
    config.firmware.scheme = scheme;
    RunSpec {
        seed,
        ..RunSpec::new(config, workload.parse().unwrap())
    }
}

fn perform(spec: &RunSpec) -> RunResult {
    spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// Runs of 200 seeds, on all cores.
fn of_200_seeds(spec: impl Fn(u64) -> RunSpec + Sync) -> Vec<RunResult> {
    let (next, done) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > 200 {
                        return;
                    }
                    let result = perform(&spec(seed));
                    done.lock().unwrap().push((seed, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(seed, _)| *seed);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The truth is the mean of all seeds: its own error is a fourteenth of one run's.
#[test]
fn intervals_of_200_seeds_cover_the_truth_in_95_of_100_runs() {
    let figures = |run: &RunResult| {
        let run = &run.summary;
        let (latency, ci95) = (&run.latency_us, &run.ci95);
        [
            ("bandwidth", run.bandwidth_mib_s, ci95.bandwidth_mib_s),
            ("mean latency", latency.mean, ci95.latency_us.mean),
            ("p99", latency.p99, ci95.latency_us.p99),
            (
                "write amplification",
                run.write_amplification,
                ci95.write_amplification,
            ),
        ]
    };
    for scheme in [SchemeKind::None, SchemeKind::RemapSsd] {
        let runs = of_200_seeds(|seed| spec(scheme, "randwrite", seed));
        let found: Vec<_> = runs.iter().map(figures).collect();
        for figure in 0..found[0].len() {
            let name = found[0][figure].0;
            let values = found.iter().map(|run| run[figure].1);
            let truth = values.sum::<f64>() / found.len() as f64;
            let covers = |run: &&[(&str, f64, f64); 4]| {
                let (_, value, half) = run[figure];
                (value - truth).abs() <= half
            };
            // A transient run has no interval. Noise alone makes 128 of these short runs look like one.
            let intervals = found.iter().filter(|run| run[figure].2.is_finite()).count();
            let covering = found.iter().filter(covers).count();
            let share = covering as f64 / intervals as f64;
            println!("{scheme} {name}: {covering} of {intervals} cover {truth}");
            assert!(intervals >= 60, "{scheme} {name}: {intervals} intervals");
            // Duplicates make a run's total vary less than its batches do: a page that was remapped
            // early is programmed late. Such intervals are wider than they need be.
            let most = if scheme == SchemeKind::None {
                0.975
            } else {
                1.0
            };
            assert!(
                (0.93..=most).contains(&share),
                "{scheme} {name}: {covering} of {intervals}"
            );
        }
    }
}

/// A run that ends when its interval is narrow enough ends a little more often when the spread happens to
/// be small, so fewer intervals cover.
#[test]
fn intervals_of_runs_that_end_when_precise_cover_the_truth_nearly_as_often() {
    let runs = of_200_seeds(|seed| RunSpec {
        length: Length::Precise("wa=1%".parse::<Precision>().unwrap()),
        ..spec(SchemeKind::None, "randwrite", seed)
    });
    let figure = |run: &RunResult| run.summary.write_amplification;
    let truth = runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
    let covers =
        |run: &&RunResult| (figure(run) - truth).abs() <= run.summary.ci95.write_amplification;
    let covering = runs.iter().filter(covers).count();
    assert!((180..=198).contains(&covering), "{covering} of 200");
}

/// Every scheme writes the same pages while it is aged, and moving pages to fill the metadata neither
/// programs nor frees any.
#[test]
fn all_schemes_begin_with_the_same_flash() {
    let state = |scheme| {
        let staged = spec(scheme, "randwrite", 1)
            .stage(&mut |_| ControlFlow::Continue(()))
            .unwrap();
        let ftl = staged.device.ftl();
        let valid: Vec<u32> = ftl
            .superblocks()
            .map(|(sb, _)| ftl.owners(sb).live)
            .collect();
        (ftl.free_superblocks(), valid, staged.aged.unwrap())
    };
    let (free, valid, aged) = state(SchemeKind::None);
    assert_eq!(aged.remapped, 0);
    for scheme in [
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::Opt,
        SchemeKind::RemapSsdX,
    ] {
        let (also_free, also_valid, aged) = state(scheme);
        assert!(aged.remapped > 1000, "{scheme}");
        assert_eq!((also_free, &also_valid), (free, &valid), "{scheme}");
        if scheme == SchemeKind::RemapSsd {
            assert!((0.88..0.95).contains(&aged.nvram_used), "{aged:?}");
            assert!((0.65..0.75).contains(&aged.nvram_valid), "{aged:?}");
        }
    }
}

/// Number of a run's figures that have an interval.
fn intervals(run: &RunSummary) -> usize {
    let json = serde_json::to_string(&run.ci95).unwrap();
    json.matches(':').count() - json.matches(":null").count() - json.matches(":{").count()
}

#[test]
fn a_workload_is_warmed_up_until_it_is_steady_and_a_short_one_is_said_to_be_transient() {
    let steady = perform(&spec(SchemeKind::RemapSsd, "randwrite", 1)).summary;
    assert!(steady.steady.warm_up_pages > 20_000, "{:?}", steady.steady);
    assert_eq!(steady.steady.is_steady, Some(true));

    // The first writes fill the device with contents that later ones find.
    let mut at_once = spec(SchemeKind::RemapSsd, "randwrite", 1);
    at_once.warm_up = 0.0;
    let at_once = perform(&at_once).summary;
    assert_eq!(at_once.steady.warm_up_pages, 0);
    assert_eq!(at_once.steady.is_steady, Some(false));
    // The spread of its batches is a trend, so no figure of it has an interval.
    assert_eq!(intervals(&at_once), 0, "{:?}", at_once.ci95);
    assert!(intervals(&steady) >= 10, "{:?}", steady.ci95);
    assert!(at_once.write_amplification > 1.05 * steady.write_amplification);

    // A device with erased space left is faster than it will be, however evenly.
    let mut new = spec(SchemeKind::None, "randwrite", 1);
    (new.warm_up, new.length) = (0.0, Length::Pages(15_000));
    let Start::New(device) = &mut new.start else {
        unreachable!("the device is new")
    };
    device.aging = None;
    assert_eq!(perform(&new).summary.steady.is_steady, Some(false));

    let mut short = spec(SchemeKind::RemapSsd, "randwrite", 1);
    short.length = Length::Pages(50);
    assert_eq!(perform(&short).summary.steady.is_steady, None);
}

#[test]
fn a_run_ends_when_its_figure_is_as_precise_as_wanted() {
    let run = |precision: &str| {
        let mut spec = spec(SchemeKind::None, "randwrite", 1);
        spec.length = Length::Precise(precision.parse::<Precision>().unwrap());
        perform(&spec).summary
    };
    let (rough, fine) = (run("wa=2%"), run("wa=0.4%"));
    for (run, most) in [(&rough, 0.02), (&fine, 0.004)] {
        let relative = run.ci95.write_amplification / run.write_amplification;
        // The last reading is a little later than the decision.
        assert!(relative < 1.1 * most, "{relative} for {most}");
    }
    assert!(fine.host_pages > 2 * rough.host_pages);
    assert_eq!(rough.steady.is_precise, Some(true));
    assert!(rough.host_pages < 20 * 29_000, "{}", rough.host_pages);

    // Requests of many pages end a run too; half a request would be an error.
    let mut large = spec(SchemeKind::None, "randwrite,pages=32", 1);
    large.length = Length::Precise("wa=2%".parse().unwrap());
    let large = perform(&large).summary;
    assert!(large.host_pages < 40 * 29_000, "{}", large.host_pages);
    assert!((fine.write_amplification / rough.write_amplification - 1.0).abs() < 0.03);

    // One that is not reached within 64 times the pages; none is wanted of other runs.
    let missed = run("wa=0.01%");
    assert_eq!(missed.steady.is_precise, Some(false));
    let usual = perform(&spec(SchemeKind::None, "randwrite", 1)).summary;
    assert_eq!(usual.steady.is_precise, None);

    for text in ["wa", "wa=1", "p99=1%", "wa=0%", "wa=60%"] {
        assert!(text.parse::<Precision>().is_err(), "{text}");
    }
    assert_eq!(
        "wa=0.5%".parse::<Precision>().unwrap().to_string(),
        "wa=0.5%"
    );
}
