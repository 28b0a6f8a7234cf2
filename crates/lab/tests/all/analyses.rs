//! Analyses of known results: runs have given figures instead of being executed, and the expected
//! measures are computed by hand from the papers' definitions.

use remap_ssd_lab::{Concluded, Folder, Form, GridRun, Library, Store, Study, built_in};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the conclusions of an experiment whose runs have these results, in this results folder.
fn concluded(
    directory: &Path,
    library: &Library,
    experiment: &str,
    result: impl Fn(&GridRun) -> Value,
) -> Concluded {
    let study = Study::plan(library, &[experiment.to_owned()], Form::Smoke).unwrap();
    let store = Store::open(directory, "test").unwrap();
    for run in &study.planned[0].runs {
        store.save(run, &result(run)).unwrap();
    }
    study.conclude(&store).unwrap().remove(0)
}

/// Returns the measures of an experiment whose runs have these results.
fn measures(experiment: &str, result: impl Fn(&GridRun) -> Value) -> BTreeMap<String, f64> {
    let directory = tempfile::tempdir().unwrap();
    concluded(directory.path(), &built_in(), experiment, result).measures
}

fn assert_near(found: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let ours = found[*name];
        assert!((ours - value).abs() < 1e-9, "{name}: {ours}, not {value}");
    }
}

// 5,000 inserts: with SQLite's own journal in 50 s and 10 pages each, copied by the device in 20 s
// and 4 pages, and without a journal in 10 s and 3 pages.
#[test]
fn sqlite_on_copies_is_compared_with_stock_and_with_no_journal_by_insert() {
    let found = measures("copyless-sqlite", |run| {
        let (seconds, pages, reads) = if run.workload.ends_with("-copyless") {
            (20.0, 20_000, 10_000)
        } else if run.workload.ends_with("-nojournal") {
            (10.0, 15_000, 5_000)
        } else {
            (50.0, 50_000, 0)
        };
        json!({
            "seconds_simulated": seconds, "host_programs": pages,
            "requests": { "reads": reads, "writes": pages, "flushes": 5_000 },
        })
    });

    assert_near(
        &found,
        &[
            ("off_gain_100", 2.5),
            ("full_page_gain_1000", 2.5),
            ("full_over_none_10000", 2.0),
            ("full_gap_ms_100", 2.0),
            ("off_gap_pages_1000", 1.0),
            ("off_gap_reads_1000", 1.0),
            ("off_ms_100 copyless", 4.0),
            ("full_gain", 2.5),
            ("single_gap_change", 1.0),
        ],
    );
}

// Sharing halves the pages of db_bench's large values and saves a fifth of its time; other loads, and other devices, gain less.
#[test]
fn compaction_that_shares_blocks_is_compared_with_stock_by_what_programs_put() {
    let found = measures("remapcom", |run| {
        let best = run.workload.contains("bench-4000") && run.setup == "leveldb";
        let (pages, seconds) = match (run.workload.ends_with("-shared"), best) {
            (false, _) => (200_800, 10.0),
            (true, true) => (100_400, 8.0),
            (true, false) => (180_720, 12.5),
        };
        json!({
            "flash_pages": pages, "seconds_simulated": seconds,
            "requests": { "reads": 1, "writes": 2, "remaps": 3 },
        })
    });

    assert_near(
        &found,
        &[
            ("saved", 0.5),
            ("gain", 1.25),
            ("saved bench-4000", 0.5),
            ("saved ycsb-1000", 0.1),
            ("gain bench-4000-unit-12", 0.8),
            ("wa stock bench-4000", 4.096),
            ("wa shared bench-4000", 2.048),
            ("remaps shared ycsb-4000-cache-2", 3.0),
        ],
    );
}

// An experiment without claims. The device without deduplication has no latencies.
#[test]
fn the_plain_table_has_each_run_with_its_figures_and_a_dash_for_those_it_lacks() {
    let mut library = built_in();
    library.folders.push(Folder {
        name: "mine".into(),
        experiment: r#"
title = "mine"
paper = "fast21"
analysis = "table"
[[runs]]
setup = "a"
scheme = ["none", "opt"]
workload = ["randwrite"]
content = ["papers:0.3"]
gc = ["greedy"]
"#
        .into(),
        expectation: String::new(),
        readme: String::new(),
    });

    let directory = tempfile::tempdir().unwrap();
    let found = concluded(directory.path(), &library, "mine", |run| {
        if run.scheme == "none" {
            json!({ "write_amplification": 2.5, "bandwidth_mib_s": 120, "requests_per_s": 720.0 })
        } else {
            json!({
                "write_amplification": 1.25, "bandwidth_mib_s": 240, "requests_per_s": 1440.0,
                "latency_us": { "p50": 30.0, "p99": 95.0 },
            })
        }
    });

    let expected = "\
| run | WA | MiB/s | requests/s | write p99, us |
| --- | ---: | ---: | ---: | ---: |
| none randwrite papers:0.3 greedy | 2.50 | 120 | 720 | - |
| opt randwrite papers:0.3 greedy | 1.25 | 240 | 1,440 | 95.0 |
";
    let written = std::fs::read_to_string(directory.path().join("mine/table.md")).unwrap();
    assert_eq!(written, expected);
    assert!(found.measures.is_empty() && found.claims.is_empty());
}

