//! Traces: real excerpts replayed to the last request, and malformed lines reported.

use crate::kit::{Words, run, run_in};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A real excerpt; these are not part of the project.
fn excerpt(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/traces")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: the trace excerpt {name} is not here");
    None
}

fn replay(path: &Path, more: &[&str]) -> Value {
    let args = [
        &[
            "compare",
            "--json",
            "--scale",
            "1/64",
            "--trace",
            path.to_str().unwrap(),
        ],
        more,
    ]
    .concat();
    run(&args).ok().json()
}

/// Requests of a run by kind: reads, writes, partial writes, deallocations.
fn kinds(run: &Value) -> [u64; 4] {
    ["reads", "writes", "read_modify_writes", "trims"]
        .map(|kind| run["requests"][kind].as_u64().unwrap())
}

/// Aging leaves the same flash under every scheme, so a load without remaps has the same figures.
#[test]
fn without_remaps_all_schemes_agree_on_real_traces() {
    for name in [
        "fiu-sample/ld-homes-sample.1.blkparse",
        "fiu-sample/homes.replay.0",
        "block-nohash/mqsim-tpcc-small.trace.xz",
        "block-nohash/mqsim-wsrch-small.trace.xz",
        "block-nohash/cloudPhysicsIO.vscsi.xz",
    ] {
        let Some(path) = excerpt(name) else { continue };
        let without = ["--dedup", "off", "--aging", "nvram_used=0"];
        let result = replay(&path, &without);
        let runs = result["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 5, "{name}");
        for figure in ["write_amplification", "bandwidth_mib_s"] {
            let of = |run: &Value| run[figure].as_f64().unwrap();
            for run in runs {
                let off = (of(run) / of(&runs[0]) - 1.0).abs();
                assert!(
                    off < 0.005,
                    "{name} {}: {figure} differs by {off}",
                    run["scheme"]
                );
            }
        }
        let remarks = result["remarks"].to_string();
        assert!(
            remarks.contains("Nothing was remapped"),
            "{name}: {remarks}"
        );
    }
}

#[test]
fn every_request_of_every_excerpt_is_served_by_every_scheme() {
    // File, number of requests, and number of reads; the others write.
    let excerpts = [
        ("fiu-sample/ld-homes-sample.1.blkparse", 1_000, 0),
        ("fiu-sample/ld-mail-01-sample.blkparse", 1_000, 984),
        ("fiu-sample/ld-web-vm-sample.blkparse", 1_000, 0),
        ("fiu-sample/homes.replay.0", 1_000, 2),
        ("fiu-sample/mail.replay.0", 122, 107),
        ("block-nohash/mqsim-tpcc-small.trace.xz", 6_999, 4_381),
        ("block-nohash/mqsim-wsrch-small.trace.xz", 24_783, 24_779),
        ("block-nohash/cloudPhysicsIO.vscsi.xz", 113_872, 46_974),
    ];
    for (name, requests, reads) in excerpts {
        let Some(path) = excerpt(name) else { continue };
        let schemes = if requests > 50_000 {
            "none,remap-ssd"
        } else {
            "none,remap-ssd,flog,nlog,opt"
        };
        let result = replay(&path, &["--scheme", schemes]);
        let runs = result["runs"].as_array().unwrap();
        assert_eq!(runs.len(), schemes.split(',').count());
        for run in runs {
            let ended = &run["requests"];
            assert_eq!(ended["submitted"], requests, "{name}");
            assert_eq!(kinds(run).iter().sum::<u64>(), requests, "{name}: {ended}");
            assert!(
                ended["refused"].as_object().unwrap().is_empty(),
                "{name}: {ended}"
            );
            assert_eq!(
                (&ended["skipped"], kinds(run)[0]),
                (&0.into(), reads),
                "{name}"
            );
            let contains = &result["config"]["feed"]["trace"]["contains"];
            let pages = |kind: &str| contains[kind].as_u64().unwrap();
            assert_eq!(
                run["host_pages"],
                pages("writes") + pages("read_modify_writes"),
                "{name}"
            );
        }
    }
}

#[test]
fn the_homes_excerpt_remaps_its_duplicates() {
    let Some(path) = excerpt("fiu-sample/ld-homes-sample.1.blkparse") else {
        return;
    };
    let result = replay(&path, &["--scheme", "remap-ssd"]);
    // 171 writes repeat a content; for some of them it was overwritten, or is at that address
    // already.
    let hits = result["runs"][0]["dedup_hits"].as_u64().unwrap();
    assert!((100..=171).contains(&hits), "{hits}");
    let text = run(&[
        "compare",
        "--scale",
        "1/64",
        "--trace",
        path.to_str().unwrap(),
    ])
    .ok()
    .out;
    assert!(text.contains("1,000 of 1,000 requests served"), "{text}");
}

#[test]
fn a_short_trace_gets_a_small_device() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("t"), lines(100)).unwrap();
    let result = run_in(directory.path(), "compare --trace t --scheme none --json")
        .ok()
        .json();
    let scale = result["config"]["scale"].as_f64().unwrap();
    assert!(scale < 1.0 / 64.0 + 1e-9, "{scale}");
    assert!(
        result["runs"][0]["aging"]["filled"].as_u64().unwrap() > 0,
        "and it is aged"
    );
}

