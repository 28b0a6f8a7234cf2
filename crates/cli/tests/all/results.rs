//! Results: mistakes are reported early, results are never lost, and two results are compared.

use crate::kit::{TINY, Words, compare, run, run_in};
use serde_json::Value;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_scheme_that_cannot_run_does_not_end_the_others() {
    let args = ["compare", "--scheme", "none,pebble,wal-ssd,opt"];
    let ran = run(&[&args, TINY].concat()).fails(
        1,
        &[
            "note: pebble is left out",
            "; --log-size 177MiB will do",
            "note: wal-ssd is left out",
            "2 of 4 schemes without a result",
        ],
    );
    assert!(
        ran.out.contains("\nnone ") && ran.out.contains("\nopt "),
        "{}",
        ran.out
    );

    let json = run(&"compare --json --scheme none,pebble".and(TINY));
    let json = json.fails(1, &["1 of 2 schemes without a result"]).json();
    assert_eq!(json["runs"].as_array().unwrap().len(), 1);
    assert_eq!(json["failed"][0]["scheme"], "pebble");
    // Alone, it is a mistake in the arguments.
    run(&"compare --scheme pebble".and(TINY)).fails_in_one_line(2, &["--log-size 177MiB will do"]);
    let enough = ["compare", "--scheme", "pebble", "--log-size", "177MiB"];
    run(&[&enough, TINY].concat()).ok();
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    for option in ["--report", "--out", "--save-aged"] {
        let began = Instant::now();
        // Hours of work, if it started.
        let args = [
            "compare",
            "--scheme",
            "none",
            "--writes",
            "100G",
            option,
            "no/such.file",
        ];
        run_in(directory.path(), &args).fails_in_one_line(1, &["no/such.file"]);
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    let args = "compare --scheme none --json --out a.json".and(TINY);
    let ran = run_in(directory.path(), &args).ok();
    assert!(ran.err.ends_with("written to a.json\n"), "{}", ran.err);
    let written = std::fs::read_to_string(directory.path().join("a.json")).unwrap();
    assert_eq!(written, ran.out);
    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left beside it");
}

/// The exit code in a shell.
fn shell_code(status: ExitStatus) -> i32 {
    let by_signal = || Some(128 + status.signal()?);
    status.code().or_else(by_signal).expect("it has ended")
}

/// Runs until `file` exists, interrupts, and returns the exit code in a shell, standard output and
/// errors.
fn interrupted_at<W: Words + ?Sized>(
    directory: &Path,
    args: &W,
    file: &str,
) -> (i32, String, String) {
    let child = started(directory, args);
    let deadline = Instant::now() + Duration::from_secs(300);
    while !directory.join(file).exists() {
        assert!(Instant::now() < deadline, "{file} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    interrupted(child)
}

/// Starts the program with the default handling of SIGINT: the tests may run with SIGINT ignored,
/// like background commands of a shell.
fn started<W: Words + ?Sized>(directory: &Path, args: &W) -> Child {
    let child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_remap-ssd")])
        .args(args.words())
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    // Until `env` has executed the program, it ignores SIGINT as well.
    let name = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&name).unwrap() != "remap-ssd\n" {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn interrupted(child: Child) -> (i32, String, String) {
    let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        shell_code(output.status),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn an_interruption_shows_what_has_finished() {
    let directory = tempfile::tempdir().unwrap();
    let args = "compare --scheme none,remap-ssd --scale 1/64 --writes 2M --threads 1 \
                --save-aged aged.img --out a.json";
    // The second scheme's device is saved just before it is measured: the first has finished.
    let (code, out, err) = interrupted_at(directory.path(), args, "aged.remap-ssd.img");
    assert_eq!(code, 130, "{out}{err}");
    assert!(out.contains("\nnone "), "{out}");
    assert_eq!(
        err,
        "written to a.json\ninterrupted: 1 of 2 schemes without a result: remap-ssd (stopped)\n"
    );
    let kept = std::fs::read_to_string(directory.path().join("a.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["runs"].as_array().unwrap().len(), 1);
}

const NOTHING: &str = "interrupted before the first result\n";

#[test]
fn an_interruption_before_the_first_result_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let grid = directory.path().join("grid.toml");
    let text = "[options]\nscale = \"1/8\"\nwrites = \"20M\"\n[grid]\nseed = [1, 2]\n";
    std::fs::write(&grid, text).unwrap();

    let commands: [(&str, &str); 3] = [
        (
            "compare --scheme none --scale 1/64 --writes 20M --save-aged aged.img",
            "aged.img",
        ),
        ("sweep grid.toml --threads 1", "grid.sweep"),
        (
            "experiment fast21-fig5 --quick --threads 1 --out results",
            "results",
        ),
    ];
    for (command, file) in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let (code, out, err) = interrupted_at(directory.path(), &args, file);
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (130, "", NOTHING),
            "{command}"
        );
    }
}

#[test]
fn an_interruption_gives_up_a_trace_that_is_being_read() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("trace.csv");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );

    for json in [&[][..], &["--json"]] {
        let args = "compare --scheme none --trace trace.csv --format alibaba";
        let args: Vec<&str> = args.split(' ').chain(json.iter().copied()).collect();
        let child = started(directory.path(), &args);

        // It has no end: only the signal ends the reading, after one MiB.
        let mut feed = std::fs::File::create(&pipe).unwrap();
        let record = b"0,W,8192,4096,1000\n".repeat(1000);
        for _ in 0..55 {
            feed.write_all(&record).unwrap();
        }
        let feeding = std::thread::spawn(move || while feed.write_all(&record).is_ok() {});

        let (code, out, err) = interrupted(child);
        assert_eq!((code, out.as_str(), err.as_str()), (130, "", NOTHING));
        feeding.join().unwrap();
    }
}

#[test]
fn an_interrupted_campaign_shows_what_it_has_found() {
    let directory = tempfile::tempdir().unwrap();
    let mut args = vec!["crash", "--scheme", "remap-ssd,opt", "--seconds", "600"];

    // It writes no file that shows its progress.
    std::fs::write(directory.path().join("now"), "").unwrap();
    let (code, out, err) = interrupted_at(directory.path(), &args, "now");
    assert!(code == 130 && out.is_empty(), "{code} {out}{err}");

    args.extend(["--threads", "1"]);
    let child = started(directory.path(), &args);
    std::thread::sleep(Duration::from_secs(3));
    let (code, out, err) = interrupted(child);
    assert_eq!(code, 130, "{out}{err}");
    if err != NOTHING {
        assert!(out.contains("nothing lost so far"), "{out}");
        assert_eq!(
            err,
            "interrupted: 1 of 2 schemes, and remap-ssd not to its end\n"
        );
    }
}

#[test]
fn a_result_says_by_what_it_was_made_and_nothing_that_was_not_measured_is_zero() {
    let result = compare("--scheme none --workload randread,pages=4");
    assert_eq!(result["format_version"], 1);
    assert!(result["program_version"].is_string());
    let command: Vec<&str> = result["command"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(command[0], "compare");
    assert!(command.contains(&"randread,pages=4") && !command.contains(&"--json"));

    let run_of = &result["runs"][0];
    for missing in [
        "write_amplification",
        "life_tb_written",
        "drive_writes_per_day",
    ] {
        assert!(run_of[missing].is_null(), "{missing}: {}", run_of[missing]);
    }
    assert_eq!(run_of["latency_us"]["count"], 0);
    assert!(run_of["latency_us"]["p50"].is_null());
    // 750 requests: enough for a quantile of one in a hundred, not of one in a thousand.
    let reads = &run_of["read_latency_us"];
    assert!(
        reads["p99"].is_number() && reads["p999"].is_null(),
        "{reads}"
    );
    let per_s = |name: &str| run_of[name].as_f64().unwrap();
    let pages = per_s("iops") / per_s("requests_per_s");
    assert!((3.9..4.1).contains(&pages), "{pages}");

    let args = "compare --scheme none --workload randread,pages=4";
    let table = run(&args.and(TINY)).ok().out;
    let head = table
        .lines()
        .find(|line| line.starts_with("scheme"))
        .unwrap();
    assert!(head.contains("kreq/s") && head.contains("read"), "{head}");
    assert!(!head.contains("write"), "{head}");
}

#[test]
fn two_results_are_compared_and_a_condition_that_holds_fails() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let make = |out: &str, scheme: &str, more: &[&str]| {
        let args = [&["compare", "--scheme", scheme, "--out", out], TINY, more].concat();
        run_in(dir, &args).ok();
    };
    make("a.json", "none,remap-ssd", &[]);
    make(
        "b.json",
        "remap-ssd,opt",
        &["--set", "flash.program_ns=1_000_000"],
    );
    let diff = |more: &[&str]| run_in(dir, &"compare diff a.json b.json".and(more));

    let shown = diff(&[]).ok();
    assert!(
        shown.out.contains("remap-ssd write_amplification"),
        "{}",
        shown.out
    );
    assert!(shown.err.contains("only in a.json: none"), "{}", shown.err);
    assert!(
        shown
            .err
            .contains("device.flash.program_ns: 500000 -> 1000000"),
        "{}",
        shown.err
    );
    diff(&["--fail-if", "wa>+2%", "--fail-if", "bw>+0%"]).ok();
    let failed = diff(&["--fail-if", "wa>+2%,p99>+10%,bw<-1%"]).fails(1, &[]);
    assert!(
        failed.out.contains("FAILED p99>+10%: remap-ssd"),
        "{}",
        failed.out
    );
    assert!(failed.out.contains("FAILED bw<-1%") && !failed.out.contains("FAILED wa"));

    let json = diff(&["--json", "--fail-if", "iops<1000000000"])
        .fails(1, &[])
        .json();
    assert_eq!(json["failed"][0]["condition"], "iops<1000000000");
    assert_eq!(json["only_in_b"], serde_json::json!(["opt"]));
    diff(&["--fail-if", "write_amplificaton>+2%"])
        .fails(2, &["did you mean `write_amplification`?"]);
    // A missing measurement never counts as a condition met.
    diff(&["--fail-if", "read_p99>+2%"]).fails(1, &["no figure `read_latency_us.p99`"]);
    diff(&["--fail-if", "wa>2%"]).fails(2, &["a change has a sign"]);

    // A run without failures leaves their counts out: they are 0.
    let counts = "requests.refused>0,requests.refused.LBA out of range>0,read_errors.lost>0";
    diff(&["--fail-if", counts]).ok();
    diff(&["--fail-if", "requests.refused<1"]).fails(1, &[]);
    diff(&["--fail-if", "requests.refused.unread>0"])
        .fails(2, &["there are: LBA out of range, unrecovered read error"]);
}

#[test]
fn a_difference_within_both_intervals_is_noise_and_no_regression() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let write = |name: &str, bandwidth: f64, ci95: serde_json::Value| {
        let run = serde_json::json!({
            "scheme": "none",
            "bandwidth_mib_s": bandwidth,
            "requests_per_s": 10.0 * bandwidth,
            "gc_pages": 1000.0 - bandwidth,
            "erases": 1100.0 - bandwidth,
            "ci95": { "bandwidth_mib_s": ci95, "gc_pages": ci95 },
            "steady": { "is_steady": !ci95.is_null() },
        });
        let text = serde_json::json!({ "runs": [run] }).to_string();
        std::fs::write(dir.join(name), text).unwrap();
    };
    write("a.json", 100.0, 3.0.into());
    write("near.json", 96.0, 4.0.into());
    write("far.json", 94.0, 4.0.into());
    write("short.json", 96.0, serde_json::Value::Null);
    let diff = |b: &str, more: &[&str]| {
        let args = ["compare", "diff", "a.json", b, "--fail-if", "bw<-2%"];
        run_in(dir, &[&args, more].concat())
    };

    // The difference of means known to ±3 and ±4 is known to ±5.
    let near = diff("near.json", &[]).ok();
    assert!(
        near.out.contains("100 ±3") && near.out.contains("within the noise (-4.00 %)"),
        "{}",
        near.out
    );
    assert!(
        near.out.contains("within the noise (+0.44 %)"),
        "{}",
        near.out
    );
    // Collected pages have an interval here, and erases have none.
    let grown = |figure: &str| diff("near.json", &["--fail-if", &format!("{figure}>+0%")]);
    grown("gc_pages").ok();
    grown("erases").fails(1, &[]);
    // Requests have no interval.
    assert!(near.out.contains("      -4.00 %"), "{}", near.out);
    let json = diff("near.json", &["--json"]).ok().json();
    let figure = &json["runs"][0]["figures"]["bandwidth_mib_s"];
    assert_eq!(
        (&figure["ci95"], &figure["within_noise"]),
        (&5.0.into(), &true.into())
    );
    assert_eq!(json["failed"], serde_json::json!([]));

    diff("far.json", &[]).fails(1, &[]);
    let json = diff("short.json", &["--json"]).fails(1, &[]).json();
    let figure = &json["runs"][0]["figures"]["bandwidth_mib_s"];
    assert!(figure["ci95"].is_null() && figure["within_noise"] == false);
    // It has none because it was transient.
    let label = &json["runs"][0]["label"];
    assert_eq!(json["transient"], serde_json::json!([label]));
    let said = "transient, so without intervals, and every difference counts";
    diff("short.json", &[]).fails(1, &[said]);
}

#[test]
fn any_value_of_the_device_is_set_by_its_name_and_a_misspelt_one_is_suggested() {
    let result = compare(
        "--scheme none --set firmware.gc_free=20%,firmware.gc_mode=published \
         --set flash.read_ns=40_000",
    );
    let device = &result["config"]["device"];
    assert_eq!(device["firmware"]["gc_free"], 0.2);
    assert_eq!(device["firmware"]["gc_at_once"], true);
    assert_eq!(device["flash"]["read_ns"], 40_000);

    let refused = |setting: &str, words: &[&str]| {
        run(&["compare", "--set", setting]).fails(2, words);
    };
    refused("firmware.gc_fre=0.1", &["did you mean `firmware.gc_free`?"]);
    refused("firmware.gc_free=2", &["must be 0 to below 0.9"]);
    refused(
        "firmware.gc_fre=0.1,flash.read_ns=1,firmware.gc_free=2",
        &[
            "2 things are wrong",
            "did you mean `firmware.gc_free`?",
            "must be 0 to below 0.9",
        ],
    );
    run("compare --scheme Remap-SSD").fails(2, &["did you mean `remap-ssd`?"]);
    run("compare --preset FAST21-32G").fails(2, &["did you mean `fast21-32g`?"]);

    let directory = tempfile::tempdir().unwrap();
    let args = "image create disk --size 64MiB --set firmware.wear_gap=7";
    run_in(directory.path(), args).ok();
    let kept = std::fs::read_dir(directory.path().join("disk")).unwrap();
    let is_set = |path: std::path::PathBuf| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("wear_gap = 7"))
    };
    assert!(kept.into_iter().any(|entry| is_set(entry.unwrap().path())));
}

