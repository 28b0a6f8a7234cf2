//! `experiment`: its output, continuing after an interruption, and mistakes.

use super::kit::{run, run_in};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// All files below a directory with their bytes.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path)
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), bytes);
            }
        }
    }
    found
}

/// Short ones of each kind: with claims, with findings, with recovery. The library's test runs all.
const SOME: [&str; 5] = [
    "fast21-fig5",
    "fast21-fig8",
    "pebble-micro",
    "recovery",
    "cost",
];

#[test]
fn experiments_run_in_their_smoke_form_and_leave_claims_figures_and_tables() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let args = [&["experiment"], &SOME[..], &["--smoke", "--json"]].concat();
    let ran = run_in(directory.path(), &args).ok().json();

    let claims: Value =
        serde_json::from_slice(&std::fs::read(out.join("claims.json")).unwrap()).unwrap();
    assert_eq!(ran["claims"], claims);
    let claims = claims.as_array().unwrap();
    for claim in claims {
        for field in ["id", "paper", "ours", "verdict", "why"] {
            assert!(claim.get(field).is_some(), "{field} is not in {claim}");
        }
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(["holds", "same direction", "differs", "calibrated"].contains(&verdict));
        assert!(
            claim["paper"].is_number() && claim["ours"].is_number(),
            "{claim}"
        );
    }

    // Everything that the list names for an experiment exists after it has run.
    let listed = run("experiment list --json").ok().json();
    let listed = listed.as_array().unwrap().iter();
    let ran: Vec<&Value> = listed
        .filter(|listed| SOME.contains(&listed["name"].as_str().unwrap()))
        .collect();
    assert_eq!(ran.len(), SOME.len());
    for id in ran
        .iter()
        .flat_map(|listed| listed["claims"].as_array().unwrap())
    {
        assert!(claims.iter().any(|claim| claim["id"] == *id), "{id}");
    }

    let files = files(&out);
    let page = String::from_utf8(files[Path::new("report.html")].clone()).unwrap();
    assert!(
        !page.contains("http://") || page.matches("http").all(|_| page.contains("www.w3.org")),
        "nothing is fetched"
    );
    let ending = |ending: &str| {
        files
            .keys()
            .filter(|path| path.extension().is_some_and(|e| e == ending))
            .count()
    };
    assert!(ending("svg") >= 5 && ending("csv") >= 2 && ending("csv") == ending("parquet"));
    assert!(
        files
            .keys()
            .all(|path| path.extension().is_some_and(|e| e != "part"))
    );
}

// Killed right after the first finished runs, then repeated: the same bytes as without an
// interruption.
#[test]
fn an_interrupted_experiment_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let args = |out: &str| {
        [
            "experiment",
            "fast21-fig5",
            "--smoke",
            "--threads",
            "1",
            "--out",
            out,
        ]
        .map(str::to_owned)
    };
    run_in(directory.path(), &args("whole")).ok();
    let broken = directory.path().join("broken");
    let mut child = Command::new(env!("CARGO_BIN_EXE_remap-ssd"))
        .args(args("broken"))
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (began, runs) = (Instant::now(), broken.join("runs"));
    let finished = || std::fs::read_dir(&runs).map_or(0, |files| files.count());
    while finished() < 3 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !broken.join("claims.json").exists(),
        "it was interrupted before its end"
    );
    let kept = finished();
    // Partial files left by the kill, and a damaged file, count as missing.
    std::fs::write(runs.join("0123.json.77.part"), "{").unwrap();
    let first = std::fs::read_dir(&runs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "json"));
    std::fs::write(first.unwrap(), "{\"program\":").unwrap();
    let ran = run_in(directory.path(), &args("broken")).ok();
    assert!(
        ran.err.contains("are there already"),
        "{} runs were kept: {}",
        kept,
        ran.err
    );
    std::fs::remove_file(runs.join("0123.json.77.part")).unwrap();
    let mut resumed = files(&broken);
    resumed.retain(|path, _| path.extension().is_some_and(|e| e != "part"));
    let whole = files(&directory.path().join("whole"));
    assert_eq!(
        resumed.keys().collect::<Vec<_>>(),
        whole.keys().collect::<Vec<_>>()
    );
    assert!(resumed == whole, "the same bytes");
}

#[test]
fn a_run_that_needs_more_memory_than_there_is_for_all_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["agreement", "indirection-units"] {
        run_in(
            scratch.path(),
            &format!("experiment {name} --quick --memory 1KiB"),
        )
        .fails_in_one_line(2, &["--memory: run", "needs about", "1.00 KiB are given"]);
    }
}

