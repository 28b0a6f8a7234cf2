//! `bench`: its contract.

use crate::kit::{Words, run};
use std::path::Path;

#[test]
fn the_bench_says_all_it_promises() {
    let set = ["--set", "firmware.log_bytes=41943040"];
    let results = run(&"bench --quick --json".and(&set)).ok().json();

    // A sixteenth of 40 MiB, and the overhead of each superblock.
    let nvram_bytes = results["nvram_bytes"].as_u64().unwrap();
    assert!((40 << 16..41 << 16).contains(&nvram_bytes), "{results}");

    let fields = [
        "page_ops_per_s",
        "page_ops_per_s_no_dedup",
        "programs_per_s",
        "host_pages_per_s",
        "bare_page_ops_per_s",
        "recovery_pages_per_s",
        "nvram_bytes",
        "aging_s",
    ];
    for field in fields {
        assert!(
            results[field].as_f64().is_some_and(|value| value > 0.0),
            "{field}: {results}"
        );
    }
    if cfg!(target_os = "linux") {
        let (full, bare) = (
            results["bytes_per_page"].as_f64().unwrap(),
            results["bytes_per_page_no_dedup"].as_f64().unwrap(),
        );
        assert!(bare > 0.0 && bare < full, "{bare} {full}");
    }

    for (run, moved) in [
        ("run", "gc_pages_per_host_page"),
        ("run_no_dedup", "gc_pages_per_host_page_no_dedup"),
    ] {
        let moved = results[moved].as_f64().unwrap();
        assert_times_of_whole_runs(&results[run], 1.0 + moved);
    }
    let nand = &results["nand"];
    assert!(nand["page_ops_per_s"].as_f64().unwrap() > 0.0, "{nand}");
    let moved = nand["gc_pages_per_host_page"].as_f64().unwrap();
    assert_times_of_whole_runs(&nand["run"], 1.0 + moved);
}

/// Processor time is in nanoseconds, and at most the elapsed time of the same pages.
fn assert_times_of_whole_runs(run: &serde_json::Value, page_ops_per_host_page: f64) {
    let number = |name: &str| run[name].as_f64().unwrap();
    assert!(number("speedup") > 0.0, "{run}");

    // Where the system does not report processor time, there is none.
    if !Path::new("/proc/thread-self/schedstat").exists() {
        return;
    }

    assert!(number("speedup_by_processor_time") > 0.0, "{run}");
    for (name, rate) in [
        ("ns_per_host_page", "page_ops_per_s"),
        ("firmware_ns_per_host_page", "page_ops_per_s_two_threads"),
        ("times_ns_per_host_page", "page_ops_per_s_two_threads"),
    ] {
        // Twice, since collection moves about as many pages as in earlier rounds, not exactly.
        let bound = 2.0 * page_ops_per_host_page / number(rate) * 1e9;
        let is_time = (1.0..bound).contains(&number(name));
        assert!(is_time, "{name} is not from 1 to {bound}: {run}");
    }
}

#[test]
fn the_bench_refuses_to_set_what_it_chooses_and_devices_that_cannot_be() {
    for (setting, word) in [
        ("firmware.dedup=false", "measured on and off"),
        ("firmware.gc_fre=0.1", "gc_free"),
        ("geometry.dies=3", "geometry: channels = 4"),
    ] {
        run(&["bench", "--quick", "--set", setting]).fails_in_one_line(2, &[word]);
    }

    let service = ["bench", "--service", "--quick", "--memory"];
    let set = ["--set", "firmware.gc_free=0.95"];
    run(&[&service[..], &set].concat()).fails_in_one_line(2, &["firmware.gc_free"]);
}

#[test]
fn the_bench_of_the_service_says_all_it_promises() {
    let results = run("bench --service --quick --memory --json").ok().json();
    for device in ["dedup_off", "dedup_on"] {
        let fields = [
            "random_reads_per_s",
            "random_writes_per_s",
            "sequential_read_gib_per_s",
            "copy_ms",
            "remap_ms",
        ];
        for field in fields {
            assert!(
                results[device][field]
                    .as_f64()
                    .is_some_and(|value| value > 0.0),
                "{device} {field}: {results}"
            );
        }
        assert_eq!(
            results[device]["copy_data_pages"], 0,
            "copies program nothing: {results}"
        );
        // Three rounds of a Copy and a Remap of 64 MiB.
        assert_eq!(results[device]["copy_remaps"], 3 * 2 * 16_384);
    }
    let emulated = &results["emulated"];
    let (model, median) = (
        emulated["model_us"].as_f64().unwrap(),
        emulated["emulated_p50_us"].as_f64().unwrap(),
    );
    assert!(
        model > 0.0 && median >= model,
        "nothing is done before the model says so: {results}"
    );
    run("bench --service --scales").fails(2, &["--scales"]);
    run("bench --tls").fails(2, &["--service"]);
}

#[cfg(feature = "tls")]
#[test]
fn the_bench_of_the_service_compares_tls_and_authentication_with_neither() {
    let flags = "bench --service --quick --memory --tls --chap --json";
    let results = run(flags).ok().json();
    let ways = results["ways"].as_array().expect("ways");
    let names: Vec<_> = ways.iter().map(|way| way["name"].as_str()).collect();
    let expected = ["neither", "DH-HMAC-CHAP", "TLS", "both"].map(Some);
    assert_eq!(names, expected);
    for way in ways {
        for field in [
            "random_reads_per_s",
            "sequential_write_gib_per_s",
            "connect_ms",
        ] {
            let is_measured = way[field].as_f64().is_some_and(|value| value > 0.0);
            assert!(is_measured, "{field}: {results}");
        }
    }
    assert_eq!(ways[0]["ratios"], serde_json::json!([1.0, 1.0, 1.0, 1.0]));
}
