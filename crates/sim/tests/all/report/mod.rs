//! The reports: their contents are complete, correct and well-formed.

mod markup;
mod numbers;
mod tables;

use remap_ssd_sim::device::nand::{Activity, DieInterval};
use remap_ssd_sim::report::{self, Progress, format, metrics};
use remap_ssd_sim::summary::{Accounting, Demotions, Percentiles, RunSummary, Sample};
use remap_ssd_sim::timeline::DieTimeline;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

const SCHEMES: [&str; 5] = ["none", "remap-ssd", "flog", "nlog", "opt"];

/// A synthetic run: slow without remapping, faster the better the scheme, with bursts of GC.
pub fn run(scheme: &str, samples: usize) -> RunSummary {
    let (speed, demoted, gc) = match scheme {
        "none" => (212.0, 0, 2_310_000),
        "remap-ssd" => (655.4, 21_377, 402_113),
        "flog" => (431.9, 3_911, 688_001),
        "nlog" => (390.0, 310_455, 893_555),
        "opt" => (668.2, 1_022, 398_410),
        _ => (300.0, 500, 1_000_000),
    };
    let remaps = if scheme == "none" { 0 } else { 3_066_211 };
    let host_programs = 4_194_304 - remaps;
    let seconds = 60.0;
    let noise = |i: usize| ((i * 7919 + scheme.len() * 131) % 1000) as f64 / 1000.0;
    let samples = (0..samples)
        .map(|i| {
            let burst = i % 37 == scheme.len() % 7;
            Sample {
                at_s: (i + 1) as f64 * seconds / samples as f64,
                bandwidth_mib_s: speed * (0.8 + 0.4 * noise(i)) * if burst { 0.35 } else { 1.0 },
                gc_pages_s: gc as f64 / seconds
                    * (0.5 + noise(i + 5))
                    * if burst { 3.0 } else { 0.8 },
                nvram_used: if scheme == "none" {
                    0.0
                } else {
                    (0.6 + 0.01 * i as f64).min(0.9)
                },
                ..Sample::default()
            }
        })
        .collect();
    let median = 90_000.0 / speed;
    let latency_cdf = (0..2000)
        .map(|i| {
            let fraction = 1.0 - 10f64.powf(-6.0 * f64::from(i) / 1999.0);
            (
                median * (0.3 + (-(1.0 - fraction).ln()).powf(1.6)),
                fraction,
            )
        })
        .chain([(median * 80.0, 1.0)])
        .collect();
    let latency_us = Percentiles {
        count: 1_000_000,
        mean: median * 1.2,
        p50: median,
        p90: median * 3.0,
        p99: median * 11.0,
        p999: median * 22.0,
        p9999: median * 35.0,
        max: median * 80.0,
    };
    let metadata_pages = if scheme == "flog" { 201_337 } else { 40_311 };
    let flash_pages = host_programs + gc + metadata_pages;
    RunSummary {
        scheme: scheme.to_owned(),
        bandwidth_mib_s: speed,
        iops: speed * 256.0,
        write_amplification: flash_pages as f64 / 4_194_304.0,
        host_pages: 4_194_304,
        flash_pages,
        gc_pages: gc,
        remaps: remaps.saturating_sub(demoted),
        demotions: Demotions {
            counter_full: demoted / 4,
            nvram_full: demoted - demoted / 2,
            watermark: demoted / 2 - demoted / 4,
            ..Demotions::default()
        },
        erases: flash_pages / 256,
        seconds_simulated: seconds,
        read_latency_us: latency_us.clone(),
        latency_us,
        host_programs,
        metadata_pages,
        dedup_hits: remaps,
        latency_cdf,
        samples,
        nvram_bytes_written: 49_059_376,
        nvram_life_years: if scheme == "none" {
            f64::INFINITY
        } else {
            812.5
        },
        nvram_used: 0.91,
        nvram_valid: 0.704,
        largest_group_bytes: 81_920,
        p2l_lookup_s: 0.0183,
        gc_runs: 1311,
        erase_mean: 12.25,
        erase_max: 19,
        erase_spread: 11,
        lifetime_years: 6.4,
        requests: Accounting {
            submitted: 4_200_000,
            reads: 5_696,
            writes: 4_194_304,
            ..Accounting::default()
        },
        wall_s: 2.34,
        ..RunSummary::default()
    }
}

