//! Garbage collection settles where theory says, and its pool of free superblocks stays where the
//! configuration says.

use remap_ssd_device::{DeviceConfig, SchemeKind, Setting};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::study::{Length, NewDevice, Requests, RunResult, RunSpec, Start};
use remap_ssd_sim::theory::hot_cold::{self, Moved, Skew};
use remap_ssd_sim::theory::{GREEDY, write_amplification, write_amplification_skipping_full};
use remap_ssd_sim::workload::ContentModel;
use std::ops::ControlFlow;

/// Random writes of unique contents to a part of a device.
fn random_writes(
    settings: &[&str],
    scale: f64,
    workload: &str,
    aging: &str,
    writes: u64,
) -> RunSpec {
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
    let mut config = DeviceConfig::preset("fast21-32g")
        .unwrap()
        .with(&settings)
        .unwrap()
        .scale(scale)
        .unwrap();
    config.firmware.scheme = SchemeKind::None;
    config.firmware.dedup = false;

    let mut spec = RunSpec::new(config.clone(), workload.parse().unwrap());
    if let Requests::Workload { content, .. } = &mut spec.requests {
        *content = ContentModel::Unique;
    }
    spec.start = Start::New(Box::new(NewDevice {
        config,
        aging: Some(aging.parse().unwrap()),
        save: None,
    }));
    spec.warm_up = 0.0;
    spec.length = Length::Pages(writes);
    spec
}

fn perform(spec: &RunSpec) -> RunResult {
    spec.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// Mean number of free superblocks in the second half of a run.
fn free(run: &RunResult) -> f64 {
    let samples = &run.summary.samples;
    let late = &samples[samples.len() / 2..];
    let sum: u64 = late.iter().map(|sample| sample.free_superblocks).sum();
    sum as f64 / late.len() as f64
}

#[test]
fn the_pool_of_free_superblocks_stays_at_its_watermark_over_30_fills() {
    let fills = [0, 2, 6, 12, 30].map(|times| {
        let aging = format!("fill=whole,overwrite={times}");
        perform(&random_writes(
            &[],
            1.0 / 64.0,
            "randwrite",
            &aging,
            200_000,
        ))
    });
    let config = &fills[0].config;
    let watermark = f64::from(config.firmware.gc_start(&config.geometry));
    for run in &fills {
        let (free, wa) = (free(run), run.summary.write_amplification);
        assert!(
            (watermark - 3.0..=watermark + 1.0).contains(&free),
            "{free} of {watermark}"
        );
        let settled = fills[4].summary.write_amplification;
        assert!((wa / settled - 1.0).abs() < 0.03, "{wa} and {settled}");
    }
}

/// Random writes to a 256th of a device of one die, which keeps a victim's pages together, with blocks of
/// 64 pages and little space kept free.
fn of_theory(mode: &str, policy: &str, addressable: f64, workload: &str, aging: &str) -> RunSpec {
    let settings = [
        format!("firmware.gc_mode={mode}"),
        format!("firmware.gc_policy={policy}"),
        format!("addressable={addressable}"),
        "geometry.channels=1".into(),
        "geometry.dies=1".into(),
        "geometry.superblocks=2304".into(),
        "geometry.pages_per_block=16384".into(),
        "firmware.lpns=35_200_000".into(),
        "firmware.gc_free=0.02".into(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    random_writes(&settings, 1.0 / 256.0, workload, aging, 300_000)
}

/// Data pages of a superblock, and the share of all but those kept free that is valid.
fn valid_share(run: &RunResult) -> (u32, f64) {
    let (firmware, geometry) = (&run.config.firmware, &run.config.geometry);
    let data_pages = firmware.data_pages(geometry);
    let superblocks = geometry.superblocks() - firmware.gc_start(geometry);
    let total = f64::from(superblocks) * f64::from(data_pages);
    (data_pages, run.config.addressable_lpns() as f64 / total)
}

/// Greedy at once and ahead of need, and the best of ten random blocks and of two; spare space of 5, 20 and 50 %
/// of the data.
#[test]
fn write_amplification_is_what_theory_predicts_from_little_to_much_spare_space() {
    for (mode, policy, draws) in [
        ("published", "greedy", GREEDY),
        ("background", "greedy", GREEDY),
        ("background", "d-choices", 10.0),
        ("background", "d-choices", 2.0),
    ] {
        for addressable in [1.0, 0.875, 0.70] {
            let aging = "fill=whole,overwrite=3";
            let mut spec = of_theory(mode, policy, addressable, "randwrite", aging);
            if let Start::New(new) = &mut spec.start
                && policy == "d-choices"
            {
                new.config.firmware.gc_choices = draws as u32;
            }
            let run = perform(&spec);
            // Pages that are no data, and the rest of each victim, would drain the pool slowly.
            let watermark = f64::from(run.config.firmware.gc_start(&run.config.geometry));
            assert!(
                free(&run) > 0.93 * watermark,
                "{mode} {policy}: {} of {watermark}",
                free(&run)
            );
            let (data_pages, valid) = valid_share(&run);
            let found = run.summary.write_amplification_data;
            let near = |predicted: f64, within: f64| {
                assert!(
                    (found / predicted - 1.0).abs() < within,
                    "{mode} {policy} {draws} {addressable}: {found}, predicted {predicted} for {valid} valid"
                );
            };
            // Superblocks without garbage are not drawn, which matters if two are.
            near(
                write_amplification_skipping_full(data_pages, valid, draws),
                0.02,
            );
            if draws > 2.0 || addressable < 0.8 {
                near(write_amplification(data_pages, valid, draws), 0.02);
            }
        }
    }
}

/// A fifth of the data receives four fifths of the writes; 10 and 50 % of spare space. The experiment has
/// more points, on a larger device.
#[test]
fn write_amplification_of_hot_and_cold_data_is_what_theory_predicts() {
    let skew = Skew {
        hot_data: 0.2,
        hot_writes: 0.8,
    };
    for (mode, policy, draws, moved) in [
        ("published", "greedy", GREEDY, Moved::WithHost),
        ("published", "d-choices", 10.0, Moved::WithHost),
        ("background", "d-choices", 10.0, Moved::Apart),
    ] {
        for addressable in [0.9545, 0.70] {
            let mut spec = of_theory(mode, policy, addressable, "hot:20:80", "fill=whole");
            // Cold pages are overwritten every fourth time.
            spec.warm_up = 16.0;
            let run = perform(&spec);
            let (data_pages, valid) = valid_share(&run);
            let predicted = hot_cold::write_amplification(data_pages, valid, draws, skew, moved);
            let uniform = write_amplification(data_pages, valid, draws);
            let found = run.summary.write_amplification_data;
            assert!(
                (found / predicted - 1.0).abs() < 0.02,
                "{mode} {policy} {addressable}: {found}, predicted {predicted}, without skew {uniform}"
            );
        }
    }
}
