//! Models of workloads: compared, written as traces, and analysed; reading a trace gives the
//! requests written.

use crate::kit::{Words, run, run_in};
use serde_json::Value;

const MODELS: [&str; 10] = [
    "fileserver",
    "oltp",
    "ycsb",
    "tpcc",
    "sysbench",
    "fiu-homes",
    "fiu-mail",
    "fiu-webvm",
    "journal",
    "snapshot",
];

#[test]
fn every_model_runs_in_a_comparison() {
    for model in MODELS {
        let args =
            format!("compare --scheme remap-ssd --scale 1/64 --writes 4000 --workload {model}");
        let result = run(&args.and(&["--json"])).ok().json();
        let run = &result["runs"][0];
        assert!(
            run["requests"]["refused"].as_object().unwrap().is_empty(),
            "{model}: {}",
            run["requests"]
        );
        assert!(run["host_pages"].as_u64().unwrap() > 1000, "{model}");
        assert_eq!(result["config"]["feed"]["workload"], model);
        let content = result["config"]["feed"]["content"].as_str().unwrap();
        assert_eq!(
            content.starts_with("history:"),
            model.starts_with("fiu-"),
            "{content}"
        );
    }
    let listed = run("trace models").ok().out;
    assert!(
        MODELS.iter().all(|model| listed.contains(model)),
        "{listed}"
    );
}

#[test]
fn a_scheme_that_needs_homes_is_served_by_the_journal_and_refuses_the_rest() {
    let args = "compare --scale 1/64 --writes 30000 --scheme wal-ssd,remap-ssd --json";
    let result = run(&args.and(&["--workload", "journal"])).ok().json();
    let remaps = |at: usize| result["runs"][at]["remaps"].as_u64().unwrap();
    assert!(
        remaps(0) > 5000 && remaps(0) == remaps(1),
        "{} and {}",
        remaps(0),
        remaps(1)
    );
    // The other scheme is still run.
    for workload in ["snapshot", "fileserver", "randwrite"] {
        let refused = run(&args.and(&["--workload", workload]));
        assert_eq!(refused.code, 1);
        assert_eq!(refused.json()["runs"][0]["scheme"], "remap-ssd");
        assert!(
            refused
                .err
                .contains("names none: use --workload journal, or another scheme"),
            "{}",
            refused.err
        );
    }
}

fn without(profile: &Value, fields: &[&str]) -> Value {
    let mut profile = profile["profile"].clone();
    for field in fields {
        profile.as_object_mut().unwrap().remove(*field);
    }
    profile
}

#[test]
fn a_trace_that_is_made_has_the_profile_of_its_workload() {
    let directory = tempfile::tempdir().unwrap();
    let stat = |args: &[&str]| {
        run_in(directory.path(), &"trace stat --json".and(args))
            .ok()
            .json()
    };
    for (model, format) in [
        ("fiu-mail", "fiu"),
        ("oltp,direct", "fiu"),
        ("sysbench", "fiu"),
        ("ycsb", "blkparse"),
    ] {
        let out = "made.trace";
        let make = [
            "trace",
            "make",
            model,
            "--requests",
            "3000",
            "--seed",
            "7",
            "--device",
            "1GiB",
            "--out",
            out,
        ];
        let said = run_in(
            directory.path(),
            &[&make[..], &["--format", format]].concat(),
        )
        .ok()
        .out;
        assert!(said.contains("3,000 requests"), "{said}");
        let workload = &stat(&[
            "--workload",
            model,
            "--requests",
            "3000",
            "--seed",
            "7",
            "--device",
            "1GiB",
        ])[0];
        let trace = &stat(&[out])[0];
        assert_eq!(trace["kind"], format);
        // Only one format records contents, and its reader assumes a unique content for a partial
        // page.
        let told = format == "fiu" && model != "oltp,direct";
        let differ: &[&str] = if told {
            &["duration_ns"]
        } else {
            &["duration_ns", "duplicates"]
        };
        assert_eq!(without(workload, differ), without(trace, differ), "{model}");
        let replayed = [
            "compare", "--trace", out, "--scale", "1/64", "--scheme", "none", "--json",
        ];
        let replayed = run_in(directory.path(), &replayed).ok().json();
        assert_eq!(replayed["runs"][0]["requests"]["submitted"], 3000);
    }
    // The same seed gives the same bytes, and another seed different ones.
    let bytes = |seed: &str, out: &str| {
        let make = format!("trace make fiu-homes --requests 500 --seed {seed} --out {out}");
        run_in(directory.path(), &make).ok();
        std::fs::read(directory.path().join(out)).unwrap()
    };
    let one = bytes("1", "a");
    assert_eq!(one, bytes("1", "b"));
    assert_ne!(one, bytes("2", "c"));
}

