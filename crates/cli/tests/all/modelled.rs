//! Contents of a model for traces without digests: the same by every command.

use crate::kit::{Words, run_in};
use serde_json::Value;
use std::path::Path;

/// Requests of FIU homes as a trace without digests, and with them.
fn traces(dir: &Path) {
    for (name, format) in [("plain.csv", "msr"), ("own.fiu", "fiu")] {
        let make = "trace make fiu-homes --requests 5000 --device 200MiB";
        let to = ["--format", format, "--out", name];
        run_in(dir, &make.and(&to)).ok();
    }
}

const COMPARED: [&str; 9] = [
    "compare",
    "--scheme",
    "remap-ssd",
    "--scale",
    "1/256",
    "--trace",
    "plain.csv",
    "--fold",
    "compact",
];

fn compared(dir: &Path, more: &[&str]) -> Value {
    run_in(dir, &[&COMPARED[..], &["--json"], more].concat())
        .ok()
        .json()
}

/// Duplicates found, as a share of the pages written.
fn hits(run: &Value) -> f64 {
    run["dedup_hits"].as_f64().unwrap() / run["host_pages"].as_f64().unwrap()
}

#[test]
fn a_trace_without_digests_gets_the_duplicates_of_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    traces(dir);

    let without = compared(dir, &[]);
    assert_eq!(hits(&without["runs"][0]), 0.0);
    assert!(without["config"]["feed"]["trace"]["content"].is_null());

    let plain = compared(dir, &["--content", "plain:0.3"]);
    assert_eq!(plain["config"]["feed"]["trace"]["content"], "plain:0.3");
    assert_eq!(plain["config"]["aging"]["content"], "unique");
    let share = hits(&plain["runs"][0]);
    assert!((share - 0.3).abs() < 0.03, "{share}");
    assert_eq!(plain, compared(dir, &["--content", "plain:0.3"]));
    let reseeded = compared(dir, &["--content", "plain:0.3", "--seed", "2"]);
    assert_ne!(hits(&reseeded["runs"][0]), share);

    // Those of the papers' model are on a device that was aged with them; `--duplicates` means that
    // model.
    let aged = ["--aging", "content=papers:0.3", "--duplicates", "0.3"];
    let papers = compared(dir, &aged);
    assert_eq!(papers["config"]["aging"]["content"], "papers:0.3:0.2");
    assert!(hits(&papers["runs"][0]) > 0.5);

    let text = run_in(dir, &[&COMPARED[..], &["--content", "plain:0.3"]].concat())
        .ok()
        .out;
    assert!(
        text.contains(", contents plain:0.3,") && text.contains("distinct; contents plain:0.3;"),
        "{text}"
    );
}

#[test]
fn stat_shows_the_duplicates_that_a_model_makes_of_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    traces(dir);
    let stat = |file: &str, more: &[&str]| {
        run_in(dir, &[&["trace", "stat", "--json", file], more].concat())
            .ok()
            .json()[0]
            .clone()
    };
    let share = |found: &Value| {
        found["profile"]["duplicates"]["write_share"]
            .as_f64()
            .unwrap()
    };

    let without = stat("plain.csv", &[]);
    assert_eq!(
        (share(&without), &without["profile"]["duplicates"]["model"]),
        (0.0, &"unique".into())
    );
    let plain = stat("plain.csv", &["--content", "plain:0.4"]);
    assert_eq!(plain["content"], "plain:0.4");
    assert!((share(&plain) - 0.4).abs() < 0.03, "{plain}");
    assert_ne!(
        plain,
        stat("plain.csv", &["--content", "plain:0.4", "--seed", "2"])
    );

    // The duplicates of one trace, measured and given to another.
    let own = stat("own.fiu", &[]);
    let model = own["profile"]["duplicates"]["model"].as_str().unwrap();
    let measured = stat("plain.csv", &["--content", model]);
    assert!(
        share(&own) > 0.25 && (share(&own) - share(&measured)).abs() < 0.03,
        "{model}"
    );
    let run = compared(dir, &["--content", model]);
    assert!(hits(&run["runs"][0]) > 0.2);
}

