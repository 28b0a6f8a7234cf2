//! `crash`: its contract, and failures.

use crate::kit::{Words, run};

#[test]
fn one_scheme_is_an_object_and_several_are_a_list() {
    let one = run("crash --scheme remap-ssd --cuts 300 --seed 7 --json")
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
    let all = run("crash --cuts 100 --json").ok().json();
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

// These keep entries in single flash pages, which an unprotected device of four planes cannot program alone.
#[test]
fn schemes_that_settings_do_not_suit_are_left_out_unless_they_are_named() {
    let set = "firmware.power_loss_protection=false,geometry.planes=4";
    let unnamed = run(&["crash", "--cuts", "40", "--set", set, "--json"]).ok();
    for left_out in ["flog", "local-flash"] {
        let note = format!("left out: {left_out} cannot work with these settings: ");
        assert!(unnamed.err.contains(&note), "{}", unnamed.err);
    }
    let all = unnamed.json();
    let schemes = all.as_array().expect("a list");
    assert!(schemes.iter().any(|report| report["scheme"] == "remap-ssd"));
    assert!(schemes.iter().all(|report| report["scheme"] != "flog"));

    let named = format!("crash --cuts 40 --set {set} --scheme remap-ssd,flog");
    run(&named).fails(2, &["no device of the campaign can work so", "scheme flog"]);
}

#[test]
fn a_campaign_of_cuts_depends_on_the_seed_alone() {
    let with = |threads: &str| {
        run(&format!(
            "crash --cuts 300 --scheme nlog --threads {threads} --json"
        ))
        .ok()
        .out
    };
    assert_eq!(with("1"), with("3"));
}

#[test]
fn schemes_in_dram_are_caught_and_that_is_a_success() {
    let ran = run("crash --scheme opt,unsafe").ok();
    assert_eq!(
        ran.out.matches("loses data, as expected: caught").count(),
        2,
        "{}",
        ran.out
    );
    // One cut may not be enough to catch it; then the campaign has proved nothing.
    let json = run("crash --scheme opt --json").ok().json();
    assert_eq!(json["violations"], 1);
}

#[test]
fn a_missing_guard_is_noticed_and_its_code_replays() {
    let ran = run("crash --mutant entry-after-page --seconds 60 --json");
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

#[test]
fn a_value_that_is_set_counts_on_every_device_and_is_needed_to_replay() {
    let campaign = |set: &[&str]| {
        let args = "crash --scheme remap-ssd --cuts 300 --seed 5 --json";
        run(&args.and(set)).ok().json()
    };
    let (with, without) = (campaign(&[]), campaign(&["--set", "firmware.dedup=false"]));
    assert_ne!(with["marks"], without["marks"]);
    assert_eq!(campaign(&["--set", "firmware.dedup=false"]), without);

    // A failure lists the settings, and its code fails again with them.
    let found = run(
        "crash --mutant entry-after-page --set firmware.wear_gap=2 --set firmware.watermark=0.9",
    )
    .fails(1, &[]);
    let line = found
        .out
        .lines()
        .find_map(|line| line.strip_prefix("Run it again: remap-ssd "))
        .expect("it says how to run it again");
    assert!(
        line.ends_with(" --set firmware.wear_gap=2 --set firmware.watermark=0.9"),
        "{line}"
    );
    let words: Vec<&str> = line.split(' ').collect();
    assert!(run(&words).fails(1, &[]).out.contains("DATA LOST"));
}

#[test]
fn what_a_campaign_cannot_be_set_to_is_said_before_it_runs() {
    for (set, words) in [
        ("link.mib_s=3", "a campaign knows no time"),
        ("geometry.channels=2", "channels take part in nothing else"),
        ("geometry.dies=0", "geometry.dies = 0 must be 1 to 256"),
        ("firmware.log_bytes=17592186044416", "bytes of NVRAM"),
        ("firmware.dealloc_slots=4294967295", "bytes of NVRAM"),
        ("firmware.gc_policy=cagc", "use --gc instead"),
        ("firmware.gc_fre=0.1", "did you mean"),
        ("firmware.gc_free=0.9", "must be 0 to below 0.9"),
    ] {
        run(&format!("crash --scheme remap-ssd --cuts 10 --set {set}")).fails(2, &[words]);
    }
}
