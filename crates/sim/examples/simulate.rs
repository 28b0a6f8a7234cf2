//! Compares schemes under one workload, with the library only.
//!
//! `cargo run --release -p remap-ssd-sim --example simulate`
//!
//! The same seed gives the same figures on every machine, since time is virtual.

use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::device::{DeviceConfig, SchemeKind};
use remap_ssd_sim::report;
use remap_ssd_sim::study::{Length, RunSpec};
use std::{error::Error, ops::ControlFlow};

fn main() -> Result<(), Box<dyn Error>> {
    let mut summaries = Vec::new();
    for scheme in SchemeKind::FAST21 {
        // A 64th of the paper's device. Everything that scales, scales: NVRAM, log, superblocks.
        let mut config = DeviceConfig::preset("fast21-32g")?.scale(1.0 / 64.0)?;
        config.firmware.scheme = scheme;

        // The device is aged as in the paper; the same seed gives every scheme the same requests.
        let mut run = RunSpec::new(config, "zipf:0.9,pages=2".parse()?);
        run.length = Length::Pages(200_000);
        let result = run.perform(&Cores::default(), &mut |_| ControlFlow::Continue(()))?;
        summaries.push(result.summary);
    }
    print!("{}", report::table(&summaries));
    Ok(())
}