fn runs() -> Vec<RunSummary> {
    SCHEMES.iter().map(|scheme| run(scheme, 200)).collect()
}

fn page(runs: &[RunSummary]) -> String {
    report::html(
        runs,
        &[],
        "A title",
        "A subtitle",
        &json!({"channels": 8}),
        42,
        Progress::default(),
    )
}

/// A run without any usable number.
fn broken(value: f64) -> RunSummary {
    let p = Percentiles {
        count: 1_000_000,
        mean: value,
        p50: value,
        p90: value,
        p99: value,
        p999: value,
        p9999: value,
        max: value,
    };
    let sample = Sample {
        at_s: value,
        bandwidth_mib_s: value,
        iops: value,
        gc_pages_s: value,
        write_amplification: value,
        nvram_used: value,
        ..Sample::default()
    };
    RunSummary {
        scheme: "none".to_owned(),
        bandwidth_mib_s: value,
        iops: value,
        write_amplification: value,
        latency_us: p.clone(),
        read_latency_us: p,
        seconds_simulated: value,
        latency_cdf: vec![(value, value), (1.0, value), (value, 0.5)],
        samples: vec![
            sample.clone(),
            Sample {
                at_s: 1.0,
                ..sample
            },
        ],
        nvram_life_years: value,
        nvram_used: value,
        nvram_valid: value,
        p2l_lookup_s: value,
        erase_mean: value,
        lifetime_years: value,
        wall_s: value,
        ..RunSummary::default()
    }
}

/// The SVG elements of a page, parsed.
fn pictures(page: &str) -> Vec<roxmltree::Document<'_>> {
    page.match_indices("<svg")
        .map(|(start, _)| {
            let end = start + page[start..].find("</svg>").expect("the picture ends") + 6;
            roxmltree::Document::parse(&page[start..end]).expect("the picture is well-formed")
        })
        .collect()
}

/// The corners of one line.
fn corners(data: &str) -> Vec<(f64, f64)> {
    let number = |text: &str| text.parse::<f64>().expect("a coordinate is a number");
    data.split(['M', 'L'])
        .filter_map(|point| point.split_once(' '))
        .map(|(x, y)| (number(x), number(y)))
        .collect()
}

/// Edge cases of runs.
fn edges() -> Vec<Vec<RunSummary>> {
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        1e-300,
        f64::MAX,
    ];
    let mut edges: Vec<_> = values
        .map(|value| vec![run("flog", 9), broken(value)])
        .to_vec();
    edges.extend(values.map(|value| vec![broken(value)]));
    let same = RunSummary {
        samples: vec![
            Sample {
                at_s: 1.0,
                bandwidth_mib_s: 5.0,
                ..Sample::default()
            };
            1000
        ],
        latency_cdf: vec![(100.0, 1.0); 3],
        ..run("opt", 0)
    };
    let largest = RunSummary {
        host_pages: u64::MAX,
        flash_pages: u64::MAX,
        gc_pages: u64::MAX / 4,
        remaps: u64::MAX,
        demotions: Demotions {
            counter_full: u64::MAX,
            nvram_full: 1,
            watermark: u64::MAX,
            ..Demotions::default()
        },
        largest_group_bytes: u64::MAX,
        ..run("nlog", 3)
    };
    edges.extend([
        vec![],
        vec![RunSummary::default()],
        vec![run("none", 1)],
        vec![run("flog", 0)],
    ]);
    edges.extend([vec![same.clone()], vec![same.clone(), same], vec![largest]]);
    edges
}

/// The corners of every line on a page.
fn lines(page: &str) -> Vec<Vec<(f64, f64)>> {
    pictures(page)
        .iter()
        .flat_map(|picture| picture.descendants().filter_map(|node| node.attribute("d")))
        .map(corners)
        .collect()
}