#[test]
fn a_trace_with_digests_refuses_a_model_of_contents_by_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    traces(dir);
    for (args, option) in [
        (
            &["compare", "--trace", "own.fiu", "--content", "plain:0.3"][..],
            "--content",
        ),
        (
            &["compare", "--trace", "own.fiu", "--duplicates", "0.3"],
            "--duplicates",
        ),
        (
            &["trace", "stat", "own.fiu", "--content", "plain:0.3"],
            "--content",
        ),
    ] {
        let words = [
            "own.fiu",
            "(format fiu) records digests of its contents",
            option,
        ];
        run_in(dir, args).fails_in_one_line(2, &words);
    }

    // The contents of aging are an option of their own.
    let aged = "compare --trace own.fiu --scale 1/256 --scheme none";
    run_in(dir, &aged.and(&["--aging", "content=plain:0.3"])).ok();
}

#[test]
fn contents_of_a_trace_are_an_axis_of_a_sweep_and_a_list_of_an_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    traces(dir);
    let write = |path: &str, text: String| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let alone = compared(dir, &["--content", "plain:0.3"])["runs"][0].clone();

    let options = "trace = \"plain.csv\"\nfold = \"compact\"\nscale = \"1/256\"";
    let grid = "content = [\"plain:0\", \"plain:0.3\"]";
    write(
        "grid.toml",
        format!("[options]\n{options}\n[grid]\n{grid}\n"),
    );
    let swept = run_in(dir, "sweep grid.toml --json").ok().json();
    let points = swept["points"].as_array().unwrap();
    assert_eq!((points.len(), hits(&points[0]["run"])), (2, 0.0));
    assert_eq!(points[1]["run"], alone);

    let setup = "title = \"t\"\nseed = 1\n[setup.a]\nabout = \"a\"\npreset = \"fast21-32g\"\n\
        nvram_used = 0.9\nnvram_valid = 0.7\n";
    let lengths = ["full", "quick", "smoke"]
        .map(|form| format!("{form} = {{ scale = \"1/256\", rounds = 1.0 }}\n"));
    write("papers/mine.toml", setup.to_owned() + &lengths.concat());
    let experiment = |trace: &str, contents: &str| {
        let trace = dir.join(trace);
        let runs = format!(
            "setup = \"a\"\nworkload = [\"trace:{}\"]\ncontent = [{contents}]\nscheme = [\"remap-ssd\"]",
            trace.display()
        );
        let head = "title = \"t\"\npaper = \"mine\"\nanalysis = \"table\"";
        write(
            "mine/experiment.toml",
            format!("{head}\n[[runs]]\n{runs}\n"),
        );
        run_in(dir, "experiment mine --from . --smoke")
    };

    experiment("plain.csv", "\"own\", \"plain:0.3\"").ok();
    let files = std::fs::read_dir(dir.join("results/runs")).unwrap();
    let mut shares: Vec<f64> = files
        .map(|file| {
            let text = std::fs::read(file.unwrap().path()).unwrap();
            let kept: Value = serde_json::from_slice(&text).unwrap();
            hits(&kept["result"])
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    assert!(
        shares.len() == 2 && shares[0] == 0.0 && (shares[1] - 0.3).abs() < 0.03,
        "{shares:?}"
    );

    experiment("own.fiu", "\"own\"").ok();
    let words = [
        "own.fiu",
        "records digests",
        "content = [\"own\"] keeps them",
    ];
    experiment("own.fiu", "\"plain:0.3\"").fails_in_one_line(2, &words);
}

/// A real trace without digests, if it is here.
#[test]
fn a_recorded_trace_has_duplicates_to_remap_with_a_model() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/traces/block-nohash/cloudPhysicsIO.vscsi.xz");
    if !path.exists() {
        println!("skipped: the trace excerpt is not here");
        return;
    }
    let path = path.to_str().unwrap();
    let args = format!("compare --json --scale 1/64 --scheme none,remap-ssd --trace {path}");
    let result = run_in(Path::new("."), &args.and(&["--content", "plain:0.3"]))
        .ok()
        .json();
    let [none, remap] = [&result["runs"][0], &result["runs"][1]];
    assert_eq!(none["requests"], remap["requests"]);
    let share = hits(remap);
    assert!((0.27..0.31).contains(&share), "{share}");
    assert!(remap["flash_pages"].as_u64() < none["flash_pages"].as_u64());
}
