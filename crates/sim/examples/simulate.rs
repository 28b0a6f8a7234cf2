//! Simulates one workload on several schemes, with the library only: ages a device, runs, and reads
//! the summary.
//!
//! `cargo run --release -p remap-ssd-sim --example simulate`
//!
//! The same seed gives the same figures on every machine, since time is virtual.

use remap_ssd_sim::aging::{AgingOptions, age};
use remap_ssd_sim::device::{Device, DeviceConfig, SchemeKind};
use remap_ssd_sim::run::{RunOptions, run};
use remap_ssd_sim::workload::{ContentModel, Workload, WorkloadSpec};
use std::error::Error;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn Error>> {
    let spec: WorkloadSpec = "zipf:0.9,pages=2".parse()?;
    let content: ContentModel = "papers:0.3".parse()?;

    println!("scheme     MiB/s     WA  demoted  erases");
    for scheme in [
        SchemeKind::None,
        SchemeKind::RemapSsd,
        SchemeKind::NLog,
        SchemeKind::Opt,
    ] {
        // A 64th of the paper's device. Everything that scales, scales: NVRAM, log, superblocks.
        let mut config = DeviceConfig::preset("fast21-32g")?.scale(1.0 / 64.0)?;
        config.firmware.scheme = scheme;
        let mut device = Device::format(config)?;

        // The same requests for every scheme: the seed determines them.
        let addressable = device.config().addressable_lpns();
        let mut requests = Workload::new(spec.config(content, addressable, 1))?;

        // Full, in garbage collection, and with NVRAM 90 % used, as in the paper. A new device is
        // not representative.
        age(&mut device, &mut requests, &AgingOptions::default())?;

        let options = RunOptions {
            pages: Some(200_000),
            ..RunOptions::default()
        };
        let summary = run(&mut device, &mut requests, &options, &mut |_| {
            ControlFlow::Continue(())
        })?;

        let demoted = summary.demotions.nvram_full
            + summary.demotions.watermark
            + summary.demotions.counter_full;
        println!(
            "{:<9} {:>6.1} {:>6.3} {:>8} {:>7}",
            summary.scheme,
            summary.bandwidth_mib_s,
            summary.write_amplification,
            demoted,
            summary.erases
        );
    }
    Ok(())
}