// Ten pages with one LPN died after 100 writes each, ten are alive and 20 writes old; five shared
// ones died after 200 writes, 15 are alive. As if all died now, shared pages lived 180 writes, the
// others 60.
#[test]
fn lives_of_shared_pages_are_compared_with_and_without_those_that_are_still_alive() {
    let class = |references: u32, died: u32, lived: u32, alive: u32, age: u32| {
        json!({
            "references": references, "died": died, "lived": lived, "alive": alive,
            "alive_age": age, "lived_shared": 1,
        })
    };
    let found = measures("coldmap-fig2", |_| {
        json!({ "survival": [
            class(0, 2, 100, 3, 50),
            class(1, 8, 900, 7, 150),
            class(2, 3, 600, 14, 2000),
            class(5, 2, 400, 1, 600),
        ] })
    });

    assert_near(
        &found,
        &[
            ("shared_over_single", 2.0),
            ("shared_still_alive", 0.75),
            ("single_still_alive", 0.5),
            ("shared_over_single_with_alive", 3.0),
        ],
    );
}

// Under each workload, deduplication halves collections, amplification and erases, and Coldmap
// saves a half, a quarter and a half of the rest; under TPC-C it saves four fifths of collections.
// Over the whole device, it saves a fifth.
#[test]
fn coldmap_is_compared_with_remap_and_with_the_baseline_in_means_over_its_four_workloads() {
    let found = measures("coldmap-figs5-8", |run| {
        let cold_runs = match run.workload.as_str() {
            "randwrite" => 40,
            "tpcc" => 10,
            _ => 25,
        };
        match (run.scheme.as_str(), run.gc.as_str()) {
            ("none", _) => json!({
                "gc_runs": 100, "iops": 1000.0, "write_amplification": 4.0, "erases": 200,
                "gc_pages": 150, "flash_pages": 200, "gc_zoned_pages": 0,
            }),
            (_, "coldmap") => json!({
                "gc_runs": cold_runs, "iops": 1320.0, "write_amplification": 1.5, "erases": 50,
                "gc_pages": 24, "flash_pages": 96, "gc_zoned_pages": 12,
            }),
            _ => json!({
                "gc_runs": 50, "iops": 1100.0, "write_amplification": 2.0, "erases": 100,
                "gc_pages": 30, "flash_pages": 120, "gc_zoned_pages": 0,
            }),
        }
    });

    assert_near(
        &found,
        &[
            ("gc_coldmap_over_remap tpcc", 0.2),
            ("gc_coldmap_over_none sysbench", 0.25),
            ("gc_remap_over_none", 0.5),
            ("gc_coldmap_over_remap", 0.425),
            ("gc_coldmap_over_none", 0.2125),
            ("gc_coldmap_over_remap_whole", 0.8),
            ("iops_remap_over_none", 1.1),
            ("iops_coldmap_over_remap", 1.2),
            ("wa_coldmap_over_none", 0.375),
            ("wa_coldmap_over_remap_whole", 0.75),
            ("life_remap_over_none", 2.0),
            ("life_coldmap_over_none", 4.0),
            ("none_wa whole", 4.0),
            ("moves_of_remap", 0.25),
            ("shared_share_of_moves", 0.5),
            ("shared_share_of_programs", 0.125),
            ("moves_of_remap_whole", 0.25),
            ("shared_share_of_moves_whole", 0.5),
        ],
    );
}

// Of 100 remaps tried, 20 became copies for two reasons, and 80 wrote 10 bytes of NVRAM each. With
// extents none was demoted, and each wrote 5 bytes.
#[test]
fn layouts_of_small_nvram_are_compared_by_bandwidth_demotions_and_bytes_for_each_remap() {
    let found = measures("ours-small-nvram", |run| match run.scheme.as_str() {
        "opt" => json!({ "bandwidth_mib_s": 200.0 }),
        "remap-ssd-x" => json!({
            "bandwidth_mib_s": 150.0, "remaps": 100, "nvram_bytes_written": 500,
            "demotions": { "no_room": 0 },
        }),
        _ => json!({
            "bandwidth_mib_s": 100.0, "remaps": 80, "nvram_bytes_written": 800,
            "demotions": { "no_room": 15, "too_many": 5 },
        }),
    });

    assert_near(
        &found,
        &[
            ("bandwidth remap-ssd single 10", 0.5),
            ("bandwidth remap-ssd-x runs 20", 0.75),
            ("demoted remap-ssd-lh copies 40", 20.0),
            ("demoted remap-ssd-x single 10", 0.0),
            ("nvram remap-ssd runs 10", 10.0),
            ("nvram remap-ssd-x copies 40", 5.0),
            ("paper_demoted_copies_20", 0.2),
            ("lh_demoted_runs_10", 0.2),
            ("x_demoted_single_10", 0.0),
            ("x_nvram_over_remap_ssd_runs", 0.5),
        ],
    );
}