#[test]
fn the_table_of_a_comparison_is_written_for_a_paper() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let make = |file: &str| {
        let args = ["compare", "--scheme", "none,remap-ssd", "--table", file];
        run_in(dir, &[&args, TINY].concat())
    };
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();

    make("a.md").ok();
    let markdown = read("a.md");
    assert!(markdown.starts_with("| scheme | MiB/s |"), "{markdown}");
    assert!(markdown.contains("\n| remap-ssd | "), "{markdown}");
    let command = "remap-ssd compare --scheme none,remap-ssd --scale 1/64";
    assert!(markdown.contains(command), "{markdown}");

    make("a.tex").ok();
    let latex = read("a.tex");
    assert!(latex.contains("\\begin{tabular}{lrr"), "{latex}");
    assert!(latex.contains("\n  remap-ssd & "), "{latex}");

    make("a.csv").ok();
    let csv = read("a.csv");
    let json = compare("--scheme none,remap-ssd");
    let of_remap = &json["runs"][1]["write_amplification"];
    assert!(csv.contains(&format!(",{of_remap},")), "{csv}");
    make("a.pdf").fails(2, &["--table", "ends in .tex, .md or .csv"]);
}

#[test]
fn the_table_of_a_comparison_has_the_figures_of_show() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let make = |more: &[&str]| {
        let args = ["compare", "--scheme", "none"];
        run_in(dir, &[&args, TINY, more].concat())
    };
    let show = ["--show", "wa,gc_pages"];
    make(&[&show[..], &["--table", "a.csv"]].concat()).ok();
    make(&[&show[..], &["--table", "a.md"]].concat()).ok();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let heading =
        "scheme,state,write_amplification,ci95.write_amplification,gc_pages,ci95.gc_pages\r\n";
    assert!(read("a.csv").starts_with(heading), "{}", read("a.csv"));
    let heading = "| scheme | state | write amplification | gc pages |\n";
    assert!(read("a.md").starts_with(heading), "{}", read("a.md"));

    make(&["--table", "b.md", "--show", "write_amplificaton"])
        .fails(2, &["--show", "did you mean `write_amplification`?"]);
    make(&show).fails(2, &["--table"]);
    assert!(!dir.join("b.md").exists());
}
