//! `crash`: its contract, and that failures are failures.

use crate::kit::run;

#[test]
fn one_scheme_is_an_object_and_several_are_a_list() {
    let one = run(&[
        "crash",
        "--scheme",
        "remap-ssd",
        "--cuts",
        "300",
        "--seed",
        "7",
        "--json",
    ])
    .ok()
    .json();
    assert_eq!(
        (&one["scheme"], &one["violations"], &one["seed"]),
        (&"remap-ssd".into(), &0.into(), &7.into())
    );
    for field in ["cuts", "recoveries", "scripts"] {
        assert!(one[field].as_u64().unwrap() > 0, "{field}");
    }
    assert!(one["cuts"].as_u64().unwrap() >= 300);
    let all = run(&["crash", "--cuts", "100", "--json"]).ok().json();
    let schemes: Vec<&str> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|report| report["scheme"].as_str().unwrap())
        .collect();
    let durable = [
        "none",
        "remap-ssd",
        "flog",
        "nlog",
        "pebble",
        "remap-ssd-x",
        "local-flash",
        "remap-ssd-lh",
        "wal-ssd",
        "shadow-oob",
    ];
    assert_eq!(schemes, durable);
}

#[test]
fn a_campaign_of_cuts_depends_on_the_seed_alone() {
    let with = |threads: &str| {
        run(&[
            "crash",
            "--cuts",
            "300",
            "--scheme",
            "nlog",
            "--threads",
            threads,
            "--json",
        ])
        .ok()
        .out
    };
    assert_eq!(with("1"), with("3"));
}

#[test]
fn schemes_in_dram_are_caught_and_that_is_a_success() {
    let ran = run(&["crash", "--scheme", "opt,unsafe"]).ok();
    assert_eq!(
        ran.out.matches("loses data, as expected: caught").count(),
        2,
        "{}",
        ran.out
    );
    // One cut is hardly enough to catch it; then the campaign has proved nothing.
    let json = run(&["crash", "--scheme", "opt", "--json"]).ok().json();
    assert_eq!(json["violations"], 1);
}

#[test]
fn a_missing_guard_is_noticed_and_its_code_replays() {
    let ran = run(&[
        "crash",
        "--mutant",
        "entry-after-page",
        "--seconds",
        "60",
        "--json",
    ]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let report = ran.json();
    let failure = &report["failures"][0];
    let code = failure["code"].as_str().unwrap();
    assert!(code.ends_with(":entry-after-page"), "{code}");
    let again = run(&["crash", "--replay", code, "--json"]);
    assert_eq!(again.code, 1);
    assert_eq!(again.json()["failures"][0]["text"], failure["text"]);
    let shown = run(&["crash", "--replay", code]);
    assert!(
        shown.code == 1 && shown.out.contains("DATA LOST"),
        "{}",
        shown.out
    );
}
