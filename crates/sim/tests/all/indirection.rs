//! Runs on devices whose indirection unit is larger than a page.

use remap_ssd_device::{DeviceConfig, SchemeKind, Setting};
use remap_ssd_sim::cores::Cores;
use remap_ssd_sim::study::{Length, RunSpec, Start};
use remap_ssd_sim::summary::RunSummary;
use std::ops::ControlFlow;

/// A small device with units of `unit` pages, and flash pages as large as a unit, or of 64 KiB with the engine `nand`.
fn config(unit: u32, scheme: SchemeKind, is_nand: bool) -> DeviceConfig {
    let bytes = unit * 4096;
    let mut settings = vec![
        format!("geometry.indirection_bytes={bytes}"),
        format!("firmware.scheme={scheme}"),
    ];
    if is_nand {
        let nand = [
            "timing.engine=nand",
            "background.lookup_stalls_dies=false",
            "geometry.page_bytes=65536",
            "flash.transfer_ns=5us",
        ];
        settings.extend(nand.map(str::to_owned));
    } else {
        settings.push(format!("geometry.page_bytes={bytes}"));
    }
    let settings: Vec<Setting> = settings.iter().map(|one| one.parse().unwrap()).collect();
    let preset = DeviceConfig::preset("fast21-32g").unwrap();
    preset.with(&settings).unwrap().scale(1.0 / 64.0).unwrap()
}

fn run_on(config: DeviceConfig, workload: &str, pages: u64, cores: &Cores) -> RunSummary {
    let mut spec = RunSpec::new(config, workload.parse().unwrap());
    spec.length = Length::Pages(pages);
    spec.warm_up = 0.5;
    if let Start::New(new) = &mut spec.start
        && let Some(aging) = &mut new.aging
    {
        aging.overwrite = 0.1;
    }
    let done = spec.perform(cores, &mut |_| ControlFlow::Continue(()));
    let mut summary = done
        .unwrap_or_else(|error| panic!("{workload}: {error}"))
        .summary;
    summary.wall_s = 0.0;
    summary
}

fn on_one_core(config: DeviceConfig, workload: &str, pages: u64) -> RunSummary {
    run_on(config, workload, pages, &Cores::new(0))
}

/// Translation pages count in pages of 4 KiB, as all metadata does.
#[test]
fn a_mapping_cache_works_on_units() {
    let run = |unit: u32| {
        let mut config = config(unit, SchemeKind::RemapSsd, false);
        // Room for as many of the table's entries, of which there is one for each unit.
        config.firmware.mapping_cache_bytes = 16_384 / u64::from(unit);
        on_one_core(config, "randrw:50", 20_000)
    };
    let (pages, units) = (run(1), run(4));
    for (run, unit) in [(&pages, 1), (&units, 4)] {
        let (table, metadata) = (run.mapping.table_pages, run.metadata_pages);
        assert!(table > 0 && table.is_multiple_of(unit), "{table}");
        assert!(table <= metadata, "{table} of {metadata}");
    }
    // A translation page takes a unit, and each write dirties the entry of one: about as many leave, four times as large.
    let ratio = units.mapping.table_pages as f64 / pages.mapping.table_pages as f64;
    assert!((2.0..8.0).contains(&ratio), "{ratio}");
}

/// The run itself checks that requests, pages read and pages written agree with the layer's counts.
#[test]
fn every_workload_runs_on_units_of_any_size() {
    let workloads = [
        "randrw:50,pages=3",
        "zipf:0.99",
        "fileserver",
        "journal",
        "snapshot",
        "ycsb",
        "fiu-mail",
    ];
    for workload in workloads {
        for unit in [2, 16] {
            for is_nand in [false, true] {
                let config = config(unit, SchemeKind::RemapSsd, is_nand);
                let summary = on_one_core(config, workload, 4_000);
                let cost = summary.indirection.expect("a unit larger than a page");
                assert_eq!(cost.unit_bytes, u64::from(unit) * 4096);
                let units = cost.whole_writes + cost.read_modify_writes + cost.copied_units;
                assert!(units > 0, "{workload}: {cost:?}");
                assert!(summary.requests.refused.is_empty(), "{workload}");
            }
        }
    }
}

