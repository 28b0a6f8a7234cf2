//! Garbage collection settles where theory says, and its pool of free superblocks stays where the
//! configuration says.

use remap_ssd_device::{DeviceConfig, SchemeKind, Setting};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::study::{Length, NewDevice, Requests, RunResult, RunSpec, Start};
use remap_ssd_sim::theory::{GREEDY, write_amplification};
use remap_ssd_sim::workload::ContentModel;
use std::ops::ControlFlow;

/// Random writes of unique contents to a 64th of a device.
fn overwritten(settings: &[&str], aging: &str, writes: u64) -> RunResult {
    let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
    let mut config = DeviceConfig::preset("fast21-32g")
        .unwrap()
        .with(&settings)
        .unwrap()
        .scale(1.0 / 64.0)
        .unwrap();
    config.firmware.scheme = SchemeKind::None;
    config.firmware.dedup = false;

    let mut spec = RunSpec::new(config.clone(), "randwrite".parse().unwrap());
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
    let fills = [0, 2, 6, 12, 30]
        .map(|times| overwritten(&[], &format!("fill=whole,overwrite={times}"), 200_000));
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

/// Greedy at once and ahead of need, and the best of ten random blocks; spare space of 5, 20 and 50 %
/// of the data.
#[test]
fn write_amplification_is_what_theory_predicts_from_little_to_much_spare_space() {
    for (mode, policy, draws) in [
        ("published", "greedy", GREEDY),
        ("background", "greedy", GREEDY),
        ("background", "d-choices", 10.0),
    ] {
        for addressable in [1.0, 0.875, 0.70] {
            let settings = [
                &format!("firmware.gc_mode={mode}")[..],
                &format!("firmware.gc_policy={policy}"),
                &format!("addressable={addressable}"),
                "geometry.superblock_dies=1",
                "geometry.pages_per_block=4096",
                "firmware.lpns=35_200_000",
                "firmware.gc_free=0.02",
            ];
            let run = overwritten(&settings, "fill=whole,overwrite=3", 300_000);
            let geometry = &run.config.geometry;
            // Pages that are no data, and the rest of each victim, would drain the pool slowly.
            let watermark = f64::from(run.config.firmware.gc_start(geometry));
            assert!(
                free(&run) > 0.93 * watermark,
                "{mode} {policy}: {} of {watermark}",
                free(&run)
            );
            // A head and a tail in each superblock are no data.
            let data_pages = geometry.pages_per_superblock() - 2;
            let superblocks = f64::from(geometry.superblocks()) - watermark;
            let valid =
                f64::from(run.config.addressable_lpns()) / (superblocks * f64::from(data_pages));
            let predicted = write_amplification(data_pages, valid, draws);
            let found = run.summary.write_amplification_data;
            assert!(
                (found / predicted - 1.0).abs() < 0.02,
                "{mode} {policy} {addressable}: {found}, predicted {predicted} for {valid} valid"
            );
        }
    }
}
