//! Compares two schemes: `cargo run --release -p remap-ssd-study --example compare`.

use remap_ssd_sim::report;
use remap_ssd_study::{Comparison, ComparisonSpec, unfollowed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = ComparisonSpec {
        scheme: vec!["none".parse()?, "remap-ssd".parse()?],
        scale: Some(1.0 / 256.0),
        workload: Some("zipf:0.9".parse()?),
        writes: Some(20_000),
        ..ComparisonSpec::default()
    };
    let measured = Comparison::new(spec, unfollowed())?.measure()?;
    print!("{}", report::table(&measured.summaries()));
    Ok(())
}
