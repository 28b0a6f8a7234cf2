//! Devices that are aged before a run: the state reached, and the results of a run on it.

use super::*;

/// Always the same content to the same page: nothing is programmed.
struct Same;

impl Source for Same {
    fn fill(&mut self, out: &mut Vec<HostPage>, want: usize) -> Result<bool, SourceError> {
        out.extend((0..want).map(|_| page(PageKind::Write, 0, true)));
        Ok(true)
    }
}

const PAPERS: ContentModel = ContentModel::Papers {
    duplicate_ratio: 0.3,
    exponent: 0.2,
};

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
    let pages = device.config().addressable_units() * 9 / 10;
    let options = AgingOptions {
        fill: Fill::Whole(pages),
        ..AgingOptions::default()
    };
    let mut fill = workload_on(pages.into(), ContentModel::Unique, 1);
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
            // Its pages are partly empty: they are used before 70 % of their space is valid.
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

#[test]
fn overwriting_makes_the_state_steady() {
    let mut device = device(SchemeKind::None);
    let mut fill = workload(&device, ContentModel::Unique, 1);
    let options = AgingOptions {
        overwrite: 0.5,
        ..AgingOptions::default()
    };
    let report = age(&mut device, &mut fill, &options).unwrap();
    assert_eq!(report.overwritten, device.config().addressable_lpns() / 2);
}

// The purpose of a comparison from a saved device: the same results as a comparison that ages the
// device.
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