#[test]
fn mistakes_are_one_sentence_each() {
    run("experiment fig99")
        .fails_in_one_line(2, &["no experiment is named `fig99`", "fast21-fig5"]);
    run("experiment all recovery").fails_in_one_line(2, &["stands alone"]);
    run("experiment mine --from /nowhere").fails_in_one_line(2, &["/nowhere"]);
    run("experiment").fails(2, &["NAME"]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    run_in(
        directory.path(),
        "experiment fast21-fig7 --smoke --out file",
    )
    .fails_in_one_line(1, &["file", "finished runs are kept"]);
}

// The larger device has room for the workload's files, the smaller one does not: both are checked
// before the first run.
#[test]
fn a_workload_that_a_later_device_has_no_room_for_is_said_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let mine = directory.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    let grid = |capacity: &str| {
        let text = format!(
            r#"
title = "Two sizes"
paper = "fast21"
analysis = "table"

[[runs]]
setup = "a"
scheme = ["opt"]
workload = ["fileserver,size=20.7"]
content = ["own"]
capacity = [{capacity}]
"#
        );
        std::fs::write(mine.join("experiment.toml"), text).unwrap();
        run_in(directory.path(), "experiment mine --from . --smoke")
    };

    grid("1.0, 0.5").fails_in_one_line(2, &["mine/experiment.toml", "fileserver needs"]);
    assert!(!directory.path().join("results").exists());

    grid("1.0").ok();
    assert!(directory.path().join("results").exists());
}

#[test]
fn an_experiment_runs_on_devices_that_have_what_is_set_and_keeps_their_results_apart() {
    let directory = tempfile::tempdir().unwrap();
    let measure = |more: &[&str]| {
        let args = ["experiment", "fast21-fig7", "--smoke", "--json"];
        run_in(directory.path(), &[&args, more].concat())
            .ok()
            .json()
    };
    // Number of results kept, and of those for devices with this read time.
    let kept = || {
        let all = files(&directory.path().join("results/runs"));
        let has = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains("1234567");
        (all.len(), all.values().filter(|bytes| has(bytes)).count())
    };

    let published = measure(&[]);
    let (runs, slow) = kept();
    assert_eq!((runs > 0, slow), (true, 0));

    measure(&["--set", "flash.read_ns=1_234_567"]);
    assert_eq!(
        kept(),
        (2 * runs, runs),
        "no device's result is taken for another's"
    );
    assert_eq!(measure(&[])["claims"], published["claims"]);

    for (setting, word) in [
        ("firmware.scheme=opt", "chooses firmware.scheme itself"),
        ("flash.read_nss=1", "flash.read_ns"),
    ] {
        let args = ["experiment", "fast21-fig7", "--smoke", "--set", setting];
        run_in(directory.path(), &args).fails_in_one_line(2, &[word]);
    }
}

/// What determines the measurements can be written either way: the share of the device that a
/// workload uses, how the device is filled, and with which contents.
#[test]
fn a_run_of_an_experiment_measures_the_same_as_the_comparison_that_is_written_so() {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: String| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };

    for (at, (fill, workload, content, aging)) in [
        (
            "fill = \"whole\"",
            "randwrite,span=0.5",
            "papers:0.3",
            "fill=whole,nvram_used=0.6,nvram_valid=0.7,overwrite=0,content=papers:0.3",
        ),
        (
            "fill = \"sequential\"\naging_content = \"plain:0.2\"",
            "zipfrw:0.9:20,span=0.25,pages=2",
            "history:0.4",
            "fill=ordered,content=plain:0.2",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let setup = format!(
            "title = \"t\"\nseed = 3\n[setup.a]\nabout = \"a\"\npreset = \"fast21-32g\"\n{fill}\n\
             nvram_used = 0.6\nnvram_valid = 0.7\n"
        );
        let lengths = ["full", "quick", "smoke"]
            .map(|form| format!("{form} = {{ scale = \"1/256\", rounds = 0.25 }}\n"));
        write("papers/mine.toml", setup + &lengths.concat());
        let runs = format!("setup = \"a\"\nworkload = [\"{workload}\"]\ncontent = [\"{content}\"]");
        write(
            "mine/experiment.toml",
            format!(
                "title = \"t\"\npaper = \"mine\"\nanalysis = \"table\"\n[[runs]]\n{runs}\nscheme = [\"remap-ssd\"]\n"
            ),
        );

        let out = directory.path().join(format!("out{at}"));
        let args = ["experiment", "mine", "--from", ".", "--smoke", "--out"];
        run_in(
            directory.path(),
            &[&args[..], &[out.to_str().unwrap()]].concat(),
        )
        .ok();
        let kept = files(&out.join("runs")).into_values().next().unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let pages = kept["run"]["pages"].to_string();

        let compared = run(&format!(
            "compare --scheme remap-ssd --scale 1/256 --seed 3 --json --workload {workload} \
             --content {content} --aging {aging} --writes {pages}"
        ))
        .ok()
        .json();

        let compared = compared["runs"][0].as_object().unwrap();
        let of_experiment = kept["result"].as_object().unwrap();
        // Left out of an experiment's results, to keep them small; or of one of the two.
        let elsewhere = ["latency_cdf", "aging", "recovery"];
        assert!(compared.len() > 30 && compared["host_pages"].as_u64() > Some(5_000));
        for (name, value) in compared {
            if !elsewhere.contains(&name.as_str()) {
                assert_eq!(of_experiment.get(name), Some(value), "{workload}: {name}");
            }
        }
    }
}