/// Lines of five numbers: time, device, sector, sectors, and 0 for a write.
fn lines(count: u64) -> String {
    (0..count)
        .map(|at| format!("{} 0 {} 8 0\n", at * 1000, at * 8))
        .collect()
}

#[test]
fn a_trace_repeats_with_new_contents_and_goes_on_in_time() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("t"), lines(500)).unwrap();
    let args = "compare --trace t --scale 1/64 --repeat 3 --scheme remap-ssd --json";
    let run = &run_in(directory.path(), args).ok().json()["runs"][0];
    assert_eq!(
        (&run["requests"]["submitted"], &run["dedup_hits"]),
        (&1500.into(), &0.into())
    );
    let open = run_in(directory.path(), &args.and(&["--arrivals", "trace"]))
        .ok()
        .json();
    assert_eq!(open["runs"][0]["requests"]["submitted"], 1500);
    // 3 times 499 us, and what the last writes took.
    let seconds = open["runs"][0]["seconds_simulated"].as_f64().unwrap();
    assert!((0.0015..0.5).contains(&seconds), "{seconds}");
    assert!(
        open["runs"][0]["arrivals"]["response_us"]["mean"]
            .as_f64()
            .unwrap()
            > 0.0,
        "{open}"
    );
    let closed = run_in(directory.path(), args).ok().json();
    assert!(
        closed["runs"][0].get("arrivals").is_none(),
        "a closed loop has no arrivals"
    );
}

#[test]
fn arrivals_show_responses_and_the_backlog() {
    let args = "compare --scale 1/64 --scheme none,remap-ssd --writes 20k --arrivals";
    let slow = run(&args.and(&["rate:100", "--details"])).ok().out;
    for words in [
        "arrivals rate:100",
        "response",
        "backlog",
        "Response from arrival",
    ] {
        assert!(slow.contains(words), "{words}: {slow}");
    }
    let of = |rate: &str| run(&args.and(&[rate, "--json"])).ok().json();
    let number = |result: &serde_json::Value, name: &str| {
        result["runs"][0]["arrivals"][name].as_f64().unwrap()
    };
    let (free, bound) = (of("rate:20000"), of("rate:20000,bound=4"));
    assert_eq!(bound["config"]["arrivals"], "rate:20000,bound=4");
    assert!(
        number(&bound, "backlog_max") >= number(&free, "backlog_max") / 2.0,
        "{bound}"
    );
    let samples = bound["runs"][0]["samples"].as_array().unwrap();
    assert!(
        samples
            .iter()
            .any(|sample| sample["backlog"].as_u64() > Some(4)),
        "what waits in front is seen"
    );
}

#[test]
fn a_malformed_line_is_named_with_file_and_reason() {
    let directory = tempfile::tempdir().unwrap();
    let text = lines(20) + "twelve 0 5 8 0\n" + &lines(3);
    fs::write(directory.path().join("bad.trace"), text).unwrap();
    let args = ["compare", "--scale", "1/64", "--trace", "bad.trace"];
    run_in(directory.path(), &args).fails_in_one_line(1, &["bad.trace:21: "]);
    let skipped = run_in(directory.path(), &[&args[..], &["--skip-bad"]].concat()).ok();
    assert!(
        skipped.out.contains("23 of 23 requests served"),
        "{}",
        skipped.out
    );
    assert!(
        skipped.out.contains("1 malformed records skipped"),
        "{}",
        skipped.out
    );
}

#[test]
fn traces_that_cannot_be_replayed_are_said() {
    let directory = tempfile::tempdir().unwrap();
    let replay = |more: &[&str]| {
        run_in(
            directory.path(),
            &"compare --scale 1/64 --trace t".and(more),
        )
    };
    replay(&[]).fails_in_one_line(1, &["t: ", "No such file"]);
    fs::write(directory.path().join("t"), "").unwrap();
    replay(&[]).fails_in_one_line(1, &["empty"]);
    fs::write(directory.path().join("t"), "to whom it may concern\n").unwrap();
    replay(&[]).fails_in_one_line(1, &["no known format"]);
    replay(&["--format", "msr"]).fails_in_one_line(1, &["t:1: "]);
}