#[test]
fn every_scheme_is_in_every_table_and_figure() {
    let page = page(&runs());
    let figures: Vec<_> = page.split("<figure>").skip(1).collect();
    assert_eq!(figures.len(), 8);
    for scheme in SCHEMES {
        assert!(
            page.contains(&format!("</span>{scheme}</th>")),
            "{scheme} has no row"
        );
        for figure in &figures {
            assert!(figure.contains(scheme), "{scheme} is missing in {figure}");
        }
    }
}

#[test]
fn a_run_s_course_is_shown_over_host_pages_or_over_time() {
    // The second run is half as fast: equal length over pages, twice as long over time.
    let mut slow = run("none", 100);
    for sample in &mut slow.samples {
        (sample.at_s, sample.iops) = (2.0 * sample.at_s, 1000.0);
    }
    let mut fast = run("opt", 100);
    fast.samples
        .iter_mut()
        .for_each(|sample| sample.iops = 2000.0);

    let ends = |progress: Progress| {
        let page = report::html(
            &[slow.clone(), fast.clone()],
            &[],
            "",
            "",
            &json!(null),
            1,
            progress,
        );
        let figure = page.split("<figure>").nth(3).unwrap().to_owned();
        assert!(figure.contains("Bandwidth over the run"));
        let ends: Vec<f64> = lines(&figure)
            .iter()
            .filter(|line| line.len() > 2)
            .map(|line| line.last().unwrap().0)
            .collect();
        (figure, ends)
    };

    let (figure, over_pages) = ends(Progress::HostPages);
    assert!(figure.contains("host pages, thousands") && over_pages[0] == over_pages[1]);
    let (figure, over_time) = ends(Progress::Time);
    assert!(figure.contains("virtual time, s") && over_time[0] > 1.5 * over_time[1]);
}

#[test]
fn a_device_that_wears_out_shows_its_capacity_over_writes() {
    let mut worn = run("remap-ssd", 50);
    for (at, sample) in worn.samples.iter_mut().enumerate() {
        sample.written_mib_s = 10_240.0;
        sample.usable_pages = 262_144 * (50 - at as u64 / 2);
    }
    // 600 GiB according to the samples, and as much before.
    worn.wear_out.host_bytes = 1200 << 30;

    let figure_of = |runs: &[RunSummary]| {
        let page = page(runs);
        let figure = page
            .split("<figure>")
            .find(|part| part.contains("Capacity over writes"));
        figure.map(str::to_owned)
    };

    let figure = figure_of(&[worn]).expect("there is a figure");
    assert!(figure.contains("written by the host, TiB") && figure.contains("GiB usable"));
    assert_eq!(figure_of(&[run("remap-ssd", 50)]), None);
}

#[test]
fn the_ideal_is_never_called_the_best() {
    let page = page(&runs());
    let cards = &page[page.find("class=\"cards\"").unwrap()..page.find("id=\"overview\"").unwrap()];
    assert!(
        cards.contains("<dd class=\"value\">remap-ssd</dd>"),
        "{cards}"
    );
    assert!(cards.contains("3.09x"), "{cards}");
}

#[test]
fn a_stack_that_exceeds_its_total_says_so() {
    let mut odd = run("flog", 2);
    assert!(!page(&[odd.clone()]).contains("(parts:"));
    odd.flash_pages /= 2;
    assert!(page(&[odd]).contains("(parts: 0.481)"));
}

#[test]
fn wall_clock_time_does_not_reach_the_page() {
    let slow = RunSummary {
        wall_s: 99.0,
        ..run("flog", 5)
    };
    assert_eq!(page(&[run("flog", 5)]), page(&[slow]));
}

#[test]
fn runs_of_one_scheme_are_told_apart() {
    let runs = [run("flog", 2), run("none", 2), run("flog", 2)];
    assert_eq!(metrics::labels(&runs), ["flog", "none", "flog #2"]);
}