#[test]
fn two_threads_have_the_results_of_one() {
    for is_nand in [false, true] {
        for workload in ["randrw:30,pages=3", "snapshot"] {
            let config = || config(4, SchemeKind::RemapSsd, is_nand);
            let [one, two] = [0, 1].map(|spare| {
                let summary = run_on(config(), workload, 20_000, &Cores::new(spare));
                serde_json::to_string(&summary).unwrap()
            });
            assert!(one == two, "{workload}: {one}\nand with two threads {two}");
        }
    }
}

#[test]
fn write_amplification_is_bytes_of_flash_for_each_byte_of_the_host() {
    let run = |unit, workload: &str| {
        let mut config = config(unit, SchemeKind::None, false);
        config.firmware.dedup = false;
        on_one_core(config, workload, 24_000)
    };
    let small = run(4, "randwrite");
    let whole = run(4, "randwrite,pages=4");

    // Each write of a page programs a unit.
    let cost = small.indirection.unwrap();
    assert_eq!((cost.whole_writes, cost.read_modify_writes), (0, 24_000));
    assert_eq!(
        (small.host_pages, small.host_programs),
        (24_000, 4 * 24_000)
    );
    let cost = whole.indirection.unwrap();
    assert_eq!((cost.whole_writes, cost.read_modify_writes), (6_000, 0));
    assert_eq!((whole.host_pages, whole.host_programs), (24_000, 24_000));

    for run in [&small, &whole] {
        let bytes = run.flash_pages as f64 / run.host_pages as f64;
        assert_eq!(run.write_amplification, bytes);
    }
    // The same units are written at random, so collection has the same work for each.
    let ratio = small.write_amplification / whole.write_amplification;
    assert!((3.6..4.4).contains(&ratio), "{ratio}");
}

#[test]
fn energy_counts_bytes_that_are_moved() {
    let energy = |unit, workload: &str| {
        let mut config = config(unit, SchemeKind::None, false);
        config.firmware.dedup = false;
        (config.energy.read_nj, config.energy.transfer_nj) = (1_000, 1_000_000);
        let summary = on_one_core(config, workload, 10_000);
        summary.energy.unwrap().joules
    };
    // Each read moves one page of the four that it reads inside the die.
    let joules = energy(4, "randread");
    assert!(
        (joules - 10_000.0 * (4.0 * 1e-6 + 1e-3)).abs() < 1e-6,
        "{joules}"
    );
    let joules = energy(4, "randread,pages=4");
    assert!((joules - 10_000.0 * (1e-6 + 1e-3)).abs() < 1e-6, "{joules}");
}

/// In order, pages of a unit merge in the buffer until the unit leaves, whole. At random they do not meet.
#[test]
fn a_write_buffer_merges_pages_of_a_unit() {
    for protected in [true, false] {
        for is_nand in [false, true] {
            let run = |buffer_bytes, workload: &str| {
                let mut config = config(4, SchemeKind::None, is_nand);
                config.firmware.write_buffer_bytes = buffer_bytes;
                config.firmware.power_loss_protection = protected;
                on_one_core(config, workload, 16_000)
            };
            let plain = run(0, "seqwrite");
            let merged = run(1 << 20, "seqwrite");
            assert_eq!(plain.host_programs, 4 * 16_000);
            let cost = merged.indirection.expect("units of four pages");
            assert_eq!(cost.read_modify_writes + cost.merged_in_buffer, 16_000);
            // The run may begin and end within units.
            assert!(cost.read_modify_writes.abs_diff(4_000) <= 1, "{cost:?}");
            let used = merged.write_buffer.as_ref().expect("a buffer");
            assert!(used.written_back.abs_diff(16_000) <= 256, "{used:?}");
            assert!(merged.host_programs.abs_diff(16_000) <= 256);
            assert!(merged.latency_us.mean < plain.latency_us.mean);

            let scattered = run(1 << 20, "randwrite");
            let cost = scattered.indirection.expect("units of four pages");
            assert!(cost.merged_in_buffer < 160, "{cost:?}");
        }
    }
}