#[test]
fn what_a_format_cannot_say_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let make = |format: &str| {
        let args = format!("trace make fileserver --requests 2000 --format {format} --out t");
        run_in(directory.path(), &args).ok().out
    };
    assert!(make("msr").contains(
        "(deallocations, remaps or flushes) left out, for which format msr has no words"
    ));
    assert!(!make("blkparse").contains("left out"));
}

#[test]
fn the_table_shows_traces_and_workloads_beside_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let make = "trace make fiu-homes --requests 1000 --out homes.fiu";
    run_in(directory.path(), make).ok();
    let args = "trace stat homes.fiu --workload fiu-homes --requests 1000";
    let text = run_in(directory.path(), args).ok().out;
    let row = |name: &str| -> Vec<String> {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {text}"));
        line[name.len()..]
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    for name in [
        "requests",
        "duplicate writes (FIU)",
        "duplicates stored",
        "duplicate ratio (papers)",
        "unique pages",
    ] {
        let cells = row(name);
        assert_eq!((cells.len(), &cells[0]), (2, &cells[1]), "{name}: {text}");
    }
    assert_eq!(row("requests")[0], "1,000");
    let widths: Vec<usize> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.chars().count())
        .collect();
    assert!(
        widths[2..].iter().all(|width| *width <= widths[1]),
        "aligned: {text}"
    );
}

#[test]
fn traces_that_cannot_be_made_or_read_are_said_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let stat = |args: &[&str]| run_in(directory.path(), &"trace stat".and(args));
    stat(&["none.fiu"]).fails_in_one_line(1, &["none.fiu", "No such file"]);
    std::fs::write(directory.path().join("bad"), "1 0 8 8 0\n2 0 8 eight 0\n").unwrap();
    stat(&["bad"]).fails_in_one_line(1, &["bad:2: "]);
    assert!(
        stat(&["bad", "--skip-bad"])
            .ok()
            .out
            .contains("malformed, skipped")
    );
    let make = |out: &str| {
        ["trace", "make", "oltp", "--requests", "100k", "--out", out].map(str::to_owned)
    };
    run_in(directory.path(), &make("no/such/folder/t"))
        .fails_in_one_line(1, &["no/such/folder/t", "No such file"]);
    if std::path::Path::new("/dev/full").exists() {
        run_in(directory.path(), &make("/dev/full"))
            .fails_in_one_line(1, &["/dev/full: No space left"]);
    }
}

/// A file system of 3 MiB would need privileges that a test does not have; a file size limit fails
/// in the same way.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_leaves_whole_requests_and_says_how_many() {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 2500; exec {} trace make fiu-homes --requests 100k --out t.fiu",
        env!("CARGO_BIN_EXE_remap-ssd")
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let kept = said
        .split("kept are the first ")
        .nth(1)
        .unwrap_or_else(|| panic!("{said}"));
    let kept: usize = kept
        .split(' ')
        .next()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap();
    let text = std::fs::read_to_string(directory.path().join("t.fiu")).unwrap();
    assert!(kept > 10_000 && text.ends_with('\n'), "{said}");
    assert_eq!(text.lines().count(), kept);
}
